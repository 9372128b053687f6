"""The rim: files and data frames become Arrow tables here, and the same kind goes back out.

CSV, Parquet and Arrow files; pandas, polars and Arrow objects (and whatever speaks the Arrow C
stream, such as DuckDB). Nothing of the caller's is changed, and a file is never left half-written:
it is written beside its place and renamed when it is complete.
"""

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from tabmt.data import text_formats as text
from tabmt.data.schema import Schema, Source, SourceKind, check_names, combine
from tabmt.errors import UserError

log = logging.getLogger(__name__)

Given = Literal["pandas", "polars", "arrow"]
SUFFIXES: dict[str, SourceKind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
}
DELIMITERS = ",;\t|"
STDOUT = "-"
ABANDONED_SECONDS = 3600.0  # whoever writes a file writes more often
NAMELESS = re.compile(r"__index_level_\d+__")  # pandas' name for an index that has none


def load(source: Any) -> tuple[pa.Table, Source]:
    """Any table a user may hold, as an Arrow table, with what is needed to give its kind back."""
    if isinstance(source, str | os.PathLike):
        return read_file(Path(source))
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return _without_index(source), Source("arrow", pandas_metadata(source.schema))
    family = type(source).__module__.partition(".")[0]
    if family in ("pandas", "polars") and type(source).__name__ == "Series":
        source = source.to_frame()
    if family == "pandas" and hasattr(source, "columns"):
        return _from_pandas(source)
    if family == "polars" and hasattr(source, "to_arrow") and hasattr(source, "columns"):
        return source.to_arrow(), Source("polars")
    if hasattr(source, "__arrow_c_stream__"):
        return _without_index(pa.table(source)), Source("arrow")
    raise UserError(
        f"A {type(source).__name__} is not a table. Give a pandas, polars or Arrow table, or the "
        f"path of a file ({', '.join(SUFFIXES)})."
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
            raise UserError(_mixed(name, series)) from None
    with_metadata = pa.Schema.from_pandas(frame.iloc[:0], preserve_index=False).metadata
    table = pa.table(
        [pa.chunked_array([array]) if isinstance(array, pa.Array) else array for array in arrays],
        names=names,
    )
    if frame.columns.inferred_type not in ("string", "integer", "empty"):
        log.warning("Some column names are not text; they come back as text.")
    if type(frame.index).__name__ != "RangeIndex":
        log.warning("The pandas index is not a column and is left out; reset_index() keeps it.")
    note = pandas_metadata(pa.schema([], metadata=with_metadata))
    if frame.columns.inferred_type == "integer":
        note = json.dumps({**json.loads(note or "{}"), "numbered": True})
    return table, Source("pandas", note)


def _mixed(name: str, series: Any) -> str:
    values = list(series.dropna())
    kinds = sorted({type(value).__name__ for value in values})
    if len(kinds) == 1:
        return (
            f"Column {name!r} holds {kinds[0]} values that no column type can hold "
            f"(such as {str(values[0])[:40]}). Turn it into text: df[{name!r}].astype(str)."
        )
    return (
        f"Column {name!r} mixes {' and '.join(kinds)} values. Give it one type, for example text: "
        f"df[{name!r}].astype(str)."
    )


def pandas_metadata(schema: pa.Schema) -> str | None:
    """pandas' note on its dtypes, without the index, whose length is the real table's."""
    metadata = (schema.metadata or {}).get(b"pandas")
    if metadata is None:
        return None
    note = json.loads(metadata)
    note["index_columns"] = []
    note.pop("attributes", None)  # a frame's own notes are no business of a model file
    return json.dumps(note)


def index_of(schema: pa.Schema) -> list[str]:
    """The columns in which pandas keeps an index without a name; to pandas they are none."""
    note = json.loads((schema.metadata or {}).get(b"pandas", "{}"))
    named = [name for name in note.get("index_columns") or [] if isinstance(name, str)]
    found = [name for name in named if NAMELESS.fullmatch(name) and name in schema.names]
    if found:
        log.info("the pandas index in %s is not a column and is left out", ", ".join(found))
    return found


def _without_index(table: pa.Table) -> pa.Table:
    return table.drop_columns(index_of(table.schema))


def give_back(table: pa.Table, schema: Schema, kind: Given | None = None) -> Any:
    """A table of the caller's kind; what was read from a file comes back as pandas."""
    _check_kind(kind)
    wanted = kind or (schema.source.kind if schema.source.kind in get_args(Given) else "pandas")
    if wanted == "arrow":
        return table
    if wanted == "polars":
        return _import("polars").from_arrow(table)
    _import("pandas")
    return _to_pandas(table, schema.source.pandas)


def forget(source: Source, names: Collection[str]) -> Source:
    """The source without pandas' note on some columns, whose type is now another."""
    if source.pandas is None:
        return source
    note = json.loads(source.pandas)
    note["columns"] = [one for one in note["columns"] if one["field_name"] not in names]
    return dataclasses.replace(source, pandas=json.dumps(note))


def _check_kind(kind: str | None) -> None:
    if kind is not None and kind not in get_args(Given):
        raise UserError(f"kind is {kind!r}, but must be one of: {', '.join(get_args(Given))}.")


def give(table: pa.Table, schema: Schema, kind: Given | None, like: Any) -> Any:
    """A table of our own making, whose rows are those of `like`; otherwise as `give_back`."""
    _check_kind(kind)
    wanted = kind or schema.source.kind
    if wanted == "arrow":
        return table
    if wanted == "polars":
        return _import("polars").from_arrow(table)
    return same_index(table.to_pandas(), like)


def same_index(found: Any, given: Any) -> Any:
    """A data frame with the index of the one it was made of, so that the two can be joined."""
    if all(hasattr(frame, "index") and hasattr(frame, "iloc") for frame in (found, given)):
        found.index = given.index
    return found


def _to_pandas(table: pa.Table, note: str | None) -> Any:
    """Arrow's own way back, and the two things it forgets: object columns and numbered names."""
    frame = table.to_pandas()
    if note is None:
        return frame
    told = json.loads(note)
    for column in told["columns"]:
        name = column["field_name"]
        if column["numpy_type"] == "object" and name in frame and frame[name].dtype != object:
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    if told.get("numbered"):
        frame.columns = [int(name) for name in frame.columns]
    return frame


def _import(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise UserError(
            f"This gives a {name} table, and {name} is not installed: pip install {name}, "
            'or ask for kind="arrow".'
        ) from error


# --- files ---------------------------------------------------------------------------------


def file_kind(path: Path) -> SourceKind:
    name = path.name.lower()
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise UserError(
        f"{str(path)!r} has an ending that TabMT does not know; it can be: {', '.join(SUFFIXES)}."
    )


def read_file(path: Path) -> tuple[pa.Table, Source]:
    kind = existing(path)
    with reading(path, kind):
        if kind == "csv":
            return _open_csv(path, pyarrow.csv.read_csv), Source("csv")
        if kind == "parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            with pa.memory_map(str(path)) as file:
                table = pa.Table.from_batches(_ipc_batches(file))
    return _without_index(table), Source(kind, pandas_metadata(table.schema))


def batches(source: Any, rows: int) -> tuple[Iterator[pa.Table], int | None]:
    """Any table in parts of `rows` rows, files without holding them in memory; and how many rows
    there are in all, if that is known beforehand."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        kind = existing(path)
        count = None
        if kind == "parquet":
            with reading(path, kind):
                count = pyarrow.parquet.read_metadata(path).num_rows
        return in_parts(_file_batches(path, kind), rows), count
    table, _ = load(source)
    return in_parts(iter([table]), rows), table.num_rows


def _file_batches(path: Path, kind: SourceKind) -> Iterator[pa.Table]:
    with reading(path, kind):
        if kind == "csv":
            with _open_csv(path, pyarrow.csv.open_csv) as reader:
                none = True
                for batch in reader:
                    none = False
                    yield pa.Table.from_batches([batch])
                if none:
                    yield reader.schema.empty_table()
        elif kind == "parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                schema = file.schema_arrow
                index = index_of(schema)
                yield schema.empty_table().drop_columns(index)
                for batch in file.iter_batches(batch_size=1 << 16):
                    yield pa.Table.from_batches([batch], schema).drop_columns(index)
        else:
            with pa.memory_map(str(path)) as file:
                found = _ipc_batches(file)
                index = index_of(found[0].schema)
                yield from (pa.Table.from_batches([one]).drop_columns(index) for one in found)


def in_parts(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in parts of equal size; a table without rows is one empty part."""
    held: list[pa.Table] = []
    count, given = 0, False
    for table in tables:
        held.append(table)
        count += table.num_rows
        while count >= rows:
            whole = pa.concat_tables(held)
            given = True
            yield whole.slice(0, rows).combine_chunks()
            held, count = [whole.slice(rows)], count - rows
    if held and (count or not given):
        yield pa.concat_tables(held).combine_chunks()


def existing(path: Path) -> SourceKind:
    kind = file_kind(path)
    if not path.exists():
        raise UserError(f"There is no file {str(path)!r}.")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; name a file.")
    return kind


@contextlib.contextmanager
def reading(path: Path, kind: SourceKind) -> Iterator[None]:
    """What Arrow says of a file that it cannot read, as a sentence."""
    try:
        yield
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        if kind == "csv" and (isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)):
            raise UserError(_not_utf8(path)) from error
        # Arrow names the row only if the first of its passes meets the error.
        reason = re.sub(r"Row #\d+: ", "", str(error).splitlines()[0])
        raise UserError(f"{str(path)!r} cannot be read as {kind}: {reason}") from error


def _ipc_batches(file: Any) -> list[pa.RecordBatch]:
    """The batches of an Arrow file or stream: views of the mapped file, not copies."""
    try:
        reader = pyarrow.ipc.open_file(file)
        found = [reader.get_batch(place) for place in range(reader.num_record_batches)]
    except pa.ArrowInvalid:
        file.seek(0)
        reader = pyarrow.ipc.open_stream(file)
        found = list(reader)
    return found or [pa.RecordBatch.from_pylist([], reader.schema)]


def _open_csv(path: Path, how: Callable[..., Any]) -> Any:
    """Every column as text: what is a number or a date is decided where it can be undone."""
    # By its name, whatever the case of the ending: Arrow unpacks only lower-case .gz by itself.
    packed = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(str(path), compression=packed) as file:
        first = file.read(1 << 20).removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    unquoted = re.sub(rb'"[^"]*"', b"", first)
    if not first.strip():
        raise UserError(f"{str(path)!r} is empty; a CSV file begins with a line of column names.")
    delimiter = max(DELIMITERS, key=lambda mark: unquoted.count(mark.encode()))
    if delimiter != ",":
        log.info("%s: columns are separated by %r", path, delimiter)
    parse = pyarrow.csv.ParseOptions(
        delimiter=delimiter,
        newlines_in_values=True,
        # In a file of one column an empty line is a row with a gap.
        ignore_empty_lines=delimiter.encode() in unquoted,
    )
    with (
        pa.input_stream(str(path), compression=packed) as file,
        pyarrow.csv.open_csv(file, parse_options=parse) as reader,
    ):
        names = reader.schema.names
    convert = pyarrow.csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,  # "" is an empty text, an empty cell is a gap
        null_values=[""],
    )
    file = pa.input_stream(str(path), compression=packed)
    return how(file, parse_options=parse, convert_options=convert)


