"""The distribution of each column of some rows, in bins that depend on the model only.

The bins are chosen from rows that the model draws without conditions: no real row is needed or
shown.
"""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.columns import CodedColumn
from tabmt.data.arrow_types import is_number, plain_array
from tabmt.data.typed_columns import parse_column
from tabmt.estimator import TabMT
from tabmt.serve.formats import plain_rows

Form = Literal["categories", "numbers", "dates", "fixed"]
BASELINE_ROWS = 2_000
BASELINE_SEED = 0
MOST_CATEGORIES = 100
NUMBER_BINS = 20
DAY = 86_400_000  # milliseconds


@dataclass(frozen=True)
class Axis:
    """How one column is shown. `values` can be used in conditions: a category for each bar, or the
    edges of bins."""

    name: str
    form: Form
    kind: str
    dtype: str
    reason: str
    can_be_missing: bool
    values: tuple[Any, ...] = ()
    edges: tuple[float, ...] = ()  # of numbers, and of dates in milliseconds since 1970


@dataclass(frozen=True)
class Baseline:
    """The columns of a model, and the shares of rows that it draws without a condition."""

    axes: tuple[Axis, ...]
    columns: tuple[dict[str, Any], ...]
    rows: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, model: TabMT) -> "Baseline":
        table = pa.concat_tables(model.sample_batches(BASELINE_ROWS, seed=BASELINE_SEED))
        typed, coded = _in_own_types(model, table), model.model_.codec.coded
        axes = tuple(_axis(one, typed.column(one.name)) for one in coded)
        return cls(axes, tuple(shares(model, axes, table)), tuple(plain_rows(table.slice(0, 10))))


def shares(model: TabMT, axes: Sequence[Axis], table: pa.Table) -> list[dict[str, Any]]:
    """For each column: the share of the rows in each bin, in no bin, and missing."""
    typed = _in_own_types(model, table)
    return [_shares(axis, typed.column(axis.name)) for axis in axes]


def _in_own_types(model: TabMT, table: pa.Table) -> pa.Table:
    """Rows with typed numbers and dates, even where the user's table has them as text."""
    arrays = [
        parse_column(table.column(coded.name), coded.column).values
        if coded.column.kind in ("numeric", "datetime")
        else table.column(coded.name)
        for coded in model.model_.codec.coded
    ]
    return pa.table(arrays, names=[coded.name for coded in model.model_.codec.coded])


def _shares(axis: Axis, column: pa.ChunkedArray) -> dict[str, Any]:
    values = plain_array(column)
    count = max(len(values), 1)
    known = values.drop_null()
    bins: np.ndarray = np.zeros(0)
    if axis.form == "categories":
        words = [str(value) for value in axis.values]
        codes = pc.index_in(_as_text(known), pa.array(words, pa.string())).drop_null()
        bins = np.bincount(codes.to_numpy(), minlength=len(words))
    elif axis.edges:
        numbers = _as_numbers(known)
        edges = np.array(axis.edges)
        bins = np.histogram(np.clip(numbers, edges[0], edges[-1]), edges)[0]
    missing = len(values) - len(known)
    return {
        "name": axis.name,
        "shares": [round(float(share), 5) for share in bins / count],
        "others": round(float(len(known) - bins.sum()) / count, 5) if len(bins) else 0.0,
        "missing": round(missing / count, 5),
        **_summary(axis, known),
    }


def _summary(axis: Axis, known: pa.Array) -> dict[str, Any]:
    """The median of numbers, for people who do not see the picture."""
    if axis.form != "numbers" or not len(known):
        return {}
    return {"median": float(np.median(_as_numbers(known)))}


# --- bins ----------------------------------------------------------------------------------


