"""Rows like given ones, tables of prompts, and classes in given shares."""

from typing import get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import binomtest

from tabmt import TabMT, UserError, between, missing
from tabmt.config import NetworkName
from tests.prompted import COLUMNS, as_set, chances, follows, frame, learn, met

NETWORKS = get_args(NetworkName)


@pytest.fixture(scope="module", params=NETWORKS)
def model(request) -> TabMT:
    return learn(steps=60, warmup=5, learning_rate=1e-2, network=request.param)


@pytest.fixture(scope="module")
def either() -> TabMT:
    """For what does not depend on the network."""
    return learn(steps=10, warmup=5)


# --- balance -------------------------------------------------------------------------------


def test_balanced_values_are_equally_frequent_and_mixed(model):
    rows = model.sample(600, seed=0, balance="kind")
    assert rows["kind"].value_counts(dropna=False).to_dict() == {"ant": 200, "bee": 200, "cat": 200}
    assert all(rows["kind"].iloc[start : start + 60].nunique() == 3 for start in range(0, 600, 60))


def test_shares_set_the_frequency_of_each_value(model):
    rows = model.sample(400, seed=0, balance={"flag": {True: 0.25, False: 0.75}})
    assert rows["flag"].sum() == 100
    rows = model.sample(90, seed=0, balance={"kind": {"ant": 2, "bee": 1, "cat": 0}})
    assert rows["kind"].value_counts().to_dict() == {"ant": 60, "bee": 30}


def test_row_counts_that_do_not_divide_evenly_still_add_up(model):
    rows = model.sample(100, seed=0, balance="kind")
    assert len(rows) == 100
    assert sorted(rows["kind"].value_counts()) == [33, 33, 34]


def test_balance_can_be_combined_with_conditions(model):
    asked = {"size": between(6, 8), "price": missing(), "day": between(high="2020-02-10")}
    rows = model.sample(300, seed=0, balance="kind", where=asked)
    assert rows["kind"].value_counts().to_dict() == {"ant": 100, "bee": 100, "cat": 100}
    for name, condition in asked.items():
        assert met(rows, name, condition)
    assert as_set(rows["size"]) == {6, 7, 8}


def test_each_class_of_a_balanced_sample_follows_its_own_distribution(model):
    asked = {"size": between(3, 19)}
    rows = model.sample(3000, seed=0, balance="kind", where=asked)
    for kind in ("ant", "bee", "cat"):
        expected = chances(model, "size", {"kind": kind})
        expected = {v: p if 3 <= v <= 19 else 0.0 for v, p in expected.items()}
        assert follows(rows[rows["kind"] == kind], "size", expected) > 0.001


def test_ids_of_a_balanced_sample_are_unique_and_in_order(model):
    rows = model.sample(1300, seed=0, balance="kind")
    assert rows["id"].tolist() == list(range(1, 1301))


def test_the_same_seed_gives_the_same_balanced_rows(model):
    one, two, other = (model.sample(200, seed=seed, balance="kind") for seed in (3, 3, 4))
    assert one.equals(two) and not one.equals(other)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"balance": "knid"},
            f"balance names column 'knid', which does not exist; the columns are: {COLUMNS}. Did "
            "you mean 'kind'?",
        ),
        (
            {"balance": "size"},
            "Column 'size' is numeric; only a categorical column can be balanced.",
        ),
        (
            {"balance": {"kind": {"ant": 1}, "flag": {True: 1}}},
            "`balance` must name exactly one column, got 2. Example: {'churn': {0: 0.5, 1: 0.5}}.",
        ),
        (
            {"balance": {"kind": ["ant", "bee"]}},
            "`balance` must map the values of column 'kind' to shares, such as {'a': 0.5, 'b': "
            "0.5}, got ['ant', 'bee'].",
        ),
        (
            {"balance": {"kind": {"ant": -1, "bee": 2}}},
            "The share of 'ant' in 'kind' is -1, but must be at least 0.",
        ),
        (
            {"balance": {"kind": {"ant": "half"}}},
            "The share of 'ant' in 'kind' is 'half', but must be at least 0.",
        ),
        ({"balance": {"kind": {"ant": 0}}}, "The shares of column 'kind' are all 0."),
        ({"balance": {"kind": {}}}, "The shares of column 'kind' are all 0."),
        (
            {"balance": {"kind": {"ant": 1, "bea": 1}}},
            "The condition on column 'kind' asks for 'bea', which is not a value of this model "
            "(unknown, or too rare to be stored). The closest are: 'bee'.",
        ),
        (
            {"balance": "kind", "where": {"kind": "ant"}},
            "Column 'kind' is balanced and has a condition; give only one of them.",
        ),
    ],
)
def test_a_wrong_balance_gets_a_sentence(either, options, sentence):
    with pytest.raises(UserError) as error:
        either.sample(10, seed=0, **options)
    assert str(error.value) == sentence


