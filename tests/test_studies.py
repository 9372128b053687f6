import os
from dataclasses import dataclass
from pathlib import Path

import optuna
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
