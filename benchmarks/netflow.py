"""Real flows of CIDDS-001 in the paper's terms: precision, recall, diversity and invariants.

    python -m benchmarks.netflow --data DATA --minutes 10

Normal internal traffic of three weeks, 95 % to learn and 5 % to validate, every field a category.
Of some weeks a few fields were not kept; these are unknown there, and never generated as gaps; rows
are compared without them. The paper learned 30 million flows; here there are some 25,000, so many
values of the validation rows stand nowhere in training, and the embedding takes them for unknown.
What real rows score whose values are known is told by training rows beside other training rows.
Writes benchmarks/results/netflow-NETWORK.json.
"""

import argparse
import dataclasses
import ipaddress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.machine import save, told
from tabmt import TabMT
from tabmt.config import PRESETS
from tabmt.data.schema import Column
from tabmt.data.values import plain_values
from tabmt.evaluation.metrics.coverage import precision_recall
from tabmt.netflow import FIELDS, INVARIANTS, schema, to_fields
from tabmt.netflow.cidds import FLOWS
from tabmt.rules.enforce import NO_RULES
from tabmt.rules.rule import Rule

WEEK1 = {
    "Duration": "td", "Proto": "proto", "Src Pt": "srcport", "Dst Pt": "dstport",
    "Packets": "pkt", "Bytes": "byt",
}  # fmt: skip
UNTOLD = ("flows", "flags", "tos")  # by week 1
REACH = 10_000  # rows whose neighbours are looked for


def real_flows(folder: Path) -> pa.Table:
    """The fields of all normal flows; what a week does not tell is missing."""
    one = pd.read_parquet(folder / "cidds001_internal_week1_dos15k.parquet")
    one = one[one["label"] == 0]
    first = pd.DataFrame({name: one[own] for name, own in WEEK1.items()})
    first["Date first seen"] = pd.to_datetime(one["ts"], unit="us")
    for name, own in (("Src IP Addr", "srcip"), ("Dst IP Addr", "dstip")):
        first[name] = [str(ipaddress.ip_address(int(number))) for number in one[own]]
    others = [
        pd.read_parquet(folder / f"cidds001_internal_{name}.parquet")
        for name in ("week2_normal10k", "week3_8k")
    ]
    parts = []
    for frame in (first, *others):
        columns = {}
        for field in FLOWS:
            if field.name not in frame:
                columns[field.name] = pa.nulls(len(frame), field.type)
                continue
            values = pa.array(frame[field.name], from_pandas=True)
            if field.type == pa.string():
                values = pa.array(frame[field.name].astype(str).str.strip())
            columns[field.name] = values.cast(field.type, safe=False)
        parts.append(pa.table(columns))
    return to_fields(pa.concat_tables(parts))


def broken(rows: pa.Table) -> dict[str, float]:
    """The share of rows that break each invariant."""
    values, gaps = {}, {}
    for name in rows.column_names:
        column = Column(name=name, kind="categorical", dtype=str(rows.schema.field(name).type))
        values[name], gaps[name] = plain_values(rows.column(name), column)
    return {
        name: float(np.mean(Rule.parse(name, text).broken(values, gaps)))
        for name, text in INVARIANTS.items()
    }


def diversity(rows: pa.Table, real: pa.Table) -> float:
    """The share of each field's distinct values that the rows hold, mean over the fields."""
    shares = []
    for name in FIELDS:
        wanted = set(real.column(name).drop_null().unique().to_pylist())
        shares.append(len(wanted & set(rows.column(name).unique().to_pylist())) / len(wanted))
    return float(np.mean(shares))


def _told(rows: pa.Table) -> pa.Table:
    """The same rows without what some weeks do not tell, so that rows of all weeks compare."""
    for name in UNTOLD:
        place = rows.column_names.index(name)
        nothing = pa.nulls(rows.num_rows, rows.schema.field(place).type)
        rows = rows.set_column(place, name, nothing)
    return rows


def judge(
    model: TabMT, rows: pa.Table, train: pa.Table, valid: pa.Table, rng: np.random.Generator
) -> dict[str, Any]:
    """Precision and recall against as many training rows, in the model's own embeddings."""
    size = min(REACH, rows.num_rows)
    known = train.take(pa.array(rng.permutation(train.num_rows)[:size]))
    real, other = (model.embed(_told(table)) for table in (known, rows.slice(0, size)))
    precision, recall = precision_recall(real, other)
    return {
        "rows": rows.num_rows,
        "precision": precision,
        "recall": recall,
        "diversity": diversity(rows, valid),
        "invariants_broken": broken(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--network", default="any-order", help="or masked, the paper's")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    flows = real_flows(arguments.data)
    rng = np.random.default_rng(arguments.seed)
    order = rng.permutation(flows.num_rows)
    cut = flows.num_rows // 20
    valid, train = (flows.take(pa.array(part)) for part in (order[:cut], order[cut:]))
    sizes = {key: PRESETS["S"][key] for key in ("width", "depth", "heads")}
    if arguments.network == "any-order":
        sizes["depth"] = 2
    settings = {"minutes": arguments.minutes, "network": arguments.network, "gaps": "masked"}
    model = TabMT(**sizes, **settings, seed=arguments.seed, threads=1)
    model.fit(train, schema=schema(rules=True))
    under_rules = model.sample(train.num_rows, seed=arguments.seed)
    model.learned_ = dataclasses.replace(model.learned_, book=NO_RULES)
    made = model.sample(train.num_rows, seed=arguments.seed)
    half = train.num_rows // 2
    found = {
        "validation rows": judge(model, valid, train, valid, rng),
        "training rows": judge(model, train.slice(half), train.slice(0, half), valid, rng),
        "as many generated as validation rows": judge(
            model, made.slice(0, valid.num_rows), train, valid, rng
        ),
        "generated": judge(model, made, train, valid, rng),
        "generated under the rules": judge(model, under_rules, train, valid, rng),
    }
    found["training rows"]["diversity"] = diversity(train, valid)
    print(found, flush=True)
    summary = model.card_.summary
    result = {
        "training_rows": train.num_rows,
        "network": arguments.network,
        "steps": None if summary is None else summary.steps,
        "seconds": None if summary is None else summary.seconds,
        "sources": found,
    }
    save(
        f"netflow-{arguments.network}", {**result, **told("benchmarks.netflow", arguments.data, 1)}
    )


if __name__ == "__main__":
    main()
