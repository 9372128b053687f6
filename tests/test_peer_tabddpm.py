"""Our TabDDPM: the diffusion by enumeration, its moments, and a small table learned."""

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.peers import tabddpm
from benchmarks.peers.tabddpm import Diffusion
from tests.tables import correlated

SIZES = [3, 2]


def transition(diffusion: Diffusion, t: int, size: int) -> np.ndarray:
    """q(x_t | x_(t-1)) as a matrix, rows x_(t-1)."""
    alpha = float(diffusion.alpha[t])
    return alpha * np.eye(size) + (1 - alpha) / size


def test_category_noise_is_the_product_of_its_steps():
    diffusion = Diffusion([3], timesteps=8)
    steps = np.eye(3)
    for t in range(8):
        steps = steps @ transition(diffusion, t, 3)
        ours = diffusion.category_noise(torch.eye(3), torch.full((3,), t))
        assert ours.numpy() == pytest.approx(steps, abs=1e-6)
    assert steps == pytest.approx(np.full((3, 3), 1 / 3), abs=1e-3)  # nothing is left at the end


@pytest.mark.parametrize("t", [0, 1, 4, 7])
def test_category_posterior_is_bayes_by_enumeration(t):
    diffusion = Diffusion([3], timesteps=8)
    before = np.eye(3)
    for step in range(t):
        before = before @ transition(diffusion, step, 3)
    last = transition(diffusion, t, 3)
    for start in range(3):
        for noisy in range(3):
            joint = before[start] * last[:, noisy]  # over x_(t-1)
            ours = diffusion.category_posterior(
                torch.eye(3)[[start]], torch.eye(3)[[noisy]], torch.tensor([t])
            )
            assert ours[0].numpy() == pytest.approx(joint / joint.sum(), abs=1e-5)


def test_posteriors_of_all_columns_sum_to_one():
    diffusion = Diffusion(SIZES)
    start = diffusion.probabilities(torch.randn(50, 5))
    noisy = diffusion.draw(diffusion.uniform.expand(50, -1), torch.Generator().manual_seed(0))
    t = torch.arange(50)
    for block in diffusion.category_posterior(start, noisy, t).split(SIZES, dim=1):
        assert block.sum(dim=1).numpy() == pytest.approx(np.ones(50), abs=1e-5)


def test_category_loss_is_zero_only_for_the_truth():
    diffusion = Diffusion(SIZES, timesteps=8)
    start = torch.cat([torch.eye(3)[[0, 1]], torch.eye(2)[[0, 1]]], dim=1)
    noisy = torch.cat([torch.eye(3)[[2, 1]], torch.eye(2)[[0, 0]]], dim=1)
    t = torch.tensor([0, 5])
    assert diffusion.category_loss(start, noisy, start, t).numpy() == pytest.approx(
        [0, 0], abs=1e-4
    )
    other = 0.5 * start + 0.5 * diffusion.uniform
    assert (diffusion.category_loss(start, noisy, other, t) > 0.01).all()
    first = diffusion.category_posterior(other[:1], noisy[:1], t[:1])
    likelihood = -(first * start[:1]).split(SIZES, dim=1)[0].sum().log()
    likelihood -= (first * start[:1]).split(SIZES, dim=1)[1].sum().log()
    loss = diffusion.category_loss(start, noisy, other, t)[0] * 2 / 8
    assert float(loss) == pytest.approx(float(likelihood), rel=1e-4)


def test_number_posterior_is_that_of_two_normal_distributions():
    """q(x_(t-1) | x_t, x_0) as the product of two normal densities, precision by precision."""
    diffusion = Diffusion([], timesteps=20)
    for t in (1, 7, 19):
        alpha, before = float(diffusion.alpha[t]), float(diffusion.kept_before[t])
        start, noisy = 0.7, -1.3
        precision = alpha / (1 - alpha) + 1 / (1 - before)
        mean = (noisy * alpha**0.5 / (1 - alpha) + before**0.5 * start / (1 - before)) / precision
        ours = diffusion.number_posterior_mean(
            torch.tensor([[start]]), torch.tensor([[noisy]]), torch.tensor([t])
        )
        assert float(ours) == pytest.approx(mean, abs=1e-4)
        assert float(diffusion.posterior_variance[t]) == pytest.approx(1 / precision, rel=1e-3)


def test_noisy_numbers_have_the_moments_of_the_schedule_and_come_back():
    diffusion = Diffusion([])
    start, noise = torch.full((40_000, 1), 2.0), torch.randn(40_000, 1)
    for step in (0, 30, 99):
        t = torch.full((40_000,), step)
        noisy = diffusion.noisy_numbers(start, t, noise)
        kept = float(diffusion.kept[step])
        assert float(noisy.mean()) == pytest.approx(2 * kept**0.5, abs=0.02)
        assert float(noisy.var()) == pytest.approx(1 - kept, abs=0.02)
        if step < 99:
            assert diffusion.start_of(noisy, t, noise).numpy() == pytest.approx(2, abs=1e-3)
    assert np.all(np.diff(diffusion.kept.numpy()) < 0)


def test_a_small_table_is_learned(monkeypatch):
    monkeypatch.setattr(tabddpm, "LAYERS", (64, 64))
    monkeypatch.setattr(tabddpm, "BATCH", 256)
    monkeypatch.setattr(tabddpm, "STEPS", 600)
    train = correlated(1000)
    model = tabddpm.fit(train, "label", 1e6, 0)
    sample = tabddpm.sample(model, 1000, 0)
    assert (sample.dtypes == train.dtypes).all() and model.budget.done == 600
    assert sample["x"].corr(sample["y"]) > 0.6
    by_kind = sample.groupby("kind", observed=True)["x"].mean()
    assert by_kind["b"] - by_kind["a"] > 1
    assert (sample["label"] == 1).mean() == pytest.approx((train["label"] == 1).mean(), abs=0.05)
    pd.testing.assert_frame_equal(sample, tabddpm.sample(model, 1000, 0))
    assert tabddpm.about(model)["cut"] == []


@pytest.mark.parametrize("columns", [["x", "y"], ["kind", "label"], ["kind", "y"]])
def test_tables_of_one_kind_of_columns_work(columns, monkeypatch):
    monkeypatch.setattr(tabddpm, "STEPS", 3)
    train = correlated(60)[columns]
    model = tabddpm.fit(train, columns[1], 1e-3, 0)
    sample = tabddpm.sample(model, 50, 0)
    assert list(sample) == columns and len(sample) == 50
    assert tabddpm.about(model)["cut"] in (["1 of 3 steps"], [])
