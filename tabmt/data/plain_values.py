"""Columns of any type as plain floats or words, for rules and metrics to calculate with."""

import numpy as np
import pyarrow as pa

from tabmt.data import text_formats
from tabmt.data.arrow_types import (
    is_number,
    is_text,
    is_time,
    plain_array,
    storage_type,
    value_type,
)
from tabmt.data.missing import nan_to_null, read_text, to_null
from tabmt.data.schema import Column
from tabmt.errors import UserError


def is_numeric(column: Column) -> bool:
    """Whether a column's values become floats: numbers, times and booleans."""
    if column.kind in ("numeric", "datetime"):
        return True
    dtype = value_type(column.type)
    return is_number(dtype) or is_time(dtype) or bool(pa.types.is_boolean(dtype))


def plain_values(
    array: pa.Array | pa.ChunkedArray, column: Column
) -> tuple[np.ndarray, np.ndarray]:
    """Floats or words, and which are missing, (rows,) each."""
    if is_numeric(column):
        numbers = as_numbers(array, column)
        return numbers, np.isnan(numbers)
    words = as_words(array, column)
    missing = np.asarray(words.is_null().to_numpy(zero_copy_only=False))
    return np.array(words.fill_null("").to_pylist(), dtype=str), missing


def as_numbers(array: pa.Array | pa.ChunkedArray, column: Column) -> np.ndarray:
    """(rows,) float64, NaN where missing: numbers, dates and times, or text that stands for them.

    Times are counted in microseconds, whatever unit each table stores them in.
    """
    values = plain_array(array)
    try:
        if is_text(values.type) and text_formats.is_styled(column.format):
            assert column.format is not None
            dtype = text_formats.read_type(column.format)
            values = read_text(values, column.format, dtype, column.missing_text)
        elif is_text(values.type) and column.kind == "datetime" and column.format is not None:
            unit = column.format.partition(":")[0]
            values = read_text(values, column.format, pa.timestamp(unit), column.missing_text)
        elif is_text(values.type):
            values = read_text(values, "plain", pa.float64(), column.missing_text)
        else:
            values = to_null(values, column.format, column.missing_text)
        values = _in_microseconds(values)
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        if not (is_number(values.type) or pa.types.is_null(values.type)):
            raise UserError(
                f"Column {column.name!r} should hold numbers, but has the type {values.type}."
            )
        floats = values.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid as error:
        raise UserError(
            f"Column {column.name!r} should hold numbers, but some of its cells hold other text."
        ) from error
    return np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def _in_microseconds(values: pa.Array) -> pa.Array:
    """Times as integers; other values as they are."""
    dtype = values.type
    if not is_time(dtype):
        return values
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        values = values.cast(pa.timestamp("us", getattr(dtype, "tz", None)), safe=False)
    elif pa.types.is_duration(dtype):
        values = values.cast(pa.duration("us"), safe=False)
    elif pa.types.is_time(dtype):
        values = values.cast(pa.time64("us"), safe=False)
    return values.cast(storage_type(values.type))


def as_words(array: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """Categories as text; whole floats are written as whole numbers, so that 1.0 is 1."""
    values = to_null(plain_array(array), column.format, column.missing_text)
    if pa.types.is_floating(values.type):
        floats = values.to_numpy(zero_copy_only=False)
        whole = np.isnan(floats) | (np.floor(floats) == floats)
        values = nan_to_null(values)
        if whole.all() and not np.any(np.abs(floats) >= 2**53):  # infinity is not a whole number
            values = values.cast(pa.int64())
    return values.cast(pa.string())
