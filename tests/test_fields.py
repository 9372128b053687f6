import math

import pytest
import torch

from tabmt.method.embedding import Field, Fields
from tabmt.tokens import MASK

WIDTH = 8


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(*fields: Field, scramble: bool = True) -> Fields:
    made = Fields(fields, WIDTH, generator=generator())
    if scramble:  # trained weights have no zeros left
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator(1)))
    return made


NUMBER = Field(4, (0.0, 0.1, 0.7, 1.0))
NUMBER_WITH_GAPS = Field(4, (0.0, 0.5, 1.0))
CATEGORY = Field(3, None)
SINGLE = Field(1, None)
SINGLE_NUMBER = Field(1, (0.0,))
ONLY_GAPS = Field(1, ())


def paper_table(fields: Fields, column: int, values: list[float]) -> torch.Tensor:
    occ = torch.tensor(values)
    r = (occ - occ[0]) / (occ[-1] - occ[0])
    start = sum(fields.sizes[:column])
    E = fields.unordered[start : start + len(values)]
    ordered = [field.ratios is not None for field in fields.fields]
    low, high = fields.low[sum(ordered[:column])], fields.high[sum(ordered[:column])]
    return torch.stack([r[i] * low + (1 - r[i]) * high + E[i] for i in range(len(values))])


def test_ordered_embedding_is_the_papers_formula():
    values = [-3.0, -2.0, 4.0, 7.0]
    ratios = (0.0, 0.1, 0.7, 1.0)
    fields = make(CATEGORY, Field(4, ratios), NUMBER_WITH_GAPS)
    table = fields.table()
    torch.testing.assert_close(table[3:7], paper_table(fields, 1, values))
    torch.testing.assert_close(table[7:10], paper_table(fields, 2, [10.0, 20.0, 30.0]))


def test_neighbouring_bins_share_by_a_bell_curve_and_single_values_do_not():
    few = Field(4, (0.0, 0.1, 0.7, 1.0), (True, True, True, True))
    apart = (True,) * 4 + (False,) + (True,) * 6  # the fifth is a single value
    many = Field(12, tuple(i / 10 for i in range(11)), apart)  # eleven numbers and a missing code
    fields = [CATEGORY, few, many, NUMBER, Field(2, None)]
    plain, smooth = (
        Fields(fields, WIDTH, smoothing=reach, generator=generator()) for reach in (0.0, 1.5)
    )
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator(1)))
    smooth.load_state_dict(plain.state_dict())
    expected = plain.table().clone()
    for start, bins in ((3, few.bins), (7, many.bins)):
        places = [place for place, is_bin in enumerate(bins) if is_bin]
        for i in places:
            weights = {j: math.exp(-((i - j) ** 2) / (2 * 1.5**2)) for j in places}
            mean = sum(w * plain.unordered[start + j] for j, w in weights.items())
            expected[start + i] += mean / sum(weights.values()) - plain.unordered[start + i]
    torch.testing.assert_close(smooth.table(), expected)


def test_a_field_of_very_many_bins_shares_nothing():
    wide = Field(2000, tuple(i / 1999 for i in range(2000)), (True,) * 2000)
    fields = Fields([wide, NUMBER], WIDTH, smoothing=2.0, generator=generator())
    with torch.no_grad():
        fields.unordered.normal_(generator=generator(1))
    torch.testing.assert_close(
        fields.table()[:2000],
        fields.unordered[:2000]
        + fields.ratios[:2000] * fields.low[0]
        + (1 - fields.ratios[:2000]) * fields.high[0],
    )


def test_categories_and_missing_codes_are_plain_rows():
    fields = make(CATEGORY, NUMBER_WITH_GAPS)
    table = fields.table()
    assert torch.equal(table[:3], fields.unordered[:3])
    assert torch.equal(table[6], fields.unordered[6])


def test_ordered_rows_start_at_zero_and_plain_rows_do_not():
    fields = make(NUMBER_WITH_GAPS, Field(2000, None), scramble=False)
    assert fields.unordered[:3].abs().max() == 0
    assert fields.unordered[3].abs().min() > 0
    assert fields.unordered[4:].std().item() == pytest.approx(0.05, rel=0.02)
    assert torch.equal(fields.temperature, torch.ones(2))
    assert fields.bias.abs().max() == 0


