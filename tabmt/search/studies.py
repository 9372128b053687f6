"""Optuna's studies as both searches use them: where they lie, and who works on them.

Each worker process asks the storage for a trial, does it and tells the storage, so nothing is lost
when a process dies, and several machines can share one storage. What a trial does is the job's.
"""

import ctypes
import dataclasses
import hashlib
import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np

from tabmt.errors import UserError
from tabmt.seeds import derive

if TYPE_CHECKING:
    import optuna
    from optuna import Study

    from tabmt.evaluation.metrics.view import View

log = logging.getLogger(__name__)

PARENT_DEATH_SIGNAL = 1  # Linux's prctl
POLL_SECONDS = 0.5
OPEN_TRIES = 4
# What databases say if another process is making the tables of a new one.
MADE_MEANWHILE = ("already exists", "UNIQUE constraint", "unique constraint", "no such table")
LOCK_SECONDS = 60.0  # to wait for another worker to write its trial
NAMELESS_SECONDS = 5.0  # a trial that no worker has put its name to for so long has none


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError("A search needs Optuna: pip install 'tabmt[search]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Job(Protocol):
    """What a search does, in a form that can be sent to worker processes."""

    @property
    def place(self) -> "Place": ...

    def distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]: ...

    def sampler(self, seed: int) -> "optuna.samplers.BaseSampler": ...

    def prepare(self) -> Callable[["optuna.Trial"], Sequence[float]]:
        """Called once in each worker; what it returns is called for every trial."""
        ...


@dataclass(frozen=True)
class Place:
    """A study in a storage: a file that Optuna keeps a journal in, or the URL of a database."""

    storage: str
    name: str
    directions: tuple[str, ...]

    def open(self, sampler: "optuna.samplers.BaseSampler | None" = None) -> "Study":
        optuna = import_optuna()
        tries = 1
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
            except Exception as error:  # a database has as many as it has drivers
                reason = str(error.__cause__ or error).partition("\n")[0]
                if tries < OPEN_TRIES and any(word in reason for word in MADE_MEANWHILE):
                    time.sleep(tries * POLL_SECONDS)
                    tries += 1
                    continue
                raise UserError(
                    f"The storage {shown(self.storage)!r} cannot be used: {reason}. Give a file to "
                    "keep the trials in, or the URL of a database, such as sqlite:///trials.db."
                ) from error

    def _storage(self, optuna: Any) -> Any:
        if self.storage.startswith("sqlite://"):
            return _sqlite(optuna, self.storage)
        if "://" in self.storage:
            return self.storage
        folder = Path(self.storage).resolve().parent
        if not folder.is_dir():
            raise UserError(f"There is no folder {str(folder)!r} to keep the trials in.")
        journal = optuna.storages.journal
        # Optuna's default lock, a symbolic link, waits for ever for an owner that was killed if the
        # path is relative; this one gives up after 30 seconds.
        lock = journal.JournalFileOpenLock(self.storage)
        return journal.JournalStorage(journal.JournalFileBackend(self.storage, lock_obj=lock))


