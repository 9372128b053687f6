"""Columns in the type in which they are learned: text parsed once, missing values as nulls."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tabmt.data.arrow_types import check_times, is_text, plain_array, value_type
from tabmt.data.missing import nan_to_null, read_text, to_null
from tabmt.data.schema import Column, Schema
from tabmt.data.text_formats import read_type
from tabmt.errors import UserError


@dataclass(frozen=True)
class TypedColumn:
    """A column with its values as they are learned. Missing values are nulls, never NaN."""

    column: Column
    values: pa.Array
    dictionary: pa.Array | None = None  # declared categories in their own order, in use or not

    @property
    def missing_count(self) -> int:
        return int(self.values.null_count)

    @cached_property
    def known(self) -> pa.Array:
        """The values that are not missing."""
        return self.values.drop_null()

    @cached_property
    def is_known(self) -> np.ndarray:
        """(rows,) bool."""
        return np.asarray(self.values.is_valid().to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class TypedTable:
    """The columns of a table, by name, in the order of its schema."""

    columns: Mapping[str, TypedColumn]
    num_rows: int

    @classmethod
    def of(cls, columns: Iterable[TypedColumn]) -> "TypedTable":
        by_name = {typed.column.name: typed for typed in columns}
        return cls(by_name, len(next(iter(by_name.values())).values))

    def with_columns(self, columns: Iterable[Column]) -> "TypedTable":
        """The same values, with other entries in the schema."""
        return TypedTable.of(
            dataclasses.replace(self.columns[column.name], column=column) for column in columns
        )

    def schema_columns(self) -> tuple[Column, ...]:
        return tuple(typed.column for typed in self.columns.values())


def parse_column(array: pa.Array | pa.ChunkedArray, column: Column) -> TypedColumn:
    """Any array of a column's values in the column's own type.

    Text that stands for numbers or dates is read as such, and other types are cast.
    """
    check_times(column.name, array)
    if column.format is not None and is_text(array.type):
        values = _read(array, column)
    else:
        values = _cast(array, column)
    return TypedColumn(column, nan_to_null(values), declared_categories(array, values.type))


def _read(array: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    assert column.format is not None
    dtype = read_type(column.format) if is_text(column.type) else column.type
    try:
        return read_text(plain_array(array), column.format, dtype, column.missing_text)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise UserError(
            f"Column {column.name!r} contains text that is not of the form {column.format!r}; "
            "correct these cells, or leave them empty."
        ) from error


def _cast(array: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    values = plain_array(array)
    if column.missing_text is not None and not is_text(array.type):
        # It may be a category, or occur among numbers.
        values = to_null(values, column.format, column.missing_text)
    wanted, given = value_type(column.type), value_type(array.type)
    if given == wanted or (is_text(wanted) and column.format not in (None, "text")):
        return values
    try:
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UserError(
            f"Column {column.name!r} contains {given}, but the model was fitted on {wanted}, to "
            "which not all of its values can be converted."
        ) from error


def declared_categories(array: pa.Array | pa.ChunkedArray, dtype: pa.DataType) -> pa.Array | None:
    """The entries of a dictionary column, used or not; None for other columns."""
    if not pa.types.is_dictionary(array.type):
        return None
    chunks = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    if chunks.num_chunks == 0:
        return None
    return chunks.unify_dictionaries().chunk(0).dictionary.drop_null().cast(dtype)


def in_schema_types(table: pa.Table, schema: Schema) -> pa.Table:
    """A table in the types that samples have: the text of a CSV file as numbers and dates."""
    columns = []
    for column in schema.columns:
        if column.name not in table.column_names:
            raise UserError(
                f"The table has no column {column.name!r}; it has: {', '.join(table.column_names)}."
            )
        array = table.column(column.name)
        if not is_text(column.type) and not pa.types.is_dictionary(array.type):
            array = parse_column(array, column).values
        columns.append(array)
    return pa.table(columns, schema=schema.arrow)
