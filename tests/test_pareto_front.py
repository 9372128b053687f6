"""Points that no other beats, the area they cover, and the choice of one, against direct
computations."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabmt import UserError
from tabmt.cli.console import plot
from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.evaluation.metrics.attacks import worst_risk
from tabmt.evaluation.metrics.encoder import MetricEncoder
from tabmt.search.pareto_front import Front, Point, area_added, hypervolume, non_dominated, signs
from tests.tables import mixed_frame

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20)


def is_dominated(scores: np.ndarray, index: int) -> bool:
    """By the definition: another is as good in both and better in one, or the same and earlier."""
    for other in range(len(scores)):
        as_good = (scores[other] >= scores[index]).all()
        if as_good and ((scores[other] > scores[index]).any() or other < index):
            return True
    return False


@given(points)
def test_the_front_is_what_a_double_loop_finds(found):
    scores = np.array(found, float).reshape(-1, 2)
    expected = [not is_dominated(scores, index) for index in range(len(scores))]
    assert non_dominated(scores).tolist() == expected


@given(points, st.tuples(st.integers(-2, 4), st.integers(-2, 4)))
def test_the_area_is_the_number_of_unit_squares_below_a_point(found, worst):
    scores = np.array(found, float).reshape(-1, 2)
    squares = {
        (x, y)
        for point in found
        for x in range(worst[0], point[0])
        for y in range(worst[1], point[1])
    }
    assert hypervolume(scores, np.array(worst, float)) == len(squares)


@given(points, points, st.tuples(st.integers(-2, 0), st.integers(-2, 0)))
def test_the_area_that_a_point_adds_is_the_difference_of_two_areas(found, others, worst):
    scores = np.array(found, float).reshape(-1, 2)
    front, least = scores[non_dominated(scores)], np.array(worst, float)
    added = area_added(np.array(others, float).reshape(-1, 2), front, least)
    for point, more in zip(others, added, strict=True):
        both = np.concatenate([scores, [point]])
        assert more == hypervolume(both, least) - hypervolume(scores, least)


def test_scores_of_which_less_is_better_change_their_sign():
    assert signs("dcr", "mle").tolist() == [1, 1]
    assert signs("attack", "detector").tolist() == [-1, -1]


def test_the_worst_attack_finds_copies_and_nothing_in_rows_of_neither_table():
    table = Dataset.open(mixed_frame(900)).to_table()
    encoder = MetricEncoder.fit(table, infer_schema(mixed_frame(900)))
    whole = encoder.encode(table, "real")
    train, unused, fresh = (whole.take(np.arange(k, 900, 3)) for k in range(3))
    assert worst_risk(train, train, unused, seed=0, most=300) > 0.95
    assert worst_risk(fresh, train, unused, seed=0, most=300) < 0.15


def test_the_live_plot_marks_the_front():
    drawn = plot(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]]), 10, ("dcr", "mle"))
    assert drawn.startswith("trial 3 of 10")
    lines = [line for line in drawn.splitlines() if line.startswith("|")]
    assert lines[0].endswith("o") and lines[-1][2] == "·"
    assert sum(line.count("o") for line in lines) == 1
    assert (
        plot(np.array([0.1, 0.3, 0.2]), 5, ("mle",)) == "trial 3 of 5: best mle 0.3000, last 0.2000"
    )
    assert plot(np.zeros((0, 2)), 5, ("dcr", "mle")) == "trial 0 of 5"


# --- the choice of a point ---------------------------------------------------------------------


def point(privacy: float | None, quality: float | None, uniform: float | None = None) -> Point:
    """With these scores on validation rows, and others in the search and on test rows."""
    lucky = None if quality is None else quality + 0.5
    return Point({"a": 1.0}, 9.0, lucky or 9.0, privacy, quality, 0.0, 0.0, uniform)


def front_of(points: list[Point], uniform: list[Point], **names: Any) -> Front:
    names = {"privacy": "dcr", "quality": "mle", **names}
    real = {"privacy": 1.0, "quality": 0.3, "valid_quality": 0.9}
    return Front(**names, target="a", points=tuple(points), uniform=tuple(uniform), tried=(),
                 real=real, search={})  # fmt: skip


POINTS = [point(1, 0.9), point(2, 0.8), point(3, 0.6), point(4, 0.85)]
UNIFORM = [point(0.5, 0.95, 0.7), point(1.5, 0.7, 1.2)]


@pytest.mark.parametrize(
    ("criterion", "chosen"),
    [
        ({"quality": 0.88}, POINTS[0]),
        ({"quality": 0.75}, POINTS[1]),  # the fourth is beyond one that falls short
        ({"quality": 0.8}, POINTS[1]),
        ({"quality": 0.5}, POINTS[3]),
        ({"quality": 0.93}, UNIFORM[0]),  # no point of the front is so good
        ({"quality": 0.9}, POINTS[0]),
        ({"quality_loss": 0.1}, POINTS[1]),
        ({"quality_loss": -0.03}, UNIFORM[0]),
        ({"privacy": 0.4}, UNIFORM[0]),
        ({"privacy": 0.9}, POINTS[0]),
        ({"privacy": 2.5}, POINTS[3]),
        ({"point": 3}, POINTS[2]),
    ],
    ids=str,
)
def test_each_criterion_chooses_the_point_that_it_describes(criterion, chosen):
    for order in (POINTS, POINTS[::-1]) if "point" not in criterion else (POINTS,):
        assert front_of(order, UNIFORM).choose(**criterion) is chosen


def test_the_choice_starts_at_the_first_point_that_is_good_enough():
    points = [point(1, 0.7), point(2, 0.9), point(3, 0.85), point(4, 0.5), point(5, 0.95)]
    assert front_of(points, UNIFORM).choose(quality=0.8) is points[2]


def test_scores_of_which_less_is_better_are_chosen_the_other_way_round():
    points = [point(0.9, 0.6), point(0.7, 0.7), point(0.6, 0.9), point(0.5, 0.65)]
    front = front_of(points, [], privacy="closer", quality="detector")
    assert front.choose(quality=0.75) is points[1]
    assert front.choose(quality=0.9) is points[3]
    assert front.choose(privacy=0.65) is points[3]
    assert front.choose(quality_loss=-0.2) is points[1]  # real rows have 0.9


def test_a_point_whose_scoring_failed_is_not_chosen():
    failed = point(None, None)
    front = front_of([failed, *POINTS], UNIFORM)
    assert front.choose(quality=0.75) is POINTS[1]
    assert front.choose(privacy=2.5) is POINTS[3]
    with pytest.raises(UserError, match="No point of the front has dcr at least 0"):
        front_of([failed], []).choose(privacy=0.0)


@pytest.mark.parametrize(
    ("criteria", "sentence"),
    [
        ({}, "Specify exactly one of: quality, quality_loss, privacy, point."),
        (
            {"quality": 0.5, "point": 1},
            "Specify exactly one of: quality, quality_loss, privacy, point.",
        ),
        ({"quality": 2.0}, "No point of the front has mle at least 2; the best has 0.95."),
        ({"privacy": 99.0}, "No point of the front has dcr at least 99; the best has 4."),
        ({"point": 0}, "The point is 0, but the front has the points 1 to 4."),
    ],
)
def test_criteria_that_no_point_satisfies_are_refused(criteria, sentence):
    with pytest.raises(UserError) as error:
        front_of(POINTS, UNIFORM).choose(**criteria)
    assert str(error.value) == sentence
