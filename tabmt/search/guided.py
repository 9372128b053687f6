"""A search that knows what temperatures do: heat costs quality where a column matters.

NSGA-II knows nothing of its columns. Half of these proposals lie on a surface of two numbers, how
hot and how much cooler the columns that predict the target; the other half are steps from points of
the front.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from tabmt.search.front import non_dominated

if TYPE_CHECKING:
    import optuna

MOST_COOLING = 1.5  # above 1 the columns that matter most grow cooler than the model's own
STEP = 0.25  # of a logarithm


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
        return dict(done[0].distributions) if done else {}

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
        low, high = np.log(ends.low), np.log(ends.high)
        if self._rng.random() < 0.5:
            weights = np.array([self._importances.get(name, 0.0) for name in names])
            base = self._rng.uniform(low, high)
            heat = base - abs(base) * self._rng.uniform(0, MOST_COOLING) * weights
        else:
            heat = self._near_front(study, names)
        found = np.exp(np.clip(heat, low, high))
        return {
            name: float(np.clip(value, ends.low, ends.high))
            for name, value in zip(names, found, strict=True)
        }

    def _near_front(self, study: "optuna.Study", names: list[str]) -> np.ndarray:
        """Between two neighbours of the front, and some columns a step away."""
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        signs = np.array([1.0 if d.name == "MAXIMIZE" else -1.0 for d in study.directions])
        scores = np.array([trial.values for trial in done]) * signs
        places = np.flatnonzero(non_dominated(scores))
        places = places[np.argsort(scores[places, 0])]
        heats = np.log([[done[p].params[name] for name in names] for p in places])
        one = int(self._rng.integers(len(heats)))
        other = min(one + 1, len(heats) - 1)
        share = self._rng.random()
        moved = self._rng.random(len(names)) < 0.5
        step = self._rng.normal(0, STEP, len(names)) * moved
        result: np.ndarray = heats[one] * share + heats[other] * (1 - share) + step
        return result

    def sample_independent(
        self,
        study: "optuna.Study",
        trial: "optuna.trial.FrozenTrial",
        param_name: str,
        param_distribution: Any,
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)
