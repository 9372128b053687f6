"""On which device to compute, and with how many threads. Only "auto" chooses, and says why."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tabmt.errors import UserError
from tabmt.method.blocks import BlockPrecision

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


def pick_precision(wanted: str, device: torch.device) -> tuple[BlockPrecision, str]:
    """The number format of the blocks in training, and why.

    "auto" must make the same choice in every fit on one machine, or the same seed gives other
    rows. So the CPU's instructions decide, and a measurement only rejects a CPU on which they are
    slow. It counts CPU time on one thread, which other programs hardly change; where bfloat16 is
    faster at all, it is about twice as fast, far from the limit.

    PAPER-DIFF precision: the paper does not say, so everything is float32 there.
    """
    if wanted == "float32":
        return "float32", "as set"
    if wanted == "bfloat16":
        return "bfloat16", "as set"
    if device.type != "cpu":
        return "float32", "bfloat16 is chosen on CPUs only"
    if not has_bfloat16():
        return "float32", "this CPU has no instructions for bfloat16"
    with threads(1):
        plain, short = (
            min(_product_seconds(dtype) for _ in range(5))
            for dtype in (torch.float32, torch.bfloat16)
        )
    if short < plain:
        return "bfloat16", "faster than float32 on this CPU"
    return "float32", "bfloat16 is not faster on this CPU"


def has_bfloat16() -> bool:
    """Whether the CPU has instructions for bfloat16: without them it can be hundreds of times
    slower than float32."""
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return supported is not None and bool(supported())


def _product_seconds(dtype: torch.dtype) -> float:
    """The CPU time of a few matrix products of a training step's size, with their conversion."""
    x, weight = torch.ones(4096, 64), torch.ones(64, 256)
    started = time.process_time()
    for _ in range(10):
        x.to(dtype) @ weight.to(dtype)
    return time.process_time() - started


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
