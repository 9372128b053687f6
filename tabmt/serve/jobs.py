"""Jobs: a queue, and a process for each running job, so that training never blocks the server.

Each job has a folder: job.json contains its request and its state, events.ndjson its progress. Only
the server writes job.json. A job that was running when its server ended is marked as interrupted,
and can be resumed.
"""

import contextlib
import dataclasses
import json
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tabmt.errors import UserError
from tabmt.json_files import InvalidDataError, convert, json_text, read_json
from tabmt.serve.limits import MOST_QUEUED, MOST_RUNNING, STOP_SECONDS
from tabmt.serve.models import Models
from tabmt.serve.requests import JobKind, JobRequest
from tabmt.serve.worker import CANCELLED, DONE, FAILED
from tabmt.serve.workspace import NotFound, Results, Workspace, now
from tabmt.writing import write_text

log = logging.getLogger(__name__)

State = Literal["queued", "running", "finished", "failed", "cancelled", "interrupted"]
OPEN: tuple[State, ...] = ("queued", "running")
RESUMABLE: tuple[State, ...] = ("cancelled", "interrupted", "failed")
CAN_STOP: tuple[JobKind, ...] = ("fit", "synthesize")
UNKNOWN_END = "The process of this job has ended without saying why; it can be resumed."


class Busy(UserError):
    """The server has too much work already; a later request may succeed."""


@dataclass(frozen=True)
class Job:
    """A job as job.json stores it. `name` is the name of its table or model, for people."""

    id: str
    kind: JobKind
    name: str
    created: float
    state: State
    request: dict[str, Any]
    started: float | None = None
    ended: float | None = None
    error: str | None = None
    is_stopping: bool = False  # its training has been asked to stop


