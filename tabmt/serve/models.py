"""The models that the server has: those named on the command line, and those of finished jobs."""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.report.report import OUTCOMES, overview, verdict
from tabmt.evaluation.results import Evaluation
from tabmt.model.model_file import model_fingerprint
from tabmt.outputs import is_of_format
from tabmt.search.pareto_front import Front
from tabmt.serve.limits import MOST_LOADED
from tabmt.serve.workspace import NotFound, Results, Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelEntry:
    """A model file. `shown` is its path as people write it in a command."""

    id: str
    name: str
    path: Path
    shown: str
    created: float
    is_given: bool  # on the command line

    @property
    def results(self) -> Results:
        """The results that belong to it: those of a job, or of `synthesize`."""
        folder = self.path.parent
        belong = not self.is_given or (
            self.path.name == "model.tabmt" and (folder / "arguments.json").is_file()
        )
        return Results(folder if belong else None)


@dataclass
class LoadedModel:
    """A model in memory, with values that are computed once."""

    entry: ModelEntry
    model: TabMT

    @cached_property
    def fingerprint(self) -> str:
        return model_fingerprint(self.model.model_)


class Models:
    """All models; the most recently used ones stay in memory."""

    def __init__(self, workspace: Workspace, given: Sequence[str]) -> None:
        self._workspace = workspace
        self._given = [_given_entry(name) for name in given]
        self._loaded: OrderedDict[tuple[str, int], LoadedModel] = OrderedDict()
        self._lock = threading.Lock()

    def entries(self) -> list[ModelEntry]:
        """Those of the command line first, then those of jobs, the newest first."""
        jobs = [self._of_job(folder.name) for folder in self._workspace.job_folders()]
        made = sorted((e for e in jobs if e is not None), key=lambda entry: -entry.created)
        return [*self._given, *made]

    def entry(self, model: str) -> ModelEntry:
        for entry in self._given:
            if entry.id == model:
                return entry
        entry_of_job = self._of_job(model)
        if entry_of_job is None:
            raise NotFound(f"There is no model with the id {model!r}.")
        return entry_of_job

    def _of_job(self, job: str) -> ModelEntry | None:
        path = self._workspace.results_of(job).file("model")
        name_file = self._workspace.jobs_folder / job / "name.txt"
        if path is None or not name_file.exists():
            return None
        name = name_file.read_text(encoding="utf-8")
        return ModelEntry(job, name, path, str(path), path.stat().st_mtime, is_given=False)

    def load(self, model: str) -> LoadedModel:
        """Read a model, unless it is in memory and its file has not changed."""
        entry = self.entry(model)
        with self._lock:
            key = (entry.id, entry.path.stat().st_mtime_ns)
            if key not in self._loaded:
                self._loaded[key] = LoadedModel(entry, TabMT.load(entry.path))
            self._loaded.move_to_end(key)
            while len(self._loaded) > MOST_LOADED:
                self._loaded.popitem(last=False)
            return self._loaded[key]

    def in_memory(self, model: str) -> LoadedModel | None:
        """A model that need not be read, nor waited for."""
        entry = self.entry(model)
        key = (entry.id, entry.path.stat().st_mtime_ns)
        if not self._lock.acquire(blocking=False):  # another one is being read
            return None
        try:
            if key in self._loaded:
                self._loaded.move_to_end(key)
            return self._loaded.get(key)
        finally:
            self._lock.release()

    def front_path(self, loaded: LoadedModel) -> Path | None:
        """The newest Pareto front of a model: of a job, or a file beside the model."""
        jobs = (self._workspace.results_of(f.name) for f in self._workspace.job_folders())
        paths = [path for results in jobs if (path := results.file("front")) is not None]
        paths += list(loaded.entry.path.parent.glob("*.json"))
        for path in sorted(paths, key=lambda path: -path.stat().st_mtime):
            try:
                if is_of_format(path, "front") and (
                    Front.load(path).search["model"] == loaded.fingerprint
                ):
                    return path
            except UserError:
                log.warning(
                    "Model %r: its Pareto front cannot be read and is not shown.", loaded.entry.name
                )
        return None

    def front(self, loaded: LoadedModel) -> Front | None:
        path = self.front_path(loaded)
        return None if path is None else Front.load(path)


def _given_entry(name: str) -> ModelEntry:
    path = Path(name)
    if path.is_dir():
        path = path / "model.tabmt"
    if not path.is_file():
        raise UserError(f"There is no model {str(path)!r}.")
    if not is_of_format(path, "model"):
        raise UserError(f"{str(path)!r} is not a TabMT model.")
    digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()
    # The model of a results folder is called after the folder.
    shown = path.resolve().parent.name if path.name == "model.tabmt" else path.stem
    return ModelEntry(digest, shown, path, str(path), path.stat().st_mtime, is_given=True)


def verdict_of(results: Results, name: str) -> dict[str, Any] | None:
    """The stored verdict of a model or job, for people and programs; None if there is none.

    `name` is that of the model or job, for the log.
    """
    stored = results.scores()
    if stored is None:
        return None
    try:
        evaluation = Evaluation.from_json(stored)
    except ValueError:
        log.warning("The scores of %r are from another version and are not shown.", name)
        return None
    privacy = evaluation.privacy
    return {
        "outcome": privacy.outcome,
        "title": OUTCOMES[privacy.outcome],
        "sentences": verdict(evaluation)[1:],
        "facts": [
            {"title": f.title, "value": f.value, "comparison": f.comparison}
            for f in overview(evaluation)
        ],
        "attacks": [
            {"title": a.title, "risk": a.risk, "risk_low": a.risk_low, "risk_high": a.risk_high,
             "success": a.success, "control_success": a.control_success}
            for a in privacy.attacks
        ],
        "max_risk": privacy.max_risk,
        "passed": privacy.passed,
        "rows": evaluation.rows,
    }  # fmt: skip
