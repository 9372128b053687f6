"""The two networks behind one interface: how to build them, and how sampling sees them."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tabmt.config import NetworkConfig
from tabmt.method.any_order import AnyOrderNetwork
from tabmt.method.embedding import Field
from tabmt.method.masked import MaskedNetwork

Network = AnyOrderNetwork | MaskedNetwork


def build_network(
    fields: Sequence[Field], config: NetworkConfig, generator: torch.Generator
) -> Network:
    """A freshly initialised network for these columns."""
    match config.network:
        case "masked":
            return MaskedNetwork(fields, config, generator=generator)
        case "any-order":
            return AnyOrderNetwork(fields, config, generator=generator)


class State(Protocol):
    """One batch of rows that is being filled."""

    def logits(self, rows: Tensor, column: int) -> Tensor:
        """(len(rows), K) of `column`, given everything that was set so far."""
        ...

    def set(self, rows: Tensor, column: int, codes: Tensor) -> None:
        """Make cells of `column` known."""
        ...

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, in this order; a row may come several times."""
        ...


class Source(Protocol):
    """What sampling needs of a network."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        ...

    @property
    def merge_below(self) -> float:
        """Equal prefixes are merged while their number is below this share of the rows."""
        ...

    def start(self, tokens: Tensor) -> State:
        """Begin to fill a batch, (B, C) with MASK where nothing is known."""
        ...


class FrozenNetwork:
    """A network whose weights do not change any more. What follows from the weights alone is
    computed once, not for each chunk of rows; with very many codes it is most of the work."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._tables: Any = net.tables()
        self.sizes, self.merge_below = net.sizes, net.merge_below

    def start(self, tokens: Tensor) -> State:
        return self._net.start(tokens, self._tables)
