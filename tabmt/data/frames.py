"""Data frames in memory: pandas, polars and Arrow objects become Arrow tables, and go back.

Nothing of the caller's is changed. Whatever offers the Arrow C stream, such as a DuckDB relation,
is read as well.
"""

import dataclasses
import json
import logging
import re
from collections.abc import Collection
from typing import Any, Literal, get_args

import pyarrow as pa

from tabmt.data.schema import Schema, Source, check_names
from tabmt.errors import UserError

log = logging.getLogger(__name__)

Output = Literal["pandas", "polars", "arrow"]
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def to_arrow(table: Any) -> tuple[pa.Table, Source]:
    """A table in memory as an Arrow table, with what is needed to return the same kind."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return drop_pandas_index(table), Source("arrow", pandas_metadata(table.schema))
    package = type(table).__module__.partition(".")[0]
    if package in ("pandas", "polars") and type(table).__name__ == "Series":
        table = table.to_frame()
    if package == "pandas" and hasattr(table, "columns"):
        return _from_pandas(table)
    if package == "polars" and hasattr(table, "to_arrow") and hasattr(table, "columns"):
        return table.to_arrow(), Source("polars")
    if hasattr(table, "__arrow_c_stream__"):
        return drop_pandas_index(pa.table(table)), Source("arrow")
    raise UserError(
        f"An object of type {type(table).__name__} is not a table. Pass a pandas, polars or Arrow "
        "table, or the path of a CSV, Parquet or Arrow file."
    )


def _from_pandas(frame: Any) -> tuple[pa.Table, Source]:
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise UserError("The table has several levels of column names. Join them into one first.")
    names = [str(name) for name in frame.columns]
    check_names(names)
    arrays = []
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        try:
            arrays.append(pa.array(series, from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            raise UserError(_mixed_types_message(name, series)) from None
    with_metadata = pa.Schema.from_pandas(frame.iloc[:0], preserve_index=False).metadata
    table = pa.table(
        [pa.chunked_array([array]) if isinstance(array, pa.Array) else array for array in arrays],
        names=names,
    )
    if frame.columns.inferred_type not in ("string", "integer", "empty"):
        log.warning("Some column names are not text; they are returned as text.")
    if type(frame.index).__name__ != "RangeIndex":
        log.warning("The pandas index is not a column and is left out; reset_index() keeps it.")
    metadata = pandas_metadata(pa.schema([], metadata=with_metadata))
    if frame.columns.inferred_type == "integer":
        metadata = json.dumps({**json.loads(metadata or "{}"), "integer_names": True})
    return table, Source("pandas", metadata)


def _mixed_types_message(name: str, series: Any) -> str:
    values = list(series.dropna())
    types = sorted({type(value).__name__ for value in values})
    if len(types) == 1:
        return (
            f"Column {name!r} holds {types[0]} values that no column type can hold. Convert it to "
            f"text: df[{name!r}].astype(str)."
        )
    return (
        f"Column {name!r} mixes {' and '.join(types)} values. Give it one type, for example text: "
        f"df[{name!r}].astype(str)."
    )


def pandas_metadata(schema: pa.Schema) -> str | None:
    """What pandas stores about its dtypes, without the index, whose length is the real table's."""
    metadata = (schema.metadata or {}).get(b"pandas")
    if metadata is None:
        return None
    content = json.loads(metadata)
    content["index_columns"] = []
    content.pop("attributes", None)  # the user's own attrs do not belong in a model file
    return json.dumps(content)


def unnamed_index_columns(schema: pa.Schema) -> list[str]:
    """The columns in which pandas stores an index without a name; pandas hides them again."""
    content = json.loads((schema.metadata or {}).get(b"pandas", "{}"))
    named = [name for name in content.get("index_columns") or [] if isinstance(name, str)]
    columns = [name for name in named if UNNAMED_INDEX.fullmatch(name) and name in schema.names]
    if columns:
        log.info("the pandas index in %s is not a column and is left out", ", ".join(columns))
    return columns


def drop_pandas_index(table: pa.Table) -> pa.Table:
    return table.drop_columns(unnamed_index_columns(table.schema))


def check_output(output: str | None) -> None:
    if output is not None and output not in get_args(Output):
        raise UserError(f"output is {output!r}, but must be one of: {', '.join(get_args(Output))}.")


def from_arrow(table: pa.Table, schema: Schema, output: Output | None = None) -> Any:
    """A table of the kind that was fitted, or of `output`; tables from files become pandas."""
    check_output(output)
    fitted = schema.source.kind if schema.source.kind in get_args(Output) else "pandas"
    match output or fitted:
        case "arrow":
            return table
        case "polars":
            return _import("polars").from_arrow(table)
        case _:
            _import("pandas")
            return _to_pandas(table, schema.source.pandas)


def results_from_arrow(table: pa.Table, schema: Schema, output: Output | None, rows: Any) -> Any:
    """A table of results, one for each row of the table `rows`, whose index it takes."""
    check_output(output)
    match output or schema.source.kind:
        case "arrow":
            return table
        case "polars":
            return _import("polars").from_arrow(table)
        case _:
            return with_index_of(table.to_pandas(), rows)


def with_index_of(frame: Any, original: Any) -> Any:
    """A data frame with the index of another, so that the two can be joined."""
    if all(hasattr(table, "index") and hasattr(table, "iloc") for table in (frame, original)):
        frame.index = original.index
    return frame


def forget_pandas_types(source: Source, names: Collection[str]) -> Source:
    """The source without pandas' dtypes of some columns, whose type has changed."""
    if source.pandas is None:
        return source
    content = json.loads(source.pandas)
    content["columns"] = [entry for entry in content["columns"] if entry["field_name"] not in names]
    return dataclasses.replace(source, pandas=json.dumps(content))


def _to_pandas(table: pa.Table, metadata: str | None) -> Any:
    """Arrow's own conversion, plus what it forgets: object columns and integer column names."""
    frame = table.to_pandas()
    if metadata is None:
        return frame
    content = json.loads(metadata)
    for entry in content["columns"]:
        name = entry["field_name"]
        if entry["numpy_type"] == "object" and name in frame and frame[name].dtype != object:
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    if content.get("integer_names"):
        frame.columns = [int(name) for name in frame.columns]
    return frame


def _import(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise UserError(
            f"This returns a {name} table, and {name} is not installed: pip install {name}, "
            'or pass output="arrow".'
        ) from error
