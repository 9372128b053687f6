"""The training loop: batches, masks, AdamW, validation checks, early stopping, resume.

Read from top to bottom: `train` is the loop, and what it calls follows below. It sees integer
tokens and a network; where the tokens come from, and where a saved run is stored, is its caller's
business. All randomness of step s follows from (seed, s), so a resumed run ends with the same
weights, bit for bit, as an uninterrupted one (same machine, same number of threads, a limit in
steps).
"""

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tabmt.config import TrainConfig
from tabmt.errors import Cancelled, TrainingError, UserError
from tabmt.method.batches import Batches, Tokens
from tabmt.method.column_order import RANDOM_ORDER, ColumnOrder
from tabmt.method.distributed import Group
from tabmt.method.early_stopping import EarlyStopping, ValidationSet
from tabmt.method.muon import Muon
from tabmt.method.networks import Network
from tabmt.seeds import derive

log = logging.getLogger(__name__)

StopReason = Literal["steps", "minutes", "early", "asked"]

EPOCHS_PER_CHECK = 10  # a small table is memorised within few steps ...
LEAST_STEPS_PER_CHECK = 10  # ... but checks cost time too
OPTIMIZER_STATE = ("step", "exp_avg", "exp_avg_sq", "momentum")
MOST_SCORES = {"cpu": 2**25, "cuda": 2**28}  # attention scores of a block in one pass
# How often a step holds each, by measurement (docs/log.md, 2026-11-18).
SCORE_COPIES, LOGIT_COPIES, WEIGHT_COPIES = 4, 4, 8
MOST_ACTIVATIONS = {"cpu": 2**22, "cuda": 2**26}  # rows x columns x width x blocks of a pass


