"""Muon compared with torch's own, and training in bfloat16 compared with float32."""

import pytest
import torch
from torch import nn

from tabmt.config import NetworkConfig, TrainConfig
from tabmt.method import devices
from tabmt.method.embedding import Field
from tabmt.method.muon import Muon, orthogonalise
from tabmt.method.networks import build_network
from tabmt.method.train import make_optimizers

FIELDS = [Field(4), Field(6, tuple(i / 5 for i in range(6)))]


def matrices(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator) * 0.1) for shape in shapes]


def network(name="any-order"):
    config = NetworkConfig(network=name, width=16, heads=2, depth=2)
    return build_network(FIELDS, config, torch.Generator().manual_seed(0))


def test_steps_are_those_of_torch():
    shapes = [(16, 16), (64, 16), (16, 64)]
    ours, theirs = matrices(*shapes), matrices(*shapes)
    optimizers = (
        Muon(ours, lr=0.01, weight_decay=0.1),
        torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        for own, their in zip(ours, theirs, strict=True):
            own.grad = torch.randn(own.shape, generator=generator)
            their.grad = own.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for own, their, start in zip(ours, theirs, matrices(*shapes), strict=True):
        moved = (their - start).norm()
        assert (own - their).norm() < 0.02 * moved  # torch computes in bfloat16


def test_orthogonal_updates_have_singular_values_near_one():
    for update in orthogonalise([p.data for p in matrices((16, 16), (8, 32), (32, 8))]):
        values = torch.linalg.svdvals(update)
        assert float(values.min()) > 0.3 and float(values.max()) < 1.3


def test_stacked_matrices_are_updated_each_by_itself():
    (stacked,) = matrices((48, 16))
    separate = [nn.Parameter(piece.detach().clone()) for piece in stacked.split(16)]
    gradient = torch.randn(48, 16, generator=torch.Generator().manual_seed(2))
    stacked.grad = gradient
    for parameter, piece in zip(separate, gradient.split(16), strict=True):
        parameter.grad = piece
    Muon([stacked], lr=0.1, weight_decay=0.0, stacked=[stacked]).step()
    Muon(separate, lr=0.1, weight_decay=0.0).step()
    assert torch.allclose(stacked, torch.cat([p.data for p in separate]), atol=1e-6)


def test_every_parameter_has_exactly_one_optimizer():
    for setting in ("muon", "adamw"):
        net = network()
        optimizers = make_optimizers(net, TrainConfig(optimizer=setting))
        owned = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        assert sorted(map(id, owned)) == sorted(map(id, net.parameters()))
        muon = [p for o in optimizers if isinstance(o, Muon) for p in o.param_groups[0]["params"]]
        assert len(muon) == (8 if setting == "muon" else 0)  # four matrices in each of two blocks


@pytest.mark.parametrize("name", ["any-order", "masked"])
def test_bfloat16_gives_nearly_the_loss_of_float32_and_gradients_in_float32(name):
    net = network(name)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, (64, 2), generator=generator)
    pattern = net.draw_pattern((64, 2), generator)
    losses = []
    for precision in ("float32", "bfloat16"):
        net.precision = precision
        loss, _ = net.loss_sum_and_count(tokens, pattern)
        losses.append(loss.item())
    loss.backward()
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.01)
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in net.parameters())


def test_precision_is_used_as_set_and_otherwise_chosen_with_a_reason():
    cpu = torch.device("cpu")
    assert devices.pick_precision("float32", cpu) == ("float32", "as set")
    assert devices.pick_precision("bfloat16", cpu) == ("bfloat16", "as set")
    chosen, reason = devices.pick_precision("auto", cpu)
    if not devices.has_bfloat16():
        assert (chosen, reason) == ("float32", "this CPU has no instructions for bfloat16")
    else:
        assert chosen in ("float32", "bfloat16") and "on this CPU" in reason
        # The same choice every time, also beside another busy program: rows depend on it.
        assert {devices.pick_precision("auto", cpu) for _ in range(20)} == {(chosen, reason)}
