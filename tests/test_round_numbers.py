"""Numbers are as round as those of their column, and ranges and likelihoods know it."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from tabmt import TabMT, between
from tabmt.codec.columns import NumericCodec, _check_round
from tabmt.codec.quantize import Quantized, quantize
from tabmt.codec.round_numbers import drawn_shares
from tests.conftest import TINY
from tests.prompted import p_value


def prices(rows: int = 6000, seed: int = 0) -> np.ndarray:
    """Two thirds multiples of 50, a sixth of 10, a sixth any; one is frequent by itself."""
    rng = np.random.default_rng(seed)
    step = rng.choice([50, 10, 1], rows, p=[4 / 6, 1 / 6, 1 / 6])
    numbers = np.round(rng.gamma(4, 150, rows) / step) * step
    return np.where(rng.random(rows) < 0.05, 450, numbers)


@pytest.fixture(scope="module", params=[0, 5], ids=["exact", "protected"])
def codes(request) -> Quantized:
    return quantize(
        prices(), quantizer="kmeans", max_bins=12, continuous=False, seed=0,
        protect=request.param, find_round=True,
    )  # fmt: skip


def every_number(codes: Quantized) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every number that the codes can be, its code, and its share of the code's mass."""
    low, high = codes.extent
    units = np.arange(low, high + 1)
    own, outside = codes.encode(units)
    assert not outside.any()
    return units, own, codes.point_shares(units, own)


def counts_of(drawn: np.ndarray, units: np.ndarray) -> np.ndarray:
    assert np.isin(drawn, units).all()
    return np.array([(drawn == unit).sum() for unit in units])


def test_the_mass_of_all_numbers_of_a_code_is_one(codes):
    _, own, mass = every_number(codes)
    assert np.bincount(own, mass, codes.size) == pytest.approx(np.ones(codes.size), abs=1e-9)


def test_numbers_come_as_often_as_their_mass_says(codes):
    units, own, mass = every_number(codes)
    rng = np.random.default_rng(1)
    for code in np.flatnonzero(~codes.atom)[::3]:
        drawn = codes.decode(np.full(20_000, code), rng, "inside")
        assert (codes.encode(drawn)[0] == code).all()
        here = own == code
        assert p_value(counts_of(drawn, units[here]), mass[here]) > 1e-4


def test_a_range_has_the_mass_of_its_numbers_and_draws_them_in_proportion(codes):
    units, own, mass = every_number(codes)
    rng = np.random.default_rng(2)
    for low, high in (
        (437, 463),
        (455, 1_012),
        (120, 120),
        (301, 349),
        (-np.inf, 333),
        (2, np.inf),
    ):
        inside = (units >= low) & (units <= high)
        expected = np.bincount(own, mass * inside, codes.size)
        shares = codes.shares(np.array([low]), np.array([high]))[0]
        assert shares == pytest.approx(expected, abs=1e-9)
        for code in np.flatnonzero((shares > 1e-6) & ~codes.atom)[:2]:
            bounds = np.full(5000, low), np.full(5000, high)
            drawn = codes.decode(np.full(5000, code), rng, "inside", bounds)
            here = inside & (own == code)
            assert here.sum() == 1 or p_value(counts_of(drawn, units[here]), mass[here]) > 1e-4


def test_drawn_numbers_are_as_round_as_real_ones(codes):
    real = prices(20_000, seed=3)
    drawn = codes.decode(codes.encode(real)[0], np.random.default_rng(0), "inside")
    for step in (10, 50, 100):
        assert (drawn % step == 0).mean() == pytest.approx((real % step == 0).mean(), abs=0.03)


def test_shares_leave_out_what_is_round_by_chance():
    steps = np.array([1, 5, 10, 50])
    chance = np.minimum(1, steps[None, :] / steps[:, None])
    drawn = np.array([0.3, 0.1, 0.0, 0.6])
    assert drawn_shares(chance @ drawn, chance) == pytest.approx(drawn)


def test_numbers_that_are_round_by_chance_alone_are_left_as_they_are():
    numbers = np.random.default_rng(0).integers(0, 100_000, 5000).astype(float)
    options = {"quantizer": "kmeans", "max_bins": 50, "continuous": False, "seed": 0}
    assert quantize(numbers, **options, find_round=True).round_numbers is None


def test_a_column_of_a_table_keeps_its_round_numbers_after_saving(tmp_path):
    table = pd.DataFrame({"price": prices(), "size": np.arange(6000) % 7})
    model = TabMT(steps=30, **TINY).fit(table)
    model.save(tmp_path / "m.tabmt")
    rows = TabMT.load(tmp_path / "m.tabmt").sample(4000, seed=1)
    assert (rows["price"] % 50 == 0).mean() == pytest.approx((table["price"] % 50 == 0).mean(),
                                                              abs=0.06)  # fmt: skip
    cut = model.sample(500, seed=1, where={"price": between(480, 523)})
    assert cut["price"].between(480, 523).all() and (cut["price"] == 500).mean() > 0.4
    assert model.log_prob(pd.DataFrame({"price": [500.0], "size": [1]}), seed=0)[0] > (
        model.log_prob(pd.DataFrame({"price": [501.0], "size": [1]}), seed=0)[0] + 1
    )


def test_damaged_steps_are_refused():
    good = quantize(
        prices(), quantizer="kmeans", max_bins=12, continuous=False, seed=0, find_round=True
    )
    _check_round(good)
    bins = len(good.edges) - 1
    for change in (
        {"round_steps": good.round_steps + 1},
        {"round_steps": np.array([1.0, 7.0, 10.0])[: len(good.round_steps)]},
        {"round_steps": np.append(good.round_steps[:-1], np.inf)},
        {"round_steps": np.append(good.round_steps[:-1], 1e9)},  # no bin has a multiple
        {"round_shares": good.round_shares[1:]},
        {"round_shares": np.roll(good.round_shares, 1)},
        {"round_shares": good.round_shares * 2},
        {"round_shares": np.zeros(bins * len(good.round_steps))},
        {"continuous": True},
    ):
        with pytest.raises(ValueError):
            _check_round(dataclasses.replace(good, **change))


def test_the_codec_stores_no_more_than_its_arrays(codes):
    assert set(NumericCodec.ARRAYS) < {field.name for field in dataclasses.fields(Quantized)}
