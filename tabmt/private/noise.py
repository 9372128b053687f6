"""The only source of what is released about a real table: exact values go in, noisy ones come out.

Noise comes from the operating system's secure generator, never from the seed of a fit, which is
written into the model file: whoever knows the noise can subtract it. Noisy counts are rounded, so
that the low digits of floating-point numbers say nothing (Mironov 2012).

`Answers` remembers what came out. With it, a resumed fit gets the same answers again, and spends
nothing; and a test can give the answers of one table to the fit of another.
"""

import abc
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from tabmt.json_files import require


class Noise(abc.ABC):
    """Where noise comes from."""

    @abc.abstractmethod
    def normal(self, size: int) -> np.ndarray:
        """Standard normal numbers, (size,)."""

    @abc.abstractmethod
    def uniform(self, size: int) -> np.ndarray:
        """Numbers strictly between 0 and 1, (size,)."""


class SecureNoise(Noise):
    """Noise that nobody can predict or repeat."""

    def normal(self, size: int) -> np.ndarray:
        return np.asarray(ndtri(self.uniform(size)))

    def uniform(self, size: int) -> np.ndarray:
        bits = np.frombuffer(os.urandom(8 * size), np.uint64)
        return np.asarray(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


@dataclass
class Answers:
    """Noisy answers in the order in which they were asked for."""

    arrays: list[np.ndarray] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)  # names of what was released, or none
    position: int = 0
    keeps_gradients: bool = False  # of all steps of DP-SGD, which are many

    @property
    def is_replayed(self) -> bool:
        return self.position < len(self.arrays)

    def next(self) -> tuple[np.ndarray, list[str]]:
        self.position += 1
        return self.arrays[self.position - 1], self.words[self.position - 1]

    def add(self, array: np.ndarray, words: Sequence[str] = ()) -> None:
        self.arrays.append(array)
        self.words.append(list(words))
        self.position += 1

    def from_start(self) -> "Answers":
        """The same answers, to be given again."""
        return Answers(self.arrays, self.words)

    def to_parts(self) -> tuple[dict[str, np.ndarray], list[list[str]]]:
        """What a checkpoint holds."""
        return {str(i): array for i, array in enumerate(self.arrays)}, self.words

    @classmethod
    def from_parts(cls, arrays: dict[str, np.ndarray], words: Any) -> "Answers":
        """The inverse of `to_parts`. Raises ValueError if the parts do not fit together."""
        names = [str(index) for index in range(len(arrays))]
        require(set(names) == set(arrays), "the noisy answers are not complete")
        require(
            isinstance(words, list)
            and len(words) == len(arrays)
            and all(isinstance(w, list) and all(isinstance(x, str) for x in w) for w in words),
            "the noisy answers have no names",
        )
        require(
            all(a.dtype == np.float64 and a.ndim == 1 for a in arrays.values()),
            "the noisy answers are not numbers",
        )
        return cls([arrays[name] for name in names], words)