@dataclass
class Jobs:
    """All jobs of a work folder, and the processes of those that run."""

    workspace: Workspace
    models: Models
    _processes: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    _queue: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _is_closing: bool = False

    def __post_init__(self) -> None:
        for folder in self.workspace.job_folders():
            job = self._read(folder.name)
            if job.state in OPEN:
                self._write(dataclasses.replace(job, state="interrupted", ended=now()))

    # --- what people ask -------------------------------------------------------------------

    def submit(self, request: JobRequest) -> Job:
        """Put a new job into the queue."""
        paths, names, name = self._inputs(request)
        schema = None
        if request.table is not None and (kinds := self.workspace.table(request.table).overrides):
            schema = {"columns": [{"name": n, "kind": kind} for n, kind in kinds.items()]}
        with self._lock:
            if len(self._queue) >= MOST_QUEUED:
                raise Busy(f"{MOST_QUEUED} jobs are waiting already; wait until one has ended.")
            job_id, folder = self.workspace.new_job_folder()
            plain = request.model_dump(exclude_none=True)
            stored = {"request": plain, "paths": paths, "names": names, "schema": schema}
            write_text(folder / "request.json", json_text(stored))
            write_text(folder / "name.txt", name)
            job = Job(job_id, request.kind, name, now(), "queued", plain)
            self._write(job)
            self._queue.append(job_id)
            self._start_next()
        return self.job(job_id)

    def jobs(self) -> list[Job]:
        """The newest first."""
        jobs = [self._read(folder.name) for folder in self.workspace.job_folders()]
        return sorted(jobs, key=lambda job: -job.created)

    def job(self, job: str) -> Job:
        if not (self.workspace.jobs_folder / job / "job.json").exists():
            raise NotFound(f"There is no job with the id {job!r}.")
        return self._read(job)

    def events(self, job: str, after: int) -> list[dict[str, Any]]:
        """The events of a job from a number on."""
        self.job(job)
        path = self.workspace.jobs_folder / job / "events.ndjson"
        if not path.exists():
            return []
        with path.open(encoding="utf-8") as file:
            lines = [line for line in file if line.endswith("\n")]  # the last may be incomplete
        return [json.loads(line) for line in lines[after:]]

    def stop(self, job: str) -> Job:
        """End the training of a job, and do its other steps with the model so far."""
        with self._lock:
            current = self.job(job)
            if current.kind not in CAN_STOP:
                raise UserError(
                    "Only fit and synthesize jobs can be stopped early; cancel this one instead."
                )
            if current.state != "running":
                raise UserError(f"This job is {current.state}; only a running one can be stopped.")
            self._tell(job, "stop")
            self._write(dataclasses.replace(current, is_stopping=True))
        return self.job(job)

    def cancel(self, job: str) -> Job:
        """End a job; it can be resumed."""
        with self._lock:
            current = self.job(job)
            if current.state == "queued":
                self._queue.remove(job)
                self._write(dataclasses.replace(current, state="cancelled", ended=now()))
            elif current.state == "running":
                self._tell(job, "cancel")
                self._end_later(self._processes[job])
            else:
                raise UserError(f"This job is {current.state} already.")
        return self.job(job)

    def resume(self, job: str) -> Job:
        """Put an unfinished job into the queue again; it continues from its saved progress."""
        with self._lock:
            current = self.job(job)
            if current.state not in RESUMABLE:
                raise UserError(f"This job is {current.state}, so it cannot be resumed.")
            if len(self._queue) >= MOST_QUEUED:
                raise Busy(f"{MOST_QUEUED} jobs are waiting already; wait until one has ended.")
            again = dataclasses.replace(
                current, state="queued", error=None, ended=None, is_stopping=False
            )
            self._write(again)
            self._queue.append(job)
            self._start_next()
        return self.job(job)

    def remove(self, job: str) -> None:
        """Delete a job with its results."""
        with self._lock:
            current = self.job(job)
            if current.state in OPEN:
                raise UserError(f"This job is {current.state}; cancel it first.")
            shutil.rmtree(self.workspace.jobs_folder / job, ignore_errors=True)

    def inputs(self, job: str) -> tuple[dict[str, str], dict[str, Any] | None]:
        """The files of a job as people name them, and the schema that it was given."""
        stored = read_json(self.workspace.jobs_folder / job / "request.json", "request")
        return _shown(stored["paths"], stored["names"]), stored["schema"]

    def inputs_of(self, request: JobRequest) -> tuple[dict[str, str], dict[str, Any] | None]:
        """The same of a job that is not started yet."""
        paths, names, _ = self._inputs(request)
        return _shown(paths, names), None

    def needs_table(self, table: str) -> bool:
        """Whether an unfinished job reads a table."""
        named = (value for job in self.jobs() if job.state in OPEN for value in _ids(job))
        return table in named

    def results(self, job: str) -> Results:
        self.job(job)
        return self.workspace.results_of(job)

    def close(self) -> None:
        """End all processes; the jobs can be resumed."""
        with self._lock:
            self._is_closing = True
            self._queue.clear()
            running = list(self._processes.values())
            for process in running:
                _close_input(process)
        for process in running:
            _end(process)

    # --- processes -------------------------------------------------------------------------

    def _start_next(self) -> None:
        while self._queue and len(self._processes) < MOST_RUNNING and not self._is_closing:
            job = self._queue.pop(0)
            folder = self.workspace.jobs_folder / job
            (folder / "error.json").unlink(missing_ok=True)
            self._processes[job] = process = subprocess.Popen(
                [sys.executable, "-m", "tabmt.serve", "job", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # bugs are written into its folder
                text=True,
                process_group=0,  # Ctrl-C is for the server, which ends it in order
            )
            state = dataclasses.replace(self._read(job), state="running", started=now())
            self._write(state)
            threading.Thread(target=self._watch, args=(job, process), daemon=True).start()

    def _watch(self, job: str, process: "subprocess.Popen[str]") -> None:
        """Wait for a job to end, and store its final state."""
        code = process.wait()
        with self._lock:
            _close_input(process)
            del self._processes[job]
            ends: dict[int, State] = {DONE: "finished", FAILED: "failed", CANCELLED: "cancelled"}
            state, error = ends.get(code, "failed"), None
            if self._is_closing and state != "finished":
                state = "interrupted"
            elif state == "failed":
                error = self._error_of(job)
            current = self._read(job)
            self._write(dataclasses.replace(current, state=state, error=error, ended=now()))
            self._start_next()

    def _error_of(self, job: str) -> str:
        path = self.workspace.jobs_folder / job / "error.json"
        try:
            return str(read_json(path, "error")["error"])
        except (UserError, KeyError):
            return UNKNOWN_END

    def _tell(self, job: str, order: str) -> None:
        stdin = self._processes[job].stdin
        assert stdin is not None
        with contextlib.suppress(OSError):  # it has just ended
            stdin.write(f"{order}\n")
            stdin.flush()

    def _end_later(self, process: "subprocess.Popen[str]") -> None:
        threading.Thread(target=_end, args=(process,), daemon=True).start()

    # --- files -----------------------------------------------------------------------------

    def _inputs(self, request: JobRequest) -> tuple[dict[str, str], dict[str, str], str]:
        """The files that a job reads, their names for people, and the name of the job."""
        paths: dict[str, str] = {}
        names: dict[str, str] = {}
        for item in ("table", "synthetic", "train", "test"):
            if (table := getattr(request, item)) is not None:
                paths[item] = str(self.workspace.table_path(table))
                names[paths[item]] = self.workspace.table(table).name
        if request.model is not None:
            entry = self.models.entry(request.model)
            paths["model"] = str(entry.path)
            names[paths["model"]] = entry.name
            for item in ("train", "test"):
                own = entry.results.file(item)
                if item not in paths and own is not None:
                    paths[item] = str(own)
            if request.kind == "pareto" and not {"train", "test"} <= set(paths):
                raise UserError(
                    "No real rows are stored with this model. Upload the training rows as `train` "
                    "and other real rows as `test`."
                )
        main = paths.get("table") or paths.get("synthetic") or paths["model"]
        return paths, names, names[main]

    def _read(self, job: str) -> Job:
        path = self.workspace.jobs_folder / job / "job.json"
        try:
            return convert(read_json(path, "job"), Job)
        except InvalidDataError as error:
            raise UserError(f"The job {job!r} is damaged; delete its folder.") from error

    def _write(self, job: Job) -> None:
        path = self.workspace.jobs_folder / job.id / "job.json"
        write_text(path, json_text(dataclasses.asdict(job)))


def _shown(paths: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Paths for a command: an uploaded table has the name of its file, a model has its path."""
    return {
        item: path if item == "model" else names.get(path, path) for item, path in paths.items()
    }


def _ids(job: Job) -> list[str]:
    request: Mapping[str, Any] = job.request
    return [str(request[k]) for k in ("table", "synthetic", "train", "test") if k in request]


def _close_input(process: "subprocess.Popen[str]") -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _end(process: "subprocess.Popen[str]") -> None:
    """Wait until a process has saved its state; end it if that takes too long."""
    for end in (process.terminate, process.kill):
        try:
            process.wait(STOP_SECONDS)
            return
        except subprocess.TimeoutExpired:
            end()
