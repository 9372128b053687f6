"""Points with two scores: who is beaten, how much is covered, which one is taken.

The functions get scores as (points, 2), of which more is better in both. A `Front` is what a search
of temperatures found, with the choice of a point; it is read from and written to a file.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tabmt.config import Privacy, Quality
from tabmt.data import files as tables
from tabmt.errors import ModelFileError, UserError, read_json

FORMAT = 3
LOWER_IS_BETTER = ("closer", "attack", "detector")


def signs(*names: str) -> np.ndarray:
    """What scores of these names are multiplied with, so that more is better."""
    return np.array([-1.0 if name in LOWER_IS_BETTER else 1.0 for name in names])


def non_dominated(scores: np.ndarray) -> np.ndarray:
    """(points,) bool: which points no other beats. Of equal points the first stands for all."""
    order = np.lexsort((-scores[:, 1], -scores[:, 0]))  # stable: first score falls, then second
    kept = np.zeros(len(scores), bool)
    best = -np.inf
    for place in order:
        if scores[place, 1] > best:
            kept[place], best = True, scores[place, 1]
    return kept


def hypervolume(scores: np.ndarray, worst: np.ndarray) -> float:
    """The area between a set of points and a point that is worse than all that count."""
    inside = scores[(scores > worst).all(1)]
    front = inside[non_dominated(inside)]
    front = front[np.argsort(-front[:, 0])]  # the first score falls, so the second rises
    below = np.concatenate([[worst[1]], front[:-1, 1]])
    return float(((front[:, 0] - worst[0]) * (front[:, 1] - below)).sum())


def area_added(scores: np.ndarray, front: np.ndarray, worst: np.ndarray) -> np.ndarray:
    """The area by which each of some points, (..., 2), alone would extend that of a front."""
    front = front[np.argsort(-front[:, 0])]  # the first score falls, so the second rises
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
    """Temperatures by column, with what the search and then fresh rows made of them."""

    temperatures: dict[str, float]
    privacy: float  # in the search
    quality: float
    valid_privacy: float | None  # of fresh samples, with the search's rows; None: it failed
    valid_quality: float | None
    test_privacy: float | None  # of other fresh samples, with rows that nothing was chosen by
    test_quality: float | None
    uniform: float | None = None  # the one temperature of all columns


@dataclass(frozen=True)
class Front:
    """What a search found. The points run from the most faithful to the most private."""

    privacy: Privacy
    quality: Quality
    target: str | None  # the column that is predicted; a detector needs none
    points: tuple[Point, ...]  # those that no other trial beats, or some of many
    ray: tuple[Point, ...]  # the same temperature for all columns
    tried: tuple[tuple[float, float], ...]  # privacy and quality of every trial
    real: dict[str, float]  # privacy of test rows; quality of training rows, on either kind of rows
    search: dict[str, Any]  # how it was made

    def scores(self, points: Sequence[Point], rows: Literal["valid", "test"]) -> np.ndarray:
        """(points, 2): privacy and quality of fresh samples, turned so that more is better; of
        points that failed -inf."""
        found = np.array(
            [(getattr(p, f"{rows}_privacy"), getattr(p, f"{rows}_quality")) for p in points], float
        ).reshape(-1, 2)
        turned = found * signs(self.privacy, self.quality)
        return np.where(np.isnan(turned), -np.inf, turned)

    def gain(self) -> tuple[float, float]:
        """What the front and what the ray cover on test rows: two areas above the worst point."""
        ours, ray = (self.scores(points, "test") for points in (self.points, self.ray))
        ours, ray = (scores[np.isfinite(scores).all(1)] for scores in (ours, ray))
        worst = np.concatenate([ours, ray]).min(0, initial=np.inf) - 1e-9
        return hypervolume(ours, worst), hypervolume(ray, worst)

    def choose(
        self,
        *,
        quality: float | None = None,
        loss: float | None = None,
        privacy: float | None = None,
        point: int | None = None,
    ) -> Point:
        """The most private point of at least this quality, or that loses at most so much of what
        real rows score; the best of at least this privacy; or the one of this number (from 1).

        Goes by fresh samples on validation rows, so that the figures of the test rows stay a fair
        judgement. For quality it walks along the front from the first point that is good enough and
        stops before the next that falls short: a lone good point beyond is luck more often than
        not. If none of the front is good enough, one of the ray may be.
        """
        wishes = {"quality": quality, "loss": loss, "privacy": privacy, "point": point}
        if sum(wish is not None for wish in wishes.values()) != 1:
            raise UserError(f"Choose a point by one of: {', '.join(wishes)}.")
        if point is not None:
            if not 1 <= point <= len(self.points):
                raise UserError(
                    f"The point is {point}, but the front has the points 1 to {len(self.points)}."
                )
            return self.points[point - 1]
        turn = signs(self.privacy, self.quality)
        if loss is not None:
            quality = self.real["valid_quality"] - loss * turn[1]
        place, wish = (0, privacy) if quality is None else (1, quality)
        assert wish is not None
        least = round(wish * turn[place], 4)  # as figures are shown
        scores = self.scores(self.points, "valid").round(4)
        if quality is not None:
            along = np.argsort(scores[:, 0], kind="stable")
            from_first = itertools.dropwhile(lambda at: scores[at, 1] < least, along)
            far = list(itertools.takewhile(lambda at: scores[at, 1] >= least, from_first))
            if far:
                return self.points[int(far[-1])]
        points = (*self.points, *self.ray)
        scores = self.scores(points, "valid").round(4)
        good = scores[:, place] >= least
        if not good.any():
            best = scores[:, place].max() * turn[place]
            name, side = (self.privacy, self.quality)[place], ("at most", "at least")
            raise UserError(
                f"No point of the front has {name} {side[int(turn[place] > 0)]} {wish:.4g}; the "
                f"best has {best:.4g}."
            )
        return points[int(np.where(good, scores[:, 1 - place], -np.inf).argmax())]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}

    def save(self, path: str | Path) -> None:
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"
        tables.write_text(Path(path), text)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Front":
        """Fails with some built-in error if the data are not what `to_json` wrote."""
        points, ray = (tuple(map(_point, data[name])) for name in ("points", "ray"))
        assert points and all(point.uniform is not None for point in ray)
        tried = tuple((float(one), float(other)) for one, other in data["tried"])
        rest = {name: data[name] for name in ("privacy", "quality", "target")}
        assert rest["privacy"] in get_args(Privacy) and rest["quality"] in get_args(Quality)
        real = {name: float(value) for name, value in data["real"].items()}
        search = dict(data["search"])
        assert isinstance(search["model"], str) and isinstance(search["trials"], int)
        return cls(points=points, ray=ray, tried=tried, real=real, search=search, **rest)

    @classmethod
    def load(cls, path: str | Path) -> "Front":
        data = read_json(str(path), "front")
        try:
            assert data["format"] == FORMAT
            front = cls.from_json(data)
            assert set(front.real) == {"privacy", "quality", "valid_quality"}
            return front
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise ModelFileError(
                f"{str(path)!r} is not a front that `tabmt pareto search` of this version wrote."
            ) from error


def _point(data: Mapping[str, Any]) -> Point:
    heat = {str(name): float(value) for name, value in data["temperatures"].items()}
    assert all(0 < value < math.inf for value in heat.values())
    scores = {name: value for name, value in data.items() if name != "temperatures"}
    assert all(type(value) in (int, float, type(None)) for value in scores.values())
    assert data["privacy"] is not None and data["quality"] is not None
    return Point(heat, **scores)
