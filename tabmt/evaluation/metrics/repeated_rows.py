"""Are rows or identifiers of the training table repeated, exactly or with a little noise?

These tests need no test rows, because the training rows themselves show how often two real rows
are equal or nearly equal: each is compared with all others. Such rows occur in pairs, so a training
row counts half. Test rows, if there are any, are counted too.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.metrics.neighbours import nearest
from tabmt.evaluation.metrics.privacy import row_keys
from tabmt.evaluation.metrics.significance import p_value_of_rates

NEAR_SHARES = (0.005, 0.05)  # of all rows: those that lie closest to a single training row
UNUSUAL = 0.01
LETTERS = 26
LEAST_GROUP = 10  # identifiers of one format before a letter that all share counts as fixed


@dataclass(frozen=True)
class Repetition:
    """How many rows repeat a training row, and how many control rows do so."""

    found: int
    rows: int
    control: float
    control_rows: float

    @property
    def expected(self) -> float:
        """The number of rows that would repeat one by chance."""
        return self.control / self.control_rows * self.rows

    @property
    def p_value(self) -> float:
        return p_value_of_rates(self.found, self.rows, self.control, self.control_rows)


def exact_copies(
    rows: EncodedTable,
    train: EncodedTable,
    test: EncodedTable | None,
    exposed: np.ndarray | None = None,
) -> Repetition:
    """Training rows that the synthetic table has too, of those which occur only once.

    `exposed`, (training rows,) bool, says which training rows count; all, if it is not given.
    """
    keys = row_keys(train)
    counts: dict[bytes, int] = defaultdict(int)
    for key in keys:
        counts[key] += 1
    counted = np.ones(len(keys), bool) if exposed is None else exposed
    chosen = [key for key, counts_too in zip(keys, counted, strict=True) if counts_too]
    single = {key for key in chosen if counts[key] == 1}
    # If a training row that occurs twice were left out, it would repeat one that occurs once.
    pairs = sum(counts[key] == 2 for key in chosen) / 2
    test_keys = [] if test is None else row_keys(test)
    return Repetition(
        found=len(single.intersection(row_keys(rows))),
        rows=len(rows),
        control=pairs + len(single.intersection(test_keys)),
        control_rows=len(keys) / 2 + len(test_keys),
    )


def closeness_ratios(rows: EncodedTable, train: EncodedTable, *, same: bool = False) -> np.ndarray:
    """(rows,) in [0, 1]: distance to the closest training row over that to the second closest.

    Near 0: a row lies much closer to one training row than to all others. It does not depend on
    how dense the rows are there. `same`: rows are the first of the training rows themselves.
    """
    distances, _ = nearest(rows.robust_matrix, train.robust_matrix, 2, same=same)
    if distances.shape[1] < 2:
        return np.ones(len(rows))
    first, second = distances.T
    # Two training rows that are equal do not single out either of them.
    return np.where(second > 0, first / np.where(second > 0, second, 1), 1.0)


def near_copies(
    ratios: np.ndarray, train_ratios: np.ndarray, test_ratios: np.ndarray, share: float
) -> Repetition:
    """Rows among the `share` of all rows that lie closest to a single training row."""
    everything = np.concatenate([ratios, train_ratios, test_ratios])
    count = max(1, round(share * len(everything)))
    threshold = np.partition(everything, count - 1)[count - 1]
    return _as_close_as(threshold, ratios, train_ratios, test_ratios)


def unusually_close(
    ratios: np.ndarray, train_ratios: np.ndarray, test_ratios: np.ndarray
) -> Repetition:
    """Rows that lie closer to a single training row than 99 % of real rows do, to report."""
    real = np.sort(np.concatenate([train_ratios, test_ratios]))
    return _as_close_as(real[int(len(real) * UNUSUAL)], ratios, train_ratios, test_ratios)


def _as_close_as(
    threshold: float, ratios: np.ndarray, train_ratios: np.ndarray, test_ratios: np.ndarray
) -> Repetition:
    return Repetition(
        found=int((ratios <= threshold).sum()),
        rows=len(ratios),
        control=(train_ratios <= threshold).sum() / 2 + float((test_ratios <= threshold).sum()),
        control_rows=len(train_ratios) / 2 + len(test_ratios),
    )


# --- identifiers ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RepeatedIds:
    """How many distinct identifiers are real ones, and how many would be by chance."""

    column: str
    found: int
    ids: int
    expected: float

    @property
    def p_value(self) -> float:
        share = min(1.0, self.expected / self.ids)
        return float(stats.binom.sf(self.found - 1, self.ids, share))


def repeated_ids(column: str, ids: Iterable[str], real: Iterable[str]) -> RepeatedIds:
    """How many identifiers of a column are among the real ones."""
    real_ids, distinct = set(real), set(ids)
    chances = _chances(real_ids)
    expected = sum(chances.get(_format(word), 0.0) for word in distinct)
    return RepeatedIds(column, len(distinct & real_ids), len(distinct), expected)


def _format(word: str) -> str:
    """What identifiers of one kind have in common: letters by case, numbers by position."""
    word = re.sub(r"[0-9]+", "0", word)
    return "".join("A" if c.isupper() else "a" if c.isalpha() else c for c in word)


def _chances(words: set[str]) -> Mapping[str, float]:
    """Format -> the probability that a random identifier of that format is one of the words."""
    groups: dict[str, list[str]] = defaultdict(list)
    for word in words:
        groups[_format(word)].append(word)
    return {form: min(1.0, len(group) / _possible(group)) for form, group in groups.items()}


def _possible(words: list[str]) -> float:
    """How many identifiers there are in the format of some words."""
    possible = 1.0
    for numbers in zip(*(re.findall(r"[0-9]+", word) for word in words), strict=True):
        values = [int(number) for number in numbers]
        possible *= max(values) - min(values) + 1
    letters = [[character for character in word if character.isalpha()] for word in words]
    for position in zip(*letters, strict=True):
        fixed = len(words) >= LEAST_GROUP and len(set(position)) == 1
        possible *= 1 if fixed else LETTERS
    return possible
