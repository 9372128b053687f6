"""Embeddings in the evaluation, and the paper's figures: with a real model and real PaCMAP."""

import importlib
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest

from tabmt import TabMT, evaluate
from tabmt.errors import UserError
from tabmt.evaluation.evaluate import Evaluator
from tabmt.evaluation.metrics.coverage import precision_recall_of_embeddings
from tabmt.evaluation.report import charts, figures
from tabmt.evaluation.report.report import render
from tabmt.seeds import numpy_stream
from tests.conftest import TINY
from tests.tables import mixed_frame
from tests.test_cli import fails_with, run


def shuffled(frame):
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: rng.permutation(frame[name]) for name in frame})


TRAIN, TEST, FRESH = (mixed_frame(300, seed=seed) for seed in (0, 1, 2))
SYNTHETIC = {"fresh": FRESH, "shuffled": shuffled(FRESH), "training": TRAIN}


@pytest.fixture(scope="module")
def model():
    return TabMT(steps=150, **TINY).fit(TRAIN)


@pytest.fixture(scope="module")
def evaluator(model):
    return Evaluator.of(TRAIN, TEST, embed=model)


@pytest.fixture(scope="module")
def evaluated(evaluator):
    return [evaluator.evaluate(table, name) for name, table in SYNTHETIC.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model):
    """The same tables and model as files."""
    folder = tmp_path_factory.mktemp("figures")
    for name, table in {"train": TRAIN, "test": TEST, **SYNTHETIC}.items():
        table.to_parquet(folder / f"{name}.parquet")
    model.save(folder / "m.tabmt")
    return folder


# --- precision and recall ------------------------------------------------------------------


def brute_force(real, synthetic, k=3):
    """Share of synthetic points in the ball of a real one, to its k-th neighbour, and reversed."""
    shares = []
    for centres, points in ((real, synthetic), (synthetic, real)):
        centres, points = centres.astype(np.float64), points.astype(np.float64)
        own = np.linalg.norm(centres[:, None] - centres[None], axis=2)
        radii = np.sort(own, axis=1)[:, k]  # the nearest is the point itself
        distances = np.linalg.norm(points[:, None] - centres[None], axis=2)
        shares.append((distances <= radii + 1e-6).any(1).mean())
    return shares


def test_precision_and_recall_are_those_of_the_embeddings(model, evaluated):
    # All rows are compared: the tables have the same number.
    real = model.embed(TEST)
    reference = brute_force(real, model.embed(TRAIN))
    for table, rows in zip(evaluated, SYNTHETIC.values(), strict=True):
        expected = brute_force(real, model.embed(rows))
        for i, name in enumerate(("precision", "recall")):
            score = table.evaluation[name]
            # By rounding, a single row may lie on either side of its neighbour's radius.
            same = pytest.approx((expected[i], reference[i]), abs=1.01 / len(TEST))
            assert (score.value, score.reference) == same
            assert score.note == "k = 3, in the embedding of the given model, 300 rows of each"


def test_rows_of_a_larger_table_are_chosen_at_random(model):
    """Against brute force with the same rows: the seed's permutation of each table."""
    test, rows = TEST[:100], FRESH
    found = evaluate(rows, TRAIN, test, embed=model, seed=5)
    picked = [
        table.iloc[numpy_stream(5, "rows", i).permutation(len(table))[:100]]
        for i, table in enumerate((test, rows))
    ]
    expected = brute_force(*(model.embed(table) for table in picked))
    assert [found["precision"].value, found["recall"].value] == pytest.approx(expected)
    assert found["precision"].note.endswith("100 rows of each")


def test_of_a_large_table_the_rows_that_are_evaluated_are_embedded(model, monkeypatch):
    # By its name, because the package has a function of the same.
    module = importlib.import_module("tabmt.evaluation.evaluate")
    monkeypatch.setattr(module, "MOST_ROWS", 60)
    train, test = TRAIN[:60], TEST[:50]
    many = pd.concat([FRESH, FRESH[:100]], ignore_index=True)
    result = Evaluator.of(train, test, embed=model).evaluate(many)
    some = many.iloc[numpy_stream(0, "some rows").permutation(400)[:60]]
    rows = some.iloc[numpy_stream(0, "rows", 1).permutation(60)[:50]]
    assert result.vectors == pytest.approx(model.embed(rows), abs=1e-5)


def test_training_rows_score_near_fresh_rows_and_shuffled_columns_below(evaluated):
    fresh, shuffle, train = (
        [table.evaluation[name].value for name in ("precision", "recall")] for table in evaluated
    )
    assert train == pytest.approx(fresh, abs=0.08)
    assert shuffle[0] < min(fresh[0], train[0]) - 0.05


