"""Codes from logits: temperature, allowed codes, and very many codes."""

import pytest
import torch
from scipy.stats import chisquare

from tabmt.method import draw_codes as draw_codes_module
from tabmt.method.draw_codes import draw_codes
from tests.small_networks import generator


def test_temperature_zero_is_the_argmax_and_near_zero_tends_to_it():
    logits = torch.randn(500, 6, generator=generator())
    for temperature in (0.0, 1e-8):
        codes, _ = draw_codes(
            logits,
            torch.arange(len(logits)),
            temperature=temperature,
            allowed=None,
            generator=generator(),
        )
        assert torch.equal(codes, logits.argmax(1))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_draws_follow_the_tempered_softmax(temperature):
    logits, n = torch.tensor([0.3, -1.0, 2.0, 0.0]), 50_000
    codes, _ = draw_codes(
        logits[None],
        torch.zeros(n, dtype=torch.int64),
        temperature=temperature,
        allowed=None,
        generator=generator(),
    )
    expected = (logits.double() / temperature).softmax(0) * n
    assert chisquare(torch.bincount(codes, minlength=4), expected).pvalue > 0.001


def test_allowed_weights_multiply_the_tempered_probabilities():
    logits, n = torch.tensor([0.3, -1.0, 2.0, 0.0]), 50_000
    allowed = torch.tensor([1.0, 0.5, 0.1, 0.0])
    codes, _ = draw_codes(
        logits[None],
        torch.zeros(n, dtype=torch.int64),
        temperature=2.0,
        allowed=allowed,
        generator=generator(),
    )
    counts = torch.bincount(codes, minlength=4)
    assert counts[3] == 0
    weights = ((logits.double() / 2.0).softmax(0) * allowed)[:3]
    assert chisquare(counts[:3], weights / weights.sum() * n).pvalue > 0.001


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("only", [0, 2, 3])
def test_a_forbidden_code_is_never_drawn_however_likely(temperature, only):
    logits = torch.full((1000, 4), 500.0)
    logits[:, only] = -500.0
    allowed = torch.zeros(4)
    allowed[only] = 0.25
    codes, _ = draw_codes(
        logits,
        torch.arange(len(logits)),
        temperature=temperature,
        allowed=allowed,
        generator=generator(),
    )
    assert (codes == only).all()


@pytest.mark.parametrize("temperature", [1e-46, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("codes", [1001, 1024, 5000])
def test_one_of_very_many_codes_is_the_one_that_exact_arithmetic_draws(
    codes, temperature, monkeypatch
):
    logits = 3 * torch.randn(20, codes, generator=generator(0))
    logits[:, ::3] = -torch.inf
    logits[3, 1:] = -torch.inf
    logits[3, 0] = 0.0
    sources = torch.arange(20).repeat_interleave(500)
    options = {"temperature": temperature, "allowed": None}
    quick, log_allowed = draw_codes(logits, sources, generator=generator(1), **options)
    monkeypatch.setattr(draw_codes_module, "MANY_CODES", codes)
    exact, _ = draw_codes(logits, sources, generator=generator(1), **options)
    assert (quick == exact).float().mean() > 0.999  # but for points at the edge of a code
    assert torch.isfinite(logits[sources, quick]).all() and not log_allowed.any()
