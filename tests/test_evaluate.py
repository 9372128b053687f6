"""Copies, shuffled columns and held-out rows: each metric orders them as theory demands."""

import importlib
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tabmt.data.schema import Source, infer
from tabmt.demo import penguins
from tabmt.errors import UserError
from tabmt.evaluation.evaluate import Evaluation, Judge, evaluate
from tabmt.evaluation.metrics.view import Lens
from tabmt.evaluation.report import figures_table
from tabmt.rules.rule import Rule

# By its name, because the package has a function of the same.
evaluate_module = importlib.import_module("tabmt.evaluation.evaluate")


@pytest.fixture(scope="module")
def real():
    frame = pd.read_csv(penguins())
    rows = np.random.default_rng(0).permutation(len(frame))
    parts = np.split(rows, [150, 250])
    return [frame.iloc[part].reset_index(drop=True) for part in parts]


@pytest.fixture(scope="module")
def judged(real):
    """Evaluations of: copies of training rows, shuffled columns, and fresh real rows."""
    train, test, fresh = real
    judge = Judge.of(
        train, test, target="species", rules=[Rule.parse("long", "bill_length_mm > 10")]
    )
    rng = np.random.default_rng(1)
    tables = {
        "copy": train.iloc[rng.integers(0, len(train), len(fresh))].reset_index(drop=True),
        "shuffle": pd.DataFrame({name: rng.permutation(train[name]) for name in train})[
            : len(fresh)
        ],
        "fresh": fresh,
    }
    return {name: judge.judge(table, name).evaluation for name, table in tables.items()}


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("ml_efficiency", ["shuffle", "fresh"]),
        ("detector_auc", ["fresh", "shuffle"]),
        ("pair_distance", ["fresh", "shuffle"]),
        ("correlation_error", ["fresh", "shuffle"]),
        ("gap_correlation_error", ["fresh", "shuffle"]),
        ("beta_recall", ["shuffle", "fresh"]),
        ("precision", ["shuffle", "fresh"]),
        ("copies", ["fresh", "copy"]),
        ("copies", ["shuffle", "copy"]),
        ("share_closer_to_train", ["fresh", "copy"]),
        ("dcr_median", ["copy", "fresh", "shuffle"]),
        ("dcr_5", ["copy", "fresh", "shuffle"]),
        ("nndr", ["copy", "fresh", "shuffle"]),
    ],
)
def test_copies_shuffled_columns_and_fresh_rows_are_ordered_as_theory_demands(judged, name, order):
    values = [judged[table][name].value for table in order]
    assert values == sorted(values) and values[0] < values[-1]


def test_fresh_rows_score_near_the_reference(judged):
    for name, slack in {
        "ml_efficiency": 0.08,
        "column_distance": 0.06,
        "correlation_error": 0.05,
        "share_closer_to_train": 0.12,
        "dcr_median": 0.05,
        "precision": 0.1,
        "recall": 0.1,
    }.items():
        score = judged["fresh"][name]
        assert abs(score.value - score.reference) < slack, name


def test_the_worst_case_of_a_headline_is_worse_than_its_reference(judged):
    for name in ("ml_efficiency", "detector_auc", "correlation_error", "share_closer_to_train"):
        score = judged["fresh"][name]
        better = score.reference - score.worst
        assert better > 0 if score.better == "higher" else better < 0


def test_copies_and_nothing_else_are_copies(judged):
    assert judged["copy"]["copies"].value == 1.0
    assert judged["copy"]["dcr_median"].value == 0.0
    assert judged["copy"]["share_closer_to_train"].value > 0.95
    assert judged["fresh"]["copies"].value == 0.0


def test_rules_are_counted_beside_the_real_table(judged):
    score = judged["fresh"]["rule: long"]
    assert (score.value, score.reference) == (0.0, 0.0)


