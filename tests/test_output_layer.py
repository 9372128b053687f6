"""The output layer: the paper's dynamic linear layer, and its loss for very many codes."""

from typing import NamedTuple

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tabmt import TabMT
from tabmt.method import output_layer
from tabmt.method.embedding import Embedding, Field
from tabmt.method.output_layer import (
    ChunkedCrossEntropy,
    ColumnOutput,
    FoldedLayer,
    OutputLayer,
    SampledCodes,
)
from tabmt.tokens import MASK
from tests.small_networks import generator
from tests.test_embedding import CATEGORY, NUMBER, NUMBER_OR_MISSING, SINGLE, WIDTH, paper_table

SINGLE_NUMBER = Field(1, (0.0,))
ONLY_MISSING = Field(1, ())


class Layers(NamedTuple):
    """The embedding of some columns, and the output layer that uses its table."""

    embedding: Embedding
    output: OutputLayer

    def columns(self, noise: torch.Generator | None = None) -> list[ColumnOutput]:
        return self.output.columns(self.embedding.table(), noise)

    def fold(self) -> tuple[FoldedLayer, ...]:
        return self.output.fold(self.embedding.table())

    def parameters(self) -> list[torch.nn.Parameter]:
        return [*self.embedding.parameters(), *self.output.parameters()]

    def zero_grad(self) -> None:
        self.embedding.zero_grad()
        self.output.zero_grad()


def make(
    *fields: Field,
    scramble: bool = True,
    noise: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> Layers:
    noise = generator() if noise is None else noise
    embedding = Embedding(fields, WIDTH, generator=noise).to(dtype)
    layers = Layers(embedding, OutputLayer(embedding.sizes).to(dtype))
    if scramble:  # trained weights have no zeros left
        with torch.no_grad():
            for parameter in layers.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=noise, dtype=dtype))
    return layers


@pytest.mark.parametrize(
    "chosen",
    [
        (CATEGORY, SINGLE),
        (NUMBER, SINGLE_NUMBER),
        (NUMBER, NUMBER),
        (SINGLE, NUMBER_OR_MISSING, ONLY_MISSING, CATEGORY),
    ],
)
def test_folded_layer_gives_the_dynamic_layers_logits(chosen):
    layers = make(*chosen)
    x = torch.randn(5, WIDTH, generator=generator(2))
    for field, column, folded in zip(chosen, layers.columns(), layers.fold(), strict=True):
        dynamic = column.logits(x)
        assert dynamic.shape == (5, field.size)
        torch.testing.assert_close(x @ folded.weight.T + folded.bias, dynamic)
        assert not folded.weight.requires_grad


def test_logits_are_the_papers_dynamic_linear():
    layers = make(CATEGORY, NUMBER)
    x = torch.randn(5, WIDTH, generator=generator(2))
    weight = paper_table(layers.embedding, 3, 0, [0.0, 0.1, 0.7, 1.0])
    tau = torch.sigmoid(layers.output.temperature_logit[1])
    expected = (x @ weight.T + layers.output.bias[3:]) / tau
    torch.testing.assert_close(layers.columns()[1].logits(x), expected)


def test_temperatures_start_at_one_before_the_sigmoid_and_biases_at_zero():
    output = make(NUMBER_OR_MISSING, Field(2000, None), scramble=False).output
    assert torch.equal(output.temperature_logit, torch.ones(2))
    assert torch.equal(output.temperature(), torch.sigmoid(torch.ones(2)))
    assert output.bias.abs().max() == 0


def test_input_and_output_send_gradients_into_the_same_tables():
    embedding, output = make(NUMBER, CATEGORY)
    tokens = torch.tensor([[1, MASK]])

    def gradients(use_input: bool, use_output: bool) -> list[Tensor]:
        embedding.zero_grad()
        table = embedding.table()
        x = embedding.embed(table, tokens, torch.zeros(WIDTH))  # (1, C, D)
        logits = output.columns(table)[0].logits(torch.ones(1, WIDTH))
        total = x.square().sum() * use_input + logits.square().sum() * use_output
        total.backward()
        return [p.grad.clone() for p in (embedding.unordered, embedding.low, embedding.high)]

    into, out, both = gradients(True, False), gradients(False, True), gradients(True, True)
    for a, b, together in zip(into, out, both, strict=True):
        assert a.abs().sum() > 0
        assert b.abs().sum() > 0
        torch.testing.assert_close(a + b, together)


def test_a_big_vocabulary_stays_linear_in_memory():
    count = 60_000
    layers = make(Field(count, tuple((torch.arange(count) / count).tolist())), scramble=False)
    layers.columns()[0].logits(torch.ones(2, WIDTH)).logsumexp(1).sum().backward()
    assert layers.embedding.unordered.grad.shape == (count, WIDTH)


def test_biases_can_start_at_the_frequencies_of_the_codes():
    layers = make(CATEGORY, NUMBER, scramble=False)
    counts = [torch.tensor([90.0, 9.0, 0.0]), torch.tensor([10.0, 0.0, 30.0, 5.0])]
    layers.output.start_at_frequencies(counts)
    for column, count in zip(layers.columns(), counts, strict=True):
        logits = column.logits(torch.zeros(1, WIDTH))
        torch.testing.assert_close(logits.softmax(1)[0], (count + 1) / (count + 1).sum())


# --- the loss in chunks --------------------------------------------------------------------


