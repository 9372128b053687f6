"""Does the ruler agree with the paper's? ML efficiency of real training rows, table by table.

python -m benchmarks.real --data DATA
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import RESULTS, told

# The paper's column "Real" (table 1): mean and standard deviation.
PAPER = {
    "abalone": (0.556, 0.004),
    "adult": (0.815, 0.002),
    "california": (0.857, 0.001),
    "churn": (0.740, 0.009),
    "diabetes": (0.785, 0.013),
    "king": (0.907, 0.002),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--models", type=int, default=10)
    arguments = parser.parse_args()
    tables = {}
    for name, (mean, spread) in PAPER.items():
        dataset = DATASETS[name]
        split = load(arguments.data, dataset)
        scores = [split.efficiency(split.train, dataset, seed) for seed in range(arguments.models)]
        ours = float(np.mean(scores))
        on_valid = [
            split.efficiency(split.train, dataset, seed, on_valid=True)
            for seed in range(arguments.models)
        ]
        tables[name] = {
            "ours": ours,
            "spread": float(np.std(scores)),
            "on_validation_rows": float(np.mean(on_valid)),
            "paper": mean,
            "paper_spread": spread,
            "deviations": (ours - mean) / spread,
            "scores": scores,
        }
        print(f"{name}: {ours:.4f} (paper {mean} +- {spread})", flush=True)
    RESULTS.mkdir(exist_ok=True)
    result = {"tables": tables, **told("benchmarks.real", arguments.data, threads=2)}
    (RESULTS / "real.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
