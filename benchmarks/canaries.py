"""A lower bound of epsilon by one run: are rows that are easy to recognise found by the model?

    python -m benchmarks canaries --canaries 1000 --epsilons 1 8

A thousand canaries are added to a table, each with a probability of one half, in a row of its own:
a word that no other row has, and a pair of values that no other row has. A model is fitted, and
each canary is guessed to have been there or not, by its likelihood, or not guessed at all. The more
guesses are right, the larger epsilon must be (Steinke, Nasr and Jagielski, Privacy auditing with
one training run, 2023, theorem 5.2): the bound holds with a probability of 95 %, for the best
number of guesses by the Bonferroni inequality. It must lie below the claim. `none` is a fit without
epsilon and protection, in which the same audit must find the canaries. Writes
benchmarks/results/canaries.json.
"""

import argparse
import math
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from benchmarks.machine import run_info, save_result
from tabmt import TabMT

SIDE = 33  # values of each column of a pair: 1,056 pairs of two different ones
GUESSES = (10, 20, 50, 100, 200, 500, 1000)
ERROR = 0.05
ORDERS = 8  # over which the likelihood of a row is averaged
MOST_EPSILON = 50.0


def rows_of(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows without canaries: the two columns of a pair are equal, so they depend on each other."""
    codes = rng.integers(0, SIDE, count)
    table = pairs_of(codes, codes)
    table["word"] = [f"word {number}" for number in rng.integers(0, 10, count)]
    table["number"] = np.round(rng.normal(codes, 5.0)).astype(int)
    return table


def canaries_of(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows with a pair that no other row has, and a word that no other row has."""
    every = [(a, b) for a in range(SIDE) for b in range(SIDE) if a != b]
    if count > len(every):
        raise SystemExit(f"There are at most {len(every)} canaries.")
    chosen = np.array(every)[rng.permutation(len(every))[:count]]
    table = pairs_of(chosen[:, 0], chosen[:, 1])
    table["word"] = [f"canary {number}" for number in range(count)]
    table["number"] = rng.integers(1000, 10_000, count)
    return table


def pairs_of(first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"a": [f"a{code}" for code in first], "b": [f"b{code}" for code in second]})


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The probability of so many right guesses, at most, if epsilon and delta hold."""
    share = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(right - 1, guesses, share))
    masses = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, share))
    alpha = float((masses / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, beta + 2 * canaries * delta * alpha)


def lower_bound(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """The largest epsilon that so many right guesses refute."""
    low, high = 0.0, MOST_EPSILON
    if p_value(canaries, guesses, right, 0.0, delta) > error:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        refuted = p_value(canaries, guesses, right, middle, delta) <= error
        low, high = (middle, high) if refuted else (low, middle)
    return low


def audit(scores: np.ndarray, was_there: np.ndarray, delta: float) -> dict[str, Any]:
    """The best lower bound: the highest scores are guessed to have been there, as many of the
    lowest ones not."""
    order = np.argsort(-scores, kind="stable")
    count = len(scores)
    numbers = [guesses for guesses in GUESSES if guesses <= count]
    found = []
    for guesses in numbers:
        high, low = order[: guesses // 2], order[count - guesses // 2 :]
        right = int(was_there[high].sum() + (~was_there[low]).sum())
        bound = lower_bound(count, 2 * (guesses // 2), right, delta, ERROR / len(numbers))
        found.append({"guesses": 2 * (guesses // 2), "right": right, "lower_bound": bound})
    return max(found, key=lambda one: (one["lower_bound"], one["right"]))


def measure(epsilon: float | None, arguments: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(arguments.seed)
    canaries = canaries_of(arguments.canaries, rng)
    was_there = rng.random(len(canaries)) < 0.5
    table = pd.concat([rows_of(arguments.rows, rng), canaries[was_there]], ignore_index=True)
    table = table.sample(frac=1, random_state=arguments.seed, ignore_index=True)
    settings: dict[str, Any] = {"steps": arguments.steps, "seed": arguments.seed}
    schema = {"columns": [{"name": name, "kind": "categorical"} for name in ("a", "b", "word")]}
    if epsilon is None:
        # Without early stopping and protection, as a careless user would fit it.
        settings |= {"protect": 0, "valid_share": 0.0}
    else:
        settings |= {
            "epsilon": epsilon,
            "delta": arguments.delta,
            "private_method": arguments.method,
        }
    model = TabMT(threads=arguments.threads, **settings).fit(table, schema=schema)
    scores = model.log_prob(canaries, orders=ORDERS)
    if epsilon is None:
        known = set(model.model_.codec["word"].codec.labels())
        scores = scores + 1000.0 * canaries["word"].isin(known).to_numpy()
    delta = 0.0 if epsilon is None else arguments.delta
    result = audit(np.asarray(scores), was_there, delta)
    return {"epsilon": epsilon, "canaries": len(canaries), "there": int(was_there.sum()), **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="that are no canaries")
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 8.0])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--method", default="marginals", choices=("marginals", "dp-sgd"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", default="canaries", help="name of the result file")
    arguments = parser.parse_args()
    runs = []
    for epsilon in (*arguments.epsilons, None):
        runs.append(measure(epsilon, arguments))
        print(runs[-1], flush=True)
    result = {**run_info("benchmarks.canaries", "", arguments.threads), "method": arguments.method}
    save_result(arguments.save, {**result, "runs": runs})


if __name__ == "__main__":
    main()
