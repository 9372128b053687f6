"""What protection costs: the same fit with and without it, in one run.

    python -m benchmarks.protection --data DATA --tables adult california churn king

Training has a fixed number of steps, so that the results do not depend on how busy the machine is.
All fits of a table have the same seeds, and each sample has the size of the training table. Writes
benchmarks/results/protection-TABLE.json.
"""

import argparse
import logging
from typing import Any

import numpy as np

from benchmarks.datasets import CLEAN_TABLES, Split, TableInfo, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT


def measure(
    split: Split, info: TableInfo, protect: int, seed: int, arguments: argparse.Namespace
) -> list[dict[str, float]]:
    """The scores of each sample of one model."""
    model = TabMT(
        protect=protect,
        steps=arguments.steps,
        seed=seed,
        threads=arguments.threads,
        target=info.target,
    ).fit(split.train)
    size = len(split.train)
    rows = model.sample(arguments.samples * size, seed=seed)
    return [
        split.evaluate(rows.iloc[start : start + size].reset_index(drop=True), info, seed)
        for start in range(0, len(rows), size)
    ]


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    scores: dict[int, list[dict[str, float]]] = {protect: [] for protect in arguments.protect}
    for seed in range(arguments.seeds):
        for protect, own in scores.items():
            own += measure(split, info, protect, seed, arguments)
            latest = ", ".join(f"{key} {own[-1][key]:.4f}" for key in ("mle", "detector"))
            print(f"{name} protect {protect} seed {seed}: {latest}", flush=True)
    means = {
        protect: {key: float(np.mean([one[key] for one in own])) for key in own[0]}
        for protect, own in scores.items()
    }
    without = means[arguments.protect[0]]
    costs = {
        protect: {
            "mle": without["mle"] - own["mle"],
            "detector": own["detector"] - without["detector"],
        }
        for protect, own in list(means.items())[1:]
    }
    for protect, cost in costs.items():
        print(f"{name} protect {protect} costs {cost}", flush=True)
    return {
        "table": name,
        "metric": info.metric,
        "steps": arguments.steps,
        "seeds": arguments.seeds,
        "samples": arguments.samples,
        "means": means,
        "costs": costs,
        "scores": scores,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    tables = ["adult", "california", "churn", "king"]
    parser.add_argument("--tables", nargs="+", default=tables, choices=CLEAN_TABLES)
    parser.add_argument(
        "--protect", nargs="+", type=int, default=[0, 5], help="the first is compared with"
    )
    parser.add_argument("--steps", type=int, default=1500, help="training steps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=3, help="synthetic tables of each model")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    for name in arguments.tables:
        result = compare(name, arguments)
        result |= run_info("benchmarks.protection", arguments.data, arguments.threads)
        save_result(f"protection-{name}", result)


if __name__ == "__main__":
    main()
