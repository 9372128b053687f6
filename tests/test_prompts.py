"""Conditions: token by token against enumerated distributions, and on tables as users give them."""

import datetime as dt
import itertools
from decimal import Decimal
from typing import get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy.stats import binomtest, chi2_contingency, chisquare
from torch import Tensor

from tabmt import TabMT, UserError, between, known, missing, one_of
from tabmt.config import NetworkName, TrainConfig
from tabmt.networks import AnyNetwork, build
from tabmt.sample import Improbable, fill_where
from tabmt.tokens import MASK
from tabmt.train import train
from tests.conftest import TINY
from tests.small_networks import FIELDS, generator, small

NETWORKS = get_args(NetworkName)
CPU = torch.device("cpu")


# --- tokens --------------------------------------------------------------------------------

GRID = torch.tensor(list(itertools.product(*(range(field.size) for field in FIELDS))))
BLANK = torch.full_like(GRID, MASK)
EVERY = torch.arange(len(GRID))


def dependent_tokens(rows: int = 3000) -> Tensor:
    """Four columns that tell of one another; the last code of the second is its gap."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, rows)
    b = np.where(rng.random(rows) < 0.1 + 0.15 * a, 4, np.minimum(a + rng.integers(0, 2, rows), 3))
    c = (rng.random(rows) < np.where(b >= 2, 0.8, 0.15)).astype(int)
    d = np.where(rng.random(rows) < 0.3, rng.integers(0, 4, rows), (a + 2 * c) % 4)
    return torch.from_numpy(np.stack([a, b, c, d], 1))


@pytest.fixture(scope="module", params=NETWORKS)
def net(request) -> AnyNetwork:
    made = build(FIELDS, small(request.param), generator())
    tokens = dependent_tokens()
    config = TrainConfig(steps=80, batch_size=128, learning_rate=1e-2, warmup=10)
    train(made, tokens, tokens[:0], config, seed=0)
    return made


def exact(net, asked, order, allowed) -> Tensor:
    """The probability of every row: asked columns as a whole, the others cut one by one."""
    state, total = net.start(BLANK), torch.zeros(len(GRID), dtype=torch.float64)
    for column in [*asked, *order]:
        logits = state.logits(EVERY, column).double()
        nats = logits.log_softmax(1)
        if allowed[column] is not None:
            nats = nats + allowed[column].log()
            if column in order:
                nats = nats.log_softmax(1)
        total += nats[EVERY, GRID[:, column]]
        state.put(EVERY, column, GRID[:, column])
    return total.exp() / total.exp().sum()


def agreement(drawn: Tensor, chances: Tensor) -> float:
    """The p-value of drawn rows under the chances of all rows."""
    strides = torch.tensor([40, 8, 4, 1])
    index = (drawn * strides).sum(1)
    assert torch.equal(GRID[index], drawn)
    counts = torch.bincount(index, minlength=len(GRID)).double()
    return p_value(counts.numpy(), chances.numpy())


def p_value(counts, chances) -> float:
    """Chi-square, rare cells together; what has no chance must not come at all."""
    counts, chances = np.asarray(counts, float), np.asarray(chances, float)
    assert counts[chances == 0].sum() == 0
    chances = chances / chances.sum()
    often = chances * counts.sum() > 5
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(chances[often], chances[~often].sum()) * counts.sum()
    keep = expected > 1e-9
    assert keep.sum() > 1 or often.sum() == 1  # otherwise nothing is compared
    return chisquare(observed[keep], expected[keep] / expected[keep].sum() * counts.sum()).pvalue


CONDITIONS = {  # column, share of each code that is allowed
    "exact": (0, [0, 1, 0]),
    "set": (0, [1, 0, 1]),
    "range": (1, [0, 0.3, 1, 0.6, 0]),
    "below": (1, [1, 0.4, 0, 0, 0]),
    "above": (1, [0, 0, 0.05, 1, 0]),
    "missing": (1, [0, 0, 0, 0, 1]),
    "known": (1, [1, 1, 1, 1, 0]),
    "true": (2, [0, 1]),
    "range of another": (3, [0.2, 1, 0.5, 0]),
    "above in another": (3, [0, 0.01, 1, 1]),
    "set of another": (3, [1, 0, 0, 1]),
}
TOGETHER = [
    *((one,) for one in CONDITIONS),
    ("range", "range of another"),
    ("below", "above in another"),
    ("range of another", "above"),
    ("set", "range"),
    ("set", "missing"),
    ("exact", "range"),
    ("known", "set of another"),
    ("true", "missing"),
    ("set", "range", "range of another"),
    ("set", "missing", "range of another"),
    ("exact", "above", "above in another"),
    ("known", "set", "set of another"),
    ("true", "below", "range of another"),
    ("set", "range", "true", "above in another"),
]


def asked_for(names) -> tuple[list[int], Tensor, list[Tensor | None]]:
    """What `generate` makes of conditions: exact ones first, then the others, then the rest."""
    allowed: list[Tensor | None] = [None] * 4
    for name in names:
        column, weights = CONDITIONS[name]
        allowed[column] = torch.tensor(weights, dtype=torch.float64)
    columns = [CONDITIONS[name][0] for name in names]
    asked = sorted(columns, key=lambda column: int((allowed[column] > 0).sum()) > 1)
    rest = [column for column in (3, 1, 0, 2) if column not in asked]
    return asked, torch.tensor(rest, dtype=torch.int64), allowed


def ask(net, rows, asked, order, allowed, *, seed=0, heat=1.0) -> Tensor:
    return fill_where(
        net,
        rows,
        asked=asked,
        temperature=torch.full((len(allowed),), heat),
        generator=generator(seed),
        allowed=allowed,
        order=order,
        device=CPU,
    )


@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
def test_rows_under_conditions_follow_the_exact_conditional_distribution(net, names):
    asked, order, allowed = asked_for(names)
    drawn = ask(net, 20_000, asked, order, allowed)
    assert agreement(drawn, exact(net, asked, order.tolist(), allowed)) > 0.001


def test_codes_that_are_left_out_of_later_columns_are_left_out_there_alone(net):
    """As `complete` asks for it: no gap in a column without a condition."""
    asked, order, allowed = asked_for(["set", "range of another"])
    allowed[1] = torch.tensor([1, 1, 1, 1, 0], dtype=torch.float64)
    drawn = ask(net, 20_000, asked, order, allowed)
    assert agreement(drawn, exact(net, asked, order.tolist(), allowed)) > 0.001


def test_chunks_of_the_usual_size_follow_the_distribution_together(net):
    asked, order, allowed = asked_for(["range", "range of another"])
    drawn = torch.cat([ask(net, 512, asked, order, allowed, seed=seed) for seed in range(16)])
    assert agreement(drawn, exact(net, asked, order.tolist(), allowed)) > 0.001


@pytest.mark.parametrize("names", [("set", "known"), ("set", "known", "range of another")])
def test_rows_that_go_alone_are_those_of_merged_prefixes(monkeypatch, net, names):
    # The random stream is shared, so the rows must be the same, one by one.
    asked, order, allowed = asked_for(names)
    merged = ask(net, 300, asked, order, allowed)
    monkeypatch.setattr(type(net), "merge_below", 0.0)
    assert torch.equal(ask(net, 300, asked, order, allowed), merged)


def test_rows_that_go_alone_follow_the_exact_conditional_distribution(monkeypatch, net):
    monkeypatch.setattr(type(net), "merge_below", 0.0)
    asked, order, allowed = asked_for(["set", "known"])
    drawn = torch.cat([ask(net, 500, asked, order, allowed, seed=seed) for seed in range(10)])
    assert agreement(drawn, exact(net, asked, order.tolist(), allowed)) > 0.001


def test_same_generator_same_rows_under_conditions(net):
    asked, order, allowed = asked_for(["set", "range", "range of another"])
    one, two, other = (ask(net, 200, asked, order, allowed, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


class Joint:
    """A network that is a table of joint probabilities, and counts how often it is begun."""

    merge_below = 0.5

    def __init__(self, joint: Tensor) -> None:
        self.joint, self.starts = joint.double(), 0

    def start(self, tokens: Tensor) -> "JointState":
        self.starts += 1
        return JointState(self.joint, tokens.clone())


class JointState:
    def __init__(self, joint: Tensor, tokens: Tensor) -> None:
        self.joint, self.tokens = joint, tokens

    def logits(self, rows: Tensor, column: int) -> Tensor:
        found = []
        for row in self.tokens[rows].tolist():
            chances = self.joint
            for place, code in enumerate(row):
                if code != MASK:
                    chances = chances.narrow(place, code, 1)
            others = [place for place in range(self.joint.dim()) if place != column]
            found.append(chances.sum(others).log())
        return torch.stack(found)

    def put(self, rows: Tensor, column: int, codes: Tensor) -> None:
        self.tokens[rows, column] = codes

    def keep(self, rows: Tensor) -> None:
        self.tokens = self.tokens[rows]


TWO_OF_THREE = torch.tensor([1.0, 1.0, 0.0])
NO_ORDER = torch.tensor([], dtype=torch.int64)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_handful_of_rows_follows_the_distribution_as_many_do(rows):
    # What is likely by the first condition alone hardly ever meets the second.
    joint = torch.tensor([[0.0025, 0.0025, 0.445], [0.22, 0.22, 0.01], [0.03, 0.03, 0.04]])
    allowed = [TWO_OF_THREE, TWO_OF_THREE]
    net, calls = Joint(joint), 600 // rows
    drawn = torch.cat([ask(net, rows, [0, 1], NO_ORDER, allowed, seed=s) for s in range(calls)])
    counts = torch.bincount(drawn[:, 0] * 2 + drawn[:, 1], minlength=4)
    assert p_value(counts.view(2, 2).sum(1), joint[:2, :2].sum(1)) > 0.001


def chain(step: float, columns: int = 4) -> Tensor:
    """Columns of three codes; each is, given those before, below 2 with the chance `step`."""
    one = torch.tensor([step / 2, step / 2, 1 - step], dtype=torch.float64)
    joint = one
    for _ in range(columns - 1):
        joint = joint[..., None] * one
    return joint


def test_a_tiny_mass_in_small_steps_is_met_and_ends_quickly():
    net = Joint(chain(1e-6))  # 1e-24 in all
    drawn = ask(net, 50, [0, 1, 2, 3], NO_ORDER, [TWO_OF_THREE] * 4)
    assert (drawn < 2).all() and drawn.shape == (50, 4)
    assert net.starts <= 8


def test_masses_that_differ_by_orders_of_magnitude_end_quickly_too():
    net = Joint(torch.tensor([[5e-5, 5e-5, 0.9], [0.01, 0.01, 0.03], [0.01, 0.01, 0.0299]]))
    drawn = ask(net, 200, [0, 1], NO_ORDER, [TWO_OF_THREE, TWO_OF_THREE])
    assert (drawn < 2).all() and drawn.shape == (200, 2)
    assert (drawn[:, 0] == 1).float().mean() > 0.95  # 200 to 1
    assert net.starts <= 8


@pytest.mark.parametrize("rows", [1, 400])
def test_a_condition_that_is_practically_never_met_tells_its_probability(rows):
    net = Joint(torch.stack([chain(1e-9, 1), chain(0.5, 1)]))
    with pytest.raises(Improbable) as error:
        ask(net, rows, [0, 1], NO_ORDER, [torch.tensor([1.0, 0.0]), TWO_OF_THREE])
    assert error.value.column == 1
    assert error.value.probability == pytest.approx(1e-9, rel=1e-4)
    assert net.starts == 1


def test_the_probability_of_a_later_condition_is_that_given_the_earlier_ones():
    """Over the rows that meet them, not over the candidates as they were drawn."""
    first = torch.tensor([0.45, 0.45, 0.1], dtype=torch.float64)
    second = torch.tensor([[0.0005, 0.0005, 0.999], [0.4995, 0.4995, 0.001], [0.3, 0.3, 0.4]])
    third = torch.tensor([[1e-6, 1e-6, 1.0], [5e-10, 5e-10, 1.0], [0.3, 0.3, 0.4]])
    joint = first[:, None, None] * second[:, :, None].double() * third[:, None, :].double()
    with pytest.raises(Improbable) as error:
        ask(Joint(joint), 4000, [0, 1, 2], NO_ORDER, [TWO_OF_THREE] * 3)
    met = joint[:2, :2, :2].sum() / joint[:2, :2].sum()
    assert error.value.column == 2
    assert error.value.probability == pytest.approx(float(met), rel=0.1)


# --- tables --------------------------------------------------------------------------------


def frame(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, rows)
    size = 5 * kind + rng.integers(0, 16, rows)
    price = np.round(size / 4 + rng.normal(0, 1, rows), 1)
    hours = np.where(rng.random(rows) < 0.4, 40, 10 + size * 2 + rng.integers(0, 9, rows))
    start = pd.Timestamp("2020-01-01")
    return pd.DataFrame(
        {
            "id": np.arange(1, rows + 1),
            "kind": np.where(rng.random(rows) < 0.2, None, np.array(["ant", "bee", "cat"])[kind]),
            "size": size,
            "price": np.where(rng.random(rows) < 0.3, np.nan, price),
            "flag": rng.random(rows) < 0.2 + 0.3 * kind,
            "hours": hours,
            "day": start + pd.to_timedelta(rng.integers(0, 90, rows), "D"),
            "moment": start + pd.to_timedelta(rng.integers(0, 2000, rows), "h"),
            "ratio": rng.normal(size=rows),
            "same": "x",
        }
    )


# Few bins, so that ranges cut them; 40 hours are an atom among bins.
WIDE = {
    "columns": [
        *({"name": name, "max_bins": 4} for name in ("size", "price", "day", "moment", "ratio")),
        {"name": "hours", "max_bins": 12},
    ]
}


@pytest.fixture(scope="module", params=NETWORKS)
def model(request) -> TabMT:
    made = TabMT(steps=60, learning_rate=1e-2, network=request.param, **TINY)
    return made.fit(frame(), schema=WIDE)


@pytest.fixture(scope="module")
def either() -> TabMT:
    """For what does not depend on the network."""
    return TabMT(steps=10, **TINY).fit(frame(), schema=WIDE)


def as_set(series) -> set:
    return set(series.dropna().tolist()) | ({None} if series.isna().any() else set())


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
    ("ratio", 0.3),  # no grid: the very float
    ("ratio", -1.2345678901234567),
    ("same", "x"),
]


@pytest.mark.parametrize(("column", "value"), EXACT, ids=str)
def test_a_prompted_value_comes_back_exactly_in_every_row(either, column, value):
    rows = either.sample(100, seed=0, where={column: value})
    meant = {"17": 17, "3.4": 3.4, "false": False}.get(value, value)
    if column in ("day", "moment"):
        meant = pd.Timestamp(meant)
    assert as_set(rows[column]) == {meant}
    assert rows.dtypes.equals(frame().dtypes)


def test_values_of_many_columns_come_back_together(model):
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
def test_days_are_whole_as_bounds_and_an_open_bound_leaves_its_day_out(either, asked, first, last):
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


def test_missing_gives_gaps_and_known_none_and_other_gaps_stay_free(model):
    gone = model.sample(500, seed=0, where={"price": missing()})
    assert gone["price"].isna().all() and 0 < gone["kind"].isna().sum() < 500
    there = model.sample(500, seed=0, where={"price": known()})
    assert there["price"].notna().all() and 0 < there["kind"].isna().sum() < 500
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


def met(rows, name, condition) -> bool:
    """Whether a column meets a condition, by pandas' own comparison."""
    column = rows[name]
    if condition == missing():
        return column.isna().all()
    if condition == known():
        return column.notna().all()
    if not hasattr(condition, "values"):
        return (column == condition).all()
    if condition.values is not None:
        return column.isin(condition.values).all()
    low = column.min() if condition.low is None else condition.low
    high = column.max() if condition.high is None else condition.high
    inclusive = {
        (False, False): "both",
        (True, True): "right" if condition.high is None else "neither",
    }
    return column.between(
        low, high, inclusive=inclusive[condition.low_open, condition.high_open]
    ).all()


