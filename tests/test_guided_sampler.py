"""The sampler that learns from all trials, on scores that are known."""

import numpy as np
import optuna
import pytest

from tabmt.search.guided_sampler import GuidedSampler, TemperatureProcess
from tabmt.search.pareto_front import hypervolume

IMPORTANCES = {"target": 50.0, "a": 30.0, "b": 15.0, "c": 5.0, "d": 0.0, "e": 0.0}
WEIGHTS = np.array(list(IMPORTANCES.values())) / 50


def scores(logs: np.ndarray) -> np.ndarray:
    """High temperatures are more private, and cost quality where a column matters."""
    privacy = logs.mean(-1)
    quality = 0.9 - 0.3 * (WEIGHTS * np.maximum(logs, 0) ** 2).sum(-1)
    return np.stack([privacy, quality], axis=-1)


def test_a_process_learns_the_effect_of_temperatures_and_is_surer_near_its_trials():
    rng = np.random.default_rng(0)
    logs, fresh = (rng.uniform(-0.7, 1.6, (rows, 6)) for rows in (60, 200))
    for score in range(2):
        known, unseen = scores(logs)[:, score], scores(fresh)[:, score]
        process = TemperatureProcess(logs, known, WEIGHTS)
        mean, spread = process.predict(fresh)
        assert np.mean((mean - unseen) ** 2) < 0.1 * unseen.var()
        assert np.mean(np.abs(mean - unseen) < 3 * spread) > 0.9
        assert process.predict(logs)[1].mean() < spread.mean()


def covered(sampler: optuna.samplers.BaseSampler, *, noise: float, trials: int) -> float:
    """The area of what was tried, by the scores without their noise."""
    rng = np.random.default_rng(0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    tried = []
    for start in (0.5, 1.0, 2.0, 5.0):
        study.enqueue_trial(dict.fromkeys(IMPORTANCES, start))
    for _ in range(trials):
        trial = study.ask()
        temperatures = [trial.suggest_float(name, 0.5, 5.0, log=True) for name in IMPORTANCES]
        tried.append(scores(np.log(temperatures)))
        privacy, quality = tried[-1] + noise * rng.normal(size=2)
        study.tell(trial, [privacy, -quality])  # the second of which less is better
    return hypervolume(np.array(tried), np.array([-0.7, 0.0]))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_few_guided_trials_cover_more_than_many_at_random(noise):
    for seed in range(3):
        guided = covered(GuidedSampler(IMPORTANCES, seed=seed), noise=noise, trials=25)
        random = covered(optuna.samplers.RandomSampler(seed=seed), noise=noise, trials=100)
        assert guided > random


@pytest.mark.parametrize("importances", [{}, {"a": 0.0}, {"a": 3.0}])
def test_scores_that_never_differ_and_trials_that_repeat_are_accepted(importances):
    study = optuna.create_study(
        directions=["maximize", "maximize"], sampler=GuidedSampler(importances, seed=0)
    )
    for _ in range(6):
        study.enqueue_trial({"a": 1.0})
    for _ in range(9):
        trial = study.ask()
        assert 0.5 <= trial.suggest_float("a", 0.5, 5.0, log=True) <= 5.0
        study.tell(trial, [1.0, 1.0])
