import dataclasses
import itertools
import json
import math
import time
from typing import get_args

import numpy as np
import pytest
import torch

from tabmt.config import NetworkConfig, NetworkName, TrainConfig
from tabmt.errors import TrainingError
from tabmt.method.batches import Batches, HeldOut, is_worse, take
from tabmt.method.embedding import Field
from tabmt.method.networks import AnyNetwork, build
from tabmt.method.train import (
    Progress,
    Summary,
    TrainState,
    add_gradients,
    learning_rate_at,
    train,
)
from tabmt.tokens import MASK

SMALL = NetworkConfig(network="masked", width=16, depth=2, heads=2, dropout=0.1, drop_path=0.1)
SHORT = TrainConfig(steps=20, batch_size=16, warmup=3, eval_every=4, patience=100)
SIZES = [3, 5, 2]


def make(config: NetworkConfig = SMALL) -> AnyNetwork:
    fields = [Field(3, None), Field(5, (0.0, 0.2, 0.5, 1.0)), Field(2, None)]
    return build(fields, config, torch.Generator().manual_seed(0))


def table(rows: int, seed: int = 0) -> np.ndarray:
    """Columns that follow from the first, with noise: something to learn, not too easily."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 3, rows)
    second = (first + rng.integers(0, 2, rows)) % 5
    third = (first == 0) ^ (rng.random(rows) < 0.1)
    return np.stack([first, second, third.astype(int)], 1).astype(np.int16)


def weights(net: AnyNetwork) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def timeless(summary: Summary) -> Summary:
    return dataclasses.replace(summary, seconds=0.0)


def through_json(state: TrainState) -> TrainState:
    tensors, info = state.to_parts()
    return TrainState.from_parts(dict(tensors), json.loads(json.dumps(info)))


@pytest.mark.parametrize("stop_at", [1, 8, 10, 19])
@pytest.mark.parametrize("network", get_args(NetworkName))
def test_resumed_training_equals_uninterrupted_training_bit_for_bit(network, stop_at):
    config = dataclasses.replace(SHORT, checkpoint_every=0.0)
    of_network = dataclasses.replace(SMALL, network=network)
    states: dict[int, TrainState] = {}
    whole = make(of_network)
    summary = train(
        whole,
        table(50),
        table(20, seed=1),
        config,
        seed=3,
        save=lambda state: states.__setitem__(state.step, state),
    )
    resumed = make(of_network)
    again = train(
        resumed,
        table(50),
        table(20, seed=1),
        config,
        seed=3,
        resume=through_json(states[stop_at]),
    )
    assert same(weights(whole), weights(resumed))
    assert timeless(summary) == timeless(again)


# A learning rate that overshoots after a few looks, so that the best weights are not the last.
OVERSHOOT = dataclasses.replace(
    SHORT, steps=400, learning_rate=0.03, patience=6, eval_every=2, checkpoint_every=0.0, finish=0.0
)
FINISHED = dataclasses.replace(OVERSHOOT, finish=1.0)


def test_resuming_keeps_the_kept_weights_and_the_early_stop():
    states: list[TrainState] = []
    whole = make()
    summary = train(whole, table(12), table(40, seed=1), OVERSHOOT, seed=3, save=states.append)
    assert summary.stopped == "early"
    late = states[summary.best_step + 4]
    assert late.kept_step == summary.best_step
    assert late.looks_worse > 0
    resumed = make()
    again = train(
        resumed, table(12), table(40, seed=1), OVERSHOOT, seed=3, resume=through_json(late)
    )
    assert timeless(again) == timeless(summary)
    assert same(weights(whole), weights(resumed))


def test_early_stop_keeps_the_last_weights_that_held_out_rows_do_not_find_worse():
    seen: dict[int, TrainState] = {}
    net = make()
    summary = train(
        net,
        table(12),
        table(40, seed=1),
        OVERSHOOT,
        seed=3,
        save=lambda state: seen.__setitem__(state.step, state),
    )
    assert summary.stopped == "early"
    assert summary.best_step < summary.steps < OVERSHOOT.steps
    assert summary.steps == summary.best_step + OVERSHOOT.patience * OVERSHOOT.eval_every
    kept = {
        name.removeprefix("average/"): tensor
        for name, tensor in seen[summary.best_step].tensors.items()
        if name.startswith("average/")
    }
    assert same(kept, weights(net))


def test_after_an_early_stop_the_kept_weights_train_on_with_all_rows():
    only_held_out = table(40, seed=1)
    only_held_out[::2, 1] = 4
    rows = table(12)
    rows[rows[:, 1] == 4, 1] = 3
    kept, finished = make(), make()
    stopped = train(kept, rows, only_held_out, OVERSHOOT, seed=3)
    states: list[TrainState] = []
    summary = train(finished, rows, only_held_out, FINISHED, seed=3, save=states.append)
    assert (summary.stopped, stopped.finish_steps) == ("early", 0)
    assert (summary.best_step, summary.valid_loss) == (stopped.best_step, stopped.valid_loss)
    assert summary.finish_steps == summary.best_step
    assert summary.steps == stopped.steps + summary.finish_steps
    four = finished.fields.codes_of(1).stop - 1
    assert finished.fields.bias[four] > kept.fields.bias[four]  # else it would go on falling
    path = [state.tensors["net/mask_token"] for state in states[stopped.steps - 1 :]]
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


@pytest.mark.parametrize("network", ["any-order", "masked"])
def test_a_batch_in_parts_has_the_gradients_of_the_whole(network):
    net = make(NetworkConfig(network=network, width=16, depth=2, heads=2))
    rows, generator = table(40), torch.Generator().manual_seed(5)
    tokens = take(rows, torch.arange(40))
    plan = net.draw_plan((40, tokens.shape[1]), generator)
    found = []
    for at_once in (40, 7, 1):
        net.zero_grad()
        found.append(add_gradients(net, tokens, plan, generator, at_once))
        found[-1] += tuple(p.grad.clone() for p in net.parameters())
    (loss, count, *gradients), *others = found
    for other, same, *parts in others:
        assert (other, same) == (pytest.approx(loss, rel=1e-6), count)
        torch.testing.assert_close(parts, gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("later", [1, 3])
def test_a_run_interrupted_among_its_last_steps_resumes_bit_for_bit(later):
    states: list[TrainState] = []
    whole = make()
    summary = train(whole, table(12), table(40, seed=1), FINISHED, seed=3, save=states.append)
    among = states[-summary.finish_steps - 1 + later]
    assert among.finish_step is not None
    resumed = make()
    again = train(
        resumed, table(12), table(40, seed=1), FINISHED, seed=3, resume=through_json(among)
    )
    assert timeless(again) == timeless(summary)
    assert same(weights(whole), weights(resumed))


def test_worse_means_by_more_than_a_standard_error_of_pairs():
    best = [1.0, 2.0, 3.0, 4.0]
    assert not is_worse([5.0], [])
    assert is_worse([1.1, 2.1, 3.1, 4.1], best)  # a little, but in every group
    assert not is_worse([1.5, 1.8, 3.0, 3.9], best)  # more on average, but not steadily
    assert not is_worse([0.9, 1.9, 2.9, 3.9], best)


def test_all_plans_of_a_held_out_row_are_in_one_group():
    net = make()
    for rows in (20, 25, 300, 5000):
        held_out = HeldOut.choose(table(rows), table(500), net, seed=0, target=None)
        assert held_out is not None
        groups = held_out.tokens.split(held_out.group_size)
        assert 10 <= len(groups) <= 16
        plans = len(held_out.tokens) // min(rows, 4096)
        assert all(len(group) % plans == 0 for group in groups)
        assert torch.equal(held_out.tokens[:plans], held_out.tokens[:1].expand(plans, -1))


@pytest.mark.parametrize(("kept", "hidden"), [(0, True), (4, True), (5, False)])
def test_codes_that_hardly_any_training_row_has_do_not_count_among_held_out_rows(kept, hidden):
    rows, rest = table(300), table(300)
    of_two = np.flatnonzero(rest[:, 1] == 2)
    rest[of_two[kept:], 1] = 0
    held_out = HeldOut.choose(rows, rest, make(), seed=0, target=None)
    assert held_out is not None
    masked = (held_out.tokens == MASK).double().mean(0)
    assert masked[1] == pytest.approx((rows[:, 1] == 2).mean() if hidden else 0.0)
    assert masked[[0, 2]].max() == 0


def test_a_tiny_table_whose_every_code_is_rare_still_has_held_out_cells():
    held_out = HeldOut.choose(table(20), table(6), make(), seed=0, target=None)
    assert held_out is not None
    assert (held_out.tokens != MASK).double().mean() > 0.5


def test_an_interrupted_run_saves_and_resumes_to_the_same_weights():
    whole = make()
    train(whole, table(50), table(20, seed=1), SHORT, seed=3)
    states: list[TrainState] = []

    def interrupt(progress: Progress) -> None:
        if progress.step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            make(),
            table(50),
            table(20, seed=1),
            SHORT,
            seed=3,
            on_step=interrupt,
            save=states.append,
        )
    (state,) = states
    assert state.step == 8
    resumed = make()
    train(resumed, table(50), table(20, seed=1), SHORT, seed=3, resume=state)
    assert same(weights(whole), weights(resumed))


def test_a_saved_state_does_not_change_while_training_goes_on():
    config = dataclasses.replace(SHORT, checkpoint_every=0.0)
    states: list[TrainState] = []
    train(make(), table(50), table(20, seed=1), config, seed=3, save=states.append)
    first, last = states[0].tensors, states[-1].tensors
    assert not torch.equal(first["net/mask_token"], last["net/mask_token"])
    assert not torch.equal(first["first/mask_token"], last["first/mask_token"])


def test_same_seed_same_weights():
    nets = [make() for _ in range(3)]
    for net, seed in zip(nets, (5, 5, 6), strict=True):
        train(net, table(50), table(20, seed=1), SHORT, seed=seed)
    assert same(weights(nets[0]), weights(nets[1]))
    assert not same(weights(nets[0]), weights(nets[2]))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, torch.int16, torch.int32])
def test_tokens_of_every_integer_type_train_alike(kind):
    def typed(tokens):
        if isinstance(kind, torch.dtype):
            return torch.from_numpy(tokens).to(kind)
        return tokens.astype(kind)

    nets = [make(), make()]
    train(nets[0], table(50), table(20, seed=1), SHORT, seed=5)
    train(nets[1], typed(table(50)), typed(table(20, seed=1)), SHORT, seed=5)
    assert same(weights(nets[0]), weights(nets[1]))


def test_a_memory_mapped_table_trains_and_stays_as_it_was(tmp_path):
    np.save(tmp_path / "tokens.npy", table(50))
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    nets = [make(), make()]
    train(nets[0], table(50), table(0), SHORT, seed=5)
    train(nets[1], mapped, mapped[:0], SHORT, seed=5)
    assert same(weights(nets[0]), weights(nets[1]))


def test_each_epoch_has_every_row_once():
    tokens = torch.arange(10)[:, None]
    batches = Batches(tokens, 4, seed=0)
    stream = torch.cat([batches.at(step) for step in range(10)]).squeeze(1)
    epochs = stream.view(4, 10)
    assert (epochs.sort(1).values == torch.arange(10)).all()
    assert not torch.equal(epochs[0], epochs[1])


def test_a_batch_does_not_depend_on_the_batches_taken_before():
    tokens = torch.arange(10)[:, None]
    fresh, used = Batches(tokens, 4, seed=0), Batches(tokens, 4, seed=0)
    for step in range(7):
        used.at(step)
    assert torch.equal(fresh.at(7), used.at(7))


def test_a_table_smaller_than_a_batch_trains():
    config = dataclasses.replace(SHORT, batch_size=64)
    net = make()
    before = weights(net)
    summary = train(net, table(5), table(2), config, seed=0)
    assert summary.steps == 20
    assert not same(before, weights(net))
    assert math.isfinite(summary.train_loss)


def test_training_learns_what_can_be_learned():
    config = dataclasses.replace(SHORT, steps=200, batch_size=128, learning_rate=5e-3)
    quiet = dataclasses.replace(SMALL, dropout=0.0, drop_path=0.0)
    summary = train(make(quiet), table(2000), table(500, seed=1), config, seed=0)
    # Without the other columns a cell costs the entropy of its marginal.
    codes = table(2000)
    marginal = 0.0
    for column in range(3):
        shares = np.bincount(codes[:, column]) / 2000
        marginal -= sum(p * math.log(p) for p in shares if p > 0) / 3
    assert summary.valid_loss < marginal - 0.1


def test_without_held_out_rows_the_last_average_is_kept():
    config = dataclasses.replace(SHORT, checkpoint_every=0.0, patience=1)
    states: list[TrainState] = []
    net = make()
    summary = train(net, table(50), table(0), config, seed=0, save=states.append)
    assert (summary.steps, summary.best_step, summary.stopped) == (20, 20, "steps")
    assert summary.valid_loss is None
    assert torch.equal(states[-1].tensors["average/mask_token"], net.mask_token)


def test_the_average_follows_the_weights_and_forgets_where_they_began():
    config = dataclasses.replace(SHORT, checkpoint_every=0.0, steps=60)
    states: list[TrainState] = []
    net = make()
    start = net.mask_token.detach().clone()
    train(net, table(50), table(0), config, seed=0, save=states.append)
    path = torch.stack([state.tensors["net/mask_token"] for state in states])  # (steps, D)
    assert (net.mask_token >= path.amin(0)).all()
    assert (net.mask_token <= path.amax(0)).all()
    assert (net.mask_token - path[-1]).norm() < 0.2 * (start - path[-1]).norm()


def test_zero_steps_leave_the_network_as_it_was():
    net = make()
    before = weights(net)
    config = dataclasses.replace(SHORT, steps=0)
    summary = train(net, table(50), table(20), config, seed=0)
    assert same(before, weights(net))
    assert (summary.steps, summary.train_loss, summary.valid_loss) == (0, None, None)


def test_a_table_of_gaps_only_trains_without_nan():
    tokens = np.full((30, 3), MASK)
    net = make()
    summary = train(net, tokens, tokens, SHORT, seed=0)
    assert summary.valid_loss == 0.0
    assert all(torch.isfinite(tensor).all() for tensor in weights(net).values())


def test_a_nan_loss_says_when_and_what_to_do():
    net = make()
    with torch.no_grad():
        net.mask_token.fill_(math.nan)
    with pytest.raises(TrainingError) as error:
        train(net, table(50), table(20), dataclasses.replace(SHORT, warmup=0), seed=0)
    assert str(error.value) == (
        "The loss became nan at step 1 with a learning rate of 0.002; "
        "train again with a lower learning_rate (it is 0.002)."
    )


def test_learning_rate_warms_up_linearly_and_anneals_to_zero():
    config = TrainConfig(steps=1000, learning_rate=1.0, warmup=9)
    rates = [learning_rate_at(step, step / 1000, config) for step in range(1000)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3], rel=1e-4)
    assert max(rates) == pytest.approx(1.0, abs=1e-3)
    assert rates.index(max(rates)) == 9
    assert rates[500] == pytest.approx(0.5)
    assert rates[999] < 1e-5
    assert all(a > b for a, b in itertools.pairwise(rates[9:]))
    assert learning_rate_at(1000, 1.0, config) == pytest.approx(0.0, abs=1e-12)


def test_only_matrices_of_linear_layers_are_decayed():
    # Tables without loss have no gradients, so that decay is all that moves a weight.
    tokens = np.full((30, 3), MASK)
    net = make()
    before = weights(net)
    config = dataclasses.replace(SHORT, weight_decay=0.5, learning_rate=0.1)
    train(net, tokens, tokens[:0], config, seed=0)
    moved = {name for name, tensor in weights(net).items() if not torch.equal(tensor, before[name])}
    layers = ("queries_keys_values", "attention_out", "mlp_in", "mlp_out")
    assert moved == {f"blocks.{i}.{layer}.weight" for i in range(2) for layer in layers}


def test_a_budget_of_minutes_ends_and_carries_over_a_resume():
    config = dataclasses.replace(SHORT, steps=1, minutes=0.02, checkpoint_every=0.0)
    states: list[TrainState] = []
    summary = train(make(), table(50), table(20), config, seed=0, save=states.append)
    assert summary.stopped == "minutes"
    assert summary.steps > 1
    assert 1.2 <= summary.seconds < 3.0
    middle = min(states, key=lambda state: abs(state.seconds - 0.9))
    started = time.monotonic()
    again = train(make(), table(50), table(20), config, seed=0, resume=middle)
    assert again.seconds >= 1.2
    assert time.monotonic() - started < 1.2  # the rest of the budget, not all of it again


def test_progress_is_reported_after_every_step():
    reports: list[Progress] = []
    train(make(), table(50), table(20), SHORT, seed=0, on_step=reports.append)
    assert [report.step for report in reports] == list(range(1, 21))
    assert all(report.steps == 20 and report.rows_per_second > 0 for report in reports)
    assert reports[3].valid is None  # the first look comes after step 4
    assert reports[4].valid is not None
    assert reports[-1].seconds_left == 0.0


def test_summary_is_json():
    summary = train(make(), table(50), table(20), SHORT, seed=0)
    assert Summary(**json.loads(json.dumps(dataclasses.asdict(summary)))) == summary


def test_a_network_that_breaks_in_its_last_step_is_not_kept():
    config = dataclasses.replace(SHORT, steps=1, warmup=0, learning_rate=math.inf)
    with pytest.raises(TrainingError, match=r"^The loss became nan at step 1 with"):
        train(make(), table(50), table(20), config, seed=0)


def test_the_target_reaches_the_orders_that_are_trained():
    nets = [make(dataclasses.replace(SMALL, network="any-order")) for _ in range(2)]
    for net, target in zip(nets, (None, 2), strict=True):
        train(net, table(50), table(20, seed=1), SHORT, seed=5, target=target)
    assert not same(weights(nets[0]), weights(nets[1]))
