import os
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
import torch

from tabmt.search import trial_storage, workers
from tabmt.search.trial_storage import StudyLocation, completed_trials


@dataclass(frozen=True)
class ThreadsJob:
    """Its score is the number of threads that a worker computes with."""

    location: StudyLocation

    def distributions(self):
        return {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}

    def sampler(self, seed: int):
        return optuna.samplers.RandomSampler(seed=seed)

    def prepare(self):
        return lambda trial: [float(torch.get_num_threads())]


def test_each_of_several_workers_has_one_thread(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    job = ThreadsJob(StudyLocation(str(tmp_path / "trials.log"), "threads", ("maximize",)))
    workers.run(job, trials=4, seconds=None, workers=2, seed=0)
    assert [trial.values for trial in completed_trials(job.location.open())] == [[1.0]] * 4
    assert os.environ["OMP_NUM_THREADS"] == "3"


@dataclass(frozen=True)
class RequestedJob:
    """Its score is x; if the file `dies` does not exist yet, a worker creates it and dies."""

    location: StudyLocation
    dies: str = ""

    def distributions(self):
        return {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}

    def sampler(self, seed: int):
        return optuna.samplers.RandomSampler(seed=seed)

    def prepare(self):
        def perform(trial):
            if self.dies and trial.params["x"] == 0.125 and not Path(self.dies).exists():
                Path(self.dies).touch()
                os._exit(9)
            return [trial.params["x"]]

        return perform


def requested(count: int) -> list[float]:
    return [number / 64 for number in range(count)]


@pytest.mark.parametrize("storage", ["{}/trials.journal", "sqlite:///{}/trials.db"])
def test_each_requested_trial_is_done_by_one_worker(tmp_path: Path, storage):
    job = RequestedJob(StudyLocation(storage.format(tmp_path), "requested", ("maximize",)))
    trial_storage.request_trials(
        job.location.open(), "number", {x: {"x": x} for x in requested(32)}
    )
    workers.run(job, trials=32, seconds=None, workers=3, seed=0)
    trials = job.location.open().trials
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert sorted(trial.values[0] for trial in trials) == requested(32)


@pytest.mark.parametrize("storage", ["{}/trials.journal", "sqlite:///{}/trials.db"])
def test_the_trial_of_a_worker_that_died_is_done_by_another(tmp_path: Path, storage, caplog):
    location = StudyLocation(storage.format(tmp_path), "requested", ("maximize",))
    job = RequestedJob(location, dies=str(tmp_path / "died"))
    trial_storage.request_trials(location.open(), "number", {x: {"x": x} for x in requested(16)})
    workers.run(job, trials=16, seconds=None, workers=2, seed=0)
    assert "A worker ended with exit code 9; the others continued." in caplog.text
    trials = completed_trials(location.open())
    assert sorted(trial.values[0] for trial in trials) == requested(16)
    assert {trial.user_attrs["number"] for trial in trials} == set(requested(16))


def test_trials_that_another_machine_left_are_done_here_and_no_others(tmp_path: Path):
    location = StudyLocation(str(tmp_path / "trials.journal"), "requested", ("maximize",))
    wanted = {x: {"x": x} for x in requested(3)}
    study = location.open()
    trial_storage.request_trials(study, "number", wanted)
    study.ask().set_user_attr("worker", ("another machine", 1, "start time"))
    for also_running in (False, True):
        trial_storage.request_trials(study, "number", wanted, also_running=also_running)
        count = trial_storage.finished_count(study) + trial_storage.waiting_count(study)
        workers.run(
            RequestedJob(location), trials=count, seconds=None, workers=1, seed=0, only="number"
        )
        assert len(completed_trials(study)) == 2 + also_running
    assert sorted(trial.user_attrs["number"] for trial in completed_trials(study)) == requested(3)


def test_with_only_nothing_but_requested_trials_is_done(tmp_path: Path):
    location = StudyLocation(str(tmp_path / "trials.journal"), "requested", ("maximize",))
    trial_storage.request_trials(location.open(), "number", {x: {"x": x} for x in requested(3)})
    workers.run(RequestedJob(location), trials=9, seconds=None, workers=1, seed=0, only="number")
    assert sorted(trial.values[0] for trial in completed_trials(location.open())) == requested(3)


def drawn(storage: Path, starts: int) -> list[float]:
    location = StudyLocation(str(storage), "random", ("maximize",))
    for _ in range(starts):  # of other machines, none of which has finished a trial
        workers.run(RequestedJob(location), trials=3, seconds=-1, workers=1, seed=0)
    workers.run(RequestedJob(location), trials=3, seconds=None, workers=1, seed=0)
    return [trial.params["x"] for trial in completed_trials(location.open())]


def test_machines_that_share_a_study_draw_different_parameters(tmp_path: Path):
    first, same, second = (drawn(tmp_path / str(n), starts) for n, starts in enumerate((0, 0, 1)))
    assert first == same
    assert not set(first) & set(second)


class CheckingSampler(optuna.samplers.RandomSampler):
    """While it draws, another process gives up the trials that no process works on."""

    location: StudyLocation

    def sample_independent(self, *about):
        trial_storage.fail_stale_trials(self.location.open())
        return super().sample_independent(*about)


@dataclass(frozen=True)
class CheckedJob(RequestedJob):
    def sampler(self, seed: int):
        sampler = CheckingSampler(seed=seed)
        sampler.location = self.location
        return sampler


def test_a_trial_is_not_given_up_while_its_parameters_are_drawn(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(trial_storage, "UNCLAIMED_SECONDS", 0.0)
    job = CheckedJob(StudyLocation(str(tmp_path / "trials.journal"), "slow", ("maximize",)))
    workers.run(job, trials=2, seconds=None, workers=1, seed=0)
    assert len(completed_trials(job.location.open())) == 2


@dataclass(frozen=True)
class GivenUpJob(RequestedJob):
    def prepare(self):
        def perform(trial):
            if trial.number == 0:
                self.location.open().tell(0, state=optuna.trial.TrialState.FAIL)
            return [trial.params["x"] if trial.number < 2 else float("nan")]

        return perform


def test_trials_given_up_by_others_and_scores_that_are_no_numbers_do_not_count(
    tmp_path: Path, caplog
):
    job = GivenUpJob(StudyLocation(str(tmp_path / "trials.journal"), "odd", ("maximize",)))
    workers.run(job, trials=3, seconds=None, workers=1, seed=0)
    study = job.location.open()
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE", "FAIL"]
    assert "Trial 0 was marked as failed by another process." in caplog.text
    assert study.trials[2].user_attrs["error"] == (
        "The scores are not finite ([nan]); there may be too few rows."
    )