@pytest.mark.parametrize("asked", MANY, ids=lambda asked: " ".join(asked))
def test_conditions_on_many_columns_hold_together(model, asked):
    rows = model.sample(400, seed=0, where=asked)
    assert len(rows) == 400
    for name, condition in asked.items():
        assert met(rows, name, condition), name
    free = set(frame().columns) - set(asked) - {"same", "id"}
    assert all(rows[name].nunique() > 1 for name in free)


def chances(model: TabMT, column: str, known: dict | None = None) -> dict:
    """What the model says of each value of a column once `known` is known, in its order."""
    codec, net, row = model.learned_.codec, model.learned_.net, torch.arange(1)
    names = [coded.column.name for coded in codec.token_columns]
    state = net.start(torch.full((1, len(names)), MASK))
    for name, value in (known or {}).items():
        coded = codec.token_columns[names.index(name)]
        given = pa.chunked_array([pa.array([value], coded.column.type)])
        state.put(row, names.index(name), torch.from_numpy(coded.encode(given)))
    coded = codec.token_columns[names.index(column)]
    own = state.logits(row, names.index(column))[0].double().softmax(0).numpy()
    found = {} if coded.missing_code is None else {None: own[coded.missing_code]}
    if not hasattr(coded.codec, "codes"):
        return found | dict(zip(coded.codec.values.to_pylist(), own, strict=False))
    low, high = coded.codec.codes.extent
    units = np.arange(low, high + 1)
    codes, outside = coded.codec.codes.encode(units)
    shares = np.where(outside, 0.0, coded.codec.codes.point_shares(units, codes))
    values = coded.codec.grid.values(units).to_pylist()
    return found | dict(zip(values, own[codes] * shares, strict=True))


