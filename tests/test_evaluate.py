"""Copies, shuffled columns and fresh real rows: each metric orders them as theory demands."""

import importlib
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tabmt import penguins
from tabmt.data.dataset import InMemory
from tabmt.data.infer import infer_schema
from tabmt.data.schema import Source
from tabmt.errors import UserError
from tabmt.evaluation.evaluate import Evaluator, evaluate
from tabmt.evaluation.metrics import utility
from tabmt.evaluation.metrics.encoder import MetricEncoder
from tabmt.evaluation.report.report import render, scores_as_text
from tabmt.evaluation.results import Evaluation
from tabmt.rules.rule import Rule
from tabmt.seeds import derive, numpy_stream

# By its name, because the package has a function of the same.
evaluate_module = importlib.import_module("tabmt.evaluation.evaluate")


@pytest.fixture(scope="module")
def real():
    frame = pd.read_csv(penguins())
    rows = np.random.default_rng(0).permutation(len(frame))
    parts = np.split(rows, [150, 250])
    return [frame.iloc[part].reset_index(drop=True) for part in parts]


@pytest.fixture(scope="module")
def evaluations(real):
    """Evaluations of: copies of training rows, shuffled columns, and fresh real rows."""
    train, test, fresh = real
    evaluator = Evaluator.of(
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
    return {name: evaluator.evaluate(table, name).evaluation for name, table in tables.items()}


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("ml_efficiency", ["shuffle", "fresh"]),
        ("detector_auc", ["fresh", "shuffle"]),
        ("pair_distance", ["fresh", "shuffle"]),
        ("correlation_error", ["fresh", "shuffle"]),
        ("missing_correlation_error", ["fresh", "shuffle"]),
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
def test_copies_shuffled_columns_and_fresh_rows_are_ordered_as_theory_demands(
    evaluations, name, order
):
    values = [evaluations[table][name].value for table in order]
    assert values == sorted(values) and values[0] < values[-1]


def test_fresh_rows_score_near_the_reference(evaluations):
    for name, slack in {
        "ml_efficiency": 0.08,
        "column_distance": 0.06,
        "correlation_error": 0.05,
        "share_closer_to_train": 0.12,
        "dcr_median": 0.05,
        "precision": 0.1,
        "recall": 0.1,
    }.items():
        score = evaluations["fresh"][name]
        assert abs(score.value - score.reference) < slack, name


def test_the_worst_case_of_a_headline_is_worse_than_its_reference(evaluations):
    for name in ("ml_efficiency", "detector_auc", "correlation_error", "worst_attack"):
        score = evaluations["fresh"][name]
        better = score.reference - score.worst
        assert better > 0 if score.better == "higher" else better < 0


def test_copies_and_nothing_else_are_copies(evaluations):
    assert evaluations["copy"]["copies"].value == 1.0
    assert evaluations["copy"]["dcr_median"].value == 0.0
    assert evaluations["copy"]["share_closer_to_train"].value > 0.95
    assert evaluations["fresh"]["copies"].value == 0.0


def test_rules_are_counted_beside_the_real_table(evaluations):
    score = evaluations["fresh"]["rule: long"]
    assert (score.value, score.reference) == (0.0, 0.0)


def test_a_schema_says_which_text_means_missing_and_which_rules_hold(real):
    """In text, where NA would be a sex, and would violate the rule."""
    train, test, fresh = (one.fillna({"sex": "NA"}) for one in real)
    rule = {"rules": {"sex": "sex in ['male', 'female']"}}
    word = evaluate(fresh, train, test, schema=rule)["rule: sex"]
    missing = evaluate(fresh, train, test, schema={"missing_text": "NA", **rule})["rule: sex"]
    assert word.value > 0 and word.reference > 0
    assert (missing.value, missing.reference) == (0.0, 0.0)


def test_a_code_that_means_missing_does_so_in_text_and_in_numbers():
    """CSV files hold text, and what is read from Parquet or pandas holds numbers."""
    frame = pd.DataFrame({"code": [0, 1, -9, 0] * 20, "x": np.arange(80) % 7})
    train = pa.table({name: frame[name].astype(str).tolist() for name in frame})
    found = infer_schema(InMemory(train, Source("csv")), overrides={"missing_text": "-9"})
    assert found.columns[0].kind == "categorical"
    encoder = MetricEncoder.fit(train, found)
    for rows in (train, pa.Table.from_pandas(frame)):
        encoded = encoder.encode(rows, "any")
        assert encoded.missing("code").tolist() == (frame["code"] == -9).tolist()


def test_a_column_whose_only_number_is_set_aside_is_left_out():
    frame = pd.DataFrame({"rare": [np.nan] * 100, "x": np.arange(100.0) % 17, "g": ["a", "b"] * 50})
    left_out = 0
    for row in range(0, 100, 7):
        one = frame.copy()
        one.loc[row, "rare"] = 0.5
        left_out += "rare" in Evaluator.of(one).train.encoder.left_out
    assert 0 < left_out < 15  # a fifth of the rows is set aside


def test_a_rule_on_a_column_that_only_the_synthetic_table_has_is_refused(real):
    train, test, fresh = real
    with pytest.raises(
        UserError, match="The rule 't' names a column 'extra', which does not exist;"
    ):
        evaluate(
            fresh.assign(extra="a"), train, test, rules=[Rule.parse("t", "together(sex, extra)")]
        )


def test_an_evaluation_survives_json(evaluations):
    one = evaluations["copy"]
    assert Evaluation.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_the_same_seed_gives_the_same_scores(real):
    train, test, fresh = real
    one, two = (evaluate(fresh, train, test, target="species", seed=3) for _ in range(2))
    assert one == two


def test_a_metric_that_cannot_be_computed_says_why_and_the_others_are_computed(real):
    train, test, fresh = real
    same = fresh.assign(species="Adelie")
    found = evaluate(same, train, test, target="species")
    assert found["ml_efficiency"].value is None
    assert found["ml_efficiency"].note == (
        "the target 'species' does not vary in the training rows"
    )
    assert found["dcr_median"].value > 0


def test_the_papers_protocol_says_how_many_rows_it_needs(real):
    train, test, fresh = real
    found = evaluate(fresh, train, test, target="species", paper=True)
    assert found["ml_efficiency"].note == (
        "the paper's protocol needs 5 samples of 1,200 rows, so a synthetic table of 6,000 rows; "
        "this one has 94"
    )


def test_the_papers_protocol_has_the_mean_and_deviation_of_its_fifty_scores(real):
    train, test, fresh = real
    many = pd.concat([fresh] * 64, ignore_index=True)
    settings = {"iterations": 2, "depth": 2}
    options = {"target": "species", "paper": True, "catboost_settings": settings}
    evaluator = Evaluator.of(train, test, **options)
    evaluated = evaluator.evaluate(many, "many.csv")
    found = evaluated.evaluation["ml_efficiency"]

    encoded = evaluator.train.encoder.encode(pa.Table.from_pandas(many), "synthetic")
    rng = numpy_stream(0, "paper samples")
    samples = utility.split_into_samples(encoded, 5, 8 * len(train), rng)

    def scores(tables):
        return [
            utility.ml_efficiency(
                table,
                evaluator.valid,
                evaluator.test,
                "species",
                settings=settings,
                seed=derive(0, "catboost", number) % 2**31,
            ).score
            for table in tables
            for number in range(10)
        ]

    ours, reference = scores(samples), scores([evaluator.fit_rows])
    assert len(ours) == 50 and len(set(ours)) > 10
    assert "10 CatBoost models on each of 5 samples of 8 times the training rows" in found.note
    assert (found.value, found.sd) == pytest.approx((np.mean(ours), np.std(ours)))
    assert found.reference == pytest.approx(np.mean(reference))
    assert found.reference_sd == pytest.approx(np.std(reference))

    words = [f"{np.mean(group):.3f} ± {np.std(group):.3f}" for group in (ours, reference)]
    line = scores_as_text([evaluated.evaluation]).splitlines()[1]
    assert line.split("  ")[0] == "ML efficiency (macro F1)"
    assert all(word in line for word in words)
    page = render(evaluator, [evaluated])
    assert all(word in page for word in words)
    stored = Evaluation.from_json(json.loads(json.dumps(evaluated.evaluation.to_json())))
    assert stored["ml_efficiency"].sd == found.sd


def test_a_single_model_has_no_deviation(evaluations):
    found = evaluations["fresh"]["ml_efficiency"]
    assert found.sd is None and found.reference_sd is None
    assert "±" not in scores_as_text(list(evaluations.values()))


def test_without_a_test_table_one_is_split_off_and_a_note_says_so(real):
    train, _, fresh = real
    evaluator = Evaluator.of(train)
    assert len(evaluator.test) == 30 and len(evaluator.train) == 120
    assert evaluator.notes[0].startswith(
        "No test table was given, so 30 of the training rows are used"
    )
    assert (
        evaluator.evaluate(fresh).evaluation["ml_efficiency"].note == "no target column was named"
    )


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
            "Column 'body_mass_g' should hold numbers, but some of its cells hold other text.",
        ),
        (lambda t: t[:0], {}, "The synthetic table has no rows."),
        (
            lambda t: t,
            {"target": "specie"},
            "There is no column 'specie' to predict; the columns are: species, island, "
            "bill_length_mm, bill_depth_mm, flipper_length_mm, body_mass_g, sex, year.",
        ),
    ],
)
def test_tables_that_cannot_be_evaluated_are_refused_with_a_reason(real, change, options, sentence):
    train, test, fresh = real
    with pytest.raises(UserError) as error:
        evaluate(change(fresh), train, test, **options)
    assert str(error.value) == sentence


