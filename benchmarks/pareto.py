"""Fronts of privacy and quality, each from one model, on the paper's tables.

    python -m benchmarks.pareto --data DATA --tables adult --minutes 5 --trials 100

The model is fitted with the default settings. The search sees training and validation rows, and
tables of training size; its front is scored again on test rows and tables of 8 times the training
rows, as in the paper (`--multiple`). Writes benchmarks/results/pareto-TABLE-SEED.json and
docs/fronts/TABLE-SEED.svg.
"""

import argparse
import logging
import tempfile
import time
from pathlib import Path

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import save, told
from tabmt import TabMT, pareto
from tabmt.evaluation.report import write_front

PICTURES = Path(__file__).parent.parent / "docs" / "fronts"


def run(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    dataset = DATASETS[name]
    split = load(arguments.data, dataset)
    settings = {"threads": arguments.threads, "seed": arguments.seed, "target": dataset.target}
    kept = None if arguments.storage is None else Path(f"{arguments.storage}-{name}.tabmt")
    if kept is not None and kept.exists():
        model = TabMT.load(kept)
    else:
        model = TabMT(minutes=arguments.minutes, **settings).fit(split.train)
        if kept is not None:
            model.save(kept)

    def look(scores: object, trials: int) -> None:
        print(f"\r{name}: {len(scores)} of {trials} trials", end="", flush=True)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tabmt"
        model.save(path)
        began = time.perf_counter()
        front = pareto(
            path,
            split.train,
            split.valid,
            dataset.target,
            test=split.test,
            trials=arguments.trials,
            sampler=arguments.sampler,
            rows_again=round(arguments.multiple * len(split.train)),
            catboost_settings=split.catboost,
            storage=None if arguments.storage is None else f"{arguments.storage}-{name}",
            workers=arguments.workers,
            seed=arguments.seed,
            on_look=look,
        )
    seconds = time.perf_counter() - began
    write_front(front, PICTURES / f"{name}-{arguments.seed}.svg")
    ours, ray = front.gain()
    print(f"\n{name}: {seconds / 60:.1f} min, area of the front {ours:.4f}, of the ray {ray:.4f}")
    return {
        "table": name,
        "front": front.to_json(),
        "search_seconds": seconds,
        "area": {"front": ours, "ray": ray},
        "card": model.card_.to_json(),
        **told("benchmarks.pareto", arguments.data, arguments.threads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=["adult"], choices=DATASETS)
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--sampler", default="nsga2")
    parser.add_argument("--multiple", type=float, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", help="where trials are kept, so that the same goes on")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    PICTURES.mkdir(exist_ok=True)
    for name in arguments.tables:
        save(f"pareto-{name}-{arguments.seed}", run(name, arguments))


if __name__ == "__main__":
    main()
