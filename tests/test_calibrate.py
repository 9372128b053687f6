"""Gap rates after training: held to the training table's, and nothing else is touched."""

from typing import get_args

import numpy as np
import pytest
import torch

from tabmt.config import NetworkName
from tabmt.method.calibrate import calibrate_gaps
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


@pytest.mark.parametrize("network", get_args(NetworkName))
def test_gaps_come_at_the_rate_of_the_table_and_the_rest_stays(network):
    net = make(small(network), noise=0.1)
    rng = np.random.default_rng(0)
    tokens = np.stack([rng.integers(0, field.size, 4000) for field in FIELDS], axis=1)
    tokens[:, 1] = np.where(rng.random(4000) < 0.45, 4, rng.integers(0, 4, 4000))
    tokens[:, 3] = np.where(rng.random(4000) < 0.03, 3, rng.integers(0, 3, 4000))
    real = [(tokens[:, 1] == 4).mean(), (tokens[:, 3] == 3).mean()]
    assert np.abs(np.subtract(rates(net), real)).max() > 0.1  # far off, untrained as it is
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    store = TokenStore(pack(tokens.T, [field.size for field in FIELDS], 4000))
    first, after = calibrate_gaps(net, store, MISSING, seed=0, last=None)
    assert first > 0.1 and after < 0.02
    assert np.abs(np.subtract(rates(net), real)).max() < 0.025
    changed = {
        name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert changed == {"fields.bias"}
    moved = (net.fields.bias != before["fields.bias"]).nonzero().ravel().tolist()
    assert moved == [3 + 4, 3 + 5 + 2 + 3]  # the two missing codes in the one table of all codes
