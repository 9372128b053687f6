"""ML efficiency of real training rows, compared with the scores that the paper reports for them.

    python -m benchmarks.real --data DATA

If the two agree, our scores and the paper's can be compared. Writes benchmarks/results/real.json.
"""

import argparse

import numpy as np

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from benchmarks.published import MLE

TABLES_COMPARED = ("abalone", "adult", "california", "churn", "diabetes", "king")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--models", type=int, default=10, help="CatBoost models for each table")
    arguments = parser.parse_args()
    tables = {}
    for name in TABLES_COMPARED:
        info = CLEAN_TABLES[name]
        mean, spread = MLE[info.code]["Real"]
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
