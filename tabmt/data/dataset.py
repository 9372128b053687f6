"""One way in for every table: a data frame, a file, several files, a folder or a pattern.

    Dataset.open(df)    Dataset.open("people.csv")    Dataset.open("months/*.parquet")

A dataset is read column by column (to infer, to fit), in batches of rows (to impute, to score), or
as a whole (to evaluate). What fits in memory is held there. Otherwise Parquet files are read where
they lie, and files of other formats are first copied to Parquet in a temporary folder ($TMPDIR).
"""

import abc
import copy
import glob
import logging
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from tabmt.data import files, frames
from tabmt.data.arrow_types import check_learnable
from tabmt.data.schema import Source, SourceKind
from tabmt.errors import UserError
from tabmt.writing import TemporaryFolder, replacing

log = logging.getLogger(__name__)

MOST_CELLS = 2**26  # of a Parquet file that is held in memory: half a gigabyte of numbers
MOST_BYTES = 2**29  # of a file of another format
COPIED_ROWS = 1 << 18  # in a row group of a copy

PARQUET = pyarrow.dataset.ParquetFileFormat(
    default_fragment_scan_options=pyarrow.dataset.ParquetFragmentScanOptions(
        page_checksum_verification=True
    )
)
FileIdentity = tuple[str, int, int]  # path, size and time of the last change


class Dataset(abc.ABC):
    """A table that is read as it is needed."""

    @staticmethod
    def open(table: Any) -> "Dataset":
        """Any table: a data frame, the path of a file or folder, a pattern, or a list of paths."""
        if isinstance(table, Dataset):
            return table
        paths = _paths(table)
        return InMemory(*frames.to_arrow(table)) if paths is None else Files(paths)

    @property
    @abc.abstractmethod
    def source(self) -> Source: ...

    @property
    @abc.abstractmethod
    def num_rows(self) -> int: ...

    @property
    @abc.abstractmethod
    def column_names(self) -> list[str]: ...

    @property
    def num_columns(self) -> int:
        return len(self.column_names)

    @property
    def known_num_rows(self) -> int | None:
        """The number of rows, if it is known without reading all of them."""
        return self.num_rows

    @property
    def fits_in_memory(self) -> bool:
        return True

    @abc.abstractmethod
    def column(self, name: str) -> pa.ChunkedArray: ...

    @abc.abstractmethod
    def batches(self, rows: int) -> Iterator[pa.Table]:
        """All rows in tables of `rows` rows; a table without rows is one empty batch."""

    @abc.abstractmethod
    def to_table(self) -> pa.Table:
        """All rows in memory."""

    def fragments(self) -> list["Dataset"]:
        """Parts of the table that can be read independently, in the order of the rows."""
        return [self]

    def sample(self, rows: int) -> "Dataset":
        """About `rows` rows from all over the table; the whole table if it has no more."""
        return self

    def file_identities(self) -> list[FileIdentity] | None:
        """What tells the files of this table from others; None for a table in memory."""
        return None


class InMemory(Dataset):
    """A table in memory."""

    def __init__(self, table: pa.Table, source: Source = Source("arrow")) -> None:
        self._table, self._source = table, source

    @property
    def source(self) -> Source:
        return self._source

    @property
    def num_rows(self) -> int:
        return int(self._table.num_rows)

    @property
    def column_names(self) -> list[str]:
        return list(self._table.column_names)

    def column(self, name: str) -> pa.ChunkedArray:
        return self._table.column(name)

    def batches(self, rows: int) -> Iterator[pa.Table]:
        return files.rechunk([self._table], rows)

    def to_table(self) -> pa.Table:
        return self._table


