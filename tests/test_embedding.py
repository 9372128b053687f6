"""The embedding of every code: the paper's formula for numbers, and smoothing between bins."""

import math

import pytest
import torch

from tabmt.method.embedding import Embedding, Field
from tabmt.tokens import MASK
from tests.small_networks import generator

WIDTH = 8
NUMBER = Field(4, (0.0, 0.1, 0.7, 1.0))
NUMBER_OR_MISSING = Field(4, (0.0, 0.5, 1.0))
CATEGORY = Field(3, None)
SINGLE = Field(1, None)


def make(*fields: Field, smoothing: float = 0.0, scramble: bool = True) -> Embedding:
    made = Embedding(fields, WIDTH, smoothing=smoothing, generator=generator())
    if scramble:  # trained weights have no zeros left
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator(1)))
    return made


def paper_table(
    embedding: Embedding, start: int, ordered_before: int, values: list[float]
) -> torch.Tensor:
    """Eq. 4 and 5 for a column of numbers whose codes begin at `start`."""
    occ = torch.tensor(values)
    r = (occ - occ[0]) / (occ[-1] - occ[0])
    E = embedding.unordered[start : start + len(values)]
    low, high = embedding.low[ordered_before], embedding.high[ordered_before]
    return torch.stack([r[i] * low + (1 - r[i]) * high + E[i] for i in range(len(values))])


def test_ordered_embedding_is_the_papers_formula():
    embedding = make(CATEGORY, NUMBER, NUMBER_OR_MISSING)
    table = embedding.table()
    torch.testing.assert_close(table[3:7], paper_table(embedding, 3, 0, [-3.0, -2.0, 4.0, 7.0]))
    torch.testing.assert_close(table[7:10], paper_table(embedding, 7, 1, [10.0, 20.0, 30.0]))


def test_neighbouring_bins_share_by_a_bell_curve_and_single_values_do_not():
    few = Field(4, (0.0, 0.1, 0.7, 1.0), (True, True, True, True))
    apart = (True,) * 4 + (False,) + (True,) * 6  # the fifth is a single value
    many = Field(12, tuple(i / 10 for i in range(11)), apart)  # eleven numbers and a missing code
    fields = [CATEGORY, few, many, NUMBER, Field(2, None)]
    plain, smooth = make(*fields), make(*fields, smoothing=1.5)
    smooth.load_state_dict(plain.state_dict())
    expected = plain.table().clone()
    for start, is_bin in ((3, few.is_bin), (7, many.is_bin)):
        bins = [code for code, is_one in enumerate(is_bin) if is_one]
        for i in bins:
            weights = {j: math.exp(-((i - j) ** 2) / (2 * 1.5**2)) for j in bins}
            mean = sum(w * plain.unordered[start + j] for j, w in weights.items())
            expected[start + i] += mean / sum(weights.values()) - plain.unordered[start + i]
    torch.testing.assert_close(smooth.table(), expected)


def test_a_column_of_very_many_bins_is_not_smoothed():
    wide = Field(2000, tuple(i / 1999 for i in range(2000)), (True,) * 2000)
    embedding = make(wide, NUMBER, smoothing=2.0, scramble=False)
    with torch.no_grad():
        embedding.unordered.normal_(generator=generator(1))
    ratios = embedding.ratios[:2000]
    torch.testing.assert_close(
        embedding.table()[:2000],
        embedding.unordered[:2000] + ratios * embedding.low[0] + (1 - ratios) * embedding.high[0],
    )


def test_categories_and_missing_codes_are_plain_rows():
    embedding = make(CATEGORY, NUMBER_OR_MISSING)
    table = embedding.table()
    assert torch.equal(table[:3], embedding.unordered[:3])
    assert torch.equal(table[6], embedding.unordered[6])


def test_ordered_rows_start_at_zero_and_plain_rows_do_not():
    embedding = make(NUMBER_OR_MISSING, Field(2000, None), scramble=False)
    assert embedding.unordered[:3].abs().max() == 0
    assert embedding.unordered[3].abs().min() > 0
    assert embedding.unordered[4:].std().item() == pytest.approx(0.05, rel=0.02)


def test_end_points_start_with_the_papers_deviation():
    embedding = Embedding([NUMBER] * 50, 64, generator=generator())
    assert embedding.low.std().item() == pytest.approx(0.05, rel=0.05)
    assert embedding.high.std().item() == pytest.approx(0.05, rel=0.05)
    assert not torch.equal(embedding.low, embedding.high)


def test_tokens_find_their_embeddings_and_mask_finds_the_mask_token():
    embedding = make(CATEGORY, NUMBER, SINGLE)
    mask_token = torch.arange(WIDTH).float()
    tokens = torch.tensor([[2, MASK, 0], [MASK, 3, MASK], [0, 0, 0]])
    table = embedding.table()
    x = embedding.embed(table, tokens, mask_token)
    for row, expected in enumerate([[2, None, 7], [None, 6, None], [0, 3, 7]]):
        for column, index in enumerate(expected):
            assert torch.equal(x[row, column], mask_token if index is None else table[index])


def test_same_generator_same_tables():
    a, b, c = (
        Embedding([NUMBER, CATEGORY], WIDTH, generator=generator(seed)).table()
        for seed in (3, 3, 4)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
