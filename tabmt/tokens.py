"""The one representation between tables and networks: a matrix of integers.

    tokens: (rows, columns). A cell is a code 0 .. size-1 of its column, or MASK.

For training, a `TokenStore` holds each row in the smallest integers that its columns need, in
memory or in a file, so that models can be fitted to tables larger than memory.
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.errors import UserError

MASK = -1
"""The token of an unknown cell: the network sees the mask token, and sampling fills it in."""

BLOCK_BYTES = 2**26  # read at a time when all rows are read
CLOSE = 4  # rows that span less than this many times their number are read in one piece
INTEGERS = (np.int8, np.int16, np.int32, np.int64)  # signed, because MASK is -1


def smallest_integer(codes: int) -> type[np.signedinteger[Any]]:
    """The smallest integer type that holds this many codes, and MASK."""
    return next(dtype for dtype in INTEGERS if codes - 1 <= np.iinfo(dtype).max)


def pack(columns: Iterable[np.ndarray], sizes: Sequence[int], rows: int) -> np.ndarray:
    """The codes of each column as packed rows; `sizes` is the number of codes of each column."""
    dtype = [(str(index), smallest_integer(size)) for index, size in enumerate(sizes)]
    packed = np.empty(rows, dtype)
    for index, codes in enumerate(columns):
        assert codes.min(initial=0) >= MASK
        packed[str(index)] = codes
    return packed


class TokenFile:
    """Packed rows on disk, indexed like the array that `pack` returns.

    The file is read, not memory-mapped: a mapped file pulls far more than the requested rows into
    memory, and the process is charged for them.
    """

    def __init__(self, path: Path, sizes: Sequence[int], rows: int) -> None:
        self.dtype, self._rows = pack((), sizes, 0).dtype, rows
        if path.stat().st_size != rows * self.dtype.itemsize:
            raise ValueError("the token file does not have the size that its rows need")
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)

    @staticmethod
    def create(path: Path, sizes: Sequence[int], rows: int) -> None:
        """A file for this many rows, to be filled by `write_rows`."""
        with path.open("wb") as file:
            file.truncate(rows * pack((), sizes, 0).itemsize)

    @staticmethod
    def write_rows(path: Path, first_row: int, packed: np.ndarray) -> None:
        """Write rows to their place; several processes may do so at the same time."""
        with path.open("r+b") as file:
            file.seek(first_row * packed.itemsize)
            file.write(packed.tobytes())

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty(0, self.dtype)
        low, high = int(rows.min()), int(rows.max()) + 1
        if high - low < CLOSE * len(rows):
            span = np.empty(high - low, self.dtype)
            self._read(low, span)
            return np.take(span, rows - low)
        packed = np.empty(len(rows), self.dtype)
        for index, row in enumerate(rows.tolist()):
            self._read(row, packed[index : index + 1])
        return packed

    def _read(self, first_row: int, into: np.ndarray) -> None:
        self._file.seek(first_row * self.dtype.itemsize)
        if self._file.readinto(into.view(np.uint8).data) != into.nbytes:
            raise UserError(
                f"{self._file.name!r} is truncated; delete its folder to encode the table again."
            )


class TokenStore:
    """Packed rows that read like an integer matrix (rows, columns). Subsets share the rows."""

    def __init__(
        self, packed: "np.ndarray | TokenFile", *, row_numbers: np.ndarray | None = None
    ) -> None:
        self._packed, self._row_numbers = packed, row_numbers
        self._names = packed.dtype.names or ()

    def __len__(self) -> int:
        return len(self._packed if self._row_numbers is None else self._row_numbers)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self._names)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, (B, C) int64."""
        packed = self._take(rows)
        tokens = np.empty((len(rows), len(self._names)), np.int64)
        for column, name in enumerate(self._names):
            tokens[:, column] = packed[name]
        return tokens

    def _take(self, rows: np.ndarray) -> np.ndarray:
        return self._packed[rows if self._row_numbers is None else self._row_numbers[rows]]

    def column(self, index: int) -> np.ndarray:
        """All rows of a column, in the integer type in which it is stored."""
        name = self._names[index]
        blocks = [np.ascontiguousarray(block[name]) for block in self.blocks()]
        return np.concatenate([np.zeros(0, self._packed.dtype[name]), *blocks])

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in packed form, a bounded number at a time."""
        step = max(1, BLOCK_BYTES // max(1, self._packed.dtype.itemsize))
        for start in range(0, len(self), step):
            yield self._take(np.arange(start, min(start + step, len(self))))

    def counts(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """How often each code of each column occurs."""
        counts = [np.zeros(size, np.int64) for size in sizes]
        for block in self.blocks():
            for name, count in zip(self._names, counts, strict=True):
                codes = block[name]
                count += np.bincount(codes[codes != MASK], minlength=len(count))
        return counts

    def check(self, sizes: Sequence[int]) -> None:
        """See that every token is a code of its column, or MASK. Raises ValueError."""
        for block in self.blocks():
            for name, size in zip(self._names, sizes, strict=True):
                codes = block[name]
                if len(codes) and not (codes.min() >= MASK and codes.max() < size):
                    raise ValueError("the token file contains a code that its column does not have")

    def subset(self, rows: np.ndarray) -> "TokenStore":
        """These rows, by their numbers, in this order."""
        rows = rows if self._row_numbers is None else self._row_numbers[rows]
        rows = rows.astype(smallest_integer(len(self._packed)), copy=False)
        return TokenStore(self._packed, row_numbers=rows)
