"""Rows with equal prefixes share a forward pass, and are drawn as if they did not."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from tabmt.config import NetworkName
from tabmt.method.sample import fill
from tests.small_networks import generator
from tests.test_sample import ONES, UniformNetwork, blank, make


@pytest.mark.parametrize("name", get_args(NetworkName))
@pytest.mark.parametrize("known", [0, 2, 200])
def test_merged_prefixes_give_the_rows_that_single_rows_give(monkeypatch, name, known):
    # The random stream is shared, so the rows must be the same, one by one.
    net, tokens = make(name), blank(300)
    tokens[:known, 1] = torch.randint(0, 4, (known,), generator=generator(3))
    tokens[:known:3, 2] = 1
    drawn = [fill(net, tokens, temperature=ONES, generator=generator(5))]
    monkeypatch.setattr(type(net), "merge_below", 0.0)
    drawn.append(fill(net, tokens, temperature=ONES, generator=generator(5)))
    assert torch.equal(*drawn)


def test_equal_prefixes_are_evaluated_once():
    evaluated = []

    class Counting(UniformNetwork):
        def logits(self, rows: Tensor, column: int) -> Tensor:
            evaluated.append(len(rows))
            return super().logits(rows, column)

    fill(Counting(4), blank(1000, 4), temperature=torch.ones(4), generator=generator())
    assert evaluated == [1, 2, 4, 8]
