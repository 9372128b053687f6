"""Points that no other beats, and the area they cover, against counting by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabmt.console import plot
from tabmt.metrics.privacy import membership_auc
from tabmt.metrics.view import Lens
from tabmt.schema import infer
from tabmt.search.front import hypervolume, non_dominated, signs
from tabmt.tables import load
from tests.tables import mixed_frame

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20)


def beaten(scores: np.ndarray, place: int) -> bool:
    """By the definition: another is as good in both and better in one, or the same and earlier."""
    for other in range(len(scores)):
        as_good = (scores[other] >= scores[place]).all()
        if as_good and ((scores[other] > scores[place]).any() or other < place):
            return True
    return False


@given(points)
def test_the_front_is_what_a_double_loop_finds(found):
    scores = np.array(found, float).reshape(-1, 2)
    expected = [not beaten(scores, place) for place in range(len(scores))]
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


def test_scores_of_which_less_is_better_are_turned():
    assert signs("dcr", "mle").tolist() == [1, 1]
    assert signs("attack", "detector").tolist() == [-1, -1]


def test_the_attack_finds_copies_and_nothing_in_rows_of_neither_table():
    frame = mixed_frame(400)
    schema = infer(*load(frame))
    lens = Lens.grind(load(frame)[0], schema)
    whole = lens.view(load(frame)[0], "real")
    train, held_out, fresh = (whole.take(np.arange(k, 300, 3)) for k in range(3))
    assert membership_auc(train, train, held_out) > 0.95
    assert membership_auc(fresh, train, held_out) == pytest.approx(0.5, abs=0.1)
    # By the definition, pair by pair.
    from scipy.stats import mannwhitneyu
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=1).fit(fresh.matrix)
    seen, unseen = (near.kneighbors(v.matrix)[0][:, 0] for v in (train, held_out))
    expected = mannwhitneyu(unseen, seen).statistic / len(seen) / len(unseen)
    assert membership_auc(fresh, train, held_out) == pytest.approx(expected, abs=1e-3)


def test_the_live_picture_marks_the_front():
    drawn = plot(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]]), 10, ("dcr", "mle"))
    assert drawn.startswith("trial 3 of 10")
    lines = [line for line in drawn.splitlines() if line.startswith("|")]
    assert lines[0].endswith("o") and lines[-1][2] == "·"
    assert sum(line.count("o") for line in lines) == 1
    assert (
        plot(np.array([0.1, 0.3, 0.2]), 5, ("mle",)) == "trial 3 of 5: best mle 0.3000, last 0.2000"
    )
    assert plot(np.zeros((0, 2)), 5, ("dcr", "mle")) == "trial 0 of 5"
