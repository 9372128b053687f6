"""Adjust how often generated values are missing to the rate of the training table.

PAPER-DIFF calibrate_missing: the paper generates no missing values. Small tables stop training
while missing values are still a little too rare or too frequent. One number per column, the bias of
its missing code, corrects that and leaves alone what missing values depend on.
"""

from collections.abc import Sequence

import torch

from tabmt.method.column_order import ColumnOrder
from tabmt.method.networks import FrozenNetwork, Network
from tabmt.method.sample import fill
from tabmt.seeds import derive
from tabmt.tokens import MASK, TokenStore

ROUNDS = 4
CHUNK_ROWS = 64  # with one order: rates differ from order to order, so there must be many
CHUNKS = {"any-order": 48, "masked": 12}  # the masked network is a tenth as fast


def calibrate_missing(
    net: Network,
    tokens: TokenStore,
    missing_codes: Sequence[int | None],
    *,
    seed: int,
    column_order: ColumnOrder,
) -> tuple[float, float]:
    """Adjust the biases of the missing codes in place, if a fresh sample confirms that it helps.

    Returns the largest difference of a rate before and after. `missing_codes` holds the missing
    code of each column, None where there is none.
    """
    columns = [column for column, code in enumerate(missing_codes) if code is not None]
    codes = torch.tensor([missing_codes[column] for column in columns])
    counts = tokens.counts(net.sizes)
    missing = [counts[column][missing_codes[column]] for column in columns]
    real = torch.tensor(missing, dtype=torch.float64) / len(tokens)  # (columns,)
    rows = torch.tensor([net.embedding.codes_of(column).start for column in columns]) + codes
    before = net.output.bias.detach()[rows].clone()

    def rates(*stream: str | int) -> torch.Tensor:
        drawn = _sample(net, derive(seed, "gaps", *stream), column_order)[:, columns]
        return (drawn == codes).double().mean(0)

    for turn in range(ROUNDS):
        drawn = rates(turn)
        sampled = CHUNKS[net.name] * CHUNK_ROWS
        if bool(((drawn - real).abs() <= (real * (1 - real) / sampled).sqrt()).all()):
            break  # as close as this many rows can tell
        step = _log_odds(real, len(tokens)) - _log_odds(drawn, sampled)
        temperature = net.output.temperature().detach()[columns].cpu()
        with torch.no_grad():
            # Smaller and smaller steps: in the end all rounds count alike, not the last alone.
            net.output.bias[rows] += (step * temperature / (turn + 1)).to(net.output.bias)
    after = net.output.bias.detach()[rows].clone()
    differences = []
    for bias in (before, after):
        _set(net.output.bias, rows, bias)
        differences.append(float((rates("check") - real).abs().max()))
    if differences[1] >= differences[0]:
        _set(net.output.bias, rows, before)
        return differences[0], differences[0]
    return differences[0], differences[1]


def _set(bias: torch.nn.Parameter, rows: torch.Tensor, values: torch.Tensor) -> None:
    with torch.no_grad():
        bias[rows] = values


def _sample(net: Network, seed: int, column_order: ColumnOrder) -> torch.Tensor:
    device, columns = next(net.parameters()).device, len(net.sizes)
    frozen = FrozenNetwork(net)
    chunks = []
    for chunk in range(CHUNKS[net.name]):
        generator = torch.Generator().manual_seed(derive(seed, "chunk", chunk))
        blank = torch.full((CHUNK_ROWS, columns), MASK, device=device)
        rows = fill(
            frozen,
            blank,
            temperature=torch.ones(columns),
            generator=generator,
            column_order=column_order,
        )
        chunks.append(rows)
    return torch.cat(chunks).cpu()


def _log_odds(share: torch.Tensor, rows: int) -> torch.Tensor:
    """With half a row more on either side, so that 0 and 1 stay finite."""
    return torch.log((share * rows + 0.5) / ((1 - share) * rows + 0.5))
