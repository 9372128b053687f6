"""Does the synthetic table keep to the real one's types, ranges and categories, and to rules?"""

import numpy as np
import pyarrow as pa

from tabmt.data.schema import Schema
from tabmt.data.values import as_words, plain_values
from tabmt.errors import UserError
from tabmt.evaluation.metrics.view import View
from tabmt.rules.rule import Rule


def outside_support(train: View, synthetic: View) -> dict[str, float]:
    """Share of known values that training never allowed: out of range, or an unseen category."""
    shares = {}
    for name in train.lens.names:
        known = ~synthetic.gaps(name)
        if name in train.numbers:
            low, high = np.nanmin(train.numbers[name]), np.nanmax(train.numbers[name])
            values = synthetic.numbers[name][known]
            outside = (values < low) | (values > high)
        else:
            outside = synthetic.codes[name][known] >= len(train.lens.words[name])
        shares[name] = float(outside.mean()) if known.any() else 0.0
    return shares


def type_differences(real: pa.Table, synthetic: pa.Table) -> dict[str, str]:
    """Columns whose stored type is not the real one's, and how they differ."""
    found = {}
    for field in real.schema:
        if field.name not in synthetic.column_names:
            found[field.name] = "is missing"
            continue
        there = synthetic.schema.field(field.name).type
        if there != field.type and str(there).removeprefix("large_") != str(
            field.type
        ).removeprefix("large_"):
            found[field.name] = f"{there} instead of {field.type}"
    return found


def broken_rule_share(rule: Rule, table: pa.Table, schema: Schema, train: pa.Table) -> float:
    """Share of rows that break a rule. Combinations are those of the training table."""
    if rule.together:
        rows, seen = (_combinations(one, schema, rule.columns) for one in (table, train))
        known = set(seen)
        return sum(row not in known for row in rows) / max(len(rows), 1)
    columns, gaps = {}, {}
    for column in schema.columns:
        if column.name in rule.columns and column.name in table.column_names:
            columns[column.name], gaps[column.name] = plain_values(
                table.column(column.name), column
            )
    return float(np.mean(rule.broken(columns, gaps)))


def _combinations(table: pa.Table, schema: Schema, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    columns = {column.name: column for column in schema.columns}
    for name in names:
        if name not in columns or name not in table.column_names:
            raise UserError(f"A rule names a column {name!r} that is not there.")
    words = (as_words(table.column(name), columns[name]).to_pylist() for name in names)
    return list(zip(*words, strict=True))
