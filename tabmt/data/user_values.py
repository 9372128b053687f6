"""Values that users type, in the type of the column that they are about.

For conditions: "30", 30, "2020-01-31" and datetime.date(2020, 1, 31) all have to be understood.
"""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa

from tabmt.data import text_formats
from tabmt.data.arrow_types import is_text, is_time
from tabmt.data.schema import Column
from tabmt.data.units import in_zone
from tabmt.errors import UserError

TYPE_NAMES = (
    (is_text, "text"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "whole numbers"),
    (pa.types.is_floating, "numbers"),
    (pa.types.is_decimal, "numbers"),
    (pa.types.is_date, "dates"),
    (pa.types.is_timestamp, "dates with times"),
    (pa.types.is_time, "times of day"),
    (pa.types.is_duration, "durations"),
)


def read_value(value: Any, column: Column, dtype: pa.DataType) -> pa.Scalar:
    """A user's value in the type of the column's values."""
    if hasattr(value, "item"):
        value = value.item()  # numpy
    if value is None or str(value) == "<NA>" or value != value:
        raise UserError(
            f"The condition on column {column.name!r} asks for {value}; use missing() for a "
            "missing value."
        )
    if isinstance(value, str) and value == column.missing_text:
        raise UserError(
            f"The condition on column {column.name!r} asks for {value!r}, which stands for a "
            "missing value there; use missing() alone, or `is missing` on the command line."
        )
    try:
        if isinstance(value, str) and not is_text(dtype):
            return _from_text(value, dtype, column.format)
        if is_text(dtype) and not isinstance(value, str):
            raise pa.ArrowInvalid("not text")
        if isinstance(value, bool) != pa.types.is_boolean(dtype):
            raise pa.ArrowInvalid("not of this type")
        if isinstance(value, int) and pa.types.is_decimal(dtype):
            value = decimal.Decimal(value)
        array = pa.array([value])
        if getattr(dtype, "tz", None) is not None and getattr(array.type, "tz", None) is None:
            # A timestamp without a zone is meant in the column's own zone.
            array = in_zone(array.cast(pa.timestamp(dtype.unit)), dtype.tz)
        return array.cast(dtype)[0]
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise UserError(wrong_type(value, column, dtype)) from error


def _from_text(word: str, dtype: pa.DataType, fmt: str | None) -> pa.Scalar:
    """A value typed on the command line: as the column is written, or as Arrow reads it."""
    array = pa.array([word])
    if fmt is not None and (is_time(dtype) or text_formats.is_styled(fmt)):
        try:
            return text_formats.read(array, fmt, dtype)[0]
        except pa.ArrowInvalid:
            pass  # not in the column's own format; perhaps 2020-01-31
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return in_zone(array.cast(pa.timestamp(dtype.unit)), dtype.tz).cast(dtype)[0]
    if pa.types.is_date32(dtype) or pa.types.is_date64(dtype):
        return array.cast(pa.timestamp("s")).cast(dtype)[0]
    if pa.types.is_time(dtype):
        return pa.array([dt.time.fromisoformat(word)]).cast(dtype)[0]
    if pa.types.is_integer(dtype):
        number = to_decimal(word)  # not a float, which has 53 bits; 3.0 is 3, but 3.5 is refused
        if number is None or number != number.to_integral_value():
            raise pa.ArrowInvalid("not a whole number")
        return pa.scalar(int(number), dtype)
    return array.cast(dtype)[0]


def to_decimal(value: Any) -> decimal.Decimal | None:
    """A number as it is written, so that 0.3 is exactly three tenths; None if it is not one."""
    try:
        number = decimal.Decimal(str(value))
    except decimal.InvalidOperation:
        return None
    return None if number.is_nan() else number


def is_whole_day(value: Any) -> bool:
    """Whether a date without a time of day is meant."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str):
        return ":" not in value
    return not hasattr(value, "hour")


def wrong_type(value: Any, column: Column, dtype: pa.DataType) -> str:
    return (
        f"The condition on column {column.name!r} asks for {value!r}, but the column holds "
        f"{type_name(dtype)}."
    )


def type_name(dtype: pa.DataType) -> str:
    """What a column of this type holds, in words."""
    for is_type, words in TYPE_NAMES:
        if is_type(dtype):
            return words
    return str(dtype)