def follows(rows, column: str, expected: dict) -> float:
    counts = dict.fromkeys(expected, 0)
    for value in rows[column].tolist():
        counts[None if pd.isna(value) else value] += 1
    return p_value(list(counts.values()), list(expected.values()))


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
def test_a_column_follows_its_own_distribution_cut_to_the_condition(
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
    coded = next(c for c in model.learned_.codec.coded if c.column.name == "size")
    code = coded.codec.codes.encode(np.array([11.0]))[0]
    free = coded.codec.codes.decode(np.repeat(code, 100_000), rng, "inside")
    free = free[(free >= 11) & (free <= 14)]
    rows = model.sample(4000, seed=0, where={"size": between(11, 14)})["size"]
    table = [[(part == value).sum() for value in (11, 12, 13, 14)] for part in (free, rows)]
    assert chi2_contingency(table).pvalue > 0.001
    assert len(set(np.round(np.array(table[0]) / len(free), 2))) > 1  # the bin has a shape


def test_the_temperature_of_a_prompted_column_counts_too(model):
    own = chances(model, "kind")
    rows = model.sample(4000, seed=0, where={"kind": known()}, temperature={"kind": 3.0})
    hot = {value: 0.0 if value is None else p ** (1 / 3) for value, p in own.items()}
    assert follows(rows, "kind", hot) > 0.001


def test_complete_leaves_no_gap_beside_the_conditions(model):
    rows = model.sample(600, seed=0, complete=True, where={"size": between(3, 12)})
    assert rows.notna().all(axis=None) and rows["size"].between(3, 12).all()


def test_centres_keep_to_their_range(model):
    rows = model.sample(600, seed=0, decode="centre", where={"size": between(8, 11)})
    assert rows["size"].between(8, 11).all()


def test_sentences_and_mappings_ask_for_the_same(model):
    said = ["kind in {ant, bee}", "size >= 3", "size < 9", "price is missing"]
    built = {
        "kind": one_of("ant", "bee"),
        "size": between(3, 9, closed="left"),
        "price": missing(),
    }
    assert model.sample(100, seed=0, where=said).equals(model.sample(100, seed=0, where=built))


def test_same_seed_same_rows_under_conditions(model):
    asked = {"size": between(3, 12), "price": between(1, 3)}
    one, two, other = (model.sample(700, seed=seed, where=asked) for seed in (3, 3, 4))
    assert one.equals(two) and not one.equals(other)
    parts = pa.concat_tables(model.sample_batches(700, seed=3, where=asked))
    assert parts.equals(model.sample(700, seed=3, where=asked, kind="arrow"))


def test_no_rows_can_be_asked_for_under_conditions(either):
    rows = either.sample(0, seed=0, where={"size": between(3, 12), "price": between(1, 3)})
    assert len(rows) == 0 and rows.dtypes.equals(frame().dtypes)


def test_a_saved_model_answers_conditions_as_before(either, tmp_path):
    either.save(tmp_path / "m.tabmt")
    asked = {"size": between(3, 12), "price": between(1, 3), "ratio": between(0, 1)}
    again = TabMT.load(tmp_path / "m.tabmt").sample(50, seed=0, where=asked)
    assert again.equals(either.sample(50, seed=0, where=asked))


def test_a_column_is_drawn_last_as_the_target_unless_it_has_a_condition():
    made = TabMT(steps=5, target="kind", **TINY).fit(frame(), schema=WIDE)
    rows = made.sample(50, seed=0, where={"kind": one_of("ant", "bee"), "size": between(3, 9)})
    assert as_set(rows["kind"]) == {"ant", "bee"} and rows["size"].between(3, 9).all()


# --- conditions that cannot be met ---------------------------------------------------------

COLUMNS = "id, kind, size, price, flag, hours, day, moment, ratio, same"
WRONG = [
    (
        {"kind": "bea"},
        "Column 'kind' is asked to be 'bea', which the model has not seen; closest are 'bee'.",
    ),
    (
        {"kind": one_of("ant", "catt")},
        "Column 'kind' is asked to be 'catt', which the model has not seen; closest are 'cat', "
        "'ant'.",
    ),
    (
        {"kind": "zebra"},
        "Column 'kind' is asked to be 'zebra', which the model has not seen; it knows 'ant', "
        "'bee', 'cat'.",
    ),
    ({"kind": 3}, "Column 'kind' is asked to be 3, but it holds text."),
    (
        {"kind": between("a", "b")},
        "Column 'kind' is asked for by a range, but holds text; name its values: 'ant', 'bee', "
        "'cat'.",
    ),
    (
        {"flag": between(False, True)},
        "Column 'flag' is asked for by a range, but holds true or false; name its values: "
        "'False', 'True'.",
    ),
    ({"flag": 1}, "Column 'flag' is asked to be 1, but it holds true or false."),
    ({"flag": "maybe"}, "Column 'flag' is asked to be 'maybe', but it holds true or false."),
    ({"size": 7.5}, "Column 'size' is asked to be 7.5, but it holds int64."),
    ({"size": "many"}, "Column 'size' is asked to be 'many', but it holds int64."),
    ({"size": True}, "Column 'size' is asked to be True, but it holds int64."),
    (
        {"size": 1000},
        "Column 'size' is asked to be 1000, which the model does not know; nearest is 25, and it "
        "knows 0 to 25.",
    ),
    (
        {"size": between(3, 2)},
        "Column 'size' is asked to be from 3 to 2, but the model has no value there; it knows 0 "
        "to 25.",
    ),
    (
        ["size >= 12", "size <= 3"],
        "Column 'size' is asked to be from 12 to 3, but the model has no value there; it knows 0 "
        "to 25.",
    ),
    (
        {"size": between(7, 8, closed="neither")},
        "Column 'size' is asked to be from 7 to 8, but the model has no value there; it knows 0 "
        "to 25.",
    ),
    (
        {"size": between(100)},
        "Column 'size' is asked to be from 100, but the model has no value there; it knows 0 to "
        "25.",
    ),
    ({"size": between("few")}, "Column 'size' is asked to be 'few', but it holds int64."),
    (
        {"size": missing()},
        "Column 'size' is asked to be missing, but it had no gaps in the training table.",
    ),
    (
        {"price": 3.44},
        "Column 'price' is asked to be 3.44, but its values are rounded to 1 decimal.",
    ),
    ({"ratio": "abc"}, "Column 'ratio' is asked to be 'abc', but it holds numbers."),
    ({"day": "yesterday"}, "Column 'day' is asked to be 'yesterday', but it holds timestamp[us]."),
    (
        {"id": 3},
        "Column 'id' is an id, which is regenerated for every row; it cannot be asked for. Set "
        "its kind in the schema if its values mean something.",
    ),
    (
        {"same": "y"},
        "Column 'same' is asked to be 'y', which the model has not seen; it knows 'x'.",
    ),
    (
        {"sise": 4},
        f"A condition names column 'sise', but the table has: {COLUMNS}. Did you mean 'size'?",
    ),
    (
        ["price is maybe"],
        "The condition 'price is maybe' cannot be read. It can be: COLUMN = VALUE, COLUMN >= "
        "VALUE (or > <= <), COLUMN in LOW..HIGH, COLUMN in {VALUE, VALUE}, COLUMN is missing, "
        "COLUMN is not missing.",
    ),
]


@pytest.mark.parametrize(("asked", "sentence"), WRONG)
def test_a_condition_that_no_row_can_meet_gets_a_sentence(either, asked, sentence):
    with pytest.raises(UserError) as error:
        either.sample(5, seed=0, where=asked)
    assert str(error.value) == sentence


@pytest.mark.parametrize("column", ["kind", "size", "price", "day"])
@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_nothing_as_a_value_is_an_error(either, column, nothing):
    with pytest.raises(UserError, match=f"^Column '{column}' is asked to be {nothing}"):
        either.sample(5, seed=0, where={column: nothing})


def test_missing_says_so_where_gaps_were_masked():
    made = TabMT(steps=2, gaps="masked", **TINY).fit(frame())
    with pytest.raises(UserError) as error:
        made.sample(5, seed=0, where={"price": missing()})
    assert str(error.value) == (
        "Column 'price' is asked to be missing, but its gaps were masked when the model was made, "
        "so it never generates any; fit with gaps learned."
    )


def test_a_practically_impossible_value_is_an_error_with_its_probability(model):
    own = np.array(list(chances(model, "kind").values()))
    cold = {"kind": 0.01}
    wanted = min(("ant", "bee", "cat"), key=lambda kind: chances(model, "kind")[kind])
    powers = (own / own.max()) ** 100
    chance = (chances(model, "kind")[wanted] / own.max()) ** 100 / powers.sum()
    assert 0 < chance < 1e-8
    with pytest.raises(UserError) as error:
        model.sample(500, seed=0, where={"kind": wanted}, temperature=cold)
    assert str(error.value) == (
        "The condition on column 'kind' is practically never met: its probability in this model "
        f"is {chance:.1e}. Loosen a condition."
    )


def test_conditions_that_exclude_one_another_are_an_error_with_their_probability():
    rows = 300
    x = np.arange(rows) % 2 * 20 + np.arange(rows) % 12
    pair = pd.DataFrame({"x": x, "y": x, "z": np.arange(rows) % 3})
    made = TabMT(steps=120, learning_rate=1e-2, **TINY).fit(pair)
    assert len(made.sample(50, seed=0, where={"x": between(high=9), "y": between(high=9)})) == 50
    with pytest.raises(UserError) as error:
        made.sample(
            50,
            seed=0,
            where={"x": between(high=9), "y": between(25)},
            temperature={"x": 0.2, "y": 0.2},
        )
    start, end = str(error.value).split("probability in this model is ")
    assert start in (
        f"The condition on column '{one}' is practically never met given those on '{other}': its "
        for one, other in ("xy", "yx")
    )
    number, rest = end.split(". ", 1)
    assert 0 < float(number) < 1e-8
    assert rest == "Loosen a condition."


# --- columns of unusual types --------------------------------------------------------------

OSLO = "Europe/Oslo"


def unusual() -> pa.Table:
    rng, rows = np.random.default_rng(0), 200
    hours = pd.date_range("2020-03-01", periods=60 * 24, freq="h", tz=OSLO)
    return pa.table(
        {
            "zoned": pa.array(hours[rng.integers(0, len(hours), rows)]),
            "amount": pa.array(
                [Decimal(int(v)) / 100 for v in rng.integers(0, 5000, rows)], pa.decimal128(9, 2)
            ),
            "date": pa.array(
                [dt.date(2020, 1, 1) + dt.timedelta(int(v)) for v in rng.integers(0, 100, rows)]
            ),
            "time": pa.array(
                [dt.time(int(h), 30) for h in rng.integers(0, 24, rows)], pa.time64("us")
            ),
            "lasts": pa.array(
                [dt.timedelta(minutes=int(v)) for v in rng.integers(0, 500, rows)], pa.duration("s")
            ),
            "tens": pa.array(rng.integers(0, 90, rows) * 10),
            "text": pa.array([f"{v}.5" for v in rng.integers(0, 90, rows)]),
            "code": pa.array(rng.integers(0, 5, rows)),
            "huge": pa.array(2**60 + rng.integers(0, 1000, rows)),
            "void": pa.nulls(rows, pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def strange() -> TabMT:
    return TabMT(steps=5, max_bins=4, **TINY).fit(unusual())


def oslo(text_):
    return pd.Timestamp(text_, tz=OSLO)


def minutes(number):
    return dt.timedelta(minutes=number)


UNUSUAL = [
    ({"zoned": "2020-03-20"}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": oslo("2020-03-20")}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": pd.Timestamp("2020-03-20")}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": dt.date(2020, 3, 20)}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": between("2020-03-20", "2020-03-21")}, oslo("2020-03-20"), oslo("2020-03-21 23:00")),
    # Of 23 hours, for the clocks go forward.
    ({"zoned": between("2020-03-29", "2020-03-29")}, oslo("2020-03-29"), oslo("2020-03-29 23:00")),
    (
        {"zoned": between(dt.date(2020, 3, 20), dt.date(2020, 3, 21))},
        oslo("2020-03-20"),
        oslo("2020-03-21 23:00"),
    ),
    ({"amount": Decimal("3.5")}, Decimal("3.50"), Decimal("3.50")),
    ({"amount": 3.5}, Decimal("3.50"), Decimal("3.50")),
    ({"amount": 3}, Decimal("3.00"), Decimal("3.00")),
    ({"amount": "3.5"}, Decimal("3.50"), Decimal("3.50")),
    ({"amount": between(3.333, Decimal("3.36"))}, Decimal("3.34"), Decimal("3.36")),
    ({"amount": one_of(Decimal("1.07"), Decimal("2.5"))}, Decimal("1.07"), Decimal("2.50")),
    ({"date": "2020-02-01"}, dt.date(2020, 2, 1), dt.date(2020, 2, 1)),
    ({"date": between("2020-02-01", "2020-02-03")}, dt.date(2020, 2, 1), dt.date(2020, 2, 3)),
    (
        {"date": between("2020-02-01", dt.date(2020, 2, 4), closed="neither")},
        dt.date(2020, 2, 2),
        dt.date(2020, 2, 3),
    ),
    ({"time": dt.time(12, 30)}, dt.time(12, 30), dt.time(12, 30)),
    ({"time": "12:30:00"}, dt.time(12, 30), dt.time(12, 30)),
    ({"time": "12:30"}, dt.time(12, 30), dt.time(12, 30)),
    ({"time": between(dt.time(10), dt.time(10, 5))}, dt.time(10), dt.time(10, 5)),
    ({"lasts": minutes(30)}, minutes(30), minutes(30)),
    ({"lasts": between(pd.Timedelta("30min"), minutes(33))}, minutes(30), minutes(33)),
    ({"tens": 30}, 30, 30),
    ({"tens": between(25, 44)}, 30, 40),
    ({"tens": between(30, 60, closed="neither")}, 40, 50),
    ({"text": "3.5"}, "3.5", "3.5"),
    ({"text": 3.5}, "3.5", "3.5"),
    ({"text": between(3, "3.2")}, "3.0", "3.2"),
    ({"code": "3"}, 3, 3),
    ({"code": between(1, 3)}, 1, 3),
    ({"code": between(1, 3, closed="neither")}, 2, 2),
    ({"code": between(1.5, 3.5)}, 2, 3),
    ({"huge": 2**60 + 7}, 2**60 + 7, 2**60 + 7),
    ({"huge": between(2**60 + 5, 2**60 + 7)}, 2**60 + 5, 2**60 + 7),
]


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    UNUSUAL,
    ids=[f"{n} {name}" for n, (asked, *_) in enumerate(UNUSUAL) for name in asked],
)
def test_values_and_ranges_of_every_type_are_kept(strange, asked, least, most):
    (name,) = asked
    rows = strange.sample(400, seed=0, where=asked).column(name).to_pylist()
    assert (min(rows), max(rows)) == (least, most)


def test_a_column_of_gaps_is_missing_and_nothing_else(strange):
    assert strange.sample(3, seed=0, where={"void": missing()}).column("void").null_count == 3
    for asked in (known(), 3, between(1, 3)):
        with pytest.raises(UserError, match=r"^Column 'void' "):
            strange.sample(3, seed=0, where={"void": asked})


def test_a_value_off_a_grid_of_tens_is_told_the_grid(strange):
    with pytest.raises(UserError) as error:
        strange.sample(3, seed=0, where={"tens": 35})
    assert str(error.value) == (
        "Column 'tens' is asked to be 35, but its values are multiples of 10."
    )


# --- balance -------------------------------------------------------------------------------


def test_balanced_values_come_equally_often_and_are_mixed(model):
    rows = model.sample(600, seed=0, balance="kind")
    assert rows["kind"].value_counts(dropna=False).to_dict() == {"ant": 200, "bee": 200, "cat": 200}
    assert all(rows["kind"].iloc[start : start + 60].nunique() == 3 for start in range(0, 600, 60))


def test_shares_set_how_often_each_value_comes(model):
    rows = model.sample(400, seed=0, balance={"flag": {True: 0.25, False: 0.75}})
    assert rows["flag"].sum() == 100
    rows = model.sample(90, seed=0, balance={"kind": {"ant": 2, "bee": 1, "cat": 0}})
    assert rows["kind"].value_counts().to_dict() == {"ant": 60, "bee": 30}


def test_sizes_that_do_not_divide_still_add_up(model):
    rows = model.sample(100, seed=0, balance="kind")
    assert len(rows) == 100
    assert sorted(rows["kind"].value_counts()) == [33, 33, 34]


def test_balance_goes_with_conditions(model):
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


def test_same_seed_same_balanced_rows(model):
    one, two, other = (model.sample(200, seed=seed, balance="kind") for seed in (3, 3, 4))
    assert one.equals(two) and not one.equals(other)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"balance": "knid"},
            f"balance names column 'knid', but the table has: {COLUMNS}. Did you mean 'kind'?",
        ),
        (
            {"balance": "size"},
            "Column 'size' is numeric; only a categorical column can be balanced.",
        ),
        (
            {"balance": {"kind": {"ant": 1}, "flag": {True: 1}}},
            "balance takes one column, such as {'Exited': {0: 0.5, 1: 0.5}}.",
        ),
        (
            {"balance": {"kind": {"ant": -1, "bee": 2}}},
            "The share of 'ant' in 'kind' is -1, but must be from 0.",
        ),
        (
            {"balance": {"kind": {"ant": "half"}}},
            "The share of 'ant' in 'kind' is 'half', but must be from 0.",
        ),
        ({"balance": {"kind": {"ant": 0}}}, "The shares of column 'kind' are all 0."),
        ({"balance": {"kind": {}}}, "The shares of column 'kind' are all 0."),
        (
            {"balance": {"kind": {"ant": 1, "bea": 1}}},
            "Column 'kind' is asked to be 'bea', which the model has not seen; closest are 'bee'.",
        ),
        (
            {"balance": "kind", "where": {"kind": "ant"}},
            "Column 'kind' is balanced and has a condition; give one of them.",
        ),
    ],
)
def test_a_wrong_balance_gets_a_sentence(either, options, sentence):
    with pytest.raises(UserError) as error:
        either.sample(10, seed=0, **options)
    assert str(error.value) == sentence