def test_tables_with_and_without_missing_values_are_compared_by_name(real):
    train, test, fresh = (part.dropna().reset_index(drop=True) for part in real)
    evaluator = Evaluator.of(train, test)
    incomplete = fresh.assign(sex=fresh["sex"].where(np.arange(len(fresh)) % 3 > 0))
    found = [evaluator.evaluate(table, name).evaluation for name, table in
             {"whole": fresh, "incomplete": incomplete}.items()]  # fmt: skip
    for order in (found, found[::-1]):
        lines = {line.split("  ")[0]: line.split() for line in scores_as_text(order).splitlines()}
        for one in order:
            column = 1 + [e.name for e in order].index(one.name)
            assert lines["Recall"][column] == f"{one['recall'].value:.3f}"
            assert lines["Diversity"][column] == f"{one['diversity'].value:.3f}"
        assert "n/a" in lines["Missing rate error"]


@pytest.mark.parametrize("rows", [1, 3, 19])
def test_with_few_rows_only_some_metrics_have_no_value(real, rows):
    train, test, fresh = real
    found = evaluate(fresh[:rows], train, test[:rows], target="species")
    assert found["detector_auc"].value is None and "too few" in found["detector_auc"].note
    assert found["dcr_median"].value > 0
    json.loads(json.dumps(found.to_json(), allow_nan=False))


