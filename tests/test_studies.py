import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
import torch

from tabmt.search import studies
from tabmt.search.studies import Place, complete


@dataclass(frozen=True)
class ThreadsJob:
    """Tells with how many threads a worker computes."""

    place: Place

    def distributions(self):
        return {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}

    def sampler(self, seed: int):
        return optuna.samplers.RandomSampler(seed=seed)

    def prepare(self):
        return lambda trial: [float(torch.get_num_threads())]


def test_each_of_several_workers_has_one_thread(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    job = ThreadsJob(Place(str(tmp_path / "trials.log"), "threads", ("maximize",)))
    studies.run(job, trials=4, seconds=None, workers=2, seed=0)
    assert [trial.values for trial in complete(job.place.open())] == [[1.0]] * 4
    assert os.environ["OMP_NUM_THREADS"] == "3"


@dataclass(frozen=True)
class QueueJob:
    """Gives x back at once; where `dies` names a file that is not there, makes it and dies."""

    place: Place
    dies: str = ""

    def distributions(self):
        return {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}

    def sampler(self, seed: int):
        return optuna.samplers.RandomSampler(seed=seed)

    def prepare(self):
        def perform(trial):
            if self.dies and trial.params["x"] == 0.5 and not Path(self.dies).exists():
                Path(self.dies).touch()
                os._exit(9)
            return [trial.params["x"]]

        return perform


def queued(places: int) -> list[float]:
    return [place / 64 for place in range(places)]


@pytest.mark.parametrize("storage", ["{}/trials.journal", "sqlite:///{}/trials.db"])
def test_each_trial_of_the_queue_goes_to_one_worker(tmp_path: Path, storage):
    job = QueueJob(Place(storage.format(tmp_path), "queue", ("maximize",)))
    studies.enqueue(job.place.open(), "number", {x: {"x": x} for x in queued(64)})
    studies.run(job, trials=64, seconds=None, workers=4, seed=0)
    trials = job.place.open().trials
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert sorted(trial.values[0] for trial in trials) == queued(64)


@pytest.mark.parametrize("storage", ["{}/trials.journal", "sqlite:///{}/trials.db"])
def test_what_a_worker_that_died_had_begun_is_done_by_another(tmp_path: Path, storage, caplog):
    place = Place(storage.format(tmp_path), "queue", ("maximize",))
    job = QueueJob(place, dies=str(tmp_path / "died"))
    studies.enqueue(place.open(), "number", {x: {"x": x} for x in queued(40)})
    studies.run(job, trials=40, seconds=None, workers=2, seed=0)
    assert "a worker ended with exit code 9" in caplog.text
    trials = complete(place.open())
    assert sorted(trial.values[0] for trial in trials) == queued(40)
    assert {trial.user_attrs["number"] for trial in trials} == set(queued(40))


def test_trials_are_told_in_the_order_they_were_finished(tmp_path: Path):
    study = Place(str(tmp_path / "trials.journal"), "order", ("maximize",)).open()
    first, second = study.ask(), study.ask()
    study.tell(second, 2.0)
    study.tell(first, 1.0)
    assert [trial.values for trial in studies.in_order(study)] == [[2.0], [1.0]]


def test_trials_from_before_a_reboot_are_given_up_and_those_that_run_are_not(tmp_path: Path):
    study = Place(str(tmp_path / "trials.journal"), "reboot", ("maximize",)).open()
    machine, now = studies._machine(), studies._born(os.getpid())
    start = now.rpartition(" ")[2]
    for born in (now, f"an-earlier-boot {start}"):
        study.ask().set_user_attr("worker", (machine, os.getpid(), born))
    assert studies.bury(study) == 1
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "FAIL"]


