"""Rows written as a folder of Parquet files, each made by itself: here, or on a Ray cluster.

For tables of any size. A file appears only when it is whole, and what is in it follows from the
plan and its number alone, so a run that was cut off goes on with the files that are missing.
"""

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tabmt.codec import serialize as codec_parts
from tabmt.config import Engine, Imputation
from tabmt.data import files as tables
from tabmt.data.dataset import files_of, identity
from tabmt.errors import UserError
from tabmt.model import impute as partial
from tabmt.model.fitted import Learned
from tabmt.model.generate import BATCH_ROWS, Request, rows_in_batches
from tabmt.parallel import check, each
from tabmt.seeds import derive

PART_ROWS = 64 * BATCH_ROWS
PLAN = "_tabmt.json"  # what begins so is not taken for data when the folder is read as a table


@dataclass(frozen=True)
class SamplePart:
    learned: Learned
    rows: int
    part_rows: int
    request: Request
    folder: Path

    def __call__(self, number: int) -> int:
        """Write a part; how many rows it has. All parts together are what `sample` gives."""
        first = number * self.part_rows
        span = range(first, min(self.rows, first + self.part_rows))
        made = rows_in_batches(self.learned, self.rows, self.request, span)
        tables.write_file(self.folder / part_name(number), self.learned.codec.schema, made)
        return len(span)


@dataclass(frozen=True)
class ImputePart:
    learned: Learned
    how: Imputation
    columns: Sequence[str] | None
    request: Request
    folder: Path

    def __call__(self, piece: tuple[int, Path, int | None]) -> int:
        """Write a file, or one row group of it, with its gaps filled; how many rows it has."""
        number, path, group = piece
        rows = 0

        def counted(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
            nonlocal rows
            for part in parts:
                rows += part.num_rows
                yield part

        if group is None:
            given, _ = tables.batches(path, BATCH_ROWS)
        else:
            with tables.reading(path, "parquet"), pyarrow.parquet.ParquetFile(path) as file:
                given, _ = tables.batches(file.read_row_group(group), BATCH_ROWS)
        filled = partial.imputed(
            self.learned,
            counted(given),
            dataclasses.replace(self.request, seed=derive(self.request.seed, "part", number)),
            how=self.how,
            columns=self.columns,
            draw=0,
            warned=set(),
        )
        codec = self.learned.codec
        tables.write_like(
            self.folder / part_name(number), str(path), codec.read, codec.schema, filled
        )
        return rows


def part_name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def sample_parts(
    learned: Learned,
    folder: Path,
    rows: int,
    request: Request,
    *,
    asked: Mapping[str, Any],
    part_rows: int,
    engine: Engine,
) -> Iterator[int]:
    """Write what is not there yet; `asked` tells a run from another. Rows of each part, in turn."""
    if part_rows < 1 or part_rows % BATCH_ROWS:
        raise UserError(f"part_rows is {part_rows}, but must be a multiple of {BATCH_ROWS}.")
    plan = {"what": "sample", "rows": rows, "part_rows": part_rows, **asked}
    work = SamplePart(_movable(learned, engine), rows, part_rows, request, folder)
    numbers = range(max(1, -(-rows // part_rows)))  # no rows are one empty part
    yield from _written(folder, plan, learned, work, [(k, k) for k in numbers], engine)


def impute_parts(
    learned: Learned,
    folder: Path,
    source: Any,
    request: Request,
    *,
    how: Imputation,
    columns: Sequence[str] | None,
    engine: Engine,
) -> Iterator[int]:
    """The same for gaps: a part for each CSV or Arrow file, or each row group of Parquet files."""
    pieces: list[tuple[int, Path, int | None]] = []
    files = files_of(source)
    for path in files:
        groups: Sequence[int | None] = [None]
        if tables.existing(path) == "parquet":
            with tables.reading(path, "parquet"):
                count = pyarrow.parquet.read_metadata(path).num_row_groups
            groups = range(count) if count else [None]
        pieces += [(len(pieces) + k, path, group) for k, group in enumerate(groups)]
    plan = {
        "what": "impute",
        "files": identity(files),
        "how": how,
        "columns": None if columns is None else list(columns),
        "seed": request.seed,
    }
    work = ImputePart(_movable(learned, engine), how, columns, request, folder)
    yield from _written(folder, plan, learned, work, [(one[0], one) for one in pieces], engine)


def _written(
    folder: Path,
    plan: Mapping[str, Any],
    learned: Learned,
    work: Callable[[Any], int],
    pieces: Sequence[tuple[int, Any]],
    engine: Engine,
) -> Iterator[int]:
    check(engine)
    _check_plan(folder, {**plan, "model": _digest(learned), "parts": len(pieces)})
    left = []
    for number, piece in pieces:
        path = folder / part_name(number)
        if not path.exists():
            left.append(piece)
            continue
        with tables.reading(path, "parquet"):
            yield int(pyarrow.parquet.read_metadata(path).num_rows)
    yield from each(work, left, engine=engine)


def _check_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """The folder is new, or holds parts of this very plan."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{str(folder)!r} is a file; name a folder to write parts into.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {str(folder)!r} cannot be made: {error.strerror}.") from error
    tables.clear(folder, "part-*")
    told = json.loads(json.dumps(plan))
    path = folder / PLAN
    if not path.exists() or not any(folder.glob("part-*")):
        if any(one.name != PLAN and one.name[0] != "." for one in folder.iterdir()):
            raise UserError(f"The folder {str(folder)!r} holds other files; name an empty one.")
        tables.write_text(path, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        differs = sorted(name for name in told | before if told.get(name) != before.get(name))
    except (ValueError, TypeError) as error:
        raise UserError(f"{str(path)!r} is damaged; empty the folder to start anew.") from error
    if differs:
        raise UserError(
            f"The folder {str(folder)!r} holds parts of another run: {', '.join(differs)} "
            f"{'differs' if len(differs) == 1 else 'differ'}. Ask for the same to go on with it, "
            "or name an empty folder."
        )


def _movable(learned: Learned, engine: Engine) -> Learned:
    """A model that other machines can take: they may have no GPU."""
    if engine == "local" or learned.net is None:
        return learned
    return dataclasses.replace(learned, net=copy.deepcopy(learned.net).cpu())


def _digest(learned: Learned) -> str:
    """Tells a model from another."""
    arrays, entries = codec_parts.to_parts(learned.codec)
    about = [learned.card.to_json(), learned.codec.schema.to_json(), entries]
    digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(arrays[name].tobytes())
    for tensor in [] if learned.net is None else learned.net.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
