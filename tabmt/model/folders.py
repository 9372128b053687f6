"""Rows written as a folder of Parquet files, generated independently, here or on a Ray cluster.

For tables of any size. A file appears only when it is complete, and its content depends only on the
request and its number, so an interrupted run continues with the missing files.
"""

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tabmt import parallel
from tabmt.config import Engine, Imputation
from tabmt.data import files
from tabmt.data.dataset import Dataset, Files, InMemory
from tabmt.data.typed_columns import in_schema_types
from tabmt.errors import UserError
from tabmt.json_files import json_text, read_json
from tabmt.model.fitted_model import FittedModel
from tabmt.model.generate import BATCH_ROWS, Request, generate_batches
from tabmt.model.impute import impute_batches
from tabmt.model.model_file import model_fingerprint
from tabmt.seeds import derive
from tabmt.writing import claimed, make_folder, remove_abandoned, write_text

FILE_ROWS = 64 * BATCH_ROWS
WORKER_SECONDS = 60.0  # for which a worker of a killed run may still be writing a file
REQUEST = "_tabmt.json"  # files that begin so are not data when the folder is read as a table


@dataclass(frozen=True)
class SampleFile:
    model: FittedModel
    rows: int
    file_rows: int
    request: Request
    folder: Path

    def __call__(self, number: int) -> int:
        """Write a file; how many rows it has. All files together are what `sample` returns."""
        first = number * self.file_rows
        span = range(first, min(self.rows, first + self.file_rows))
        batches = generate_batches(self.model, self.rows, self.request, span)
        path = self.folder / file_name(number)
        files.write_file(path, self.model.codec.schema, batches, wait=WORKER_SECONDS)
        return len(span)


@dataclass(frozen=True)
class ImputeFile:
    model: FittedModel
    how: Imputation
    columns: Sequence[str] | None
    request: Request
    folder: Path

    def __call__(self, piece: tuple[int, Path, int | None]) -> int:
        """Fill a file, or one row group of it; how many rows it has."""
        number, path, row_group = piece
        dataset: Dataset = Files([path])
        if row_group is not None:
            with files.reading(path, "parquet"), files.open_parquet(path) as file:
                dataset = InMemory(file.read_row_group(row_group))
        rows = 0

        def counted(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
            nonlocal rows
            for table in tables:
                rows += table.num_rows
                yield table

        schema = self.model.codec.schema
        filled = impute_batches(
            self.model,
            counted(dataset.batches(BATCH_ROWS)),
            dataclasses.replace(self.request, seed=derive(self.request.seed, "part", number)),
            how=self.how,
            columns=self.columns,
        )
        files.write_like(
            self.folder / file_name(number),
            files.file_kind(path),
            lambda table: in_schema_types(table, schema),
            schema,
            filled,
            wait=WORKER_SECONDS,
        )
        return rows


def file_name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def sample_into(
    model: FittedModel,
    folder: Path,
    rows: int,
    request: Request,
    *,
    options: Mapping[str, Any],
    file_rows: int,
    engine: Engine,
) -> Iterator[int]:
    """Write the files that are not there yet; yields the rows of each file. `options` are what the
    user asked for, by which one request is told from another."""
    if file_rows < 1 or file_rows % BATCH_ROWS:
        raise UserError(f"file_rows is {file_rows}, but must be a multiple of {BATCH_ROWS}.")
    wanted = {"what": "sample", "rows": rows, "file_rows": file_rows, **options}
    work = SampleFile(_portable(model, engine), rows, file_rows, request, folder)
    numbers = range(max(1, -(-rows // file_rows)))  # no rows are one empty file
    yield from _write_missing(folder, wanted, model, work, [(k, k) for k in numbers], engine)


def impute_into(
    model: FittedModel,
    folder: Path,
    table: Any,
    request: Request,
    *,
    how: Imputation,
    columns: Sequence[str] | None,
    engine: Engine,
) -> Iterator[int]:
    """The same for imputation: a file for each CSV or Arrow file, or each Parquet row group."""
    dataset = Dataset.open(table)
    if not isinstance(dataset, Files):
        raise UserError(
            f"impute_to reads files, but got a {type(table).__name__}; pass paths, or use impute()."
        )
    pieces: list[tuple[int, Path, int | None]] = []
    for path in (path.absolute() for path in dataset.paths):
        groups: Sequence[int | None] = [None]
        if files.existing_file(path) == "parquet":
            with files.reading(path, "parquet"):
                count = pyarrow.parquet.read_metadata(path).num_row_groups
            groups = range(count) if count else [None]
        pieces += [(len(pieces) + k, path, group) for k, group in enumerate(groups)]
    wanted = {
        "what": "impute",
        "files": dataset.file_identities(),
        "how": how,
        "columns": None if columns is None else list(columns),
        "seed": request.seed,
    }
    work = ImputeFile(_portable(model, engine), how, columns, request, folder)
    numbered = [(piece[0], piece) for piece in pieces]
    yield from _write_missing(folder, wanted, model, work, numbered, engine)


def _write_missing(
    folder: Path,
    wanted: Mapping[str, Any],
    model: FittedModel,
    work: Callable[[Any], int],
    pieces: Sequence[tuple[int, Any]],
    engine: Engine,
) -> Iterator[int]:
    parallel.check(engine)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{str(folder)!r} is a file; give a folder to write files into.")
    make_folder(folder)
    with claimed(folder, "The output folder"):
        _check_folder(
            folder, {**wanted, "model": model_fingerprint(model), "files_in_all": len(pieces)}
        )
        missing = []
        for number, piece in pieces:
            path = folder / file_name(number)
            if not path.exists():
                missing.append(piece)
                continue
            with files.reading(path, "parquet"):
                yield int(pyarrow.parquet.read_metadata(path).num_rows)
        yield from parallel.each(work, missing, engine=engine)


def _check_folder(folder: Path, wanted: Mapping[str, Any]) -> None:
    """See that the folder is new, or holds files of this very request."""
    remove_abandoned(folder)
    wanted = json.loads(json.dumps(wanted))
    path = folder / REQUEST
    if not path.exists() or not any(folder.glob("part-*")):
        if any(entry.name != REQUEST and entry.name[0] != "." for entry in folder.iterdir()):
            raise UserError(
                f"The folder {str(folder)!r} contains other files; use an empty folder."
            )
        write_text(path, json_text(wanted, indent=2) + "\n")
        return
    try:
        before = read_json(path, "request")
        differing = {name for name in {*wanted, *before} if wanted.get(name) != before.get(name)}
    except UserError as error:
        raise UserError(f"{str(path)!r} is damaged; empty the folder to start again.") from error
    if differing:
        raise UserError(
            f"The folder {str(folder)!r} contains files from a run with other values of: "
            f"{_shown(differing)}. Run it again with the same values, or use an empty folder."
        )


def _shown(differing: set[str]) -> str:
    """The names of what two requests differ in, as users know them."""
    if "what" in differing:
        return "command"
    names = differing - {"files_in_all"} or differing  # their number follows from the others
    known_as = {"files": "table", "files_in_all": "number of files"}
    return ", ".join(sorted(known_as.get(name, name) for name in names))


def _portable(model: FittedModel, engine: Engine) -> FittedModel:
    """A model that can be sent to other machines, which may have no GPU."""
    if engine == "local" or model.net is None:
        return model
    return dataclasses.replace(model, net=copy.deepcopy(model.net).cpu())
