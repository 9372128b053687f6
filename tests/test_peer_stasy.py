"""Our STaSy: the SDE, its reversal with a known score, the pace, and a small table learned."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.peers import stasy
from tests.tables import correlated


def test_the_kernel_has_the_variance_that_the_sde_adds():
    """The integral of g(t)^2 from 0 to t is the growth of the variance."""
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    added = torch.cumulative_trapezoid(stasy.diffusion_at(t) ** 2, t)
    growth = stasy.sigma_at(t) ** 2 - stasy.SIGMA_MIN**2
    assert added.numpy() == pytest.approx(growth[1:].numpy(), rel=1e-3, abs=1e-8)
    assert float(stasy.sigma_at(torch.tensor(0.0))) == pytest.approx(stasy.SIGMA_MIN)
    assert float(stasy.sigma_at(torch.tensor(1.0))) == pytest.approx(stasy.SIGMA_MAX)


def test_simulated_noise_has_the_moments_of_the_kernel():
    generator = torch.Generator().manual_seed(0)
    x, steps = torch.full((20_000,), 0.5), 400
    for number in range(steps):
        g = stasy.diffusion_at(torch.tensor((number + 0.5) / steps))
        x = x + g * math.sqrt(1 / steps) * torch.randn(len(x), generator=generator)
    assert float(x.mean()) == pytest.approx(0.5, abs=0.2)
    assert float(x.std()) == pytest.approx(stasy.SIGMA_MAX, rel=0.02)


def test_the_ode_with_the_true_score_gives_the_distribution_of_the_data():
    mean, deviation = 0.3, 0.5

    def score(x, sigma):
        return -(x - mean) / (deviation**2 + sigma[:, None] ** 2)

    noise = stasy.SIGMA_MAX * torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))
    drawn = stasy.solve(score, noise)
    assert float(drawn.mean()) == pytest.approx(mean, abs=0.03)
    assert float(drawn.std()) == pytest.approx(deviation, rel=0.02)


def test_the_true_score_has_the_least_loss():
    """The loss of data that are all zero: the score is -x / sigma^2, and the loss is zero."""
    rows, t = torch.zeros(500, 2), torch.rand(500)
    noise = torch.randn(500, 2)
    losses = stasy.score_losses(lambda x, s: -x / s[:, None] ** 2, rows, t, noise)
    assert losses.abs().max() < 1e-6
    assert stasy.score_losses(lambda x, s: 0 * x, rows, t, noise).mean() > 0.8


def test_rows_are_weighted_by_their_loss_and_all_count_in_the_end():
    losses = torch.arange(11.0)
    weights = stasy.row_weights(losses, 0.3, 0.8)
    assert weights[:4].tolist() == [1] * 4 and weights[8:].tolist() == [0] * 3
    assert weights[4:8].numpy() == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert stasy.row_weights(losses, 1.0, 1.0).tolist() == [1] * 11
    pace = [stasy.quantile_at(used, 0.3) for used in np.linspace(0, 1, 11)]
    assert pace[0] == 0.3 and pace[-1] == 1.0 and (np.diff(pace) >= 0).all()


def test_a_small_table_is_learned(monkeypatch):
    monkeypatch.setattr(stasy, "WIDTHS", (64, 64))
    monkeypatch.setattr(stasy, "BATCH", 256)
    monkeypatch.setattr(stasy, "STEPS", 600)
    train = correlated(1000)
    model = stasy.fit(train, "label", 1e6, 0)
    sample = stasy.sample(model, 1000, 0)
    assert (sample.dtypes == train.dtypes).all()
    assert sample["x"].corr(sample["y"]) > 0.6
    by_kind = sample.groupby("kind", observed=True)["x"].mean()
    assert by_kind["b"] - by_kind["a"] > 1
    pd.testing.assert_frame_equal(sample, stasy.sample(model, 1000, 0))
    assert stasy.about(model)["cut"] == ["without fine-tuning"]
