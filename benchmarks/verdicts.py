"""Is the verdict on privacy right? Disguised copies, fresh real rows and samples of our models.

    python -m benchmarks.verdicts --data DATA --tables adult california --minutes 2

Four parts for each table:

- disguised copies of 5,000 training rows, or good rows with some of them, with no test rows and
  with 60, 300 and 2,000: none may be called safe;
- fresh real rows, with other rows for each seed: at most 5 % may be called unsafe;
- samples of one model of all training rows at temperature 1, with other test rows for each seed;
- the attacks, including those that use the model, on samples at several temperatures, at the
  middle point of a Pareto front, of a model without the protection of rare values, and on copies.

Writes benchmarks/results/verdicts-TABLE.json.
"""

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.datasets import CLEAN_TABLES, TableInfo, add_data_option, as_arrow, load_rows
from benchmarks.machine import result_path, run_info, save_result
from tabmt import TabMT, pareto
from tabmt.evaluation.embedding import RowEmbedding
from tabmt.evaluation.evaluate import Evaluator
from tabmt.evaluation.results import Privacy
from tabmt.evaluation.verdict import privacy_verdict

ROWS = 5_000  # of the training table that is copied
TEST_ROWS = (0, 60, 300, 2_000)
TOP = 20
TEMPERATURES = (1.0, 1.5, 2.0)
FRONT_TRIALS = 16
PARTS = ("real", "models")
RICH = {"adult": "fnlwgt", "california": "MedInc"}  # column whose largest values are copied
SYLLABLES = ("an", "ber", "dal", "el", "fin", "gun", "hil", "ing", "jo", "kar", "li", "mar",
             "nor", "ol", "per", "rag", "sol", "tor", "ul", "vi")  # fmt: skip


