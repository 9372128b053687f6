"""Does the synthetic table have the types, ranges and categories of the real one? Rules too."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.data.plain_values import as_words, plain_values
from tabmt.data.schema import Schema
from tabmt.errors import UserError
from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.rules.rule import Rule


def outside_support(train: EncodedTable, synthetic: EncodedTable) -> dict[str, float]:
    """Share of known values outside the training range, or of an unseen category, by column."""
    shares = {}
    for name in train.names:
        known = ~synthetic.missing(name)
        if name in train.numbers:
            low, high = np.nanmin(train.numbers[name]), np.nanmax(train.numbers[name])
            values = synthetic.numbers[name][known]
            outside = (values < low) | (values > high)
        else:
            outside = synthetic.codes[name][known] >= len(train.encoder.categories[name])
        shares[name] = float(outside.mean()) if known.any() else 0.0
    return shares


def type_differences(real: pa.Table, synthetic: pa.Table) -> dict[str, str]:
    """Columns whose stored type is not that of the real table, and how they differ."""
    differences = {}
    for field in real.schema:
        if field.name not in synthetic.column_names:
            differences[field.name] = "not in the table"
            continue
        own = synthetic.schema.field(field.name).type
        if str(own).removeprefix("large_") != str(field.type).removeprefix("large_"):
            differences[field.name] = f"{own} instead of {field.type}"
    return differences


def rule_violation_share(rule: Rule, table: pa.Table, schema: Schema, train: pa.Table) -> float:
    """Share of rows that violate a rule. Combinations are those of the training table."""
    if rule.form == "determines":
        rows, seen = (_combinations(t, schema, rule.columns) for t in (table, train))
        usual: dict[str, str] = {}
        counts = {pair: count for pair, count in Counter(seen).items() if None not in pair}
        for source, target in sorted(counts, key=lambda pair: (-counts[pair], pair[1])):
            usual.setdefault(source, target)
        wrong = sum(None not in row and usual.get(row[0]) != row[1] for row in rows)
        return float(wrong / max(len(rows), 1))
    if rule.is_combination:
        rows, seen = (_combinations(t, schema, rule.columns) for t in (table, train))
        known = set(seen)
        return sum(row not in known for row in rows) / max(len(rows), 1)
    values, missing = {}, {}
    for name in rule.columns:
        if name in schema.names and name in table.column_names:
            values[name], missing[name] = plain_values(table.column(name), schema[name])
    return float(np.mean(rule.violations(values, missing)))


def _combinations(table: pa.Table, schema: Schema, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    for name in names:
        if name not in schema.names or name not in table.column_names:
            raise UserError(f"A rule names a column {name!r} that does not exist.")
    words = (as_words(table.column(name), schema[name]).to_pylist() for name in names)
    return list(zip(*words, strict=True))
