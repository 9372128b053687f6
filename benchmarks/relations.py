"""Relations between columns: which are found, how fast, and that generated rows satisfy them.

    python -m benchmarks.relations --data DATA --steps 200 --rows 1000000

For each table: the rules that are found, the seconds that takes, and how many of a million sampled
rows violate one. The same tables with columns that are shuffled independently must have none. The
time of sampling is compared with that of a model without rules, in CPU seconds and in turns, so
that other load on the machine slows both. Writes benchmarks/results/relations.json.
"""

import argparse
import json
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.datasets import add_data_option
from benchmarks.machine import RESULTS, run_info, save_result
from tabmt import TabMT
from tabmt.config import CodecConfig
from tabmt.data.infer import infer_schema
from tabmt.evaluation.metrics.validity import rule_violation_share

TABLES = (
    "king", "adult", "bank_marketing", "nycflights13", "loans_full_schema", "facebook_variant1"
)  # fmt: skip
SHUFFLED = (
    *TABLES, "california", "churn", "beijing_pm25", "king_with_missing"
)  # fmt: skip
LEFT_OUT = {"king": ["id", "date"], "king_with_missing": ["id", "date"]}
TIMED = ("king", "adult", "bank_marketing")
TIMED_ROWS = 65_536


def read(folder: Path, name: str) -> pa.Table:
    table = pq.read_table(folder / f"{name}.parquet")
    return table.drop_columns([c for c in LEFT_OUT.get(name, ()) if c in table.column_names])


def search(table: pa.Table) -> dict[str, Any]:
    """The relations of a table, and how long it takes to find them."""
    started = time.perf_counter()
    infer_schema(table, config=CodecConfig(find_rules=False))
    without = time.perf_counter()
    schema = infer_schema(table)
    seconds = (time.perf_counter() - without) - (without - started)
    return {
        "rows": table.num_rows,
        "columns": table.num_columns,
        "seconds": round(seconds, 2),
        "rules": {text: round(schema.found[name].share, 6) for name, text in schema.rules.items()},
        "suggested": len(schema.suggested),
    }


def count_violations(model: TabMT, table: pa.Table, rows: int) -> dict[str, Any]:
    """How many of the sampled rows violate each rule."""
    counts = {rule.text: 0 for rule in model.model_.rules.rules}
    started = cpu_seconds()
    for batch in model.sample_batches(rows, seed=1):
        for rule in model.model_.rules.rules:
            share = rule_violation_share(rule, batch, model.schema_, table)
            counts[rule.text] += round(share * batch.num_rows)
    return {
        "sampled": rows,
        "violations": counts,
        "sampling seconds": round(cpu_seconds() - started, 1),
    }


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def compare_speed(table: pa.Table, steps: int, repeats: int) -> dict[str, float]:
    """CPU seconds of sampling with the rules that are found, and without any."""
    models = {
        name: TabMT(steps=steps, seed=0, threads=1, find_rules=found).fit(table)
        for name, found in (("with", True), ("without", False))
    }
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for seed in range(repeats):
        for name, model in models.items():
            started = cpu_seconds()
            for _ in model.sample_batches(TIMED_ROWS, seed=seed):
                pass
            seconds[name].append(cpu_seconds() - started)
    medians = {name: round(statistics.median(times), 2) for name, times in seconds.items()}
    return {**medians, "relative speed": round(medians["without"] / medians["with"], 3)}


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = [column.take(rng.permutation(table.num_rows)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--steps", type=int, default=200, help="training steps of each model")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to sample of each table")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--tables", nargs="*", default=TABLES, choices=TABLES, help="keep the results of the others"
    )
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        **run_info("benchmarks.relations", arguments.data, 1), "tables": {}, "shuffled": {}
    }  # fmt: skip
    path = RESULTS / "relations.json"
    if set(arguments.tables) < set(TABLES) and path.exists():
        result |= {key: json.loads(path.read_text())[key] for key in ("tables", "shuffled")}
    for name in SHUFFLED if not result["shuffled"] else ():
        table = read(arguments.data, name)
        found = search(shuffled(table, 0))
        result["shuffled"][name] = {key: found[key] for key in ("seconds", "rules", "suggested")}
        print("shuffled", name, result["shuffled"][name], flush=True)
    for name in arguments.tables:
        table = read(arguments.data, name)
        own = result["tables"][name] = search(table)
        if name in TIMED:
            own["speed"] = compare_speed(table, arguments.steps, arguments.repeats)
        model = TabMT(steps=arguments.steps, seed=0, threads=1).fit(table)
        own |= count_violations(model, table, arguments.rows)
        print(name, own, flush=True)
        save_result("relations", result)


if __name__ == "__main__":
    main()
