import dataclasses

import pytest
import torch
from scipy.stats import chisquare
from torch.nn import functional as F

from tabmt.config import NetworkConfig
from tabmt.method.blocks import Block, drop_path, dropout
from tabmt.method.embedding import Field
from tabmt.method.masked import MaskedNetwork, draw_mask
from tabmt.method.networks import build
from tabmt.tokens import MASK
from tests import small_networks
from tests.small_networks import FIELDS, generator, small, some_tokens

SMALL = small("masked")


def make(config: NetworkConfig = SMALL) -> MaskedNetwork:
    net = small_networks.make(config)
    assert isinstance(net, MaskedNetwork)
    return net


def make_block(**rates: float) -> Block:
    block = Block(16, 4, **{"dropout": 0.0, "drop_path": 0.0, **rates}, generator=generator())
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator(1)))
    return block


def test_block_equals_torchs_pre_norm_encoder_layer():
    block = make_block()
    theirs = torch.nn.TransformerEncoderLayer(
        16, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    names = {
        "self_attn.in_proj_": "queries_keys_values.",
        "self_attn.out_proj.": "attention_out.",
        "linear1.": "mlp_in.",
        "linear2.": "mlp_out.",
        "norm1.": "attention_norm.",
        "norm2.": "mlp_norm.",
    }
    ours = block.state_dict()
    theirs.load_state_dict(
        {a + kind: ours[b + kind] for a, b in names.items() for kind in ("weight", "bias")}
    )
    x = torch.randn(7, 5, 16, generator=generator(2), requires_grad=True)
    torch.testing.assert_close(block(x), theirs(x))
    (ours_grad,) = torch.autograd.grad(block(x).square().sum(), x)
    (theirs_grad,) = torch.autograd.grad(theirs(x).square().sum(), x)
    torch.testing.assert_close(ours_grad, theirs_grad)


def test_attention_equals_torchs_scaled_dot_product_attention():
    block = make_block()
    x = torch.randn(7, 5, 16, generator=generator(2))
    qkv = block.queries_keys_values(block.attention_norm(x))  # (B, C, 3 D)
    q, k, v = (part.reshape(7, 5, 4, 4).transpose(1, 2) for part in qkv.chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(7, 5, 16)
    torch.testing.assert_close(block.attend(x), x + block.attention_out(mixed))


def test_attention_at_one_column_equals_that_column_of_all():
    block = make_block()
    x = torch.randn(7, 5, 16, generator=generator(2))
    everything = block.attend(x)
    for column in range(5):
        torch.testing.assert_close(block.attend_at(x, column)[:, 0], everything[:, column])


def test_dropout_is_reproducible_and_unbiased():
    x = torch.ones(400, 500)
    once, again, other = (dropout(x, 0.3, generator(seed)) for seed in (5, 5, 6))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert (once == 0).float().mean() == pytest.approx(0.3, abs=0.005)
    assert once.mean() == pytest.approx(1.0, abs=0.01)


def test_drop_path_drops_whole_rows_and_is_unbiased():
    x = torch.ones(20_000, 2, 3)
    once, again = (drop_path(x, 0.2, generator(5)) for _ in range(2))
    assert torch.equal(once, again)
    per_row = once.flatten(1)
    assert torch.equal(per_row.amin(1), per_row.amax(1))
    assert (per_row[:, 0] == 0).float().mean() == pytest.approx(0.2, abs=0.01)
    assert once.mean() == pytest.approx(1.0, abs=0.02)


def test_drop_path_of_cells_drops_the_cells_of_a_row_together():
    rows = torch.arange(5000).repeat(3)
    once = drop_path(torch.ones(15_000, 2), 0.2, generator(5), rows)
    by_row = once[:, 0].view(3, 5000)
    assert torch.equal(by_row[0], by_row[1])
    assert torch.equal(by_row[0], by_row[2])
    assert (by_row[0] == 0).float().mean() == pytest.approx(0.2, abs=0.02)


def test_noise_needs_a_rate_and_a_generator():
    x = torch.randn(3, 4, 5)
    assert dropout(x, 0.0, generator()) is x
    assert dropout(x, 0.5, None) is x
    assert drop_path(x, 0.0, generator()) is x
    assert drop_path(x, 0.5, None) is x


def test_block_noise_reaches_both_halves_and_repeats_with_its_generator():
    for rates in ({"dropout": 0.4}, {"drop_path": 0.4}):
        block = make_block(**rates)
        x = torch.randn(40, 5, 16, generator=generator(2))
        for half in (block.attend, block.think):
            quiet, once, again = half(x), half(x, generator(3)), half(x, generator(3))
            assert torch.equal(once, again)
            assert not torch.equal(once, quiet)


def test_torchs_global_generator_is_left_alone():
    before = torch.get_rng_state()
    net = make(dataclasses.replace(SMALL, dropout=0.2, drop_path=0.2))
    net.loss_sum_and_count(some_tokens(8), draw_mask((8, 4), generator()), generator(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_same_generator_same_network():
    one, two, other = (build(FIELDS, SMALL, generator(seed)).state_dict() for seed in (7, 7, 8))
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
        told = tokens[:1].clone()
        told[0, 1] = code
        losses.append(net.loss_sum_and_count(told, mask[:1])[0])
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


def test_positions_tell_equal_fields_apart():
    net = build([Field(3, None), Field(3, None)], SMALL, generator())
    hidden = net.hidden(torch.full((1, 2), MASK))
    assert (hidden[0, 0] - hidden[0, 1]).abs().max() > 1e-3


def test_loss_is_the_cross_entropy_of_the_masked_cells():
    net = make()
    tokens, mask = some_tokens(9), draw_mask((9, 4), generator(4))
    tokens[0, 1] = tokens[3, 2] = MASK
    hidden, table = net.hidden(tokens.masked_fill(mask, MASK)), net.fields.table()
    expected, cells = 0.0, 0
    for row in range(9):
        for column in range(4):
            if mask[row, column] and tokens[row, column] != MASK:
                logits = net.fields.outputs(table)[column].logits(hidden[row, column][None])
                expected -= logits.log_softmax(1)[0, tokens[row, column]].item()
                cells += 1
    total, count = net.loss_sum_and_count(tokens, mask)
    assert count == cells
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_gaps_carry_no_loss_whether_masked_or_not():
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
        gap_codes = net.fields.codes_of(2)
        assert net.fields.unordered.grad[gap_codes].abs().max() == 0
        assert net.fields.bias.grad[gap_codes].abs().max() == 0
    assert results[0] == results[1]
    assert results[0][1] == int(mask[:, [0, 1, 3]].sum())


@pytest.mark.parametrize("config", [SMALL, dataclasses.replace(SMALL, dropout=0.1, drop_path=0.1)])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_batch_without_masked_cells_has_loss_zero_and_finite_gradients(config, gaps):
    net = make(config)
    tokens = torch.full((5, 4), MASK) if gaps else some_tokens(5)
    total, count = net.loss_sum_and_count(tokens, torch.full((5, 4), gaps), generator())
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


def test_state_gives_the_trained_logits_after_each_put():
    net = make()
    truth = some_tokens(6)
    tokens = torch.full_like(truth, MASK)
    state = net.start(tokens)
    for column in (2, 0, 3, 1):
        rows = torch.tensor([4, 1, 5])
        hidden = net.hidden(tokens[rows])[:, column]
        expected = net.fields.outputs(net.fields.table())[column].logits(hidden)
        torch.testing.assert_close(state.logits(rows, column), expected)
        tokens[:, column] = truth[:, column]
        state.put(torch.arange(6), column, truth[:, column])


def test_a_state_does_not_change_the_tokens_it_was_started_with():
    tokens = torch.full((3, 4), MASK)
    make().start(tokens).put(torch.arange(3), 0, torch.tensor([1, 2, 0]))
    assert (tokens == MASK).all()
