"""What the API does, without HTTP: one object for all requests of a server."""

import asyncio
import contextlib
import dataclasses
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from tabmt.data import files
from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.errors import UserError
from tabmt.json_files import json_text
from tabmt.model.stored_values import describe
from tabmt.search.charts import TITLES
from tabmt.serve import equivalents, rows
from tabmt.serve.access import Access
from tabmt.serve.distributions import Baseline, shares
from tabmt.serve.formats import encode, plain_rows
from tabmt.serve.jobs import CAN_STOP, RESUMABLE, Job, Jobs
from tabmt.serve.limits import MOST_COLUMNS, REQUEST_SECONDS, ROWS_AT_ONCE, SMALL_ROWS
from tabmt.serve.models import LoadedModel, ModelEntry, Models, verdict_of
from tabmt.serve.requests import (
    CompleteRequest,
    DistributionRequest,
    JobRequest,
    SampleRequest,
    check_rows,
    conditions,
)
from tabmt.serve.rows import RowsRequest, What
from tabmt.serve.sampling import Lane, Pieces, Streams, Task
from tabmt.serve.workspace import Results, Table, Workspace, now, schema_summary
from tabmt.writing import OWNER_ONLY

Result = TypeVar("Result")

PREVIEW_ROWS = 8
FILES = ("synthetic", "model", "report", "scores", "readme", "front")  # never the real rows


class TooSlow(UserError):
    """A request has taken longer than it may."""


