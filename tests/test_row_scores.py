"""Scores: on a table small enough to enumerate, probabilities are those of every possible row."""

import itertools
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from tabmt import TabMT, UserError
from tabmt.config import NetworkName
from tabmt.method import likelihood
from tests.conftest import TINY
from tests.small_networks import make, small, some_tokens
from tests.tables import every_type, mixed_frame

NETWORKS = get_args(NetworkName)
ORDERS = [torch.tensor(order) for order in itertools.permutations(range(4))]
ROWS = 300


def frame(rows: int = ROWS) -> pd.DataFrame:
    """A category and prices with missing values, sizes with one frequent value, and flags."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, rows)
    size = np.where(rng.random(rows) < 0.3, 9, 8 * kind + rng.integers(0, 17, rows))
    price = np.round(0.6 * kind + rng.choice([0.0, 0.1, 0.3, 0.4, 0.5, 0.7, 0.8], rows), 1)
    return pd.DataFrame(
        {
            "kind": np.where(rng.random(rows) < 0.2, None, np.array(["ant", "bee"])[kind]),
            "size": size,
            "price": np.where(rng.random(rows) < 0.25, np.nan, price),
            "flag": rng.random(rows) < 0.2 + 0.5 * kind,
        }
    )


# Bins of several values each; one of the sizes is an atom among them.
WIDE = {"columns": [{"name": "size", "max_bins": 11}, {"name": "price", "max_bins": 3}]}


@pytest.fixture(scope="module", params=NETWORKS)
def model(request) -> TabMT:
    # Every value of the table has a code, so that the probabilities of all rows can be added up.
    made = TabMT(steps=80, learning_rate=1e-2, network=request.param, protect=0, **TINY)
    made.fit(frame(), schema=WIDE)
    size, price = (made.model_.codec.coded[index].codec.codes for index in (1, 2))
    assert size.atom.any() and len(size.edges) > 5 and len(price.edges) == 4
    return made


@pytest.fixture(scope="module", params=NETWORKS)
def masking(request) -> TabMT:
    """Missing values are masked, and there is a column of one value."""
    made = TabMT(steps=30, missing="masked", network=request.param, **TINY)
    return made.fit(frame().assign(same="x"), schema=WIDE)


def grid() -> pd.DataFrame:
    """Every row there can be: all values from the least to the most, and missing ones."""
    real = frame()
    columns = [
        ["ant", "bee", None],
        range(real["size"].min(), real["size"].max() + 1),
        [*(np.arange(round(real["price"].max() * 10) + 1) / 10), np.nan],
        [False, True],
    ]
    return pd.DataFrame(itertools.product(*columns), columns=real.columns).astype(real.dtypes)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_probabilities_of_every_possible_row_sum_to_one(model, seed):
    assert np.exp(model.log_prob(grid(), seed=seed)).sum() == pytest.approx(1.0, abs=1e-4)


def test_the_mixture_of_several_orders_sums_to_one_and_lies_between_them(model):
    every = grid()
    mixed = model.log_prob(every, orders=3)
    assert np.exp(mixed).sum() == pytest.approx(1.0, abs=1e-4)
    alone = np.stack([along(model, every, order) for order in ORDERS])
    assert (mixed >= alone.min(0) - 1e-6).all() and (mixed <= alone.max(0) + 1e-6).all()
    assert np.abs(mixed - alone).max(1).min() > 1e-3  # no single order is the mixture


def test_a_mixture_is_the_mean_of_the_probabilities_of_its_orders(model):
    every = grid().iloc[::7].reset_index(drop=True)
    alone = np.stack([along(model, every, order) for order in ORDERS])
    mixed = model.log_prob(every, orders=2, seed=0)
    means = [
        np.log((np.exp(alone[one]) + np.exp(alone[other])) / 2)
        for one, other in itertools.combinations_with_replacement(range(24), 2)
    ]
    assert min(np.abs(mixed - mean).max() for mean in means) < 1e-4


def tokens_of(model: TabMT, table: pd.DataFrame) -> torch.Tensor:
    """(rows, C)"""
    codec = model.model_.codec
    store = codec.encode(codec.parse(pa.Table.from_pandas(table, preserve_index=False)))
    return torch.from_numpy(store[np.arange(len(store))])


def along(model: TabMT, table: pd.DataFrame, order: torch.Tensor) -> np.ndarray:
    """The log-probability of rows along one order, from their tokens and their share of bins."""
    codec = model.model_.codec
    tokens = tokens_of(model, table)
    nats = likelihood.log_prob(model.model_.net, tokens, order[None])[0].numpy()
    for index, coded in enumerate(codec.token_columns):
        if coded.column.kind != "numeric":
            continue
        values = table[coded.column.name].to_numpy(float)
        known = ~np.isnan(values)
        units = np.round(values[known] * 10 ** (coded.column.decimals or 0))
        shares = coded.codec.codes.point_shares(units, tokens[:, index].numpy()[known])
        nats[known, index] += np.log(shares)
    return nats.sum(1)


def test_the_score_of_rows_is_that_of_their_tokens_along_one_order(model):
    every = grid().iloc[::5].reset_index(drop=True)
    alone = np.stack([along(model, every, order) for order in ORDERS])
    used = set()
    for seed in range(6):
        distance = np.abs(alone - model.log_prob(every, seed=seed)).max(1)
        assert distance.min() < 1e-4
        used.add(int(distance.argmin()))
    assert len(used) > 1


def test_rows_that_are_likely_are_drawn_often(model):
    """Draws and likelihoods are of one model: the mean negative likelihood is its entropy."""
    drawn = model.sample(2000, seed=0)
    nats_of_drawn = -model.log_prob(drawn, orders=4)
    nats = model.log_prob(grid(), orders=4)
    entropy = -(np.exp(nats) * nats).sum()
    assert nats_of_drawn.mean() == pytest.approx(
        entropy, abs=4 * nats_of_drawn.std() / np.sqrt(2000)
    )


def test_without_bins_scores_are_the_networks_own():
    table = frame()[["kind", "flag"]].assign(code=np.arange(ROWS) % 5, more=np.arange(ROWS) % 3)
    made = TabMT(steps=10, **TINY).fit(table)
    tokens = tokens_of(made, table)
    every = likelihood.log_prob(made.model_.net, tokens, torch.stack(ORDERS))  # (24, rows, C)
    alone = every.sum(2).numpy()
    assert np.abs(alone - made.log_prob(table)).max(1).min() < 1e-5


@pytest.mark.parametrize("network", NETWORKS)
def test_likelihoods_of_cells_are_those_that_filling_draws_from(network):
    net, tokens, every = make(small(network)), some_tokens(30), torch.arange(30)
    order = torch.tensor([2, 0, 3, 1])
    nats = likelihood.log_prob(net, tokens, order[None])[0]
    state = net.start(torch.full_like(tokens, -1))
    for column in order.tolist():
        own = state.logits(every, column).double().log_softmax(1)[every, tokens[:, column]]
        torch.testing.assert_close(nats[:, column], own, atol=1e-5, rtol=0)
        state.set(every, column, tokens[:, column])


@pytest.mark.parametrize("network", NETWORKS)
def test_cells_that_are_not_known_count_nothing_and_change_nothing_before_them(network):
    net, tokens = make(small(network)), some_tokens(30)
    gone = tokens.clone()
    gone[:, 1] = -1
    order = torch.tensor([[2, 0, 3, 1]])  # the column that is gone comes last
    whole, part = (likelihood.log_prob(net, one, order)[0] for one in (tokens, gone))
    assert (part[:, 1] == 0).all()
    torch.testing.assert_close(part[:, [0, 2, 3]], whole[:, [0, 2, 3]], atol=1e-5, rtol=0)


def test_same_seed_same_score_whatever_the_other_rows(model):
    every = grid().head(700)
    whole = model.log_prob(every, seed=3)
    assert np.array_equal(whole, model.log_prob(every, seed=3))
    alone = np.concatenate([model.log_prob(every.iloc[[row]], seed=3) for row in range(0, 700, 70)])
    assert alone == pytest.approx(whole[::70], abs=1e-4)
    assert not np.allclose(whole, model.log_prob(every, seed=4))


# --- what the model has never seen ---------------------------------------------------------

UNSEEN = [
    ("size", 999),
    ("size", -4),
    ("price", 55.5),
    ("kind", "cow"),
]


def one_row(**cells) -> pd.DataFrame:
    row = {"kind": "ant", "size": 9, "price": 0.3, "flag": True, "same": "x"} | cells
    return pd.DataFrame({name: [value] for name, value in row.items()})


@pytest.mark.parametrize(("column", "value"), UNSEEN)
def test_an_unseen_value_counts_as_one_row_of_all_rows_and_one(masking, column, value):
    """Compared with a missing value, which does not count if missing values are masked."""
    odd = one_row(**{column: value})
    unknown = one_row(**{column: None}).astype({"size": "Int64", "kind": "str", "price": "float64"})
    for orders in (1, 3):
        difference = masking.log_prob(odd, orders=orders) - masking.log_prob(unknown, orders=orders)
        assert difference == pytest.approx([np.log(1 / (ROWS + 1))], abs=1e-5)
    scored, plain = masking.score(odd), masking.score(unknown)
    difference = scored["log_prob"][0] - plain["log_prob"][0]
    assert difference == pytest.approx(np.log(1 / (ROWS + 1)), abs=1e-5)


def test_another_value_in_a_column_of_one_counts_as_unseen(masking):
    odd, plain = one_row(same="y"), one_row()
    difference = masking.log_prob(odd) - masking.log_prob(plain)
    assert difference == pytest.approx([np.log(1 / (ROWS + 1))], abs=1e-5)


def test_several_unseen_values_add_up(masking):
    odd, unknown = one_row(size=999, kind="cow"), one_row(size=None, kind=None)
    unknown = unknown.astype({"size": "Int64", "kind": "str"})
    difference = masking.log_prob(odd) - masking.log_prob(unknown)
    assert difference == pytest.approx([2 * np.log(1 / (ROWS + 1))], abs=1e-5)


def test_a_row_of_missing_values_only_has_nothing_to_score(masking):
    blank = one_row(kind=None, size=None, price=None, flag=None)
    blank = blank.astype({"kind": "str", "size": "Int64", "price": "float64", "flag": "boolean"})
    assert masking.log_prob(blank).tolist() == [0.0]
    assert masking.score(blank)["anomaly"].tolist() == [0.0]


# --- score ---------------------------------------------------------------------------------


def test_scores_are_a_table_of_log_prob_anomaly_and_least_likely_column(model):
    table = frame().head(40)
    scores = model.score(table, orders=3, seed=2)
    assert list(scores.columns) == ["log_prob", "anomaly", "least_likely"] and len(scores) == 40
    assert scores["log_prob"].to_numpy() == pytest.approx(model.log_prob(table, orders=3, seed=2))
    assert set(scores["least_likely"]) <= set(table.columns)


def test_the_anomaly_of_one_order_is_the_mean_negative_likelihood_of_the_cells(model):
    table = frame().head(40)
    scores = model.score(table, orders=1)
    assert scores["anomaly"].to_numpy() == pytest.approx(-scores["log_prob"].to_numpy() / 4)


def test_the_anomaly_is_of_the_known_cells_alone(masking):
    table = frame().head(40).assign(same="x")
    scores = masking.score(table, orders=1)
    known = table.drop(columns="same").notna().sum(axis=1)
    assert scores["anomaly"].to_numpy() == pytest.approx(-scores["log_prob"].to_numpy() / known)


def test_the_least_likely_cell_is_the_one_that_was_changed(masking):
    assert masking.score(one_row(size=999))["least_likely"].tolist() == ["size"]
    assert masking.score(one_row(kind="cow"))["least_likely"].tolist() == ["kind"]


def test_a_row_with_unseen_values_is_more_unusual_than_all_that_were_learned(masking):
    usual = masking.score(frame().assign(same="x"))["anomaly"]
    assert masking.score(one_row(size=999, price=55.5))["anomaly"][0] > usual.max()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.Table])
def test_scores_and_probabilities_are_the_kind_of_table_that_was_fitted(kind):
    table = {pd.DataFrame: frame(), pl.DataFrame: pl.from_pandas(frame())}
    table[pa.Table] = pa.Table.from_pandas(frame())
    made = TabMT(steps=2, **TINY).fit(table[kind])
    assert isinstance(made.score(table[kind]), kind)
    assert isinstance(made.predict_proba(table[kind], "kind"), kind)
    assert isinstance(made.score(table[kind], output="arrow"), pa.Table)


def test_every_arrow_type_has_a_score():
    table = every_type()
    made = TabMT(steps=3, **TINY).fit(table)
    nats = made.log_prob(table, orders=2)
    assert nats.shape == (30,) and np.isfinite(nats).all() and (nats < 0).all()


def test_a_table_without_rows_has_no_scores(model):
    none = frame().head(0)
    assert model.log_prob(none).shape == (0,)
    assert len(model.score(none)) == 0
    assert model.predict_proba(none, "kind").shape == (0, 2)
    assert model.embed(none).shape == (0, 16)


def test_constants_alone_are_certain(caplog):
    table = pd.DataFrame({"a": [1, 1], "b": ["x", "x"]})
    made = TabMT(protect=0).fit(table)
    assert (
        "All columns are constant or ids: the model repeats the constants and generates new ids."
        in caplog.messages
    )
    assert made.log_prob(table).tolist() == [0.0, 0.0]
    assert made.score(table)["anomaly"].tolist() == [0.0, 0.0]
    with pytest.raises(UserError) as error:
        made.embed(table)
    assert str(error.value) == "All columns are constant or ids, so there is nothing to embed."


# --- probabilities -------------------------------------------------------------------------


def enumerated(model: TabMT, table: pd.DataFrame, column: str) -> np.ndarray:
    """Probabilities of each code but the missing one, by scoring the row with every code."""
    codec, net = model.model_.codec, model.model_.net
    index, columns = codec.token_index[column], range(len(codec.token_columns))
    tokens = tokens_of(model, table)
    order = torch.tensor([other for other in columns if other != index] + [index])
    nats = []
    for code in range(codec[column].codec.size):
        tokens[:, index] = code
        nats.append(likelihood.log_prob(net, tokens, order[None])[0].sum(1))
    return torch.stack(nats, 1).softmax(1).numpy()


@pytest.mark.parametrize("column", ["kind", "size", "price", "flag"])
def test_probabilities_sum_to_one_and_are_those_of_the_enumerated_rows(model, column):
    table = grid().iloc[::11].reset_index(drop=True)
    found = model.predict_proba(table, column).to_numpy()
    assert found.sum(1) == pytest.approx(np.ones(len(table)))
    assert found == pytest.approx(enumerated(model, table, column), abs=1e-5)
    assert found.std(0).max() > 0.005  # it depends on the row


def test_what_the_column_holds_is_not_used(model):
    table = frame().head(50)
    expected = model.predict_proba(table, "kind")
    assert model.predict_proba(table.assign(kind="bee"), "kind").equals(expected)
    assert model.predict_proba(table.assign(kind="never seen"), "kind").equals(expected)
    assert model.predict_proba(table.drop(columns="kind"), "kind").equals(expected)


def test_a_missing_value_elsewhere_is_known_and_an_absent_column_is_not(model):
    table = frame().head(50)
    gone = model.predict_proba(table.assign(price=np.nan), "kind")
    absent = model.predict_proba(table.drop(columns="price"), "kind")
    assert absent.to_numpy().sum(1) == pytest.approx(np.ones(50))
    assert np.abs(gone.to_numpy() - absent.to_numpy()).max() > 1e-3


def test_probabilities_of_a_row_do_not_depend_on_the_others(model):
    table = frame().head(60)
    whole = model.predict_proba(table, "size").to_numpy()
    assert model.predict_proba(table.iloc[[41]], "size").to_numpy()[0] == pytest.approx(
        whole[41], abs=1e-6
    )


def test_columns_of_probabilities_are_named_as_a_person_would(model):
    assert list(model.predict_proba(frame(), "kind").columns) == ["ant", "bee"]
    assert list(model.predict_proba(frame(), "flag").columns) == ["False", "True"]
    price = [label.split("..") for label in model.predict_proba(frame(), "price").columns]
    assert price[0][0] == "0.0" and price[-1][1] == str(frame()["price"].max())
    for (_, end), (start, _) in itertools.pairwise(price):
        assert round(float(start) - float(end), 6) == 0.1  # each value in one bin
    size = list(model.predict_proba(frame(), "size").columns)
    atoms = model.model_.codec.coded[1].codec.codes.atom
    assert size.count("9") == 1 and [".." not in label for label in size] == atoms.tolist()


# --- embeddings ----------------------------------------------------------------------------


def test_an_embedding_is_a_vector_of_the_networks_width_for_each_row(model):
    vectors = model.embed(frame())
    assert vectors.shape == (ROWS, 16) and vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert len(np.unique(vectors.round(5), axis=0)) > 50


def test_an_embedding_does_not_depend_on_the_batch(model):
    table = pd.concat([frame()] * 4, ignore_index=True)  # more rows than are embedded at once
    vectors = model.embed(table)
    assert vectors[ROWS:] == pytest.approx(vectors[:-ROWS], abs=1e-5)
    mixed = np.random.default_rng(0).permutation(len(table))
    assert model.embed(table.iloc[mixed].reset_index(drop=True)) == pytest.approx(
        vectors[mixed], abs=1e-5
    )
    for row in (0, 17, 1100):
        assert model.embed(table.iloc[[row]])[0] == pytest.approx(vectors[row], abs=1e-5)


def test_every_column_counts_in_an_embedding(model):
    base = pd.DataFrame({"kind": ["ant"], "size": [9], "price": [0.3], "flag": [True]})
    vector = model.embed(base)
    for other in ({"kind": "bee"}, {"size": 20}, {"price": 1.3}, {"flag": False}):
        assert np.abs(model.embed(base.assign(**other)) - vector).max() > 1e-3


def test_an_unseen_value_has_an_embedding_too(masking):
    assert np.isfinite(masking.embed(one_row(size=999, kind="cow"))).all()


# --- wrong requests ------------------------------------------------------------------------


@pytest.mark.parametrize("orders", [0, -1, 2.5, True, None])
def test_orders_must_be_a_whole_number_from_1(model, orders):
    for score in (model.log_prob, model.score):
        with pytest.raises(UserError) as error:
            score(frame(), orders=orders)
        assert (
            str(error.value) == f"orders is {orders!r}, but must be a whole number of at least 1."
        )


HAS = "id, group, height, weight, visits, member, since, city"


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (
            "gruop",
            f"The column is 'gruop', which does not exist; the columns are: {HAS}. Did you mean "
            "'group'?",
        ),
        (
            "id",
            "The column is 'id', but a column of kind id is not learned; name another column, or "
            "set its kind in the schema.",
        ),
        (3, "The column is 3, but must be the name of a column."),
        (None, "predict_proba needs the name of a column."),
    ],
)
def test_a_column_without_probabilities_gets_a_sentence(fitted, column, sentence):
    with pytest.raises(UserError) as error:
        fitted.predict_proba(mixed_frame(), column)
    assert str(error.value) == sentence


def test_a_table_of_other_columns_gets_a_sentence(fitted):
    without = mixed_frame(5).drop(columns="city")
    for use in (fitted.log_prob, fitted.score, fitted.embed):
        with pytest.raises(UserError) as error:
            use(without)
        assert str(error.value) == (
            "The table has no column 'city', which the model was fitted with; it has: id, group, "
            "height, weight, visits, member, since."
        )
        with pytest.raises(UserError) as error:
            use(mixed_frame(5).assign(more=1))
        assert str(error.value) == (
            "The table has a column 'more', which the model was not fitted with; remove it."
        )


def test_an_unknown_output_gets_a_sentence(fitted):
    for use in (
        fitted.score,
        lambda table, output: fitted.predict_proba(table, "group", output=output),
    ):
        with pytest.raises(UserError) as error:
            use(mixed_frame(5), output="xlsx")
        assert str(error.value) == "output is 'xlsx', but must be one of: pandas, polars, arrow."
