import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from tabmt.codec.quantize import Quantized, quantize

QUANTIZERS = ("kmeans", "plain-kmeans", "quantile", "uniform", "none")
whole_numbers = st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=200)
any_floats = st.lists(st.floats(allow_nan=False), min_size=1, max_size=200)


def cut(units, *, quantizer="kmeans", max_bins=10, continuous=False):
    units = np.asarray(units, np.float64)
    return quantize(units, quantizer=quantizer, max_bins=max_bins, continuous=continuous, seed=0)


def check_codes(units, quantizer, max_bins, continuous):
    units = np.asarray(units, np.float64)
    codes = cut(units, quantizer=quantizer, max_bins=max_bins, continuous=continuous)
    tokens, outside = codes.encode(units)
    assert not outside.any()
    assert tokens.min() >= 0 and tokens.max() < codes.size
    rng = np.random.default_rng(0)
    for how in ("inside", "centre"):
        drawn = codes.decode(np.repeat(tokens, 5), rng, how)
        assert np.array_equal(codes.encode(drawn)[0], np.repeat(tokens, 5))
        assert drawn.min() >= units.min() and drawn.max() <= units.max()
        if not continuous:
            assert np.array_equal(drawn, np.floor(drawn))
    assert np.all((codes.ratios >= 0) & (codes.ratios <= 1))
    assert np.all(np.diff(codes.ratios) >= 0)


@settings(max_examples=150, deadline=None)
@given(whole_numbers, st.sampled_from(QUANTIZERS), st.integers(2, 30))
def test_codes_of_whole_numbers_round_trip_and_ranges_are_kept(units, quantizer, max_bins):
    check_codes(units, quantizer, max_bins, continuous=False)


@settings(max_examples=150, deadline=None)
@given(any_floats, st.sampled_from(QUANTIZERS), st.integers(2, 30))
@example([0.0, 1.7976931348623157e308, -9.9792015476736e291], "kmeans", 3)
@example([1.7976931348623157e308, -9.9792015476736e291], "kmeans", 2)
def test_codes_of_floats_round_trip_and_ranges_are_kept(units, quantizer, max_bins):
    check_codes(units, quantizer, max_bins, continuous=True)


@pytest.mark.parametrize("quantizer", QUANTIZERS[:3])
def test_there_are_no_more_codes_than_allowed(quantizer, rng):
    assert cut(rng.normal(size=5000), quantizer=quantizer, continuous=True).size <= 10


def test_bins_are_those_of_scikit_learns_kmeans(rng):
    units = rng.normal(size=2000)
    codes = cut(units, continuous=True)
    means = KMeans(10, n_init=1, random_state=0).fit(units[:, None])
    ours = np.mean((units - codes.centres[codes.encode(units)[0]]) ** 2)
    assert ours <= 1.05 * means.inertia_ / len(units)
    assert np.allclose(
        codes.centres, [units[codes.encode(units)[0] == k].mean() for k in range(10)]
    )


def test_a_frequent_value_is_an_atom_and_comes_back_at_its_rate(rng):
    units = np.where(rng.random(5000) < 0.4, 40.0, rng.integers(0, 1000, 5000))
    codes = cut(units, max_bins=20)
    found = np.flatnonzero(codes.centres == 40.0)
    assert codes.atom[found].all() and len(found) == 1
    drawn = codes.decode(codes.encode(units)[0], rng, "inside")
    assert np.array_equal(drawn == 40.0, units == 40.0)


def test_draws_inside_bins_follow_the_values(rng):
    units = rng.exponential(size=20_000)
    codes = cut(units, max_bins=10, continuous=True)
    drawn = codes.decode(codes.encode(units)[0], rng, "inside")
    points = np.quantile(units, np.linspace(0.01, 0.99, 99))
    error = np.abs((units[:, None] <= points).mean(0) - (drawn[:, None] <= points).mean(0))
    assert error.max() < 0.01


def test_knots_are_not_values_of_the_table(rng):
    units = rng.normal(size=3000)
    codes = cut(units, max_bins=20, continuous=True)
    inner = codes.knot_value[(codes.knot_share > 0) & (codes.knot_share < 1)]
    assert len(inner) > 100
    assert not np.isin(inner, units).any()


def test_new_values_beyond_the_range_are_reported():
    codes = cut(np.arange(100.0), max_bins=10)
    tokens, outside = codes.encode(np.array([-5.0, 50.0, 500.0]))
    assert outside.tolist() == [True, False, True]
    assert tokens[0] == 0 and tokens[2] == codes.size - 1


def test_infinite_values_have_codes_of_their_own(rng):
    units = np.array([-np.inf, np.inf, *np.arange(50.0)])
    codes = cut(units, max_bins=10)
    drawn = codes.decode(codes.encode(units)[0], rng, "inside")
    assert np.array_equal(np.isinf(drawn), np.isinf(units))
    assert (codes.ratios[0], codes.ratios[-1]) == (0.0, 1.0)


def test_ratios_follow_equation_4():
    codes = cut([0, 1, 4, 10])
    assert codes.ratios.tolist() == [0.0, 0.1, 0.4, 1.0]
    assert cut([3, 3]).ratios.tolist() == [0.0]


def test_a_rare_value_shares_its_bin_and_is_not_reproduced(rng):
    units = np.concatenate([np.round(rng.normal(50_000, 9_000, 3000)), [612_345.0, 401_234.0]])
    codes = cut(units, max_bins=100)
    alone = codes.centres[codes.atom]
    assert all((units == value).sum() >= 5 for value in alone)
    drawn = codes.decode(np.repeat(codes.encode(units)[0], 3), rng, "inside")
    assert (drawn == 612_345.0).mean() < 0.001


