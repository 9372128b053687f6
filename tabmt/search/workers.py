"""Worker processes that perform the trials of a study.

Each worker asks the storage for a trial, performs it and stores its result, so several machines can
work on one study. The job defines what a trial does.
"""

import ctypes
import dataclasses
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tabmt.errors import UserError
from tabmt.search.trial_storage import (
    StudyLocation,
    fail_stale_trials,
    finished_count,
    import_optuna,
    this_worker,
)
from tabmt.seeds import derive

if TYPE_CHECKING:
    import optuna
    from optuna import Study

log = logging.getLogger(__name__)

PARENT_DEATH_SIGNAL = 1  # of Linux's prctl
POLL_SECONDS = 0.5


class Job(Protocol):
    """What a search does, in a form that can be sent to worker processes."""

    @property
    def location(self) -> StudyLocation: ...

    def distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]: ...

    def sampler(self, seed: int) -> "optuna.samplers.BaseSampler": ...

    def prepare(self) -> Callable[["optuna.Trial"], Sequence[float]]:
        """Called once in each worker; returns the function that performs a trial."""
        ...


@dataclass(frozen=True)
class WorkerRun:
    """What the workers of one start have to do."""

    job: Job
    trials: int  # in total, for the study
    finished: int  # that it had at the start
    until: float | None  # no trial begins later
    seed: int
    only: str | None  # perform only trials that were requested under this key


def run(
    job: Job,
    *,
    trials: int,
    seconds: float | None,
    workers: int,
    seed: int,
    only: str | None = None,
    on_trial: Callable[["Study"], None] = lambda study: None,
) -> None:
    """Work on a study until it has `trials` finished trials, or the time is up.

    `on_trial` is called whenever trials may have finished. A trial that has begun is finished; if a
    worker dies, another does its trial. With `only`, just the trials that `request_trials` made
    under that key are performed.
    """
    study = job.location.open()
    # A resumed search must not repeat the draws of the first run, nor one machine those of another.
    starts = study.user_attrs.get("starts", 0)
    study.set_user_attr("starts", starts + 1)
    seed = derive(seed, "start", starts) if starts else seed
    until = None if seconds is None else time.time() + seconds
    task = WorkerRun(job, trials, finished_count(study), until, seed, only)
    if workers == 1 and task.finished < trials:
        counter = iter(range(trials - task.finished))

        def may_begin() -> bool:
            on_trial(study)
            return next(counter, None) is not None

        _work(task, may_begin)
    while workers > 1 and task.finished < trials and (until is None or time.time() < until):
        all_lived = _run_processes(task, study, workers, on_trial)
        fail_stale_trials(study)
        before, task = task.finished, dataclasses.replace(task, finished=finished_count(study))
        if all_lived or task.finished == before:
            break
    on_trial(study)


def _run_processes(
    task: WorkerRun, study: "Study", workers: int, on_trial: Callable[["Study"], None]
) -> bool:
    """Have worker processes perform the trials that are still to be done; False if one died."""
    context = multiprocessing.get_context("spawn")
    count = task.trials - task.finished
    left = context.Value("i", count)
    errors = context.SimpleQueue()
    processes = [
        context.Process(
            target=_worker,
            args=(dataclasses.replace(task, seed=task.seed + number), left, errors, os.getpid()),
        )
        for number in range(min(workers, count))
    ]
    with _one_thread_each():
        for process in processes:
            process.start()
    try:
        while any(process.is_alive() for process in processes):
            time.sleep(POLL_SECONDS)
            on_trial(study)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if not errors.empty():
        raise errors.get()
    failed = [process.exitcode for process in processes if process.exitcode != 0]
    if len(failed) == len(processes):
        raise RuntimeError(f"the workers ended with exit code {failed[0]}; see their output")
    if failed:
        log.warning("A worker ended with exit code %s; the others continued.", failed[0])
    return not failed


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started inside compute with one thread: there are as many as cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _worker(task: WorkerRun, left: Any, errors: Any, parent: int) -> None:
    _end_with(parent)

    def may_begin() -> bool:
        with left.get_lock():
            left.value -= 1
            return bool(left.value >= 0)

    try:
        _work(task, may_begin)
    except UserError as error:
        errors.put(error)
    except KeyboardInterrupt:
        pass


def _end_with(parent: int) -> None:
    """End together with the parent process, also when that one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(task: WorkerRun, may_begin: Callable[[], bool]) -> None:
    optuna = import_optuna()
    states = optuna.trial.TrialState
    job = task.job
    study = job.location.open(job.sampler(derive(task.seed, task.finished) % 2**31))
    perform = job.prepare()
    while (task.until is None or time.time() < task.until) and may_begin():
        if finished_count(study) >= task.trials:  # other machines may have done the rest
            return
        trial = study.ask()
        if task.only is not None and task.only not in trial.user_attrs:
            study.tell(trial, state=states.FAIL)  # another worker has taken the last request
            return
        trial.set_user_attr("worker", this_worker())  # first: drawing parameters may take long
        try:
            _perform(study, trial, job.distributions(), perform)
        except optuna.exceptions.UpdateFinishedTrialError:
            log.warning("Trial %d was marked as failed by another process.", trial.number)


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
    # Optuna asks its sampler only for parameters that are not given; NSGA-II would then not count
    # the requested trials as members of its first generation.
    _ = trial.relative_params
    started = time.perf_counter()
    try:
        values = list(perform(trial))
        if not np.isfinite(values).all():
            raise UserError(f"The scores are not finite ({values}); there may be too few rows.")
    except optuna.TrialPruned:
        study.tell(trial, state=states.PRUNED)
    except UserError as error:
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=states.FAIL)
        log.warning("Trial %d failed: %s", trial.number, error)
    except BaseException:
        study.tell(trial, state=states.FAIL, skip_if_finished=True)
        raise
    else:
        trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
        study.tell(trial, values)


def _suggest(trial: "optuna.Trial", name: str, distribution: Any) -> None:
    """What `Study.ask` does with distributions, by Optuna's public methods."""
    kinds = import_optuna().distributions
    if isinstance(distribution, kinds.CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
        return
    suggest = (
        trial.suggest_int
        if isinstance(distribution, kinds.IntDistribution)
        else trial.suggest_float
    )
    suggest(
        name,
        distribution.low,
        distribution.high,
        step=distribution.step,
        log=distribution.log,
    )
