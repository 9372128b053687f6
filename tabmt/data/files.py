"""CSV, Parquet and Arrow files: read them, whole or in batches, and write them.

A file is never left half-written (writing.py).
"""

import contextlib
import dataclasses
import glob
import itertools
import logging
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from tabmt.data import text_formats
from tabmt.data.arrow_types import is_text, plain_array
from tabmt.data.frames import drop_pandas_index, pandas_metadata, unnamed_index_columns
from tabmt.data.schema import MOST_TEXT, Schema, Source, SourceKind
from tabmt.errors import UserError
from tabmt.writing import replacing

log = logging.getLogger(__name__)

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
CSV_BLOCK = 2**20  # bytes that are parsed at a time; no row may be longer
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?\r?', re.I)
# Text that a spreadsheet would run, and what begins alike but is only a number.
FORMULA = r"^[=+\-@\t\r]."
PLAIN_NUMBER = r"^[+-]?[0-9.,]+([eE][+-]?[0-9]+)?%?$"
READ_ROWS = 1 << 16  # of a Parquet file at a time


def file_kind(path: Path) -> SourceKind:
    name = path.name.lower()
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise UserError(
        f"{str(path)!r} has an unknown file extension; it must be one of: {', '.join(SUFFIXES)}."
    )


def suffix_of(path: str | Path) -> str:
    """The extension of a table, such as `.csv.gz`; nothing if it is not the name of a table."""
    name = str(path).lower()
    endings = sorted(SUFFIXES, key=len, reverse=True)
    return next((suffix for suffix in endings if name.endswith(suffix)), "")


def name_of_table(table: str) -> str:
    """`people` of `data/people.csv` and of the folder `people/`, to name outputs after it."""
    path = Path(table)
    if glob.has_magic(table) and not path.exists():
        raise UserError(
            f"The output cannot be named after the pattern {table!r}; give a name with --output."
        )
    name = path.resolve().name if path.is_dir() else path.name
    return name[: len(name) - len(suffix_of(name))] or "table"


def existing_file(path: Path) -> SourceKind:
    """The kind of a file that must be there."""
    kind = file_kind(path)
    if not path.exists():
        raise UserError(f"There is no file {str(path)!r}.")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; give a file.")
    return kind


@contextlib.contextmanager
def reading(path: Path, kind: SourceKind) -> Iterator[None]:
    """Turn what Arrow says about an unreadable file into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, EOFError, zlib.error) as error:
        if isinstance(error, MemoryError):
            raise
        if "straddling" in str(error):
            raise UserError(
                f"{str(path)!r} has a row of more than {CSV_BLOCK:,} bytes. TabMT learns text of "
                f"up to {MOST_TEXT:,} bytes in a cell: shorten long cells, or remove their column."
            ) from error
        if kind == "csv" and (isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)):
            raise UserError(
                f"{str(path)!r} is not UTF-8 text; convert it, for example with "
                "`iconv -f latin1 -t utf-8`."
            ) from error
        raise UserError(f"{str(path)!r} cannot be read as {kind}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What Arrow says, without the text of a row, which it often quotes."""
    if isinstance(error, UnicodeDecodeError):
        return "the name or the time zone of a column is not UTF-8 text."
    text = str(error).splitlines()[0]
    if match := re.search(r"Expected (\d+) columns, got (\d+)", text):
        return f"a row has {match[2]} cells, but there are {match[1]} columns."
    if "CSV parse error" in text:
        return "a row cannot be divided into cells."
    return re.sub(r"'[^']*'", "'...'", text)


def read_file(path: Path) -> tuple[pa.Table, Source]:
    """A whole file as an Arrow table."""
    kind = existing_file(path)
    with reading(path, kind):
        if kind == "csv":
            return _open_csv(path, pyarrow.csv.read_csv), Source("csv")
        if kind == "parquet":
            table = checked(pyarrow.parquet.read_table(path, page_checksum_verification=True))
        else:
            with pa.memory_map(str(path)) as file:
                table = pa.Table.from_batches(_ipc_batches(file))
    return drop_pandas_index(table), Source(kind, pandas_metadata(table.schema))


