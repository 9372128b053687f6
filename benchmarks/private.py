"""Quality and attacks with differential privacy: ours both ways, AIM, MST and TabularARGN.

    python -m benchmarks private --data DATA --tables adult bank_marketing churn

Each generator learns the training rows at each epsilon and makes as many; then ML efficiency, the
detector, the pair distance and the worst attack are measured on test rows, with the reference of
real rows beside them. `none` is ours without differential privacy. AIM and MST run in the
environment `dpmm`, TabularARGN in `argn` (`python -m benchmarks peers install aim argn_private`); a
generator that fails is a row that says why. --minutes limits TabularARGN; AIM and MST are killed
after three times as long and five minutes. Runs in the result file are not repeated. Writes
benchmarks/results/private-TABLE.json.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.defaults import TARGETS, split
from benchmarks.machine import result_path, run_info, save_result
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import (
    default_cache,
    installation_failure,
    run_peer,
    why_not_installed,
)
from tabmt import TabMT
from tabmt.errors import UserError
from tabmt.evaluation.evaluate import Evaluator

TABLES = ("adult", "bank_marketing", "churn")
OURS = {"marginals": {"private_method": "marginals"}, "dp-sgd": {"private_method": "dp-sgd"}}
OTHERS = ("aim", "mst", "argn_private")
NONE = "none"
SCORES = ("ml_efficiency", "detector_auc", "pair_distance")
MOST_ROWS = 10**9

Run = tuple[str, float | None, int]  # generator, epsilon, seed


def runs(arguments: argparse.Namespace) -> Iterator[Run]:
    for seed in range(arguments.seeds):
        for generator in arguments.generators:
            for epsilon in [None] if generator == NONE else arguments.epsilons:
                yield generator, epsilon, seed


def as_categories(train: pd.DataFrame, target: str) -> pd.DataFrame:
    """Text, and a target with few values, as categories: every generator is told the same."""
    few = [target] if train[target].nunique() <= 10 else []
    names = [n for n in train if n in few or not pd.api.types.is_numeric_dtype(train[n])]
    changed = {n: train[n].map(str, na_action="ignore").astype("category") for n in names}
    return train.assign(**changed)


def sample_ours(
    run: Run, train: pd.DataFrame, target: str, steps: int | None, delta: float
) -> tuple[pd.DataFrame, dict[str, Any]]:
    generator, epsilon, seed = run
    settings: dict[str, Any] = {"target": target, "seed": seed, "threads": 1}
    settings |= {} if steps is None else {"steps": steps}
    if epsilon is not None:
        settings |= {**OURS[generator], "epsilon": epsilon, "delta": delta}
    model = TabMT(**settings).fit(train)
    promise = model.card_.privacy
    about = {} if promise is None else {"spent_epsilon": promise.spent_epsilon}
    return model.sample(len(train), seed=seed), about


def sample_other(
    run: Run, train: pd.DataFrame, target: str, arguments: argparse.Namespace
) -> tuple[pd.DataFrame | None, dict[str, Any]]:
    generator, epsilon, seed = run
    peer, cache = PEERS[generator], arguments.cache
    failure = installation_failure(peer, cache) or why_not_installed(peer, cache)
    if failure is not None:
        return None, {"failure": failure}
    os.environ |= {"TABMT_EPSILON": str(epsilon), "TABMT_DELTA": str(arguments.delta)}
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "train.parquet", Path(folder) / "sample.parquet"
        train.to_parquet(path, index=False)
        report = run_peer(
            peer, path, made, rows=len(train), target=target, seconds=60 * arguments.minutes,
            seed=seed, cache=cache, log=Path(folder) / "log.txt",
        )  # fmt: skip
        return (None if "failure" in report else pd.read_parquet(made)), report


def measure(
    run: Run, train: pd.DataFrame, evaluator: Evaluator, target: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    generator, epsilon, seed = run
    result: dict[str, Any] = {"generator": generator, "epsilon": epsilon, "seed": seed}
    started = time.process_time()
    rows: pd.DataFrame | None = None
    try:
        if generator in OTHERS:
            rows, report = sample_other(run, train, target, arguments)
        else:
            rows, report = sample_ours(run, train, target, arguments.steps, arguments.delta)
            report["cpu_seconds"] = round(time.process_time() - started, 1)
    except UserError as error:  # such as a budget that is too small
        report = {"failure": str(error)}
    result["report"] = report
    if rows is None:
        return result
    evaluation = evaluator.evaluate(rows).evaluation
    for name in SCORES:
        score = evaluation.find(name)
        if score is not None:
            result[name] = {"value": score.value, "reference": score.reference}
    attack = evaluation.privacy.worst
    if attack is not None:
        result["attack"] = {"name": attack.name, "risk": attack.risk, "auc": attack.auc}
    return result


def one_table(name: str, arguments: argparse.Namespace) -> None:
    target = TARGETS[name]
    train, test = split(arguments.data, name, arguments.rows)
    train, test = (as_categories(part, target) for part in (train, test))
    evaluator = Evaluator.of(train, test, target=target, seed=0)
    title = f"private-{name}{arguments.suffix}"
    path = result_path(title)
    done: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.is_file() else []
    for run in runs(arguments):
        if any((one["generator"], one["epsilon"], one["seed"]) == run for one in done):
            continue
        done.append(measure(run, train, evaluator, target, arguments))
        print(name, json.dumps(done[-1]), flush=True)
        info = run_info("benchmarks.private", arguments.data, 1)
        save_result(title, {**info, "table": name, "delta": arguments.delta, "runs": done})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    every = (NONE, *OURS, *OTHERS)
    parser.add_argument("--generators", nargs="+", default=every, choices=every)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0, help="of TabularARGN")
    parser.add_argument("--steps", type=int, default=None, help="of ours  [default: its own]")
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="training rows, at most")
    parser.add_argument("--suffix", default="", help="of the names of the result files")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="of environments")
    arguments = parser.parse_args()
    for name in arguments.tables:
        one_table(name, arguments)


if __name__ == "__main__":
    main()
