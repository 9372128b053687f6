"""Exact nearest neighbours at size: time and memory of 200,000 against 50,000 rows of 120 numbers.

python -m benchmarks.neighbours
"""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

from benchmarks.machine import RESULTS, told
from tabmt.evaluation.metrics.neighbours import nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=200_000)
    parser.add_argument("--reference", type=int, default=50_000)
    parser.add_argument("--dimensions", type=int, default=120)
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
        **told("benchmarks.neighbours", Path(), threads=2),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "neighbours.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{seconds:.0f} s, {peak:.2f} GB")


if __name__ == "__main__":
    main()