def _axis(coded: CodedColumn, drawn: pa.ChunkedArray) -> Axis:
    column = coded.column
    form: Form = "fixed"
    values: tuple[Any, ...] = ()
    edges: tuple[float, ...] = ()
    known = plain_array(drawn).drop_null()
    if column.kind == "categorical" and coded.codec.categories is not None:
        form, values = "categories", _categories(coded, known)
    elif column.kind in ("numeric", "datetime") and len(known):
        is_plain = column.kind == "numeric" and is_number(known.type)
        form = "numbers" if is_plain else "dates"
        edges = _edges(_as_numbers(known), form, decimals=column.decimals)
        values = tuple(_edge_value(edge, form, known.type) for edge in edges)
    return Axis(
        column.name, form, column.kind, column.dtype, column.reason,
        coded.missing_code is not None, values, edges,
    )  # fmt: skip


def _categories(coded: CodedColumn, known: pa.Array) -> tuple[Any, ...]:
    """The categories that rows have, the most frequent first, then those that they may have."""
    every = coded.codec.categories
    assert every is not None
    listed = [row["c"] for row in plain_rows(pa.table({"c": every}))]
    counts = {
        str(item["values"]): item["counts"] for item in _as_text(known).value_counts().to_pylist()
    }
    listed.sort(key=lambda value: -counts.get(str(value), 0))
    return tuple(listed[:MOST_CATEGORIES])


def _edges(numbers: np.ndarray, form: Form, *, decimals: int | None) -> tuple[float, ...]:
    """Round edges around all values, about as many as fit below a small picture."""
    low, high = float(numbers.min()), float(numbers.max())
    least = 0.0 if decimals is None else 10.0**-decimals
    if form == "dates":
        least = 1.0
        step = max((high - low) / NUMBER_BINS, least)
        if step > DAY:
            step = math.ceil(step / DAY) * DAY
            low = math.floor(low / DAY) * DAY
    else:
        step = max(_round_step((high - low) / NUMBER_BINS), least)
        low = math.floor(low / step + 1e-9) * step
    count = max(1, math.ceil((high - low) / step + 1e-9))
    if low + count * step <= high:
        count += 1
    digits = max(0, 2 - math.floor(math.log10(step)))
    return tuple(round(low + step * index, digits) for index in range(count + 1))


def _round_step(step: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next((f * power for f in (1, 2, 5, 10) if f * power >= step * 0.999), 10 * power)


def _edge_value(edge: float, form: Form, dtype: pa.DataType) -> Any:
    if form == "numbers":
        return int(edge) if edge == int(edge) and abs(edge) < 2**53 else edge
    if pa.types.is_time(dtype):
        second = int(edge) // 1000 % 86_400
        return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    if pa.types.is_duration(dtype):
        return str(dt.timedelta(milliseconds=edge))
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=edge)
    return moment.date().isoformat() if edge % DAY == 0 else moment.isoformat(timespec="seconds")


def _as_numbers(known: pa.Array) -> np.ndarray:
    """Numbers, or milliseconds since 1970 or midnight."""
    dtype = known.type
    if pa.types.is_date(dtype):
        known = known.cast(pa.timestamp("ms"))
    elif pa.types.is_timestamp(dtype):
        if dtype.tz is not None:
            known = pc.local_timestamp(known)
        known = known.cast(pa.timestamp("ms"), safe=False)
    elif pa.types.is_time(dtype):
        known = known.cast(pa.time64("us")).cast(pa.int64())
        return np.asarray(known.to_numpy(zero_copy_only=False), float) / 1000
    elif pa.types.is_duration(dtype):
        known = known.cast(pa.duration("ms"), safe=False)
    elif pa.types.is_decimal(dtype):
        known = known.cast(pa.float64())
    if not is_number(known.type):
        known = known.cast(pa.int64())
    return np.asarray(known.to_numpy(zero_copy_only=False), float)


def _as_text(values: pa.Array) -> pa.Array:
    words = [row["c"] for row in plain_rows(pa.table({"c": values}))]
    return pa.array([str(word) for word in words], pa.string())
