"""On which device to compute, and with how many threads. Only "auto" chooses, and says why."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tabmt.errors import UserError

WORTHWHILE = 1.2  # several threads must be this many times as fast as one


def pick_device(name: str) -> tuple[torch.device, str]:
    """The device to compute on, and why."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError(
            "device is 'cuda', but PyTorch finds no CUDA device here; use device 'cpu' or 'auto'."
        )
    if name == "auto":
        if available:
            return torch.device("cuda"), f"CUDA is available ({torch.cuda.get_device_name()})"
        return torch.device("cpu"), "no CUDA device is available"
    return torch.device(name), "as set"


def pick_threads(wanted: int | None) -> tuple[int, str]:
    """The number of CPU threads, and why; measured, unless the user has set it.

    All that PyTorch would use if that is faster at present, else one: threads wait for each other
    at every product, so beside another busy program two can be many times slower than one.
    """
    if wanted is not None:
        return wanted, "as set"
    most = torch.get_num_threads()
    if most == 1:
        return 1, "no more are available"
    alone, together = (min(_seconds(count) for _ in range(3)) for count in (1, most))
    gain = alone / together
    if gain >= WORTHWHILE:
        return most, f"{gain:.1f} times as fast as one thread at present"
    return 1, f"{most} threads would be {gain:.1f} times as fast as one at present"


def _seconds(count: int) -> float:
    """The time of a few matrix products of a training step's size."""
    x, weight = torch.ones(2048, 64), torch.ones(64, 256)
    with threads(count):
        started = time.perf_counter()
        for _ in range(20):
            torch.relu_(x @ weight)
        return time.perf_counter() - started


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Use this many CPU threads inside; None leaves the number as it is."""
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)