def train(
    net: Network,
    tokens: Tokens,
    valid_tokens: Tokens,
    config: TrainConfig,
    *,
    seed: int,
    column_order: ColumnOrder = RANDOM_ORDER,
    on_step: Callable[["Progress"], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    resume: "SavedRun | None" = None,
    save: Callable[["SavedRun"], None] | None = None,
) -> "Summary":
    """Train a network in place, on its own device, and leave the best weights in it.

    Ends after `config.steps`, or, if `config.minutes` is given, after that much training time (over
    all resumed runs), or when the validation loss has not improved in `config.patience` checks, or
    when `should_stop` returns True. What is validated and kept is a running average of the weights;
    without validation rows, the last one. After an early stop the kept weights are trained on with
    all rows, the validation rows too, while the learning rate falls to zero (`Finish`). `save` is
    called every `config.checkpoint_every` seconds and on KeyboardInterrupt or Cancelled.
    """
    processes, device = _processes(config), next(net.parameters()).device
    weights, state = Weights(net, config), TrainState(EarlyStopping(config.patience))
    if resume is not None:
        state = copy.deepcopy(resume.state)
        weights.restore(resume.tensors)
    clock = Clock(config, state)
    validation = ValidationSet.choose(
        valid_tokens, tokens, net, seed=seed, column_order=column_order
    )
    _check_resumed(state, validation)
    check_every = steps_per_check(config, len(tokens))
    batches = _batches(tokens, valid_tokens, config, seed, state)
    try:
        while True:
            progress = processes.broadcast(clock.progress(), device)
            rate = learning_rate(state, progress, config)
            asked = bool(should_stop and processes.broadcast(should_stop(), device))
            # Before the step, not after it: a run that is interrupted during a check repeats it.
            if validation and state.check_is_due(1.0 if asked else progress, check_every):
                validate(weights, state, validation, rate, config, processes)
            if asked or progress >= 1.0 or state.is_finished(progress):
                break
            if state.early_stopping.should_stop and state.finish is None:
                if config.finish == 0:
                    break
                with state.updating():
                    weights.return_to_kept()
                    state.finish = Finish.after(state, progress, config)
                rate = state.early_stopping.kept_rate
                batches = _batches(tokens, valid_tokens, config, seed, state)
            if state.step % check_every == 0:
                state.loss_sum, state.loss_count = 0.0, 0
            batch = batches.at(state.step, processes.share)  # (B, C)
            loss = train_step(weights, state, batch, rate, config, seed, column_order, processes)
            if on_step is not None:
                on_step(clock.report(loss, config))
            if save is not None and clock.checkpoint_is_due():
                save(clock.saved(weights))
    except (KeyboardInterrupt, Cancelled):
        if not state.is_consistent:  # half of the weights may have changed
            log.warning("Interrupted during an update; the last checkpoint was kept.")
        elif save is not None:
            save(clock.saved(weights))
        raise
    if state.finish is None or asked:
        weights.take_best()
    return state.summary(clock.elapsed(), config, asked)


def train_step(
    weights: "Weights",
    state: "TrainState",
    batch: Tensor,
    rate: float,
    config: TrainConfig,
    seed: int,
    column_order: ColumnOrder,
    processes: Group,
) -> float:
    """One optimizer step on this process's share of a batch; the mean loss of the whole batch."""
    net, step = weights.net, state.step
    device = next(net.parameters()).device
    # Drawn on the CPU wherever we train, so that a seed means the same pattern everywhere.
    generator = torch.Generator().manual_seed(derive(seed, "mask", step))
    shape = (config.batch_size, batch.shape[1])
    pattern = net.draw_pattern(shape, generator, column_order)[processes.share]  # (B, C)
    rank = [processes.rank] if processes.rank else []
    noise = torch.Generator(device).manual_seed(derive(seed, "noise", step, *rank))
    for optimizer in weights.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
    net.zero_grad(set_to_none=True)
    total, cells = add_gradients(net, batch.to(device), pattern.to(device), noise)
    count = max(1, round(processes.sum(cells, device)))
    loss = processes.sum(total, device) / count
    _check_finite(loss, step + 1, rate, config)
    processes.average_gradients(net, count)
    if (
        config.clip > 0
    ):  # PAPER-DIFF clip: the paper does not clip; few steps are then lost to spikes
        nn.utils.clip_grad_norm_(net.parameters(), config.clip)
    with state.updating():
        for optimizer in weights.optimizers:
            optimizer.step()
        state.step += 1
        state.loss_sum, state.loss_count = state.loss_sum + loss * count, state.loss_count + count
        weights.update_average(state.step)
    return loss


def validate(
    weights: "Weights",
    state: "TrainState",
    validation: ValidationSet,
    rate: float,
    config: TrainConfig,
    processes: Group,
) -> None:
    """A validation check of the averaged weights, which are kept if they are good enough."""
    device = validation.tokens.device
    losses = [processes.broadcast(loss, device) for loss in validation.losses(weights.average)]
    _check_finite(float(np.mean(losses)), state.step, rate, config)
    stopping = state.early_stopping
    with state.updating():
        if stopping.update(losses, state.step, rate):
            weights.keep()
    failed = stopping.checks_without_improvement
    note = f"  no improvement for {failed} checks" if failed > 1 else ""
    log.info("step %d  validation loss %.4f%s", state.step, stopping.last_loss, note)


def add_gradients(
    net: Network, tokens: Tensor, pattern: Tensor, noise: torch.Generator
) -> tuple[float, int]:
    """Add the gradients of a batch's summed loss, a bounded number of rows at a time; the sum of
    the losses and the number of cells."""
    rows = rows_at_once(net, "cuda" if tokens.is_cuda else "cpu")
    loss, count = 0.0, 0
    for chunk, own in zip(torch.split(tokens, rows), torch.split(pattern, rows), strict=True):
        total, cells = net.loss_sum_and_count(chunk, own, noise)
        total.backward()  # type: ignore[no-untyped-call]
        loss, count = loss + total.item(), count + cells
    return loss, count


def rows_at_once(net: Network, device: str) -> int:
    """Rows of one pass, so that it takes a bounded memory: for wide tables the attention scores,
    whose number grows with the square of the columns, count more than the activations."""
    columns = len(net.sizes)
    activations = MOST_ACTIVATIONS[device] // (net.positions.numel() * len(net.blocks))
    scores = MOST_SCORES[device] // (net.heads * columns**2)
    return max(1, min(activations, scores))


def training_bytes(net: Network, batch_size: int) -> int:
    """About how much memory a training step needs on the CPU, besides that of the program."""
    rows, columns = min(batch_size, rows_at_once(net, "cpu")), len(net.sizes)
    scores = rows * net.heads * columns**2 * len(net.blocks)
    logits = rows * sum(net.sizes)
    weights = sum(parameter.numel() for parameter in net.parameters())
    return 4 * (SCORE_COPIES * scores + LOGIT_COPIES * logits + WEIGHT_COPIES * weights)


# --- schedule ------------------------------------------------------------------------------


def learning_rate(state: "TrainState", progress: float, config: TrainConfig) -> float:
    """The learning rate of the next step: warm-up and cosine, or the fall to zero at the end."""
    if state.finish is not None:
        return state.early_stopping.kept_rate * (1 - state.finish.progress(state.step, progress))
    return learning_rate_at(state.step, progress, config)


def learning_rate_at(step: int, progress: float, config: TrainConfig) -> float:
    """Linear warm-up over the first steps times a cosine that reaches zero at progress 1."""
    warm = min(1.0, (step + 1) / (config.warmup + 1))
    return config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def steps_per_check(config: TrainConfig, rows: int) -> int:
    """Steps between validation checks: fewer for small tables."""
    steps = round(EPOCHS_PER_CHECK * rows / config.batch_size)
    return min(config.eval_every, max(LEAST_STEPS_PER_CHECK, steps))


@dataclass(frozen=True)
class Finish:
    """The steps with all rows that follow an early stop, within what is left of the budget.

    PAPER-DIFF finish: the paper has no validation rows in training; here they are learned at last.
    """

    start_step: int
    start_progress: float  # the share of the budget that was used then
    steps: int

    @classmethod
    def after(cls, state: "TrainState", progress: float, config: TrainConfig) -> "Finish":
        kept_step = state.early_stopping.kept_step
        log.info(
            "step %d  training the best weights (step %d) further on all rows",
            state.step,
            kept_step,
        )
        return cls(state.step, progress, max(1, round(config.finish * kept_step)))

    def progress(self, step: int, progress: float) -> float:
        """How much of these steps, or of the rest of the budget, is done, from 0 to 1."""
        used = (progress - self.start_progress) / max(1 - self.start_progress, 1e-9)
        return min(1.0, max((step - self.start_step) / self.steps, used))


def _batches(
    tokens: Tokens, valid_tokens: Tokens, config: TrainConfig, seed: int, state: "TrainState"
) -> Batches:
    """The training rows, and in the steps after an early stop the validation rows too."""
    more = None if state.finish is None else valid_tokens
    return Batches(tokens, config.batch_size, seed=seed, more=more)


# --- what changes during training ----------------------------------------------------------


@dataclass
class TrainState:
    """The numbers that change during training; `Weights` holds the tensors."""

    early_stopping: EarlyStopping
    finish: Finish | None = None
    step: int = 0
    seconds: float = 0.0  # of training, before the present run
    loss_sum: float = 0.0  # since the last validation check
    loss_count: int = 0
    is_consistent: bool = field(default=True, compare=False)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Marks the state as inconsistent while several of its parts change together."""
        self.is_consistent = False
        yield
        self.is_consistent = True

    def check_is_due(self, progress: float, every: int) -> bool:
        if self.finish is not None or self.step <= self.early_stopping.last_step:
            return False
        return self.step % every == 0 or progress >= 1.0

    def is_finished(self, progress: float) -> bool:
        return self.finish is not None and self.finish.progress(self.step, progress) >= 1.0

    def summary(self, seconds: float, config: TrainConfig, asked: bool) -> "Summary":
        """`asked`: the caller has ended training, and the steps with all rows do not count."""
        stopping, finish = self.early_stopping, None if asked else self.finish
        reason: StopReason = "minutes" if config.minutes is not None else "steps"
        if asked or stopping.should_stop:
            reason = "asked" if asked else "early"
        return Summary(
            steps=self.step,
            seconds=seconds,
            best_step=self.step if stopping.kept_loss is None else stopping.kept_step,
            train_loss=self.loss_sum / self.loss_count if self.loss_count else None,
            valid_loss=stopping.kept_loss,
            stopped=reason,
            finish_steps=0 if finish is None else self.step - finish.start_step,
        )


class Weights:
    """The network, the running average of its weights, the best average so far, and the optimizers.

    PAPER-DIFF average_steps: the paper keeps the weights themselves. A table that overfits before
    the learning rate has come down would then keep noisy weights (docs/log.md, 2026-11-15).
    """

    def __init__(self, net: Network, config: TrainConfig) -> None:
        self.net = net
        self.average: Network = copy.deepcopy(net).requires_grad_(False)
        self.optimizers = make_optimizers(net, config)
        self._average_steps = config.average_steps
        self._kept: dict[str, Tensor] = {}

    def update_average(self, step: int) -> None:
        """Move the average towards the weights; it covers a tenth of the steps at first."""
        share = max(1 / max(1, self._average_steps), 1 / (1 + step / 10))
        if self._average_steps == 0:
            share = 1.0  # the weights themselves
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.net.parameters(), strict=True)
            for mean, parameter in pairs:
                mean.lerp_(parameter, share)

    def keep(self) -> None:
        """Keep a copy of the present average."""
        self._kept = {name: tensor.clone() for name, tensor in self.average.state_dict().items()}

    def return_to_kept(self) -> None:
        self.net.load_state_dict(self._kept)

    def take_best(self) -> None:
        """Leave the kept average in the network, or the last one if none was kept."""
        self.net.load_state_dict(self._kept or self.average.state_dict())

    def copy(self) -> dict[str, Tensor]:
        """All tensors by name: `net/...` weights, `average/...`, `kept/...`, and the state of the
        optimizers: AdamW's `exp_avg/...`, `exp_avg_sq/...` and `step/...`, Muon's `momentum/...`.
        """
        tensors = {f"net/{name}": tensor for name, tensor in self.net.state_dict().items()}
        tensors |= {f"average/{name}": t for name, t in self.average.state_dict().items()}
        tensors |= {f"kept/{name}": tensor for name, tensor in self._kept.items()}
        for name, parameter in self.net.named_parameters():
            for key, tensor in self._optimizer_state(parameter).items():
                tensors[f"{key}/{name}"] = tensor
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `copy`."""
        groups: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            kind, name = key.split("/", 1)
            groups.setdefault(kind, {})[name] = tensor
        self.net.load_state_dict(groups["net"])
        self.average.load_state_dict(groups["average"])
        for name, parameter in self.net.named_parameters():
            state = self._optimizer_state(parameter)
            for key in OPTIMIZER_STATE:
                if name in groups.get(key, {}):
                    state[key] = groups[key][name].to(parameter.device, copy=True)
        device = next(self.net.parameters()).device
        kept = groups.get("kept", {})
        self._kept = {name: tensor.to(device, copy=True) for name, tensor in kept.items()}

    def _optimizer_state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """The state of the optimizer that a parameter belongs to, live."""
        for optimizer in self.optimizers:
            if any(parameter is own for group in optimizer.param_groups for own in group["params"]):
                state: dict[str, Tensor] = optimizer.state[parameter]
                return state
        raise AssertionError("a parameter has no optimizer")


def make_optimizers(net: Network, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """By default Muon for the matrices of the blocks and AdamW for all other parameters, with the
    same learning rate; only matrices of linear layers are decayed.

    PAPER-DIFF optimizer: the paper uses AdamW alone. Muon comes to AdamW's final validation loss in
    about half of the steps (docs/log.md).

    PAPER-DIFF weight_decay_on: the paper names no exception. Biases, LayerNorms and temperatures
    are not decayed by custom; embeddings and positions are not, because a rare code gets few
    gradients, and decay would erase it between them.
    """
    rate, decay = config.learning_rate, config.weight_decay
    linear = [
        module.get_parameter("weight") for module in net.modules() if isinstance(module, nn.Linear)
    ]
    matrices = linear if config.optimizer == "muon" else []
    rest = [p for p in net.parameters() if not any(p is m for m in matrices)]
    decayed = rest if config.weight_decay_on == "all" else linear
    groups: list[dict[str, Any]] = [
        {"params": [p for p in rest if any(p is d for d in decayed)]},
        {"params": [p for p in rest if not any(p is d for d in decayed)], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    adamw = torch.optim.AdamW(groups, lr=rate, weight_decay=decay, fused=True)
    if not matrices:
        return [adamw]
    stacked = [block.get_parameter("queries_keys_values.weight") for block in net.blocks]
    return [adamw, Muon(matrices, lr=rate, weight_decay=decay, stacked=stacked)]


@dataclass(frozen=True)
class SavedRun:
    """A copy of all that a resumed run needs, safe to keep while training continues."""

    state: TrainState
    tensors: dict[str, Tensor]


# --- progress ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step. Losses are mean nats per predicted cell."""

    step: int
    steps: int | None  # None when time is the limit
    loss: float  # of this step
    valid_loss: float | None  # of the last validation check
    rows_per_second: float
    seconds: float
    seconds_left: float

    @property
    def share(self) -> float:
        """Of the time of training, as far as it is known."""
        return self.seconds / max(self.seconds + self.seconds_left, 1e-9)


@dataclass(frozen=True)
class Summary:
    """The result of training. Losses are mean nats per predicted cell."""

    steps: int
    seconds: float
    best_step: int  # whose weights were kept
    train_loss: float | None  # since the last validation check; None if no step was taken
    valid_loss: float | None  # of the weights that were kept; None without validation rows
    stopped: StopReason
    finish_steps: int = 0  # for which the kept weights were trained on with all rows


class Clock:
    """Measures the training time of all runs together, and what is left of the budget."""

    def __init__(self, config: TrainConfig, state: TrainState) -> None:
        self._config, self._state = config, state
        self._started, self._first_step = time.monotonic(), state.step
        self._saved_at = self._started

    def elapsed(self) -> float:
        return self._state.seconds + time.monotonic() - self._started

    def progress(self) -> float:
        """The share of the budget, steps or minutes, that is used."""
        config = self._config
        if config.minutes is not None:
            return self.elapsed() / (60 * config.minutes) if config.minutes > 0 else 1.0
        return self._state.step / config.steps if config.steps > 0 else 1.0

    def checkpoint_is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._config.checkpoint_every

    def saved(self, weights: Weights) -> SavedRun:
        state = copy.deepcopy(self._state)
        state.seconds = self.elapsed()
        self._saved_at = time.monotonic()
        return SavedRun(state, weights.copy())

    def report(self, loss: float, config: TrainConfig) -> Progress:
        state, now = self._state, time.monotonic()
        progress, steps = self.progress(), state.step - self._first_step
        left = self.elapsed() * max(1 / max(progress, 1e-9) - 1, 0.0)
        valid_loss = state.early_stopping.last_loss
        if state.finish is not None:
            steps_left = (1 - state.finish.progress(state.step, progress)) * state.finish.steps
            left = min(left, steps_left * (now - self._started) / steps)
            valid_loss = state.early_stopping.kept_loss
        return Progress(
            step=state.step,
            steps=config.steps if config.minutes is None else None,
            loss=loss,
            valid_loss=valid_loss,
            rows_per_second=steps * config.batch_size / max(now - self._started, 1e-9),
            seconds=self.elapsed(),
            seconds_left=left,
        )


def _processes(config: TrainConfig) -> Group:
    processes = Group.current()
    if config.batch_size < processes.size:
        raise UserError(
            f"batch_size is {config.batch_size}, but must be at least the number of processes, "
            f"{processes.size}."
        )
    return processes


def _check_resumed(state: TrainState, validation: ValidationSet | None) -> None:
    """A resumed run compares validation losses with those of the run before, group by group."""
    kept = state.early_stopping.kept_losses
    groups = 0 if validation is None else validation.groups
    if kept and len(kept) != groups:
        raise TrainingError(
            "The checkpoint belongs to a fit with other validation rows; delete it to start again."
        )


def _check_finite(loss: float, step: int, rate: float, config: TrainConfig) -> None:
    if not math.isfinite(loss):
        raise TrainingError(
            f"The loss became {loss} at step {step} with a learning rate of {rate:.2g}; "
            f"fit again with a lower learning_rate (it is {config.learning_rate:g})."
        )
