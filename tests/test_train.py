"""The training loop: resume, averages, the schedule, clipping, budgets and reports."""

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
from tabmt.json_files import convert
from tabmt.method.batches import take
from tabmt.method.column_order import ColumnOrder
from tabmt.method.embedding import Field
from tabmt.method.networks import Network, build_network
from tabmt.method.train import (
    MOST_ACTIVATIONS,
    Progress,
    SavedRun,
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


def make(config: NetworkConfig = SMALL) -> Network:
    fields = [Field(3, None), Field(5, (0.0, 0.2, 0.5, 1.0)), Field(2, None)]
    return build_network(fields, config, torch.Generator().manual_seed(0))


def table(rows: int, seed: int = 0) -> np.ndarray:
    """Columns that follow from the first, with noise: something to learn, not too easily."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 3, rows)
    second = (first + rng.integers(0, 2, rows)) % 5
    third = (first == 0) ^ (rng.random(rows) < 0.1)
    return np.stack([first, second, third.astype(int)], 1).astype(np.int16)


def weights(net: Network) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def timeless(summary: Summary) -> Summary:
    return dataclasses.replace(summary, seconds=0.0)


def through_json(run: SavedRun) -> SavedRun:
    """A saved run as a checkpoint returns it."""
    state = json.loads(json.dumps(dataclasses.asdict(run.state)))
    return SavedRun(convert(state, TrainState), run.tensors)


@pytest.mark.parametrize("stop_at", [1, 8, 10, 19])
@pytest.mark.parametrize("network", get_args(NetworkName))
def test_resumed_training_equals_uninterrupted_training_bit_for_bit(network, stop_at):
    config = dataclasses.replace(SHORT, checkpoint_every=0.0)
    of_network = dataclasses.replace(SMALL, network=network)
    runs: dict[int, SavedRun] = {}
    whole = make(of_network)
    summary = train(
        whole,
        table(50),
        table(20, seed=1),
        config,
        seed=3,
        save=lambda run: runs.__setitem__(run.state.step, run),
    )
    resumed = make(of_network)
    again = train(
        resumed,
        table(50),
        table(20, seed=1),
        config,
        seed=3,
        resume=through_json(runs[stop_at]),
    )
    assert same(weights(whole), weights(resumed))
    assert timeless(summary) == timeless(again)


@pytest.mark.parametrize("network", get_args(NetworkName))
def test_a_batch_in_chunks_has_the_gradients_of_the_whole(network, monkeypatch):
    net = make(NetworkConfig(network=network, width=16, depth=2, heads=2))
    rows, generator = table(40), torch.Generator().manual_seed(5)
    tokens = take(rows, torch.arange(40))
    pattern = net.draw_pattern((40, tokens.shape[1]), generator)
    passes: list[int] = []
    net.blocks[0].register_forward_hook(lambda block, x, out: passes.append(len(out)))
    found = []
    for at_once in (40, 7, 1):
        activations = at_once * net.positions.numel() * len(net.blocks)
        monkeypatch.setitem(MOST_ACTIVATIONS, "cpu", activations)
        net.zero_grad()
        passes.clear()
        found.append(add_gradients(net, tokens, pattern, generator))
        assert (max(passes), sum(passes)) == (at_once, 40)
        found[-1] += tuple(p.grad.clone() for p in net.parameters())
    (loss, count, *gradients), *others = found
    for other, same_count, *chunked in others:
        assert (other, same_count) == (pytest.approx(loss, rel=1e-6), count)
        torch.testing.assert_close(chunked, gradients, rtol=1e-4, atol=1e-4)


def test_an_interrupted_run_saves_and_resumes_to_the_same_weights():
    whole = make()
    train(whole, table(50), table(20, seed=1), SHORT, seed=3)
    runs: list[SavedRun] = []

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
            save=runs.append,
        )
    (run,) = runs
    assert run.state.step == 8
    resumed = make()
    train(resumed, table(50), table(20, seed=1), SHORT, seed=3, resume=run)
    assert same(weights(whole), weights(resumed))


def test_a_saved_run_does_not_change_while_training_continues():
    config = dataclasses.replace(SHORT, checkpoint_every=0.0)
    runs: list[SavedRun] = []
    train(make(), table(50), table(20, seed=1), config, seed=3, save=runs.append)
    first, last = runs[0].tensors, runs[-1].tensors
    assert not torch.equal(first["net/mask_token"], last["net/mask_token"])
    assert not torch.equal(first["exp_avg/mask_token"], last["exp_avg/mask_token"])


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


def test_without_validation_rows_the_last_average_is_kept():
    config = dataclasses.replace(SHORT, checkpoint_every=0.0, patience=1)
    runs: list[SavedRun] = []
    net = make()
    summary = train(net, table(50), table(0), config, seed=0, save=runs.append)
    assert (summary.steps, summary.best_step, summary.stopped) == (20, 20, "steps")
    assert summary.valid_loss is None
    assert torch.equal(runs[-1].tensors["average/mask_token"], net.mask_token)


def test_the_average_follows_the_weights_and_forgets_where_they_began():
    config = dataclasses.replace(SHORT, checkpoint_every=0.0, steps=60)
    runs: list[SavedRun] = []
    net = make()
    start = net.mask_token.detach().clone()
    train(net, table(50), table(0), config, seed=0, save=runs.append)
    path = torch.stack([run.tensors["net/mask_token"] for run in runs])  # (steps, D)
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


def test_a_table_of_masked_cells_only_trains_without_nan():
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
        "fit again with a lower learning_rate (it is 0.002)."
    )


def test_a_clip_of_zero_means_no_clipping():
    nets = {}
    for clip in (0.0, 1e30, 1e-3):
        nets[clip] = make()
        before = weights(nets[clip])
        config = dataclasses.replace(SHORT, clip=clip)
        train(nets[clip], table(50), table(20, seed=1), config, seed=5)
        assert not same(before, weights(nets[clip]))
    assert same(weights(nets[0.0]), weights(nets[1e30]))
    assert not same(weights(nets[0.0]), weights(nets[1e-3]))


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
    runs: list[SavedRun] = []
    summary = train(make(), table(50), table(20), config, seed=0, save=runs.append)
    assert summary.stopped == "minutes"
    assert summary.steps > 1
    assert 1.2 <= summary.seconds < 3.0
    middle = min(runs, key=lambda run: abs(run.state.seconds - 0.9))
    started = time.monotonic()
    again = train(make(), table(50), table(20), config, seed=0, resume=middle)
    assert again.seconds >= 1.2
    assert time.monotonic() - started < 1.2  # the rest of the budget, not all of it again


def test_progress_is_reported_after_every_step():
    reports: list[Progress] = []
    train(make(), table(50), table(20), SHORT, seed=0, on_step=reports.append)
    assert [report.step for report in reports] == list(range(1, 21))
    assert all(report.steps == 20 and report.rows_per_second > 0 for report in reports)
    assert reports[3].valid_loss is None  # the first check comes after step 4
    assert reports[4].valid_loss is not None
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
        train(
            net, table(50), table(20, seed=1), SHORT, seed=5, column_order=ColumnOrder(last=target)
        )
    assert not same(weights(nets[0]), weights(nets[1]))
