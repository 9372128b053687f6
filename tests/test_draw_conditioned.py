"""Drawing under conditions, code by code, against enumerated distributions."""

import itertools
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from tabmt.config import NetworkName, TrainConfig
from tabmt.method.networks import Network, build_network
from tabmt.method.sample import ImprobableCondition, draw_conditioned, draw_order, fill
from tabmt.method.train import train
from tabmt.tokens import MASK
from tests.prompted import p_value
from tests.small_networks import FIELDS, generator, small

NETWORKS = get_args(NetworkName)


GRID = torch.tensor(list(itertools.product(*(range(field.size) for field in FIELDS))))
BLANK = torch.full_like(GRID, MASK)
EVERY = torch.arange(len(GRID))


def dependent_tokens(rows: int = 3000) -> Tensor:
    """Four columns that depend on one another; the last code of the second is missing."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, rows)
    b = np.where(rng.random(rows) < 0.1 + 0.15 * a, 4, np.minimum(a + rng.integers(0, 2, rows), 3))
    c = (rng.random(rows) < np.where(b >= 2, 0.8, 0.15)).astype(int)
    d = np.where(rng.random(rows) < 0.3, rng.integers(0, 4, rows), (a + 2 * c) % 4)
    return torch.from_numpy(np.stack([a, b, c, d], 1))


@pytest.fixture(scope="module", params=NETWORKS)
def net(request) -> Network:
    net = build_network(FIELDS, small(request.param), generator())
    tokens = dependent_tokens()
    config = TrainConfig(steps=80, batch_size=128, learning_rate=1e-2, warmup=10)
    train(net, tokens, tokens[:0], config, seed=0)
    return net


def exact(net, conditioned, order, allowed) -> Tensor:
    """The probability of every row: the conditioned columns are restricted together, the others
    one by one."""
    state, total = net.start(BLANK), torch.zeros(len(GRID), dtype=torch.float64)
    for column in [*conditioned, *order]:
        logits = state.logits(EVERY, column).double()
        nats = logits.log_softmax(1)
        if allowed[column] is not None:
            nats = nats + allowed[column].log()
            if column in order:
                nats = nats.log_softmax(1)
        total += nats[EVERY, GRID[:, column]]
        state.set(EVERY, column, GRID[:, column])
    return total.exp() / total.exp().sum()


def agreement(drawn: Tensor, chances: Tensor) -> float:
    """The p-value of drawn rows under the chances of all rows."""
    strides = torch.tensor([40, 8, 4, 1])
    index = (drawn * strides).sum(1)
    assert torch.equal(GRID[index], drawn)
    counts = torch.bincount(index, minlength=len(GRID)).double()
    return p_value(counts.numpy(), chances.numpy())


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


def conditions(names) -> tuple[list[int], list[int], list[Tensor | None]]:
    """The conditioned columns, exact ones first, as generate.py orders them; the other columns; and
    what is allowed of each."""
    allowed: list[Tensor | None] = [None] * 4
    for name in names:
        column, weights = CONDITIONS[name]
        allowed[column] = torch.tensor(weights, dtype=torch.float64)
    columns = [CONDITIONS[name][0] for name in names]
    conditioned = sorted(columns, key=lambda column: int((allowed[column] > 0).sum()) > 1)
    rest = [column for column in (3, 1, 0, 2) if column not in conditioned]
    return conditioned, rest, allowed


def draw(net, count, conditioned, order, allowed, *, seed=0) -> Tensor:
    """Rows whose conditioned columns are drawn first, and then the others in this order."""
    temperature = torch.ones(len(allowed))
    rows = draw_conditioned(
        net, count, conditioned, allowed, temperature, generator(seed), torch.device("cpu")
    )
    for column in order:
        rows.draw(column, allowed[column])
    return rows.tokens


@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
def test_rows_under_conditions_follow_the_exact_conditional_distribution(net, names):
    conditioned, order, allowed = conditions(names)
    drawn = draw(net, 20_000, conditioned, order, allowed)
    assert agreement(drawn, exact(net, conditioned, order, allowed)) > 0.001


def test_codes_that_other_columns_may_not_have_do_not_change_the_conditioned_ones(net):
    """As without missing values: none in a column that has no condition."""
    conditioned, order, allowed = conditions(["set", "range of another"])
    allowed[1] = torch.tensor([1, 1, 1, 1, 0], dtype=torch.float64)
    drawn = draw(net, 20_000, conditioned, order, allowed)
    assert agreement(drawn, exact(net, conditioned, order, allowed)) > 0.001


def test_chunks_of_the_usual_size_together_follow_the_distribution(net):
    conditioned, order, allowed = conditions(["range", "range of another"])
    drawn = torch.cat(
        [draw(net, 512, conditioned, order, allowed, seed=seed) for seed in range(16)]
    )
    assert agreement(drawn, exact(net, conditioned, order, allowed)) > 0.001


@pytest.mark.parametrize("names", [("set", "known"), ("set", "known", "range of another")])
def test_rows_without_merging_are_those_of_merged_prefixes(monkeypatch, net, names):
    # The random stream is shared, so the rows must be the same, one by one.
    conditioned, order, allowed = conditions(names)
    merged = draw(net, 300, conditioned, order, allowed)
    monkeypatch.setattr(type(net), "merge_below", 0.0)
    assert torch.equal(draw(net, 300, conditioned, order, allowed), merged)


def test_rows_without_merging_follow_the_exact_conditional_distribution(monkeypatch, net):
    monkeypatch.setattr(type(net), "merge_below", 0.0)
    conditioned, order, allowed = conditions(["set", "known"])
    drawn = torch.cat(
        [draw(net, 500, conditioned, order, allowed, seed=seed) for seed in range(10)]
    )
    assert agreement(drawn, exact(net, conditioned, order, allowed)) > 0.001


def test_the_same_seed_gives_the_same_rows_under_conditions(net):
    conditioned, order, allowed = conditions(["set", "range", "range of another"])
    one, two, other = (draw(net, 200, conditioned, order, allowed, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_filling_draws_conditioned_columns_first_and_the_others_in_a_random_order(net):
    conditioned, _, allowed = conditions(["set", "range of another"])
    orders = set()
    for seed in range(8):
        stream = generator(seed)
        order = [c for c in draw_order(len(net.sizes), stream).tolist() if c not in conditioned]
        temperature, device = torch.ones(4), torch.device("cpu")
        rows = draw_conditioned(net, 50, conditioned, allowed, temperature, stream, device)
        for column in order:
            rows.draw(column, allowed[column])
        filled = fill(
            net,
            torch.full((50, 4), MASK),
            temperature=temperature,
            generator=generator(seed),
            allowed=allowed,
            conditioned=conditioned,
        )
        assert torch.equal(filled, rows.tokens)
        orders.add(tuple(order))
    assert len(orders) == 2


class Joint:
    """A network that is a table of joint probabilities, and counts how often it is started."""

    merge_below = 0.5

    def __init__(self, joint: Tensor) -> None:
        self.joint, self.starts = joint.double(), 0
        self.sizes = tuple(joint.shape)

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
            for other, code in enumerate(row):
                if code != MASK:
                    chances = chances.narrow(other, code, 1)
            others = [other for other in range(self.joint.dim()) if other != column]
            found.append(chances.sum(others).log())
        return torch.stack(found)

    def set(self, rows: Tensor, column: int, codes: Tensor) -> None:
        self.tokens[rows, column] = codes

    def select(self, rows: Tensor) -> None:
        self.tokens = self.tokens[rows]


TWO_OF_THREE = torch.tensor([1.0, 1.0, 0.0])
NO_OTHERS: list[int] = []


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_follow_the_distribution_as_many_do(rows):
    # What is likely by the first condition alone hardly ever meets the second.
    joint = torch.tensor([[0.0025, 0.0025, 0.445], [0.22, 0.22, 0.01], [0.03, 0.03, 0.04]])
    allowed = [TWO_OF_THREE, TWO_OF_THREE]
    net, calls = Joint(joint), 600 // rows
    drawn = torch.cat([draw(net, rows, [0, 1], NO_OTHERS, allowed, seed=s) for s in range(calls)])
    counts = torch.bincount(drawn[:, 0] * 2 + drawn[:, 1], minlength=4)
    assert p_value(counts.view(2, 2).sum(1), joint[:2, :2].sum(1)) > 0.001


def chain(step: float, columns: int = 4) -> Tensor:
    """Columns of three codes; each is, given those before, below 2 with the chance `step`."""
    one = torch.tensor([step / 2, step / 2, 1 - step], dtype=torch.float64)
    joint = one
    for _ in range(columns - 1):
        joint = joint[..., None] * one
    return joint


def test_a_tiny_probability_in_small_steps_is_met_in_few_attempts():
    net = Joint(chain(1e-6))  # 1e-24 in all
    drawn = draw(net, 50, [0, 1, 2, 3], NO_OTHERS, [TWO_OF_THREE] * 4)
    assert (drawn < 2).all() and drawn.shape == (50, 4)
    assert net.starts <= 8


def test_probabilities_that_differ_by_orders_of_magnitude_need_few_attempts():
    net = Joint(torch.tensor([[5e-5, 5e-5, 0.9], [0.01, 0.01, 0.03], [0.01, 0.01, 0.0299]]))
    drawn = draw(net, 200, [0, 1], NO_OTHERS, [TWO_OF_THREE, TWO_OF_THREE])
    assert (drawn < 2).all() and drawn.shape == (200, 2)
    assert (drawn[:, 0] == 1).float().mean() > 0.95  # 200 to 1
    assert net.starts <= 8


@pytest.mark.parametrize("rows", [1, 400])
def test_the_error_of_a_condition_that_is_practically_never_met_has_its_probability(rows):
    net = Joint(torch.stack([chain(1e-9, 1), chain(0.5, 1)]))
    with pytest.raises(ImprobableCondition) as error:
        draw(net, rows, [0, 1], NO_OTHERS, [torch.tensor([1.0, 0.0]), TWO_OF_THREE])
    assert error.value.column == 1
    assert error.value.probability == pytest.approx(1e-9, rel=1e-4)
    assert net.starts == 1


def test_the_probability_of_a_later_condition_is_that_given_the_earlier_ones():
    """Over the rows that meet them, not over the candidates as they were drawn."""
    first = torch.tensor([0.45, 0.45, 0.1], dtype=torch.float64)
    second = torch.tensor([[0.0005, 0.0005, 0.999], [0.4995, 0.4995, 0.001], [0.3, 0.3, 0.4]])
    third = torch.tensor([[1e-6, 1e-6, 1.0], [5e-10, 5e-10, 1.0], [0.3, 0.3, 0.4]])
    joint = first[:, None, None] * second[:, :, None].double() * third[:, None, :].double()
    with pytest.raises(ImprobableCondition) as error:
        draw(Joint(joint), 4000, [0, 1, 2], NO_OTHERS, [TWO_OF_THREE] * 3)
    met = joint[:2, :2, :2].sum() / joint[:2, :2].sum()
    assert error.value.column == 2
    assert error.value.probability == pytest.approx(float(met), rel=0.1)
