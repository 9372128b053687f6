"""Tables in several files, or too large for memory: read one column at a time.

For `fit` and `schema`, which go column by column anyhow. Parquet files are read where they lie; CSV
files are first written to Parquet in a temporary folder ($TMPDIR), part by part.
"""

import copy
import glob
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tabmt.data import files as tables
from tabmt.data.schema import Columnar, Source
from tabmt.errors import UserError
from tabmt.tokens import Scratch

log = logging.getLogger(__name__)

MANY_CELLS = 2**26  # of a Parquet file that is read column by column: half a gigabyte of numbers
MANY_BYTES = 2**29  # of a CSV file


class Columns:
    """The columns of Parquet files that hold rows of one table."""

    def __init__(
        self,
        paths: Sequence[Path],
        folder: Scratch | None = None,
        names: Sequence[Path] | None = None,  # of the files that these are copies of
    ) -> None:
        self._folder = folder  # a temporary folder lives as long as we do
        self._names = list(names or paths)
        several = len(paths) > 1
        schemas = [self._schema(path, several) for path in paths]
        self.schema = schemas[0]
        self._groups: list[tuple[Path, int, int]] = []  # file, row group, its rows
        for path, name, found in zip(paths, self._names, schemas, strict=True):
            self._check_alike(name, found)
            with tables.reading(path, "parquet"):
                about = pyarrow.parquet.read_metadata(path)
            for group in range(about.num_row_groups):
                if about.row_group(group).num_rows:
                    self._groups.append((path, group, about.row_group(group).num_rows))

    @property
    def num_rows(self) -> int:
        return sum(rows for _, _, rows in self._groups)

    def parts(self) -> Iterator["Columns"]:
        """The row groups, each a table of its own."""
        for group in self._groups:
            part = copy.copy(self)
            part._groups, part._names = [group], []
            yield part

    def spread(self, rows: int) -> "Columns":
        """About so many rows, in row groups from all over the table; all, if there are no more."""
        part = copy.copy(self)
        every = max(1, -(-self.num_rows // rows))
        part._groups = self._groups[::every]
        return part

    def identity(self) -> list[tuple[str, int, int]]:
        return identity(self._names)

    def _schema(self, path: Path, several: bool) -> pa.Schema:
        with tables.reading(path, "parquet"):
            found = pyarrow.parquet.read_schema(path)
        index = tables.index_of(found)
        fields = [self._wide(field, several) for field in found if field.name not in index]
        return pa.schema(fields, found.metadata)

    def _wide(self, field: pa.Field, several: bool) -> pa.Field:
        """Categories of several files have room for those of all of them."""
        if pa.types.is_nested(field.type):
            raise UserError(
                f"Column {field.name!r} has type {field.type}, but TabMT learns numbers, text, "
                "booleans, dates and times. Turn it into text, or leave the column out."
            )
        if several and pa.types.is_dictionary(field.type):
            kind = field.type
            return field.with_type(pa.dictionary(pa.int32(), kind.value_type, kind.ordered))
        return field

    def _check_alike(self, path: Path, found: pa.Schema) -> None:
        first = str(self._names[0])
        if found.names != self.schema.names:
            raise UserError(
                f"{str(path)!r} has the columns {', '.join(found.names)}, but {first!r} has "
                f"{', '.join(self.schema.names)}; files of one table have the same."
            )
        for one, other in zip(found, self.schema, strict=True):
            if one.type != other.type:
                raise UserError(
                    f"Column {one.name!r} is {one.type} in {str(path)!r}, but {other.type} in "
                    f"{first!r}; cast it to one type."
                )

    @property
    def column_names(self) -> list[str]:
        return list(self.schema.names)

    @property
    def num_columns(self) -> int:
        return len(self.column_names)

    def column(self, name: str) -> pa.ChunkedArray:
        dtype = self.schema.field(name).type
        chunks: list[pa.Array] = []
        for path, groups in itertools.groupby(self._groups, key=lambda group: group[0]):
            which = [group for _, group, _ in groups]
            with tables.reading(path, "parquet"), pyarrow.parquet.ParquetFile(path) as file:
                # By its place: a name with a dot would be looked for inside another column.
                place = file.schema_arrow.names.index(name)
                found = file.reader.read_row_groups(which, column_indices=[place])
            chunks += found.column(0).cast(dtype).chunks
        return pa.chunked_array(chunks, dtype)


def identity(paths: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Tells files from others: names, sizes, and when they were changed."""
    about = [(path, path.stat()) for path in paths]
    return [(str(path.absolute()), found.st_size, found.st_mtime_ns) for path, found in about]


def open_table(source: Any) -> tuple[Columnar, Source]:
    """Any table, in memory if it fits there; several files are one table, as `files_of` says."""
    if is_one(source):
        path = Path(source) if isinstance(source, str | os.PathLike) else None
        if path is not None and path.exists() and _is_large(path):
            return _open_files([path.absolute()])
        return tables.load(source)
    return _open_files(files_of(source))


def is_one(source: Any) -> bool:
    """Whether this is one table or file, not a list of files, a folder or a pattern."""
    if isinstance(source, list | tuple):
        return not source
    if not isinstance(source, str | os.PathLike):
        return True
    path = Path(source)
    return not (path.is_dir() or (glob.has_magic(str(source)) and not path.exists()))


def files_of(source: Any) -> list[Path]:
    """The files of one table: a file, a list, a folder, or a pattern such as `flows/*.csv`."""
    if isinstance(source, list | tuple):
        if not all(isinstance(path, str | os.PathLike) for path in source):
            raise UserError("A list is not a table, unless it is one of paths of files.")
        return [Path(path).absolute() for path in source]
    if not isinstance(source, str | os.PathLike):
        raise UserError(f"A {type(source).__name__} is not a file; name files to read.")
    path = Path(source)
    if is_one(source):
        return [path.absolute()]
    if path.is_dir():
        # What begins so is not data, but what other programs leave beside it.
        found = [one for one in sorted(path.iterdir()) if one.name[0] not in "._"]
    else:
        found = [Path(one) for one in sorted(glob.glob(str(source), recursive=True))]
    files = [one.absolute() for one in found if one.is_file()]
    if not files:
        raise UserError(f"There is no file in {str(source)!r}; name a folder or a pattern.")
    return files


def _is_large(path: Path) -> bool:
    if tables.file_kind(path) != "parquet":
        return path.stat().st_size > MANY_BYTES
    with tables.reading(path, "parquet"):
        about = pyarrow.parquet.read_metadata(path)
    return bool(about.num_rows * about.num_columns > MANY_CELLS)


def _open_files(paths: list[Path]) -> tuple[Columnar, Source]:
    kinds = {tables.existing(path) for path in paths}
    if len(kinds) > 1:
        raise UserError(
            f"The files of one table are of one kind, but these are {', '.join(sorted(kinds))}."
        )
    (kind,) = kinds
    if kind == "parquet":
        columns = Columns(paths)
        return columns, Source("parquet", tables.pandas_metadata(columns.schema))
    folder = Scratch()
    copies = []
    for number, path in enumerate(paths):
        log.info("reading %s", path)
        parts, _ = tables.batches(path, 1 << 18)
        copies.append(folder.path / f"{number}.parquet")
        first = next(parts)  # a file without rows has one empty part
        with (
            tables.replacing(copies[-1]) as beside,  # says it if $TMPDIR is full
            pyarrow.parquet.ParquetWriter(beside, first.schema) as writer,
        ):
            for part in itertools.chain([first], parts):
                writer.write_table(part)
    return Columns(copies, folder, paths), Source(kind)
