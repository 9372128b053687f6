"""Is a difference between training rows and control rows significant?

Two groups of real rows differ only in that one was used for training. If the synthetic rows reveal
nothing about individual training rows, the groups are interchangeable, and counts in them follow
exact distributions: the p-values here are valid for any table and any number of rows.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
Z = float(stats.norm.ppf(0.5 * (1 + CONFIDENCE)))


@dataclass(frozen=True)
class Rate:
    """An estimated share, with half the width of its confidence interval."""

    value: float
    error: float


def wilson(successes: float, total: float) -> Rate:
    """Wilson's estimate of a share, which also holds for few rows and shares near 0 or 1."""
    spread = successes * (total - successes) / total
    denominator = total + Z**2
    return Rate(
        (successes + Z**2 / 2) / denominator, Z / denominator * math.sqrt(spread + Z**2 / 4)
    )


def excess_risk(attack: Rate, control: Rate) -> tuple[float, float, float]:
    """(risk, low, high): how much more often an attack succeeds on training rows than on control
    rows, as a share of what is possible: 0 is not at all, 1 always where it fails on control rows.

    The definition and the propagation of errors are those of Giomi et al. 2023 (anonymeter).
    """
    room = max(1 - control.value, 1e-9)
    risk = (attack.value - control.value) / room
    error = math.hypot(attack.error / room, control.error * (attack.value - 1) / room**2)
    low, value, high = np.clip([risk - error, risk, risk + error], 0, 1)
    return float(value), float(low), float(high)


def auc(members: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """(AUC, low, high): the probability that a member has the higher score, ties half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members)
    ties = np.searchsorted(ordered, members, side="right") - below
    value = float((below + ties / 2).mean() / len(others))
    error = Z * _auc_error(value, len(members), len(others))
    return value, max(0.0, value - error), min(1.0, value + error)


def _auc_error(value: float, members: int, others: int) -> float:
    """The standard error of an AUC (Hanley and McNeil 1982)."""
    q1, q2 = value / (2 - value), 2 * value**2 / (1 + value)
    variance = value * (1 - value) + (members - 1) * (q1 - value**2)
    variance += (others - 1) * (q2 - value**2)
    return math.sqrt(max(variance, 0.0) / (members * others))


def rate_at(members: np.ndarray, others: np.ndarray, false_positives: float) -> tuple[float, int]:
    """The share of members above the threshold that at most this share of the others exceeds, and
    how many of the others exceed it."""
    allowed = int(false_positives * len(others))
    threshold = np.sort(others)[::-1][min(allowed, len(others) - 1)]
    return float((members > threshold).mean()), int((others > threshold).sum())


def p_value_of_ranks(members: np.ndarray, others: np.ndarray) -> float:
    """Mann-Whitney: do members have higher scores than others?"""
    if np.ptp(np.concatenate([members, others])) == 0:
        return 1.0
    test = stats.mannwhitneyu(members, others, alternative="greater", method="asymptotic")
    return float(test.pvalue)


def p_value_of_top(members: np.ndarray, others: np.ndarray, share: float) -> float:
    """Are there more members among the rows with the highest scores than expected by chance?

    Rows with equal scores are counted together, so that their order does not matter.
    """
    scores = np.concatenate([members, others])
    count = max(1, round(share * len(scores)))
    threshold = np.partition(scores, -count)[-count]
    top, found = int((scores >= threshold).sum()), int((members >= threshold).sum())
    return float(stats.hypergeom.sf(found - 1, len(scores), len(members), top))


def p_value_of_counts(attack: int, attacks: int, control: int, controls: int) -> float:
    """Fisher's exact test: is the first share the higher one?"""
    return float(stats.hypergeom.sf(attack - 1, attacks + controls, attacks, attack + control))


def p_value_of_rates(found: float, rows: float, control: float, control_rows: float) -> float:
    """Are there more events among some rows than their rate among control rows explains?

    For rare events: given their sum, the first number is binomial. Weighted rows may be fractions.
    """
    share = rows / (rows + control_rows)
    return float(stats.binom.sf(found - 1, math.ceil(found + control), share))
