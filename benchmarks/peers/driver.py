"""Fit and sample one peer in the environment that it needs; imports nothing of tabmt.

    python -m benchmarks.peers.driver PEER TRAIN.parquet SAMPLE.parquet --rows N --seconds S \
        --seed K [--target COLUMN]

Prints one line of JSON: seconds and CPU seconds (child processes included) to fit and to sample,
peak memory, versions, and what the peer says about its settings. A peer that fails is a line with
the reason under "failure", and exit code 1.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
)


class Meter:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), cpu_seconds()

    def read(self, name: str) -> dict[str, float]:
        return {
            f"{name}_seconds": round(time.perf_counter() - self.wall, 3),
            f"{name}_cpu_seconds": round(cpu_seconds() - self.cpu, 3),
        }


def cpu_seconds() -> float:
    """CPU time of this process and of all its descendants, ended or not."""
    times = os.times()  # in steps of 10 ms, which is too coarse for this process
    ended = times.children_user + times.children_system
    return time.process_time() + ended + _running_descendants()


def _running_descendants() -> float:
    """CPU time of descendants that have not ended; 0 where there is no /proc."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(process)
        ticks[process] = sum(int(field) for field in fields[11:15])
    total, waiting = 0, list(children.get(os.getpid(), []))
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def run(peer: ModuleType, arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    """Fit, sample, write the sample, and add each to the report as soon as it is done."""
    import pandas as pd

    train = pd.read_parquet(arguments.train)
    meter = Meter()
    model = peer.fit(train, arguments.target, arguments.seconds, arguments.seed)
    report |= meter.read("fit")
    if hasattr(peer, "about"):
        report["about"] = peer.about(model)
    meter = Meter()
    sample = peer.sample(model, arguments.rows, arguments.seed)
    report |= meter.read("sample")
    check(sample, train, arguments.rows)
    partial = Path(f"{arguments.sample}.partial")
    sample.to_parquet(partial, index=False)
    partial.rename(arguments.sample)


def check(sample: Any, train: Any, rows: int) -> None:
    if list(sample.columns) != list(train.columns):
        raise ValueError(f"the sample has the columns {list(sample.columns)}")
    if len(sample) != rows:
        raise ValueError(f"the sample has {len(sample)} rows instead of {rows}")
    changed = [name for name in train if not same_type(sample[name].dtype, train[name].dtype)]
    if changed:
        raise ValueError(f"the sample has another type in the columns {', '.join(changed)}")


def same_type(ours: Any, real: Any) -> bool:
    """Whether two columns have one type; a sample may lack categories, such as rare ones."""
    if hasattr(ours, "categories") and hasattr(real, "categories"):
        return set(ours.categories) <= set(real.categories)
    return bool(ours == real)


def peak_mb() -> dict[str, float]:
    """Peak memory of this process, and of the largest child process."""
    kinds = {"peak_mb": resource.RUSAGE_SELF, "peak_mb_of_a_child": resource.RUSAGE_CHILDREN}
    return {
        name: round(resource.getrusage(kind).ru_maxrss / 1024, 1) for name, kind in kinds.items()
    }


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", help="name of a module in this folder")
    parser.add_argument("train", help="Parquet file to learn")
    parser.add_argument("sample", help="Parquet file to write")
    parser.add_argument("--rows", type=int, required=True, help="to sample")
    parser.add_argument("--seconds", type=float, required=True, help="of wall time to fit")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--target", help="column that will be predicted")
    return parser.parse_args()


def main() -> None:
    for name in THREAD_VARIABLES:
        os.environ[name] = "1"
    arguments = read_arguments()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is no answer
    report: dict[str, Any] = {"peer": arguments.peer, "seed": arguments.seed}
    meter = Meter()
    try:
        peer = importlib.import_module(f"benchmarks.peers.{arguments.peer}")
        report["versions"] = versions(peer.PACKAGES)
        report |= meter.read("import")
        run(peer, arguments, report)
    except Exception as error:
        traceback.print_exc()
        report["failure"] = f"{type(error).__name__}: {error}"[:500]
        report |= meter.read("until_failure")
    report |= peak_mb()
    print(json.dumps(report), file=answer, flush=True)
    sys.exit(1 if "failure" in report else 0)


if __name__ == "__main__":
    main()