# --- rows to be like, and tables of prompts ------------------------------------------------

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
def test_named_cells_stay_and_the_others_are_drawn(model, form):
    kept = ["kind", "size", "ratio"]
    rows = model.sample(200, like=form(LIKE), keep=kept, seed=0)
    assert len(rows) == 200 and rows.dtypes.equals(frame().dtypes)
    for name in kept:
        assert as_set(rows[name]) == {LIKE[name]}
    assert all(rows[name].nunique() > 1 for name in ("price", "flag", "hours", "day", "moment"))
    assert rows["id"].tolist() == list(range(1, 201))


def test_a_number_of_cells_stays_chosen_anew_in_each_row(model):
    rows = model.sample(900, like=LIKE, keep=3, seed=0)
    same = alike(rows)
    assert (same.sum(1) >= 3).all()
    # A drawn float is never the given one, so it is there just when it was kept.
    assert binomtest(int(same[:, 8].sum()), 900, 3 / 10).pvalue > 0.001
    assert len(np.unique(same, axis=0)) > 50
    assert alike(model.sample(20, like=LIKE, keep=10, seed=0)).all()
    assert not alike(model.sample(200, like=LIKE, keep=0, seed=0))[:, 8].any()


def test_one_name_needs_no_list(model):
    rows = model.sample(50, like=LIKE, keep="kind", seed=0)
    assert rows.equals(model.sample(50, like=LIKE, keep=["kind"], seed=0))
    assert as_set(rows["kind"]) == {"bee"} and rows["size"].nunique() > 1


