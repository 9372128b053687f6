"""What counts as a missing value.

A null always does, and so does NaN in a column of floats. Text that stands for a missing value,
such as NA, counts in two cases: among values that are otherwise all numbers or all dates, it is
recognised by itself if it is one of MISSING_TEXTS; anywhere else a user has to name it
(`missing_text` in the schema), because NA may also be a word like any other (a country, a grade).
"""

import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data import text_formats
from tabmt.data.arrow_types import is_text, plain_array
from tabmt.data.schema import Column

MISSING_TEXTS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-", ".")


def missing_texts_in(texts: pa.Array) -> list[str]:
    """Which of the usual spellings of a missing value occur among some texts."""
    return [text for text in MISSING_TEXTS if contains(texts, text)]


def contains(values: pa.Array, value: object) -> bool:
    return bool(pc.index(values, value).as_py() >= 0)


def missing_scalar(
    dtype: pa.DataType, fmt: str | None, missing_text: str | None
) -> pa.Scalar | None:
    """`missing_text` as a value of a type, if it can be one: -999 may occur among integers."""
    if missing_text is None:
        return None
    if is_text(dtype):
        return pa.scalar(missing_text, dtype)
    if pa.types.is_float16(dtype):
        return None  # Arrow cannot compare float16
    try:
        own = "plain" if fmt in (None, "text") else fmt
        value = text_formats.read(pa.array([missing_text]), own, dtype)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        return None  # a word
    is_nan = pa.types.is_floating(dtype) and value.as_py() != value.as_py()
    return None if is_nan else value  # NaN is missing anyway


def to_null(values: pa.Array, fmt: str | None, missing_text: str | None) -> pa.Array:
    """Values of any type, with nulls where they equal `missing_text`."""
    missing = missing_scalar(values.type, fmt, missing_text)
    if missing is None:
        return values
    return pc.if_else(pc.equal(values, missing), pa.scalar(None, values.type), values)


def read_text(
    texts: pa.Array, fmt: str, dtype: pa.DataType, missing_text: str | None = None
) -> pa.Array:
    """Texts of a format as values of `dtype`, with nulls for missing values."""
    if fmt != "text":  # plain words may be too many for one array of this type
        texts = texts.cast(pa.string())
    return text_formats.read(to_null(texts, fmt, missing_text), fmt, dtype)


def nan_to_null(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def is_known(array: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """Which cells of a column are not missing, as booleans."""
    values = to_null(plain_array(array), column.format, column.missing_text)
    return pc.is_valid(nan_to_null(values))
