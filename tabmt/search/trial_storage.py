"""Optuna's studies, as both searches use them: where trials are stored, and which remain.

Several processes, and several machines, may share one storage. If one of them dies, its unfinished
trials are marked as failed and, if they were requested, repeated.
"""

import logging
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabmt.errors import UserError, not_installed

if TYPE_CHECKING:
    import optuna
    from optuna import Study
    from optuna.trial import FrozenTrial

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
OPEN_ATTEMPTS = 4
# What databases say if another process is creating the tables of a new one.
CREATED_MEANWHILE = ("already exists", "UNIQUE constraint", "unique constraint", "no such table")
LOCK_SECONDS = 60.0  # to wait for another worker to write its trial
UNCLAIMED_SECONDS = 5.0  # after which a running trial without a worker's name is given up


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise not_installed("A search", "Optuna", "search") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@dataclass(frozen=True)
class StudyLocation:
    """A study in a storage: a file in which Optuna keeps a journal, or the URL of a database."""

    storage: str
    name: str
    directions: tuple[str, ...]

    def open(self, sampler: "optuna.samplers.BaseSampler | None" = None) -> "Study":
        optuna = import_optuna()
        attempt = 1
        while True:
            try:
                study: Study = optuna.create_study(
                    storage=self._storage(optuna),
                    study_name=self.name,
                    directions=list(self.directions),
                    sampler=sampler,
                    pruner=optuna.pruners.MedianPruner(
                        n_startup_trials=5, n_warmup_steps=2, n_min_trials=4
                    ),
                    load_if_exists=True,
                )
                return study
            except UserError:
                raise
            except Exception as error:  # each database driver has exceptions of its own
                reason = str(error.__cause__ or error).partition("\n")[0]
                if attempt < OPEN_ATTEMPTS and any(text in reason for text in CREATED_MEANWHILE):
                    time.sleep(attempt * RETRY_SECONDS)
                    attempt += 1
                    continue
                raise UserError(
                    f"The storage {without_password(self.storage)!r} cannot be used: {reason}. "
                    "Give a file to store the trials in, or the URL of a database, such as "
                    "sqlite:///trials.db."
                ) from error

    def _storage(self, optuna: Any) -> Any:
        if self.storage.startswith("sqlite://"):
            return _sqlite_storage(optuna, self.storage)
        if "://" in self.storage:
            return self.storage
        folder = Path(self.storage).resolve().parent
        if not folder.is_dir():
            raise UserError(f"There is no folder {str(folder)!r} to store the trials in.")
        journal = optuna.storages.journal
        # Optuna's default lock, a symbolic link, waits for ever for an owner that was killed if the
        # path is relative; this one gives up after 30 seconds.
        lock = journal.JournalFileOpenLock(self.storage)
        return journal.JournalStorage(journal.JournalFileBackend(self.storage, lock_obj=lock))


