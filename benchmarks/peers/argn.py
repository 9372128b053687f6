"""TabularARGN in its own virtual environment; imports nothing of tabmt.

    python -m benchmarks.peers.argn TRAIN.parquet --epochs N

As a peer, it has its own defaults, early stopping among them, and the time as its limit. As a
command, for `benchmarks.sampling_peer`: fits a table, then draws the rows that each line of its
input asks for, and prints the CPU seconds of each as a line of JSON.
"""

import argparse
import importlib.metadata
import json
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
    parser.add_argument("--epochs", type=int, required=True, help="the most")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    set_random_state(0)
    model = TabularARGN(device="cpu", verbose=0, max_epochs=arguments.epochs)
    model.fit(pd.read_parquet(arguments.train))
    serve(model)


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
