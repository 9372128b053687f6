"""Read the networks instead of drawing from them: likelihoods, probabilities, embeddings.

Works on integer tokens; the likelihood of a number inside its code is added by the caller.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tabmt.method.networks import Network

ROWS_AT_ONCE = 1024


def log_prob(net: Network, tokens: Tensor, orders: Tensor) -> Tensor:
    """Log-probability of each cell given those before it, (B, C) and (S, C) -> (S, B, C), float64.

    One layer for each of S orders; along one order the cells of a row sum to the row's
    log-likelihood. Cells that are MASK are unknown and count 0.
    """
    layers = []
    for order in orders:
        chunks = [
            net.log_prob(chunk, order.expand(len(chunk), -1)).double() for chunk in _chunks(tokens)
        ]
        layers.append(torch.cat(chunks) if chunks else tokens.double())
    return torch.stack(layers)


def probabilities(net: Network, tokens: Tensor, column: int) -> Tensor:
    """Distribution of the codes of a column given the row's known cells, (B, C) -> (B, K)."""
    chunks = []
    for chunk in _chunks(tokens):
        every = torch.arange(len(chunk), device=chunk.device)
        logits = net.start(chunk).logits(every, column)
        chunks.append(logits.double().softmax(1))
    return torch.cat(chunks) if chunks else tokens.new_zeros(0, net.sizes[column]).double()


def embed(net: Network, tokens: Tensor) -> Tensor:
    """The network's representation of rows: the mean of the columns' outputs, (B, C) -> (B, D)."""
    chunks = [net.embed(chunk) for chunk in _chunks(tokens)]
    return torch.cat(chunks) if chunks else torch.zeros(0, net.positions.shape[1])


def _chunks(tokens: Tensor) -> Iterator[Tensor]:
    if len(tokens):
        with torch.inference_mode():
            yield from torch.split(tokens, ROWS_AT_ONCE)
