"""Columns of any type as plain floats or words, for rules and metrics to calculate with."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.schema import Column, combine
from tabmt.data.text_formats import is_text, read, without_gap
from tabmt.data.units import is_number, is_time, whole_type
from tabmt.errors import UserError


def is_numeric(column: Column) -> bool:
    """Whether a column's values are calculated with as floats: numbers, times and truth values."""
    if column.kind in ("numeric", "datetime"):
        return True
    dtype = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return is_number(dtype) or is_time(dtype) or bool(pa.types.is_boolean(dtype))


def plain_values(array: pa.ChunkedArray, column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Floats or words, and which are gaps, (rows,) each."""
    if is_numeric(column):
        numbers = as_numbers(array, column)
        return numbers, np.isnan(numbers)
    words = as_words(array, column)
    gaps = np.asarray(words.is_null().to_numpy(zero_copy_only=False))
    return np.array(words.fill_null("").to_pylist(), dtype=str), gaps


def as_numbers(array: pa.ChunkedArray, column: Column) -> np.ndarray:
    """(rows,) float64, NaN for gaps: numbers, dates and times, or text that stands for them."""
    values = combine(array)
    try:
        if is_text(values.type) and column.kind == "datetime" and column.format is not None:
            unit = column.format.partition(":")[0]
            values = read(values, column.format, pa.timestamp(unit), column.gap_text)
        elif is_text(values.type):
            values = read(values, "plain", pa.float64(), column.gap_text)
        else:
            values = without_gap(values, column.format, column.gap_text)
        # One unit for all times, whatever each table stores them in.
        if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
            zone = getattr(values.type, "tz", None)
            values = values.cast(pa.timestamp("us", zone), safe=False)
        elif pa.types.is_duration(values.type):
            values = values.cast(pa.duration("us"), safe=False)
        elif pa.types.is_time(values.type):
            values = values.cast(pa.time64("us"), safe=False)
        if is_time(values.type):
            values = values.cast(whole_type(values.type))
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        if not (is_number(values.type) or pa.types.is_null(values.type)):
            raise pa.ArrowInvalid(f"it has type {values.type}")
        floats = values.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"Column {column.name!r} should hold numbers, but does not: {reason}"
        ) from error
    return np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def as_words(array: pa.ChunkedArray, column: Column) -> pa.Array:
    """Categories as text; whole floats are written as whole numbers, so that 1.0 is 1."""
    values = combine(array)
    values = without_gap(values, column.format, column.gap_text)
    if pa.types.is_floating(values.type):
        floats = values.to_numpy(zero_copy_only=False)
        whole = np.isnan(floats) | (np.floor(floats) == floats)
        values = pc.if_else(pc.is_nan(values), None, values)
        if whole.all() and not np.any(np.abs(floats) >= 2**53):  # infinity is no whole number
            values = values.cast(pa.int64())
    return values.cast(pa.string())
