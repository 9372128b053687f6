"""Real flows of CIDDS-001 by the paper's metrics: precision, recall, diversity and invariants.

    python -m benchmarks.netflow --data DATA --minutes 10

Normal internal traffic of three weeks, 95 % training and 5 % validation rows, every field a
category. Some weeks lack a few fields, which are masked there and never generated as missing; rows
are compared without these fields. The paper learned 30 million flows. Here there are about 25,000,
so many values of the validation rows do not occur in training, and the embedding treats them as
unknown. Training rows compared with other training rows show the scores of real rows whose values
are known. Writes benchmarks/results/netflow-NETWORK.json.
"""

import argparse
import dataclasses
import ipaddress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.config import PRESETS
from tabmt.data.plain_values import plain_values
from tabmt.data.schema import Column
from tabmt.evaluation.metrics.coverage import precision_recall
from tabmt.netflow import FIELDS, INVARIANTS, schema, to_fields
from tabmt.netflow.cidds import FLOWS
from tabmt.rules.enforce import RuleSet
from tabmt.rules.rule import Rule

WEEK1 = {  # names of the other weeks -> names of week 1
    "Duration": "td",
    "Proto": "proto",
    "Src Pt": "srcport",
    "Dst Pt": "dstport",
    "Packets": "pkt",
    "Bytes": "byt",
}
NOT_IN_WEEK1 = ("flows", "flags", "tos")
MOST_COMPARED_ROWS = 10_000


def real_flows(folder: Path) -> pa.Table:
    """The fields of all normal flows; fields that a week lacks are missing."""
    week1 = pd.read_parquet(folder / "cidds001_internal_week1_dos15k.parquet")
    week1 = week1[week1["label"] == 0]
    renamed = pd.DataFrame({name: week1[old_name] for name, old_name in WEEK1.items()})
    renamed["Date first seen"] = pd.to_datetime(week1["ts"], unit="us")
    for name, old_name in (("Src IP Addr", "srcip"), ("Dst IP Addr", "dstip")):
        renamed[name] = [str(ipaddress.ip_address(int(number))) for number in week1[old_name]]
    other_weeks = [
        pd.read_parquet(folder / f"cidds001_internal_{name}.parquet")
        for name in ("week2_normal10k", "week3_8k")
    ]
    tables = [as_flows(frame) for frame in (renamed, *other_weeks)]
    return to_fields(pa.concat_tables(tables))


def as_flows(frame: pd.DataFrame) -> pa.Table:
    """One week in the types of CIDDS-001; columns that it lacks are missing."""
    columns = {}
    for field in FLOWS:
        if field.name not in frame:
            columns[field.name] = pa.nulls(len(frame), field.type)
            continue
        values = pa.array(frame[field.name], from_pandas=True)
        if field.type == pa.string():
            values = pa.array(frame[field.name].astype(str).str.strip())
        columns[field.name] = values.cast(field.type, safe=False)
    return pa.table(columns)


def violations(rows: pa.Table) -> dict[str, float]:
    """The share of rows that violate each invariant."""
    values, missing = {}, {}
    for name in rows.column_names:
        column = Column(name=name, kind="categorical", dtype=str(rows.schema.field(name).type))
        values[name], missing[name] = plain_values(rows.column(name), column)
    return {
        name: float(np.mean(Rule.parse(name, text).violations(values, missing)))
        for name, text in INVARIANTS.items()
    }


def diversity(rows: pa.Table, real: pa.Table) -> float:
    """The share of each field's distinct real values that the rows have, mean over the fields."""
    shares = []
    for name in FIELDS:
        values = set(real.column(name).drop_null().unique().to_pylist())
        shares.append(len(values & set(rows.column(name).unique().to_pylist())) / len(values))
    return float(np.mean(shares))


def without_some_fields(rows: pa.Table) -> pa.Table:
    """The same rows without the fields that week 1 lacks, so that all weeks can be compared."""
    for name in NOT_IN_WEEK1:
        index = rows.column_names.index(name)
        empty = pa.nulls(rows.num_rows, rows.schema.field(index).type)
        rows = rows.set_column(index, name, empty)
    return rows


def evaluate(
    model: TabMT, rows: pa.Table, train: pa.Table, valid: pa.Table, rng: np.random.Generator
) -> dict[str, Any]:
    """Precision and recall against as many training rows, in the embedding of the model."""
    size = min(MOST_COMPARED_ROWS, rows.num_rows)
    some_train = train.take(pa.array(rng.permutation(train.num_rows)[:size]))
    real, other = (
        model.embed(without_some_fields(table)) for table in (some_train, rows.slice(0, size))
    )
    precision, recall = precision_recall(real, other)
    return {
        "rows": rows.num_rows,
        "precision": precision,
        "recall": recall,
        "diversity": diversity(rows, valid),
        "invariants_broken": violations(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--minutes", type=float, default=10.0, help="training time")
    parser.add_argument("--network", default="any-order", help="any-order, or masked as the paper")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    flows = real_flows(arguments.data)
    rng = np.random.default_rng(arguments.seed)
    order = rng.permutation(flows.num_rows)
    cut = flows.num_rows // 20
    valid, train = (flows.take(pa.array(rows)) for rows in (order[:cut], order[cut:]))
    sizes = {key: PRESETS["S"][key] for key in ("width", "depth", "heads")}
    if arguments.network == "any-order":
        sizes["depth"] = 2
    settings = {"minutes": arguments.minutes, "network": arguments.network, "missing": "masked"}
    model = TabMT(**sizes, **settings, seed=arguments.seed, threads=1)
    model.fit(train, schema=schema(rules=True))
    with_rules = model.sample(train.num_rows, seed=arguments.seed)
    model._model = dataclasses.replace(model.model_, rules=RuleSet())
    generated = model.sample(train.num_rows, seed=arguments.seed)
    half = train.num_rows // 2
    few_generated = generated.slice(0, valid.num_rows)
    sources = {
        "validation rows": evaluate(model, valid, train, valid, rng),
        "training rows": evaluate(model, train.slice(half), train.slice(0, half), valid, rng),
        "as many generated as validation rows": evaluate(model, few_generated, train, valid, rng),
        "generated": evaluate(model, generated, train, valid, rng),
        "generated under the rules": evaluate(model, with_rules, train, valid, rng),
    }
    sources["training rows"]["diversity"] = diversity(train, valid)
    print(sources, flush=True)
    summary = model.card_.summary
    result = {
        "training_rows": train.num_rows,
        "network": arguments.network,
        "steps": None if summary is None else summary.steps,
        "seconds": None if summary is None else summary.seconds,
        "sources": sources,
        **run_info("benchmarks.netflow", arguments.data, 1),
    }
    save_result(f"netflow-{arguments.network}", result)


if __name__ == "__main__":
    main()
