"""How much sooner training reaches a validation loss: Muon and bfloat16 against AdamW and float32.

    python -m benchmarks.training --data DATA --tables king california --seconds 90

For each table the network is trained with AdamW in float32, with the learning rate that suited it,
for about --seconds CPU seconds or until it stops early; its best validation loss is the mark. Then
it is trained with the present defaults for half of that CPU time, and, if it does not reach the
mark, for all of it. The ratio is the CPU time at which the mark is reached over the CPU time of the
first run up to its best check. Same rows, same validation rows, same seed, one thread, in one run.
Writes benchmarks/results/training.json.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.config import TrainConfig

LEFT_OUT = {"king": ["id", "date"], "churn": ["RowNumber", "CustomerId", "Surname"]}
CHECK_EVERY = TrainConfig.eval_every
MEASURED_STEPS = CHECK_EVERY + 50  # to know what a step costs


def before(rows: int) -> dict[str, Any]:
    """The settings of training before Muon; the learning rate by the number of rows."""
    rate = 5e-4 if rows < 1000 else 2e-3
    return {"optimizer": "adamw", "precision": "float32", "learning_rate": rate}


def training_rows(folder: Path, name: str) -> pd.DataFrame:
    table = pd.read_parquet(folder / f"{name}.parquet")
    table = table.drop(columns=LEFT_OUT.get(name, []), errors="ignore")
    return table.iloc[np.load(folder / f"{name}.split.npz")["train"]].reset_index(drop=True)


def run(table: pd.DataFrame, settings: dict[str, Any], steps: int, seed: int) -> dict[str, Any]:
    """Train for some steps; the CPU seconds and the loss of each validation check."""
    started = time.process_time()
    checks: list[tuple[float, float]] = []

    def note(progress: Any) -> None:
        loss = progress.valid_loss
        if loss is not None and (not checks or checks[-1][1] != loss):
            checks.append((time.process_time() - started, loss))

    model = TabMT(**settings, steps=steps, finish=0.0, seed=seed, threads=1)
    started = time.process_time()
    model.fit(table, on_step=note)
    summary = model.card_.summary
    assert summary is not None
    seconds = time.process_time() - started
    if summary.valid_loss is not None and summary.stopped != "early":
        checks.append((seconds, summary.valid_loss))  # of the last step, which nobody saw
    return {"seconds": seconds, "steps": summary.steps, "checks": checks}


def step_seconds(table: pd.DataFrame, settings: dict[str, Any], seed: int) -> float:
    """CPU seconds of a step and its part of the validation checks, without what a fit takes before
    the first step and while the processor warms up."""
    times: list[float] = []
    model = TabMT(**settings, steps=10 * MEASURED_STEPS, seed=seed, threads=1)
    model.fit(
        table,
        on_step=lambda progress: times.append(time.process_time()),
        should_stop=lambda: len(times) > MEASURED_STEPS,
    )
    steps = min(CHECK_EVERY, len(times) - 1)  # with one validation check; fewer after an early stop
    return (times[-1] - times[-1 - steps]) / steps


def compare(table: pd.DataFrame, seconds: float, seed: int) -> dict[str, Any]:
    old: dict[str, Any] = before(len(table))
    new: dict[str, Any] = {}
    cost_old, cost_new = (step_seconds(table, settings, seed) for settings in (old, new))
    first = run(table, old, round(seconds / cost_old), seed)
    at, mark = min(first["checks"], key=lambda check: check[1])
    runs = []
    for share in (0.5, 1.0):
        second = run(table, new, round(share * at / cost_new), seed)
        runs.append(second)
        reached = [when for when, loss in second["checks"] if loss <= mark]
        if reached:
            break
    return {
        "rows": len(table),
        "step_ms": {"before": 1000 * cost_old, "now": 1000 * cost_new},
        "mark": mark,
        "before": {"seconds_to_mark": at, **first},
        "now": {"seconds_to_mark": reached[0] if reached else None, "runs": runs},
        "ratio": reached[0] / at if reached else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    tables = ["diabetes", "insurance", "churn", "king", "adult", "nycflights13"]
    parser.add_argument("--tables", nargs="+", default=tables)
    parser.add_argument("--seconds", type=float, default=90.0, help="CPU seconds of the first run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = {}
    for name in arguments.tables:
        table = training_rows(arguments.data, name)
        results[name] = compare(table, arguments.seconds, arguments.seed)
        result = results[name]
        print(f"{name}: mark {result['mark']:.4f}, ratio {result['ratio']}", flush=True)
    ratios = [1.0 if r["ratio"] is None else r["ratio"] for r in results.values()]
    result = {"tables": results, "median_ratio": statistics.median(ratios)}
    save_result("training", {**result, **run_info("benchmarks.training", arguments.data, 1)})


if __name__ == "__main__":
    main()
