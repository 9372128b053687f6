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
