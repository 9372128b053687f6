"""Fit and sample TabularARGN in its own virtual environment; imports nothing of this repository.

    python argn.py TRAIN.parquet ROWS OUTPUT.parquet --threads N --seed S

Prints one line of JSON: seconds to fit and to sample, peak memory, versions.
"""

import argparse
import importlib.metadata
import json
import resource
import time

import pandas as pd
import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", help="Parquet file to learn")
    parser.add_argument("rows", type=int, help="rows of each sample")
    parser.add_argument("output", help="Parquet file to write")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--samples", type=int, default=1, help="samples to write, concatenated")
    arguments = parser.parse_args()
    from mostlyai.engine import TabularARGN, set_random_state

    torch.set_num_threads(arguments.threads)
    set_random_state(arguments.seed)
    table = pd.read_parquet(arguments.train)
    model = TabularARGN(device="cpu", verbose=0)
    started = time.perf_counter()
    model.fit(table)
    fitted = time.perf_counter()
    samples = [model.sample(n_samples=arguments.rows) for _ in range(arguments.samples)]
    sampled = time.perf_counter()
    pd.concat(samples)[list(table.columns)].to_parquet(arguments.output, index=False)
    report = {
        "fit_seconds": fitted - started,
        "sample_seconds": sampled - fitted,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "versions": {
            name: importlib.metadata.version(name) for name in ("mostlyai-engine", "torch")
        },
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
