"""The training loop: batches, masks, AdamW, a look at held-out rows, early stop, resume.

For the synthesizer. It sees integer tokens and a network; where the tokens come from, and where a
`TrainState` is stored, is its caller's business. All randomness of step s is derived from
(seed, s), so a resumed run needs no generator's state and ends with the same weights, bit for bit,
as an uninterrupted one (same machine, same number of threads, a limit in steps).
"""

import copy
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tabmt.config import TrainConfig
from tabmt.errors import TrainingError, UserError
from tabmt.method.batches import Batches, HeldOut, Tokens, is_worse
from tabmt.method.distributed import Group
from tabmt.method.networks import AnyNetwork
from tabmt.seeds import derive

log = logging.getLogger(__name__)

Stopped = Literal["steps", "minutes", "early"]

EPOCHS_PER_LOOK = 10  # a small table is memorised within few steps ...
LEAST_STEPS_PER_LOOK = 10  # ... but looks cost time too
AVERAGE_STEPS = 300  # reach of the running average of the weights
MOST_KEPT = {"cpu": 2**22, "cuda": 2**26}  # rows x columns x width x blocks of a pass


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step. Losses are mean nats per hidden cell."""

    step: int
    steps: int | None  # None when time is the limit
    loss: float  # of this step
    valid: float | None  # of the last look
    rows_per_second: float
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class Summary:
    """What training came to. Losses are mean nats per hidden cell."""

    steps: int
    seconds: float
    best_step: int  # whose weights were kept
    train_loss: float | None  # since the last look; None when no step was taken
    valid_loss: float | None  # of the weights that were kept; None without held-out rows
    stopped: Stopped
    finish_steps: int = 0  # that the kept weights were trained on with all rows


@dataclass
class TrainState:
    """All that a resumed run needs. The tensors are copies, safe to keep while training goes on.

    Names of tensors: `net/...` weights, `average/...` their running average, `kept/...` the
    average to keep so far, `first/...` and `second/...` AdamW's moments, `count/...` its updates.
    """

    step: int
    seconds: float
    best_losses: list[float]  # of the best look so far, by group of held-out rows
    kept_step: int
    kept_valid: float | None
    kept_rate: float  # the learning rate there
    finish_step: int | None  # at which training with all rows began, None before it
    finish_from: float  # how much of the budget was used up there
    looks_worse: int  # in a row
    looked_step: int  # of the last look
    loss_sum: float  # since the last look
    loss_count: int
    tensors: dict[str, Tensor]

    def to_parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors for safetensors and the rest for JSON."""
        info = {name: value for name, value in vars(self).items() if name != "tensors"}
        return self.tensors, info

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], info: dict[str, Any]) -> "TrainState":
        return cls(**info, tensors=tensors)