def test_a_password_is_not_shown():
    assert studies.shown("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert studies.shown("sqlite:////tmp/a:b@c.db") == "sqlite:////tmp/a:b@c.db"
    assert studies.shown("folder/trials") == "folder/trials"


def opened(url: str, barrier) -> None:
    barrier.wait()
    Place(url, "new", ("maximize",)).open()


def test_a_new_database_can_be_opened_by_many_at_once(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    for attempt in range(3):
        barrier = context.Barrier(4)
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        processes = [context.Process(target=opened, args=(url, barrier)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4


def test_what_another_machine_left_is_done_here_and_nothing_else(tmp_path: Path):
    place = Place(str(tmp_path / "trials.journal"), "queue", ("maximize",))
    wanted = {x: {"x": x} for x in queued(3)}
    study = place.open()
    studies.enqueue(study, "number", wanted)
    study.ask().set_user_attr("worker", ("another machine", 1, "born"))
    for elsewhere in (False, True):
        studies.enqueue(study, "number", wanted, elsewhere=elsewhere)
        every = studies.finished(study) + studies.waiting(study)
        studies.run(QueueJob(place), trials=every, seconds=None, workers=1, seed=0, queue="number")
        assert len(complete(study)) == 2 + elsewhere
    assert sorted(trial.user_attrs["number"] for trial in complete(study)) == queued(3)


def test_only_the_queue_is_done_when_more_is_permitted(tmp_path: Path):
    place = Place(str(tmp_path / "trials.journal"), "queue", ("maximize",))
    studies.enqueue(place.open(), "number", {x: {"x": x} for x in queued(3)})
    studies.run(QueueJob(place), trials=9, seconds=None, workers=1, seed=0, queue="number")
    assert sorted(trial.values[0] for trial in complete(place.open())) == queued(3)


def drawn(storage: Path, starts: int) -> list[float]:
    place = Place(str(storage), "random", ("maximize",))
    for _ in range(starts):  # of other machines, none of which has finished a trial
        studies.run(QueueJob(place), trials=3, seconds=-1, workers=1, seed=0)
    studies.run(QueueJob(place), trials=3, seconds=None, workers=1, seed=0)
    return [trial.params["x"] for trial in complete(place.open())]


def test_machines_that_share_a_study_draw_different_parameters(tmp_path: Path):
    first, same, second = (drawn(tmp_path / str(n), starts) for n, starts in enumerate((0, 0, 1)))
    assert first == same
    assert not set(first) & set(second)


class BuryingSampler(optuna.samplers.RandomSampler):
    """While it draws, another process looks for trials that nobody works on."""

    place: Place

    def sample_independent(self, *about):
        studies.bury(self.place.open())
        return super().sample_independent(*about)


@dataclass(frozen=True)
class BuriedJob(QueueJob):
    def sampler(self, seed: int):
        sampler = BuryingSampler(seed=seed)
        sampler.place = self.place
        return sampler


def test_a_trial_is_not_given_up_while_its_parameters_are_drawn(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(studies, "NAMELESS_SECONDS", 0.0)
    job = BuriedJob(Place(str(tmp_path / "trials.journal"), "slow", ("maximize",)))
    studies.run(job, trials=2, seconds=None, workers=1, seed=0)
    assert len(complete(job.place.open())) == 2


@dataclass(frozen=True)
class GivenUpJob(QueueJob):
    def prepare(self):
        def perform(trial):
            if trial.number == 0:
                self.place.open().tell(0, state=optuna.trial.TrialState.FAIL)
            return [trial.params["x"] if trial.number < 2 else float("nan")]

        return perform


def test_trials_given_up_by_others_and_scores_that_are_no_numbers(tmp_path: Path, caplog):
    job = GivenUpJob(Place(str(tmp_path / "trials.journal"), "odd", ("maximize",)))
    studies.run(job, trials=3, seconds=None, workers=1, seed=0)
    study = job.place.open()
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE", "FAIL"]
    assert "trial 0 was given up by another process" in caplog.text
    assert study.trials[2].user_attrs["error"] == (
        "The scores are [nan]: too few rows to judge on, or to learn from."
    )
