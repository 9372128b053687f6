"""A fitted model: the codec, the network, the rules and the card. Connects tables and tensors."""

import dataclasses
from dataclasses import dataclass, field

import torch

from tabmt.codec.table import TableCodec
from tabmt.config import NetworkConfig
from tabmt.errors import UserError
from tabmt.memory import available_memory
from tabmt.method.column_order import ColumnOrder
from tabmt.method.embedding import Field, smoothing_bytes
from tabmt.method.networks import Network, build_network
from tabmt.model.model_card import ModelCard, Settings
from tabmt.rules.enforce import RuleSet
from tabmt.rules.enforce_found import FoundRules
from tabmt.seeds import derive

MOST_BUFFERS = 2**31  # bytes that a network may hold besides its weights


@dataclass(frozen=True)
class FittedModel:
    """`net` is None if no column varies, so that there was nothing to learn."""

    codec: TableCodec
    net: Network | None
    card: ModelCard
    rules: RuleSet = field(default_factory=RuleSet)

    @property
    def column_order(self) -> ColumnOrder:
        """Which columns are generated first and which last."""
        return order_of_columns(self.codec, self.card.settings)


def order_of_columns(codec: TableCodec, settings: Settings) -> ColumnOrder:
    """Which columns come first and last, by the settings of a model."""
    target = token_column(codec, settings.train.target, "target")
    generation = settings.generation
    return ColumnOrder.of(
        codec.sizes,
        target=target if generation.target_last else None,
        large_first=generation.large_columns_first,
    )


def order_of_training(codec: TableCodec, settings: Settings, rules: RuleSet) -> ColumnOrder:
    """The same for training, which also has a place for columns that rules compute: half of its
    orders are those in which rows without conditions are generated."""
    order = order_of_columns(codec, settings)
    found = FoundRules.of(rules, codec, conditioned=(), allow_missing=True)
    if found is None:
        return order
    return dataclasses.replace(order, late=found.last, computed=found.leave)


def new_network(codec: TableCodec, config: NetworkConfig, seed: int) -> Network:
    fields = []
    for coded in codec.token_columns:
        ratios, is_bin = coded.codec.ratios, coded.codec.is_bin
        fields.append(
            Field(
                coded.size,
                None if ratios is None else tuple(ratios.tolist()),
                () if is_bin is None else tuple(is_bin.tolist()),
            )
        )
    return build_network(fields, config, torch.Generator().manual_seed(derive(seed, "weights")))


def check_buffers(codec: TableCodec, config: NetworkConfig) -> None:
    """Refuse columns for which a network would need far more memory than its weights have."""
    if config.smoothing == 0:
        return
    is_bin = [coded.codec.is_bin for coded in codec.token_columns]
    needed = smoothing_bytes([int(bins.sum()) for bins in is_bin if bins is not None])
    if needed > min(MOST_BUFFERS, available_memory() // 2):
        raise UserError(
            f"The bins of {len(codec.token_columns):,} columns would need {needed / 1e9:.1f} GB of "
            "memory; set smoothing=0, or lower max_bins."
        )


def token_column(codec: TableCodec, name: str | None, what: str) -> int | None:
    """The index of a column among those that are learned; `what` names it in errors."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise UserError(f"The {what} is {name!r}, but must be the name of a column.")
    coded = codec.find(name, f"The {what} is")
    if name not in codec.token_index:
        raise UserError(
            f"The {what} is {name!r}, but a column of kind {coded.column.kind} is not learned; "
            f"name another {what}, or set its kind in the schema."
        )
    return codec.token_index[name]
