"""What an evaluation says: scores, each with the score of fresh real rows beside it."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tabmt.json_files import convert

Better = Literal["higher", "lower", "reference"]


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

    def __getitem__(self, name: str) -> Score:
        score = self.find(name)
        if score is None:
            raise KeyError(name)
        return score

    def find(self, name: str) -> Score | None:
        """A score; None if this table has none of that name."""
        return next((score for score in self.scores if score.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Evaluation":
        return convert(data, cls)
