"""Independent pieces of work: done here, or as tasks on a Ray cluster.

For encoding, and for rows that are written in partitions. A piece of work may be done twice when a
worker dies in the middle, so it must leave the same behind each time.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, get_args

from tabmt.config import Engine
from tabmt.errors import UserError

Piece = TypeVar("Piece")
Result = TypeVar("Result")

RETRIES = 3  # of a task whose worker died


def each(
    work: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    *,
    engine: Engine = "local",
    workers: int = 1,
) -> Iterator[Result]:
    """The results, in the order of the pieces. `workers` are threads here; a cluster has its own.

    On Ray, `work` and the pieces travel to other processes, perhaps on other machines.
    """
    if engine not in get_args(Engine):
        raise UserError(f"engine is {engine!r}, but must be one of: {', '.join(get_args(Engine))}.")
    if engine == "ray":
        yield from _on_ray(work, pieces)
    elif workers == 1:
        yield from map(work, pieces)
    else:
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(work, pieces)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_ray(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
    ray = _ray()

    def do(work: Callable[[Piece], Result], piece: Piece) -> Result:
        return work(piece)

    task = ray.remote(num_cpus=1, max_retries=RETRIES)(do)
    shared = ray.put(work)  # once for each machine, not once for each piece
    results = [task.remote(shared, piece) for piece in pieces]
    try:
        for result in results:
            yield ray.get(result)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.WorkerCrashedError as error:
        raise UserError(
            f"A worker of the Ray cluster died {RETRIES + 1} times at the same piece of work, "
            "perhaps for want of memory; what is done is kept, so run the same again."
        ) from error
    finally:
        for result in results:
            ray.cancel(result, force=False)


def _ray() -> Any:
    """Ray, connected to the cluster that RAY_ADDRESS names, or to one that is started here."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        raise UserError("The engine 'ray' needs Ray: pip install 'tabmt[ray]'.") from error
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    return ray