def inputs(rows: int = 37, codes: int = 50, width: int = 8) -> list[Tensor]:
    noise = generator()
    x, weight, bias = (
        torch.randn(shape, generator=noise, dtype=torch.float64, requires_grad=True)
        for shape in ((rows, width), (codes, width), (codes,))
    )
    right = torch.randint(0, codes, (rows,), generator=noise)
    right[::5] = MASK
    return [x, weight, bias, right]


@pytest.mark.parametrize("rows", [1, 7, 36, 100])
def test_loss_and_gradients_in_chunks_are_the_plain_ones(rows):
    x, weight, bias, right = inputs()
    chunked = ChunkedCrossEntropy.apply(x, weight, bias, right, rows)
    plain = F.cross_entropy(x @ weight.T + bias, right, reduction="sum", ignore_index=MASK)
    torch.testing.assert_close(chunked, plain, rtol=1e-10, atol=1e-10)
    one = torch.autograd.grad(2.5 * chunked, (x, weight, bias))
    other = torch.autograd.grad(2.5 * plain, (x, weight, bias))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_masked_codes_alone_cost_nothing():
    x, weight, bias, right = inputs()
    total = ChunkedCrossEntropy.apply(x, weight, bias, torch.full_like(right, MASK), 4)
    assert total.item() == 0.0
    assert all(not g.any() for g in torch.autograd.grad(total, (x, weight, bias)))


def test_a_column_is_computed_in_chunks_only_if_it_must_be_and_gives_the_same(monkeypatch):
    noise = generator()
    layers = make(Field(3), Field(400), noise=noise)
    x = torch.randn(30, WIDTH, generator=noise)
    right = torch.randint(0, 400, (30,), generator=noise)

    def loss_and_gradients(is_chunked: bool) -> list[Tensor]:
        layers.zero_grad()
        total = layers.columns()[1].cross_entropy(x, right)
        assert ("ChunkedCrossEntropy" in total.grad_fn.name()) == is_chunked
        total.backward()
        gradients = [p.grad.clone() for p in layers.parameters() if p.grad is not None]
        return [total.detach(), *gradients]

    plain = loss_and_gradients(False)
    monkeypatch.setattr(output_layer, "MOST_LOGITS", 1000)
    for a, b in zip(plain, loss_and_gradients(True), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


# --- the loss from some of the codes -------------------------------------------------------


def random_column() -> tuple[Layers, Tensor, Tensor, list[Tensor]]:
    """Two columns with inputs, right codes and counts for the second, of 400 codes."""
    noise = generator()
    layers = make(Field(3), Field(400), noise=noise, dtype=torch.float64)
    x = 0.3 * torch.randn(30, WIDTH, generator=noise, dtype=torch.float64)
    right = torch.randint(0, 400, (30,), generator=noise)
    right[::7] = MASK
    return layers, x, right, [torch.ones(3), torch.randperm(400, generator=noise)]


def test_a_sampled_loss_estimates_the_exact_one_and_its_gradient():
    layers, x, right, counts = random_column()
    output, table = layers.output, layers.embedding.table()

    def found(noise: torch.Generator | None) -> list[Tensor]:
        loss = output.columns(table, noise)[1].cross_entropy(x, right)
        return [loss.detach(), *torch.autograd.grad(loss, [table, output.bias], retain_graph=True)]

    exact = found(None)
    output.sample_codes_in_loss(counts, 100)
    assert found(None)[0] == exact[0]  # the validation loss stays exact
    draws = [found(generator(seed)) for seed in range(400)]
    assert draws[0][0] != draws[1][0]
    # Of the gradient, a code that is drawn in one pass of seven is known to an eighth.
    for index, (plain, most) in enumerate(zip(exact, (0.02, 0.15, 0.15), strict=True)):
        drawn = torch.stack([one[index] for one in draws])
        assert (drawn.mean(0) - plain).norm() / plain.norm() < most
    column = output.columns(table, generator(0))[1]
    assert column.sampled is not None
    unweighted = column._replace(
        sampled=SampledCodes(column.sampled.codes, torch.zeros_like(column.sampled.log_weight))
    )
    assert abs(unweighted.cross_entropy(x, right) / exact[0] - 1) > 0.1  # the weights are needed


def test_with_all_codes_in_it_a_sampled_loss_is_exact():
    layers, x, right, _ = random_column()
    column = layers.columns()[1]
    every = SampledCodes(torch.randperm(400), torch.zeros(400, dtype=torch.float64))
    torch.testing.assert_close(
        column._replace(sampled=every).cross_entropy(x, right), column.cross_entropy(x, right)
    )


def test_the_loss_of_columns_with_few_codes_stays_exact():
    layers, _, _, counts = random_column()
    layers.output.sample_codes_in_loss(counts, 101)  # 400 are not four times as many
    assert all(column.sampled is None for column in layers.columns(generator()))


def test_a_fit_with_a_sampled_loss_resumes_bit_for_bit(tmp_path):
    frame = pd.DataFrame({"word": [f"w{i % 150}" for i in range(600)], "x": range(600)})
    settings = {"width": 16, "depth": 1, "heads": 2, "threads": 1, "batch_size": 32, "steps": 12}
    settings |= {"sampled_codes": 20, "checkpoint_every": 0.0, "protect": 0}
    whole = TabMT(**settings).fit(frame)
    exact = TabMT(**settings | {"sampled_codes": 0}).fit(frame)

    def stop(progress):
        if progress.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TabMT(**settings).fit(frame, checkpoint=tmp_path / "c", on_step=stop)
    resumed = TabMT(**settings).fit(frame, checkpoint=tmp_path / "c", resume=True)
    states = [model.model_.net.state_dict() for model in (whole, resumed, exact)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["embedding.unordered"], states[2]["embedding.unordered"])
