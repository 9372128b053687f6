"""The transformer block: torch's own layer, with its random numbers from an argument."""

import pytest
import torch
from torch.nn import functional as F

from tabmt.method.blocks import Block, drop_path, dropout
from tests.small_networks import generator


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
        for half in (block.attend, block.feed_forward):
            quiet, once, again = half(x), half(x, generator(3)), half(x, generator(3))
            assert torch.equal(once, again)
            assert not torch.equal(once, quiet)
