"""Disguised copies are never called safe, and fresh real rows are called unsafe only by chance."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tabmt.cli import main
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.evaluate import Evaluator, evaluate
from tabmt.evaluation.metrics.repeated_rows import repeated_ids
from tabmt.evaluation.report.report import budget_verdict, overview, privacy_verdict, render
from tabmt.evaluation.results import Evaluation
from tabmt.evaluation.verdict import EXTREME_KIND, OTHER_KIND, RARE_KIND
from tabmt.evaluation.verdict import privacy_verdict as verdict_on
from tests.conftest import TINY
from tests.tables import people

TRAIN, GOOD = people(800, 0), people(800, 1)
NAMES = [f"{first}{last} {number % 7}" for number, (first, last) in enumerate(
    (a + b, c + d) for a in ("An", "Be", "Li", "Ol", "Si") for b in ("na", "rit", "ne", "a", "ri")
    for c in ("Dal", "Berg", "Lund", "Moe", "Vik") for d in ("en", "a", "s", "stad", "by", "heim",
    "rud", "sen"))]  # fmt: skip


def noisy(rows: pd.DataFrame, share: float) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    numbers = rows.select_dtypes("number")
    noise = {name: rng.normal(0, share * rows[name].std(), len(rows)) for name in numbers}
    return rows.assign(**{name: rows[name] + noise[name] for name in numbers})


def mixed(copies: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([GOOD[len(copies) :], copies], ignore_index=True)


def with_extreme_income(rows: pd.DataFrame) -> pd.DataFrame:
    changed = rows.copy()
    changed.loc[0, "income"] = 1e12
    return changed


DISGUISES = {
    "copies": (TRAIN, TRAIN),
    "0.1 % noise": (TRAIN, noisy(TRAIN, 0.001)),
    "1 % noise": (TRAIN, noisy(TRAIN, 0.01)),
    "1 % noise and an extreme value": (with_extreme_income(TRAIN), noisy(TRAIN, 0.01)),
    "5 % of copies with 1 % noise": (TRAIN, mixed(noisy(TRAIN[100:140], 0.01))),
    "10 % of copies with 1 % noise": (TRAIN, mixed(noisy(TRAIN[100:180], 0.01))),
    "20 top earners": (TRAIN, mixed(TRAIN.sort_values("income").tail(20))),
    "names": (TRAIN.assign(name=NAMES[:800]), GOOD.assign(name=NAMES[:800])),
}


def outcome(synthetic, train, test, **options):
    found = verdict_on(
        Evaluator.of(train, test).real_rows,
        pa.Table.from_pandas(synthetic, preserve_index=False),
        **options,
    )
    return found


@pytest.mark.parametrize("test_rows", [0, 60, 300])
@pytest.mark.parametrize("case", DISGUISES)
def test_disguised_copies_are_found(case, test_rows):
    train, synthetic = DISGUISES[case]
    test = people(test_rows, 2) if test_rows else None
    if "name" in train and test is not None:
        test = test.assign(name=[f"Somebody {i}" for i in range(test_rows)])
    assert outcome(synthetic, train, test).outcome == "unsafe"


def test_one_percent_of_exact_copies_is_found_in_a_larger_table():
    train, good = people(3000, 0), people(3000, 1)
    rows = pd.concat([good[30:], train[:30]], ignore_index=True)
    found = outcome(rows, train, people(60, 2))
    assert found.outcome == "unsafe"
    assert found.reasons[0] == "30 training rows are repeated exactly; expected by chance: none."


def test_fresh_rows_are_called_unsafe_no_more_often_than_promised():
    found = [
        outcome(people(250, 3 * seed), people(400, 3 * seed + 1), people(150, 3 * seed + 2)).outcome
        for seed in range(20)
    ]
    assert found.count("undecided") == 0
    assert found.count("unsafe") <= 3  # of 20, at 5 %: more happen once in sixty times


def test_nothing_is_called_safe_without_enough_test_rows():
    without, few, enough = (
        outcome(GOOD, TRAIN, test) for test in (None, people(60, 2), people(200, 2))
    )
    needed = few.needed_test_rows
    assert [one.outcome for one in (without, few, enough)] == ["undecided", "undecided", "safe"]
    assert 60 < needed <= 200
    assert without.reasons == (
        f"There are no test rows to compare with. Give at least {without.needed_test_rows} test "
        "rows that the generator has not seen.",
    )
    assert few.reasons == (
        "With 60 test rows, a leak of 1 in 20 training rows could go unnoticed. Give at least "
        f"{needed} test rows that the generator has not seen.",
    )
    assert without.attacks == () and without.exposed is None


def test_test_rows_that_are_training_rows_are_no_control():
    found = outcome(GOOD, TRAIN, TRAIN[:300].reset_index(drop=True))
    assert found.outcome == "undecided"
    assert found.reasons[0].startswith(
        "100% of the test rows are training rows too, so attacks cannot be compared with them."
    )


def test_without_test_rows_all_training_rows_are_compared():
    """Also those that are set aside as test rows for the other scores."""
    evaluator = Evaluator.of(TRAIN)
    assert len(evaluator.train) < len(TRAIN)
    privacy = evaluator.evaluate(TRAIN).evaluation.privacy
    assert privacy.reasons[0].startswith("800 training rows are repeated exactly")


def test_a_category_that_only_test_rows_have_is_one_like_any_other():
    train = TRAIN.assign(town=[f"town {i}" for i in range(800)])
    test = people(300, 2).assign(town=[f"place {i}" for i in range(300)])
    schema = {"columns": [{"name": "town", "kind": "categorical"}]}
    real = Evaluator.of(train, test, schema=schema).real_rows
    assert (
        len(np.unique(np.concatenate([real.train.codes["town"], real.control.codes["town"]])))
        == 1100
    )
    rows = GOOD.assign(town=[f"spot {i}" for i in range(800)])
    assert verdict_on(real, pa.Table.from_pandas(rows)).outcome == "safe"


@pytest.mark.parametrize(
    ("ids", "real", "found"),
    [
        (["Anna Dal", "Siri Moe"], ["Anna Dal", "Berit Lund", "Ola Vik", "Siri Moe"], True),
        ([str(i) for i in range(500)], [str(i) for i in range(1000)], False),  # consecutive
        ([f"id_{i}" for i in range(500)], [f"id_{i}" for i in range(1000)], False),
        ([f"{i:08x}" for i in range(0, 10**9, 10**8)], [f"{i:08x}" for i in range(0, 10**9, 10**7)],
         True),
        ([str(i) for i in range(10**6, 10**6 + 50)], [str(i) for i in range(100, 200)], False),
    ],
    ids=["names", "numbers", "prefix", "hexadecimal", "new"],
)  # fmt: skip
def test_identifiers_are_real_ones_beyond_chance(ids, real, found):
    assert (repeated_ids("id", ids, real).p_value < 0.01) == found


def test_the_most_exposed_kind_of_row_is_named():
    town = pd.Series(np.where(np.arange(3000) % 100 < 9, "small", "large"))
    town[town == "small"] = [f"small {i}" for i in range((town == "small").sum())]
    train, test, good = (people(3000, seed).assign(town=town) for seed in range(3))
    small = train[town != "large"]
    rows = pd.concat([good[town == "large"], small], ignore_index=True)
    schema = {"columns": [{"name": "town", "kind": "categorical"}]}
    found = verdict_on(
        Evaluator.of(train, test, schema=schema).real_rows, pa.Table.from_pandas(rows)
    )
    assert found.exposed.kind == RARE_KIND
    assert found.exposed.risk_low > 0.5


def test_rows_are_rare_or_extreme_by_their_columns():
    train = pd.DataFrame({"x": np.arange(1000) ** 1.5, "c": ["a"] * 997 + ["b"] * 3})
    real = Evaluator.of(train, train.assign(c="a")).real_rows
    kinds, order = real.kinds[0], np.argsort(real.train.numbers["x"])
    assert np.flatnonzero(kinds[RARE_KIND][order]).tolist() == [997, 998, 999]
    assert np.flatnonzero(kinds[EXTREME_KIND][order]).tolist() == [*range(5), *range(995, 1000)]
    assert (kinds[OTHER_KIND] == ~(kinds[RARE_KIND] | kinds[EXTREME_KIND])).all()


# --- the risk limit, and where the verdict is shown ----------------------------------------


@pytest.fixture(scope="module")
def evaluations():
    test = people(300, 2)
    tables = {"good": GOOD, "copies": TRAIN}
    found = {}
    for limit in (0.01, 0.5):
        evaluator = Evaluator.of(TRAIN, test, max_risk=limit)
        for name, table in tables.items():
            found[name, limit] = evaluator.evaluate(table, name).evaluation
    return found


def test_a_table_passes_if_no_interval_exceeds_the_limit(evaluations):
    good = evaluations["good", 0.5].privacy
    assert good.passed
    assert budget_verdict(good) == (
        "Risk limit 50.0%: passed. No attack's confidence interval exceeds it."
    )
    strict = evaluations["good", 0.01].privacy
    highest = max(strict.attacks, key=lambda attack: attack.risk_high)
    assert strict.outcome == "safe" and not strict.passed and highest.risk_high > 0.01
    assert budget_verdict(strict).startswith(
        f"Risk limit 1.0%: failed, because of {highest.title}, risk {highest.risk:.1%}"
    )
    copied = evaluations["copies", 0.5].privacy
    assert not copied.passed
    assert budget_verdict(copied) == (
        "Risk limit 50.0%: failed, because the verdict is: do not share."
    )


def test_the_verdict_says_outcome_reasons_worst_attack_and_limit(evaluations):
    sentences = privacy_verdict(evaluations["copies", 0.5])
    assert sentences[0] == "Do not share these rows."
    assert sentences[1] == "800 training rows are repeated exactly; expected by chance: none."
    assert any("further tests say the same" in sentence for sentence in sentences)
    assert any(sentence.startswith("The worst attack: ") for sentence in sentences)
    assert sentences[-1].startswith("Risk limit 50.0%: failed")


def test_a_risk_whose_interval_begins_at_zero_may_be_due_to_chance(evaluations):
    for name, by_chance in (("good", True), ("copies", False)):
        evaluation = evaluations[name, 0.5]
        assert (evaluation.privacy.worst.risk_low == 0) == by_chance
        worst = next(s for s in privacy_verdict(evaluation) if s.startswith("The worst attack: "))
        assert worst.endswith(", so it may be due to chance).") == by_chance
        assert ("so it may be due to chance" in overview(evaluation)[0].comparison) == by_chance


def test_the_score_of_the_worst_attack_is_the_highest_risk(evaluations):
    evaluation = evaluations["good", 0.5]
    risks = [attack.risk for attack in evaluation.privacy.attacks]
    assert evaluation["worst_attack"].value == max(risks) == evaluation.privacy.worst.risk


def test_the_verdict_survives_json(evaluations):
    for evaluation in evaluations.values():
        assert Evaluation.from_json(json.loads(json.dumps(evaluation.to_json()))) == evaluation


def test_the_report_leads_with_the_verdict_and_the_attacks():
    evaluator = Evaluator.of(TRAIN, people(300, 2), max_risk=0.1)
    page = render(evaluator, [evaluator.evaluate(TRAIN, "copies.csv")])
    words = ["<h2>Do not share these rows", "Risk limit 10.0%: failed", "Quality",
             "Privacy: what an attacker finds out", "Membership by the nearest neighbour",
             "Footnote: the distance to the closest training row", "Columns"]  # fmt: skip
    positions = [page.index(word) for word in words]
    assert positions == sorted(positions)


def test_a_model_at_hand_is_attacked_by_its_likelihood():
    train, test = people(200, 0), people(200, 1)
    model = TabMT(steps=40, seed=0, **TINY).fit(train)
    found = evaluate(model.sample(200, seed=1), train, test, model=model).privacy
    likelihood = next(attack for attack in found.attacks if attack.name == "likelihood")
    scores = [model.score(rows)["log_prob"].to_numpy() for rows in (train, test)]
    pairs = (scores[0][:, None] > scores[1]).mean() + (scores[0][:, None] == scores[1]).mean() / 2
    assert likelihood.auc == pytest.approx(pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_risk": 2}, "max_risk is 2, but must be a number from 0 to 1."),
        ({"max_risk": 0.1, "test": None},
         "The risk is measured with test rows, which the generator has not seen, so max_risk needs "
         "a test table."),
        ({"model": 3}, "model is a int, but must be a fitted TabMT or the path of a model file."),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_before_the_work(options, message):
    arguments = {"train": TRAIN, "test": GOOD, **options}
    with pytest.raises(UserError) as error:
        Evaluator.of(**arguments)
    assert str(error.value) == message


def test_the_command_prints_the_verdict_and_its_exit_code_says_whether_it_passed(tmp_path, capsys):
    for name, rows in (("train", TRAIN), ("test", people(300, 2)), ("good", GOOD)):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    options = ["--train", str(tmp_path / "train.csv"), "--test", str(tmp_path / "test.csv")]

    def run(table, *more):
        with pytest.raises(SystemExit) as stop:
            main(["--quiet", "evaluate", str(tmp_path / table), *options, *more])
        return stop.value.code, capsys.readouterr().out

    code, words = run("good.csv", "--max-risk", "0.5", "--json", str(tmp_path / "scores.json"))
    assert code == 0 and "Verdict on good.csv:\nSafe by these tests.\n" in words
    assert json.loads((tmp_path / "scores.json").read_text())[0]["privacy"]["passed"] is True
    code, words = run("train.csv", "--max-risk", "0.5")
    assert code == 1 and "Verdict on train.csv:\nDo not share these rows.\n" in words
    assert run("train.csv")[0] == 0
    assert run("train.csv", "--max-risk", "7")[0] == 2
