"""Conditions on tables as users give them: what is kept, what is drawn, what is refused."""

import datetime as dt
import re
from typing import get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import chi2_contingency

from tabmt import TabMT, UserError, between, known, missing, one_of
from tabmt.config import NetworkName
from tests.conftest import TINY
from tests.prompted import COLUMNS, WIDE, as_set, chances, follows, frame, learn, met

NETWORKS = get_args(NetworkName)


@pytest.fixture(scope="module", params=NETWORKS)
def model(request) -> TabMT:
    return learn(steps=60, warmup=5, learning_rate=1e-2, network=request.param)


@pytest.fixture(scope="module")
def either() -> TabMT:
    """For what does not depend on the network."""
    return learn(steps=10, warmup=5)


EXACT = [
    ("kind", "bee"),
    ("size", 17),  # inside a bin
    ("size", "17"),
    ("size", 17.0),
    ("size", np.int8(17)),
    ("size", 0),
    ("size", 25),
    ("price", 3.4),
    ("price", 3),
    ("price", "3.4"),
    ("price", -0.3),
    ("flag", True),
    ("flag", "false"),
    ("flag", np.False_),
    ("hours", 40),  # an atom
    ("hours", 41),
    ("day", "2020-02-03"),
    ("day", dt.date(2020, 2, 3)),
    ("day", pd.Timestamp("2020-02-03")),
    ("day", np.datetime64("2020-02-03")),
    ("moment", "2020-02-03 05:00"),
    ("moment", dt.datetime(2020, 2, 3, 5)),
    ("ratio", 0.3),  # no grid: exactly this float
    ("ratio", -1.2345678901234567),
    ("same", "x"),
]


@pytest.mark.parametrize(("column", "value"), EXACT, ids=str)
def test_a_value_that_is_asked_for_is_exact_in_every_row(either, column, value):
    rows = either.sample(100, seed=0, where={column: value})
    meant = {"17": 17, "3.4": 3.4, "false": False}.get(value, value)
    if column in ("day", "moment"):
        meant = pd.Timestamp(meant)
    assert as_set(rows[column]) == {meant}
    assert rows.dtypes.equals(frame().dtypes)


def test_values_of_many_columns_hold_together(model):
    asked = {
        "kind": "bee",
        "size": 11,
        "price": 2.7,
        "flag": False,
        "hours": 40,
        "day": pd.Timestamp("2020-03-01"),
        "same": "x",
    }
    rows = model.sample(100, seed=0, where=asked)
    for name, value in asked.items():
        assert as_set(rows[name]) == {value}
    assert rows["ratio"].nunique() == 100


JANUARY, FEBRUARY = pd.Timestamp("2020-01-20"), pd.Timestamp("2020-02-10")
NOON = pd.Timestamp("2020-02-01 12:00")
RANGES = [
    ("size", 6, 8, "both"),  # inside one bin
    ("size", 6, 8, "neither"),
    ("size", 3, 12, "both"),  # over three bins, of which it cuts two
    ("size", 3, 12, "left"),
    ("size", 3, 12, "right"),
    ("size", 3.2, 5.9, "both"),
    ("size", None, 2, "both"),
    ("size", None, 2, "left"),
    ("size", 24, None, "both"),
    ("size", 24, None, "neither"),
    ("size", -100, 100, "both"),
    ("price", 1.5, 1.9, "both"),
    ("price", 0.3, 0.7, "neither"),
    ("price", 1.3, 4.6, "both"),
    ("price", None, 0.1, "neither"),
    ("price", 1.25, 1.42, "both"),
    ("price", 4.7, None, "right"),
    ("hours", 38, 42, "both"),  # about an atom
    ("hours", 40, 42, "right"),
    ("hours", 38, 40, "left"),
    ("hours", 40, 40, "both"),
    ("hours", 60, None, "both"),
    ("day", JANUARY, FEBRUARY, "both"),
    ("day", JANUARY, FEBRUARY, "neither"),
    ("day", None, JANUARY, "both"),
    ("day", FEBRUARY, None, "right"),
    ("moment", JANUARY, NOON, "both"),
    ("moment", NOON, NOON + pd.Timedelta("3h"), "neither"),
    ("moment", None, NOON, "left"),
    ("ratio", 0.1, 0.10001, "both"),
    ("ratio", 0.1, 0.1 + 1e-7, "neither"),
    ("ratio", -0.5, 0.5, "both"),
    ("ratio", None, -2, "both"),
]