class Files(Dataset):
    """A table in one or more files of one format."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        kinds: set[SourceKind] = {files.existing_file(path) for path in paths}
        if len(kinds) > 1:
            listed = ", ".join(sorted(kinds))
            raise UserError(f"The files of one table must have one format, but these are {listed}.")
        (self._kind,) = kinds

    @cached_property
    def _opened(self) -> Dataset:
        """The table in memory if it fits, otherwise its columns on disk."""
        if self.fits_in_memory:
            return InMemory(*files.read_file(self.paths[0]))
        if self._kind == "parquet":
            return ParquetFiles(self.paths, self.paths)
        folder = TemporaryFolder("a copy of a table, which is read column by column")
        copies = []
        for number, path in enumerate(self.paths):
            log.info("reading %s", path)
            copies.append(folder.path / f"{number}.parquet")
            _copy_to_parquet(path, copies[-1])
        return ParquetFiles(copies, self.paths, folder, self.source)

    @property
    def fits_in_memory(self) -> bool:
        """Whether it is one file of moderate size."""
        if len(self.paths) > 1:
            return False
        path = self.paths[0]
        if self._kind != "parquet":
            return path.stat().st_size <= MOST_BYTES
        with files.reading(path, "parquet"):
            about = pyarrow.parquet.read_metadata(path)
        return bool(about.num_rows * about.num_columns <= MOST_CELLS)

    @property
    def source(self) -> Source:
        if self._kind == "csv" or (self._kind == "ipc" and len(self.paths) > 1):
            return Source(self._kind)
        return files.read_source(self.paths[0])

    @property
    def num_rows(self) -> int:
        return self._opened.num_rows

    @property
    def known_num_rows(self) -> int | None:
        if self._kind != "parquet":
            return None
        count = 0
        for path in self.paths:
            with files.reading(path, "parquet"):
                count += pyarrow.parquet.read_metadata(path).num_rows
        return count

    @property
    def column_names(self) -> list[str]:
        return self._opened.column_names

    def column(self, name: str) -> pa.ChunkedArray:
        return self._opened.column(name)

    def batches(self, rows: int) -> Iterator[pa.Table]:
        return files.rechunk(self._streamed(), rows)

    def _streamed(self) -> Iterator[pa.Table]:
        """The files one after the other, never more than a piece of one in memory."""
        first: pa.Schema | None = None
        for path in self.paths:
            for table in files.read_batches(path):
                if first is None:
                    first = table.schema if len(self.paths) == 1 else _wide(table.schema)
                if table.schema != first:
                    _check_same_columns(path, table.schema, self.paths[0], first)
                    table = table.cast(first)
                yield table

    def to_table(self) -> pa.Table:
        return self._opened.to_table()

    def fragments(self) -> list[Dataset]:
        return self._opened.fragments()

    def sample(self, rows: int) -> Dataset:
        return self._opened.sample(rows)

    def file_identities(self) -> list[FileIdentity]:
        return file_identities(self.paths)


class ParquetFiles(Dataset):
    """Parquet files that hold the rows of one table, or some of their row groups."""

    def __init__(
        self,
        paths: Sequence[Path],
        names: Sequence[Path],
        folder: TemporaryFolder | None = None,
        source: Source | None = None,
    ) -> None:
        """`names` are the files that these are copies of, in a folder that lives as long."""
        self._folder, self._names = folder, list(names)
        self._fragments: list[Any] = []  # one row group each, pyarrow's ParquetFileFragment
        schemas = []
        for path in paths:
            with files.reading(path, "parquet"):
                dataset = pyarrow.dataset.dataset(path, format=PARQUET)
                schemas.append(_readable_schema(dataset.schema, several=len(paths) > 1))
                for fragment in dataset.get_fragments():
                    groups = fragment.split_by_row_group()
                    self._fragments += [group for group in groups if _rows_of(group)]
        self._schema: pa.Schema = schemas[0]
        for name, schema in zip(names, schemas, strict=True):
            _check_same_columns(name, schema, names[0], self._schema)
        self._source = source or Source("parquet", frames.pandas_metadata(self._schema))

    @property
    def source(self) -> Source:
        return self._source

    @property
    def num_rows(self) -> int:
        return sum(_rows_of(fragment) for fragment in self._fragments)

    @property
    def column_names(self) -> list[str]:
        return list(self._schema.names)

    @property
    def fits_in_memory(self) -> bool:
        return False

    def column(self, name: str) -> pa.ChunkedArray:
        dtype = self._schema.field(name).type
        chunks: list[pa.Array] = []
        for fragment in self._fragments:
            with files.reading(Path(fragment.path), "parquet"):
                table = files.checked(fragment.to_table(columns=[name]))
            chunks += table.column(0).cast(dtype).chunks
        return pa.chunked_array(chunks, dtype)

    def batches(self, rows: int) -> Iterator[pa.Table]:
        return files.rechunk((part.to_table() for part in self.fragments()), rows)

    def to_table(self) -> pa.Table:
        return pa.table([self.column(name) for name in self.column_names], schema=self._schema)

    def fragments(self) -> list[Dataset]:
        """The row groups, each a table of its own."""
        return [self._with(fragments=[fragment]) for fragment in self._fragments]

    def sample(self, rows: int) -> Dataset:
        every = max(1, -(-self.num_rows // rows))
        return self._with(fragments=self._fragments[::every])

    def _with(self, fragments: list[Any]) -> "ParquetFiles":
        part = copy.copy(self)
        part._fragments = fragments
        return part

    def file_identities(self) -> list[FileIdentity]:
        return file_identities(self._names)


def file_identities(paths: Sequence[Path]) -> list[FileIdentity]:
    status = [(path, path.stat()) for path in paths]
    return [(str(path.absolute()), about.st_size, about.st_mtime_ns) for path, about in status]


def _paths(table: Any) -> list[Path] | None:
    """The files that a user names, or None for a table in memory."""
    if isinstance(table, list | tuple) and table:
        if not all(isinstance(path, str | os.PathLike) for path in table):
            raise UserError("Cannot read a list as a table; a list must contain file paths.")
        return [Path(path).absolute() for path in table]
    if not isinstance(table, str | os.PathLike):
        return None
    path = Path(table)
    if path.is_dir():
        # Files that begin so are not data, but what other programs leave beside it.
        entries = [entry for entry in sorted(path.iterdir()) if entry.name[0] not in "._"]
    elif glob.has_magic(str(table)) and not path.exists():
        entries = [Path(entry) for entry in sorted(glob.glob(str(table), recursive=True))]
    else:
        return [path]
    found = [entry.absolute() for entry in entries if entry.is_file()]
    if not found:
        raise UserError(f"There are no files in {str(table)!r}; give another folder or pattern.")
    return found


def _copy_to_parquet(path: Path, target: Path) -> None:
    tables = files.rechunk(files.read_batches(path), COPIED_ROWS)
    first = next(tables)  # a file without rows has one empty table
    with (
        replacing(target) as temporary,  # says so if $TMPDIR is full
        files.parquet_writer(temporary, first.schema) as writer,
    ):
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def _rows_of(fragment: Any) -> int:
    return sum(int(group.num_rows) for group in fragment.row_groups)


def _readable_schema(schema: pa.Schema, several: bool) -> pa.Schema:
    files.check_text_of_schema(schema)
    index = frames.unnamed_index_columns(schema)
    fields = [field for field in schema if field.name not in index]
    for field in fields:
        check_learnable(field.name, field.type)
    readable = pa.schema(fields, schema.metadata)
    return _wide(readable) if several else readable


def _wide(schema: pa.Schema) -> pa.Schema:
    """The same with dictionaries that have room for the categories of all files together."""
    fields = []
    for field in schema:
        if pa.types.is_dictionary(field.type):
            dtype = pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered)
            field = field.with_type(dtype)
        fields.append(field)
    return pa.schema(fields, schema.metadata)


def _check_same_columns(path: Path, schema: pa.Schema, first: Path, expected: pa.Schema) -> None:
    if schema.names != expected.names:
        raise UserError(
            f"{str(path)!r} has the columns {', '.join(schema.names)}, but {str(first)!r} has "
            f"{', '.join(expected.names)}; files of one table must have the same columns."
        )
    for field, other in zip(schema, expected, strict=True):
        if field.type != other.type and not _both_dictionaries(field.type, other.type):
            raise UserError(
                f"Column {field.name!r} is {field.type} in {str(path)!r}, but {other.type} in "
                f"{str(first)!r}; cast it to one type."
            )


def _both_dictionaries(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two dictionaries differ in the type of their indices only."""
    if not (pa.types.is_dictionary(one) and pa.types.is_dictionary(other)):
        return False
    return bool(one.value_type == other.value_type and one.ordered == other.ordered)