@dataclass
class Service:
    """Everything that one server has."""

    workspace: Workspace
    models: Models
    jobs: Jobs
    access: Access
    streams: Streams = field(default_factory=Streams)
    _small: Lane = field(default_factory=lambda: Lane("small requests"))
    _medium: Lane = field(default_factory=lambda: Lane("medium requests"))
    _baselines: dict[str, Baseline] = field(default_factory=dict)  # by fingerprint
    _baseline_lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, folder: Path, given: Sequence[str], access: Access) -> "Service":
        workspace = Workspace(folder)
        models = Models(workspace, given)
        return cls(workspace, models, Jobs(workspace, models), access)

    # --- rows ------------------------------------------------------------------------------

    async def rows(self, model: str, what: What, request: RowsRequest) -> bytes | Pieces:
        """The rows that a request asks for: as they are made, if they may be many."""
        entry = self.models.entry(model)
        table = None if isinstance(request, SampleRequest) else request.table
        count = _number_of_rows(request)
        if table is not None or count > ROWS_AT_ONCE:
            return await self.streams.start(await self._order(entry, what, request, table))
        loaded = await self._loaded(model)

        def encoded(table: pa.Table, one: RowsRequest) -> bytes:
            schema = rows.answer_schema(loaded.model.schema_, one)
            escape = one.escape_formulas
            return b"".join(encode([table], schema, one.format, escape_formulas=escape))

        return await self._drawn(loaded, request, count, encoded)

    async def _loaded(self, model: str) -> LoadedModel:
        """A model; without a thread if it is in memory, as the change to one costs more."""
        loaded = self.models.in_memory(model)
        return await asyncio.to_thread(self.models.load, model) if loaded is None else loaded

    async def _drawn(
        self,
        loaded: LoadedModel,
        request: RowsRequest,
        count: int,
        finish: Callable[[pa.Table, RowsRequest], Result],
    ) -> Result:
        """A few rows, drawn by a thread of this process, which also puts them in their form."""

        def draw(requests: Sequence[RowsRequest]) -> Sequence[Result]:
            point = getattr(requests[0], "point", None)
            front = None if point is None else self.models.front(loaded)
            tables = rows.answer_together(loaded.model, requests, front)
            return [finish(table, one) for table, one in zip(tables, requests, strict=True)]

        lane = self._small if count <= SMALL_ROWS else self._medium
        task = Task(_key(loaded, request), count, request, draw)
        return await _bounded(lane.submit(task))

    async def _order(
        self, entry: ModelEntry, what: What, request: RowsRequest, table: str | None
    ) -> dict[str, Any]:
        """The instructions for a separate process."""
        path = front = None
        names = {str(entry.path): entry.name}
        if table is not None:
            path = str(self.workspace.table_path(table))
            names[path] = self.workspace.table(table).name
        if getattr(request, "point", None) is not None:
            loaded = await asyncio.to_thread(self.models.load, entry.id)
            front = await asyncio.to_thread(self.models.front_path, loaded)
        return {
            "what": what,
            "request": request.model_dump(mode="json"),
            "model": str(entry.path),
            "table": path,
            "front": None if front is None else str(front),
            "names": names,
        }

    # --- models ----------------------------------------------------------------------------

    def models_list(self) -> list[dict[str, Any]]:
        return [_entry_json(entry) for entry in self.models.entries()]

    def model(self, model: str) -> dict[str, Any]:
        """A model's card, schema, verdict and front, and which real values its file contains."""
        loaded = self.models.load(model)
        front = self.models.front(loaded)
        estimator = loaded.model
        return {
            **_entry_json(loaded.entry),
            "card": estimator.card_.to_json(),
            "schema": schema_summary(estimator.schema_),
            "real_values": describe(estimator.model_),
            "verdict": verdict_of(loaded.entry.results, loaded.entry.name),
            "files": files_of(loaded.entry.results),
            "search": self._search(loaded.entry),
            "front": None
            if front is None
            else {
                "privacy": front.privacy,
                "quality": front.quality,
                "titles": {"privacy": TITLES[front.privacy], "quality": TITLES[front.quality]},
                "points": [
                    {"point": number, "privacy": p.test_privacy, "quality": p.test_quality,
                     "temperatures": p.temperatures}
                    for number, p in enumerate(front.points, 1)
                ],
                "real": front.real,
            },
        }  # fmt: skip

    def columns(self, model: str) -> dict[str, Any]:
        """The columns of a model, with the shares of rows that are drawn without a condition."""
        baseline = self.baseline(self.models.load(model))
        return {
            "columns": [
                {**dataclasses.asdict(axis), **share}
                for axis, share in zip(baseline.axes, baseline.columns, strict=True)
            ],
            "rows": list(baseline.rows[:PREVIEW_ROWS]),
        }

    def baseline(self, loaded: LoadedModel) -> Baseline:
        with self._baseline_lock:
            if loaded.fingerprint not in self._baselines:
                self._baselines[loaded.fingerprint] = Baseline.of(loaded.model)
            return self._baselines[loaded.fingerprint]

    async def distributions(self, model: str, request: DistributionRequest) -> dict[str, Any]:
        """What rows with some conditions are like, and the commands that make them."""
        loaded = await self._loaded(model)
        baseline = await asyncio.to_thread(self.baseline, loaded)
        drawing = request.model_dump(include={"rows", "where", "temperature", "point", "seed"})
        sample = SampleRequest.model_validate(drawing)
        table = await self._drawn(loaded, sample, request.rows, lambda table, _: table)
        front = await asyncio.to_thread(self.models.front, loaded) if request.point else None
        temperature = rows.temperature_of(request.temperature, request.point, front)
        asked: dict[str, Any] = {"seed": request.seed, "temperature": temperature}
        where, shown = conditions(request.where), loaded.entry.shown
        columns = await asyncio.to_thread(shares, loaded.model, baseline.axes, table)
        return {
            "columns": columns,
            "rows": plain_rows(table.slice(0, PREVIEW_ROWS)),
            "command": equivalents.sample_command(shown, request.download_rows, where, **asked),
            "python": equivalents.sample_code(shown, request.download_rows, where, **asked),
        }

    def complete_equivalents(self, model: str, request: CompleteRequest) -> dict[str, str]:
        """The command and the code that complete the rows of a request."""
        loaded = self.models.load(model)
        if not request.rows or not all(request.rows):
            raise UserError("Give at least one cell of each row.")
        check_rows(request.rows, loaded.model.schema_.names)
        front = self.models.front(loaded) if request.point else None
        temperature = rows.temperature_of(request.temperature, request.point, front)
        asked: dict[str, Any] = {"seed": request.seed or 0, "temperature": temperature}
        shown = loaded.entry.shown
        return {
            "command": equivalents.complete_command(shown, request.rows, **asked),
            "python": equivalents.complete_code(shown, request.rows, **asked),
        }

    # --- tables ----------------------------------------------------------------------------

    async def add_table(self, name: str, body: AsyncIterator[bytes]) -> Table:
        """Store an uploaded file while it arrives, and infer its columns."""
        table, path = self.workspace.new_table_path(name)
        try:
            with open(path, "xb", opener=_for_owner_only) as file:
                async for piece in body:
                    file.write(piece)
            return await asyncio.to_thread(self._read_table, table, name, path)
        except BaseException:
            shutil.rmtree(path.parent, ignore_errors=True)
            raise

    def _read_table(self, table: str, name: str, path: Path) -> Table:
        with self.named({str(path): name}):
            dataset = Dataset.open(path)
            if dataset.num_columns > MOST_COLUMNS:
                raise UserError(
                    f"{name!r} has {dataset.num_columns:,} columns; the page accepts "
                    f"at most {MOST_COLUMNS:,}. Use `tabmt synthesize`."
                )
            schema = schema_summary(infer_schema(path))
        about = Table(table, name, now(), path.stat().st_size, dataset.num_rows, schema)
        self.workspace.save_table(about)
        return about

    def set_kinds(self, table: str, kinds: dict[str, Any]) -> Table:
        """Override the inferred kinds of some columns; earlier overrides are dropped."""
        about, path = self.workspace.table(table), self.workspace.table_path(table)
        columns = [{"name": name, "kind": kind} for name, kind in kinds.items()]
        with self.named({str(path): about.name}):
            schema = schema_summary(infer_schema(path, overrides={"columns": columns}))
        changed = dataclasses.replace(about, schema=schema, overrides=dict(kinds))
        self.workspace.save_table(changed)
        return changed

    def remove_table(self, table: str) -> None:
        if self.jobs.needs_table(table):
            raise UserError("An unfinished job uses this table; cancel the job first.")
        self.workspace.remove_table(table)

    @staticmethod
    @contextlib.contextmanager
    def named(names: dict[str, str]) -> Any:
        """Replace paths in error messages by the names that the user gave."""
        try:
            yield
        except UserError as error:
            raise type(error)(public(str(error), names)) from error

    # --- jobs ------------------------------------------------------------------------------

    def job(self, job: str, after: int) -> dict[str, Any]:
        """A job, its events from number `after` on, its verdict and its files."""
        current = self.jobs.job(job)
        results = self.jobs.results(job)
        return {
            **self.job_json(current),
            "events": self.jobs.events(job, after),
            "verdict": verdict_of(results, current.name) if current.state == "finished" else None,
            "files": files_of(results),
        }

    def job_json(self, job: Job) -> dict[str, Any]:
        return {
            **dataclasses.asdict(job),
            "can_stop": job.state == "running" and job.kind in CAN_STOP and not job.is_stopping,
            "can_cancel": job.state in ("queued", "running"),
            "can_resume": job.state in RESUMABLE,
            **_equivalents(job.request, *self.jobs.inputs(job.id)),
        }

    def _search(self, entry: ModelEntry) -> dict[str, str] | None:
        """The command and the code that search a front for a model; None if it has no real rows."""
        if entry.results.file("train") is None or entry.results.file("test") is None:
            return None
        request = JobRequest.model_validate({"kind": "pareto", "model": entry.id})
        return _equivalents(request.model_dump(), *self.jobs.inputs_of(request))


