"""Conditions applied to the codes of a table: what they leave of each column.

A value without a code, or a range without values, is an error that names the possible values.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tabmt.codec.columns import CodedColumn, Range, Selection, no_values
from tabmt.codec.table import TableCodec
from tabmt.conditions.condition import Condition, one_of
from tabmt.config import is_number
from tabmt.errors import UserError

Selections = Mapping[str, Selection]  # token column -> what is left of it


class Share(NamedTuple):
    """A share of the rows, with the conditions of these rows."""

    size: float
    selections: Selections


def select(codec: TableCodec, conditions: Mapping[str, Condition]) -> dict[str, Selection]:
    """The selections of token columns; conditions on other columns are only checked."""
    selections = {}
    for name, condition in conditions.items():
        coded = codec.find(name, "A condition names column")
        selection = _select_column(coded, condition)
        if coded.has_tokens:
            selections[name] = selection
    return selections


def _select_column(coded: CodedColumn, condition: Condition) -> Selection:
    """What a condition leaves of all codes of a column, the missing code included."""
    if condition.missing:
        return Selection(_only_missing(coded))
    if condition.values is not None:
        own = coded.codec.select_values(coded.column, condition.values)
    elif condition.low is not None or condition.high is not None:
        wanted = Range(
            condition.low, condition.high, condition.excludes_low, condition.excludes_high
        )
        own = coded.codec.select_range(coded.column, wanted)
    else:
        if coded.codec.is_empty:
            raise UserError(no_values(coded.name))
        own = Selection(np.ones(coded.codec.size))
    weights = np.zeros(coded.size)
    weights[: len(own.weights)] = own.weights
    return Selection(weights, own.low, own.high, own.choices)


def _only_missing(coded: CodedColumn) -> np.ndarray:
    weights = np.zeros(coded.size)
    if coded.codec.is_empty:
        return weights
    if coded.missing_code is None:
        if coded.column.missing == "masked":
            raise UserError(
                f"The condition on column {coded.name!r} asks for missing values, but they were "
                "masked in training and are never generated; fit the model with "
                'missing="learned" (--missing learned).'
            )
        raise UserError(
            f"The condition on column {coded.name!r} asks for missing values, but the training "
            "table has none there."
        )
    weights[coded.missing_code] = 1.0
    return weights


def shares_of_rows(
    codec: TableCodec,
    conditions: Mapping[str, Condition],
    balance: str | Mapping[str, Mapping[Any, float]] | None,
) -> list[Share]:
    """One share of all rows under the conditions, or one for each class of a balanced column."""
    if balance is None:
        return [Share(1.0, select(codec, conditions))]
    name, sizes = _classes(codec, balance)
    if name in conditions:
        raise UserError(f"Column {name!r} is balanced and has a condition; give only one of them.")
    return [
        Share(size, select(codec, {name: one_of(value), **conditions}))
        for value, size in sizes.items()
    ]


def _classes(
    codec: TableCodec, balance: str | Mapping[str, Mapping[Any, float]]
) -> tuple[str, Mapping[Any, float]]:
    """The column to balance, and the share of each of its values."""
    if isinstance(balance, Mapping) and len(balance) != 1:
        raise UserError(
            f"`balance` must name exactly one column, got {len(balance)}. Example: "
            "{'churn': {0: 0.5, 1: 0.5}}."
        )
    name = next(iter(balance)) if isinstance(balance, Mapping) else balance
    coded = codec.find(name, "balance names column")
    if coded.column.kind != "categorical":
        raise UserError(
            f"Column {name!r} is {coded.column.kind}; only a categorical column can be balanced."
        )
    if not isinstance(balance, Mapping):
        assert coded.codec.categories is not None
        return name, dict.fromkeys(coded.codec.categories.to_pylist(), 1.0)
    sizes = balance[name]
    if not isinstance(sizes, Mapping):
        raise UserError(
            f"`balance` must map the values of column {name!r} to shares, such as "
            f"{{'a': 0.5, 'b': 0.5}}, got {sizes!r}."
        )
    for value, size in sizes.items():
        if not is_number(size) or not math.isfinite(size) or size < 0:
            raise UserError(
                f"The share of {value!r} in {name!r} is {size!r}, but must be at least 0."
            )
    if not sum(sizes.values()) > 0:
        raise UserError(f"The shares of column {name!r} are all 0.")
    return name, {value: size for value, size in sizes.items() if size > 0}


def row_counts(rows: int, shares: Sequence[Share]) -> list[int]:
    """Whole numbers that sum to `rows`, in proportion to the shares."""
    sizes = [share.size for share in shares]
    ends = np.round(np.cumsum(sizes) / sum(sizes) * rows).astype(int)
    return [int(count) for count in np.diff(ends, prepend=0)]
