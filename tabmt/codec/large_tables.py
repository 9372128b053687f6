"""Tables larger than memory: their codec, and their tokens in a file.

The codec is fitted on some of the rows; then all rows are scanned, for their categories and for
columns that differ. The tokens are written fragment by fragment, by several workers, each into its
own place of one file, so the file is the same however many workers there are. With the codec beside
it in a folder, the file is all that training needs.
"""

import hashlib
import json
import logging
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt import parallel
from tabmt.codec.columns import CodedColumn, categories_codec
from tabmt.codec.table import TableCodec, fit_column
from tabmt.config import CodecConfig, Engine
from tabmt.data import infer
from tabmt.data.dataset import Dataset
from tabmt.data.schema import Schema, SchemaRules
from tabmt.data.typed_columns import TypedColumn, parse_column
from tabmt.errors import UserError
from tabmt.fingerprint import fingerprint
from tabmt.json_files import convert, json_text, parse_json, read_bounded, require
from tabmt.seeds import derive
from tabmt.tokens import TokenFile, TokenStore
from tabmt.writing import (
    README,
    claimed,
    make_folder,
    remove_abandoned,
    replacing,
    write_text,
)

log = logging.getLogger(__name__)

TOKENS, CODEC, CONTENT = "tokens", "codec.npz", "content.json"
ABOUT = """This folder contains a table in the form that `tabmt fit --store` uses for training:
every row as numbers (tokens), and their meaning (codec.npz). Both together reveal the table, with
its numbers rounded. Delete the folder when no further fit needs it.
"""


def fit_table_codec(
    dataset: Dataset, config: CodecConfig, overrides: Mapping[str, Any] | None, seed: int
) -> TableCodec:
    """The codec of a table of any size, column by column."""
    inference = infer.Inference.of(dataset, config, overrides)
    config = inference.config
    declared: dict[str, pa.Array | None] = {}

    def columns() -> Iterator[TypedColumn]:
        for typed in inference.columns(dataset):
            declared[typed.column.name] = typed.dictionary
            yield typed

    codec = TableCodec.fit(columns(), dataset.source, {}, config, seed)
    if infer.is_sampled(dataset):
        codec = _with_all_rows(codec, inference, dataset, declared, seed)
    by_name = {column.name: column for column in codec.schema.columns}
    rules = inference.rules(dataset, by_name)
    return _with_own_codes(codec, rules, dataset, config, seed).with_rules(rules)


def _with_own_codes(
    codec: TableCodec, rules: SchemaRules, dataset: Dataset, config: CodecConfig, seed: int
) -> TableCodec:
    """A codec whose columns have the codes that found rules need, by all of their rows."""
    columns = rules.columns_with_own_codes(codec.schema.columns)
    coded = tuple(
        one
        if column == one.column
        else fit_column(parse_column(dataset.column(column.name), column), config, seed)
        for one, column in zip(codec.coded, columns, strict=True)
    )
    return TableCodec(Schema(columns, dataset.source), coded)


def _with_all_rows(
    codec: TableCodec,
    inference: infer.Inference,
    dataset: Dataset,
    declared: Mapping[str, pa.Array | None],
    seed: int,
) -> TableCodec:
    """A codec that was fitted on some rows, with the categories of all rows, and refitted for the
    columns that differ in other rows. `declared` are the categories that a column's type
    declares."""
    config = inference.config
    by_name = {column.name: column for column in codec.schema.columns}
    scan = infer.scan(dataset, by_name, inference.overrides)
    coded = {column.name: column for column in codec.coded}
    for name in scan.differing:
        coded[name] = fit_column(inference.column(name, dataset.column(name)), config, seed)
    for name, counts in scan.categories.items():
        codec_seed = derive(seed, "codec", name)
        more = categories_codec(counts, declared[name], config, codec_seed)
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
    checksums: dict[str, str]  # of the other files


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
    with claimed(folder, "The folder"):
        _encode_into(folder, dataset, make_codec, wanted, engine)


def _encode_into(
    folder: Path,
    dataset: Dataset,
    make_codec: Callable[[], TableCodec],
    wanted: Mapping[str, Any],
    engine: Engine,
) -> None:
    remove_abandoned(folder)
    write_text(folder / README, ABOUT)
    started = time.monotonic()
    codec = make_codec()
    fitted = time.monotonic()
    log.info("read %s rows in %.0f s", f"{dataset.num_rows:,}", fitted - started)
    arrays, entries = codec.to_parts()
    with replacing(folder / TOKENS) as tokens, replacing(folder / CODEC) as codes:
        encode_to_file(
            codec,
            dataset,
            tokens,
            engine=engine,
            workers=parallel.cores(),
            warned=codec.schema.names if "seed" in wanted else (),  # its own codec has said it
        )
        with codes.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    stored = {
        "rows": dataset.num_rows,
        "schema": codec.schema.to_json(),
        "codecs": entries,
        "request": wanted,
        "checksums": {name: _checksum(folder / name) for name in (TOKENS, CODEC)},
    }
    stored = json.loads(json.dumps(stored))
    stored["checksum"] = fingerprint(stored)
    write_text(folder / CONTENT, json_text(stored))  # last: now it is complete
    log.info("encoded the table in %.0f s", time.monotonic() - fitted)


def _check_folder(folder: Path) -> None:
    """Create the folder, or check that it contains only files of an interrupted run."""
    make_folder(folder)
    own = (TOKENS, CODEC, README)
    if any(path.name[0] != "." and path.name not in own for path in folder.iterdir()):
        raise UserError(f"The folder {str(folder)!r} contains other files; use an empty folder.")


def read_encoded(folder: Path) -> tuple[TableCodec, TokenStore]:
    """What `encode_into` has put into a folder."""
    content = _read_content(folder)
    try:
        for name in (TOKENS, CODEC):
            require(content.checksums.get(name) == _checksum(folder / name), "a checksum is wrong")
        schema = Schema.from_json(content.schema)
        codec = TableCodec.from_parts(schema, _read_arrays(folder / CODEC), content.codecs)
        codec.check()
        require(content.rows >= 0, "the number of rows is negative")
        store = TokenStore(TokenFile(folder / TOKENS, codec.sizes, content.rows))
        store.check(codec.sizes)
        return codec, store
    except (
        OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError,
        UserError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise UserError(_damaged(folder)) from error


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a codec. They are not compressed, so they cannot be larger than the file."""
    with zipfile.ZipFile(path) as archive:
        sizes = [entry.file_size for entry in archive.infolist()]
        stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    require(stored and sum(sizes) <= path.stat().st_size, "the arrays are compressed")
    with np.load(path) as arrays:
        return dict(arrays)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, hashlib.blake2b).hexdigest()


def _read_content(folder: Path) -> StoreContent:
    try:
        data = parse_json(read_bounded(folder / CONTENT, "content"))
        require(isinstance(data, dict), "there is no content")
        stored = data.pop("checksum", None)
        require(stored == fingerprint(data), "the checksum is wrong")
        return convert(data, StoreContent)
    except (UserError, ValueError) as error:
        raise UserError(_damaged(folder)) from error


def _damaged(folder: Path) -> str:
    return f"The folder {str(folder)!r} is damaged; delete it to encode the table again."