@pytest.mark.parametrize(("column", "low", "high", "closed"), RANGES, ids=str)
def test_a_range_is_never_left(either, column, low, high, closed):
    rows = either.sample(512, seed=0, where={column: between(low, high, closed=closed)})[column]
    assert rows.notna().all()
    if low is not None:
        assert (rows >= low).all() if closed in ("both", "left") else (rows > low).all()
    if high is not None:
        assert (rows <= high).all() if closed in ("both", "right") else (rows < high).all()


def test_a_range_of_few_values_gives_each_of_them(model):
    rows = model.sample(1500, seed=0, where={"size": between(3, 7, closed="right")})
    assert as_set(rows["size"]) == {4, 5, 6, 7}
    rows = model.sample(1500, seed=0, where={"price": between(1.3, 1.6)})
    assert as_set(rows["price"]) == {1.3, 1.4, 1.5, 1.6}


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("day in 2020-02-01..2020-02-03", "2020-02-01", "2020-02-03"),
        ("day <= 2020-01-02", "2020-01-01", "2020-01-02"),
        ("day > 2020-03-28", "2020-03-29", "2020-03-30"),
        ("day < 2020-01-03", "2020-01-01", "2020-01-02"),
        ("moment in 2020-02-01..2020-02-01", "2020-02-01 00:00", "2020-02-01 23:00"),
        ("moment in 2020-02-01..2020-02-01 02:00", "2020-02-01 00:00", "2020-02-01 02:00"),
        ("moment < 2020-01-02", "2020-01-01 01:00", "2020-01-01 23:00"),
        ("moment < 2020-01-01 04:00", "2020-01-01 01:00", "2020-01-01 03:00"),
    ],
)
def test_a_day_as_a_bound_is_a_whole_day_and_open_bounds_exclude_it(either, asked, first, last):
    name = asked.split()[0]
    rows = either.sample(2000, seed=0, where=asked)[name]
    assert (str(rows.min()), str(rows.max())) == (str(pd.Timestamp(first)), str(pd.Timestamp(last)))


@pytest.mark.parametrize(
    "end",
    [dt.datetime(2020, 2, 1, 5), pd.Timestamp("2020-02-01 05:00"), np.datetime64("2020-02-01T05")],
)
def test_a_moment_as_an_upper_bound_is_that_moment(either, end):
    rows = either.sample(1000, seed=0, where={"moment": between("2020-02-01", end)})["moment"]
    assert rows.max() == pd.Timestamp("2020-02-01 05:00")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("kind", ("ant", "cat")),
        ("size", (3, 17)),
        ("size", (6, 7, 8)),  # in one bin
        ("price", (0.3, 4.1, 4.2)),
        ("hours", (38, 40, 41)),  # an atom and its neighbours
        ("flag", (True, False)),
        ("day", (pd.Timestamp("2020-01-05"), pd.Timestamp("2020-03-05"))),
        ("ratio", (0.25, -1.1, 1.7)),
    ],
    ids=str,
)
def test_a_set_gives_its_members_and_nothing_else(either, column, values):
    rows = either.sample(1000, seed=0, where={column: one_of(*values)})
    assert as_set(rows[column]) == set(values)


