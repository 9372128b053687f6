"""Where to compute, and with how many threads.

For the synthesizer and all that uses a network after it. Only "auto" chooses, and says why.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tabmt.errors import UserError

WORTHWHILE = 1.2  # more threads than one must be this many times as fast


def pick_device(name: str) -> tuple[torch.device, str]:
    """The device to compute on, and why. Only "auto" may choose."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError(
            "device is 'cuda', but PyTorch sees no CUDA device here; use device 'cpu' or 'auto'."
        )
    if name == "auto":
        if available:
            return torch.device("cuda"), f"CUDA is available ({torch.cuda.get_device_name()})"
        return torch.device("cpu"), "no CUDA device is available"
    return torch.device(name), "as asked"


def pick_threads(asked: int | None) -> tuple[int, str]:
    """How many CPU threads to compute with, and why; measured, unless the caller asks for some.

    All that PyTorch would use if they pay here and now, else one: threads wait for each other at
    every product, so beside another busy program two can be many times slower than one.
    """
    if asked is not None:
        return asked, "as asked"
    most = torch.get_num_threads()
    if most == 1:
        return 1, "all there are"
    alone, together = (min(_seconds(count) for _ in range(3)) for count in (1, most))
    gain = alone / together
    if gain >= WORTHWHILE:
        return most, f"{gain:.1f} times as fast as one here and now"
    return 1, f"{most} would be {gain:.1f} times as fast as one here and now"


def _seconds(count: int) -> float:
    """What a few products of a training step's size take."""
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