def test_the_scale_of_an_embedding_does_not_matter(rng):
    real, synthetic = rng.normal(size=(200, 6)), rng.normal(0.3, 1.1, size=(200, 6))
    expected = brute_force(real, synthetic)
    for scale in (1e-4, 1.0, 1e4):
        found = precision_recall_of_embeddings(scale * real + 3, scale * synthetic + 3)
        assert found == pytest.approx(expected)
    same = np.ones((20, 6))
    assert precision_recall_of_embeddings(same, same) == (1.0, 1.0)


def test_without_a_model_everything_else_stays_as_it_is(evaluated):
    plain = evaluate(FRESH, TRAIN, TEST)
    for score in plain.scores:
        ours = evaluated[0].evaluation[score.name]
        if score.name in ("precision", "recall"):
            assert score.note == "k = 3, 300 rows of each"
        else:
            assert ours == score


def test_a_table_without_ids_and_with_other_columns_is_embedded(model):
    other = FRESH.drop(columns="id").assign(extra=1)
    evaluator = Evaluator.of(TRAIN, TEST, embed=model)
    assert np.array_equal(evaluator.evaluate(other).vectors, evaluator.evaluate(FRESH).vectors)


def test_values_that_the_model_never_saw_are_embedded_too(model):
    other = FRESH.assign(city="Tromsø", height=FRESH["height"] + 1000)
    precision = evaluate(other, TRAIN, TEST, embed=model)["precision"]
    assert precision.value < 0.75 * precision.reference


def test_few_rows_have_no_precision(model):
    found = evaluate(FRESH[:3], TRAIN, TEST, embed=model)
    for name in ("precision", "recall"):
        assert found[name].value is None
        assert found[name].note == "needs more than 3 rows, but has 3"


def test_a_model_of_another_table_is_refused_with_a_sentence(folder):
    other = pd.DataFrame({"x": np.arange(50.0) % 7, "y": ["a", "b"] * 25})
    TabMT(steps=3, **TINY).fit(other).save(folder / "other.tabmt")
    with pytest.raises(UserError) as error:
        evaluate(FRESH, TRAIN, TEST, embed=folder / "other.tabmt")
    assert str(error.value) == (
        "other.tabmt cannot embed the training table: the table has no column 'x', which the model "
        "needs."
    )
    with pytest.raises(UserError) as error:
        evaluate(FRESH, TRAIN, TEST, embed=3)
    assert str(error.value) == (
        "embed is a int, but must be a fitted TabMT or the path of a model file."
    )
    with pytest.raises(UserError, match="is not fitted yet"):
        evaluate(FRESH, TRAIN, TEST, embed=TabMT())


