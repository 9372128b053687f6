"""The results of an evaluation: scores, each with the score of fresh real rows as reference."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tabmt.json_files import convert

Better = Literal["higher", "lower", "reference"]
Outcome = Literal["safe", "unsafe", "undecided"]


@dataclass(frozen=True)
class Score:
    """One metric. `worst` is the score of shuffled columns, for privacy that of copies."""

    name: str
    group: str
    title: str
    better: Better
    value: float | None
    reference: float | None = None  # of fresh real rows
    worst: float | None = None
    note: str = ""  # how it was computed, or why it could not be
    sd: float | None = None  # standard deviation of a value that is the mean of several
    reference_sd: float | None = None


@dataclass(frozen=True)
class Attack:
    """What one attack finds out about training rows, but not about control rows.

    The risk is the share of training rows on which it succeeds beyond its success on control rows,
    relative to the largest possible excess.
    """

    name: str
    title: str
    risk: float
    risk_low: float  # ends of the 95 % confidence interval
    risk_high: float
    success: float  # share of the attacked training rows
    control_success: float
    auc: float  # of distinguishing training from control rows; 0.5 is a guess
    auc_low: float
    auc_high: float
    true_positives_1: float  # share of training rows found where 1 % of control rows are
    true_positives_10: float
    rows: int  # attacked training rows
    control_rows: int
    note: str = ""


@dataclass(frozen=True)
class PrivacyTest:
    """One significance test, of the hypothesis that the rows reveal no individual training row."""

    name: str
    finding: str
    p_value: float
    limit: float  # it is significant if its p-value is below: its share of the error rate


@dataclass(frozen=True)
class ExposedRows:
    """A kind of training rows, and how well the best attack on members recognises them."""

    kind: str
    rows: int
    risk: float
    risk_low: float  # ends of the 95 % confidence interval
    risk_high: float
    attack: str


@dataclass(frozen=True)
class Privacy:
    """The verdict on the privacy of a table, with the tests and attacks on which it is based."""

    outcome: Outcome
    reasons: tuple[str, ...]
    error_rate: float  # the probability that fresh real rows are called unsafe, at most
    needed_test_rows: int  # with fewer, no table is called safe
    tests: tuple[PrivacyTest, ...]
    attacks: tuple[Attack, ...]  # the worst first; none without test rows
    exposed: ExposedRows | None
    max_risk: float | None = None
    passed: bool | None = (
        None  # whether the risk is within `max_risk`; None: there is no such limit
    )

    @property
    def worst(self) -> Attack | None:
        return self.attacks[0] if self.attacks else None


@dataclass(frozen=True)
class Evaluation:
    """All scores of one synthetic table."""

    name: str
    rows: dict[str, int]  # synthetic, train, valid, test
    target: str | None
    seed: int
    scores: tuple[Score, ...]
    columns: dict[str, tuple[float, float]]  # column -> distance, and that of training rows
    notes: tuple[str, ...]
    left_out: dict[str, str]  # column -> why
    privacy: Privacy

    def __getitem__(self, name: str) -> Score:
        score = self.find(name)
        if score is None:
            raise KeyError(name)
        return score

    def find(self, name: str) -> Score | None:
        """A score; None if this table has none of that name."""
        return next((score for score in self.scores if score.name == name), None)

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict and the main scores."""
        from tabmt.evaluation.report.report import summary_html  # it needs this module

        return summary_html(self)

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Evaluation":
        return convert(data, cls)
