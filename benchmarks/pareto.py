"""Fronts of privacy against quality, each from one model, on the paper's tables.

    python -m benchmarks.pareto --data DATA --tables adult --minutes 5 --trials 100

The model is fitted with the default settings. The search uses training and validation rows, and
tables of training size. Its front is then scored again on test rows and larger tables: 8 times the
training rows, as in the paper, unless `--multiple` says otherwise. Writes
benchmarks/results/pareto-TABLE-SEED.json and docs/fronts/TABLE-SEED.svg.
"""

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import CLEAN_TABLES, Split, TableInfo, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT, pareto
from tabmt.search.charts import write_front

PICTURES = Path(__file__).parent.parent / "docs" / "fronts"


def fitted_model(info: TableInfo, split: Split, arguments: argparse.Namespace) -> TabMT:
    """Fit a model, or load it if an interrupted run has stored it beside its trials."""
    settings = {"threads": arguments.threads, "seed": arguments.seed, "target": info.target}
    path = None if arguments.storage is None else Path(f"{arguments.storage}-{info.name}.tabmt")
    if path is not None and path.exists():
        return TabMT.load(path)
    model = TabMT(minutes=arguments.minutes, **settings).fit(split.train)
    if path is not None:
        model.save(path)
    return model


def run(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    model = fitted_model(info, split, arguments)

    def report(scores: np.ndarray, trials: int) -> None:
        print(f"\r{name}: {len(scores)} of {trials} trials", end="", flush=True)

    options: dict[str, Any] = {
        "test": split.test,
        "trials": arguments.trials,
        "sampler": arguments.sampler,
        "final_rows": round(arguments.multiple * len(split.train)),
        "catboost_settings": split.catboost,
        "storage": None if arguments.storage is None else f"{arguments.storage}-{name}",
        "workers": arguments.workers,
        "seed": arguments.seed,
        "on_trial": report,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tabmt"
        model.save(path)
        started = time.perf_counter()
        front = pareto(path, split.train, split.valid, info.target, **options)
    seconds = time.perf_counter() - started
    write_front(front, PICTURES / f"{name}-{arguments.seed}.svg")
    area, uniform_area = front.gain()
    print(
        f"\n{name}: {seconds / 60:.1f} min, area of the front {area:.4f}, of uniform temperatures "
        f"{uniform_area:.4f}"
    )
    return {
        "table": name,
        "front": front.to_json(),
        "search_seconds": seconds,
        "area": {"front": area, "uniform": uniform_area},
        "card": model.card_.to_json(),
        **run_info("benchmarks.pareto", arguments.data, arguments.threads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=["adult"], choices=CLEAN_TABLES)
    parser.add_argument("--minutes", type=float, default=5.0, help="training time")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--sampler", default="nsga2", help="nsga2, guided, gp, tpe or random")
    parser.add_argument(
        "--multiple",
        type=float,
        default=8,
        help="rows for the last scoring, as a multiple of the training rows",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", help="where trials are stored; use it again to resume")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    PICTURES.mkdir(exist_ok=True)
    for name in arguments.tables:
        save_result(f"pareto-{name}-{arguments.seed}", run(name, arguments))


if __name__ == "__main__":
    main()