def test_an_outlier_does_not_take_the_codes_from_all_the_rest(rng):
    codes = cut(np.append(rng.normal(size=2000), 1e300), max_bins=20, continuous=True)
    assert codes.size >= 15


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-60, 60), min_size=1, max_size=200),
    st.sampled_from(QUANTIZERS),
    st.integers(2, 30),
    st.tuples(st.integers(-70, 70), st.integers(-70, 70)).map(sorted),
)
def test_shares_of_a_range_are_those_of_its_points_and_draws_stay_inside(
    units, quantizer, max_bins, ends
):
    codes = cut(units, quantizer=quantizer, max_bins=max_bins)
    low, high = (np.array([float(end)]) for end in ends)
    points = np.arange(-60.0, 61.0)
    own, outside = codes.encode(points)
    mass = np.where(outside, 0.0, codes.point_shares(points, own))
    every = np.bincount(own, mass, minlength=codes.size)
    assert np.allclose(every, 1.0)  # all of a code lies on its grid
    inside = (points >= low) & (points <= high)
    shares = codes.shares(low, high)[0]
    assert np.allclose(shares, np.bincount(own, mass * inside, minlength=codes.size))
    drawn_codes = np.repeat(np.flatnonzero(shares > 0), 20)
    within = (np.broadcast_to(low, drawn_codes.shape), np.broadcast_to(high, drawn_codes.shape))
    for how in ("inside", "centre"):
        drawn = codes.decode(drawn_codes, np.random.default_rng(0), how, within)
        assert np.all((drawn >= low) & (drawn <= high))
        assert np.array_equal(codes.encode(drawn)[0], drawn_codes)


def test_draws_within_a_range_follow_the_values_there(rng):
    units = rng.exponential(size=20_000)
    codes = cut(units, max_bins=10, continuous=True)
    low, high = np.full(20_000, 0.3), np.full(20_000, 0.35)
    shares = codes.shares(low[:1], high[:1])[0]
    chance = shares * np.bincount(codes.encode(units)[0], minlength=codes.size)
    drawn = codes.decode(
        rng.choice(codes.size, 20_000, p=chance / chance.sum()), rng, "inside", (low, high)
    )
    real = units[(units >= 0.3) & (units <= 0.35)]
    assert abs(chance.sum() / len(real) - 1) < 0.1
    assert abs(np.median(drawn) - np.median(real)) < 0.003


# --- the paper's quantiser ------------------------------------------------------------------

COLUMNS = {
    "normal": lambda rng: rng.normal(size=3000),
    "half are zero": lambda rng: np.where(rng.random(3000) < 0.5, 0.0, rng.gamma(2.0, 50.0, 3000)),
    "one outlier": lambda rng: np.append(rng.normal(size=2000), 1e9),
    "whole numbers": lambda rng: rng.integers(0, 1000, 3000).astype(float),
    "few distinct": lambda rng: rng.integers(0, 12, 500).astype(float),
    "many distinct": lambda rng: rng.normal(size=30_000),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_plain_kmeans_gives_exactly_as_many_clusters_as_asked(name):
    units = COLUMNS[name](np.random.default_rng(0))
    bins, distinct = 40, len(np.unique(units))
    codes = quantize(
        units, quantizer="plain-kmeans", max_bins=bins, continuous=name != "whole numbers", seed=0
    )
    assert codes.size == min(bins, distinct)
    labels, outside = codes.encode(units)
    assert not outside.any() and len(np.unique(labels)) == codes.size
    # Each centre is the mean of its values (the second condition of K-Means) ...
    means = np.bincount(labels, units) / np.bincount(labels)
    np.testing.assert_allclose(codes.centres, means, rtol=1e-6, atol=1e-6)
    # ... and every value, also a new one, is in the cluster whose centre is nearest (the first).
    new = np.random.default_rng(1).uniform(units.min(), np.quantile(units, 0.999), 2000)
    new = np.round(new) if name == "whole numbers" else new
    if codes.size == bins:
        for points in (units, new):
            distance = np.abs(points[:, None] - codes.centres)
            chosen = distance[np.arange(len(points)), codes.encode(points)[0]]
            assert (chosen <= distance.min(1) * (1 + 1e-9) + 1e-12).all()


def test_plain_kmeans_is_as_good_as_scikit_learns():
    units = COLUMNS["half are zero"](np.random.default_rng(1))
    codes = quantize(units, quantizer="plain-kmeans", max_bins=20, continuous=True, seed=3)
    labels, _ = codes.encode(units)
    ours = ((units - codes.centres[labels]) ** 2).sum()
    theirs = KMeans(20, n_init=1, random_state=3).fit(units[:, None]).inertia_
    assert ours == pytest.approx(theirs, rel=0.15)


def test_a_bin_that_is_full_of_atoms_does_not_hang():
    """No table has such codes, but a file from a stranger may."""
    full = Quantized(
        centres=np.array([1.0, 2.0, 2.1, 3.0]),
        atom=np.array([True, True, False, True]),
        edges=np.array([1.0, 3.0]),
        knot_bin=np.array([0, 0]),
        knot_share=np.array([0.0, 1.0]),
        knot_value=np.array([0.5, 3.5]),
        round_steps=np.zeros(0),
        round_shares=np.zeros(0),
        continuous=False,
    )
    drawn = full.decode(np.array([2] * 10), np.random.default_rng(0), "inside")
    assert set(drawn) <= {1.0, 2.0, 3.0}
