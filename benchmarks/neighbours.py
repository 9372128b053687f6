"""Time and memory of exact nearest neighbours: 200,000 against 50,000 rows of 120 numbers.

    python -m benchmarks.neighbours

Writes benchmarks/results/neighbours.json.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from benchmarks.machine import run_info, save_result
from tabmt.evaluation.metrics.neighbours import nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=200_000, help="rows to find neighbours of")
    parser.add_argument("--reference", type=int, default=50_000, help="rows to find them in")
    parser.add_argument("--dimensions", type=int, default=120, help="numbers of each row")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    queries = rng.random((arguments.queries, arguments.dimensions), np.float32)
    reference = rng.random((arguments.reference, arguments.dimensions), np.float32)
    started = time.perf_counter()
    nearest(queries, reference, 2)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux
    result = {
        **vars(arguments),
        "neighbours": 2,
        "seconds": seconds,
        "peak_gigabytes": peak,
        **run_info("benchmarks.neighbours", Path(), threads=2),
    }
    print(f"{seconds:.0f} s, {peak:.2f} GB")
    save_result("neighbours", result)


if __name__ == "__main__":
    main()