def test_one_row_cannot_be_split():
    with pytest.raises(UserError) as error:
        Evaluator.of(pd.DataFrame({"x": [1.5]}))
    assert str(error.value) == (
        "The training table has 1 rows, too few to split off test rows; pass a test table."
    )


def test_one_column_has_every_metric_that_needs_only_one():
    column = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    found = evaluate(column[:30], column, column[30:].reset_index(drop=True))
    assert found["correlation_error"].note == "no two columns can be correlated"
    assert found["column_distance"].value > 0


def test_errors_of_catboost_become_notes(real):
    train, test, fresh = real
    found = evaluate(fresh, train, test, target="species", catboost_settings={"colour": "red"})
    assert found["ml_efficiency"].value is None
    assert found["ml_efficiency"].note.startswith("CatBoost failed: ")


def test_of_a_large_table_some_rows_are_evaluated_and_notes_say_so(real, monkeypatch):
    train, test, fresh = real
    monkeypatch.setattr(evaluate_module, "MOST_ROWS", 60)
    monkeypatch.setattr(evaluate_module, "MOST_BY_DISTANCE", 50)
    many = pd.concat([train, train, fresh[:1]], ignore_index=True)  # 301 rows, all but one copies
    evaluated = Evaluator.of(train, test).evaluate(many)
    found = evaluated.evaluation
    assert found.rows["synthetic"] == 301
    assert len(evaluated.encoded) == 150 and len(evaluated.closeness.distances) == 50
    assert any("Of 301 synthetic rows, 150 random ones were evaluated" in n for n in found.notes)
    assert any("Distances use at most 50 random rows" in note for note in found.notes)
    assert found["copies"].value > 0.99  # checked in all rows
    assert found["precision"].note.endswith("50 rows of each")
    few = Evaluator.of(train, test[:50]).evaluate(fresh[:40]).evaluation
    assert few.notes == ()
