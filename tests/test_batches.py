"""The rows of each training step."""

import torch

from tabmt.method.batches import Batches


def test_each_epoch_has_every_row_once():
    tokens = torch.arange(10)[:, None]
    batches = Batches(tokens, 4, seed=0)
    stream = torch.cat([batches.at(step) for step in range(10)]).squeeze(1)
    epochs = stream.view(4, 10)
    assert (epochs.sort(1).values == torch.arange(10)).all()
    assert not torch.equal(epochs[0], epochs[1])


def test_a_batch_does_not_depend_on_the_batches_taken_before():
    tokens = torch.arange(10)[:, None]
    fresh, used = Batches(tokens, 4, seed=0), Batches(tokens, 4, seed=0)
    for step in range(7):
        used.at(step)
    assert torch.equal(fresh.at(7), used.at(7))
