"""ML efficiency of real training rows, compared with the scores that the paper reports for them.

    python -m benchmarks.real --data DATA

If the two agree, our scores and the paper's can be compared. Writes benchmarks/results/real.json.
"""

import argparse

import numpy as np

from benchmarks.datasets import TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result

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
    add_data_option(parser)
    parser.add_argument("--models", type=int, default=10, help="CatBoost models for each table")
    arguments = parser.parse_args()
    tables = {}
    for name, (mean, spread) in PAPER.items():
        info = TABLES[name]
        split = load(arguments.data, info)
        scores = [split.efficiency(split.train, info, seed) for seed in range(arguments.models)]
        on_valid = [
            split.efficiency(split.train, info, seed, on_valid=True)
            for seed in range(arguments.models)
        ]
        ours = float(np.mean(scores))
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
    save_result("real", {"tables": tables, **run_info("benchmarks.real", arguments.data, 2)})


if __name__ == "__main__":
    main()
