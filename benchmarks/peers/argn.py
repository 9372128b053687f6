"""Fit and sample TabularARGN in its own virtual environment; imports nothing of this repository.

    python -m benchmarks.peers.argn TRAIN.parquet ROWS OUTPUT.parquet --threads N --seed S

Prints one line of JSON: seconds to fit and to sample, peak memory, versions. With --serve it then
draws the rows that each line of its input asks for, and prints the CPU seconds of each. As a peer,
it has its own defaults, early stopping among them, and the time as its limit.
"""

import argparse
import importlib.metadata
import json
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from mostlyai.engine import TabularARGN, set_random_state

from benchmarks.peers.frames import as_text, restore

PACKAGES = ("mostlyai-engine", "torch")


@dataclass(frozen=True)
class Model:
    model: Any
    train: pd.DataFrame


def fit(train: pd.DataFrame, target: str | None, seconds: float, seed: int) -> Model:
    torch.set_num_threads(1)
    set_random_state(seed)
    model = TabularARGN(device="cpu", verbose=0, max_training_time=seconds / 60)
    model.fit(as_text(train))
    return Model(model, train)


def sample(model: Model, rows: int, seed: int) -> pd.DataFrame:
    """Rare categories, which it protects, are replaced by frequent ones, as those of ours are."""
    set_random_state(seed)
    made = model.model.sample(n_samples=rows, rare_category_replacement_method="SAMPLE")
    return restore(made, model.train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", help="Parquet file to learn")
    parser.add_argument("rows", type=int, help="rows of each sample")
    parser.add_argument("output", help="Parquet file to write")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--samples", type=int, default=1, help="samples to write, concatenated")
    parser.add_argument("--epochs", type=int, default=100, help="the most; 100 is its default")
    parser.add_argument("--serve", action="store_true", help="draw rows on request")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    set_random_state(arguments.seed)
    table = pd.read_parquet(arguments.train)
    model = TabularARGN(device="cpu", verbose=0, max_epochs=arguments.epochs)
    started = time.perf_counter()
    model.fit(table)
    fitted = time.perf_counter()
    if arguments.serve:
        serve(model)
        return
    samples = [model.sample(n_samples=arguments.rows) for _ in range(arguments.samples)]
    sampled = time.perf_counter()
    pd.concat(samples)[list(table.columns)].to_parquet(arguments.output, index=False)
    report = {
        "fit_seconds": fitted - started,
        "sample_seconds": sampled - fitted,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "versions": versions(),
    }
    print(json.dumps(report))


def serve(model: Any) -> None:
    print(json.dumps({"cpu_seconds": time.process_time(), "versions": versions()}), flush=True)
    for line in sys.stdin:
        started = time.process_time()
        model.sample(n_samples=json.loads(line)["rows"])
        print(json.dumps({"cpu_seconds": time.process_time() - started}), flush=True)


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


if __name__ == "__main__":
    main()
