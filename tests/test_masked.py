"""The paper's network: its masks, what it sees, and its loss in two ways."""

import dataclasses

import pytest
import torch
from scipy.stats import chisquare

from tabmt.config import NetworkConfig
from tabmt.method.embedding import Field
from tabmt.method.masked import MaskedNetwork, draw_mask
from tabmt.method.networks import build_network
from tabmt.method.output_layer import MOST_LOGITS
from tabmt.tokens import MASK
from tests import small_networks
from tests.small_networks import FIELDS, generator, small, some_tokens

SMALL = small("masked")


def make(config: NetworkConfig = SMALL) -> MaskedNetwork:
    net = small_networks.make(config)
    assert isinstance(net, MaskedNetwork)
    return net


def test_torchs_global_generator_is_left_alone():
    before = torch.get_rng_state()
    net = make(dataclasses.replace(SMALL, dropout=0.2, drop_path=0.2))
    net.loss_sum_and_count(some_tokens(8), draw_mask((8, 4), generator()), generator(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_same_generator_same_network():
    one, two, other = (
        build_network(FIELDS, SMALL, generator(seed)).state_dict() for seed in (7, 7, 8)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["blocks.0.mlp_in.weight"], other["blocks.0.mlp_in.weight"])


def test_mask_sizes_are_uniform():
    columns, rows = 6, 70_000
    sizes = draw_mask((rows, columns), generator()).sum(1)
    counts = torch.bincount(sizes, minlength=columns + 1)
    assert chisquare(counts.numpy()).pvalue > 0.001


def test_all_masks_of_one_size_are_equally_likely():
    mask = draw_mask((50_000, 5), generator())
    pairs = mask[mask.sum(1) == 2]
    counts = torch.unique(pairs.int(), dim=0, return_counts=True)[1]
    assert len(counts) == 10
    assert chisquare(counts.numpy()).pvalue > 0.001


def test_a_masked_cells_value_changes_no_logit():
    net = make()
    tokens = some_tokens(6)
    mask = torch.zeros(6, 4, dtype=torch.bool)
    mask[:, 1] = True
    other = tokens.clone()
    other[:, 1] = (tokens[:, 1] + 1) % 5
    seen = tokens.masked_fill(mask, MASK)
    assert torch.equal(net.hidden(seen), net.hidden(other.masked_fill(mask, MASK)))
    # And through the loss: the values of the masked cell enter only as targets.
    losses = []
    for code in range(5):
        given = tokens[:1].clone()
        given[0, 1] = code
        losses.append(net.loss_sum_and_count(given, mask[:1])[0])
    assert torch.exp(-torch.stack(losses)).sum().item() == pytest.approx(1.0, abs=1e-5)


def test_known_cells_do_change_logits():
    net = make()
    tokens = some_tokens(6)
    tokens[:, 1] = MASK
    other = tokens.clone()
    other[:, 0] = (tokens[:, 0] + 1) % 3
    rows = torch.arange(6)
    change = net.start(tokens).logits(rows, 1) - net.start(other).logits(rows, 1)
    assert change.abs().amax(1).min() > 1e-4


def test_positions_tell_equal_columns_apart():
    net = build_network([Field(3, None), Field(3, None)], SMALL, generator())
    hidden = net.hidden(torch.full((1, 2), MASK))
    assert (hidden[0, 0] - hidden[0, 1]).abs().max() > 1e-3


def test_loss_is_the_cross_entropy_of_the_masked_cells():
    net = make()
    tokens, mask = some_tokens(9), draw_mask((9, 4), generator(4))
    tokens[0, 1] = tokens[3, 2] = MASK
    hidden, table = net.hidden(tokens.masked_fill(mask, MASK)), net.embedding.table()
    expected, cells = 0.0, 0
    for row in range(9):
        for column in range(4):
            if mask[row, column] and tokens[row, column] != MASK:
                logits = net.output.columns(table)[column].logits(hidden[row, column][None])
                expected -= logits.log_softmax(1)[0, tokens[row, column]].item()
                cells += 1
    total, count = net.loss_sum_and_count(tokens, mask)
    assert count == cells
    assert total.item() == pytest.approx(expected, rel=1e-5)


MANY = 100_000  # codes, whose logits are more than are computed at a time
WITH_MANY_CODES = (
    Field(3, None),
    Field(MANY, None),
    Field(6, (0.0, 0.2, 0.5, 0.6, 1.0), (True, True, False, True, True)),
)


@pytest.mark.parametrize("masked", ["some", "none", "all"])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("fields", [FIELDS, WITH_MANY_CODES], ids=["few codes", "many codes"])
def test_the_fast_loss_is_the_papers_loss(fields, unknown, masked):
    net = build_network(fields, SMALL, generator()).double()
    with torch.no_grad():
        for parameter in net.parameters():
            noise = torch.randn(parameter.shape, generator=generator(1), dtype=torch.float64)
            parameter.add_(0.3 * noise)
    rows = 70
    assert fields is FIELDS or rows * MANY > MOST_LOGITS
    tokens = some_tokens(rows, fields=fields)
    if unknown:
        tokens[torch.rand(tokens.shape, generator=generator(3)) < 0.2] = MASK
    mask = draw_mask((rows, len(fields)), generator(4))
    if masked != "some":
        mask = torch.full_like(mask, masked == "all")
    found = []
    for loss in (net.paper_loss_sum_and_count, net.loss_sum_and_count):
        net.zero_grad()
        total, count = loss(tokens, mask)
        total.backward()
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad
            for name, p in net.named_parameters()
        }
        found.append((total.detach(), count, gradients))
    (paper, paper_count, paper_gradients), (fast, fast_count, fast_gradients) = found
    assert fast_count == paper_count == int((mask & (tokens != MASK)).sum())
    torch.testing.assert_close(fast, paper, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(fast_gradients, paper_gradients, rtol=1e-8, atol=1e-9)
    assert (paper > 0) == (masked != "none")
    assert any(gradient.any() for gradient in fast_gradients.values()) == (masked != "none")


def test_unknown_cells_have_no_loss_whether_masked_or_not():
    net = make()
    tokens = some_tokens(9)
    tokens[:, 2] = MASK
    mask = draw_mask((9, 4), generator(4))
    results = []
    for masked in (True, False):
        mask[:, 2] = masked
        net.zero_grad()
        total, count = net.loss_sum_and_count(tokens, mask)
        total.backward()
        results.append((total.item(), count))
        unknown_codes = net.embedding.codes_of(2)
        assert net.embedding.unordered.grad[unknown_codes].abs().max() == 0
        assert net.output.bias.grad[unknown_codes].abs().max() == 0
    assert results[0] == results[1]
    assert results[0][1] == int(mask[:, [0, 1, 3]].sum())


@pytest.mark.parametrize("config", [SMALL, dataclasses.replace(SMALL, dropout=0.1, drop_path=0.1)])
@pytest.mark.parametrize("unknown", [False, True])
def test_a_batch_without_masked_cells_has_loss_zero_and_finite_gradients(config, unknown):
    net = make(config)
    tokens = torch.full((5, 4), MASK) if unknown else some_tokens(5)
    total, count = net.loss_sum_and_count(tokens, torch.full((5, 4), unknown), generator())
    assert (total.item(), count) == (0.0, 0)
    total.backward()
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    assert grads
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_every_parameter_is_trained():
    net = make()
    total, _ = net.loss_sum_and_count(some_tokens(64), draw_mask((64, 4), generator(4)))
    total.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_state_gives_the_trained_logits_after_each_set_column():
    net = make()
    truth = some_tokens(6)
    tokens = torch.full_like(truth, MASK)
    state = net.start(tokens)
    for column in (2, 0, 3, 1):
        rows = torch.tensor([4, 1, 5])
        hidden = net.hidden(tokens[rows])[:, column]
        expected = net.output.columns(net.embedding.table())[column].logits(hidden)
        torch.testing.assert_close(state.logits(rows, column), expected)
        tokens[:, column] = truth[:, column]
        state.set(torch.arange(6), column, truth[:, column])


def test_a_state_does_not_change_the_tokens_it_was_started_with():
    tokens = torch.full((3, 4), MASK)
    make().start(tokens).set(torch.arange(3), 0, torch.tensor([1, 2, 0]))
    assert (tokens == MASK).all()