def test_missing_and_known_hold_for_their_own_column_only(model):
    without = model.sample(500, seed=0, where={"price": missing()})
    assert without["price"].isna().all() and 0 < without["kind"].isna().sum() < 500
    with_price = model.sample(500, seed=0, where={"price": known()})
    assert with_price["price"].notna().all() and 0 < with_price["kind"].isna().sum() < 500
    assert model.sample(500, seed=0, where={"kind": missing()})["kind"].isna().all()
    assert model.sample(500, seed=0, where={"kind": known()})["kind"].notna().all()


MANY = [
    {"size": between(3, 12), "price": between(1, 3)},
    {"size": between(3, 12), "hours": between(30, 50), "ratio": between(0, 1)},
    {"size": between(6, 8), "kind": one_of("ant", "bee"), "price": missing()},
    {"price": known(), "kind": missing(), "day": between("2020-02-01", "2020-02-20")},
    {"flag": True, "size": one_of(3, 11, 12), "price": between(high=2)},
    {"kind": known(), "size": between(20), "price": between(2.5, closed="neither"), "hours": 40},
]


@pytest.mark.parametrize("asked", MANY, ids=lambda asked: " ".join(asked))
def test_conditions_on_many_columns_hold_together(model, asked):
    rows = model.sample(400, seed=0, where=asked)
    assert len(rows) == 400
    for name, condition in asked.items():
        assert met(rows, name, condition), name
    free = set(frame().columns) - set(asked) - {"same", "id"}
    assert all(rows[name].nunique() > 1 for name in free)


ALONE = [
    ("kind", one_of("ant", "cat"), lambda v: v in ("ant", "cat")),
    ("kind", known(), lambda v: v is not None),
    ("flag", known(), lambda v: True),
    ("size", between(6, 8), lambda v: 6 <= v <= 8),
    ("size", between(3, 19), lambda v: 3 <= v <= 19),
    ("size", between(3, 19, closed="neither"), lambda v: 3 < v < 19),
    ("size", between(high=7, closed="left"), lambda v: v < 7),
    ("size", between(13), lambda v: v >= 13),
    ("size", one_of(2, 7, 8, 21), lambda v: v in (2, 7, 8, 21)),
    ("size", known(), lambda v: True),
    ("price", between(0.2, 2.1), lambda v: v is not None and 0.2 <= v <= 2.1),
    ("price", between(3.3, closed="neither"), lambda v: v is not None and v > 3.3),
    ("price", one_of(0.1, 1.7, 1.8), lambda v: v in (0.1, 1.7, 1.8)),
    ("price", known(), lambda v: v is not None),
    ("hours", between(36, 45), lambda v: 36 <= v <= 45),
    ("hours", one_of(39, 40, 50, 51), lambda v: v in (39, 40, 50, 51)),
]


@pytest.mark.parametrize(("column", "condition", "meets"), ALONE)
def test_a_column_follows_its_own_distribution_restricted_to_the_condition(
    model, column, condition, meets
):
    rows = model.sample(1536, seed=0, where={column: condition})
    expected = {v: p if meets(v) else 0.0 for v, p in chances(model, column).items()}
    assert follows(rows, column, expected) > 0.001


GIVEN = [
    ({"kind": "cat"}, "size", between(7, 12), lambda v: 7 <= v <= 12),
    ({"size": 22}, "kind", one_of("ant", "cat"), lambda v: v in ("ant", "cat")),
    ({"price": None}, "size", between(high=11), lambda v: v <= 11),
    (
        {"kind": "ant", "flag": False},
        "price",
        between(0, 2),
        lambda v: v is not None and 0 <= v <= 2,
    ),
    ({"price": None, "kind": "bee"}, "hours", between(36, 45), lambda v: 36 <= v <= 45),
]


@pytest.mark.parametrize(("given", "column", "condition", "meets"), GIVEN)
def test_a_range_follows_the_distribution_given_the_exact_values(
    model, given, column, condition, meets
):
    asked = {name: missing() if value is None else value for name, value in given.items()}
    rows = model.sample(1536, seed=0, where={column: condition, **asked})
    # Exact columns come first, in the order in which they are given.
    expected = {v: p if meets(v) else 0.0 for v, p in chances(model, column, given).items()}
    assert follows(rows, column, expected) > 0.001


