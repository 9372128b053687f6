"""Questions about Arrow types, and arrays in their plainest form."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from tabmt.errors import UserError

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, from 1970-01-01
LONGEST_DAYS = 999_999_999  # of a duration
MOST_TYPE = 200  # characters of the name of a type


def is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_string_view(dtype)
    )


def is_number(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    )


def is_time(dtype: pa.DataType) -> bool:
    """Dates, times of day, timestamps and durations."""
    return bool(pa.types.is_temporal(dtype)) and not pa.types.is_interval(dtype)


def value_type(dtype: pa.DataType) -> pa.DataType:
    """The type of the values themselves: of a dictionary, the type of its entries."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def check_learnable(name: str, dtype: pa.DataType) -> None:
    """Refuse columns of nested and binary types."""
    dtype = value_type(dtype)
    if not (
        is_number(dtype)
        or is_time(dtype)
        or is_text(dtype)
        or pa.types.is_boolean(dtype)
        or pa.types.is_null(dtype)
    ):
        raise UserError(
            f"Column {name!r} has type {dtype}, but TabMT learns numbers, text, booleans, dates "
            "and times. Convert the column to text, or remove it."
        )


def check_times(name: str, values: pa.Array | pa.ChunkedArray) -> None:
    """Refuse dates and times that calendars do not have, which files can hold all the same."""
    dtype = value_type(values.type)
    if not is_time(dtype) or pa.types.is_dictionary(values.type):
        return
    ends = pc.min_max(values.cast(storage_type(dtype))).as_py()
    if ends["min"] is None:
        return
    unit = "D" if pa.types.is_date32(dtype) else "ms" if pa.types.is_date64(dtype) else dtype.unit
    per_day = {"D": 1, "s": 86_400, "ms": 86_400_000}.get(
        unit, 86_400 * 10 ** (6 + 3 * (unit == "ns"))
    )
    low, high = FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1
    if pa.types.is_time(dtype):
        low, high = 0, per_day - 1
    elif pa.types.is_duration(dtype):
        low, high = -LONGEST_DAYS * per_day, LONGEST_DAYS * per_day
    if ends["min"] < low or ends["max"] > high:
        allowed = "within a day" if pa.types.is_time(dtype) else "in the years 1 to 9999"
        raise UserError(
            f"Column {name!r} has {dtype} values that are not {allowed}; remove or repair them."
        )


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """The integer type in which dates and times are stored; other types as they are."""
    if not is_time(dtype):
        return dtype
    return pa.int32() if pa.types.is_date32(dtype) or pa.types.is_time32(dtype) else pa.int64()


def plain_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array, with dictionaries and string views decoded."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type) or (
        pa.types.is_string(column.type) and column.nbytes >= 2**31  # too long for one such array
    ):
        column = column.cast(pa.large_string())
    chunks = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    # combine_chunks returns a ChunkedArray again if it considers the chunks too many
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks


def parse_type(text: str) -> pa.DataType:
    """The Arrow type that prints as `text`. Covers the flat types that tables hold."""
    if len(text) > MOST_TYPE:
        raise UserError(f"{text[:20] + '...'!r} is not a column type that TabMT knows.")
    if match := re.fullmatch(r"dictionary<values=(.+), indices=(u?int\d+), ordered=([01])>", text):
        return pa.dictionary(parse_type(match[2]), parse_type(match[1]), match[3] == "1")
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]", text):
        return pa.timestamp(match[1], tz=match[2])  # the zone is checked where it is used
    if match := re.fullmatch(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)", text):
        precision, scale = int(match[2]), int(match[3])
        if not 1 <= precision <= 76 or abs(scale) > 76:
            raise UserError(f"{text!r} is not a column type that TabMT knows.")
        return getattr(pa, f"decimal{match[1]}")(precision, scale)
    try:
        return pa.type_for_alias({"date32[day]": "date32", "date64[ms]": "date64"}.get(text, text))
    except ValueError as error:
        raise UserError(f"{text!r} is not a column type that TabMT knows.") from error
