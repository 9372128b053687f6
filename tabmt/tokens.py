"""The tokens of a table, row after row, each in the smallest integers that hold its column's codes.

For training: rows are gathered as they are asked for. They lie in memory, or in a file, so that
tables larger than memory can be learned. Subsets share their rows.
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.errors import UserError

MASK = -1
"""The token of a cell that is not known: the network sees the mask token, sampling fills it in."""

BLOCK = 2**26  # bytes that are looked at together when all rows are
CLOSE = 4  # rows that lie so close, in times their number, are read in one piece
WIDTHS = (np.int8, np.int16, np.int32, np.int64)  # signed, because MASK is -1


def smallest(codes: int) -> type[np.signedinteger[Any]]:
    """The smallest integers that hold so many codes, and MASK."""
    return next(width for width in WIDTHS if codes - 1 <= np.iinfo(width).max)


class Scratch:
    """A temporary folder that is removed with the last object that holds it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="tabmt-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def pack(columns: Iterable[np.ndarray], sizes: Sequence[int], rows: int) -> np.ndarray:
    """Rows, from the codes of each column; `sizes` tells how many codes each has."""
    packed = np.empty(rows, [(str(place), smallest(size)) for place, size in enumerate(sizes)])
    for place, codes in enumerate(columns):
        assert codes.min(initial=0) >= MASK
        packed[str(place)] = codes
    return packed


class PackedFile:
    """Rows on disk, of which some are read as from the array that `pack` gives.

    Read, not mapped into memory: of a mapped file, far more than the rows asked for is taken into
    memory, and counts as ours.
    """

    def __init__(self, path: Path, sizes: Sequence[int], rows: int) -> None:
        self.dtype, self._rows = pack((), sizes, 0).dtype, rows
        assert path.stat().st_size == rows * self.dtype.itemsize
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)

    @staticmethod
    def create(path: Path, sizes: Sequence[int], rows: int) -> None:
        """A file for so many rows, to be written by `write`."""
        with path.open("wb") as file:
            file.truncate(rows * pack((), sizes, 0).itemsize)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty(0, self.dtype)
        low, high = int(rows.min()), int(rows.max()) + 1
        if high - low < CLOSE * len(rows):
            near = np.empty(high - low, self.dtype)
            self._read(low, near)
            return np.take(near, rows - low)
        found = np.empty(len(rows), self.dtype)
        for place, row in enumerate(rows.tolist()):
            self._read(row, found[place : place + 1])
        return found

    def _read(self, first: int, into: np.ndarray) -> None:
        self._file.seek(first * self.dtype.itemsize)
        if self._file.readinto(into.view(np.uint8).data) != into.nbytes:
            raise UserError(
                f"{self._file.name!r} ends too soon; delete its folder to code the table anew."
            )


def write(path: Path, first: int, packed: np.ndarray) -> None:
    """Some rows, from the `first` on; several processes may write at once."""
    with path.open("r+b") as file:
        file.seek(first * packed.itemsize)
        file.write(packed.tobytes())


class TokenStore:
    """Reads like an integer matrix, (rows, columns): by rows, or a column at a time."""

    def __init__(
        self,
        packed: "np.ndarray | PackedFile",
        *,
        which: np.ndarray | None = None,
    ) -> None:
        self._packed, self._which = packed, which
        self._names = packed.dtype.names or ()

    def __len__(self) -> int:
        return len(self._packed if self._which is None else self._which)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self._names)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, (B, C) int64."""
        packed = self._packed[rows if self._which is None else self._which[rows]]
        found = np.empty((len(rows), len(self._names)), np.int64)
        for place, name in enumerate(self._names):
            found[:, place] = packed[name]
        return found

    def column(self, place: int) -> np.ndarray:
        """All rows of a column, in its own integers."""
        name = self._names[place]
        parts = [np.ascontiguousarray(block[name]) for block in self.blocks()]
        return np.concatenate([np.zeros(0, self._packed.dtype[name]), *parts])

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows as they are packed, some at a time."""
        step = max(1, BLOCK // max(1, self._packed.dtype.itemsize))
        for start in range(0, len(self), step):
            rows = np.arange(start, min(start + step, len(self)))
            yield self._packed[rows if self._which is None else self._which[rows]]

    def counts(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """How often each code of each column stands in the table."""
        counts = [np.zeros(size, np.int64) for size in sizes]
        for block in self.blocks():
            for name, count in zip(self._names, counts, strict=True):
                codes = block[name]
                count += np.bincount(codes[codes != MASK], minlength=len(count))
        return counts

    def subset(self, which: np.ndarray) -> "TokenStore":
        """These rows, by their places, in this order."""
        which = which if self._which is None else self._which[which]
        which = which.astype(smallest(len(self._packed)), copy=False)
        return TokenStore(self._packed, which=which)
