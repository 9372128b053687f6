"""The work folder: uploaded tables and jobs with their results, readable by their owner only.

    tables/ID/about.json, table.csv     jobs/ID/job.json, events.ndjson, results/...

Requests name things by the random ids of these folders, never by a path.
"""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabmt.data import files
from tabmt.data.schema import Schema
from tabmt.errors import UserError
from tabmt.json_files import convert, json_text, parse_json, read_bounded, read_json
from tabmt.printable import printable
from tabmt.serve.limits import MOST_JOBS, MOST_NAME, MOST_TABLES
from tabmt.synthesis.results_folder import REAL_ROWS
from tabmt.writing import make_folder, remove_abandoned, write_text

ID = r"^[0-9a-f]{16}$"
README = """\
This folder belongs to `tabmt serve`. It contains REAL rows: the tables that were uploaded to the
page, and the results of jobs. Do not share it. Tables and jobs can be deleted on the page; when no
`tabmt serve` runs, the whole folder can be deleted.
"""


class NotFound(UserError):
    """A new random id."""


@dataclass(frozen=True)
class Table:
    """An uploaded file. `overrides` are the kinds that a person has chosen."""

    id: str
    name: str  # of the file, for people
    created: float
    bytes: int
    rows: int
    schema: dict[str, Any]
    overrides: dict[str, str] = dataclasses.field(default_factory=dict)  # column -> kind


def new_id() -> str:
    return secrets.token_hex(8)


class Workspace:
    """The work folder of one server."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        for part in (folder, self.tables_folder, self.jobs_folder):
            make_folder(part)
        remove_abandoned(folder)
        if not (folder / "README.txt").exists():
            write_text(folder / "README.txt", README)
        for entry in self.tables_folder.iterdir():  # of a server that was killed
            if not (entry / "about.json").exists():
                shutil.rmtree(entry, ignore_errors=True)

    @property
    def tables_folder(self) -> Path:
        return self.path / "tables"

    @property
    def jobs_folder(self) -> Path:
        return self.path / "jobs"

    # --- tables ----------------------------------------------------------------------------

    def new_table_path(self, name: str) -> tuple[str, Path]:
        """An id and a path for an uploaded file; its folder is created."""
        suffix = files.suffix_of(check_name(name))
        if sum(1 for _ in self.tables_folder.iterdir()) >= MOST_TABLES:
            raise UserError(f"There are {MOST_TABLES} tables already; delete one first.")
        table = new_id()
        folder = self.tables_folder / table
        make_folder(folder)
        return table, folder / f"table{suffix}"

    def table_path(self, table: str) -> Path:
        folder = self.tables_folder / table
        path = next(folder.glob("table.*"), None) if (folder / "about.json").exists() else None
        if path is None:
            raise NotFound(f"There is no table with the id {table!r}.")
        return path

    def save_table(self, table: Table) -> None:
        path = self.tables_folder / table.id / "about.json"
        write_text(path, json_text(dataclasses.asdict(table)))

    def table(self, table: str) -> Table:
        self.table_path(table)
        stored = read_json(self.tables_folder / table / "about.json", "table")
        return convert(stored, Table)

    def tables(self) -> list[Table]:
        """The newest first."""
        ids = [path.name for path in self.tables_folder.iterdir()]
        tables = [self.table(i) for i in ids if (self.tables_folder / i / "about.json").exists()]
        return sorted(tables, key=lambda table: -table.created)

    def remove_table(self, table: str) -> None:
        self.table_path(table)
        shutil.rmtree(self.tables_folder / table, ignore_errors=True)

    # --- jobs ------------------------------------------------------------------------------

    def new_job_folder(self) -> tuple[str, Path]:
        if sum(1 for _ in self.jobs_folder.iterdir()) >= MOST_JOBS:
            raise UserError(f"There are {MOST_JOBS} jobs already; delete one first.")
        job = new_id()
        make_folder(self.jobs_folder / job)
        return job, self.jobs_folder / job

    def job_folders(self) -> Iterator[Path]:
        return (path for path in self.jobs_folder.iterdir() if (path / "job.json").exists())

    def results_of(self, job: str) -> "Results":
        return Results(self.jobs_folder / job / "results")


@dataclass(frozen=True)
class Results:
    """The files that `synthesize`, `fit`, `evaluate` or `pareto` leave in a folder."""

    folder: Path | None  # None: there are no results

    def file(self, name: str) -> Path | None:
        """The path of a result by its name; None if there is none."""
        if self.folder is None:
            return None
        fixed = {"model": "model.tabmt", "report": "report.html", "scores": "evaluation.json",
                 "readme": "README.txt", "front": "front.json"}  # fmt: skip
        if name == "synthetic":
            return self._table(self.folder, "synthetic")
        if name in ("train", "test"):
            return self._table(self.folder / REAL_ROWS, name)
        path = self.folder / fixed[name]
        return path if path.is_file() else None

    def scores(self) -> dict[str, Any] | None:
        """The stored evaluation, if there is one."""
        path = self.file("scores")
        if path is None:
            return None
        stored = parse_json(read_bounded(path, "scores"))
        first = stored[0] if isinstance(stored, list) and stored else None
        return first if isinstance(first, dict) else None

    @staticmethod
    def _table(folder: Path, stem: str) -> Path | None:
        paths = (folder / f"{stem}{suffix}" for suffix in files.SUFFIXES)
        return next((path for path in paths if path.is_file()), None)


def check_name(name: str) -> str:
    """Check the name of an uploaded file: no path, and an extension of a known format."""
    shown = printable(name)[:MOST_NAME]
    if not name or len(name) > MOST_NAME or name != printable(name):
        raise UserError(f"A file name must have 1 to {MOST_NAME} printable characters.")
    if "/" in name or "\\" in name or name.startswith("."):
        raise UserError(f"{shown!r} is a path; give the name of a file.")
    if not files.suffix_of(name):
        raise UserError(
            f"{shown!r} has an unknown file extension; it must be one of: "
            f"{', '.join(files.SUFFIXES)}."
        )
    return name


def schema_summary(schema: Schema) -> dict[str, Any]:
    """A schema as the page shows it: without the source of the table."""
    content = schema.to_json()
    content.pop("source", None)
    return content


def now() -> float:
    return time.time()
