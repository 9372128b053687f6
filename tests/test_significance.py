import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from tabmt.evaluation.metrics import significance
from tabmt.evaluation.metrics.significance import Rate


def test_risk_and_interval_are_those_of_anonymeter():
    """As anonymeter 1.1.0 computes them for 300 of 500 attacks, and 200 of 500 on control rows."""
    attack, control = significance.wilson(300, 500), significance.wilson(200, 500)
    assert (attack.value, attack.error) == pytest.approx((0.5992375660, 0.0427834433))
    assert significance.excess_risk(attack, control) == pytest.approx(
        (0.3312127663, 0.2453208213, 0.4171047114)
    )


def test_an_attack_that_always_succeeds_has_a_risk_of_one_and_one_that_never_does_of_zero():
    never, always = Rate(0.0, 0.0), Rate(1.0, 0.0)
    assert significance.excess_risk(always, never) == (1.0, 1.0, 1.0)
    assert significance.excess_risk(never, never) == (0.0, 0.0, 0.0)
    assert significance.excess_risk(Rate(0.2, 0.1), Rate(0.4, 0.1))[0] == 0.0


def test_the_auc_is_that_of_scikit_learn_also_with_ties(rng):
    members, others = rng.integers(0, 9, 300), rng.integers(0, 8, 200)
    scores = np.concatenate([members, others])
    value, low, high = significance.auc(members, others)
    assert value == pytest.approx(roc_auc_score([1] * 300 + [0] * 200, scores))
    assert low < value < high


def test_true_positives_are_those_of_the_roc_curve(rng):
    members, others = rng.normal(1, 1, 500), rng.normal(0, 1, 400)
    scores = np.concatenate([members, others])
    wrong, found, _ = roc_curve([1] * 500 + [0] * 400, scores, drop_intermediate=False)
    for share in (0.01, 0.1):
        rate, count = significance.rate_at(members, others, share)
        assert rate == pytest.approx(found[wrong <= share].max())
        assert count == share * 400


def test_p_values_are_those_of_fisher_and_hold_their_level(rng):
    table = [[30, 70], [10, 90]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert significance.p_value_of_counts(30, 100, 10, 100) == pytest.approx(expected)
    below = [
        [
            significance.p_value_of_ranks(*np.split(scores, [60])) < 0.05,
            significance.p_value_of_top(*np.split(scores, [60]), 0.1) < 0.05,
            significance.p_value_of_rates(rng.poisson(10), 100, rng.poisson(5), 50) < 0.05,
        ]
        for scores in rng.integers(0, 50, (600, 100))
    ]
    assert (np.mean(below, axis=0) < 0.07).all()


def test_members_among_the_highest_scores_are_found_where_ranks_find_nothing(rng):
    members, others = rng.normal(size=1000), rng.normal(size=1000)
    members[:30] = 10
    assert significance.p_value_of_ranks(members, others) > 0.01
    assert significance.p_value_of_top(members, others, 0.01) < 1e-4
