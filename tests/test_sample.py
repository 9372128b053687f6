"""Filling masked cells: orders, known cells, allowed codes, and what a trained network gives."""

import itertools
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from tabmt.config import NetworkName, TrainConfig
from tabmt.method.column_order import ColumnOrder
from tabmt.method.embedding import Field
from tabmt.method.networks import Network, build_network
from tabmt.method.sample import draw_order, fill
from tabmt.method.train import train
from tabmt.tokens import MASK
from tests import small_networks
from tests.small_networks import generator, small

FIELDS = (Field(3, None), Field(4, (0.0, 0.4, 1.0)), Field(2, None))


@pytest.fixture(params=get_args(NetworkName))
def name(request) -> str:
    """Both networks, one after the other."""
    return request.param


def make(name: NetworkName = "masked", seed: int = 1) -> Network:
    return small_networks.make(small(name), FIELDS, noise=0.15, seed=seed)


def blank(rows: int, columns: int = 3) -> Tensor:
    return torch.full((rows, columns), MASK)


ONES = torch.ones(3)


def row_probabilities(net: Network, order: list[int]) -> tuple[Tensor, Tensor]:
    rows = torch.tensor(list(itertools.product(*(range(f.size) for f in FIELDS))))
    state = net.start(blank(len(rows)))
    total = torch.zeros(len(rows), dtype=torch.float64)
    every = torch.arange(len(rows))
    for column in order:
        logits = state.logits(every, column).double()
        total += logits.log_softmax(1)[every, rows[:, column]]
        state.set(every, column, rows[:, column])
    return rows, total.exp()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_probabilities_of_one_order_sum_to_one(order, name):
    _, probabilities = row_probabilities(make(name), order)
    assert probabilities.sum().item() == pytest.approx(1.0, abs=1e-6)


def test_sampled_frequencies_match_the_models_probabilities(name):
    net, order = make(name), [2, 0, 1]
    rows, probabilities = row_probabilities(net, order)
    n = 40_000
    seed = next(s for s in range(100) if draw_order(len(net.sizes), generator(s)).tolist() == order)
    drawn = fill(net, blank(n), temperature=ONES, generator=generator(seed))
    index = (drawn[:, 0] * 4 + drawn[:, 1]) * 2 + drawn[:, 2]
    assert torch.equal(rows[index], drawn)
    counts = torch.bincount(index, minlength=len(rows)).double()
    often = probabilities * n > 5
    observed = torch.cat([counts[often], counts[~often].sum()[None]])
    expected = torch.cat([probabilities[often], probabilities[~often].sum()[None]]) * n
    keep = expected > 0
    assert chisquare(observed[keep], expected[keep] / expected.sum() * n).pvalue > 0.001


class UniformNetwork:
    """A network of uniform logits that records the order in which columns are drawn."""

    merge_below = 0.5

    def __init__(self, columns: int) -> None:
        self.sizes = (2,) * columns
        self.order: list[int] = []

    def start(self, tokens: Tensor) -> "UniformNetwork":
        self.order = []
        return self

    def logits(self, rows: Tensor, column: int) -> Tensor:
        self.order.append(column)
        return torch.zeros(len(rows), 2)

    def set(self, rows: Tensor, column: int, codes: Tensor) -> None:
        pass

    def select(self, rows: Tensor) -> None:
        pass


def test_columns_of_very_many_codes_come_first_and_the_target_last():
    sizes, noise = [3, 5000, 2, 2000, 7, 1000], generator()

    def drawn(target, count, large_first=True):
        column_order = ColumnOrder.of(sizes, target=target, large_first=large_first)
        return {tuple(draw_order(6, noise, column_order).tolist()) for _ in range(count)}

    orders = drawn(4, 200)
    assert {order[:2] for order in orders} == {(1, 3), (3, 1)}
    assert {order[-1] for order in orders} == {4}
    assert {order[2:5] for order in orders} == set(itertools.permutations((0, 2, 5)))
    assert {(order[0], order[-1]) for order in drawn(1, 50)} == {(3, 1)}
    assert {order[0] for order in drawn(None, 200, large_first=False)} == set(range(6))


