"""Hold the gaps that a model generates to the rate that the training table has.

For the synthesizer, after training. Small tables stop training while gaps are still a little too
rare or too frequent; one number per column, the bias of its missing code, puts that right and
leaves what gaps depend on alone.
"""

from collections.abc import Sequence

import torch

from tabmt.method.networks import AnyNetwork, Ready
from tabmt.method.sample import draw_order, fill
from tabmt.seeds import derive
from tabmt.tokens import MASK, TokenStore

ROUNDS = 4
CHUNK = 64  # rows per order: rates differ from order to order, so there must be many
CHUNKS = {"any-order": 48, "masked": 12}  # the masked network is a tenth as fast


def calibrate_gaps(
    net: AnyNetwork,
    tokens: TokenStore,
    missing: Sequence[int | None],
    *,
    seed: int,
    last: int | None,
) -> tuple[float, float]:
    """Adjust the missing codes' biases in place; the largest difference of a rate at first and in
    the last round, which is drawn anew.

    `missing` holds the missing code of each column, None where there is none.
    """
    columns = [column for column, code in enumerate(missing) if code is not None]
    codes = torch.tensor([missing[column] for column in columns])
    counts = tokens.counts(net.fields.sizes)
    found_gaps = [counts[column][missing[column]] for column in columns]
    real = torch.tensor(found_gaps, dtype=torch.float64) / len(tokens)  # (gappy columns,)
    rows = torch.tensor([net.fields.codes_of(column).start for column in columns]) + codes
    gaps: list[float] = []
    for turn in range(ROUNDS):
        drawn = _sample(net, derive(seed, "gaps", turn), last)[:, columns]
        found = (drawn == codes).double().mean(0)
        gaps.append(float((found - real).abs().max()))
        if bool(((found - real).abs() <= (real * (1 - real) / len(drawn)).sqrt()).all()):
            break  # as near as so many rows can tell
        step = _log_odds(real, len(tokens)) - _log_odds(found, len(drawn))
        heat = torch.sigmoid(net.fields.temperature.detach())[columns].cpu()
        with torch.no_grad():
            # Smaller and smaller steps: in the end all rounds count alike, not the last alone.
            net.fields.bias[rows] += (step * heat / (turn + 1)).to(net.fields.bias)
    return gaps[0], gaps[-1]


def _sample(net: AnyNetwork, seed: int, last: int | None) -> torch.Tensor:
    device = next(net.parameters()).device
    columns = len(net.fields.sizes)
    parts, ready = [], Ready(net)
    for chunk in range(CHUNKS[net.name]):
        generator = torch.Generator().manual_seed(derive(seed, "chunk", chunk))
        order = draw_order(net.fields.sizes, generator, last)
        blank = torch.full((CHUNK, columns), MASK, device=device)
        heat = torch.ones(columns)
        parts.append(fill(ready, blank, temperature=heat, generator=generator, order=order))
    return torch.cat(parts).cpu()


def _log_odds(share: torch.Tensor, rows: int) -> torch.Tensor:
    """With half a row more on either side, so that 0 and 1 stay finite."""
    return torch.log((share * rows + 0.5) / ((1 - share) * rows + 0.5))
