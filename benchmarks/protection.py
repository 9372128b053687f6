"""What protection costs: the same fit with and without it, in one run.

    python -m benchmarks.protection --data DATA --tables adult california churn king

Training has a fixed number of steps, so that the results do not depend on how busy the machine is.
All fits of a table have the same seeds. Of each model, ML efficiency is that of all its rows, which
are --samples times as many as the training rows, because that of a single sample varies more than
protection costs; the detector is the mean over three samples. Writes
benchmarks/results/protection-TABLE.json.
"""

import argparse
import logging
from typing import Any

import numpy as np

from benchmarks.datasets import CLEAN_TABLES, Split, TableInfo, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT

COMPARED_SAMPLES = 3  # of each model, whose detector and distances are computed


def measure(
    split: Split, info: TableInfo, protect: int, seed: int, arguments: argparse.Namespace
) -> dict[str, float]:
    """The scores of one model: ML efficiency of all its rows, means over its samples for others."""
    model = TabMT(
        protect=protect,
        steps=arguments.steps,
        seed=seed,
        threads=arguments.threads,
        target=info.target,
    ).fit(split.train)
    size = len(split.train)
    rows = model.sample(arguments.samples * size, seed=seed)
    scores = [
        split.evaluate(rows.iloc[start : start + size].reset_index(drop=True), info, seed)
        for start in range(0, min(len(rows), COMPARED_SAMPLES * size), size)
    ]
    means = {key: float(np.mean([one[key] for one in scores])) for key in scores[0]}
    return {**means, "mle": split.efficiency(rows, info, seed)}


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    scores: dict[int, list[dict[str, float]]] = {protect: [] for protect in arguments.protect}
    for seed in range(arguments.seeds):
        for protect, own in scores.items():
            own.append(measure(split, info, protect, seed, arguments))
            latest = ", ".join(f"{key} {own[-1][key]:.4f}" for key in ("mle", "detector"))
            print(f"{name} protect {protect} seed {seed}: {latest}", flush=True)
    without, *others = arguments.protect
    costs = {
        protect: {
            "mle": mean_cost(scores[without], scores[protect], "mle"),
            "detector": mean_cost(scores[protect], scores[without], "detector"),
        }
        for protect in others
    }
    for protect, cost in costs.items():
        print(f"{name} protect {protect} costs {cost}", flush=True)
    return {
        "table": name,
        "metric": info.metric,
        "steps": arguments.steps,
        "seeds": arguments.seeds,
        "samples": arguments.samples,
        "costs": costs,
        "scores": scores,
    }


def mean_cost(
    higher: list[dict[str, float]], lower: list[dict[str, float]], key: str
) -> dict[str, float]:
    """The mean difference over seeds, and its standard error."""
    costs = [one[key] - two[key] for one, two in zip(higher, lower, strict=True)]
    error = np.std(costs, ddof=1) / np.sqrt(len(costs)) if len(costs) > 1 else np.nan
    return {"mean": float(np.mean(costs)), "standard_error": float(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    tables = ["adult", "california", "churn", "king"]
    parser.add_argument("--tables", nargs="+", default=tables, choices=CLEAN_TABLES)
    parser.add_argument(
        "--protect", nargs="+", type=int, default=[0, 5], help="the first is compared with"
    )
    parser.add_argument("--steps", type=int, default=1500, help="training steps")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--samples", type=int, default=8, help="synthetic tables of each model")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    for name in arguments.tables:
        result = compare(name, arguments)
        result |= run_info("benchmarks.protection", arguments.data, arguments.threads)
        save_result(f"protection-{name}", result)


if __name__ == "__main__":
    main()
