"""Searches of temperatures: does one reach the area of NSGA-II in a third of its trials?

    python -m benchmarks.samplers --data DATA --tables diabetes --trials 90 --seeds 3

One model per table. Every sampler starts with the same nine trials, which have uniform
temperatures. NSGA-II runs all trials, and its first third is compared, too; the others run a third.
Areas are measured from the worst scores of any sampler, in two ways: by the scores of the search
itself on validation rows, in which more trials also have more luck; and, for the final fronts, by
fresh samples on test rows. Writes benchmarks/results/samplers-TABLE.json.
"""

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT, pareto
from tabmt.search.pareto_front import hypervolume

SAMPLERS = ("nsga2", "tpe", "gp", "guided", "random")
UNIFORM_TRIALS = 9  # with which every search starts
Scores = dict[str, list[np.ndarray]]  # sampler -> for each seed (trials, 2), higher is better


def search(name: str, arguments: argparse.Namespace) -> tuple[Scores, Scores]:
    """All trials of each search, and its final front scored on test rows."""
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    settings = {"threads": arguments.threads, "target": info.target}
    model = TabMT(minutes=arguments.minutes, **settings).fit(split.train)
    trials: Scores = {sampler: [] for sampler in arguments.samplers}
    fronts: Scores = {sampler: [] for sampler in arguments.samplers}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tabmt"
        model.save(path)
        for sampler in arguments.samplers:
            for seed in range(arguments.seeds):
                front = pareto(
                    path,
                    split.train,
                    split.valid,
                    info.target,
                    test=split.test,
                    trials=arguments.trials if sampler == "nsga2" else arguments.trials // 3,
                    sampler=sampler,
                    catboost_settings=split.catboost,
                    workers=arguments.workers,
                    seed=seed,
                )
                trials[sampler].append(np.array(front.tried))
                fronts[sampler].append(front.scores(front.points, "test"))
                print(name, sampler, seed, front.gain(), flush=True)
    return trials, fronts


def run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    trials, fronts = search(name, arguments)
    nsga2_areas = areas(trials)["nsga2"]
    areas_after_a_third = areas(trials, arguments.trials // 3)
    uniform_areas = areas(trials, UNIFORM_TRIALS)
    test_areas = areas(fronts)
    result = {
        "table": name,
        "trials": arguments.trials,
        "seeds": arguments.seeds,
        "nsga2_area": nsga2_areas,
        "areas_after_a_third": areas_after_a_third,
        "uniform": float(np.mean(list(uniform_areas.values()))),
        "share_of_nsga2": shares(areas_after_a_third, nsga2_areas),
        "areas_on_test_rows": test_areas,
        "share_of_nsga2_on_test_rows": shares(test_areas, test_areas["nsga2"]),
        **run_info("benchmarks.samplers", arguments.data, arguments.threads),
    }
    print(name, result["share_of_nsga2"], result["share_of_nsga2_on_test_rows"], flush=True)
    return result


def areas(scores: Scores, first: int | None = None) -> dict[str, list[float]]:
    """The area that the first trials of each run (or all) cover above the worst of all runs."""
    worst = np.min([run.min(0) for runs in scores.values() for run in runs], axis=0)
    return {
        sampler: [hypervolume(run[:first], worst) for run in runs]
        for sampler, runs in scores.items()
    }


def shares(by_sampler: dict[str, list[float]], reference: list[float]) -> dict[str, float]:
    """The mean area of each sampler, divided by that of a reference."""
    return {
        sampler: float(np.mean(values) / np.mean(reference))
        for sampler, values in by_sampler.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=["diabetes"], choices=CLEAN_TABLES)
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS, choices=SAMPLERS)
    parser.add_argument("--minutes", type=float, default=2.0, help="training time")
    parser.add_argument("--trials", type=int, default=90, help="trials of NSGA-II")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if "nsga2" not in arguments.samplers:
        parser.error("--samplers must include nsga2, with which the others are compared")
    logging.disable(logging.INFO)
    for name in arguments.tables:
        save_result(f"samplers-{name}", run(name, arguments))


if __name__ == "__main__":
    main()
