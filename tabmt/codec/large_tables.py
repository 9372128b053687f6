"""Tables larger than memory: their codec, and their tokens in a file.

The codec is fitted on some of the rows; then all rows are scanned, for their categories and for
columns that differ. The tokens are written fragment by fragment, by several workers, each into its
own place of one file, so the file is the same however many workers there are. With the codec beside
it in a folder, the file is all that training needs.
"""

import json
import logging
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt import parallel
from tabmt.codec.columns import CategoricalCodec, CodedColumn, ConstantCodec, categories_codec
from tabmt.codec.table import TableCodec, fit_column
from tabmt.config import CodecConfig, Engine
from tabmt.data import files, infer
from tabmt.data.dataset import Dataset
from tabmt.data.schema import Schema
from tabmt.errors import UserError
from tabmt.json_files import convert
from tabmt.seeds import derive
from tabmt.tokens import TokenFile, TokenStore

log = logging.getLogger(__name__)

TOKENS, CODEC, CONTENT = "tokens", "codec.npz", "content.json"


def fit_table_codec(
    dataset: Dataset, config: CodecConfig, overrides: Mapping[str, Any] | None, seed: int
) -> TableCodec:
    """The codec of a table of any size, column by column."""
    inference = infer.Inference.of(dataset, config, overrides)
    config = inference.config
    codec = TableCodec.fit(inference.columns(dataset), dataset.source, {}, config, seed)
    if infer.is_sampled(dataset):
        codec = _with_all_rows(codec, inference, dataset, config, seed)
    columns = {column.name: column for column in codec.schema.columns}
    return codec.with_rules(inference.rules(dataset, columns))


def _with_all_rows(
    codec: TableCodec, inference: infer.Inference, dataset: Dataset, config: CodecConfig, seed: int
) -> TableCodec:
    """A codec that was fitted on some rows, with all categories, and with the columns anew that
    differ in the other rows."""
    by_name = {column.name: column for column in codec.schema.columns}
    scan = infer.scan(dataset, by_name, inference.overrides)
    coded = {column.name: column for column in codec.coded}
    for name in scan.differing:
        coded[name] = fit_column(inference.column(name, dataset.column(name)), config, seed)
    for name, counts in scan.categories.items():
        own = coded[name].codec
        assert isinstance(own, CategoricalCodec | ConstantCodec)
        codec_seed = derive(seed, "codec", name)
        more = categories_codec(counts, own.dictionary, config, codec_seed)
        coded[name] = CodedColumn(coded[name].column, more)
    columns = tuple(column.column for column in coded.values())
    return TableCodec(Schema(columns, dataset.source), tuple(coded.values()))


@dataclass(frozen=True)
class EncodeFragment:
    codec: TableCodec
    path: Path
    warned: set[str]  # columns about which a warning was given

    def __call__(self, piece: tuple[int, Dataset]) -> None:
        """Write the tokens of a fragment, whose first row has this number in the table."""
        first_row, fragment = piece
        TokenFile.write_rows(self.path, first_row, self.codec.pack(fragment, self.warned))


def encode_to_file(
    codec: TableCodec,
    dataset: Dataset,
    path: Path,
    *,
    engine: Engine,
    workers: int,
    warned: Collection[str] = (),
) -> None:
    """Write the tokens of a table to a file that all workers can see.

    Of the columns in `warned`, values outside the range are not reported again.
    """
    TokenFile.create(path, codec.sizes, dataset.num_rows)
    fragments = dataset.fragments()
    *first_rows, _ = accumulate((fragment.num_rows for fragment in fragments), initial=0)
    pieces = list(zip(first_rows, fragments, strict=True))
    work = EncodeFragment(codec, path, set(warned))
    for _ in parallel.each(work, pieces, engine=engine, workers=workers):
        pass
    pa.default_memory_pool().release_unused()  # training needs the memory


@dataclass(frozen=True)
class StoreContent:
    """What the JSON file in a folder of tokens says."""

    rows: int
    schema: dict[str, Any]
    codecs: list[dict[str, Any]]
    request: dict[str, Any]  # what codec and tokens depend on


def encode_into(
    folder: Path,
    dataset: Dataset,
    make_codec: Callable[[], TableCodec],
    request: Mapping[str, Any],
    engine: Engine,
) -> None:
    """Put the codec and the tokens of a table into a folder, unless they are there already.

    `request` is what the codec depends on besides the table.
    """
    wanted = json.loads(json.dumps({"files": dataset.file_identities(), **request}))
    content = folder / CONTENT
    if content.exists():
        if _read_content(folder).request != wanted:
            raise UserError(
                f"The folder {str(folder)!r} contains a table that was encoded from other files, "
                "or with other settings or another seed; use another folder, or delete this one."
            )
        log.info("using the encoded table in %s", folder)
        return
    _check_folder(folder)
    started = time.monotonic()
    codec = make_codec()
    fitted = time.monotonic()
    log.info("read %s rows in %.0f s", f"{dataset.num_rows:,}", fitted - started)
    arrays, entries = codec.to_parts()
    with files.replacing(folder / TOKENS) as tokens, files.replacing(folder / CODEC) as codes:
        encode_to_file(
            codec,
            dataset,
            tokens,
            engine=engine,
            workers=parallel.cores(),
            warned=codec.schema.names if request else (),  # a codec of this table is not surprised
        )
        with codes.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        if content.exists():
            raise UserError(
                f"Another fit has meanwhile encoded its table into {str(folder)!r}; use another "
                "folder."
            )
    stored = {
        "rows": dataset.num_rows,
        "schema": codec.schema.to_json(),
        "codecs": entries,
        "request": wanted,
    }
    files.write_text(content, json.dumps(stored, ensure_ascii=False))  # last: now it is complete
    log.info("encoded the table in %.0f s", time.monotonic() - fitted)


def _check_folder(folder: Path) -> None:
    """Make the folder, or see that it holds nothing but what an interrupted run has left."""
    files.make_folder(folder)
    if any(path.name[0] != "." and path.name not in (TOKENS, CODEC) for path in folder.iterdir()):
        raise UserError(f"The folder {str(folder)!r} contains other files; use an empty folder.")
    for name in (TOKENS, CODEC):
        files.remove_abandoned(folder, name)


def read_encoded(folder: Path) -> tuple[TableCodec, TokenStore]:
    """What `encode_into` has put into a folder."""
    content = _read_content(folder)
    try:
        with np.load(folder / CODEC) as arrays:
            schema = Schema.from_json(content.schema)
            codec = TableCodec.from_parts(schema, dict(arrays), content.codecs)
        return codec, TokenStore(TokenFile(folder / TOKENS, codec.sizes, content.rows))
    except (OSError, EOFError, ValueError, UserError, zipfile.BadZipFile) as error:
        raise UserError(_damaged(folder)) from error


def _read_content(folder: Path) -> StoreContent:
    try:
        return convert(json.loads((folder / CONTENT).read_text(encoding="utf-8")), StoreContent)
    except (OSError, ValueError) as error:
        raise UserError(_damaged(folder)) from error


def _damaged(folder: Path) -> str:
    return f"The folder {str(folder)!r} is damaged; delete it to encode the table again."