# --- rows like given ones, and tables of prompts ---------------------------------------------

LIKE = {
    "id": 7,
    "kind": "bee",
    "size": 11,
    "price": 2.7,
    "flag": True,
    "hours": 41,
    "day": pd.Timestamp("2020-02-02"),
    "moment": pd.Timestamp("2020-02-02 07:00"),
    "ratio": 0.1234567,
    "same": "x",
}


def alike(rows: pd.DataFrame) -> np.ndarray:
    return np.stack([(rows[name] == value).to_numpy() for name, value in LIKE.items()], axis=1)


@pytest.mark.parametrize("form", [dict, pd.Series, lambda row: pd.DataFrame([row])])
def test_named_cells_are_kept_and_the_others_drawn(model, form):
    kept = ["kind", "size", "ratio"]
    rows = model.like(form(LIKE), 200, keep=kept, seed=0)
    assert len(rows) == 200 and rows.dtypes.equals(frame().dtypes)
    for name in kept:
        assert as_set(rows[name]) == {LIKE[name]}
    assert all(rows[name].nunique() > 1 for name in ("price", "flag", "hours", "day", "moment"))
    assert rows["id"].tolist() == list(range(1, 201))


def test_a_number_of_cells_is_kept_chosen_at_random_in_each_row(model):
    rows = model.like(LIKE, 900, keep=3, seed=0)
    same = alike(rows)
    assert (same.sum(1) >= 3).all()
    # A drawn float never equals the given one, so it is equal only where it was kept.
    assert binomtest(int(same[:, 8].sum()), 900, 3 / 10).pvalue > 0.001
    assert len(np.unique(same, axis=0)) > 50
    assert alike(model.like(LIKE, 20, keep=10, seed=0)).all()
    assert not alike(model.like(LIKE, 200, keep=0, seed=0))[:, 8].any()


def test_one_name_needs_no_list(model):
    rows = model.like(LIKE, 50, keep="kind", seed=0)
    assert rows.equals(model.like(LIKE, 50, keep=["kind"], seed=0))
    assert as_set(rows["kind"]) == {"bee"} and rows["size"].nunique() > 1


def test_given_rows_are_used_in_turn(model):
    three = frame().head(3)
    rows = model.like(three, 8, keep=["ratio"], seed=0)
    assert rows["ratio"].tolist() == [three["ratio"].iloc[n % 3] for n in range(8)]
    assert len(model.like(three, keep=["ratio"], seed=0)) == 3


def test_the_same_seed_gives_the_same_rows_like_others(model):
    one, two, other = (model.like(LIKE, 60, keep=4, seed=seed) for seed in (3, 3, 4))
    assert one.equals(two) and not one.equals(other)


def test_known_cells_of_prompts_are_kept_and_the_others_drawn(model):
    prompts = pd.DataFrame(
        {
            "ratio": [0.1234567, np.nan, -0.7654321] * 100,
            "size": pd.array([11, 17, None] * 100, dtype="Int64"),  # inside wide bins
            "kind": ["bee", None, "cat"] * 100,
            "day": pd.to_datetime(["2020-02-02", "2020-02-03", None] * 100),
        }
    )
    before = prompts.copy(deep=True)
    rows = model.complete(prompts, seed=0)
    pd.testing.assert_frame_equal(prompts, before)
    assert list(rows.columns) == list(frame().columns) and rows.dtypes.equals(frame().dtypes)
    for name in prompts.columns:
        given = prompts[name].notna().to_numpy()
        assert (rows[name][given] == prompts[name][given]).all()
    blank = rows[prompts["size"].isna().to_numpy()]
    assert blank["size"].nunique() > 3
    assert rows["ratio"][1::3].nunique() == 100  # never missing in training, so never missing here
    assert rows["price"].nunique() > 10 and 0 < rows["price"].isna().sum() < 300
    assert rows["id"].tolist() == list(range(1, 301))


