"""Pareto fronts: points with two scores, which of them no other beats, and the choice of one.

The functions take scores as (points, 2), of which higher is better in both. A `Front` is the result
of a search of temperatures, and can be saved as a file.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tabmt.config import Privacy, Quality
from tabmt.errors import ModelFileError, UserError
from tabmt.json_files import convert, json_text, read_json, require
from tabmt.outputs import check_replaceable
from tabmt.writing import write_text

FORMAT = 4
LOWER_IS_BETTER = ("closer", "attack", "detector")


def signs(*names: str) -> np.ndarray:
    """What scores of these names are multiplied by, so that higher is better."""
    return np.array([-1.0 if name in LOWER_IS_BETTER else 1.0 for name in names])


def non_dominated(scores: np.ndarray) -> np.ndarray:
    """(points,) bool: which points no other beats. Of equal points only the first counts."""
    order = np.lexsort((-scores[:, 1], -scores[:, 0]))  # stable: descending by first, then second
    kept = np.zeros(len(scores), bool)
    best = -np.inf
    for index in order:
        if scores[index, 1] > best:
            kept[index], best = True, scores[index, 1]
    return kept


def hypervolume(scores: np.ndarray, worst: np.ndarray) -> float:
    """The area between a set of points and a reference point that is worse than them."""
    inside = scores[(scores > worst).all(1)]
    front = inside[non_dominated(inside)]
    front = front[np.argsort(-front[:, 0])]  # first score descending, so the second ascends
    below = np.concatenate([[worst[1]], front[:-1, 1]])
    return float(((front[:, 0] - worst[0]) * (front[:, 1] - below)).sum())


def area_added(scores: np.ndarray, front: np.ndarray, worst: np.ndarray) -> np.ndarray:
    """The area by which each of some points, (..., 2), would alone extend that of a front."""
    front = front[np.argsort(-front[:, 0])]  # first score descending, so the second ascends
    right = np.concatenate([[np.inf], front[:, 0]])
    left = np.concatenate([front[:, 0], worst[:1]])
    below = np.concatenate([worst[1:], front[:, 1]])
    added = np.zeros(scores.shape[:-1])
    for far, near, height in zip(right, left, below, strict=True):
        width = np.clip(np.minimum(scores[..., 0], far) - near, 0, None)
        added += width * np.clip(scores[..., 1] - height, 0, None)
    return added


@dataclass(frozen=True)
class Point:
    """Temperatures by column, with their scores in the search and on fresh samples."""

    temperatures: dict[str, float]
    privacy: float  # in the search
    quality: float
    valid_privacy: float | None  # of a fresh sample, with the search's rows; None: it failed
    valid_quality: float | None
    test_privacy: float | None  # of another fresh sample, with rows by which nothing was chosen
    test_quality: float | None
    uniform_temperature: float | None = None  # if all columns have the same


@dataclass(frozen=True)
class Front:
    """The result of a search, from the most faithful point to the most private one.

    Example:
        >>> front = Front.load("front.json")
        >>> private = model.with_temperatures(front.choose(quality=0.8).temperatures)
    """

    privacy: Privacy
    quality: Quality
    target: str | None  # the column that is predicted; a detector needs none
    points: tuple[Point, ...]  # those that no other trial beats, or some of many
    uniform: tuple[Point, ...]  # points with the same temperature for all columns
    tried: tuple[tuple[float, float], ...]  # privacy and quality of every trial
    real: dict[str, float]  # privacy of test rows; quality of training rows, on test and valid rows
    search: dict[str, Any]  # how it was made

    def scores(self, points: Sequence[Point], rows: Literal["valid", "test"]) -> np.ndarray:
        """(points, 2): privacy and quality of new samples, with signs so that higher is better;
        -inf for points that failed."""
        pairs = [(getattr(p, f"{rows}_privacy"), getattr(p, f"{rows}_quality")) for p in points]
        signed = np.array(pairs, float).reshape(-1, 2) * signs(self.privacy, self.quality)
        return np.where(np.isnan(signed), -np.inf, signed)

    def gain(self) -> tuple[float, float]:
        """The areas that the front and the uniform points cover on test rows."""
        front, uniform = (self.scores(points, "test") for points in (self.points, self.uniform))
        front, uniform = (scores[np.isfinite(scores).all(1)] for scores in (front, uniform))
        worst = np.concatenate([front, uniform]).min(0, initial=np.inf) - 1e-9
        return hypervolume(front, worst), hypervolume(uniform, worst)

    def choose(
        self,
        *,
        quality: float | None = None,
        quality_loss: float | None = None,
        privacy: float | None = None,
        point: int | None = None,
    ) -> Point:
        """The point of a number (from 1); the most private point of at least this quality, or at
        most this `quality_loss` worse than real rows; or the best point of at least this privacy.

        Uses the scores of new samples on validation rows, so that test scores stay unbiased.

        Example:
            >>> front.choose(quality_loss=0.02)
        """
        criteria = {
            "quality": quality,
            "quality_loss": quality_loss,
            "privacy": privacy,
            "point": point,
        }
        if sum(value is not None for value in criteria.values()) != 1:
            raise UserError(f"Specify exactly one of: {', '.join(criteria)}.")
        if point is not None:
            if not 1 <= point <= len(self.points):
                raise UserError(
                    f"The point is {point}, but the front has the points 1 to {len(self.points)}."
                )
            return self.points[point - 1]
        if privacy is not None:
            return self._best_with(0, privacy)
        if quality_loss is not None:
            quality = self.real["valid_quality"] - quality_loss * signs(self.quality)[0]
        assert quality is not None
        return self._most_private_with(quality) or self._best_with(1, quality)

    def _most_private_with(self, quality: float) -> Point | None:
        """Follow the front from the first point that is good enough, and stop before the next that
        is not: a single good point beyond that is usually luck."""
        least = round(quality * signs(self.quality)[0], 4)  # as scores are shown
        scores = self.scores(self.points, "valid").round(4)
        chosen = None
        for index in np.argsort(scores[:, 0], kind="stable"):
            if scores[index, 1] >= least:
                chosen = self.points[int(index)]
            elif chosen is not None:
                break
        return chosen

    def _best_with(self, criterion: int, value: float) -> Point:
        """Of all points with at least a value of one score (0 privacy, 1 quality), also uniform
        ones, that with the best other score."""
        sign = signs(self.privacy, self.quality)[criterion]
        points = (*self.points, *self.uniform)
        scores = self.scores(points, "valid").round(4)
        good = scores[:, criterion] >= round(value * sign, 4)
        if not good.any():
            best = scores[:, criterion].max() * sign
            name = (self.privacy, self.quality)[criterion]
            bound = "at least" if sign > 0 else "at most"
            raise UserError(
                f"No point of the front has {name} {bound} {value:.4g}; the best has {best:.4g}."
            )
        return points[int(np.where(good, scores[:, 1 - criterion], -np.inf).argmax())]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the front as JSON. Only with `force` is a file replaced that is not a front.

        Example:
            >>> front.save("front.json")
        """
        check_replaceable(path, "front", force=force)
        write_text(Path(path), json_text(self.to_json(), indent=1) + "\n")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Front":
        """The inverse of `to_json`. Raises ValueError if the data has another form."""
        front = convert(data, cls)
        require(len(front.points) > 0, "there are no points")
        for point in (*front.points, *front.uniform):
            values = point.temperatures.values()
            require(all(0 < value < math.inf for value in values), "a temperature is not positive")
            scores = (point.privacy, point.quality, point.valid_privacy, point.valid_quality,
                      point.test_privacy, point.test_quality)  # fmt: skip
            require(all(s is None or math.isfinite(s) for s in scores), "a score is no number")
        require(
            all(point.uniform_temperature is not None for point in front.uniform),
            "a uniform point has no temperature",
        )
        require(isinstance(front.search.get("model"), str), "the model is not named")
        require(isinstance(front.search.get("trials"), int), "the number of trials is missing")
        return front

    @classmethod
    def load(cls, path: str | Path) -> "Front":
        """Read a front that `save` or `tabmt pareto search` wrote.

        Example:
            >>> front = Front.load("front.json")
        """
        data = read_json(path, "front")
        try:
            require(data.get("format") == FORMAT, "another format")
            front = cls.from_json(data)
            require(
                set(front.real) == {"privacy", "quality", "valid_quality"},
                "the scores of real rows are missing",
            )
            return front
        except ValueError as error:
            raise ModelFileError(
                f"{str(path)!r} is not a front that `tabmt pareto search` of this version wrote "
                f"({error})."
            ) from error