def _sqlite(optuna: Any, url: str) -> Any:
    """SQLite reads without a lock and knows no `SELECT ... FOR UPDATE`, by which Optuna hands every
    trial of its queue to one worker alone: so each transaction takes the lock before it reads."""
    from sqlalchemy import event

    waiting = {"connect_args": {"timeout": LOCK_SECONDS}}
    storage = optuna.storages.RDBStorage(url, engine_kwargs=waiting)

    @event.listens_for(storage.engine, "connect")
    def leave_begin_to_us(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(storage.engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()  # the connections that were made before
    return storage


def shown(storage: str) -> str:
    """Without the password that a URL may hold."""
    return re.sub(r"(://[^/@]*?):[^/@]*@", r"\1:***@", storage)


def claim(study: "Study", about: Mapping[str, Any], storage: str) -> None:
    """Write down what a new study is about, or see that an old one is about the same."""
    found = study.user_attrs.get("about")
    if found is None:
        study.set_user_attr("about", dict(about))
        return
    for name, value in about.items():
        if found.get(name) != value:
            raise UserError(
                f"The trials in {shown(storage)!r} were made with {name} {found.get(name)!r}, not "
                f"{value!r}. Go on with the same, or name another storage or study."
            )


def bury(study: "Study") -> int:
    """Trials of this machine's dead processes are given up; those of the queue wait again."""
    optuna = import_optuna()
    running, failed = optuna.trial.TrialState.RUNNING, optuna.trial.TrialState.FAIL
    buried = 0
    while True:
        young = 0.0  # seconds until every trial without a name is old enough to have none
        for trial in study.get_trials(deepcopy=False, states=(running,)):
            worker = trial.user_attrs.get("worker")
            if worker is None:
                begun = trial.datetime_start
                age = time.time() - begun.timestamp() if begun else NAMELESS_SECONDS
                young = max(young, NAMELESS_SECONDS - age)
                dead = age >= NAMELESS_SECONDS
            else:
                host, pid, born = worker
                dead = host == _machine() and _born(pid) != born
            if dead:
                study.tell(trial.number, state=failed, skip_if_finished=True)
                if given := trial.system_attrs.get("fixed_params"):  # Optuna's word for the queue
                    kept = {name: of for name, of in trial.user_attrs.items() if name != "worker"}
                    study.enqueue_trial(given, user_attrs=kept)
                buried += 1
        if young <= 0:
            return buried
        time.sleep(min(young, NAMELESS_SECONDS) + 0.1)  # a clock may be wrong by any time


def enqueue(
    study: "Study",
    key: str,
    wanted: Mapping[Any, Mapping[str, Any]],
    *,
    elsewhere: bool = False,
) -> None:
    """See that each of these parameters is tried once: `key` is the attribute that tells which.

    Called at every start, because a search may have died at any point of the first time; what
    failed is then tried again. With `elsewhere`, instead what another machine has begun is.
    """
    if again := bury(study):
        log.info("%d trials of an interrupted search were given up", again)
    states = import_optuna().trial.TrialState
    undone = states.RUNNING if elsewhere else states.FAIL
    known = {t.user_attrs.get(key) for t in study.get_trials(deepcopy=False) if t.state != undone}
    for name, params in wanted.items():
        if name not in known:
            study.enqueue_trial(dict(params), user_attrs={key: name})


def _machine() -> str:
    """Its name and number: many machines have the same name."""
    return f"{socket.gethostname()} {_line('/etc/machine-id')}"


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""  # there is none on this system


def _born(pid: int) -> str:
    """Since when the machine is up and the process runs, so that a number that was given anew is
    not taken for it; "" if there is no such process."""
    up = _line("/proc/sys/kernel/random/boot_id")
    if stat := _line(f"/proc/{pid}/stat"):
        return f"{up} {stat.rpartition(')')[2].split()[19]}"
    try:  # no /proc on this system
        os.kill(pid, 0)
    except OSError:
        return ""
    return "alive"


@dataclass(frozen=True)
class Stint:
    """What the workers of one start are to do."""

    job: Job
    trials: int  # that there shall be in all
    ended: int  # that there were
    until: float | None  # no trial begins later
    seed: int
    queue: str | None


def run(
    job: Job,
    *,
    trials: int,
    seconds: float | None,
    workers: int,
    seed: int,
    queue: str | None = None,
    on_look: Callable[["Study"], None] = lambda study: None,
) -> None:
    """Work on a study until it has so many finished trials, or the time is up.

    `on_look` is called whenever trials may have finished. A trial that has begun is finished; what
    a worker that died had begun is done by another. With a `queue`, only trials that `enqueue` made
    under that key are done.
    """
    study = job.place.open()
    # A resumed search must not draw again what the first run drew, nor one machine what another.
    starts = study.user_attrs.get("starts", 0)
    study.set_user_attr("starts", starts + 1)
    seed = derive(seed, "start", starts) if starts else seed
    until = None if seconds is None else time.time() + seconds
    stint = Stint(job, trials, finished(study), until, seed, queue)
    if workers == 1 and stint.ended < trials:
        counter = iter(range(trials - stint.ended))

        def permitted() -> bool:
            on_look(study)
            return next(counter, None) is not None

        _work(stint, permitted)
    while workers > 1 and stint.ended < trials and (until is None or time.time() < until):
        whole = _share(stint, study, workers, on_look)
        bury(study)
        before, stint = stint.ended, dataclasses.replace(stint, ended=finished(study))
        if whole or stint.ended == before:
            break
    on_look(study)


def _share(stint: Stint, study: "Study", workers: int, on_look: Callable[["Study"], None]) -> bool:
    """Have worker processes begin as many trials as are still to be finished; False if one died."""
    context = multiprocessing.get_context("spawn")
    permits = stint.trials - stint.ended
    left = context.Value("i", permits)
    errors = context.SimpleQueue()
    processes = [
        context.Process(
            target=_worker,
            args=(dataclasses.replace(stint, seed=stint.seed + place), left, errors, os.getpid()),
        )
        for place in range(min(workers, permits))
    ]
    with _one_thread_each():
        for process in processes:
            process.start()
    try:
        while any(process.is_alive() for process in processes):
            time.sleep(POLL_SECONDS)
            on_look(study)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if not errors.empty():
        raise errors.get()
    broken = [process.exitcode for process in processes if process.exitcode != 0]
    if len(broken) == len(processes):
        raise RuntimeError(f"the workers ended with exit code {broken[0]}; their output says why")
    if broken:
        log.warning("a worker ended with exit code %s; the others went on", broken[0])
    return not broken


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes begun inside compute with one thread: there are as many of them as cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def complete(study: "Study") -> list["optuna.trial.FrozenTrial"]:
    state = import_optuna().trial.TrialState.COMPLETE
    return study.get_trials(deepcopy=False, states=(state,))


def in_order(study: "Study") -> list["optuna.trial.FrozenTrial"]:
    """The complete trials as they were finished: what was there before stays in its place."""
    return sorted(complete(study), key=lambda trial: (trial.datetime_complete, trial.number))


def waiting(study: "Study") -> int:
    return len(study.get_trials(deepcopy=False, states=(import_optuna().trial.TrialState.WAITING,)))


def finished(study: "Study") -> int:
    states = import_optuna().trial.TrialState
    return len(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))


def _worker(stint: Stint, left: Any, errors: Any, parent: int) -> None:
    _die_with(parent)

    def permitted() -> bool:
        with left.get_lock():
            left.value -= 1
            return bool(left.value >= 0)

    try:
        _work(stint, permitted)
    except UserError as error:
        errors.put(error)
    except KeyboardInterrupt:
        pass


def _die_with(parent: int) -> None:
    """End with the process that began us, also when that one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(stint: Stint, permitted: Callable[[], bool]) -> None:
    optuna = import_optuna()
    states = optuna.trial.TrialState
    job, me = stint.job, (_machine(), os.getpid(), _born(os.getpid()))
    study = job.place.open(job.sampler(derive(stint.seed, stint.ended) % 2**31))
    perform = job.prepare()
    while (stint.until is None or time.time() < stint.until) and permitted():
        if finished(study) >= stint.trials:  # other machines may have done the rest
            return
        trial = study.ask()
        if stint.queue is not None and stint.queue not in trial.user_attrs:
            study.tell(trial, state=states.FAIL)  # another has taken the last of the queue
            return
        trial.set_user_attr("worker", me)  # before parameters are drawn, which may take long
        try:
            _perform(study, trial, job.distributions(), perform)
        except optuna.exceptions.UpdateFinishedTrialError:
            log.warning("trial %d was given up by another process", trial.number)


def _perform(
    study: "Study",
    trial: "optuna.Trial",
    distributions: Mapping[str, Any],
    perform: Callable[["optuna.Trial"], Sequence[float]],
) -> None:
    optuna = import_optuna()
    states = optuna.trial.TrialState
    for name, distribution in distributions.items():
        _suggest(trial, name, distribution)
    # Optuna asks its sampler only for parameters that are not given; NSGA-II would then not
    # count the trials of the queue to its first generation.
    _ = trial.relative_params
    began = time.perf_counter()
    try:
        values = list(perform(trial))
        if not np.isfinite(values).all():
            raise UserError(f"The scores are {values}: too few rows to judge on, or to learn from.")
    except optuna.TrialPruned:
        study.tell(trial, state=states.PRUNED)
    except UserError as error:
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=states.FAIL)
        log.warning("trial %d failed: %s", trial.number, error)
    except BaseException:
        study.tell(trial, state=states.FAIL, skip_if_finished=True)
        raise
    else:
        trial.set_user_attr("seconds", round(time.perf_counter() - began, 2))
        study.tell(trial, values)


def _suggest(trial: "optuna.Trial", name: str, distribution: Any) -> None:
    """What `Study.ask` does with distributions, in Optuna's public words."""
    made = import_optuna().distributions
    if isinstance(distribution, made.CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
        return
    low, high, step, log_ = (
        distribution.low,
        distribution.high,
        distribution.step,
        distribution.log,
    )
    if isinstance(distribution, made.IntDistribution):
        trial.suggest_int(name, low, high, step=step, log=log_)
    else:
        trial.suggest_float(name, low, high, step=step, log=log_)


def cores() -> int:
    """As many as this process may use."""
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


def why_none(study: "Study", limited: bool) -> UserError:
    """What to say when no trial was finished."""
    for trial in study.get_trials(deepcopy=False):
        if "error" in trial.user_attrs:
            return UserError(f"Every trial failed; the first said: {trial.user_attrs['error']}")
    if limited:
        return UserError("No trial was finished in the time given; give more minutes.")
    return UserError("No trial was finished, and none says why; the log may.")


def fingerprint(*views: "View") -> str:
    """A short name for the content of tables, so that a resumed search has the same ones."""
    digest = hashlib.blake2b(digest_size=8)
    for view in views:
        for values in (*view.numbers.values(), *view.codes.values()):
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def short_name(of: Any) -> str:
    """The same for what is written the same in JSON."""
    return hashlib.blake2b(json.dumps(of, sort_keys=True).encode(), digest_size=8).hexdigest()


def check_numbers(minutes: Any, **whole: Any) -> None:
    for name, number in whole.items():
        if number is not None and not (isinstance(number, int | np.integer) and number >= 1):
            raise UserError(f"{name} is {number!r}, but must be a whole number from 1.")
    if minutes is not None and not (isinstance(minutes, int | float | np.number) and minutes > 0):
        raise UserError(f"minutes is {minutes!r}, but must be a number above 0.")


def check_choice(name: str, value: str, allowed: Any) -> None:
    if value not in get_args(allowed):
        raise UserError(f"{name} is {value!r}, but must be one of: {', '.join(get_args(allowed))}.")
