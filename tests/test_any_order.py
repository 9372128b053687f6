"""The any-order network: what it sees, what its cache gives, what its likelihood sums to."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tabmt.method.any_order import draw_orders, masked_cells_last
from tabmt.method.column_order import ColumnOrder
from tabmt.method.sample import fill
from tabmt.tokens import MASK
from tests.small_networks import FIELDS, generator, make, small, some_tokens

NET = make(small("any-order"))
EVERY = list(itertools.permutations(range(4)))


def test_all_orders_are_equally_likely():
    orders = draw_orders((48_000, 4), generator())
    _, counts = torch.unique(orders, dim=0, return_counts=True)
    assert len(counts) == 24
    assert chisquare(counts.numpy()).pvalue > 0.001


def test_columns_that_sampling_draws_first_come_first_in_half_of_the_rows():
    orders = draw_orders((6000, 5), generator(), ColumnOrder(first=(0, 3), last=2))
    assert set(orders[::2, :2].flatten().tolist()) == {0, 3}
    assert (orders[::2, -1] == 2).all()
    counts = torch.bincount(orders[1::2, 0], minlength=5)
    assert chisquare(counts.numpy()).pvalue > 0.001
    assert torch.equal(orders.sort(1).values, torch.arange(5).expand(6000, 5))


def test_a_target_comes_last_in_half_of_the_rows():
    orders = draw_orders((6000, 4), generator(), ColumnOrder(last=2))
    assert (orders[::2, -1] == 2).all()
    counts = torch.bincount(orders[1::2, -1], minlength=4)
    assert chisquare(counts.numpy()).pvalue > 0.001
    assert torch.equal(orders.sort(1).values, torch.arange(4).expand(6000, 4))


def test_computed_columns_come_last_and_are_not_predicted_in_every_second_row():
    order = ColumnOrder(first=(0,), last=2, late=(4,), computed=(1,))
    orders = draw_orders((6000, 6), generator(), order)
    generated = orders[::2]
    assert (generated[:, 0] == 0).all()
    assert {tuple(middle) for middle in generated[:, 1:3].tolist()} == {(3, 5), (5, 3)}
    assert (generated[:, 3:] == torch.tensor([4, 2, -1 - 1])).all()
    assert (orders[1::2] >= 0).all()
    assert (orders[1::2, -1] == 1).float().mean() == pytest.approx(1 / 6, abs=0.02)


def test_what_lies_beyond_a_rows_end_is_never_seen(monkeypatch):
    """Rows of different lengths share one cache; memory that was not written may hold anything."""
    prompt = torch.full((60, 4), MASK)
    prompt[:30, :2] = some_tokens(30)[:, :2]
    seeds = range(8)  # each draws another order of the columns

    def fill_prompt(seed: int) -> torch.Tensor:
        return fill(NET, prompt, temperature=torch.ones(4), generator=generator(seed))

    expected = [fill_prompt(seed) for seed in seeds]
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda self, *shape: empty(self, *shape).fill_(torch.nan)
    )
    for seed in seeds:
        assert torch.equal(fill_prompt(seed), expected[seed])


def test_masked_cells_come_last_and_the_known_ones_stay_in_order():
    orders = torch.tensor([[2, 0, 3, 1], [1, 3, 0, 2]])
    tokens = torch.tensor([[1, 1, MASK, 1], [MASK, MASK, 0, 0]])
    assert masked_cells_last(orders, tokens).tolist() == [[0, 3, 1, 2], [3, 2, 1, 0]]


@settings(max_examples=60, deadline=None)
@given(
    known=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5),
    order=st.permutations(range(4)),
)
def test_cached_logits_equal_those_of_one_pass(known, order):
    """Any prompt per row, any order of the rest: the state agrees with the training pass."""
    truth = some_tokens(len(known))
    prompt = torch.where(torch.tensor(known), truth, MASK)
    # The state takes what is known in the order of the columns, then what is set.
    orders = torch.tensor(
        [[c for c in range(4) if row[c]] + [c for c in order if not row[c]] for row in known]
    )
    with torch.no_grad():
        expected = NET.log_prob(truth, orders)
    state = NET.start(prompt)
    for column in order:
        rows = (prompt[:, column] == MASK).nonzero().squeeze(1)
        if len(rows) == 0:
            continue
        cached = state.logits(rows, column).log_softmax(1)
        cached = cached.gather(1, truth[rows, column][:, None]).squeeze(1)
        torch.testing.assert_close(cached, expected[rows, column], atol=1e-5, rtol=0)
        state.set(rows, column, truth[rows, column])


def test_logits_change_nothing_and_a_cell_may_be_set_without_them():
    truth, every = some_tokens(6), torch.arange(6)
    asked, only_set = (NET.start(torch.full_like(truth, MASK)) for _ in range(2))
    asked.logits(every, 3)
    asked.logits(every, 1)
    for column in (1, 0):
        asked.logits(every, column)
        asked.set(every, column, truth[:, column])
        only_set.set(every, column, truth[:, column])
    torch.testing.assert_close(asked.logits(every, 2), only_set.logits(every, 2))


def test_a_state_continues_with_the_selected_rows():
    truth, every = some_tokens(6), torch.arange(6)
    state = NET.start(torch.full_like(truth, MASK))
    for column in (2, 0):
        state.logits(every, column)
        state.set(every, column, truth[:, column])
    whole = state.logits(every, 3)
    selected = torch.tensor([4, 4, 0])
    state.select(selected)
    torch.testing.assert_close(state.logits(torch.arange(3), 3), whole[selected])


@pytest.mark.parametrize("order", EVERY[::5])
def test_a_later_column_never_influences_an_earlier_one(order):
    tokens = some_tokens(6)
    orders = torch.tensor(order).expand(6, 4)
    with torch.no_grad():
        before = NET.log_prob(tokens, orders)
        for step, column in enumerate(order):
            other = tokens.clone()
            other[:, column] = (tokens[:, column] + 1) % FIELDS[column].size
            change = (NET.log_prob(other, orders) - before).abs().amax(0)
            assert change[list(order[:step])].sum() == 0
            assert step == 3 or change[list(order[step + 1 :])].min() > 1e-4


@pytest.mark.parametrize("order", EVERY[::7])
def test_likelihoods_of_one_order_sum_to_one(order):
    rows = torch.tensor(list(itertools.product(*(range(field.size) for field in FIELDS))))
    with torch.no_grad():
        total = NET.log_prob(rows, torch.tensor(order).expand(len(rows), 4)).sum(1)
    assert total.double().exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_loss_is_the_likelihood_of_the_known_cells():
    tokens, orders = some_tokens(9), draw_orders((9, 4), generator(4))
    tokens[0, 1] = tokens[3, 2] = tokens[3, 0] = MASK
    total, count = NET.loss_sum_and_count(tokens, orders)
    assert count == 36 - 3
    assert total.item() == pytest.approx(-NET.log_prob(tokens, orders).sum().item(), rel=1e-5)


def test_cells_that_are_not_predicted_cost_nothing_and_the_others_are_as_likely_as_without_them():
    tokens, masked = some_tokens(9), some_tokens(9)
    orders = draw_orders((9, 4), generator(4), ColumnOrder(computed=(1, 2)))
    masked[::2, 1:3] = MASK
    total, count = NET.loss_sum_and_count(tokens, orders)
    expected = NET.log_prob(masked, torch.where(orders < 0, -1 - orders, orders))
    assert count == 4 * 4 + 5 * 2
    assert total.item() == pytest.approx(-expected.sum().item(), rel=1e-5)


def test_the_loss_of_a_row_does_not_depend_on_its_masked_cells():
    """A row with masked cells costs what it costs in a network that stops before them."""
    tokens = some_tokens(8)
    orders = torch.tensor([3, 1, 0, 2]).expand(8, 4)
    partial = tokens.clone()
    partial[:, 1] = MASK
    with torch.no_grad():
        whole = NET.log_prob(tokens, torch.tensor([3, 0, 2, 1]).expand(8, 4))
        parts = NET.log_prob(partial, orders)
    torch.testing.assert_close(parts[:, [3, 0, 2]], whole[:, [3, 0, 2]])
    assert (parts[:, 1] == 0).all()
    net = make(small("any-order"))
    net.loss_sum_and_count(partial, orders)[0].backward()
    masked_codes = net.embedding.codes_of(1)
    assert net.output.bias.grad[masked_codes].abs().max() == 0


def test_a_batch_of_masked_cells_only_has_loss_zero_and_finite_gradients():
    net = make(small("any-order"))
    tokens = torch.full((5, 4), MASK)
    total, count = net.loss_sum_and_count(tokens, draw_orders((5, 4), generator()), generator())
    assert (total.item(), count) == (0.0, 0)
    total.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_every_parameter_is_trained():
    net = make(small("any-order"))
    total, _ = net.loss_sum_and_count(some_tokens(64), draw_orders((64, 4), generator(4)))
    total.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