def test_rows_to_be_like_are_taken_in_turn(model):
    three = frame().head(3)
    rows = model.sample(8, like=three, keep=["ratio"], seed=0)
    assert rows["ratio"].tolist() == [three["ratio"].iloc[n % 3] for n in range(8)]
    assert len(model.sample(like=three, keep=["ratio"], seed=0)) == 3


def test_rows_like_one_are_the_same_for_the_same_seed(model):
    one, two, other = (model.sample(60, like=LIKE, keep=4, seed=seed) for seed in (3, 3, 4))
    assert one.equals(two) and not one.equals(other)


def test_prompted_cells_stay_blank_ones_are_filled_and_absent_columns_drawn(model):
    prompts = pd.DataFrame(
        {
            "ratio": [0.1234567, np.nan, -0.7654321] * 100,
            "size": pd.array([11, 17, None] * 100, dtype="Int64"),  # inside wide bins
            "kind": ["bee", None, "cat"] * 100,
            "day": pd.to_datetime(["2020-02-02", "2020-02-03", None] * 100),
        }
    )
    before = prompts.copy(deep=True)
    rows = model.sample(prompts=prompts, seed=0)
    pd.testing.assert_frame_equal(prompts, before)
    assert list(rows.columns) == list(frame().columns) and rows.dtypes.equals(frame().dtypes)
    for name in prompts.columns:
        given = prompts[name].notna().to_numpy()
        assert (rows[name][given] == prompts[name][given]).all()
    blank = rows[prompts["size"].isna().to_numpy()]
    assert blank["size"].nunique() > 3
    assert rows["ratio"][1::3].nunique() == 100  # never had a gap, so it has none now
    assert rows["price"].nunique() > 10 and 0 < rows["price"].isna().sum() < 300
    assert rows["id"].tolist() == list(range(1, 301))


