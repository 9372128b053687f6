"""The networks, and the small interface through which sampling sees them.

For `train`, `sample` and `fit`. Both networks have the same methods; what differs between them
stays behind these.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tabmt.config import NetworkConfig
from tabmt.method.any_order import AnyOrderNetwork
from tabmt.method.embedding import Field
from tabmt.method.masked import MaskedNetwork

AnyNetwork = AnyOrderNetwork | MaskedNetwork


class State(Protocol):
    """One batch of rows being filled."""

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """(len(rows), K) of `column`, given everything put so far."""
        ...

    def put(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells of `column` known."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order; a row may come several times."""
        ...


class Source(Protocol):
    """What sampling needs of a network."""

    @property
    def merge_below(self) -> float:
        """Equal prefixes are worth merging while there are fewer than this share of the rows."""
        ...

    def start(self, tokens: Tensor) -> State:
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        ...


class Ready:
    """A network to sample from whose weights stay as they are: what follows from them alone is
    computed once, not for each chunk of rows. Of very many codes it is most of the work."""

    def __init__(self, net: AnyNetwork) -> None:
        self._net, self._tables, self.merge_below = net, net.tables(), net.merge_below

    def start(self, tokens: Tensor) -> State:
        return self._net.start(tokens, self._tables)


def build(fields: Sequence[Field], config: NetworkConfig, generator: torch.Generator) -> AnyNetwork:
    """A freshly initialised network for these fields."""
    match config.network:
        case "masked":
            return MaskedNetwork(fields, config, generator=generator)
        case "any-order":
            return AnyOrderNetwork(fields, config, generator=generator)