def test_end_points_start_with_the_papers_deviation():
    fields = Fields([NUMBER] * 50, 64, generator=generator())
    assert fields.low.std().item() == pytest.approx(0.05, rel=0.05)
    assert fields.high.std().item() == pytest.approx(0.05, rel=0.05)
    assert not torch.equal(fields.low, fields.high)


@pytest.mark.parametrize(
    "chosen",
    [
        (CATEGORY, SINGLE),
        (NUMBER, SINGLE_NUMBER),
        (NUMBER, NUMBER),
        (SINGLE, NUMBER_WITH_GAPS, ONLY_GAPS, CATEGORY),
    ],
)
def test_folded_layer_gives_the_dynamic_layers_logits(chosen):
    fields = make(*chosen)
    x = torch.randn(5, WIDTH, generator=generator(2))
    table = fields.table()
    for column, (field, folded) in enumerate(zip(chosen, fields.fold(), strict=True)):
        dynamic = fields.outputs(table)[column].logits(x)
        assert dynamic.shape == (5, field.size)
        torch.testing.assert_close(x @ folded.weight.T + folded.bias, dynamic)
        assert not folded.weight.requires_grad


def test_logits_are_the_papers_dynamic_linear():
    fields = make(CATEGORY, NUMBER)
    x = torch.randn(5, WIDTH, generator=generator(2))
    weight = paper_table(fields, 1, [0.0, 0.1, 0.7, 1.0])
    expected = (x @ weight.T + fields.bias[3:]) / torch.sigmoid(fields.temperature[1])
    torch.testing.assert_close(fields.outputs(fields.table())[1].logits(x), expected)


def test_tokens_find_their_embeddings_and_mask_finds_the_mask_token():
    fields = make(CATEGORY, NUMBER, SINGLE)
    mask_token = torch.arange(WIDTH).float()
    tokens = torch.tensor([[2, MASK, 0], [MASK, 3, MASK], [0, 0, 0]])
    x = fields.embed(fields.table(), tokens, mask_token)
    table = fields.table()
    for row, expected in enumerate([[2, None, 7], [None, 6, None], [0, 3, 7]]):
        for column, index in enumerate(expected):
            assert torch.equal(x[row, column], mask_token if index is None else table[index])


def test_input_and_output_send_gradients_into_the_same_tables():
    fields = make(NUMBER, CATEGORY)
    tokens = torch.tensor([[1, MASK]])

    def gradients(use_input: bool, use_output: bool) -> list[torch.Tensor]:
        fields.zero_grad()
        table = fields.table()
        x = fields.embed(table, tokens, torch.zeros(WIDTH))  # (1, C, D)
        total = x.square().sum() * use_input
        total = (
            total
            + fields.outputs(table)[0].logits(torch.ones(1, WIDTH)).square().sum() * use_output
        )
        total.backward()
        return [fields.unordered.grad.clone(), fields.low.grad.clone(), fields.high.grad.clone()]

    into, out, both = gradients(True, False), gradients(False, True), gradients(True, True)
    for a, b, together in zip(into, out, both, strict=True):
        assert a.abs().sum() > 0
        assert b.abs().sum() > 0
        torch.testing.assert_close(a + b, together)


def test_a_big_vocabulary_stays_linear_in_memory():
    count = 60_000
    fields = make(Field(count, tuple((torch.arange(count) / count).tolist())), scramble=False)
    x = torch.ones(2, WIDTH)
    fields.outputs(fields.table())[0].logits(x).logsumexp(1).sum().backward()
    assert fields.unordered.grad.shape == (count, WIDTH)


def test_same_generator_same_tables():
    a, b, c = (
        Fields([NUMBER, CATEGORY], WIDTH, generator=generator(seed)).table() for seed in (3, 3, 4)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_biases_can_start_at_the_frequencies_of_the_codes():
    fields = Fields([Field(3, None), NUMBER], WIDTH, generator=generator())
    counts = [torch.tensor([90.0, 9.0, 0.0]), torch.tensor([10.0, 0.0, 30.0, 5.0])]
    fields.start_at_frequencies(counts)
    for column, count in enumerate(counts):
        logits = fields.outputs(fields.table())[column].logits(torch.zeros(1, WIDTH))
        torch.testing.assert_close(logits.softmax(1)[0], (count + 1) / (count + 1).sum())
