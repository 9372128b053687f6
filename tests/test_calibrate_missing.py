"""Rates of missing values after training are the table's, and nothing else is changed."""

from typing import get_args

import numpy as np
import pytest
import torch

from tabmt.config import NetworkName
from tabmt.method.calibrate_missing import calibrate_missing
from tabmt.method.column_order import RANDOM_ORDER
from tabmt.method.sample import fill
from tabmt.tokens import MASK, TokenStore, pack
from tests.small_networks import FIELDS, generator, make, small

MISSING = [None, 4, None, 3]  # the missing code of each column


def rates(net) -> list[float]:
    blank = torch.full((20_000, 4), MASK)
    rows = torch.cat(
        [
            fill(net, part, temperature=torch.ones(4), generator=generator(9 + i))
            for i, part in enumerate(torch.split(blank, 500))
        ]
    )
    return [float((rows[:, column] == MISSING[column]).double().mean()) for column in (1, 3)]


def table() -> np.ndarray:
    """(4000, 4); missing codes are far from as frequent as in an untrained network."""
    rng = np.random.default_rng(0)
    tokens = np.stack([rng.integers(0, field.size, 4000) for field in FIELDS], axis=1)
    tokens[:, 1] = np.where(rng.random(4000) < 0.45, 4, rng.integers(0, 4, 4000))
    tokens[:, 3] = np.where(rng.random(4000) < 0.03, 3, rng.integers(0, 3, 4000))
    return tokens


def store(tokens: np.ndarray) -> TokenStore:
    return TokenStore(pack(tokens.T, [field.size for field in FIELDS], len(tokens)))


@pytest.mark.parametrize("network", get_args(NetworkName))
def test_missing_values_come_at_the_rate_of_the_table_and_the_rest_stays(network):
    net, tokens = make(small(network), noise=0.1), table()
    real = [(tokens[:, 1] == 4).mean(), (tokens[:, 3] == 3).mean()]
    assert np.abs(np.subtract(rates(net), real)).max() > 0.1
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    first, after = calibrate_missing(net, store(tokens), MISSING, seed=0, column_order=RANDOM_ORDER)
    # Two standard errors of the rate in a fresh sample of 3072 or 768 rows.
    assert first > 0.1 and after < {"any-order": 0.02, "masked": 0.04}[network]
    assert np.abs(np.subtract(rates(net), real)).max() < 0.025
    changed = {
        name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert changed == {"output.bias"}
    moved = (net.output.bias != before["output.bias"]).nonzero().ravel().tolist()
    assert moved == [3 + 4, 3 + 5 + 2 + 3]  # the two missing codes in the one table of all codes


@pytest.mark.parametrize("network", get_args(NetworkName))
def test_a_calibration_that_does_not_help_is_undone(network):
    net, tokens = make(small(network), noise=0.1), store(table())
    helped = []
    for seed in range(8):  # after the first, there is little left to correct
        before = net.output.bias.detach().clone()
        first, after = calibrate_missing(net, tokens, MISSING, seed=seed, column_order=RANDOM_ORDER)
        helped.append(after < first)
        assert helped[-1] or after == first
        assert torch.equal(net.output.bias, before) == (not helped[-1])
    assert helped[0] and not all(helped)
