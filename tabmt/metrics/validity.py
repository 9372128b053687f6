"""Does the synthetic table keep to the real one's types, ranges and categories, and to rules?"""

import numpy as np
import pyarrow as pa

from tabmt.grid import is_number, is_time
from tabmt.metrics.view import View, as_numbers, as_words
from tabmt.rules import Rule
from tabmt.schema import Schema


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


def broken_rule_share(rule: Rule, table: pa.Table, schema: Schema) -> float:
    """Share of rows that break a rule."""
    columns, gaps = {}, {}
    for column in schema.columns:
        if column.name in rule.columns and column.name in table.column_names:
            array = table.column(column.name)
            dtype = column.type
            if is_number(dtype) or is_time(dtype) or pa.types.is_boolean(dtype):
                columns[column.name] = as_numbers(array, column)
                gaps[column.name] = np.isnan(columns[column.name])
            else:
                words = as_words(array)
                gaps[column.name] = np.asarray(words.is_null().to_numpy(zero_copy_only=False))
                columns[column.name] = np.array(words.fill_null("").to_pylist(), dtype=str)
    return float(np.mean(rule.broken(columns, gaps)))
