"""The tokens of a table, one array per column in the smallest integers that hold its codes.

For training: rows are gathered as they are asked for. The arrays lie in memory, or in files that
are mapped into it, so that tables larger than memory can be learned. Subsets share their arrays.
"""

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.tokens import MASK

WIDTHS = (np.int8, np.int16, np.int32, np.int64)  # signed, because MASK is -1


def smallest(codes: int) -> type[np.signedinteger[Any]]:
    """The smallest integers that hold so many codes, and MASK."""
    return next(width for width in WIDTHS if codes - 1 <= np.iinfo(width).max)


class Scratch:
    """A temporary folder that is removed with the last object that holds it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="tabmt-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def create(folder: Path, sizes: Sequence[int], rows: int) -> None:
    """Files for the tokens of columns with so many codes each."""
    for place, size in enumerate(sizes):
        np.lib.format.open_memmap(_file(folder, place), "w+", smallest(size), (rows,))


def write(folder: Path, place: int, first: int, codes: np.ndarray) -> None:
    """Some rows of a column, from the `first` on; several processes may write at once."""
    assert codes.min(initial=0) >= MASK
    path = _file(folder, place)
    stored = np.load(path, mmap_mode="r")
    narrow = codes.astype(stored.dtype)
    with path.open("r+b") as file:  # not through the map: what it wrote would count as our memory
        file.seek(stored.offset + first * stored.itemsize)
        file.write(narrow.data)


def _file(folder: Path, place: int) -> Path:
    return folder / f"{place}.npy"


class TokenStore:
    """Reads like an integer matrix, (rows, columns): by rows, or a column at a time."""

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        rows: int,
        *,
        which: np.ndarray | None = None,
        folder: Scratch | None = None,
    ) -> None:
        self._columns, self._which, self._folder = list(columns), which, folder
        self._rows = rows if which is None else len(which)

    @classmethod
    def fill(cls, columns: Iterable[tuple[np.ndarray, int]], rows: int) -> "TokenStore":
        """In memory, from the codes of each column and how many codes it has."""
        stored = []
        for codes, size in columns:
            assert codes.min(initial=0) >= MASK
            stored.append(codes.astype(smallest(size)))
        return cls(stored, rows)

    @classmethod
    def open(cls, folder: Scratch, columns: int, rows: int) -> "TokenStore":
        """On disk, as `create` and `write` left it there."""
        stored = [np.load(_file(folder.path, place), mmap_mode="r") for place in range(columns)]
        return cls(stored, rows, folder=folder)

    def __len__(self) -> int:
        return self._rows

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows, len(self._columns)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, (B, C) int64."""
        rows = rows if self._which is None else self._which[rows]
        found = np.empty((len(rows), len(self._columns)), np.int64)
        for place, column in enumerate(self._columns):
            found[:, place] = column[rows]
        return found

    def column(self, place: int) -> np.ndarray:
        """All rows of a column, in its own integers."""
        column = self._columns[place]
        return np.asarray(column) if self._which is None else column[self._which]

    def subset(self, which: np.ndarray) -> "TokenStore":
        """These rows, by their places, in this order."""
        which = which if self._which is None else self._which[which]
        which = which.astype(smallest(self._rows), copy=False)
        return TokenStore(self._columns, self._rows, which=which, folder=self._folder)