def test_completed_prompts_follow_the_distribution_given_their_cells(model):
    prompts = pd.DataFrame({"size": [22] * 3000})
    rows = model.complete(prompts, seed=0, allow_missing=False)
    assert rows.notna().all(axis=None) and as_set(rows["size"]) == {22}
    kinds = pd.DataFrame({name: [value] * 3000 for name, value in LIKE.items() if name != "kind"})
    rows = model.complete(kinds, seed=0)
    known_cells = {n: v for n, v in LIKE.items() if n not in ("id", "kind", "same")}
    assert follows(rows, "kind", chances(model, "kind", known_cells)) > 0.001


def test_prompts_may_be_arrow_tables_and_files(either, tmp_path):
    prompts = pd.DataFrame({"size": [3, 11, 24], "kind": ["ant", None, "cat"]})
    expected = either.complete(prompts, seed=0)
    assert either.complete(pa.Table.from_pandas(prompts), seed=0).equals(expected)
    prompts.to_csv(tmp_path / "p.csv", index=False)
    prompts.to_parquet(tmp_path / "p.parquet")
    for name in ("p.csv", "p.parquet"):
        assert either.complete(tmp_path / name, seed=0).equals(expected)


def test_a_number_outside_the_range_of_training_is_kept_as_prompted(either):
    rows = either.complete(pd.DataFrame({"size": [1000, -3], "ratio": [9.5, 1e9]}), seed=0)
    assert rows["size"].tolist() == [1000, -3] and rows["ratio"].tolist() == [9.5, 1e9]


def test_prompts_without_rows_give_no_rows(either):
    rows = either.complete(frame().head(0), seed=0)
    assert len(rows) == 0 and rows.dtypes.equals(frame().dtypes)


def test_categories_of_a_prompted_column_stay_as_they_were(fitted):
    rows = fitted.like({"group": "b", "member": True}, 20, keep=["group", "member"], seed=0)
    assert as_set(rows["group"]) == {"b"}
    assert rows["group"].cat.categories.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("table", "options", "sentence"),
    [
        (LIKE, {"keep": 11}, "keep is 11, but must be from 0 to 10, the number of columns."),
        (LIKE, {"keep": -1}, "keep is -1, but must be from 0 to 10, the number of columns."),
        (
            LIKE,
            {"keep": 2.5},
            "keep is 2.5, but must be names of columns or a number of cells.",
        ),
        (
            LIKE,
            {"keep": ["knid"]},
            f"keep names column 'knid', which does not exist; the columns are: {COLUMNS}. Did "
            "you mean 'kind'?",
        ),
        (frame().head(0), {"keep": 2}, "The table given to `like` has no rows."),
        (
            LIKE,
            {"keep": 2, "rows": -5},
            "rows is -5, but must be a whole number of at least 0.",
        ),
    ],
)
def test_a_wrong_request_for_rows_like_others_gets_a_sentence(either, table, options, sentence):
    with pytest.raises(UserError) as error:
        either.like(table, seed=0, **{"rows": 5, **options})
    assert str(error.value) == sentence


def test_the_number_of_rows_must_be_a_whole_number(either):
    with pytest.raises(UserError) as error:
        either.sample(None, seed=0)
    assert str(error.value) == "rows is None, but must be a whole number of at least 0."


@pytest.mark.parametrize("option", ["like", "prompts", "keep"])
def test_new_rows_take_no_table_of_prompts(either, option):
    """Rows like others are those of `like`, completed rows those of `complete`."""
    with pytest.raises(TypeError):
        either.sample(5, seed=0, **{option: LIKE})


@pytest.mark.parametrize("options", [{"where": {"size": 3}}, {"balance": "kind"}, {"rows": 5}])
def test_completed_rows_take_no_conditions(either, options):
    """A table of prompts gives one row each, under no other conditions."""
    with pytest.raises(TypeError):
        either.complete(frame().head(3), seed=0, **options)
    if "rows" not in options:
        with pytest.raises(TypeError):
            either.like(LIKE, 5, keep=2, seed=0, **options)


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        (
            pd.DataFrame({"kind": ["bea"]}),
            "Column 'kind' has 1 cell with 1 value that the model does not know; it knows 3. "
            "Remove these rows, or leave the cells empty.",
        ),
        (
            pd.DataFrame({"king": ["bee"]}),
            "The table has a column 'king', which the model was not fitted with; remove it.",
        ),
    ],
)
def test_prompts_that_cannot_be_encoded_get_a_sentence(either, prompts, sentence):
    with pytest.raises(UserError) as error:
        either.complete(prompts, seed=0)
    assert str(error.value) == sentence