def test_inside_a_cut_bin_draws_follow_the_bins_own_distribution(model, rng):
    coded = next(c for c in model.model_.codec.coded if c.column.name == "size")
    code = coded.codec.codes.encode(np.array([11.0]))[0]
    free = coded.codec.codes.decode(np.repeat(code, 100_000), rng, "inside")
    free = free[(free >= 11) & (free <= 14)]
    rows = model.sample(4000, seed=0, where={"size": between(11, 14)})["size"]
    table = [[(part == value).sum() for value in (11, 12, 13, 14)] for part in (free, rows)]
    assert chi2_contingency(table).pvalue > 0.001
    assert len(set(np.round(np.array(table[0]) / len(free), 2))) > 1  # the bin has a shape


def test_the_temperature_of_a_column_with_a_condition_is_used(model):
    own = chances(model, "kind")
    rows = model.sample(4000, seed=0, where={"kind": known()}, temperature={"kind": 3.0})
    hot = {value: 0.0 if value is None else p ** (1 / 3) for value, p in own.items()}
    assert follows(rows, "kind", hot) > 0.001


def test_conditions_hold_if_missing_values_are_not_allowed(model):
    rows = model.sample(600, seed=0, allow_missing=False, where={"size": between(3, 12)})
    assert rows.notna().all(axis=None) and rows["size"].between(3, 12).all()


def test_missing_cannot_be_asked_for_if_it_is_not_allowed(either):
    with pytest.raises(UserError) as error:
        either.sample(5, allow_missing=False, where={"kind": missing()})
    assert str(error.value) == (
        "The condition on column 'kind' asks for missing values, but missing values are turned off "
        "(allow_missing=False, --no-missing). Remove one of them."
    )


def test_centres_stay_inside_their_range(model):
    free = model.sample(600, seed=0, decode="centre")["size"].dropna()
    rows = model.sample(600, seed=0, decode="centre", where={"size": between(3, 12)})
    assert rows["size"].between(3, 12).all()
    assert set(rows["size"]) <= set(free)  # conditions add no values
    with pytest.raises(UserError) as error:
        model.sample(5, decode="centre", where={"size": between(8, 11)})
    below, above = free[free < 8].max(), free[free > 11].min()
    assert str(error.value) == (
        "The condition on column 'size' asks for values from 8 to 11, but the model has none "
        f"there; the nearest values it can generate are {below} and {above}."
    )


def test_sentences_and_mappings_ask_for_the_same(model):
    said = ["kind in {ant, bee}", "size >= 3", "size < 9", "price is missing"]
    built = {
        "kind": one_of("ant", "bee"),
        "size": between(3, 9, closed="left"),
        "price": missing(),
    }
    assert model.sample(100, seed=0, where=said).equals(model.sample(100, seed=0, where=built))


def test_the_same_seed_gives_the_same_rows_under_conditions(model):
    asked = {"size": between(3, 12), "price": between(1, 3)}
    one, two, other = (model.sample(700, seed=seed, where=asked) for seed in (3, 3, 4))
    assert one.equals(two) and not one.equals(other)
    parts = pa.concat_tables(model.sample_batches(700, seed=3, where=asked))
    assert parts.equals(model.sample(700, seed=3, where=asked, output="arrow"))


def test_no_rows_can_be_asked_for_under_conditions(either):
    rows = either.sample(0, seed=0, where={"size": between(3, 12), "price": between(1, 3)})
    assert len(rows) == 0 and rows.dtypes.equals(frame().dtypes)


