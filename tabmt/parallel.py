"""Independent tasks, run here or on a Ray cluster.

For encoding large tables and for writing folders of rows. A task may run twice if a worker dies in
the middle, so it must write the same result each time.
"""

import importlib.util
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, get_args

from tabmt.config import Engine
from tabmt.errors import UserError, not_installed

Piece = TypeVar("Piece")
Result = TypeVar("Result")

RETRIES = 3  # of a task whose worker died
TASKS_PER_CORE = 3  # that are submitted at a time


def each(
    work: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    *,
    engine: Engine = "local",
    workers: int = 1,
) -> Iterator[Result]:
    """Apply `work` to each piece; the results come in the order of the pieces.

    `workers` is the number of threads here. On Ray, `work` and the pieces are sent to other
    processes, perhaps on other machines.
    """
    check(engine)
    if engine == "ray":
        yield from _on_ray(work, pieces)
    elif workers == 1:
        yield from map(work, pieces)
    else:
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(work, pieces)


def check(engine: str) -> None:
    """Refuse an engine that is unknown or not installed."""
    if engine not in get_args(Engine):
        raise UserError(f"engine is {engine!r}, but must be one of: {', '.join(get_args(Engine))}.")
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        raise not_installed("The engine 'ray'", "Ray", "ray")


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _on_ray(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
    ray = _ray()

    def do(work: Callable[[Piece], Result], piece: Piece) -> Result:
        return work(piece)

    task = ray.remote(num_cpus=1, max_retries=RETRIES)(do)
    shared = ray.put(work)  # once for each machine, not once for each piece
    # Only some at a time, because they are not cancelled if the caller stops early. (Ray 2.60 may
    # crash the driver when a task is cancelled that is just ending.)
    ahead = TASKS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting: deque[Any] = deque()
    left = iter(pieces)
    try:
        while True:
            for piece in itertools.islice(left, ahead - len(waiting)):
                waiting.append(task.remote(shared, piece))
            if not waiting:
                return
            yield ray.get(waiting.popleft())
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FileNotFoundError):
            raise UserError(
                f"A worker of the Ray cluster has no file {error.cause.filename!r}; use a folder "
                "that all machines share."
            ) from error
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise UserError(
            f"The Ray cluster failed {RETRIES + 1} times at the same task "
            f"({type(error).__name__}); finished tasks are kept, so run the same command again."
        ) from error


def _ray() -> Any:
    """Ray, connected to the cluster at RAY_ADDRESS, or to one that is started here."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    if not ray.is_initialized():
        try:
            ray.init(logging_level=logging.ERROR)
        except (ConnectionError, ValueError) as error:
            where = os.environ.get("RAY_ADDRESS", "here")
            raise UserError(f"No Ray cluster answers at {where!r}: {error}") from error
    return ray