def with_noise(rows: pd.DataFrame, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """Rows with normal noise of a share of the standard deviation on every number."""
    noisy = rows.copy()
    for name in rows.select_dtypes("number"):
        values = rows[name].to_numpy(float)
        values = values + rng.normal(0, share * np.nanstd(values), len(values))
        whole = pd.api.types.is_integer_dtype(rows[name])
        noisy[name] = np.round(values).astype(np.int64) if whole else values
    return noisy


def names(count: int, rng: np.random.Generator) -> list[str]:
    """Distinct names of two words."""
    found: dict[str, None] = {}
    while len(found) < count:
        words = ["".join(rng.choice(SYLLABLES, 3)).capitalize() for _ in range(2)]
        found[" ".join(words)] = None
    return list(found)


def mixed(good: pd.DataFrame, copies: pd.DataFrame) -> pd.DataFrame:
    """Good rows, of which some are replaced."""
    return pd.concat([good[len(copies) :], copies], ignore_index=True)


def disguises(
    name: str, train: pd.DataFrame, good: pd.DataFrame, seed: int
) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """(what was done, training table, synthetic table)."""
    rng = np.random.default_rng(seed)
    yield "copies", train, train.sample(frac=1, random_state=seed)
    for share in (0.001, 0.01):
        yield f"copies with {share:.1%} noise", train, with_noise(train, share, rng)
    flat = train.astype({RICH[name]: float})
    flat.loc[0, RICH[name]] = 1e6 * flat[RICH[name]].max()
    noisy = with_noise(train, 0.01, rng).astype({RICH[name]: float})
    yield "copies with 1.0% noise, one extreme value", flat, noisy

    def some(share: float) -> pd.DataFrame:
        return train.sample(int(share * len(good)), random_state=seed)

    yield "1% copies among good rows", train, mixed(good, some(0.01))
    for share in (0.05, 0.1):
        noisy = with_noise(some(share), 0.01, rng)
        yield f"{share:.0%} copies with 1.0% noise among good rows", train, mixed(good, noisy)
    top = train.sort_values(RICH[name]).tail(TOP)
    yield f"the {TOP} rows with the largest number among good rows", train, mixed(good, top)
    known = names(2 * len(train), rng)
    real, other = known[: len(train)], known[len(train) :]
    repeated = [*real[: len(good) // 100], *other[len(good) // 100 : len(good)]]
    yield "real names in an id column", train.assign(name=real), good.assign(name=real[: len(good)])
    yield "1% real names in an id column", train.assign(name=real), good.assign(name=repeated)
    yield (
        "good rows with other names",
        train.assign(name=real),
        good.assign(name=other[: len(good)]),
    )


def verdict_on(
    synthetic: Any, train: Any, test: Any, *, seed: int = 0, model: TabMT | None = None
) -> Privacy:
    real = Evaluator.of(train, test, seed=seed).real_rows
    log_prob = None if model is None else RowEmbedding.of(model).log_prob
    return privacy_verdict(real, as_arrow(synthetic), log_prob)


def significant(privacy: Privacy) -> list[str]:
    return [test.name for test in privacy.tests if test.p_value < test.limit]


def on_disguises(name: str, train: pd.DataFrame, others: pd.DataFrame, seed: int) -> list[Any]:
    found = []
    good = others[:ROWS].reset_index(drop=True)
    for case, real, synthetic in disguises(name, train[:ROWS].reset_index(drop=True), good, seed):
        for count in TEST_ROWS:
            test = others[ROWS : ROWS + count].reset_index(drop=True)
            if "name" in real:
                test = test.assign(name=[f"Nobody {number}" for number in range(len(test))])
            privacy = verdict_on(synthetic, real, test if count else None, seed=seed)
            found.append(
                {"case": case, "test_rows": count, "outcome": privacy.outcome,
                 "tests": significant(privacy), "needed": privacy.needed_test_rows}
            )  # fmt: skip
            print(name, case, count, privacy.outcome, flush=True)
    return found


def on_fresh_rows(table: pd.DataFrame, test_rows: int, seeds: int) -> dict[str, Any]:
    """Fresh real rows, in a table of their own with other rows for each seed."""
    outcomes: Counter[str] = Counter()
    for seed in range(seeds):
        rows = table.sample(2 * ROWS + test_rows, random_state=seed, ignore_index=True)
        train, test, fresh = np.split(rows.index, [ROWS, ROWS + test_rows])
        parts = [rows.loc[part].reset_index(drop=True) for part in (fresh, train, test)]
        outcomes[verdict_on(*parts, seed=seed).outcome] += 1
    print("fresh rows", test_rows, dict(outcomes), flush=True)
    return {"test_rows": test_rows, "seeds": seeds, "outcomes": dict(outcomes)}


def on_samples(
    model: TabMT, train: pd.DataFrame, others: pd.DataFrame, test_rows: int, seeds: int
) -> dict[str, Any]:
    """Samples of a model, each with other test rows."""
    outcomes: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for seed in range(seeds):
        test = others.sample(test_rows, random_state=seed, ignore_index=True)
        privacy = verdict_on(model.sample(len(train), seed=seed), train, test, seed=seed)
        outcomes[privacy.outcome] += 1
        tests.update(significant(privacy))
    print("samples", test_rows, dict(outcomes), dict(tests), flush=True)
    return {
        "test_rows": test_rows,
        "seeds": seeds,
        "outcomes": dict(outcomes),
        "tests": dict(tests),
    }


def attacked_tables(
    model: TabMT, unprotected: TabMT, train: pd.DataFrame, others: pd.DataFrame, seed: int
) -> Iterator[tuple[str, pd.DataFrame, TabMT]]:
    """(what it is, synthetic table, the model that the attacker has)."""
    for value in TEMPERATURES:
        rows = model.sample(len(train), seed=seed, temperature=value)
        yield f"temperature {value:g}", rows, model
    target = model.get_params()["target"]
    front = pareto(
        model, train, others, target, trials=FRONT_TRIALS, workers=1, seed=seed,
        catboost_settings={"thread_count": 1},
    )  # fmt: skip
    chosen = front.choose(point=(len(front.points) + 1) // 2).temperatures
    yield "middle of a front", model.sample(len(train), seed=seed, temperature=chosen), model
    rows = unprotected.sample(len(train), seed=seed)
    yield "temperature 1, without protection", rows, unprotected
    yield "copies", train, model


def on_attacks(
    model: TabMT, unprotected: TabMT, train: pd.DataFrame, others: pd.DataFrame, seed: int
) -> list[dict[str, Any]]:
    found = []
    for name, table, attacked in attacked_tables(model, unprotected, train, others, seed):
        privacy = verdict_on(table, train, others, seed=seed, model=attacked)
        attacks = [_rounded(dataclasses.asdict(attack)) for attack in privacy.attacks]
        exposed = None if privacy.exposed is None else dataclasses.asdict(privacy.exposed)
        found.append({"rows": name, "outcome": privacy.outcome, "tests": significant(privacy),
                      "attacks": attacks, "exposed": exposed})  # fmt: skip
        print(name, privacy.outcome, privacy.attacks[0].name, privacy.attacks[0].risk, flush=True)
    return found


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}


def run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    info = CLEAN_TABLES[name]
    train, valid, test = load_rows(arguments.data, info)
    others = pd.concat([valid, test]).sample(frac=1, random_state=arguments.seed, ignore_index=True)
    table = pd.concat([train, others], ignore_index=True)
    parts: dict[str, Any] = {"table": name, "rows": ROWS}
    path = result_path(f"verdicts-{name}")
    if path.is_file():
        parts = json.loads(path.read_text())
    if "real" in arguments.parts:
        parts["disguised"] = on_disguises(name, train, others, arguments.seed)
        counts = TEST_ROWS[2:]
        parts["fresh"] = [on_fresh_rows(table, count, arguments.seeds) for count in counts]
    if "models" in arguments.parts:
        parts |= on_models(info, train, others, arguments)
    return {**parts, **run_info("benchmarks.verdicts", arguments.data, arguments.threads)}


def on_models(
    info: TableInfo, train: pd.DataFrame, others: pd.DataFrame, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Samples of a model, and the attacks on it and on one without protection."""
    settings = {"minutes": arguments.minutes, "threads": arguments.threads,
                "target": info.target, "seed": arguments.seed}  # fmt: skip
    model, unprotected = (TabMT(**settings, **more).fit(train) for more in ({}, {"protect": 0}))
    counts = TEST_ROWS[2:]
    return {
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "model_rows": len(train),
        "control_rows": len(others),
        "samples": [on_samples(model, train, others, c, arguments.seeds) for c in counts],
        "attacks": on_attacks(model, unprotected, train, others, arguments.seed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=sorted(RICH), choices=sorted(RICH))
    parser.add_argument(
        "--parts", nargs="+", default=PARTS, choices=PARTS,
        help="real: the first two parts, which need no model; the others stay as they are stored",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=2, help="of training each model")
    parser.add_argument("--seeds", type=int, default=20, help="of fresh rows and of samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.tables:
        save_result(f"verdicts-{name}", run(name, arguments))


if __name__ == "__main__":
    main()