def test_a_saved_model_gives_the_same_rows_under_conditions(either, tmp_path):
    either.save(tmp_path / "m.tabmt")
    asked = {"size": between(3, 12), "price": between(1, 3), "ratio": between(0, 1)}
    again = TabMT.load(tmp_path / "m.tabmt").sample(50, seed=0, where=asked)
    assert again.equals(either.sample(50, seed=0, where=asked))


def test_a_column_is_drawn_last_as_the_target_unless_it_has_a_condition():
    # Every value of the table can be asked for, also those that few rows hold.
    fitted = TabMT(steps=5, target="kind", protect=0, **TINY).fit(frame(), schema=WIDE)
    rows = fitted.sample(50, seed=0, where={"kind": one_of("ant", "bee"), "size": between(3, 9)})
    assert as_set(rows["kind"]) == {"ant", "bee"} and rows["size"].between(3, 9).all()


# --- conditions that cannot be met ---------------------------------------------------------

WRONG = [
    (
        {"kind": "bea"},
        "The condition on column 'kind' asks for 'bea', which is not a value of this model "
        "(unknown, or too rare to be stored). The closest are: 'bee'.",
    ),
    (
        {"kind": one_of("ant", "catt")},
        "The condition on column 'kind' asks for 'catt', which is not a value of this model "
        "(unknown, or too rare to be stored). The closest are: 'cat', 'ant'.",
    ),
    (
        {"kind": "zebra"},
        "The condition on column 'kind' asks for 'zebra', which is not a value of this model "
        "(unknown, or too rare to be stored). Its values are: 'ant', 'bee', 'cat'.",
    ),
    ({"kind": 3}, "The condition on column 'kind' asks for 3, but the column holds text."),
    (
        {"kind": between("a", "b")},
        "The condition on column 'kind' is a range, but the column holds text; use its values: "
        "'ant', 'bee', "
        "'cat'.",
    ),
    (
        {"flag": between(False, True)},
        "The condition on column 'flag' is a range, but the column holds true or false; use its "
        "values: "
        "'False', 'True'.",
    ),
    ({"flag": 1}, "The condition on column 'flag' asks for 1, but the column holds true or false."),
    (
        {"flag": "maybe"},
        "The condition on column 'flag' asks for 'maybe', but the column holds true or false.",
    ),
    (
        {"size": 7.5},
        "The condition on column 'size' asks for 7.5, but the column holds whole numbers.",
    ),
    (
        {"size": "many"},
        "The condition on column 'size' asks for 'many', but the column holds whole numbers.",
    ),
    (
        {"size": True},
        "The condition on column 'size' asks for True, but the column holds whole numbers.",
    ),
    (
        {"size": 1000},
        "The condition on column 'size' asks for 1000, which the model cannot generate; the "
        "nearest value it can generate is 25 (range 0 to 25).",
    ),
    (
        {"size": between(3, 2)},
        "The condition on column 'size' asks for values from 3 to 2, but the model has none "
        "there; its range is 0 "
        "to 25.",
    ),
    (
        ["size >= 12", "size <= 3"],
        "The condition on column 'size' asks for values from 12 to 3, but the model has none "
        "there; its range is 0 "
        "to 25.",
    ),
    (
        {"size": between(7, 8, closed="neither")},
        "The condition on column 'size' asks for values from 7 to 8, but the model has none "
        "there; its range is 0 "
        "to 25.",
    ),
    (
        {"size": between(100)},
        "The condition on column 'size' asks for values from 100, but the model has none there; "
        "its range is 0 to "
        "25.",
    ),
    (
        {"size": between("few")},
        "The condition on column 'size' asks for 'few', but the column holds whole numbers.",
    ),
    (
        {"size": missing()},
        "The condition on column 'size' asks for missing values, but the training table has none "
        "there.",
    ),
    (
        {"price": 3.44},
        "The condition on column 'price' asks for 3.44, but its values are rounded to 1 decimal.",
    ),
    (
        {"ratio": "abc"},
        "The condition on column 'ratio' asks for 'abc', but the column holds numbers.",
    ),
    (
        {"day": "yesterday"},
        "The condition on column 'day' asks for 'yesterday', but the column holds dates with "
        "times.",
    ),
    (
        {"id": 3},
        "Column 'id' is an id column; conditions on it are not supported. To learn its values, set "
        'its kind to "categorical" in the schema and fit again.',
    ),
    (
        {"same": "y"},
        "The condition on column 'same' asks for 'y', which is not a value of this model (unknown, "
        "or too rare to be stored). Its values are: 'x'.",
    ),
    (
        {"sise": 4},
        f"A condition names column 'sise', which does not exist; the columns are: {COLUMNS}. Did "
        "you mean 'size'?",
    ),
    (
        ["price is maybe"],
        "The condition 'price is maybe' is not valid. Allowed forms: COLUMN = VALUE, COLUMN >= "
        "VALUE (or > <= <), COLUMN in LOW..HIGH, COLUMN in {VALUE, VALUE}, COLUMN is missing, "
        "COLUMN is not missing.",
    ),
]