def read_source(path: Path) -> Source:
    """Where a file's table comes from, without reading its rows."""
    kind = existing_file(path)
    with reading(path, kind):
        if kind == "csv":
            return Source("csv")
        if kind == "parquet":
            return Source(kind, pandas_metadata(pyarrow.parquet.read_schema(path)))
        with pa.memory_map(str(path)) as file:
            return Source(kind, pandas_metadata(_ipc_batches(file)[0].schema))


def read_batches(path: Path) -> Iterator[pa.Table]:
    """A file piece by piece, in bounded memory; at least one piece, if only an empty one."""
    kind = existing_file(path)
    with reading(path, kind):
        if kind == "csv":
            with _open_csv(path, pyarrow.csv.open_csv) as reader:
                yield reader.schema.empty_table()
                for batch in reader:
                    yield pa.Table.from_batches([batch])
        elif kind == "parquet":
            with open_parquet(path) as file:
                schema = file.schema_arrow
                index = unnamed_index_columns(schema)
                yield schema.empty_table().drop_columns(index)
                for batch in file.iter_batches(batch_size=READ_ROWS):
                    checked(batch)
                    yield pa.Table.from_batches([batch], schema).drop_columns(index)
        else:
            with pa.memory_map(str(path)) as file:
                batches = _ipc_batches(file)
                index = unnamed_index_columns(batches[0].schema)
                for batch in batches:
                    yield pa.Table.from_batches([batch]).drop_columns(index)


def open_parquet(path: Path) -> Any:
    """A Parquet file whose pages are compared with their checksums, if it has some."""
    return pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)


def parquet_writer(path: Path, schema: pa.Schema) -> Any:
    return pyarrow.parquet.ParquetWriter(str(path), schema, write_page_checksum=True)


Checked = TypeVar("Checked", pa.Table, pa.RecordBatch, pa.ChunkedArray)


def checked(data: Checked) -> Checked:
    """The same data, if its offsets, indices and texts are valid; Arrow itself does not look at all
    that it reads. Raises what `reading` turns into a sentence."""
    if isinstance(data, pa.ChunkedArray):
        _check_text_of_type(data.type)
    else:
        check_text_of_schema(data.schema)
    data.validate(full=True)
    return data


def check_text_of_schema(schema: pa.Schema) -> None:
    """Raise UnicodeDecodeError if the name or the time zone of a column is not text."""
    for field in schema:
        field.name  # noqa: B018  decoded when it is asked for
        _check_text_of_type(field.type)


def _check_text_of_type(dtype: pa.DataType) -> None:
    if pa.types.is_timestamp(dtype):
        dtype.tz  # noqa: B018


