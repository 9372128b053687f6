"""Rows as CSV, NDJSON, Parquet or Arrow, in pieces while they are generated."""

import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tabmt.data.arrow_types import plain_array
from tabmt.data.files import CsvWriter
from tabmt.data.schema import Schema

Format = Literal["csv", "ndjson", "parquet", "arrow"]
MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


class Buffer(io.RawIOBase):
    """A file object that keeps what is written until it is read. It never has more than a batch."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


def encode(
    tables: Iterable[pa.Table], schema: Schema, kind: Format, *, escape_formulas: bool = False
) -> Iterator[bytes]:
    """The bytes of a file with these rows, some for each table."""
    buffer = Buffer()
    write, finish = _writer(buffer, schema, kind, escape_formulas)
    for table in tables:
        write(table)
        if piece := buffer.take():
            yield piece
    finish()
    if piece := buffer.take():
        yield piece


def _writer(
    buffer: Buffer, schema: Schema, kind: Format, escape_formulas: bool
) -> tuple[Callable[[pa.Table], None], Callable[[], None]]:
    if kind == "csv":
        csv = CsvWriter(buffer, schema, ",", escape_formulas)
        csv.write_header()
        return csv.write_rows, lambda: None
    if kind == "ndjson":
        return lambda table: _write_lines(buffer, table), lambda: None
    if kind == "parquet":
        parquet = pyarrow.parquet.ParquetWriter(buffer, schema.arrow, write_page_checksum=True)
        return parquet.write_table, parquet.close
    stream = pyarrow.ipc.new_stream(buffer, schema.arrow)
    return stream.write_table, stream.close


def _write_lines(buffer: Buffer, table: pa.Table) -> None:
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in plain_rows(table))
    buffer.write("".join(f"{line}\n" for line in lines).encode())


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON can hold them: dates and decimals as text, missing values as null."""
    columns = {
        name: [_plain(value) for value in plain_array(table.column(name)).to_pylist()]
        for name in table.column_names
    }
    return [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)
