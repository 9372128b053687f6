"""Does a search of temperatures reach NSGA-II's area in a third of its trials?

    python -m benchmarks.samplers --data DATA --tables diabetes --trials 90 --seeds 3

One model per table; every sampler begins with the same nine trials, one temperature for all
columns. NSGA-II has all trials, and stands beside the others with its first third too; they are
given a third. Areas count above the worst of any sampler: by the search's own figures, on
validation rows, in which more trials also have more luck; and of the fronts at the end by fresh
samples on test rows. Writes benchmarks/results/samplers-TABLE.json.
"""

import argparse
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import save, told
from tabmt import TabMT, pareto
from tabmt.search.front import hypervolume

SAMPLERS = ("nsga2", "tpe", "gp", "guided", "random")


def run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    dataset = DATASETS[name]
    split = load(arguments.data, dataset)
    settings = {"threads": arguments.threads, "target": dataset.target}
    model = TabMT(minutes=arguments.minutes, **settings).fit(split.train)
    tried: dict[str, list[np.ndarray]] = {}
    fresh: dict[str, list[np.ndarray]] = {}
    third = arguments.trials // 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tabmt"
        model.save(path)
        for sampler in arguments.samplers:
            for seed in range(arguments.seeds):
                front = pareto(
                    path,
                    split.train,
                    split.valid,
                    dataset.target,
                    test=split.test,
                    trials=arguments.trials if sampler == "nsga2" else third,
                    sampler=sampler,
                    catboost_settings=split.catboost,
                    workers=arguments.workers,
                    seed=seed,
                )
                tried.setdefault(sampler, []).append(np.array(front.tried))
                fresh.setdefault(sampler, []).append(front.scores(front.points, "test"))
                print(name, sampler, seed, front.gain(), flush=True)
    goal = _areas(tried, lambda scores: scores)["nsga2"]
    areas = _areas(tried, lambda scores: scores[:third])
    ray = _areas(tried, lambda scores: scores[:9])
    on_test = _areas(fresh, lambda scores: scores)
    result = {
        "table": name,
        "trials": arguments.trials,
        "seeds": arguments.seeds,
        "nsga2_area": goal,
        "areas_after_a_third": areas,
        "ray": float(np.mean(list(ray.values()))),
        "share_of_nsga2": _shares(areas, goal),
        "areas_on_test_rows": on_test,
        "share_of_nsga2_on_test_rows": _shares(on_test, on_test["nsga2"]),
        **told("benchmarks.samplers", arguments.data, arguments.threads),
    }
    print(name, result["share_of_nsga2"], result["share_of_nsga2_on_test_rows"], flush=True)
    return result


def _areas(
    runs: dict[str, list[np.ndarray]], part: Callable[[np.ndarray], np.ndarray]
) -> dict[str, list[float]]:
    """What a part of each run covers above the worst of all runs."""
    worst = np.min([scores.min(0) for every in runs.values() for scores in every], axis=0)
    return {
        sampler: [hypervolume(part(scores), worst) for scores in every]
        for sampler, every in runs.items()
    }


def _shares(areas: dict[str, list[float]], goal: list[float]) -> dict[str, float]:
    return {sampler: float(np.mean(found) / np.mean(goal)) for sampler, found in areas.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=["diabetes"], choices=DATASETS)
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS, choices=SAMPLERS)
    parser.add_argument("--minutes", type=float, default=2.0, help="of training")
    parser.add_argument("--trials", type=int, default=90)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if "nsga2" not in arguments.samplers:
        parser.error("the others are measured against nsga2: name it too")
    logging.disable(logging.INFO)
    for name in arguments.tables:
        save(f"samplers-{name}", run(name, arguments))


if __name__ == "__main__":
    main()
