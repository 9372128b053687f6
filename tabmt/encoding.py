"""The tokens of a table larger than memory: row group by row group, by several workers.

For `fit`. Every worker writes its rows into their own places of one store, so the store is the same
however many there are, and whichever has to begin again.
"""

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from tabmt import store
from tabmt.codecs import TableCodec
from tabmt.config import Engine
from tabmt.engine import cores, each
from tabmt.many_files import Columns
from tabmt.store import PackedFile, Scratch, TokenStore


@dataclass(frozen=True)
class EncodePart:
    codec: TableCodec
    path: Path

    def __call__(self, piece: tuple[int, Columns]) -> None:
        """The rows of a part, which are those of the table from the first on."""
        first, part = piece
        store.write(self.path, first, self.codec.pack(part))


def encode(
    codec: TableCodec, table: Columns, *, engine: Engine = "local", workers: int | None = None
) -> TokenStore:
    """The tokens of a table, on disk in a temporary folder; all workers must see it."""
    folder = Scratch()
    path = folder.path / "tokens"
    sizes = [coded.size for coded in codec.token_columns]
    packed = PackedFile.create(path, sizes, table.num_rows)
    parts = list(table.parts())
    firsts = [0, *accumulate(part.num_rows for part in parts)]
    pieces = list(zip(firsts, parts, strict=False))
    for _ in each(EncodePart(codec, path), pieces, engine=engine, workers=workers or cores()):
        pass
    pa.default_memory_pool().release_unused()  # a large part of memory, which training needs
    return TokenStore(packed, folder=folder)