def _sqlite_storage(optuna: Any, url: str) -> Any:
    """SQLite reads without a lock and has no `SELECT ... FOR UPDATE`, by which Optuna gives every
    requested trial to one worker only. So each transaction takes the lock before it reads."""
    from sqlalchemy import event

    waiting = {"connect_args": {"timeout": LOCK_SECONDS}}
    storage = optuna.storages.RDBStorage(url, engine_kwargs=waiting)

    @event.listens_for(storage.engine, "connect")
    def no_implicit_transactions(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(storage.engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()  # the connections that were made before
    return storage


def without_password(storage: str) -> str:
    """A storage as it may be shown: URLs may contain a password."""
    return re.sub(r"(://[^/@]*?):[^/@]*@", r"\1:***@", storage)


def claim(study: "Study", about: Mapping[str, Any], storage: str) -> None:
    """Store what a new study is about, or see that an old one is about the same."""
    stored = study.user_attrs.get("about")
    if stored is None:
        study.set_user_attr("about", dict(about))
        return
    for name, value in about.items():
        if stored.get(name) != value:
            raise UserError(
                f"The trials in {without_password(storage)!r} were made with {name} "
                f"{stored.get(name)!r}, not {value!r}. Use the same value to resume, or "
                "another storage or study."
            )


# --- who works on a trial ------------------------------------------------------------------


def this_worker() -> tuple[str, int, str]:
    """What tells this process from others: its machine, number and start time."""
    return machine_name(), os.getpid(), process_start_time(os.getpid())


def machine_name() -> str:
    """The machine's name and number, because several machines may have the same name."""
    return f"{socket.gethostname()} {_first_line('/etc/machine-id')}"


def process_start_time(pid: int) -> str:
    """When the machine and the process were started, so that a reused process number is not taken
    for the old process; "" if there is no such process."""
    boot = _first_line("/proc/sys/kernel/random/boot_id")
    if status := _first_line(f"/proc/{pid}/stat"):
        return f"{boot} {status.rpartition(')')[2].split()[19]}"
    try:  # this system has no /proc
        os.kill(pid, 0)
    except OSError:
        return ""
    return "alive"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""  # this system has no such file


def fail_stale_trials(study: "Study") -> int:
    """Give up the trials of this machine's dead processes; requested ones are requested again."""
    states = import_optuna().trial.TrialState
    failed = 0
    while True:
        wait = 0.0  # seconds until every unclaimed trial is old enough to be given up
        for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            worker = trial.user_attrs.get("worker")
            if worker is None:
                started = trial.datetime_start
                age = time.time() - started.timestamp() if started else UNCLAIMED_SECONDS
                wait = max(wait, UNCLAIMED_SECONDS - age)
                is_dead = age >= UNCLAIMED_SECONDS
            else:
                machine, pid, start_time = worker
                is_dead = machine == machine_name() and process_start_time(pid) != start_time
            if is_dead:
                _fail_and_request_again(study, trial)
                failed += 1
        if wait <= 0:
            return failed
        time.sleep(min(wait, UNCLAIMED_SECONDS) + 0.1)  # a clock may be off by any time


def _fail_and_request_again(study: "Study", trial: "FrozenTrial") -> None:
    failed = import_optuna().trial.TrialState.FAIL
    study.tell(trial.number, state=failed, skip_if_finished=True)
    if params := trial.system_attrs.get("fixed_params"):  # Optuna's name for a requested trial
        kept = {name: value for name, value in trial.user_attrs.items() if name != "worker"}
        study.enqueue_trial(params, user_attrs=kept)


# --- trials ------------------------------------------------------------------------------------


def request_trials(
    study: "Study",
    key: str,
    wanted: Mapping[Any, Mapping[str, Any]],
    *,
    also_running: bool = False,
) -> None:
    """See that each of these parameters is tried once; `key` is the attribute that names them.

    Called at every start, because a search may have died at any point; failed trials are requested
    again. With `also_running`, those that another machine has begun are requested instead.
    """
    if failed := fail_stale_trials(study):
        log.info("marked %d trials of an interrupted search as failed", failed)
    states = import_optuna().trial.TrialState
    redo = states.RUNNING if also_running else states.FAIL
    done = {t.user_attrs.get(key) for t in study.get_trials(deepcopy=False) if t.state != redo}
    for name, params in wanted.items():
        if name not in done:
            study.enqueue_trial(dict(params), user_attrs={key: name})


def completed_trials(study: "Study") -> list["FrozenTrial"]:
    state = import_optuna().trial.TrialState.COMPLETE
    return study.get_trials(deepcopy=False, states=(state,))


def completed_in_order(study: "Study") -> list["FrozenTrial"]:
    """The completed trials in the order in which they were completed."""
    trials = completed_trials(study)
    return sorted(trials, key=lambda trial: (trial.datetime_complete, trial.number))


def waiting_count(study: "Study") -> int:
    state = import_optuna().trial.TrialState.WAITING
    return len(study.get_trials(deepcopy=False, states=(state,)))


def finished_count(study: "Study") -> int:
    """The number of trials that are completed or pruned."""
    states = import_optuna().trial.TrialState
    return len(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))


def no_trials_error(study: "Study", limited: bool) -> UserError:
    """What to say when no trial was completed."""
    for trial in study.get_trials(deepcopy=False):
        if "error" in trial.user_attrs:
            return UserError(f"Every trial failed; the first said: {trial.user_attrs['error']}")
    if limited:
        return UserError("No trial was completed in the given time; allow more minutes.")
    return UserError("No trial was completed; see the messages above.")