def files_of(results: Results) -> list[str]:
    """The names of the files that may be downloaded."""
    return [name for name in FILES if results.file(name) is not None]


def public(sentence: str, names: dict[str, str]) -> str:
    """A sentence with the names of files in place of their paths."""
    for path, name in names.items():
        sentence = sentence.replace(path, name)
    return sentence


def download_name(owner: str, what: str, suffix: str) -> str:
    """A file name that every system takes; `owner` is a model, or a table that was uploaded."""
    entry = f"{owner[: len(owner) - len(files.suffix_of(owner))]}-{what}"
    stem = "".join(char if char.isascii() and char.isalnum() else "-" for char in entry)
    return f"{stem.strip('-')[:60] or 'rows'}{suffix}"


def suffix_of(path: Path) -> str:
    return files.suffix_of(path) or path.suffix


def _for_owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, OWNER_ONLY)


def _equivalents(
    request: dict[str, Any], paths: dict[str, str], schema: dict[str, Any] | None
) -> dict[str, str]:
    return {
        "command": equivalents.job_command(request, paths, schema),
        "python": equivalents.job_code(request, paths, schema),
    }


def _entry_json(entry: ModelEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.name,
        "created": entry.created,
        "is_given": entry.is_given,
        "outcome": (verdict_of(entry.results, entry.name) or {}).get("outcome"),
    }


def _number_of_rows(request: RowsRequest) -> int:
    return request.rows if isinstance(request, SampleRequest) else len(request.rows or ())


def _key(loaded: LoadedModel, request: RowsRequest) -> str | None:
    """What requests have in common that can be drawn together; None if this one cannot be."""
    if not isinstance(request, SampleRequest | CompleteRequest) or request.seed is not None:
        return None
    if isinstance(request, SampleRequest) and request.balance is not None:
        return None
    own = {"rows", "where", "format", "escape_formulas"}
    options = request.model_dump(mode="json", exclude=own)
    return json_text([type(request).__name__, loaded.entry.id, loaded.fingerprint, options])


async def _bounded(future: "Future[Result]") -> Result:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), REQUEST_SECONDS)
    except TimeoutError as error:
        raise TooSlow(
            f"This took longer than {REQUEST_SECONDS:.0f} seconds; ask for fewer rows, or relax a "
            "condition."
        ) from error