def rechunk(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of `rows` rows each; a table without rows is one empty table."""
    held: list[pa.Table] = []
    count, any_yielded = 0, False
    for table in tables:
        held.append(table)
        count += table.num_rows
        while count >= rows:
            joined = pa.concat_tables(held)
            any_yielded = True
            yield joined.slice(0, rows).combine_chunks()
            held, count = [joined.slice(rows)], count - rows
    if held and (count or not any_yielded):
        yield pa.concat_tables(held).combine_chunks()


def _ipc_batches(file: Any) -> list[pa.RecordBatch]:
    """The batches of an Arrow file or stream: views of the memory-mapped file, not copies."""
    try:
        reader = pyarrow.ipc.open_file(file)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except pa.ArrowInvalid:
        file.seek(0)
        reader = pyarrow.ipc.open_stream(file)
        batches = list(reader)
    batches = batches or [pa.RecordBatch.from_pylist([], reader.schema)]
    return [checked(batch) for batch in batches]


def _open_csv(path: Path, opener: Callable[..., Any]) -> Any:
    """Every column as text: what is a number or a date is decided where it can be undone."""
    # By its name, in upper or lower case: Arrow itself recognises only a lower-case .gz.
    compression = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(str(path), compression=compression) as file:
        head = file.read(CSV_BLOCK)
    encoding, first_line, second_line = _first_lines(path, head)
    hint = SEPARATOR_LINE.fullmatch(first_line)  # Excel's, above the names of the columns
    first_line = first_line if hint is None else second_line
    unquoted = re.sub(rb'"[^"]*"', b"", first_line)
    if not first_line.strip():
        raise UserError(f"{str(path)!r} is empty; a CSV file begins with a line of column names.")
    delimiter = max(DELIMITERS, key=lambda mark: unquoted.count(mark.encode()))
    if hint is not None:
        delimiter = hint[1].decode()
        log.info("%s: the first line says how columns are separated; it is not data", path)
    if delimiter != ",":
        log.info("%s: columns are separated by %r", path, delimiter)
    parse = pyarrow.csv.ParseOptions(
        delimiter=delimiter,
        newlines_in_values=True,
        # In a file of one column an empty line is a row with a missing value.
        ignore_empty_lines=delimiter.encode() in unquoted,
    )
    reading = pyarrow.csv.ReadOptions(
        encoding=encoding, skip_rows=int(hint is not None), block_size=CSV_BLOCK
    )
    with (
        pa.input_stream(str(path), compression=compression) as file,
        pyarrow.csv.open_csv(file, read_options=reading, parse_options=parse) as reader,
    ):
        names = reader.schema.names
    convert = pyarrow.csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,  # "" is an empty text, an empty cell is missing
        null_values=[""],
    )
    file = pa.input_stream(str(path), compression=compression)
    return opener(file, read_options=reading, parse_options=parse, convert_options=convert)


def _first_lines(path: Path, head: bytes) -> tuple[str, bytes, bytes]:
    """The encoding of a CSV file by its beginning, and its first two lines in UTF-8."""
    encoding = "utf8"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
        log.info("%s: the text is UTF-16; output is written as UTF-8", path)
        whole = len(head) // 2 * 2
        head = head[:whole].decode("utf-16", "replace").encode()
    elif b"\0" in head[:1000]:
        raise UserError(
            f"{str(path)!r} is not text, or is UTF-16 without a byte order mark; convert it, "
            "for example with `iconv -f utf-16le -t utf-8`."
        )
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    return encoding, first, rest.partition(b"\n")[0]


# --- writing -------------------------------------------------------------------------------


def write_file(
    path: str | Path,
    schema: Schema,
    tables: Iterable[pa.Table],
    *,
    escape_formulas: bool = False,
    wait: float = 0.0,
) -> None:
    """Write tables one after the other as they are made; `-` is CSV on standard output.

    In CSV, `escape_formulas` puts an apostrophe before text that a spreadsheet would run. `wait` is
    for how many seconds another process may still be writing the file.
    """
    if str(path) == STDOUT:
        rest = iter(tables)
        first = list(itertools.islice(rest, 1))  # a mistake in it is reported before any output
        writer = CsvWriter(sys.stdout.buffer, schema, ",", escape_formulas)
        writer.write(itertools.chain(first, rest))
        return
    path = Path(path)
    kind = file_kind(path)
    with replacing(path, wait) as temporary:
        if kind == "csv":
            compression = "gzip" if path.name.lower().endswith(".gz") else None
            delimiter = "\t" if path.name.lower().endswith(".tsv") else ","
            with pa.output_stream(str(temporary), compression=compression) as file:
                CsvWriter(file, schema, delimiter, escape_formulas).write(tables)
        elif kind == "parquet":
            with parquet_writer(temporary, schema.arrow) as writer:
                for table in tables:
                    writer.write_table(table)
        else:
            options = pyarrow.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
            with pyarrow.ipc.new_file(str(temporary), schema.arrow, options=options) as writer:
                for table in _growing_dictionaries(tables):
                    writer.write_table(table)


def write_like(
    path: str | Path,
    source_kind: SourceKind,
    parse: Callable[[pa.Table], pa.Table],
    schema: Schema,
    tables: Iterable[pa.Table],
    *,
    escape_formulas: bool = False,
    wait: float = 0.0,
) -> None:
    """Write tables in the types of the file that they come from.

    From CSV to CSV, text stays as it is character for character; into other formats, `parse` gives
    the types that the text stands for.
    """
    to_csv = str(path) == STDOUT or file_kind(Path(path)) == "csv"
    parsed = source_kind == "csv" and not to_csv
    rest = iter(tables)
    first = next(rest)
    by_name = {column.name: column for column in schema.columns}
    columns = [by_name[name] for name in first.column_names]
    if not parsed:
        columns = [
            dataclasses.replace(column, dtype=str(field.type))
            for column, field in zip(columns, first.schema, strict=True)
        ]
    own = dataclasses.replace(schema, columns=tuple(columns))
    every = itertools.chain([first], rest)
    write_file(
        path,
        own,
        (parse(table).select(own.names) if parsed else table for table in every),
        escape_formulas=escape_formulas,
        wait=wait,
    )


def numbered(path: str, number: int) -> str:
    """`people.csv` -> `people.1.csv`."""
    name = Path(path).name
    suffix = suffix_of(name)
    return str(Path(path).with_name(f"{name[: -len(suffix)]}.{number}{name[-len(suffix) :]}"))


class CsvWriter:
    """Writes tables as CSV. Warns of text that a spreadsheet would run as a formula, or escapes
    it."""

    def __init__(self, file: Any, schema: Schema, delimiter: str, escape_formulas: bool) -> None:
        self._file, self._schema, self._delimiter = file, schema, delimiter
        self._escape, self._formulas = escape_formulas, set[str]()

    def write(self, tables: Iterable[pa.Table]) -> None:
        self.write_header()
        for table in tables:
            self.write_rows(table)
        self._file.flush()
        self.warn()

    def write_header(self) -> None:
        names = pa.array(self._schema.names, pa.string())
        names = _csv_quoted(self._checked(names, "the column names"), self._delimiter)
        self._file.write((self._delimiter.join(names.to_pylist()) + "\n").encode())

    def write_rows(self, table: pa.Table) -> None:
        if table.num_rows:
            self._file.write(self._rows(table))

    def warn(self) -> None:
        """Say in which columns there was text that a spreadsheet would run."""
        if self._formulas:
            log.warning(
                "Text in %s begins with = + - or @, which a spreadsheet runs as a formula; write "
                "it with --escape-formulas, or do not open the file in a spreadsheet.",
                ", ".join(sorted(self._formulas)),
            )

    def _rows(self, table: pa.Table) -> bytes:
        """Each value in the format in which its column was read, with quotes only where needed."""
        columns = []
        for column, array in zip(self._schema.columns, table.columns, strict=True):
            values = plain_array(array)
            if is_text(values.type):
                values = self._checked(values.cast(pa.string()), f"column {column.name!r}")
            elif column.format is not None:
                values = text_formats.write(values, column.format, column.missing_text)
            quoted = _csv_quoted(values.cast(pa.string()), self._delimiter)
            columns.append(pc.fill_null(quoted, ""))
        lines = pc.binary_join_element_wise(*columns, self._delimiter)
        return ("\n".join(lines.to_pylist()) + "\n").encode()

    def _checked(self, texts: pa.Array, where: str) -> pa.Array:
        """The same texts; formulas among them are noted, or begin with an apostrophe."""
        suspects = pc.match_substring_regex(texts, FORMULA)
        if not pc.any(suspects).as_py():
            return texts
        formulas = pc.and_not(suspects, pc.match_substring_regex(texts, PLAIN_NUMBER))
        if not pc.any(formulas).as_py():
            return texts
        if not self._escape:
            self._formulas.add(where)
            return texts
        return pc.if_else(formulas, pc.binary_join_element_wise("'", texts, ""), texts)


def _csv_quoted(texts: pa.Array, delimiter: str) -> pa.Array:
    special = pc.match_substring_regex(texts, f'["\r\n{delimiter}]|^$')
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), texts)


def _growing_dictionaries(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """An Arrow file has one dictionary per column, to which later batches may only append."""
    words_so_far: dict[int, pa.Array] = {}
    for table in tables:
        for index, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type):
                column = table.column(index).unify_dictionaries()
                own = column.chunk(0).dictionary if column.num_chunks else None
                if own is None:
                    continue
                before = words_so_far.get(index, own[:0])
                words_so_far[index] = words = pc.unique(pa.concat_arrays([before, own]))
                codes = pc.index_in(plain_array(column), words).cast(field.type.index_type)
                grown = pa.DictionaryArray.from_arrays(codes, words, ordered=field.type.ordered)
                table = table.set_column(index, field, grown)
        yield table