def test_completed_prompts_follow_the_distribution_given_their_cells(model):
    prompts = pd.DataFrame({"size": [22] * 3000})
    made = model.sample(prompts=prompts, seed=0, complete=True)
    assert made.notna().all(axis=None) and as_set(made["size"]) == {22}
    kinds = pd.DataFrame({name: [value] * 3000 for name, value in LIKE.items() if name != "kind"})
    rows = model.sample(prompts=kinds, seed=0)
    known_cells = {n: v for n, v in LIKE.items() if n not in ("id", "kind", "same")}
    assert follows(rows, "kind", chances(model, "kind", known_cells)) > 0.001


def test_prompts_come_as_arrow_tables_and_files_too(either, tmp_path):
    prompts = pd.DataFrame({"size": [3, 11, 24], "kind": ["ant", None, "cat"]})
    expected = either.sample(prompts=prompts, seed=0)
    assert either.sample(prompts=pa.Table.from_pandas(prompts), seed=0).equals(expected)
    prompts.to_csv(tmp_path / "p.csv", index=False)
    prompts.to_parquet(tmp_path / "p.parquet")
    for name in ("p.csv", "p.parquet"):
        assert either.sample(prompts=tmp_path / name, seed=0).equals(expected)


def test_a_number_outside_what_was_seen_still_comes_back_as_prompted(either):
    rows = either.sample(prompts=pd.DataFrame({"size": [1000, -3], "ratio": [9.5, 1e9]}), seed=0)
    assert rows["size"].tolist() == [1000, -3] and rows["ratio"].tolist() == [9.5, 1e9]


