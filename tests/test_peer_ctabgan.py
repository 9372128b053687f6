"""Our CTABGAN+: rows as vectors and back, conditions, the critic's penalty, a small table."""

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.peers import ctabgan
from benchmarks.peers.ctabgan import Conditions, Layout, Modes
from benchmarks.peers.frames import Codes
from tests.tables import correlated


def test_modes_are_found_and_values_come_back():
    rng = np.random.default_rng(0)
    column = np.where(rng.random(2000) < 0.5, rng.normal(0, 1, 2000), rng.normal(50, 2, 2000))
    modes = Modes.fit(column, 0)
    near = [modes.means[np.abs(modes.means - mean) < 3] for mean in (0, 50)]
    assert len(modes.values) == 0 and all(len(found) for found in near)
    position, mode = modes.encode(column, rng)
    assert np.abs(position).max() <= 0.99 and np.bincount(mode).max() < 2000
    inside = np.abs(position) < 0.99
    assert inside.mean() > 0.99
    assert modes.decode(position, mode)[inside] == pytest.approx(column[inside])


def test_the_mode_of_a_value_is_drawn_by_its_probability():
    modes = Modes.fit(np.random.default_rng(0).normal(0, 1, 2000), 0)
    at_zero = np.zeros(20_000)
    _, mode = modes.encode(at_zero, np.random.default_rng(1))
    shares = modes.mixture.predict_proba(at_zero[:1, None])[0, modes.used] + 1e-6
    drawn = np.bincount(mode, minlength=modes.size) / len(mode)
    assert drawn == pytest.approx(shares / shares.sum(), abs=0.02)


def test_a_frequent_value_among_many_is_a_mode_of_its_own_and_exact():
    rng = np.random.default_rng(0)
    column = np.where(rng.random(1000) < 0.6, 0.0, rng.exponential(1000, 1000))
    modes = Modes.fit(column, 0)
    assert modes.values.tolist() == [0]
    position, mode = modes.encode(column, rng)
    decoded = modes.decode(position, mode)
    assert (decoded[column == 0] == 0).all() and (decoded == 0).sum() == (column == 0).sum()


@pytest.mark.parametrize("target", ["label", "x", None])
def test_rows_as_vectors_and_back_are_the_same_table(target):
    train = correlated(300)
    codes = Codes.of(train)
    values, categories = codes.encode(train)
    layout = Layout.fit(codes, values, target, 0)
    rows = layout.encode(values, categories, np.random.default_rng(0))
    assert rows.shape == (300, layout.width) and np.abs(rows).max() <= 1
    back, back_categories = layout.decode(rows)
    assert (back_categories == categories).all()
    assert np.abs(back - values).max() < 0.2  # positions are cut at four deviations
    assert np.median(np.abs(back - values)) < 1e-9
    for choice in layout.choices:
        assert (rows[:, choice].sum(axis=1) == 1).all()
    block = layout.target_block(target)
    if target == "label":
        assert (rows[:, block].argmax(axis=1) == train["label"].cat.codes).all()
    elif target == "x":
        assert np.corrcoef(rows[:, block][:, 0], train["x"])[0, 1] == pytest.approx(1)
    else:
        assert block is None


def test_rare_options_are_conditions_more_often_in_training_than_in_sampling():
    rows = np.zeros((1000, 2))
    rows[:10, 1] = rows[10:, 0] = 1
    conditions = Conditions(rows, [slice(0, 2)])
    rng = np.random.default_rng(0)
    vectors, choice, option = conditions.draw(5000, rng, by_log=True)
    assert option.mean() == pytest.approx(np.log(11) / (np.log(11) + np.log(991)), abs=0.02)
    assert (vectors.numpy().argmax(axis=1) == option).all() and not choice.any()
    assert conditions.draw(5000, rng, by_log=False)[2].mean() == pytest.approx(0.01, abs=0.005)
    chosen = conditions.rows_with(choice, option, rng)
    assert (rows[chosen].argmax(axis=1) == option).all()


def test_the_loss_of_a_condition_is_the_cross_entropy_of_its_option():
    conditions = Conditions(np.eye(5)[[0, 1, 3]] + np.eye(5)[[3, 4, 2]], [slice(0, 2), slice(2, 5)])
    logits = torch.randn(2, 5)
    loss = conditions.loss(logits, np.array([0, 1]), np.array([1, 2]))
    parts = [logits[0, :2].log_softmax(0)[1], logits[1, 2:].log_softmax(0)[2]]
    assert float(loss) == pytest.approx(-float(sum(parts)) / 2, rel=1e-5)


def test_points_between_two_vectors_of_one_length_stay_on_their_sphere():
    first, second = torch.randn(50, 9), torch.randn(50, 9)
    second = second * first.norm(dim=1, keepdim=True) / second.norm(dim=1, keepdim=True)
    for share, end in ((0.0, first), (1.0, second)):
        ours = ctabgan.spherical(torch.full((50, 1), share), first, second)
        assert ours.numpy() == pytest.approx(end.numpy(), abs=1e-4)
    middle = ctabgan.spherical(torch.full((50, 1), 0.5), first, second)
    assert middle.norm(dim=1).numpy() == pytest.approx(first.norm(dim=1).numpy(), rel=1e-3)


def test_the_penalty_is_zero_for_a_gradient_of_length_one():
    class Plane(torch.nn.Module):
        def __init__(self, length):
            super().__init__()
            self.weight = torch.nn.functional.normalize(torch.ones(16), dim=0) * length

        def forward(self, images):
            return images.flatten(1) @ self.weight, images

    points = torch.randn(20, 16)
    assert float(ctabgan.penalty(Plane(1.0), points, 4)) == pytest.approx(0, abs=1e-8)
    assert float(ctabgan.penalty(Plane(3.0), points, 4)) == pytest.approx(40, rel=1e-4)


@pytest.mark.parametrize(("width", "side"), [(3, 4), (17, 8), (257, 24), (1025, 64)])
def test_images_hold_the_row_and_generators_make_them(width, side):
    assert ctabgan.side_for(width) == side
    rows = torch.randn(2, width)
    image = ctabgan.as_image(rows, side)
    assert image.shape == (2, 1, side, side) and torch.equal(image.flatten(1)[:, :width], rows)
    assert ctabgan.Generator(5, side)(torch.randn(2, 5)).shape == (2, side * side)
    score, features = ctabgan.Critic(side)(image)
    assert score.shape == (2,) and len(features) == 2


def test_a_small_table_is_learned(monkeypatch):
    monkeypatch.setattr(ctabgan, "STEPS", 150)
    monkeypatch.setattr(ctabgan, "BATCH", 128)
    monkeypatch.setattr(ctabgan, "CLASSIFIER", (32,))
    monkeypatch.setitem(ctabgan.OPTIMIZER, "lr", 2e-3)
    train = correlated(1000)
    model = ctabgan.fit(train, "label", 1e6, 0)
    sample = ctabgan.sample(model, 1000, 0)
    assert (sample.dtypes == train.dtypes).all()
    assert sample["x"].corr(sample["y"]) > 0.3
    by_kind = sample.groupby("kind", observed=True)["x"].mean()
    assert by_kind["b"] - by_kind["a"] > 0.5
    pd.testing.assert_frame_equal(sample, ctabgan.sample(model, 1000, 0))
    assert ctabgan.about(model)["cut"] == ["16 of 64 channels"]
