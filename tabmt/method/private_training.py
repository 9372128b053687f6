"""DP-SGD: train the any-order network with a bounded and noisy influence of each row.

Each step draws every row with the same probability, computes the gradient of each drawn row by
itself (`torch.func`), scales it down to a bounded norm, and adds noise to the sum (Abadi et al.
2016). There are no validation checks, no early stop, and orders do not depend on the rows. Who
draws the rows and the noise is the caller's business, and so is the accounting. A network whose
tables serve as input and as output has one gradient for both, so nothing is counted twice.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from tabmt.method.any_order import AnyOrderNetwork, causal_mask, draw_orders
from tabmt.method.column_order import RANDOM_ORDER, ColumnOrder
from tabmt.method.train import Progress, Summary
from tabmt.seeds import derive
from tabmt.tokens import MASK

MOST_GRADIENTS = 2**24  # numbers of the gradients of single rows that exist at a time
CLIP = 1.0
SHOWN_ROWS = 64  # private rows, of which the loss is shown
AVERAGED = 0.9  # the share of the steps after which the weights begin to be averaged

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class PrivateSteps:
    """What decides, together with the noise, how much the steps spend."""

    steps: int
    rate: float  # the probability of a row to be in a batch
    noise: float  # standard deviations, in norms that a row's gradient may have


class RowLoss(torch.nn.Module):
    """The mean cross entropy of the cells of one row, written so that `vmap` can batch it: nothing
    depends on the values of tensors but other tensors."""

    def __init__(self, net: AnyOrderNetwork) -> None:
        super().__init__()
        self.net = net

    def forward(self, tokens: Tensor, order: Tensor) -> Tensor:
        """The loss of a row, (C,), whose columns are predicted in an order, (C,)."""
        net = self.net
        table = net.embedding.table()
        masked = (tokens[order] == MASK).to(torch.int8)
        order = order[masked.argsort(stable=True)]  # masked cells after the known ones
        x = net._inputs(net._input_table(table), tokens[None], order[None])  # (1, C, D)
        mask = causal_mask(x.shape[1], x)
        for block in net.blocks:
            x = block(x, None, mask)
        x = net.norm(x)[0][order.argsort()]  # (C, D), by column
        losses = [
            F.log_softmax(output.logits(inputs[None]), 1)[0]
            for output, inputs in zip(net.output.columns(table), x.unbind(), strict=True)
        ]
        nats = torch.stack(
            [
                -own.gather(0, code[None].clamp(min=0))[0]
                for own, code in zip(losses, tokens.unbind(), strict=True)
            ]
        )
        known = (tokens != MASK).to(nats.dtype)
        return (nats * known).sum() / len(tokens)


def row_gradients(net: AnyOrderNetwork, tokens: Tensor, orders: Tensor) -> Weights:
    """The gradient of each row of a batch: (B, ...) for each parameter."""
    loss = RowLoss(net)
    weights = {name: parameter.detach() for name, parameter in loss.named_parameters()}

    def of_row(weights: Weights, row: Tensor, order: Tensor) -> Tensor:
        return functional_call(loss, weights, (row, order))  # type: ignore[no-any-return]

    gradients: Weights = vmap(grad(of_row), in_dims=(None, 0, 0))(weights, tokens, orders)
    return gradients


def clipped_sum(net: AnyOrderNetwork, tokens: Tensor, orders: Tensor, clip: float) -> Tensor:
    """The sum of the gradients of rows, each with a norm of at most `clip`: one vector."""
    size = sum(parameter.numel() for parameter in net.parameters())
    total = torch.zeros(size)
    at_once = max(1, MOST_GRADIENTS // size)
    pieces = zip(torch.split(tokens, at_once), torch.split(orders, at_once), strict=True)
    for rows, own in pieces if len(tokens) else ():
        parts = [g.flatten(1) for g in row_gradients(net, rows, own).values()]
        norms = torch.stack([part.square().sum(1) for part in parts]).sum(0).sqrt()  # (B,)
        factors = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
        total += torch.cat([factors @ part for part in parts])
    return total


def train_privately(
    net: AnyOrderNetwork,
    tokens: np.ndarray,
    plan: PrivateSteps,
    *,
    seed: int,
    learning_rate: float,
    draw_rows: Callable[[], np.ndarray],
    noisy: Callable[[np.ndarray, float], np.ndarray],
    rows: float,
    column_order: ColumnOrder = RANDOM_ORDER,
    shown: np.ndarray | None = None,
    on_step: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Summary:
    """Train a network in place, and leave the mean of its last weights in it.

    `tokens` are the real rows, (rows, C). `draw_rows` returns the rows of the next batch, and
    `noisy` adds noise of some standard deviation to a sum; all that changes the network has passed
    through it. `rows` is a noisy number of rows, by which sums become means. `shown` are private
    rows, of which the loss is reported.
    """
    started = time.monotonic()
    parameters = list(net.parameters())
    optimizer = torch.optim.Adam(parameters, lr=learning_rate, betas=(0.9, 0.99))
    average, averaged, step = copy.deepcopy(net), 0, 0
    expected = max(1.0, plan.rate * rows)
    while step < plan.steps and not (should_stop is not None and should_stop()):
        generator = torch.Generator().manual_seed(derive(seed, "orders", step))
        batch = torch.from_numpy(tokens[draw_rows()])
        orders = _orders((len(batch), batch.shape[1]), generator, column_order)
        total = clipped_sum(net, batch, orders, CLIP)
        released = noisy(total.numpy().astype(np.float64), plan.noise * CLIP)
        _set_gradients(parameters, torch.from_numpy(released / expected).float())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * _schedule(step, plan.steps)
        optimizer.step()
        step += 1
        if step > AVERAGED * plan.steps or step == plan.steps:
            averaged += 1
            _move_average(average, net, 1 / averaged)
        if on_step is not None and shown is not None:
            on_step(_progress(net, shown, step, plan, time.monotonic() - started, expected))
    if averaged:
        net.load_state_dict(average.state_dict())
    stopped = "steps" if step == plan.steps else "asked"
    seconds = time.monotonic() - started
    return Summary(step, seconds, step, None, None, stopped)  # type: ignore[arg-type]


def _orders(
    shape: tuple[int, int], generator: torch.Generator, column_order: ColumnOrder
) -> Tensor:
    """Orders in which every column is predicted, also those that rules compute."""
    orders = draw_orders(shape, generator, column_order)
    return torch.where(orders < 0, -1 - orders, orders)


def _set_gradients(parameters: Sequence[Tensor], vector: Tensor) -> None:
    position = 0
    for parameter in parameters:
        own = vector[position : position + parameter.numel()]
        parameter.grad = own.view_as(parameter)
        position += parameter.numel()


def _schedule(step: int, steps: int) -> float:
    """A short warm-up, and a cosine down to a tenth."""
    warm = min(1.0, (step + 1) / max(1.0, 0.05 * steps))
    return warm * (0.1 + 0.45 * (1 + math.cos(math.pi * step / max(1, steps))))


def _move_average(average: AnyOrderNetwork, net: AnyOrderNetwork, share: float) -> None:
    with torch.no_grad():
        for mean, parameter in zip(average.parameters(), net.parameters(), strict=True):
            mean.lerp_(parameter, share)


def _progress(
    net: AnyOrderNetwork,
    shown: np.ndarray,
    step: int,
    plan: PrivateSteps,
    seconds: float,
    expected: float,
) -> Progress:
    generator = torch.Generator().manual_seed(0)
    rows = torch.from_numpy(shown[:SHOWN_ROWS])
    with torch.no_grad():
        total, count = net.loss_sum_and_count(
            rows, _orders((len(rows), rows.shape[1]), generator, RANDOM_ORDER)
        )
    return Progress(
        step=step,
        steps=plan.steps,
        loss=total.item() / max(1, count),
        valid_loss=None,
        rows_per_second=step * expected / max(seconds, 1e-9),
        seconds=seconds,
        seconds_left=seconds / step * (plan.steps - step),
    )