def test_prompts_without_rows_give_no_rows(either):
    rows = either.sample(prompts=frame().head(0), seed=0)
    assert len(rows) == 0 and rows.dtypes.equals(frame().dtypes)


def test_categories_of_a_prompted_column_stay_as_they_were(fitted):
    rows = fitted.sample(like={"group": "b", "member": True}, rows=20, seed=0)
    assert as_set(rows["group"]) == {"b"}
    assert rows["group"].cat.categories.tolist() == ["a", "b", "c"]


ONE_OF = "Give one of: where (with or without balance), prompts, like."
NO_ROWS = "Prompts give one row each; leave out the number of rows and keep."


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rows": 5, "like": LIKE, "where": {"size": 3}}, ONE_OF),
        ({"rows": 5, "like": LIKE, "balance": "kind"}, ONE_OF),
        ({"prompts": frame(), "like": LIKE}, ONE_OF),
        ({"rows": 5, "prompts": frame()}, NO_ROWS),
        ({"prompts": frame(), "keep": 2}, NO_ROWS),
        ({"rows": 5, "keep": 2}, "keep goes with like: the cells that stay as they are."),
        ({}, "The number of rows is None, but must be a whole number from 0."),
        (
            {"rows": 5, "like": LIKE, "keep": 11},
            "keep is 11, but there are 10 columns to keep cells of.",
        ),
        (
            {"rows": 5, "like": LIKE, "keep": -1},
            "keep is -1, but there are 10 columns to keep cells of.",
        ),
        (
            {"rows": 5, "like": LIKE, "keep": ["knid"]},
            f"keep names column 'knid', but the table has: {COLUMNS}. Did you mean 'kind'?",
        ),
        ({"rows": 5, "like": frame().head(0)}, "The table of rows to be like has no rows."),
        (
            {"rows": -5, "like": LIKE},
            "The number of rows is -5, but must be a whole number from 0.",
        ),
        (
            {"prompts": pd.DataFrame({"kind": ["bea"]})},
            "Column 'kind' holds 'bea', which the model has not seen; it knows 3 values there. "
            "Did you mean 'bee'?",
        ),
        (
            {"prompts": pd.DataFrame({"king": ["bee"]})},
            "The table has a column 'king', which the model does not know; leave it out.",
        ),
    ],
)
def test_a_wrong_request_gets_a_sentence(either, options, sentence):
    with pytest.raises(UserError) as error:
        either.sample(seed=0, **options)
    assert str(error.value) == sentence
