"""A fitted model: the codec, the network and the card, and how they lie in one file.

For everything that uses a model. Tables and tensors meet here and in what builds on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tabmt.codec import serialize as codec_parts
from tabmt.codec.columns import TableCodec
from tabmt.config import NetworkConfig
from tabmt.data.schema import Schema, but_the_table_has
from tabmt.errors import ModelFileError, UserError
from tabmt.method import devices
from tabmt.method.embedding import Field
from tabmt.method.networks import AnyNetwork, build
from tabmt.model import model_file as artifact
from tabmt.model.card import Card
from tabmt.rules.enforce import NO_RULES, RuleBook
from tabmt.rules.rule import Rule
from tabmt.seeds import derive


@dataclass(frozen=True)
class Learned:
    """`net` is None if there is nothing to learn."""

    codec: TableCodec
    net: AnyNetwork | None
    card: Card
    book: RuleBook = NO_RULES

    @property
    def target(self) -> int | None:
        """The token column that is drawn last, if one was named."""
        return token_column(self.codec, self.card.settings.train.target, "target")

    def save(self, path: Path) -> None:
        arrays, entries = codec_parts.to_parts(self.codec)
        tensors = {f"codec/{name}": torch.from_numpy(a.copy()) for name, a in arrays.items()}
        for place, rule in enumerate(self.book.rules):
            if rule.together:
                combinations = self.book.combinations[rule.name]
                tensors[f"rules/{place}"] = torch.from_numpy(combinations.copy())
        if self.net is not None:
            weights = self.net.state_dict()
            tensors |= {f"net/{name}": tensor for name, tensor in weights.items()}
        metadata = {
            "card": self.card.to_json(),
            "schema": self.codec.schema.to_json(),
            "codecs": entries,
        }
        artifact.write(path, "model", metadata, tensors)

    @classmethod
    def load(cls, path: Path) -> "Learned":
        metadata, tensors = artifact.read(path, "model")
        try:
            return _from_parts(metadata, tensors)
        except (KeyError, TypeError, ValueError, AssertionError, RuntimeError, UserError) as error:
            detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelFileError(
                f"{str(path)!r} is a TabMT model whose parts do not fit together ({detail}); "
                "the file is damaged."
            ) from error


def _from_parts(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Learned:
    card = Card.from_json(metadata["card"])
    schema = Schema.from_json(metadata["schema"])
    arrays = {k.removeprefix("codec/"): v.numpy() for k, v in tensors.items() if k[:6] == "codec/"}
    codec = codec_parts.from_parts(schema, arrays, metadata["codecs"])
    weights = {k.removeprefix("net/"): v for k, v in tensors.items() if k[:4] == "net/"}
    rules = [Rule.parse(name, text) for name, text in schema.rules.items()]
    together = {
        rule.name: tensors[f"rules/{place}"].numpy()
        for place, rule in enumerate(rules)
        if rule.together
    }
    assert len(arrays) + len(weights) + len(together) == len(tensors), "unknown tensors"
    book = RuleBook(tuple(rules), together)
    if not codec.token_columns:
        return Learned(codec, None, card, book)
    # Before a network of the size that the file claims is built, the weights must have that size.
    codes = sum(coded.size for coded in codec.token_columns)
    config = card.settings.network
    assert tuple(weights["fields.unordered"].shape) == (codes, config.width), "sizes differ"
    blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    assert len(blocks) == config.depth, "depths differ"
    net = new_network(codec, config, card.seed)
    net.load_state_dict(weights)
    device, _ = devices.pick_device("auto" if card.settings.train.device == "cuda" else "cpu")
    return Learned(codec, net.to(device), card, book)


def new_network(codec: TableCodec, config: NetworkConfig, seed: int) -> AnyNetwork:
    fields = []
    for coded in codec.token_columns:
        ratios = None if coded.ratios is None else tuple(coded.ratios.tolist())
        bins = () if coded.bins is None else tuple(coded.bins.tolist())
        fields.append(Field(coded.size, ratios, bins))
    return build(fields, config, torch.Generator().manual_seed(derive(seed, "weights")))


def token_column(codec: TableCodec, name: str | None, what: str) -> int | None:
    """The place of a column among those that are learned; `what` names it in errors."""
    if name is None:
        return None
    names = codec.schema.names
    if not isinstance(name, str):
        raise UserError(f"The {what} is {name!r}, but must be the name of a column.")
    if name not in names:
        raise UserError(f"The {what} is {name!r}, {but_the_table_has(name, names)}")
    for place, coded in enumerate(codec.token_columns):
        if coded.column.name == name:
            return place
    kind = next(column.kind for column in codec.schema.columns if column.name == name)
    raise UserError(
        f"The {what} is {name!r}, but that column is {kind}, and nothing of it is learned; "
        f"name another {what}, or set its kind in the schema."
    )