def test_a_schema_says_what_a_gap_is_and_which_rules_hold(real):
    """In text, where NA would be a sex, and would break the rule."""
    train, test, fresh = (one.fillna({"sex": "NA"}) for one in real)
    rule = {"rules": {"sex": "sex in ['male', 'female']"}}
    word = evaluate(fresh, train, test, schema=rule)["rule: sex"]
    gap = evaluate(fresh, train, test, schema={"gap_text": "NA", **rule})["rule: sex"]
    assert word.value > 0 and word.reference > 0
    assert (gap.value, gap.reference) == (0.0, 0.0)


def test_a_gap_spelled_among_codes_is_one_in_text_and_in_numbers():
    """CSV files hold text, and what is read from Parquet or pandas holds numbers."""
    frame = pd.DataFrame({"code": [0, 1, -9, 0] * 20, "x": np.arange(80) % 7})
    train = pa.table({name: frame[name].astype(str).tolist() for name in frame})
    found = infer(train, Source("csv"), overrides={"gap_text": "-9"})
    assert found.columns[0].kind == "categorical"
    lens = Lens.grind(train, found)
    for rows in (train, pa.Table.from_pandas(frame)):
        assert lens.view(rows, "any").gaps("code").tolist() == (frame["code"] == -9).tolist()


def test_a_column_whose_only_number_is_set_aside_is_left_out():
    frame = pd.DataFrame({"rare": [np.nan] * 100, "x": np.arange(100.0) % 17, "g": ["a", "b"] * 50})
    left_out = 0
    for row in range(0, 100, 7):
        one = frame.copy()
        one.loc[row, "rare"] = 0.5
        left_out += "rare" in Judge.of(one).train.lens.left_out
    assert 0 < left_out < 15  # a fifth of the rows is set aside


def test_a_rule_on_a_column_that_only_the_synthetic_table_has_gets_a_sentence(real):
    train, test, fresh = real
    with pytest.raises(UserError, match="The rule 't' names a column 'extra', but the table has:"):
        evaluate(
            fresh.assign(extra="a"), train, test, rules=[Rule.parse("t", "together(sex, extra)")]
        )


def test_an_evaluation_survives_json(judged):
    one = judged["copy"]
    assert Evaluation.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_the_same_seed_gives_the_same_figures(real):
    train, test, fresh = real
    one, two = (evaluate(fresh, train, test, target="species", seed=3) for _ in range(2))
    assert one == two


def test_a_metric_that_cannot_be_had_says_why_and_the_others_go_on(real):
    train, test, fresh = real
    same = fresh.assign(species="Adelie")
    found = evaluate(same, train, test, target="species")
    assert found["ml_efficiency"].value is None
    assert found["ml_efficiency"].note == (
        "the target 'species' does not vary in the table trained on"
    )
    assert found["dcr_median"].value > 0


def test_the_papers_protocol_says_how_many_rows_it_needs(real):
    train, test, fresh = real
    found = evaluate(fresh, train, test, target="species", paper=True)
    assert found["ml_efficiency"].note == (
        "the paper's protocol needs 5 samples of 1,200 rows, so a synthetic table of 6,000 rows; "
        "this one has 94"
    )


def test_the_papers_protocol_runs(real):
    train, test, fresh = real
    many = pd.concat([fresh] * 64, ignore_index=True)
    settings = {"iterations": 3}
    found = evaluate(many, train, test, target="species", paper=True, catboost_settings=settings)[
        "ml_efficiency"
    ]
    assert found.value > 0.5
    assert "10 CatBoost models on each of 5 samples of 8 times" in found.note