def test_the_command_and_the_function_agree_for_several_tables(folder, evaluated, tmp_path):
    paths = [folder / f"{name}.parquet" for name in SYNTHETIC]
    result = run(
        "evaluate", *paths, "--train", folder / "train.parquet", "--test", folder / "test.parquet",
        "--embed", folder / "m.tabmt", "--json", tmp_path / "s.json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "s.json").read_text())
    assert [one["name"] for one in found] == [path.name for path in paths]
    for one, table in zip(found, evaluated, strict=True):
        scores = {score["name"]: score for score in one["scores"]}
        for name in ("precision", "recall"):
            assert scores[name]["value"] == table.evaluation[name].value
            assert scores[name]["note"] == "k = 3, in the embedding of m.tabmt, 300 rows of each"


# --- figures -------------------------------------------------------------------------------


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_overlaid_histogram_has_a_legend_with_all_names(evaluator, evaluated):
    svg = charts.svg(figures.correlation_errors(evaluator, evaluated))
    for name in ("training rows", *SYNTHETIC):
        assert name in texts(svg)
    assert charts.REAL in svg
    for color in charts.GENERATORS[:3]:
        assert color in svg


def test_the_histograms_hold_every_correlation_error(rng):
    values = [("training rows", rng.random(500)), ("a", rng.random(80)), ("b", np.zeros(30))]
    rows = charts.overlaid_histograms(values, "error")["data"]["values"]
    for name, _ in values:
        shares = [row["share"] for row in rows if row["table"] == name]
        assert sum(shares[:-1]) == pytest.approx(1.0)
        assert shares[-1] == shares[-2]  # the outline ends where the last bin does
    assert min(row["start"] for row in rows) == 0.0


def test_the_report_overlays_several_tables_and_not_one(evaluator, evaluated):
    head = render(evaluator, evaluated).partition("<section>")[0]
    assert head.count("<svg") == 1
    assert {"training rows", *SYNTHETIC} <= set(texts(head))
    assert "<svg" not in render(evaluator, evaluated[:1]).partition("<section>")[0]


def test_tables_of_one_name_are_told_apart(evaluator, evaluated):
    names = figures.legend_names("fresh", [*evaluated, evaluated[0]])
    assert names == ["fresh", "fresh (2)", "shuffled", "training", "fresh (3)"]


def test_the_manifold_is_the_same_for_the_same_seed(evaluator, evaluated):
    one, two = (figures.manifold(evaluator, evaluated) for _ in range(2))
    assert one == two
    rows = one["data"]["values"]
    names = [row["table"] for row in rows]
    expected = ("real test rows", *SYNTHETIC)
    assert {name: names.count(name) for name in names} == dict.fromkeys(expected, 300)
    assert set(expected) <= set(texts(charts.svg(one)))
    vectors = evaluator.test_vectors(300)
    assert not np.array_equal(figures.flatten(vectors, 0), figures.flatten(vectors, 1))


def test_the_map_keeps_clusters_apart(rng):
    centres = np.repeat([-5.0, 5.0], 60)[:, None]
    points = figures.flatten(centres + rng.normal(size=(120, 8)), seed=0)
    means = points[:60].mean(0), points[60:].mean(0)
    spread = max(points[:60].std(0).max(), points[60:].std(0).max())
    assert np.linalg.norm(means[0] - means[1]) > 2 * spread


def test_drawing_a_map_says_nothing_and_leaves_the_threads_as_they_were(rng, caplog):
    import numba

    threads = numba.get_num_threads()
    figures.flatten(rng.normal(size=(40, 4)), seed=0)
    assert caplog.records == [] and numba.get_num_threads() == threads


def test_the_command_writes_both_figures(folder, tmp_path):
    def draw(name, *options):
        result = run(
            "evaluate", folder / "fresh.parquet", folder / "shuffled.parquet",
            "--train", folder / "train.parquet", "--test", folder / "test.parquet",
            "--figures", tmp_path / name, *options,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        return {path.name: path.read_text() for path in (tmp_path / name).iterdir()}

    both = draw("both", "--embed", folder / "m.tabmt")
    assert sorted(both) == ["correlation_errors.svg", "manifold.svg"]
    for svg in both.values():
        assert svg.startswith("<svg") and "currentColor" not in svg
        assert {"fresh.parquet", "shuffled.parquet"} <= set(texts(svg))
    assert draw("again", "--embed", folder / "m.tabmt") == both
    one = draw("one")
    assert one == {"correlation_errors.svg": both["correlation_errors.svg"]}


def test_a_figure_that_cannot_be_drawn_is_a_warning(tmp_path, caplog):
    column = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    evaluator = Evaluator.of(column, column)
    assert figures.write_figures(evaluator, [evaluator.evaluate(column)], tmp_path) == []
    assert caplog.messages[-1] == (
        "correlation_errors.svg was not written: no two columns can be correlated"
    )


@pytest.mark.parametrize(
    ("vectors", "sentence"),
    [
        (np.zeros((9, 4)), "a map needs at least 10 rows, but there are 9"),
        (np.ones((50, 4)), "a map needs rows that differ, but all embeddings are the same"),
    ],
)
def test_rows_that_have_no_map_get_a_sentence(vectors, sentence):
    with pytest.raises(UserError) as error:
        figures.flatten(vectors, seed=0)
    assert str(error.value) == sentence


def test_few_rows_repeated_rows_and_one_dimension_have_a_map(rng):
    few, one = rng.normal(size=(10, 4)), rng.normal(size=(50, 1))
    for vectors in (few, one, np.repeat(few[:2], 30, axis=0)):
        points = figures.flatten(vectors, seed=-3)
        assert points.shape == (len(vectors), 2) and np.isfinite(points).all()


def test_a_missing_extra_is_said_before_the_work(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pacmap", None)  # as if it were not installed
    fails_with(
        "The map of embeddings needs PaCMAP: install the extra map, with pip install 'tabmt[map]', "
        "or pip install '.[map]' in a clone.",
        "evaluate", folder / "fresh.parquet", "--train", folder / "train.parquet",
        "--embed", folder / "m.tabmt", "--figures", tmp_path / "f",
    )  # fmt: skip
    assert not (tmp_path / "f").exists()


def test_files_of_the_same_name_are_listed_by_their_paths(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        SYNTHETIC["fresh"].to_parquet(f"{name}/rows.parquet")
    train, test = folder / "train.parquet", folder / "test.parquet"
    tables = ("one/rows.parquet", "two/rows.parquet", test)
    result = run("evaluate", *tables, "--train", train, "--test", test)
    assert result.exit_code == 0, result.output
    head = result.stdout.splitlines()[0].split()
    assert head[1:4] == ["one/rows.parquet", "two/rows.parquet", "test.parquet"]
