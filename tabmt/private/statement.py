"""What a model promises about the rows that it was fitted to: a part of its card."""

from collections.abc import Mapping
from dataclasses import dataclass, field

UNIT = "one row added or removed"
ACCOUNTANT = (
    "Renyi differential privacy; Gaussian noise, exponential mechanism, thresholds with a part of "
    "delta, subsampled Gaussian"
)
COVERED = (
    "everything in the model file, everything generated from it, all messages of the fit and its "
    "checkpoints: kinds, values, ranges, bins, rates of missing values, relations, weights, and "
    "the number of rows"
)
PUBLIC = "the names and types of the columns, and what the schema and the settings say"
NOT_COVERED = (
    "time, memory and other side channels; error messages of a fit that fails; other fits and "
    "other releases of the same rows, whose epsilons and deltas add up; evaluations, which compare "
    "with real rows"
)


@dataclass(frozen=True)
class PrivacyStatement:
    """Differential privacy of a model, in numbers and in words."""

    epsilon: float
    delta: float
    method: str  # marginals or dp-sgd
    spent: Mapping[str, float]  # rho of each part; of DP-SGD's training none
    spent_epsilon: float  # of all parts together
    noise_multiplier: float | None = None  # of DP-SGD, with its rate and steps
    sampling_rate: float | None = None
    steps: int | None = None
    unit: str = UNIT
    accountant: str = ACCOUNTANT
    rows: str = "noisy"
    covered: str = COVERED
    public: str = PUBLIC
    not_covered: str = NOT_COVERED
    shares: Mapping[str, float] = field(default_factory=dict)  # of the budget, by part

    def lines(self) -> list[str]:
        """The statement as a person reads it."""
        split = ", ".join(f"{part} {share:.0%}" for part, share in self.shares.items())
        training = ""
        if self.noise_multiplier is not None:
            training = (
                f"; {self.steps:,} steps of batches with {self.sampling_rate:.2%} of the rows each "
                f"and noise {self.noise_multiplier:.2f}"
            )
        return [
            f"differential privacy: epsilon {self.epsilon:g}, delta {self.delta:g}, by "
            f"{self.method}{training}",
            f"unit: {self.unit}; the number of rows is {self.rows}",
            f"accountant: {self.accountant}",
            f"budget: {split}; {self.spent_epsilon:.3f} of epsilon {self.epsilon:g} spent",
            f"covered: {self.covered}",
            f"taken as public: {self.public}",
            f"not covered: {self.not_covered}",
        ]
