"""Does a search of temperatures reach NSGA-II's area in a third of its trials?

    python -m benchmarks.samplers --data DATA --tables diabetes --trials 90 --seeds 3

One model per table; every sampler begins with the same nine trials, one temperature for all
columns. The area counts above the worst trial of any sampler, by the search's own (validation)
figures. NSGA-II has all trials, and stands beside the others with its first third too; they are
given a third. Writes benchmarks/results/samplers-TABLE.json.
"""

import argparse
import logging
import tempfile
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
                print(name, sampler, seed, front.gain(), flush=True)
    worst = np.min([scores.min(0) for runs in tried.values() for scores in runs], axis=0)
    areas = {
        sampler: [hypervolume(scores[:third], worst) for scores in runs]
        for sampler, runs in tried.items()
    }
    goal = [hypervolume(scores, worst) for scores in tried["nsga2"]]
    ray = [hypervolume(runs[0][:9], worst) for runs in tried.values()]
    for sampler, found in areas.items():
        print(sampler, f"{np.mean(found) / np.mean(goal):.3f}", flush=True)
    return {
        "table": name,
        "trials": arguments.trials,
        "seeds": arguments.seeds,
        "nsga2_area": goal,
        "areas_after_a_third": areas,
        "ray": float(np.mean(ray)),
        "share_of_nsga2": {
            sampler: float(np.mean(found) / np.mean(goal)) for sampler, found in areas.items()
        },
        **told("benchmarks.samplers", arguments.data, arguments.threads),
    }


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
