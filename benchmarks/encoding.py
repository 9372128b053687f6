"""Tables for scikit-learn: numbers standardised, categories one-hot, NaN where there is a gap.

Two different categories are as far apart (squared distance 2) as two numbers are on average. A
category that training never saw is none of the known ones. Regressions need it without one word of
each column (`full=False`): with all, each is one minus the others, and nothing else is learned.
"""

from dataclasses import dataclass

import numpy as np

from tabmt.evaluation.metrics.view import Lens, View


@dataclass(frozen=True)
class Encoding:
    lens: Lens
    scales: dict[str, tuple[float, float]]  # number column -> mean, standard deviation
    full: bool = True

    @classmethod
    def fit(cls, train: View, full: bool = True) -> "Encoding":
        numbers = train.numbers.items()
        return cls(train.lens, {name: (np.nanmean(v), np.nanstd(v)) for name, v in numbers}, full)

    def encode(self, view: View) -> np.ndarray:
        parts = [(view.numbers[name] - mean) / sd for name, (mean, sd) in self.scales.items()]
        for name, words in self.lens.words.items():
            codes = view.codes[name][:, None]
            hot = np.where(codes < 0, np.nan, codes == np.arange(len(words)))
            parts.extend(hot.T if self.full else hot.T[1:])
        return np.stack(parts, axis=1)

    def decode(self, matrix: np.ndarray) -> View:
        """The likeliest word is the one with the largest column."""
        numbers, codes, place = {}, {}, 0
        for name, (mean, sd) in self.scales.items():
            numbers[name], place = matrix[:, place] * sd + mean, place + 1
        for name, words in self.lens.words.items():
            count = len(words) if self.full else len(words) - 1
            hot, place = matrix[:, place : place + count], place + count
            if not self.full:
                hot = np.column_stack([1 - hot.sum(1), hot])
            codes[name] = hot.argmax(1)
        return View(numbers, codes, self.lens)