@pytest.mark.parametrize(("asked", "sentence"), WRONG)
def test_a_condition_that_cannot_be_met_gets_a_sentence(either, asked, sentence):
    with pytest.raises(UserError) as error:
        either.sample(5, seed=0, where=asked)
    assert str(error.value) == sentence


@pytest.mark.parametrize("column", ["kind", "size", "price", "day"])
@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_missing_value_as_a_plain_value_is_an_error(either, column, nothing):
    with pytest.raises(UserError, match=f"^The condition on column '{column}' asks for {nothing}"):
        either.sample(5, seed=0, where={column: nothing})


def test_missing_cannot_be_asked_for_if_missing_values_were_masked():
    fitted = TabMT(steps=2, missing="masked", **TINY).fit(frame())
    with pytest.raises(UserError) as error:
        fitted.sample(5, seed=0, where={"price": missing()})
    assert str(error.value) == (
        "The condition on column 'price' asks for missing values, but they were masked in training "
        'and are never generated; fit the model with missing="learned" (--missing learned).'
    )


def test_a_practically_impossible_value_is_an_error_with_its_probability(model):
    own = np.array(list(chances(model, "kind").values()))
    cold = {"kind": 0.001}
    wanted = min(("ant", "bee", "cat"), key=lambda kind: chances(model, "kind")[kind])
    powers = (own / own.max()) ** 1000
    chance = (chances(model, "kind")[wanted] / own.max()) ** 1000 / powers.sum()
    assert 0 < chance < 1e-8
    with pytest.raises(UserError) as error:
        model.sample(500, seed=0, where={"kind": wanted}, temperature=cold)
    assert str(error.value) == (
        f"The condition on column 'kind' has a probability of only {chance:.1e} in this model. "
        "Relax it."
    )


def test_conditions_that_exclude_one_another_are_an_error_with_their_probability():
    rows = 300
    x = np.arange(rows) % 2 * 20 + np.arange(rows) % 12
    pair = pd.DataFrame({"x": x, "y": x, "z": np.arange(rows) % 3})
    settings = {"steps": 120, "warmup": 5, "learning_rate": 1e-2, "smoothing": 0.0,
                "find_rules": False}  # fmt: skip
    fitted = TabMT(**TINY | settings).fit(pair)
    assert len(fitted.sample(50, seed=0, where={"x": between(high=9), "y": between(high=9)})) == 50
    with pytest.raises(UserError) as error:
        fitted.sample(
            50,
            seed=0,
            where={"x": between(high=9), "y": between(25)},
            temperature={"x": 0.2, "y": 0.2},
        )
    number = re.search(r"of only (\S+) in", str(error.value))[1]
    assert 0 < float(number) < 1e-8
    assert str(error.value) in (
        f"The condition on column '{one}' has a probability of only {number} in this model given "
        f"the conditions on '{other}'. Relax one of them."
        for one, other in ("xy", "yx")
    )
