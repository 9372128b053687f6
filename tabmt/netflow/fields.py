"""The paper's sixteen fields of a flow (appendix, "Post-processed Netflow Structure"), and back.

The appendix speaks of 16 fields and lists 15; the sixteenth is taken to be Flows.
"""

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.files import write_file
from tabmt.data.schema import Schema
from tabmt.errors import UserError
from tabmt.netflow.cidds import FLOWS, MILLIS, read_flows
from tabmt.seeds import numpy_stream

PARTS = {"weekday": 7, "hour": 24, "minute": 60, "second": 60, "millisecond": 1000}
RENAMED = {
    "src_ip": "Src IP Addr",
    "dst_ip": "Dst IP Addr",
    "proto": "Proto",
    "src_port": "Src Pt",
    "dst_port": "Dst Pt",
    "duration": "Duration",
    "bytes": "Bytes",
    "packets": "Packets",
    "flows": "Flows",
    "flags": "Flags",
    "tos": "Tos",
}
FIELDS = (*PARTS, *RENAMED)
NO_ATTACK = "---"
MILLIS_OF = {
    "weekday": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}


def schema(rules: bool = False) -> dict[str, Any]:
    """A schema in which every field is a category, as in the paper; with `rules`, also the
    invariants, which generated rows then satisfy."""
    from tabmt.netflow.invariants import INVARIANTS

    kinds = [{"name": name, "kind": "categorical"} for name in FIELDS]
    return {"columns": kinds, **({"rules": INVARIANTS} if rules else {})}


def to_fields(flows: pa.Table) -> pa.Table:
    """Typed flows as the fields that are learned."""
    time = flows.column("Date first seen")
    parts = {
        "weekday": pc.day_of_week(time),
        "hour": pc.hour(time),
        "minute": pc.minute(time),
        "second": pc.second(time),
        "millisecond": pc.millisecond(time),
    }
    columns = {name: values.cast(pa.int16()) for name, values in parts.items()}
    columns |= {name: flows.column(own) for name, own in RENAMED.items()}
    return pa.table(columns)


def write_fields(
    path: str | Path,
    files: Iterable[str | Path],
    *,
    label: str | None = "normal",
    valid_share: float = 0.0,
    only_valid: bool = False,
    seed: int = 0,
) -> int:
    """Write the fields of weekly files to one table, in bounded memory; returns the number of
    flows.

    `label` selects a class. A random share of the flows is for validation: these are left out, or
    with `only_valid` they alone are written.
    """
    rng = numpy_stream(seed, "held out flows")
    count = 0
    classes: set[str] = set()

    def tables() -> Iterator[pa.Table]:
        nonlocal count
        for flows in read_flows(files):
            is_valid = rng.random(flows.num_rows) < valid_share
            use = is_valid if only_valid else ~is_valid
            if label is not None:
                classes.update(pc.unique(flows.column("class")).to_pylist())
                use &= pc.equal(flows.column("class"), label).to_numpy()
            fields = to_fields(flows.filter(pa.array(use)))
            count += fields.num_rows
            yield fields
        if classes and label not in classes:
            raise UserError(
                f"No flow has the class {label!r}; the classes are: {', '.join(sorted(classes))}."
            )

    write_file(path, Schema.of_table(to_fields(FLOWS.empty_table()).schema), tables())
    return count


def to_flows(
    fields: pa.Table, week: datetime.date, *, label: str = "normal", attack: str = NO_ATTACK
) -> pa.Table:
    """Fields as flows of the week that contains a day, all of one class and type of attack."""
    missing = [name for name in FIELDS if name not in fields.column_names]
    if missing:
        raise UserError(f"The table has no column {missing[0]!r}; flows need {', '.join(FIELDS)}.")
    monday = week - datetime.timedelta(days=week.weekday())
    millis = np.zeros(fields.num_rows, np.int64)
    for name, size in PARTS.items():
        values = _cast(fields, name, pa.int64())
        integers = values.fill_null(-1).to_numpy()
        outside = (integers < 0) | (integers >= size)
        if outside.any():
            count = int(outside.sum())
            raise UserError(
                f"Column {name!r} has {count:,} cell{'s' * (count != 1)} that are missing or "
                f"outside its range; its values must be from 0 to {size - 1}."
            )
        millis += integers * MILLIS_OF[name]
    start = np.datetime64(monday, "ms").astype(np.int64)
    columns: dict[str, Any] = {"Date first seen": pa.array(start + millis).cast(MILLIS)}
    types = {field.name: field.type for field in FLOWS}
    columns |= {own: _cast(fields, name, types[own]) for name, own in RENAMED.items()}
    labels = {"class": label, "attackType": attack}
    labels |= dict.fromkeys(("attackID", "attackDescription"), NO_ATTACK)
    columns |= {name: pa.array([value] * fields.num_rows) for name, value in labels.items()}
    return pa.table(columns).select(FLOWS.names).cast(FLOWS)


def _cast(fields: pa.Table, name: str, dtype: pa.DataType) -> pa.ChunkedArray:
    try:
        return fields.column(name).cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UserError(
            f"Column {name!r} has the type {fields.schema.field(name).type}, and not all of its "
            f"values can be cast to {dtype}."
        ) from error