def _not_utf8(path: Path) -> str:
    return (
        f"{str(path)!r} is not UTF-8 text; convert it, for example with `iconv -f latin1 -t utf-8`."
    )


def _csv_quoted(texts: pa.Array, delimiter: str) -> pa.Array:
    special = pc.match_substring_regex(texts, f'["\r\n{delimiter}]|^$')
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), texts)


def _csv_header(schema: Schema, delimiter: str) -> bytes:
    names = _csv_quoted(pa.array(schema.names, pa.string()), delimiter)
    return (delimiter.join(names.to_pylist()) + "\n").encode()


def _csv_rows(table: pa.Table, schema: Schema, delimiter: str) -> bytes:
    """Each value as its column was read, and quotes only where they are needed."""
    columns = []
    for column, values in zip(schema.columns, table.columns, strict=True):
        values = combine(values)
        if column.format is not None and not text.is_text(values.type):
            values = text.write(values, column.format, column.gap_text)
        quoted = _csv_quoted(values.cast(pa.string()), delimiter)
        columns.append(pc.fill_null(quoted, ""))
    lines = pc.binary_join_element_wise(*columns, delimiter)
    return ("\n".join(lines.to_pylist()) + "\n").encode()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` only if all goes well."""
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {str(path.parent)!r} to write {path.name!r} into.")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; name a file to write.")
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:  # no permission, no space, no such place
        reason = error.strerror or str(error).partition("\n")[0]
        raise UserError(f"{str(path)!r} cannot be written: {reason}.") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def clear(folder: Path, names: str) -> None:
    """Remove what killed processes left of files of such names (a pattern) half-written."""
    for left in folder.glob(f".{names}.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                left.unlink()


def write_file(path: str | Path, schema: Schema, tables: Iterable[pa.Table]) -> None:
    """Write tables one after the other as they are made; `-` is CSV on standard output."""
    if str(path) == STDOUT:
        _write_csv(sys.stdout.buffer, schema, tables, ",")
        return
    path = Path(path)
    kind = file_kind(path)
    with replacing(path) as beside:
        if kind == "csv":
            packed = "gzip" if path.name.lower().endswith(".gz") else None
            delimiter = "\t" if path.name.lower().endswith(".tsv") else ","
            with pa.output_stream(str(beside), compression=packed) as file:
                _write_csv(file, schema, tables, delimiter)
            return
        if kind == "parquet":
            with pyarrow.parquet.ParquetWriter(str(beside), schema.arrow) as writer:
                for table in tables:
                    writer.write_table(table)
            return
        options = pyarrow.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        with pyarrow.ipc.new_file(str(beside), schema.arrow, options=options) as writer:
            for table in _growing_dictionaries(tables):
                writer.write_table(table)


def _growing_dictionaries(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """An Arrow file has one dictionary per column, which later parts may only add to."""
    known: dict[int, pa.Array] = {}
    for table in tables:
        for place, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                column = table.column(place).unify_dictionaries()
                own = column.chunk(0).dictionary if column.num_chunks else None
                if own is None:
                    continue
                before = known.get(place, own[:0])
                known[place] = words = pc.unique(pa.concat_arrays([before, own]))
                values = combine(column)
                indices = pc.index_in(values, words).cast(field.type.index_type)
                grown = pa.DictionaryArray.from_arrays(indices, words, ordered=field.type.ordered)
                table = table.set_column(place, field, grown)
        yield table


def write_like(
    path: str | Path,
    source: str,
    read: Callable[[pa.Table], pa.Table],
    schema: Schema,
    tables: Iterable[pa.Table],
) -> None:
    """Write tables of a file's own types, as `source` has them: text stays letter for letter if
    both files are CSV; `read` gives the types that text stands for."""
    typed = file_kind(Path(source)) == "csv" and file_kind(Path(path)) != "csv"
    rest = iter(tables)
    first = next(rest)
    by_name = {column.name: column for column in schema.columns}
    columns = [by_name[name] for name in first.column_names]
    if not typed:
        columns = [
            dataclasses.replace(column, dtype=str(field.type))
            for column, field in zip(columns, first.schema, strict=True)
        ]
    own = dataclasses.replace(schema, columns=tuple(columns))
    every = itertools.chain([first], rest)
    write_file(path, own, (read(table).select(own.names) if typed else table for table in every))


def numbered(path: str, number: int) -> str:
    """`people.csv` -> `people.1.csv`."""
    name = Path(path).name
    suffix = next(
        end for end in sorted(SUFFIXES, key=len, reverse=True) if name.lower().endswith(end)
    )
    return str(Path(path).with_name(f"{name[: -len(suffix)]}.{number}{name[-len(suffix) :]}"))


def write_text(path: Path, text_: str) -> None:
    with replacing(path) as beside:
        beside.write_text(text_, encoding="utf-8")


def _write_csv(file: Any, schema: Schema, tables: Iterable[pa.Table], delimiter: str) -> None:
    file.write(_csv_header(schema, delimiter))
    for table in tables:
        if table.num_rows:
            file.write(_csv_rows(table, schema, delimiter))
    file.flush()
