"""What an attacker who has the synthetic rows finds out about individual training rows.

Each attack is run on training rows and, as a control, on real rows that the generator has not
seen: what it finds out about those follows from the population, not from being in the table.
Three attacks ask whether a row was a training row (membership); singling out, linkability and
attribute inference are those of the Article 29 Working Party, after Giomi et al. 2023.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tabmt.evaluation.metrics import significance
from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.metrics.neighbours import nearest
from tabmt.evaluation.results import Attack
from tabmt.seeds import numpy_stream

FALSE_POSITIVES = (0.01, 0.1)  # at which membership attacks are scored
MOST_PREDICATES = 1_000  # that single out a synthetic row
MOST_DRAWN = 6_000  # predicates, of which some do
MOST_COLUMNS = 6  # of a predicate
MEMBERSHIP = ("nearest neighbour", "density ratio", "likelihood")
CLOSE = 1e-6  # added to distances, whose ratios would be infinite for copies


@dataclass(frozen=True)
class AttackedRows:
    """Synthetic rows, the training rows, and control rows that the generator has not seen. Those
    that are attacked one by one are the first `most` of either."""

    synthetic: EncodedTable
    train: EncodedTable
    control: EncodedTable
    seed: int
    most: int

    @cached_property
    def real(self) -> tuple[EncodedTable, EncodedTable]:
        """The attacked training rows, and the attacked control rows."""
        members, others = (
            table if len(table) <= self.most else table.take(np.arange(self.most))
            for table in (self.train, self.control)
        )
        return members, others


@dataclass(frozen=True)
class Predicates:
    """How many predicates were tried, and how many single out a training or a control row."""

    tried: int
    members: int
    others: int
    member_share: float  # of all real rows

    def risk(self) -> tuple[tuple[float, float, float], float, float]:
        """Risk with its interval, success on training rows, and success expected by chance.

        The expected number is that of control rows singled out, times the number of training rows
        per control row.
        """
        total = self.members + self.others
        if total == 0:
            return (0.0, 0.0, 0.0), 0.0, 0.0
        estimate = significance.wilson(self.others, total)
        odds = self.member_share / (1 - self.member_share)

        def risk_of(others: float) -> float:
            chance = min(total * others * odds / self.tried, 1 - 1e-9)
            return (total * (1 - others) / self.tried - chance) / (1 - chance)

        ends = [
            estimate.value + estimate.error,
            self.others / total,
            estimate.value - estimate.error,
        ]
        low, value, high = np.clip([risk_of(max(0.0, share)) for share in ends], 0, 1)
        chance = min(1.0, self.others * odds / self.tried)
        return (float(value), float(low), float(high)), self.members / self.tried, chance


@dataclass(frozen=True)
class Guesses:
    """The scores that an attack gives to real rows, higher for those that it suspects to be
    members; and, if it is not about membership, on which of them it succeeds."""

    name: str
    members: np.ndarray
    others: np.ndarray
    member_success: np.ndarray | None = None
    other_success: np.ndarray | None = None
    note: str = ""
    predicates: Predicates | None = None  # if it succeeds by predicates and not by rows

    def result(self) -> Attack:
        risks = []
        for share in FALSE_POSITIVES:
            found, wrong = significance.rate_at(self.members, self.others, share)
            attack = significance.wilson(found * len(self.members), len(self.members))
            control = significance.wilson(wrong, len(self.others))
            risks.append(
                (significance.excess_risk(attack, control), found, wrong / len(self.others))
            )
        rates = [found for _, found, _ in risks]
        (risk, low, high), success, control_success = max(risks)
        curve = significance.auc(self.members, self.others)
        if self.predicates is not None:
            (risk, low, high), success, control_success = self.predicates.risk()
            rates = [_rate_of_binary(success, control_success, f) for f in FALSE_POSITIVES]
            half = (high - low) / 4  # its AUC grows half as fast as its success
            middle = 0.5 + (success - control_success) / 2
            curve = middle, max(0.0, middle - half), min(1.0, middle + half)
        elif self.member_success is not None and self.other_success is not None:
            success = float(self.member_success.mean())
            control_success = float(self.other_success.mean())
            risk, low, high = significance.excess_risk(
                significance.wilson(self.member_success.sum(), len(self.member_success)),
                significance.wilson(self.other_success.sum(), len(self.other_success)),
            )
        return Attack(
            self.name, TITLES[self.name], risk, low, high, success, control_success,
            *curve, rates[0], rates[1],
            len(self.members), len(self.others), self.note,
        )  # fmt: skip

    def p_values(self) -> dict[str, float]:
        """Test -> p-value."""
        if self.member_success is not None and self.other_success is not None:
            p_value = significance.p_value_of_counts(
                int(self.member_success.sum()), len(self.member_success),
                int(self.other_success.sum()), len(self.other_success),
            )  # fmt: skip
            return {self.name: p_value}
        found = {self.name: significance.p_value_of_ranks(self.members, self.others)}
        for share in FALSE_POSITIVES:
            p_value = significance.p_value_of_top(self.members, self.others, share)
            found[f"{self.name}, top {share:.0%}"] = p_value
        return found


def _rate_of_binary(success: float, control: float, false_positives: float) -> float:
    """The true-positive rate of a yes-or-no guess, randomised to have a given false-positive
    rate."""
    if false_positives <= control:
        return success * false_positives / control
    return success + (1 - success) * (false_positives - control) / (1 - control)


TITLES = {
    "nearest neighbour": "Membership by the nearest neighbour",
    "density ratio": "Membership by the density ratio",
    "likelihood": "Membership by the model's likelihood",
    "singling out": "Singling out",
    "linkability": "Linkability",
    "inference": "Attribute inference",
}


def all_attacks(rows: AttackedRows) -> list[Guesses]:
    """Every attack that needs the synthetic rows alone."""
    synthetic = rows.synthetic.robust_matrix
    distances = [nearest(table.robust_matrix, synthetic)[0][:, 0] for table in rows.real]
    found = [
        Guesses(
            "nearest neighbour", -distances[0], -distances[1],
            note="a row near a synthetic row is taken for a training row",
        ),
        density_ratio(rows, distances),
        singling_out(rows),
        linkability(rows),
        inference(rows),
    ]  # fmt: skip
    return [guesses for guesses in found if guesses is not None]


def worst_risk(
    synthetic: EncodedTable, train: EncodedTable, control: EncodedTable, *, seed: int, most: int
) -> float:
    """The risk of the worst attack on at most `most` training rows and as many control rows."""
    rng = numpy_stream(seed, "attacked rows")
    members, others = (table.take(rng.permutation(len(table))) for table in (train, control))
    guesses = all_attacks(AttackedRows(synthetic, members, others, seed, most))
    return max(one.result().risk for one in guesses)


def density_ratio(rows: AttackedRows, distances: Sequence[np.ndarray]) -> Guesses | None:
    """Rows where synthetic rows are denser than real ones (DOMIAS, van Breugel et al. 2023).

    The density of real rows is that of control rows. Each half of them is the reference for the
    other half, and for half of the training rows.
    """
    if min(map(len, rows.real)) < 4:
        return None
    rng = numpy_stream(rows.seed, "density ratio")
    folds = [rng.permutation(len(table)) % 2 for table in rows.real]
    scores = [np.empty(len(table)) for table in rows.real]
    for fold in range(2):
        reference = rows.real[1].robust_matrix[folds[1] != fold]
        for index, table in enumerate(rows.real):
            chosen = folds[index] == fold
            to_real = nearest(table.robust_matrix[chosen], reference)[0][:, 0]
            to_synthetic = distances[index][chosen]
            scores[index][chosen] = np.log((to_real + CLOSE) / (to_synthetic + CLOSE))
    return Guesses(
        "density ratio", scores[0], scores[1],
        note="a row where synthetic rows are denser than other real rows is taken for one",
    )  # fmt: skip


def likelihood(members: np.ndarray, others: np.ndarray) -> Guesses:
    """From the log-likelihood of training and control rows by the model."""
    note = "a row that the model finds likely is taken for a training row"
    return Guesses("likelihood", members, others, note=note)


# --- singling out --------------------------------------------------------------------------


def singling_out(rows: AttackedRows) -> Guesses | None:
    """Predicates that only one synthetic row satisfies: do they single out a real row?

    A predicate has one to six columns of a synthetic row: the same category, or a number as far
    from the median or further. It singles out a real row if no other satisfies it, training and
    control rows together, so that either kind is singled out as often by chance.
    """
    rng = numpy_stream(rows.seed, "singling out")
    real = (rows.train, rows.control)
    hits = [np.zeros(len(table)) for table in real]
    tried: set[tuple[Term, ...]] = set()
    for _ in range(MOST_DRAWN):
        if len(tried) == MOST_PREDICATES:
            break
        predicate = _draw_predicate(rows.synthetic, rng)
        if predicate in tried or _satisfying(rows.synthetic, predicate).sum() != 1:
            continue
        tried.add(predicate)
        found = [_satisfying(table, predicate) for table in real]
        if sum(int(mask.sum()) for mask in found) == 1:
            for hit, mask in zip(hits, found, strict=True):
                hit += mask
    if not tried:
        return None
    success = [hit > 0 for hit in hits]
    share = len(rows.train) / (len(rows.train) + len(rows.control))
    predicates = Predicates(len(tried), int(hits[0].sum()), int(hits[1].sum()), share)
    note = f"{len(tried):,} predicates of up to {MOST_COLUMNS} columns, on all rows"
    return Guesses("singling out", hits[0], hits[1], success[0], success[1], note, predicates)


Term = tuple[str, str, float]  # column, comparison, value


def _draw_predicate(table: EncodedTable, rng: np.random.Generator) -> tuple[Term, ...]:
    """What a random row of a table says about some random columns."""
    row = int(rng.integers(len(table)))
    count = int(rng.integers(1, min(MOST_COLUMNS, len(table.names)) + 1))
    chosen = sorted(rng.choice(len(table.names), count, replace=False))
    return tuple(_term(table, table.names[index], row) for index in chosen)


def _term(table: EncodedTable, name: str, row: int) -> Term:
    if name in table.codes:
        return (name, "is", int(table.codes[name][row]))
    value = float(table.numbers[name][row])
    if np.isnan(value):
        return (name, "missing", 0.0)
    return (name, "at least" if value > table.encoder.scales[name][2] else "at most", value)


def _satisfying(table: EncodedTable, predicate: Sequence[Term]) -> np.ndarray:
    """(rows,) bool: which rows satisfy all terms."""
    satisfied = np.ones(len(table), bool)
    for name, comparison, value in predicate:
        if comparison == "is":
            satisfied &= table.codes[name] == value
        elif comparison == "missing":
            satisfied &= np.isnan(table.numbers[name])
        elif comparison == "at least":
            satisfied &= table.numbers[name] >= value
        else:
            satisfied &= table.numbers[name] <= value
    return satisfied


# --- linkability and attribute inference ---------------------------------------------------


def linkability(rows: AttackedRows) -> Guesses | None:
    """Two parties know half of the columns each: is the same synthetic row closest to both halves?

    The halves are chosen so that both have columns with many values.
    """
    names = _by_detail(rows.synthetic)
    if len(names) < 2:
        return None
    halves = names[0::2], names[1::2]
    scores, success = [], []
    for table in rows.real:
        found = [
            nearest(table.robust_columns(half), rows.synthetic.robust_columns(half))
            for half in halves
        ]
        (first, row), (second, other_row) = found
        linked = row[:, 0] == other_row[:, 0]
        success.append(linked)
        scores.append(np.where(linked, 0.0, -1e3) - first[:, 0] - second[:, 0])
    note = "the same synthetic row is closest to both halves of a row's columns"
    return Guesses("linkability", scores[0], scores[1], success[0], success[1], note)


def inference(rows: AttackedRows) -> Guesses | None:
    """The attacker knows all columns of a row but one, and guesses it from the closest synthetic
    row. Each row has one secret column, the columns in turn.

    A number is guessed if it is within a twentieth of the column's median deviation.
    """
    names = rows.synthetic.names
    if len(names) < 2:
        return None
    scores = [np.empty(len(table)) for table in rows.real]
    success = [np.empty(len(table), bool) for table in rows.real]
    for number, secret in enumerate(names):
        others = [name for name in names if name != secret]
        reference = rows.synthetic.robust_columns(others)
        for table, score, correct in zip(rows.real, scores, success, strict=True):
            chosen = np.arange(len(table)) % len(names) == number
            if not chosen.any():
                continue
            distances, closest = nearest(table.robust_columns(others)[chosen], reference)
            right = _same(table, chosen, rows.synthetic, closest[:, 0], secret)
            correct[chosen] = right
            score[chosen] = np.where(right, 0.0, -1e3) - distances[:, 0]
    note = "a secret column, from the closest synthetic row in all others"
    return Guesses("inference", scores[0], scores[1], success[0], success[1], note)


def _by_detail(table: EncodedTable) -> list[str]:
    """The columns, those with the most distinct values first."""
    values = table.numbers | table.codes
    return sorted(table.names, key=lambda name: -len(np.unique(values[name])))


def _same(
    table: EncodedTable, chosen: np.ndarray, rows: EncodedTable, closest: np.ndarray, secret: str
) -> np.ndarray:
    """(chosen rows,) bool: whether the secret is the value of the closest synthetic row."""
    if secret in table.codes:
        return np.asarray(table.codes[secret][chosen] == rows.codes[secret][closest])
    truth, guess = table.numbers[secret][chosen], rows.numbers[secret][closest]
    within = np.abs(truth - guess) <= table.encoder.units[secret] / 20
    return np.asarray(within | (np.isnan(truth) & np.isnan(guess)))
