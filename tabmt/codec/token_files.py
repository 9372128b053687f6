"""The tokens of a table larger than memory: row group by row group, by several workers.

For `fit`. Every worker writes its rows into their own places of one file, so the file is the same
however many there are, and whichever has to begin again. With the codec beside it, it is all that
training needs.
"""

import json
import logging
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.codec import serialize as codec_parts
from tabmt.codec.columns import TableCodec
from tabmt.config import Engine
from tabmt.data import files as tables
from tabmt.data.dataset import Columns
from tabmt.data.schema import Schema
from tabmt.errors import UserError
from tabmt.parallel import cores, each
from tabmt.tokens import PackedFile, TokenStore, write

log = logging.getLogger(__name__)

TOKENS, CODEC, ABOUT = "tokens", "codec.npz", "about.json"


@dataclass(frozen=True)
class EncodePart:
    codec: TableCodec
    path: Path
    warned: set[str]  # columns of which a word was said

    def __call__(self, piece: tuple[int, Columns]) -> None:
        """The rows of a part, which are those of the table from the first on."""
        first, part = piece
        write(self.path, first, self.codec.pack(part, self.warned))


def encode(
    codec: TableCodec,
    table: Columns,
    path: Path,
    *,
    engine: Engine = "local",
    workers: int = 1,
) -> None:
    """Write the tokens of a table to a file, which all workers must see."""
    PackedFile.create(path, _sizes(codec), table.num_rows)
    parts = list(table.parts())
    *firsts, _ = accumulate((part.num_rows for part in parts), initial=0)
    pieces = list(zip(firsts, parts, strict=True))
    for _ in each(EncodePart(codec, path, set()), pieces, engine=engine, workers=workers):
        pass
    pa.default_memory_pool().release_unused()  # a large part of memory, which training needs


def prepare(
    folder: Path,
    table: Columns,
    find: Callable[[], TableCodec],
    asked: Mapping[str, Any],
    engine: Engine,
) -> None:
    """Have the folder hold the codec and the tokens of a table, if it does not yet.

    `asked` is what the codec depends on besides the table.
    """
    wanted = json.loads(json.dumps({"files": table.identity(), **asked}))
    about = folder / ABOUT
    if about.exists():
        if _read(about).get("asked") != wanted:
            raise UserError(
                f"The folder {str(folder)!r} holds the tokens of other files, or of other "
                "settings or another seed; name another folder, or delete it."
            )
        log.info("the codes of these files are in %s", folder)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {str(folder)!r} cannot be made: {error.strerror}.") from error
    if any(path.name[0] != "." and path.name not in (TOKENS, CODEC) for path in folder.iterdir()):
        raise UserError(f"The folder {str(folder)!r} holds other files; name an empty one.")
    for name in (TOKENS, CODEC):
        tables.clear(folder, name)
    started = time.monotonic()
    codec = find()
    looked = time.monotonic()
    log.info("looked at %s rows in %.0f s", f"{table.num_rows:,}", looked - started)
    arrays, entries = codec_parts.to_parts(codec)
    told = {"rows": table.num_rows, "schema": codec.schema.to_json(), "codecs": entries}
    told["asked"] = wanted
    with tables.replacing(folder / TOKENS) as tokens, tables.replacing(folder / CODEC) as codes:
        encode(codec, table, tokens, engine=engine, workers=cores())
        with codes.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        if about.exists():
            raise UserError(f"Another fit has coded its table into {str(folder)!r} meanwhile.")
    tables.write_text(about, json.dumps(told, ensure_ascii=False))  # last: now it is whole
    log.info("coded them in %.0f s", time.monotonic() - looked)


def prepared(folder: Path) -> tuple[TableCodec, TokenStore]:
    """What `prepare` left in a folder."""
    about = _read(folder / ABOUT)
    try:
        with np.load(folder / CODEC) as arrays:
            schema = Schema.from_json(about["schema"])
            codec = codec_parts.from_parts(schema, dict(arrays), about["codecs"])
        return codec, TokenStore(PackedFile(folder / TOKENS, _sizes(codec), about["rows"]))
    except (OSError, KeyError, ValueError, AssertionError, zipfile.BadZipFile) as error:
        raise UserError(_damaged(folder)) from error


def _sizes(codec: TableCodec) -> list[int]:
    return [coded.size for coded in codec.token_columns]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found
    except (OSError, ValueError, AssertionError) as error:
        raise UserError(_damaged(path.parent)) from error


def _damaged(folder: Path) -> str:
    return f"What {str(folder)!r} holds is damaged; delete the folder to code the table anew."
