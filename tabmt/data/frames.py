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
from tabmt.json_files import parse_json, require

log = logging.getLogger(__name__)

Output = Literal["pandas", "polars", "arrow"]
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def to_arrow(table: Any) -> tuple[pa.Table, Source]:
    """A table in memory as an Arrow table, with what is needed to return the same kind."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        try:
            table.validate(full=True)
        except pa.ArrowException as error:
            raise UserError(
                f"The Arrow table is not valid: {str(error).splitlines()[0]}"
            ) from error
        return drop_pandas_index(table), Source("arrow", pandas_metadata(table.schema))
    package = type(table).__module__.partition(".")[0]
    if package in ("pandas", "polars") and type(table).__name__ == "Series":
        table = table.to_frame()
    if package == "pandas" and hasattr(table, "columns"):
        return _from_pandas(table)
    if package == "polars" and hasattr(table, "to_arrow") and hasattr(table, "columns"):
        return _from_polars(table), Source("polars")
    if isinstance(table, pa.ChunkedArray | pa.Array):
        raise UserError(
            f"An object of type {type(table).__name__} is a column, not a table; pass "
            'pa.table({"name": column}).'
        )
    if hasattr(table, "__arrow_c_stream__"):
        try:
            return drop_pandas_index(pa.table(table)), Source("arrow")
        except (pa.ArrowException, TypeError) as error:
            raise UserError(
                f"An object of type {type(table).__name__} cannot be read as an Arrow table: "
                f"{str(error).splitlines()[0]}."
            ) from error
    raise UserError(
        f"An object of type {type(table).__name__} is not a table. Pass a pandas, polars or Arrow "
        "table, or the path of a CSV, Parquet or Arrow file."
    )


def _from_polars(frame: Any) -> pa.Table:
    """A polars table in Arrow's types; what has none is cast, with a message, or refused."""
    polars = _import("polars")
    for name, dtype in frame.schema.items():
        if type(dtype).__name__ == "Enum" or dtype == polars.Enum:
            log.warning("Column %r is an Enum; it is returned as a Categorical.", name)
        if type(dtype).__name__ in ("Int128", "UInt128") or str(dtype) in ("Int128", "UInt128"):
            narrow = frame[name].cast(polars.Int64, strict=False)
            if narrow.null_count() != frame[name].null_count():
                raise UserError(
                    f"Column {name!r} is {dtype} with numbers that do not fit in 64 bits; cast it "
                    "to Float64, or to String."
                )
            log.warning("Column %r is %s; it is returned as Int64.", name, dtype)
            frame = frame.with_columns(narrow)
    try:
        return frame.to_arrow()
    except pa.ArrowException as error:
        raise UserError(
            f"The polars table cannot be read: {str(error).splitlines()[0]}. Cast its columns to "
            "numbers, text, booleans, dates or times."
        ) from error


def _from_pandas(frame: Any) -> tuple[pa.Table, Source]:
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise UserError("The table has several levels of column names. Join them into one first.")
    names = [str(name) for name in frame.columns]
    check_names(names)
    arrays = []
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        try:
            name.encode()
            arrays.append(pa.array(series, from_pandas=True))
        except UnicodeEncodeError as error:
            raise UserError(_broken_text_message(name)) from error
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


def _broken_text_message(name: str) -> str:
    shown = name.encode("utf-8", "backslashreplace").decode()
    return (
        f"Column {shown!r} has text, or a name, with half of a surrogate pair, which is not valid "
        'Unicode. Repair it, for example with df[name].str.encode("utf-8", "replace").str.decode('
        '"utf-8").'
    )


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
    content = _content((schema.metadata or {}).get(b"pandas"))
    if content is None:
        return None
    content["index_columns"] = []
    content.pop("attributes", None)  # the user's own attrs do not belong in a model file
    return json.dumps(content)


def _content(metadata: bytes | str | None) -> dict[str, Any] | None:
    """The metadata of pandas, if it has the form that pandas gives it."""
    if metadata is None:
        return None
    try:
        return check_pandas(metadata)
    except ValueError as error:
        log.warning(
            "The pandas metadata of this table is malformed and is ignored (%s); samples have the "
            "types of the Arrow table.",
            error,
        )
        return None


def check_pandas(metadata: bytes | str) -> dict[str, Any]:
    """The metadata of pandas as JSON. Raises ValueError if it has another form."""
    content = parse_json(metadata)
    require(isinstance(content, dict), "it is not an object")
    columns = content.get("columns")
    require(isinstance(columns, list), "it has no columns")
    for entry in columns:
        require(isinstance(entry, dict), "a column is not an object")
        for key in ("field_name", "numpy_type", "pandas_type"):
            require(isinstance(entry.get(key), str), f"a column has no {key}")
    require(isinstance(content.get("index_columns", []), list), "it has no list of index columns")
    return dict(content)


def unnamed_index_columns(schema: pa.Schema) -> list[str]:
    """The columns in which pandas stores an index without a name; pandas hides them again."""
    try:
        content = check_pandas((schema.metadata or {}).get(b"pandas", b'{"columns": []}'))
    except ValueError:
        return []  # `pandas_metadata` says so
    named = [name for name in content.get("index_columns", []) if isinstance(name, str)]
    columns = [name for name in named if UNNAMED_INDEX.fullmatch(name) and name in schema.names]
    if columns:
        log.info("the pandas index in %s is not a column and is left out", ", ".join(columns))
    return columns


def drop_pandas_index(table: pa.Table) -> pa.Table:
    table = table.drop_columns(unnamed_index_columns(table.schema))
    metadata = table.schema.metadata or {}
    try:
        check_pandas(metadata.get(b"pandas", b'{"columns": []}'))
    except ValueError:
        kept = {key: value for key, value in metadata.items() if key != b"pandas"}
        return table.replace_schema_metadata(kept)
    return table


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


def forget_categories(source: Source, table: pa.Table) -> Source:
    """The source with pandas' number of categories as a table has them, which the number in the
    real table says something about."""
    if source.pandas is None:
        return source
    content = json.loads(source.pandas)
    for entry in content["columns"]:
        name, about = entry["field_name"], entry.get("metadata")
        if isinstance(about, dict) and "num_categories" in about and name in table.column_names:
            array = table.column(name).combine_chunks()
            about["num_categories"] = len(array.dictionary)
            entry["numpy_type"] = "int32"  # of the codes: it depends on how many there were
    return dataclasses.replace(source, pandas=json.dumps(content))


def _to_pandas(table: pa.Table, metadata: str | None) -> Any:
    """Arrow's own conversion, plus what it forgets: object columns and integer column names."""
    if metadata is None:
        return table.to_pandas()
    try:
        frame = table.to_pandas()
    except (ValueError, TypeError, LookupError, AttributeError, NotImplementedError) as error:
        # Arrow looks up the types that the metadata names, which may not exist here.
        log.warning("The pandas metadata is ignored: %s.", str(error).splitlines()[0])
        return table.replace_schema_metadata(None).to_pandas()
    content = check_pandas(metadata)
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
