"""Tables as matrices for scikit-learn: numbers standardised, categories one-hot, NaN if missing.

The squared distance between two different categories is 2, the mean of that between two numbers. A
category that training never saw has zeros in all columns. For regressions, the first category of
each column is left out (`full=False`): otherwise each one-hot column is one minus the others, and
nothing else is learned.
"""

from dataclasses import dataclass

import numpy as np

from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder


@dataclass(frozen=True)
class Encoding:
    encoder: MetricEncoder
    scales: dict[str, tuple[float, float]]  # number column -> mean, standard deviation
    full: bool = True  # one-hot columns for all categories, or for all but the first

    @classmethod
    def fit(cls, train: EncodedTable, full: bool = True) -> "Encoding":
        scales = {
            name: (np.nanmean(values), np.nanstd(values)) for name, values in train.numbers.items()
        }
        return cls(train.encoder, scales, full)

    def encode(self, table: EncodedTable) -> np.ndarray:
        """(rows, dimensions)."""
        columns = [(table.numbers[name] - mean) / sd for name, (mean, sd) in self.scales.items()]
        for name, categories in self.encoder.categories.items():
            codes = table.codes[name][:, None]
            one_hot = np.where(codes < 0, np.nan, codes == np.arange(len(categories)))
            columns.extend(one_hot.T if self.full else one_hot.T[1:])
        return np.stack(columns, axis=1)

    def decode(self, matrix: np.ndarray) -> EncodedTable:
        """The inverse of `encode`; the category is the one whose column is largest."""
        numbers, codes, start = {}, {}, 0
        for name, (mean, sd) in self.scales.items():
            numbers[name], start = matrix[:, start] * sd + mean, start + 1
        for name, categories in self.encoder.categories.items():
            count = len(categories) if self.full else len(categories) - 1
            one_hot, start = matrix[:, start : start + count], start + count
            if not self.full:
                one_hot = np.column_stack([1 - one_hot.sum(1), one_hot])
            codes[name] = one_hot.argmax(1)
        return EncodedTable(numbers, codes, self.encoder)
