"""Read the networks instead of drawing from them: likelihoods, probabilities, embeddings.

Works on integer tokens; what a cell's number weighs inside its code is added by the caller.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tabmt.method.networks import AnyNetwork

ROWS_AT_ONCE = 1024


def log_prob(net: AnyNetwork, tokens: Tensor, orders: Tensor) -> Tensor:
    """Log-probability of each cell given those before it, (B, C) and (S, C) -> (S, B, C), float64.

    One layer for each of S orders; along one order the cells of a row sum to the row's
    log-likelihood. Cells that are MASK are not known and count 0.
    """
    layers = []
    for order in orders:
        parts = [
            net.log_prob(part, order.expand(len(part), -1)).double() for part in _parts(tokens)
        ]
        layers.append(torch.cat(parts) if parts else tokens.double())
    return torch.stack(layers)


def probabilities(net: AnyNetwork, tokens: Tensor, column: int) -> Tensor:
    """Distribution of the codes of a column given the row's known cells, (B, C) -> (B, K)."""
    found = []
    for part in _parts(tokens):
        every = torch.arange(len(part), device=part.device)
        logits = net.start(part).logits(every, column)
        found.append(logits.double().softmax(1))
    return torch.cat(found) if found else tokens.new_zeros(0, net.fields.sizes[column]).double()


def embed(net: AnyNetwork, tokens: Tensor) -> Tensor:
    """What the network makes of whole rows: the mean of its fields' outputs, (B, C) -> (B, D)."""
    parts = [net.embed(part) for part in _parts(tokens)]
    return torch.cat(parts) if parts else torch.zeros(0, net.positions.shape[1])


def _parts(tokens: Tensor) -> Iterator[Tensor]:
    if len(tokens):
        with torch.inference_mode():
            yield from torch.split(tokens, ROWS_AT_ONCE)
