"""A sampler for Optuna with a model of temperatures: they cost quality where a column matters.

NSGA-II has no information on the columns and forgets old trials. Here two Gaussian processes learn
privacy and quality from all trials so far, as functions of the mean temperature, of the mean
temperature of the columns that predict the target, and of each column alone. Of some candidates,
most of them near the front, the next trial is the one that is expected to add most to the area
under the front.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from tabmt.search.pareto_front import area_added, non_dominated

if TYPE_CHECKING:
    import optuna

LEAST_TRIALS = 4  # to learn anything from; before that, trials are random
CANDIDATES = 200  # of each of three kinds
DRAWS = 32  # of the possible scores of a candidate
MOST_COOLING = 1.5  # above 1, the columns that matter most get temperatures below 1
SMALL_STEP, LARGE_STEP = 0.25, 0.6  # of a logarithm
# Hyper-parameters of the processes; the likeliest for the trials so far are used.
LENGTHS = (0.7, 1.5)  # length scales, as logarithms of a temperature
SHARES_ALONE = (0.1, 0.4, 1.0)  # variance of single columns, relative to the common part
NOISES = (0.01, 0.05, 0.2, 0.5)  # of the variance


class GuidedSampler(BaseSampler):
    def __init__(self, importances: Mapping[str, float], *, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._random = RandomSampler(seed=seed)
        top = max(importances.values(), default=0.0) or 1.0
        self._importances = {name: value / top for name, value in importances.items()}

    def infer_relative_search_space(
        self, study: "optuna.Study", trial: "optuna.trial.FrozenTrial"
    ) -> dict[str, Any]:
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return dict(done[0].distributions) if len(done) >= LEAST_TRIALS else {}

    def sample_relative(
        self,
        study: "optuna.Study",
        trial: "optuna.trial.FrozenTrial",
        search_space: dict[str, Any],
    ) -> dict[str, float]:
        if not search_space:
            return {}
        names = list(search_space)
        ends = search_space[names[0]]
        assert isinstance(ends, FloatDistribution)
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        signs = np.array([1.0 if d.name == "MAXIMIZE" else -1.0 for d in study.directions])
        scores = np.array([trial.values for trial in done]) * signs
        logs = np.log([[trial.params[name] for name in names] for trial in done])
        weights = np.array([self._importances.get(name, 0.0) for name in names])
        proposed = self._propose(logs, scores, weights, np.log(ends.low), np.log(ends.high))
        return {
            name: float(np.clip(value, ends.low, ends.high))
            for name, value in zip(names, np.exp(proposed), strict=True)
        }

    def _propose(
        self, logs: np.ndarray, scores: np.ndarray, weights: np.ndarray, low: float, high: float
    ) -> np.ndarray:
        """The candidate that is expected to add most area; of the scores, higher is better."""
        candidates = np.clip(self._candidates(logs, scores, weights, low, high), low, high)
        # Quality falls ever faster with temperature; the root of the loss is closer to linear.
        best = scores[:, 1].max()
        models = [
            TemperatureProcess(logs, values, weights)
            for values in (scores[:, 0], -np.sqrt(best - scores[:, 1]))
        ]

        def back(privacy: np.ndarray, root: np.ndarray) -> np.ndarray:
            return np.stack([privacy, best - np.maximum(-root, 0) ** 2], axis=-1)

        drawn = [
            mean + spread * self._rng.normal(size=(DRAWS, len(candidates)))
            for mean, spread in (model.predict(candidates) for model in models)
        ]
        # A lucky trial must not hide better ones, so the front is that of expected scores.
        expected = back(*(model.predict(logs)[0] for model in models))
        worst = np.minimum(scores[non_dominated(scores)].min(0), expected.min(0))
        added = area_added(back(*drawn), expected[non_dominated(expected)], worst)
        chosen: np.ndarray = candidates[added.mean(0).argmax()]
        return chosen

    def _candidates(
        self, logs: np.ndarray, scores: np.ndarray, weights: np.ndarray, low: float, high: float
    ) -> np.ndarray:
        """Some of any temperature, lower where columns matter; and some between two neighbours on
        the front, with some columns a small or a large step away."""
        rng, columns = self._rng, logs.shape[1]
        base = rng.uniform(low, high, (CANDIDATES, 1))
        cooled = base - np.abs(base) * rng.uniform(0, MOST_COOLING, (CANDIDATES, 1)) * weights
        front = np.flatnonzero(non_dominated(scores))
        front = front[np.argsort(scores[front, 0])]
        candidates = [cooled]
        for step in (SMALL_STEP, LARGE_STEP):
            first = rng.integers(len(front), size=CANDIDATES)
            second = np.minimum(first + 1, len(front) - 1)
            share = rng.random((CANDIDATES, 1))
            between = logs[front[first]] * share + logs[front[second]] * (1 - share)
            moved = rng.random((CANDIDATES, columns)) < rng.random((CANDIDATES, 1))
            candidates.append(between + step * rng.normal(size=(CANDIDATES, columns)) * moved)
        return np.concatenate(candidates)

    def sample_independent(
        self,
        study: "optuna.Study",
        trial: "optuna.trial.FrozenTrial",
        param_name: str,
        param_distribution: Any,
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


class TemperatureProcess:
    """A Gaussian process of one score over the logarithms of temperatures, (trials, columns).

    Its covariance is a sum: a common part that depends on the mean and on the importance-weighted
    mean, and a part for each column. So few trials say something about many columns.
    """

    def __init__(self, logs: np.ndarray, values: np.ndarray, weights: np.ndarray) -> None:
        self._logs = logs
        total = weights.sum()
        equal = np.full(len(weights), 1 / len(weights))
        self._weights = weights / total if total > 0 else equal
        self._alone = (self._weights + equal) / 2
        self._mean, self._scale = values.mean(), values.std() or 1.0
        scaled = (values - self._mean) / self._scale
        best = -np.inf
        for length in LENGTHS:
            common, alone = self._covariances(logs, length)
            for share in SHARES_ALONE:
                for noise in NOISES:
                    covariance = common + share * alone + noise * np.eye(len(logs))
                    root = np.linalg.cholesky(covariance)
                    solved = np.linalg.solve(root, scaled)
                    likelihood = -solved @ solved / 2 - np.log(np.diag(root)).sum()
                    if likelihood > best:
                        best = likelihood
                        self._root, self._solved, self._how = root, solved, (length, share)

    def _covariances(self, others: np.ndarray, length: float) -> tuple[np.ndarray, np.ndarray]:
        """Both parts of the covariance, (trials, others)."""

        def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return np.asarray(np.exp(-(((a[:, None] - b) / length) ** 2) / 2))

        own = self._logs
        common = kernel(own.mean(1), others.mean(1))
        common = common * kernel(own @ self._weights, others @ self._weights)
        alone = np.zeros_like(common)
        for column, share in enumerate(self._alone):
            alone += share * kernel(own[:, column], others[:, column])
        return common, alone

    def predict(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the score itself, without the noise of a trial."""
        length, share = self._how
        common, alone = self._covariances(logs, length)
        known = np.linalg.solve(self._root, common + share * alone)
        left = np.maximum(1 + share - (known**2).sum(0), 1e-9)
        return self._mean + self._scale * (known.T @ self._solved), self._scale * np.sqrt(left)