def learning_rate_at(step: int, progress: float, config: TrainConfig) -> float:
    """Linear warm-up over the first steps times a cosine that reaches zero at progress 1."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    return config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def make_optimizer(net: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW that decays the matrices of linear layers and nothing else.

    Biases, LayerNorms and temperatures are not decayed by custom; embeddings and positions are
    not, because a rare code gets few gradients, and decay would erase it between them.
    """
    decayed = {m.weight for m in net.modules() if isinstance(m, nn.Linear)}
    kept = [p for p in net.parameters() if p not in decayed]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in net.parameters() if p in decayed]},
        {"params": kept, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def rows_at_once(net: AnyNetwork) -> int:
    """How many rows a pass may take: what it keeps for the way back must fit in memory."""
    numbers = MOST_KEPT["cuda" if next(net.parameters()).is_cuda else "cpu"]
    return max(1, numbers // (net.positions.numel() * len(net.blocks)))


def add_gradients(
    net: AnyNetwork, tokens: Tensor, plan: Tensor, noise: torch.Generator, rows: int
) -> tuple[float, int]:
    """Add the gradients of a batch's summed loss, so many rows at a time; the sum and its count."""
    loss, count = 0.0, 0
    for some, hidden in zip(torch.split(tokens, rows), torch.split(plan, rows), strict=True):
        total, cells = net.loss_sum_and_count(some, hidden, noise)
        total.backward()  # type: ignore[no-untyped-call]
        loss, count = loss + total.item(), count + cells
    return loss, count


def train(
    net: AnyNetwork,
    tokens: Tokens,
    valid_tokens: Tokens,
    config: TrainConfig,
    *,
    seed: int,
    target: int | None = None,
    on_step: Callable[[Progress], None] | None = None,
    resume: TrainState | None = None,
    save: Callable[[TrainState], None] | None = None,
) -> Summary:
    """Train in place, on the device the network is on, and leave the weights to keep in it.

    The weights that are looked at and kept are a running average over the last few hundred steps.
    `target` is the column that will be drawn last, if there is one.

    Ends at `config.steps`, or, when `config.minutes` is given, when that much training time is
    used up (over all resumed runs), or after `config.patience` looks in a row at which held-out
    rows fared worse (`is_worse`); the last weights with which they did not are kept. Without
    held-out rows the last average is kept. After such an early stop, and within what is left of the
    budget, the kept weights are trained on with all rows, the held-out ones too, for
    `config.finish` times as many steps as they had, while the learning rate falls to zero.
    `save` is called every
    `config.checkpoint_every` seconds and on KeyboardInterrupt, which is then raised again.
    """
    assert len(tokens) > 0
    device = next(net.parameters()).device
    processes = Group.here()
    if config.batch_size < processes.size:
        raise UserError(
            f"batch_size is {config.batch_size}, but there are {processes.size} processes; each "
            "needs a row of every batch."
        )
    # PAPER-DIFF: the paper keeps the weights themselves. A table that overfits before the learning
    # rate has come down would then keep weights full of noise (docs/log.md, 2026-11-15).
    average = copy.deepcopy(net).requires_grad_(False)
    optimizer = make_optimizer(net, config)
    batches = Batches(tokens, config.batch_size, seed=seed)
    held_out = HeldOut.choose(valid_tokens, tokens, net, seed=seed, target=target)
    epochs = round(EPOCHS_PER_LOOK * len(tokens) / config.batch_size)  # of so many, in steps
    look_every = min(config.eval_every, max(LEAST_STEPS_PER_LOOK, epochs))
    at_once = rows_at_once(net)

    step, seconds_before, looks, looked_step, kept_step = 0, 0.0, 0, 0, 0
    valid: float | None = None
    kept_valid: float | None = None
    best_losses: list[float] = []
    kept: dict[str, Tensor] = {}
    kept_rate, finish_step, finish_from = 0.0, None, 0.0
    loss_sum, loss_count = 0.0, 0
    if resume is not None:
        step, seconds_before = resume.step, resume.seconds
        looks, looked_step = resume.looks_worse, resume.looked_step
        best_losses, kept_step, kept_valid = resume.best_losses, resume.kept_step, resume.kept_valid
        kept_rate, loss_sum, loss_count = resume.kept_rate, resume.loss_sum, resume.loss_count
        finish_step, finish_from = resume.finish_step, resume.finish_from
        kept = _restore(resume.tensors, net, average, optimizer)
    started, steps_before = time.monotonic(), step
    saved_at = started
    updating = False

    def elapsed() -> float:
        return seconds_before + time.monotonic() - started

    def progress() -> float:
        if config.minutes is not None:
            return elapsed() / (60 * config.minutes) if config.minutes > 0 else 1.0
        return step / config.steps if config.steps > 0 else 1.0

    def finished(done: float) -> float:
        """How much of the steps with all rows is done; the budget may allow fewer than meant."""
        assert finish_step is not None
        steps = max(1, round(config.finish * kept_step))
        used = (done - finish_from) / max(1 - finish_from, 1e-9)
        return min(1.0, max((step - finish_step) / steps, used))

    def state() -> TrainState:
        return TrainState(
            step=step,
            seconds=elapsed(),
            best_losses=best_losses,
            kept_step=kept_step,
            kept_valid=kept_valid,
            kept_rate=kept_rate,
            finish_step=finish_step,
            finish_from=finish_from,
            looks_worse=looks,
            looked_step=looked_step,
            loss_sum=loss_sum,
            loss_count=loss_count,
            tensors=_copy(net, average, optimizer, kept),
        )

    try:
        while True:
            done = processes.agree(progress(), device)
            if finish_step is None:
                rate = learning_rate_at(step, done, config)
            else:
                rate = kept_rate * (1 - finished(done))
            # Before the step, not after it: a run interrupted within a look takes it on resume.
            if (
                held_out is not None
                and finish_step is None
                and step > looked_step
                and (step % look_every == 0 or done >= 1.0)
            ):
                # The first one's: processes on unlike machines must not come to differ.
                losses = [processes.agree(loss, device) for loss in held_out.losses(average)]
                valid = float(np.mean(losses))
                _check_finite(valid, step, rate, config)
                worse = is_worse(losses, best_losses)
                updating = True
                if not worse:
                    kept = {name: tensor.clone() for name, tensor in average.state_dict().items()}
                    kept_valid, kept_step, kept_rate = valid, step, rate
                if not best_losses or valid < np.mean(best_losses):
                    best_losses = losses
                looked_step, looks = step, looks + 1 if worse else 0
                updating = False
                log.info("step %d  held out %.4f%s", step, valid, "  worse" if worse else "")
            if done >= 1.0 or (finish_step is not None and finished(done) >= 1.0):
                break
            if looks >= config.patience and finish_step is None:
                if config.finish == 0:
                    break
                updating = True
                net.load_state_dict(kept)
                finish_step, finish_from, rate = step, done, kept_rate
                updating = False
                log.info("step %d  on from step %d with all rows", step, kept_step)
            if finish_step is not None and batches.more is None:
                batches = Batches(tokens, config.batch_size, seed=seed, more=valid_tokens)

            for group in optimizer.param_groups:
                group["lr"] = rate
            if step % look_every == 0:
                loss_sum, loss_count = 0.0, 0
            batch = batches.at(step, processes.share)  # (B, C)
            # Drawn on the CPU wherever we train, so that a seed means the same plan everywhere.
            generator = torch.Generator().manual_seed(derive(seed, "mask", step))
            shape = (config.batch_size, batch.shape[1])
            plan = net.draw_plan(shape, generator, target)[processes.share]  # (B, C)
            own = [processes.rank] if processes.rank else []
            noise = torch.Generator(device).manual_seed(derive(seed, "noise", step, *own))
            optimizer.zero_grad(set_to_none=True)
            total, here = add_gradients(net, batch.to(device), plan.to(device), noise, at_once)
            count = max(1, round(processes.sum(here, device)))
            value = processes.sum(total, device) / count
            _check_finite(value, step + 1, rate, config)
            processes.mean_gradients(net, count)
            nn.utils.clip_grad_norm_(net.parameters(), config.clip)
            updating = True
            optimizer.step()
            step, loss_sum, loss_count = step + 1, loss_sum + value * count, loss_count + count
            _average(average, net, step)
            updating = False

            now = time.monotonic()
            if on_step is not None:
                since, done = now - started, progress()
                left = elapsed() * max(1 / max(done, 1e-9) - 1, 0.0)
                if finish_step is not None:
                    steps_left = (1 - finished(done)) * config.finish * kept_step
                    left = min(left, steps_left * since / (step - steps_before))
                on_step(
                    Progress(
                        step=step,
                        steps=config.steps if config.minutes is None else None,
                        loss=value,
                        valid=valid if finish_step is None else kept_valid,
                        rows_per_second=(step - steps_before)
                        * config.batch_size
                        / max(since, 1e-9),
                        seconds=elapsed(),
                        seconds_left=left,
                    )
                )
            if save is not None and now - saved_at >= config.checkpoint_every:
                save(state())
                saved_at = time.monotonic()
    except KeyboardInterrupt:
        if updating:  # half the weights may have moved; the last checkpoint is the sound one
            log.warning("interrupted within an update; the last checkpoint was kept")
        elif save is not None:
            save(state())
        raise

    if finish_step is None:
        net.load_state_dict(kept if kept else average.state_dict())
    stopped: Stopped = "minutes" if config.minutes is not None else "steps"
    if looks >= config.patience:
        stopped = "early"
    return Summary(
        steps=step,
        seconds=elapsed(),
        best_step=kept_step if kept else step,
        train_loss=loss_sum / loss_count if loss_count else None,
        valid_loss=kept_valid,
        stopped=stopped,
        finish_steps=0 if finish_step is None else step - finish_step,
    )


def _check_finite(loss: float, step: int, rate: float, config: TrainConfig) -> None:
    if not math.isfinite(loss):
        raise TrainingError(
            f"The loss became {loss} at step {step} with a learning rate of {rate:.2g}; "
            f"train again with a lower learning_rate (it is {config.learning_rate:g})."
        )


def _average(average: nn.Module, net: nn.Module, step: int) -> None:
    """Move the running average; it reaches back a tenth of the steps until that is enough."""
    share = max(1 / AVERAGE_STEPS, 1 / (1 + step / 10))
    with torch.no_grad():
        for mean, parameter in zip(average.parameters(), net.parameters(), strict=True):
            mean.lerp_(parameter, share)


def _copy(
    net: nn.Module,
    average: nn.Module,
    optimizer: torch.optim.Optimizer,
    kept: dict[str, Tensor],
) -> dict[str, Tensor]:
    tensors = {f"net/{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"average/{name}": tensor for name, tensor in average.state_dict().items()}
    tensors |= {f"kept/{name}": tensor for name, tensor in kept.items()}
    for name, parameter in net.named_parameters():
        if moments := optimizer.state.get(parameter):
            tensors[f"first/{name}"] = moments["exp_avg"]
            tensors[f"second/{name}"] = moments["exp_avg_sq"]
            tensors[f"count/{name}"] = moments["step"]
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _restore(
    tensors: dict[str, Tensor],
    net: nn.Module,
    average: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[str, Tensor]:
    """Put weights and moments back; returns the weights that are kept so far."""
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, name = key.split("/", 1)
        parts.setdefault(kind, {})[name] = tensor
    net.load_state_dict(parts["net"])
    average.load_state_dict(parts["average"])
    for name, parameter in net.named_parameters():
        if name in parts.get("count", {}):
            optimizer.state[parameter] = {
                "step": parts["count"][name].to(parameter.device, copy=True),
                "exp_avg": parts["first"][name].to(parameter.device, copy=True),
                "exp_avg_sq": parts["second"][name].to(parameter.device, copy=True),
            }
    device = next(net.parameters()).device
    return {name: tensor.to(device, copy=True) for name, tensor in parts.get("kept", {}).items()}
