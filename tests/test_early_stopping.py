"""Early stopping: which rows and cells count, which weights are kept, and what follows."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from tabmt.method.column_order import RANDOM_ORDER
from tabmt.method.early_stopping import EarlyStopping, ValidationSet, is_clearly_worse
from tabmt.method.train import SavedRun, train
from tabmt.tokens import MASK
from tests.test_train import SHORT, make, same, table, through_json, timeless, weights


def test_worse_means_by_more_than_a_standard_error_of_pairs():
    best = [1.0, 2.0, 3.0, 4.0]
    assert is_clearly_worse([1.1, 2.1, 3.1, 4.1], best)  # a little, but in every group
    assert not is_clearly_worse([1.5, 1.8, 3.0, 3.9], best)  # more on average, but not steadily
    assert not is_clearly_worse([0.9, 1.9, 2.9, 3.9], best)


def test_all_patterns_of_a_validation_row_are_in_one_group():
    net = make()
    for rows in (20, 25, 300, 5000):
        valid = ValidationSet.choose(
            table(rows), table(500), net, seed=0, column_order=RANDOM_ORDER
        )
        assert valid is not None
        groups = valid.tokens.split(valid.group_size)
        assert 10 <= len(groups) <= 16
        patterns = len(valid.tokens) // min(rows, 4096)
        assert all(len(group) % patterns == 0 for group in groups)
        assert torch.equal(valid.tokens[:patterns], valid.tokens[:1].expand(patterns, -1))


@pytest.mark.parametrize(("kept", "hidden"), [(0, True), (4, True), (5, False)])
def test_codes_that_hardly_any_training_row_has_do_not_count_in_validation(kept, hidden):
    rows, rest = table(300), table(300)
    of_two = np.flatnonzero(rest[:, 1] == 2)
    rest[of_two[kept:], 1] = 0
    valid = ValidationSet.choose(rows, rest, make(), seed=0, column_order=RANDOM_ORDER)
    assert valid is not None
    masked = (valid.tokens == MASK).double().mean(0)
    assert masked[1] == pytest.approx((rows[:, 1] == 2).mean() if hidden else 0.0)
    assert masked[[0, 2]].max() == 0


def test_a_tiny_table_whose_every_code_is_rare_still_has_validation_cells():
    valid = ValidationSet.choose(table(20), table(6), make(), seed=0, column_order=RANDOM_ORDER)
    assert valid is not None
    assert (valid.tokens != MASK).double().mean() > 0.5


# A learning rate that overshoots after a few checks, so that the best weights are not the last.
OVERSHOOT = dataclasses.replace(
    SHORT,
    optimizer="adamw",
    steps=400,
    learning_rate=0.03,
    patience=6,
    eval_every=2,
    checkpoint_every=0.0,
    finish=0.0,
)
FINISHED = dataclasses.replace(OVERSHOOT, finish=2.0)


def test_early_stop_keeps_the_weights_of_the_lowest_validation_loss():
    runs: dict[int, SavedRun] = {}
    net = make()
    summary = train(
        net,
        table(12),
        table(40, seed=1),
        OVERSHOOT,
        seed=3,
        save=lambda run: runs.__setitem__(run.state.step, run),
    )
    assert summary.stopped == "early"
    assert summary.best_step < summary.steps < OVERSHOOT.steps
    assert summary.steps == summary.best_step + OVERSHOOT.patience * OVERSHOOT.eval_every
    kept = {
        name.removeprefix("average/"): tensor
        for name, tensor in runs[summary.best_step].tensors.items()
        if name.startswith("average/")
    }
    assert same(kept, weights(net))


def test_resuming_keeps_the_kept_weights_and_the_early_stop():
    runs: list[SavedRun] = []
    whole = make()
    summary = train(whole, table(12), table(40, seed=1), OVERSHOOT, seed=3, save=runs.append)
    assert summary.stopped == "early"
    late = runs[summary.best_step + 4]
    assert late.state.early_stopping.kept_step == summary.best_step
    assert late.state.early_stopping.checks_without_improvement > 0
    resumed = make()
    again = train(
        resumed, table(12), table(40, seed=1), OVERSHOOT, seed=3, resume=through_json(late)
    )
    assert timeless(again) == timeless(summary)
    assert same(weights(whole), weights(resumed))


def test_after_an_early_stop_the_kept_weights_train_on_with_all_rows():
    valid_rows = table(40, seed=1)
    valid_rows[::2, 1] = 4
    rows = table(12)
    rows[rows[:, 1] == 4, 1] = 3
    kept, finished = make(), make()
    stopped = train(kept, rows, valid_rows, OVERSHOOT, seed=3)
    runs: list[SavedRun] = []
    summary = train(finished, rows, valid_rows, FINISHED, seed=3, save=runs.append)
    assert (summary.stopped, stopped.finish_steps) == ("early", 0)
    assert (summary.best_step, summary.valid_loss) == (stopped.best_step, stopped.valid_loss)
    assert summary.finish_steps == 2 * summary.best_step
    assert summary.steps == stopped.steps + summary.finish_steps
    four = finished.embedding.codes_of(1).stop - 1
    # Only validation rows have this code: without them its bias would go on falling.
    assert finished.output.bias[four] > kept.output.bias[four]
    path = [run.tensors["net/mask_token"] for run in runs[stopped.steps - 1 :]]
    moves = [(b - a).norm() for a, b in itertools.pairwise(path[1:])]
    assert moves[-1] < 0.3 * max(moves)  # the learning rate falls to zero
    assert torch.equal(finished.mask_token, path[-1])


def test_training_with_all_rows_ends_with_the_budget():
    stopped = train(make(), table(12), table(40, seed=1), OVERSHOOT, seed=3)
    endless = dataclasses.replace(OVERSHOOT, finish=99.0)
    summary = train(make(), table(12), table(40, seed=1), endless, seed=3)
    assert stopped.steps + 99 * stopped.best_step > endless.steps
    assert (summary.stopped, summary.steps) == ("early", endless.steps)
    assert summary.finish_steps == endless.steps - stopped.steps


@pytest.mark.parametrize("later", [1, 3])
def test_a_run_interrupted_among_its_last_steps_resumes_bit_for_bit(later):
    runs: list[SavedRun] = []
    whole = make()
    summary = train(whole, table(12), table(40, seed=1), FINISHED, seed=3, save=runs.append)
    among = runs[-summary.finish_steps - 1 + later]
    assert among.state.finish is not None
    resumed = make()
    again = train(
        resumed, table(12), table(40, seed=1), FINISHED, seed=3, resume=through_json(among)
    )
    assert timeless(again) == timeless(summary)
    assert same(weights(whole), weights(resumed))


def checks(stopping: EarlyStopping, losses: list[float], noise: float = 0.0) -> int:
    """Validation checks every 10 steps until training stops; how many there were."""
    rng = np.random.default_rng(0)
    for number, loss in enumerate(losses, 1):
        groups = loss + noise * rng.permutation(np.linspace(-1, 1, 16))
        stopping.update(groups.tolist(), 10 * number, rate=1.0)
        if stopping.should_stop:
            return number
    return len(losses)


def test_patience_counts_checks_that_are_clearly_worse():
    stopping = EarlyStopping(patience=3)
    assert checks(stopping, [3.0, 2.0, 1.0, 1.5, 1.5, 1.5, 1.5]) == 6
    assert (stopping.kept_step, stopping.kept_loss) == (30, 1.0)


def test_a_loss_that_rises_too_slowly_to_be_told_from_noise_stops_training_too():
    stopping = EarlyStopping(patience=3)
    falling, rising = [2.0 - 0.1 * n for n in range(10)], [1.1 + 1e-4 * n for n in range(1, 100)]
    stopped = checks(stopping, falling + rising, noise=0.5)
    assert stopped == 16  # half as many steps again as the best check, number 10, took
    assert stopping.kept_step == 100


def test_a_plateau_is_waited_out_as_long_as_now_and_then_a_check_is_better():
    stopping = EarlyStopping(patience=3)
    losses = [2.0 - 0.001 * n + 0.002 * (n % 3 != 0) for n in range(60)]
    assert checks(stopping, losses, noise=0.5) == 60
    assert stopping.kept_step == 580
