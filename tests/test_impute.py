"""Imputation: what was known stays as it was, what was not is drawn from the model."""

import itertools
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tabmt import TabMT, UserError
from tabmt.config import NetworkName
from tests.conftest import TINY
from tests.prompted import p_value
from tests.tables import every_type, mixed_frame

NETWORKS = get_args(NetworkName)
INCOMPLETE = ("group", "height", "weight", "visits", "since", "city")  # some cells are removed


def incomplete(rows: int = 200, seed: int = 1) -> pd.DataFrame:
    """Other rows of the table that was fitted, with a third of their cells missing."""
    frame, rng = mixed_frame(rows, seed), np.random.default_rng(seed)
    for name in INCOMPLETE:
        frame.loc[rng.random(rows) < 0.33, name] = None
    return frame


def four(rows: int = 160, seed: int = 0) -> pd.DataFrame:
    """Four columns without missing values, which depend on one another."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    size = 6 * kind + rng.integers(0, 9, rows)
    return pd.DataFrame(
        {
            "kind": np.array(["ant", "bee", "cat"])[kind],
            "size": pd.array(size, dtype="Int64"),
            "price": np.round(size / 4 + rng.normal(0, 1, rows), 1),
            "flag": pd.array(rng.random(rows) < 0.2 + 0.3 * kind, dtype="boolean"),
        }
    )


PATTERNS = list(itertools.product([False, True], repeat=4))


def with_every_pattern(frame: pd.DataFrame) -> pd.DataFrame:
    """Each pattern of missing values that a row of four columns can have, in turn."""
    frame = frame.copy()
    for index, name in enumerate(frame.columns):
        missing = [PATTERNS[row % 16][index] for row in range(len(frame))]
        frame[name] = frame[name].mask(np.array(missing))
    return frame


def same_known_cells(before: pd.DataFrame, after: pd.DataFrame) -> None:
    assert after.dtypes.equals(before.dtypes)
    assert list(after.columns) == list(before.columns) and len(after) == len(before)
    for name in before.columns:
        known = before[name].notna()
        assert after[name][known].equals(before[name][known]), name


def test_known_cells_of_a_pandas_table_stay_as_they_are(fitted):
    frame = incomplete()
    frame.loc[0, ["height", "weight"]] = [250.5, 7.0]  # known, but not in the training table
    before = frame.copy(deep=True)
    filled = fitted.impute(frame, seed=0)
    pd.testing.assert_frame_equal(frame, before)
    same_known_cells(frame, filled)
    assert filled.notna().all(axis=None)
    assert filled["group"].cat.categories.tolist() == ["a", "b", "c"]


def test_unused_categories_and_their_order_stay(fitted):
    frame = incomplete()
    frame["group"] = frame["group"].cat.set_categories(["c", "z", "b", "a"], ordered=True)
    filled = fitted.impute(frame, seed=0)
    same_known_cells(frame, filled)
    assert filled["group"].dtype == frame["group"].dtype and filled["group"].notna().all()


def test_columns_stay_in_the_order_of_the_table(fitted):
    frame = incomplete()[::-1].reset_index(drop=True)[list(mixed_frame().columns)[::-1]]
    same_known_cells(frame, fitted.impute(frame, seed=0))


def test_known_cells_of_a_polars_table_stay_as_they_are(fitted):
    frame = pl.from_pandas(incomplete())
    filled = fitted.impute(frame, seed=0)
    assert isinstance(filled, pl.DataFrame) and filled.schema == frame.schema
    for name in frame.columns:
        known = frame[name].is_not_null()
        assert filled[name].filter(known).equals(frame[name].filter(known))
        assert filled[name].null_count() == 0


@pytest.mark.parametrize("network", NETWORKS)
def test_every_arrow_type_is_imputed_in_its_own_type(network):
    table = every_type()
    made = TabMT(steps=3, network=network, protect=0, **TINY).fit(table)
    filled = made.impute(table, seed=0)
    assert filled.schema.equals(table.schema)
    for name in table.column_names:
        known = pc.is_valid(table.column(name))
        assert filled.column(name).filter(known).equals(table.column(name).filter(known)), name
        assert filled.column(name).null_count == (30 if name == "empty" else 0)


def test_arrow_dictionaries_of_several_chunks_and_metadata_stay(fitted):
    table = pa.Table.from_pandas(incomplete()).replace_schema_metadata({"owner": "me"})
    index = table.column_names.index("group")
    words = [["a", "b", None, "c"] * 25, [None, "c", "c", "a"] * 25]
    chunks = [
        pa.array(part).dictionary_encode().cast(table.schema.field(index).type) for part in words
    ]
    table = table.set_column(index, table.schema.field(index), pa.chunked_array(chunks))
    filled = fitted.impute(table, seed=0)
    assert filled.schema.equals(table.schema, check_metadata=True)
    known = pc.is_valid(table.column("group"))
    given, now = (t.column("group").filter(known).to_pylist() for t in (table, filled))
    assert given == now and filled.column("group").null_count == 0


def test_nan_and_null_are_both_missing_in_an_arrow_column_of_floats(fitted):
    table = pa.Table.from_pandas(mixed_frame(4), preserve_index=False)
    index = table.column_names.index("height")
    heights = pa.array([float("nan"), None, 151.1, float("nan")])
    filled = fitted.impute(table.set_column(index, "height", heights), seed=0).column("height")
    assert filled.null_count == 0 and pc.sum(pc.is_nan(filled)).as_py() == 0
    assert filled[2].as_py() == 151.1


@pytest.mark.parametrize(
    ("missing_text", "schema"),
    [("", None), ("NA", None), ("NA", {"missing_text": "NA"}), ("no", {"missing_text": "no"})],
)
def test_a_csv_file_is_imputed_in_the_types_that_its_text_stands_for(
    tmp_path, missing_text, schema
):
    frame = incomplete().drop(columns=["since", "member"])
    if missing_text and schema is None:
        frame["city"] = frame["city"].fillna("Oslo")  # as text, NA would be a word
        frame["group"] = frame["group"].astype(object).fillna("a")
    frame.to_csv(tmp_path / "t.csv", index=False, na_rep=missing_text)
    model = TabMT(steps=3, **TINY).fit(tmp_path / "t.csv", schema=schema)
    filled = model.impute(tmp_path / "t.csv", seed=0)
    assert filled.notna().all(axis=None) and not filled.isin([missing_text or "NA"]).any(axis=None)
    read = pd.read_csv(tmp_path / "t.csv", na_values=[missing_text])
    for name in read.columns:
        known = read[name].notna()
        assert filled[name][known].tolist() == read[name][known].tolist()
    assert (filled["height"] == filled["height"].round(1)).all()


def test_missing_texts_in_tables_of_other_types_than_the_training_table(tmp_path):
    """Categories, a column that has become numbers, and one in which every value is missing."""
    frame = pd.DataFrame(
        {"g": ["a", "b", "NA"] * 30, "one": "5", "only": "NA", "x": range(0, 180, 2)}, dtype=object
    )
    entries = [{"name": name, "missing_text": "NA"} for name in ("g", "one", "only")]
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = TabMT(steps=3, **TINY).fit(tmp_path / "t.csv", schema={"columns": entries})
    other = frame.astype({"g": "category", "one": int, "x": int})
    assert set(model.impute(other, seed=0)["g"]) == {"a", "b"}
    assert model.score(other).shape[0] == 90
    read = pd.read_csv(tmp_path / "t.csv")  # in which `only` is a column of NaN
    filled = model.impute(read, seed=0)
    assert filled["only"].isna().all() and filled["g"].notna().all()
    as_text = model.impute(frame, seed=0)
    assert (as_text["only"] == "NA").all()


def test_a_number_as_missing_text_is_missing_in_a_table_of_numbers_too(tmp_path):
    frame = pd.DataFrame({"x": [*range(100, 280, 2), *[-999] * 10], "code": [0, 1, 2, 3, -9] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    entries = [{"name": "x", "missing_text": "-999"}, {"name": "code", "missing_text": "-9"}]
    model = TabMT(steps=3, **TINY).fit(tmp_path / "t.csv", schema={"columns": entries})
    filled = model.impute(frame, seed=0)
    assert filled["x"].min() >= 100 and filled["code"].min() == 0
    assert filled.equals(model.impute(tmp_path / "t.csv", seed=0))
    assert model.score(frame).equals(model.score(tmp_path / "t.csv"))


def test_a_missing_text_is_returned_in_every_type_of_text():
    for dtype in (pa.string(), pa.large_string(), pa.string_view()):
        table = pa.table({"g": pa.array(["a", "b", "NA"] * 30, dtype), "x": range(90)})
        model = TabMT(steps=3, **TINY).fit(table, schema={"missing_text": "NA"})
        rows = model.sample(60, seed=0)
        assert rows.schema.field("g").type == dtype
        assert set(rows["g"].to_pylist()) == {"a", "b", "NA"}
        assert set(model.impute(table, seed=0)["g"].to_pylist()) == {"a", "b"}


def test_a_parquet_file_is_imputed_by_its_path(fitted, tmp_path):
    incomplete().to_parquet(tmp_path / "t.parquet")
    filled = fitted.impute(tmp_path / "t.parquet", seed=0)
    same_known_cells(incomplete(), filled)
    assert filled.equals(fitted.impute(incomplete(), seed=0))


def test_text_that_stands_for_numbers_stays_text():
    frame = pd.DataFrame(
        {"n": [f"{i % 30}.50" for i in range(90)] + ["?"] * 10, "x": ["a", "b"] * 50}
    )
    filled = TabMT(steps=3, **TINY).fit(frame).impute(frame, seed=0)
    assert filled["n"][:90].equals(frame["n"][:90]) and filled.dtypes.equals(frame.dtypes)
    assert filled["n"].str.fullmatch(r"\d+\.\d\d").all()


def test_missing_values_of_other_columns_stay_if_only_some_are_imputed(fitted):
    frame = incomplete()
    filled = fitted.impute(frame, columns=["height", "city"], seed=0)
    same_known_cells(frame, filled)
    assert filled[["height", "city"]].notna().all(axis=None)
    for name in ("group", "weight", "visits", "since"):
        assert filled[name].equals(frame[name]) and filled[name].isna().any()
    assert fitted.impute(frame, columns=[], seed=0).equals(frame)


def informative_missing_values(rows: int = 400) -> pd.DataFrame:
    """y is missing for every second b, and never for a."""
    x = np.array(["a", "b"])[np.arange(rows) % 2]
    y = np.where((x == "b") & (np.arange(rows) % 4 == 1), np.nan, np.arange(rows) % 12)
    return pd.DataFrame({"x": x, "y": y})


@pytest.mark.parametrize("network", NETWORKS)
def test_a_missing_value_that_stays_is_known_to_be_missing(network):
    model = TabMT(steps=150, learning_rate=1e-2, network=network, **TINY).fit(
        informative_missing_values()
    )
    blank = pd.DataFrame({"x": pd.array([None] * 400, dtype="str"), "y": [np.nan] * 400})
    one = model.impute(blank, columns=["x"], seed=0)
    assert (one["x"] == "b").mean() > 0.9 and one["y"].isna().all()
    both = model.impute(blank, seed=0)
    assert 0.25 < (both["x"] == "b").mean() < 0.75 and both["y"].notna().all()


def test_draws_differ_and_the_same_seed_gives_them_again(fitted):
    frame = incomplete()
    one, two, three = fitted.impute_many(frame, 3, seed=5)
    for name in ("group", "height", "city"):
        assert not one[name].equals(two[name]) and not two[name].equals(three[name])
        assert not one[name].equals(three[name])
    for draw in (one, two, three):
        same_known_cells(frame, draw)
        assert draw.notna().all(axis=None)
    again = fitted.impute_many(frame, 3, seed=5)
    assert all(a.equals(b) for a, b in zip((one, two, three), again, strict=True))
    assert fitted.impute(frame, seed=5).equals(one)
    assert not fitted.impute(frame, seed=6).equals(one)
    (alone,) = fitted.impute_many(frame, 1, seed=5)
    assert alone.equals(one)


def test_draws_of_consecutive_seeds_are_independent(fitted):
    """The second draw of one seed is not the first of the next."""
    frame = incomplete()
    second, first = fitted.impute_many(frame, 2, seed=5)[1], fitted.impute(frame, seed=6)
    assert not second["height"].equals(first["height"])
    missing = frame["height"].isna()
    assert (second["height"][missing] == first["height"][missing]).mean() < 0.5


def test_without_a_seed_draws_differ(fitted):
    frame = incomplete()
    assert not fitted.impute(frame).equals(fitted.impute(frame))


@pytest.fixture(scope="module", params=NETWORKS)
def model(request) -> TabMT:
    """Of a table with every pattern of missing values; numbers in wide bins."""
    frame = with_every_pattern(four(480))
    settings = {"steps": 80, "learning_rate": 1e-2, "max_bins": 4, "network": request.param}
    return TabMT(**settings, **TINY).fit(frame)


ROW = {"kind": "bee", "size": 11, "price": 2.4, "flag": True}


def repeated(rows: int, **cells) -> pd.DataFrame:
    row = {name: [value] * rows for name, value in (ROW | cells).items()}
    return pd.DataFrame(row).astype(four(2).dtypes)


@pytest.mark.parametrize("column", ["kind", "flag"])
def test_drawn_values_follow_the_distribution_given_the_rest_of_the_row(model, column):
    frame = repeated(3000, **{column: None})
    drawn = model.impute(frame, seed=0)[column].astype(str)
    chances = model.predict_proba(frame.head(1), column).iloc[0]
    counts = drawn.value_counts().reindex(chances.index, fill_value=0)
    assert p_value(counts, chances) > 0.001


def test_drawn_numbers_follow_the_probabilities_of_bins_and_differ_inside(model):
    frame = repeated(3000, price=None)
    drawn = model.impute(frame, seed=0)["price"]
    chances = model.predict_proba(frame.head(1), "price").iloc[0]
    ends = [[float(end) for end in label.split("..")] for label in chances.index]
    counts = [drawn.between(low, high).sum() for low, high in ends]
    assert sum(counts) == 3000
    assert p_value(counts, chances) > 0.001
    assert drawn.nunique() > 15 and (drawn == drawn.round(1)).all()


def test_the_mode_is_the_likeliest_value(model):
    frame = with_every_pattern(four(160, seed=3))
    filled = model.impute(frame, how="mode")
    same_known_cells(frame, filled)
    assert filled.notna().all(axis=None)
    assert filled.equals(model.impute(frame, how="mode"))
    for name in ("kind", "flag"):
        alone = frame[name].isna() & (frame.isna().sum(axis=1) == 1)
        chances = model.predict_proba(frame[alone].reset_index(drop=True), name)
        assert filled[name][alone].astype(str).tolist() == chances.idxmax(axis=1).tolist()


def centres(model, name) -> np.ndarray:
    """The middle of each bin, as the numbers themselves."""
    coded = model.model_.codec[name]
    return coded.codec.codes.centres / 10 ** (coded.column.decimals or 0)


def test_the_mode_of_numbers_is_the_middle_of_the_likeliest_bin(model):
    frame = repeated(1, price=None)
    best = model.predict_proba(frame, "price").to_numpy()[0].argmax()
    expected = round(centres(model, "price")[best], 1)
    assert model.impute(frame, how="mode")["price"][0] == pytest.approx(expected)


def test_the_mean_is_the_expected_number_and_the_mode_of_other_columns(model):
    frame = with_every_pattern(four(160, seed=3))
    filled, mode = model.impute(frame, how="mean"), model.impute(frame, how="mode")
    same_known_cells(frame, filled)
    assert filled.notna().all(axis=None)
    assert filled[["kind", "flag"]].equals(mode[["kind", "flag"]])
    for name, decimals in (("price", 1), ("size", 0)):
        alone = frame[name].isna() & (frame.isna().sum(axis=1) == 1)
        chances = model.predict_proba(frame[alone].reset_index(drop=True), name).to_numpy()
        mean = np.floor(chances @ centres(model, name) * 10**decimals + 0.5) / 10**decimals
        assert filled[name][alone].to_numpy(float) == pytest.approx(mean)


def test_means_of_rows_without_known_cells_are_near_those_of_the_columns(model):
    blank = with_every_pattern(four(160))[lambda frame: frame.isna().all(axis=1)]
    filled = model.impute(blank.reset_index(drop=True), how="mean")
    assert filled["size"].nunique() == 1  # nothing distinguishes the rows
    assert abs(filled["size"][0] - four(480)["size"].mean()) < 4


@pytest.mark.parametrize("missing", ["masked", "learned"])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_set_of_incomplete_columns_is_learned_and_every_pattern_imputed(network, missing):
    """16 tables with missing values in other columns each; columns without any are imputed too."""
    whole = four(48)
    every_pattern = with_every_pattern(whole)
    for pattern in PATTERNS:
        names = [name for name, chosen in zip(whole.columns, pattern, strict=True) if chosen]
        table = whole.assign(**{name: every_pattern[name] for name in names})
        model = TabMT(steps=2, network=network, missing=missing, **TINY).fit(table)
        modes = {column.name: column.missing for column in model.schema_.columns}
        assert modes == {name: missing if name in names else "none" for name in whole.columns}
        filled = model.impute(every_pattern, seed=0)
        same_known_cells(every_pattern, filled)
        assert filled.notna().all(axis=None)


@pytest.mark.parametrize("missing", ["masked", "learned"])
@pytest.mark.parametrize("pattern", PATTERNS[1:])
def test_a_table_with_one_pattern_in_every_other_row_is_learned(pattern, missing):
    frame = four(80)
    for name, chosen in zip(frame.columns, pattern, strict=True):
        frame.loc[::2, name] = None if chosen else frame.loc[::2, name]
    model = TabMT(steps=2, missing=missing, **TINY).fit(frame)
    for how in ("draw", "mode", "mean"):
        filled = model.impute(frame, how=how, seed=0)
        same_known_cells(frame, filled)
        assert filled.notna().all(axis=None)


def test_a_table_without_missing_values_stays_as_it_is(fitted, model):
    frame = mixed_frame(50, seed=2).dropna().reset_index(drop=True)
    for how in ("draw", "mode", "mean"):
        assert fitted.impute(frame, how=how, seed=0).equals(frame)
    assert model.impute(four(), seed=0).equals(four())


def test_a_table_without_rows_is_imputed(fitted):
    empty = incomplete().head(0)
    for how in ("draw", "mode", "mean"):
        filled = fitted.impute(empty, how=how, seed=0)
        assert len(filled) == 0 and filled.dtypes.equals(empty.dtypes)


def test_ids_are_not_imputed():
    frame = mixed_frame()
    frame["id"] = pd.array([None if i % 7 == 0 else i for i in frame["id"]], dtype="Int64")
    overrides = {"columns": [{"name": "id", "kind": "id"}]}
    filled = TabMT(steps=2, **TINY).fit(frame, schema=overrides).impute(frame, seed=0)
    assert filled["id"].equals(frame["id"]) and filled.drop(columns="id").notna().all(axis=None)


def test_a_column_without_known_cells_is_filled_in_the_type_of_the_model(model):
    frame = with_every_pattern(four(32)).assign(kind=None, price=None)
    filled = model.impute(frame, seed=0)
    assert filled.notna().all(axis=None)
    assert filled["kind"].isin(["ant", "bee", "cat"]).all() and filled["price"].dtype == "float64"


def test_a_missing_value_of_a_constant_column_becomes_its_value():
    frame = pd.DataFrame({"a": ["x", "x", "x"], "b": ["y", "y", "y"]})
    table = pd.DataFrame({"a": ["x", None, "x"], "b": [None, "y", "y"]}).astype(frame.dtypes)
    assert TabMT(protect=0).fit(frame).impute(table, seed=0).equals(frame)


def test_batches_are_imputed_as_the_whole_table(fitted):
    arrow = pa.Table.from_pandas(incomplete(700), preserve_index=False)
    parts = fitted.impute_batches([arrow.slice(0, 500), arrow.slice(500)], seed=3)
    assert pa.concat_tables(parts).to_pydict() == fitted.impute(arrow, seed=3).to_pydict()


COLUMNS = "id, group, height, weight, visits, member, since, city"


@pytest.mark.parametrize(
    ("frame", "options", "sentence"),
    [
        (incomplete(), {"how": "median"}, "how is 'median', but must be one of: draw, mode, mean."),
        (
            incomplete(),
            {"columns": ["wieght"]},
            f"A column to impute is 'wieght', which does not exist; the columns are: {COLUMNS}. "
            "Did you mean 'weight'?",
        ),
        (
            incomplete().drop(columns="city"),
            {},
            "The table has no column 'city', which the model was fitted with; it has: id, group, "
            "height, weight, visits, member, since.",
        ),
        (
            incomplete().assign(more=1),
            {},
            "The table has a column 'more', which the model was not fitted with; remove it.",
        ),
        (
            incomplete().assign(city="Bergn"),
            {},
            "Column 'city' has 200 cells with 1 value that the model does not know; it knows 2. "
            "Remove these rows, or leave the cells empty.",
        ),
    ],
)
def test_a_wrong_request_gets_a_sentence(fitted, frame, options, sentence):
    with pytest.raises(UserError) as error:
        fitted.impute(frame, seed=0, **options)
    assert str(error.value) == sentence


@pytest.mark.parametrize("draws", [0, 2.5])
def test_a_wrong_number_of_draws_gets_a_sentence(fitted, draws):
    with pytest.raises(UserError) as error:
        fitted.impute_many(incomplete(), draws, seed=0)
    assert str(error.value) == f"draws is {draws}, but must be a whole number of at least 1."
