"""The networks, and the small interface through which training and sampling see them.

For `train`, `sample` and the synthesizer. Whatever satisfies `Network` can be trained and sampled
from; what differs between networks stays behind it.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tabmt.config import NetworkConfig
from tabmt.fields import Field
from tabmt.networks.masked import MaskedNetwork


class State(Protocol):
    """One batch of rows being filled."""

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """(len(rows), K) of `column`, given everything put so far."""
        ...

    def put(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells of `column` known."""
        ...


class Network(Protocol):
    """What sampling needs of a network."""

    def start(self, tokens: Tensor) -> State:
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        ...


def build(
    fields: Sequence[Field], config: NetworkConfig, generator: torch.Generator
) -> MaskedNetwork:
    """A freshly initialised network for these fields."""
    match config.network:
        case "masked":
            return MaskedNetwork(fields, config, generator=generator)
