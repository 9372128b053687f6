"""The loss in parts is the plain one, and so are its gradients."""

import pytest
import torch
from torch.nn import functional as F

from tabmt import fields as fields_module
from tabmt.fields import Field, Fields
from tabmt.loss import ChunkedCrossEntropy
from tabmt.tokens import MASK


def inputs(rows: int = 37, codes: int = 50, width: int = 8) -> list[torch.Tensor]:
    noise = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=noise, dtype=torch.float64, requires_grad=True)
        for shape in ((rows, width), (codes, width), (codes,))
    )
    right = torch.randint(0, codes, (rows,), generator=noise)
    right[::5] = MASK
    return [x, weight, bias, right]


@pytest.mark.parametrize("rows", [1, 7, 36, 100])
def test_loss_and_gradients_are_the_plain_ones(rows):
    x, weight, bias, right = inputs()
    parts = ChunkedCrossEntropy.apply(x, weight, bias, right, rows)
    plain = F.cross_entropy(x @ weight.T + bias, right, reduction="sum", ignore_index=MASK)
    torch.testing.assert_close(parts, plain, rtol=1e-10, atol=1e-10)
    one = torch.autograd.grad(2.5 * parts, (x, weight, bias))
    other = torch.autograd.grad(2.5 * plain, (x, weight, bias))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_only_gaps_cost_nothing():
    x, weight, bias, right = inputs()
    total = ChunkedCrossEntropy.apply(x, weight, bias, torch.full_like(right, MASK), 4)
    assert total.item() == 0.0
    assert all(not g.any() for g in torch.autograd.grad(total, (x, weight, bias)))


def test_a_field_takes_parts_only_when_it_must_and_gives_the_same(monkeypatch):
    noise = torch.Generator().manual_seed(0)
    fields = Fields([Field(3), Field(400)], 8, generator=noise)
    with torch.no_grad():
        for parameter in fields.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise))
    x = torch.randn(30, 8, generator=noise)
    right = torch.randint(0, 400, (30,), generator=noise)

    def both() -> list[torch.Tensor]:
        fields.zero_grad()
        total = fields.outputs(fields.table())[1].cross_entropy(x, right)
        total.backward()
        return [
            total.detach(),
            *(p.grad.clone() for p in fields.parameters() if p.grad is not None),
        ]

    plain = both()
    monkeypatch.setattr(fields_module, "PART", 1000)
    for a, b in zip(plain, both(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
