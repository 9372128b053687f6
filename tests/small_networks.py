"""A small network of each kind, away from its near-uniform start, and tokens that suit it."""

import torch
from torch import Tensor

from tabmt.config import NetworkConfig, NetworkName
from tabmt.method.embedding import Field
from tabmt.method.networks import Network, build_network

FIELDS = (
    Field(3, None),
    Field(5, (0.0, 0.2, 0.5, 1.0)),
    Field(2, None),
    Field(4, (0, 0.3, 0.6, 1)),
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(network: NetworkName) -> NetworkConfig:
    return NetworkConfig(network=network, width=16, depth=2, heads=2)


def make(
    config: NetworkConfig, fields: tuple[Field, ...] = FIELDS, *, noise: float = 0.3, seed: int = 1
) -> Network:
    net = build_network(fields, config, generator())
    with torch.no_grad():  # away from the near-uniform start, so that differences show
        for parameter in net.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator(seed)))
    return net


def some_tokens(rows: int, seed: int = 2, fields: tuple[Field, ...] = FIELDS) -> Tensor:
    columns = [torch.randint(0, f.size, (rows,), generator=generator(seed)) for f in fields]
    return torch.stack(columns, 1)
