"""The loss in parts is the plain one, and so are its gradients."""

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from tabmt import TabMT
from tabmt.method import embedding as fields_module
from tabmt.method.embedding import Field, Fields
from tabmt.method.loss import ChunkedCrossEntropy, Others
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


def random_fields() -> tuple[Fields, torch.Tensor, torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(0)
    fields = Fields([Field(3), Field(400)], 8, generator=noise).double()
    with torch.no_grad():
        for parameter in fields.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise, dtype=torch.float64))
    x = 0.3 * torch.randn(30, 8, generator=noise, dtype=torch.float64)
    right = torch.randint(0, 400, (30,), generator=noise)
    right[::7] = MASK
    counts = [torch.ones(3), torch.randperm(400, generator=noise)]
    return fields, x, right, counts


def test_a_sampled_loss_estimates_the_exact_one_and_its_gradient():
    fields, x, right, counts = random_fields()
    table = fields.table()

    def found(generator: torch.Generator | None) -> list[torch.Tensor]:
        loss = fields.outputs(table, generator)[1].cross_entropy(x, right)
        return [loss.detach(), *torch.autograd.grad(loss, [table, fields.bias], retain_graph=True)]

    exact = found(None)
    fields.compare_with_some(counts, 100)
    assert found(None)[0] == exact[0]  # looks at held-out rows stay exact
    draws = [found(torch.Generator().manual_seed(seed)) for seed in range(400)]
    assert draws[0][0] != draws[1][0]
    # Of the gradient, a code that is drawn in one pass of seven is known to an eighth.
    for place, (plain, most) in enumerate(zip(exact, (0.02, 0.15, 0.15), strict=True)):
        drawn = torch.stack([one[place] for one in draws])
        assert (drawn.mean(0) - plain).norm() / plain.norm() < most
    output = fields.outputs(table, torch.Generator().manual_seed(0))[1]
    assert output.others is not None
    unweighted = output._replace(
        others=Others(output.others.codes, torch.zeros_like(output.others.log_weight))
    )
    assert abs(unweighted.cross_entropy(x, right) / exact[0] - 1) > 0.1  # the weights are needed


def test_with_all_codes_in_it_a_sampled_loss_is_exact():
    fields, x, right, _ = random_fields()
    output = fields.outputs(fields.table())[1]
    every = Others(torch.randperm(400), torch.zeros(400, dtype=torch.float64))
    torch.testing.assert_close(
        output._replace(others=every).cross_entropy(x, right), output.cross_entropy(x, right)
    )


def test_fields_of_few_codes_stay_exact():
    fields, _, _, counts = random_fields()
    fields.compare_with_some(counts, 101)  # 400 are not four times as many
    assert all(one.others is None for one in fields.outputs(fields.table(), torch.Generator()))


def test_a_fit_with_a_sampled_loss_resumes_bit_for_bit(tmp_path):
    frame = pd.DataFrame({"word": [f"w{i % 150}" for i in range(600)], "x": range(600)})
    settings = {"width": 16, "depth": 1, "heads": 2, "threads": 1, "batch_size": 32, "steps": 12}
    settings |= {"sampled_codes": 20, "checkpoint_every": 0.0}
    whole = TabMT(**settings).fit(frame)
    exact = TabMT(**settings | {"sampled_codes": 0}).fit(frame)

    def stop(progress):
        if progress.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TabMT(**settings).fit(frame, checkpoint=tmp_path / "c", on_step=stop)
    resumed = TabMT(**settings).fit(frame, checkpoint=tmp_path / "c", resume=True)
    states = [model.learned_.net.state_dict() for model in (whole, resumed, exact)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["fields.unordered"], states[2]["fields.unordered"])