def test_all_orders_are_equally_likely():
    net, noise = UniformNetwork(4), generator()
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for _ in range(2400):
        fill(net, blank(1, 4), temperature=torch.ones(4), generator=noise)
        counts[tuple(net.order)] += 1
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_only_columns_with_masked_cells_are_drawn():
    net = UniformNetwork(3)
    tokens = torch.tensor([[0, MASK, 1], [1, 0, 0]])
    fill(net, tokens, temperature=ONES, generator=generator())
    assert net.order == [1]


@settings(max_examples=30, deadline=None)
@given(
    cells=st.lists(
        st.tuples(st.integers(-1, 2), st.integers(-1, 3), st.integers(-1, 1)),
        min_size=1,
        max_size=6,
    ),
    temperature=st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    name=st.sampled_from(get_args(NetworkName)),
)
def test_known_cells_are_kept_and_all_others_filled_with_codes(cells, temperature, name):
    tokens = torch.tensor(cells)
    before = tokens.clone()
    filled = fill(make(name), tokens, temperature=ONES * temperature, generator=generator())
    assert torch.equal(tokens, before)
    assert torch.equal(filled[tokens != MASK], tokens[tokens != MASK])
    assert (filled >= 0).all()
    assert (filled < torch.tensor([field.size for field in FIELDS])).all()


def test_same_seed_same_rows():
    one, two, other = (
        fill(make(), blank(200), temperature=ONES, generator=generator(seed)) for seed in (5, 5, 6)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_fill_keeps_to_the_allowed_codes_of_each_column():
    allowed = [torch.tensor([0.0, 1.0, 0.0]), None, torch.tensor([1.0, 0.0])]
    filled = fill(make(), blank(300), temperature=ONES, generator=generator(), allowed=allowed)
    assert (filled[:, 0] == 1).all()
    assert len(filled[:, 1].unique()) > 1
    assert (filled[:, 2] == 0).all()


def fit(name: str, tokens: Tensor, sizes: list[int], steps: int) -> Network:
    fields = [Field(size, None) for size in sizes]
    net = build_network(fields, small(name), generator())
    config = TrainConfig(steps=steps, batch_size=128, learning_rate=1e-2, warmup=10)
    train(net, tokens, tokens[:0], config, seed=0)
    return net


def test_two_repeated_rows_come_back_and_no_others(name):
    two = torch.tensor([[0, 3, 1, 0, 2], [1, 0, 2, 1, 0]])
    net = fit(name, two.repeat(64, 1), [2, 4, 3, 2, 3], steps=300)
    temperature = torch.ones(5)
    drawn = torch.cat(
        [
            fill(net, blank(50, 5), temperature=temperature, generator=generator(seed))
            for seed in range(8)
        ]
    )
    is_first, is_second = ((drawn == row).all(1) for row in two)
    assert (is_first | is_second).float().mean() >= 0.99
    assert is_first.float().mean().item() == pytest.approx(0.5, abs=0.15)


def test_independent_columns_stay_independent_with_their_marginals(name):
    marginals = [[0.7, 0.3], [0.1, 0.2, 0.7], [0.5, 0.5]]
    columns = [
        torch.tensor(m).multinomial(4000, replacement=True, generator=generator(seed))
        for seed, m in enumerate(marginals)
    ]
    tokens = torch.stack(columns, 1)
    net = fit(name, tokens, [2, 3, 2], steps=300)
    drawn = torch.cat(
        [fill(net, blank(500), temperature=ONES, generator=generator(seed)) for seed in range(12)]
    )
    for column, marginal in enumerate(marginals):
        shares = torch.bincount(drawn[:, column], minlength=len(marginal)) / len(drawn)
        assert shares.tolist() == pytest.approx(marginal, abs=0.04)
    correlation = torch.corrcoef(drawn.T.float())
    assert (correlation - torch.eye(3)).abs().max() < 0.06