def test_without_a_test_table_one_is_split_off_and_told(real):
    train, _, fresh = real
    judge = Judge.of(train)
    assert len(judge.test) == 30 and len(judge.train) == 120
    assert judge.notes[0].startswith("No test table was given, so 30 of the training rows serve")
    assert judge.judge(fresh).evaluation["ml_efficiency"].note == "no target column was named"


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (
            lambda t: t.drop(columns="sex"),
            {},
            "The synthetic table has no column 'sex'; it has: species, island, bill_length_mm, "
            "bill_depth_mm, flipper_length_mm, body_mass_g, year.",
        ),
        (
            lambda t: t.assign(body_mass_g="heavy"),
            {},
            "Column 'body_mass_g' should hold numbers, but does not: "
            "Failed to parse string: 'heavy' as a scalar of type double",
        ),
        (lambda t: t[:0], {}, "The synthetic table has no rows."),
        (
            lambda t: t,
            {"target": "specie"},
            "The target 'specie' cannot be predicted: the table has: species, island, "
            "bill_length_mm, bill_depth_mm, flipper_length_mm, body_mass_g, sex, year.",
        ),
    ],
)
def test_tables_that_cannot_be_judged_get_a_sentence(real, change, options, sentence):
    train, test, fresh = real
    with pytest.raises(UserError) as error:
        evaluate(change(fresh), train, test, **options)
    assert str(error.value) == sentence


def test_tables_with_and_without_gaps_are_compared_by_name(real):
    train, test, fresh = (part.dropna().reset_index(drop=True) for part in real)
    judge = Judge.of(train, test)
    gappy = fresh.assign(sex=fresh["sex"].where(np.arange(len(fresh)) % 3 > 0))
    found = [judge.judge(table, name).evaluation for name, table in
             {"whole": fresh, "gappy": gappy}.items()]  # fmt: skip
    for order in (found, found[::-1]):
        lines = {line.split("  ")[0]: line.split() for line in figures_table(order).splitlines()}
        for one in order:
            place = 1 + [e.name for e in order].index(one.name)
            assert lines["Recall"][place] == f"{one['recall'].value:.3f}"
            assert lines["Diversity"][place] == f"{one['diversity'].value:.3f}"
        assert "n/a" in lines["Gap rate error"]


@pytest.mark.parametrize("rows", [1, 3, 19])
def test_few_rows_lack_some_figures_but_give_the_others(real, rows):
    train, test, fresh = real
    found = evaluate(fresh[:rows], train, test[:rows], target="species")
    assert found["detector_auc"].value is None and "too few" in found["detector_auc"].note
    assert found["dcr_median"].value > 0
    json.loads(json.dumps(found.to_json(), allow_nan=False))


def test_one_row_cannot_be_split():
    with pytest.raises(UserError) as error:
        Judge.of(pd.DataFrame({"x": [1.5]}))
    assert str(error.value) == (
        "The training table has 1 rows, too few to split test rows off; give a test table."
    )


def test_one_column_is_judged_as_far_as_it_goes():
    column = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    found = evaluate(column[:30], column, column[30:].reset_index(drop=True))
    assert found["correlation_error"].note == "no two columns can be correlated"
    assert found["column_distance"].value > 0


def test_catboosts_complaints_become_notes(real):
    train, test, fresh = real
    found = evaluate(fresh, train, test, target="species", catboost_settings={"colour": "red"})
    assert found["ml_efficiency"].value is None
    assert found["ml_efficiency"].note.startswith("CatBoost cannot learn this: ")


def test_of_a_large_table_some_rows_are_judged_and_it_says_so(real, monkeypatch):
    train, test, fresh = real
    monkeypatch.setattr(evaluate_module, "MANY_ROWS", 60)
    monkeypatch.setattr(evaluate_module, "MOST_BY_DISTANCE", 50)
    many = pd.concat([train, train, fresh[:1]], ignore_index=True)  # 301 rows, all but one copies
    judged = Judge.of(train, test).judge(many)
    found = judged.evaluation
    assert found.rows["synthetic"] == 301
    assert len(judged.view) == 150 and len(judged.closeness.distances) == 50
    assert any("Of 301 synthetic rows, 150 drawn at random were judged" in n for n in found.notes)
    assert any("Distances are those of at most 50 rows" in note for note in found.notes)
    assert found["copies"].value > 0.99  # looked for in all
    assert found["precision"].note.endswith("50 rows of each")
    few = Judge.of(train, test[:50]).judge(fresh[:40]).evaluation
    assert few.notes == ()
