"""Models and checkpoints on disk: one safetensors file each, with JSON as its metadata.

Loading runs no code, and everything is checked before it is used. Large things (vocabularies, bin
edges) are tensors, because a safetensors header has to stay small.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tabmt.codec.table import TableCodec
from tabmt.data.files import replacing
from tabmt.data.schema import Schema
from tabmt.errors import ModelFileError, UserError
from tabmt.fingerprint import fingerprint
from tabmt.json_files import require
from tabmt.method import devices
from tabmt.method.networks import Network
from tabmt.model.fitted_model import FittedModel, new_network
from tabmt.model.model_card import ModelCard
from tabmt.rules.enforce import RuleSet, parse_rules

FORMAT = 3
FileKind = Literal["model", "checkpoint"]


def save_model(model: FittedModel, path: Path) -> None:
    arrays, entries = model.codec.to_parts()
    tensors = {f"codec/{name}": torch.from_numpy(a.copy()) for name, a in arrays.items()}
    for index, rule in enumerate(model.rules.rules):
        if rule.is_combination:
            combinations = model.rules.combinations[rule.name]
            tensors[f"rules/{index}"] = torch.from_numpy(combinations.copy())
    if model.net is not None:
        tensors |= {f"net/{name}": tensor for name, tensor in model.net.state_dict().items()}
    metadata = {
        "card": model.card.to_json(),
        "schema": model.codec.schema.to_json(),
        "codecs": entries,
    }
    write_file(path, "model", metadata, tensors)


def load_model(path: Path) -> FittedModel:
    metadata, tensors = read_file(path, "model")
    try:
        return _from_parts(metadata, tensors)
    except (ValueError, UserError, RuntimeError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelFileError(
            f"{str(path)!r} is a TabMT model whose parts do not fit together ({detail}); "
            "the file is damaged."
        ) from error


def _from_parts(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedModel:
    for name in ("card", "schema", "codecs"):
        require(name in metadata, f"there is no {name}")
    card = ModelCard.from_json(metadata["card"])
    schema = Schema.from_json(metadata["schema"])
    arrays = {name: tensor.numpy() for name, tensor in _under("codec/", tensors).items()}
    codec = TableCodec.from_parts(schema, arrays, metadata["codecs"])
    rules = _rules(codec, _under("rules/", tensors))
    weights = _under("net/", tensors)
    require(
        len(arrays) + len(weights) + len(rules.combinations) == len(tensors),
        "there are unknown tensors",
    )
    if not codec.token_columns:
        return FittedModel(codec, None, card, rules)
    net = _network(codec, card, weights)
    device, _ = devices.pick_device("auto" if card.settings.train.device == "cuda" else "cpu")
    return FittedModel(codec, net.to(device), card, rules)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a part of the file, without its prefix."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _rules(codec: TableCodec, tensors: Mapping[str, Tensor]) -> RuleSet:
    rules = parse_rules(codec.schema)
    combinations: dict[str, np.ndarray] = {}
    for index, rule in enumerate(rules):
        if rule.is_combination:
            columns = sum(name in codec.token_index for name in rule.columns)
            stored = tensors.get(str(index))
            require(
                stored is not None and stored.shape[1:] == (columns,),
                f"the combinations of rule {rule.name!r} are missing",
            )
            assert stored is not None
            combinations[rule.name] = stored.numpy()
    return RuleSet(rules, combinations, frozenset(codec.schema.found))


def _network(codec: TableCodec, card: ModelCard, weights: Mapping[str, Tensor]) -> Network:
    # Before a network of the size that the file claims is built, the weights must have that size.
    config = card.settings.network
    embeddings = weights.get("embedding.unordered")
    require(
        embeddings is not None and tuple(embeddings.shape) == (sum(codec.sizes), config.width),
        "the embeddings have the wrong size",
    )
    blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    require(len(blocks) == config.depth, "the network has the wrong depth")
    net = new_network(codec, config, card.seed)
    net.load_state_dict(weights)
    return net


def write_file(
    path: Path, kind: FileKind, metadata: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Write beside `path` and rename, so that a file is always complete."""
    text = json.dumps({"format": FORMAT, "kind": kind, **metadata})
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            safetensors.torch.save_file(contiguous, temporary, metadata={"tabmt": text})
        except safetensors.SafetensorError as error:
            raise UserError(f"{str(path)!r} cannot be written: {error}.") from error


def read_file(path: Path, kind: FileKind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise UserError(f"There is no {kind} file {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            names = list(file.keys())
            if "tabmt" not in header:
                raise ModelFileError(f"{str(path)!r} is not a TabMT {kind}.")
            metadata = json.loads(header["tabmt"])
            _check_format(path, kind, metadata)
            tensors = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, json.JSONDecodeError, OSError) as error:
        raise ModelFileError(
            f"{str(path)!r} cannot be read as a TabMT {kind}: it is damaged or a file of another "
            f"kind ({error})."
        ) from error
    return metadata, tensors


def _check_format(path: Path, kind: FileKind, metadata: Any) -> None:
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise ModelFileError(
            f"{str(path)!r} has format {found!r}, but this version of TabMT reads format {FORMAT}. "
            "Load it with the version that wrote it, or fit again."
        )
    if metadata.get("kind") != kind:
        raise ModelFileError(f"{str(path)!r} is a {metadata.get('kind')}, not a {kind}.")


def model_fingerprint(model: FittedModel) -> str:
    """Tells a model from others, whatever temperatures it carries."""
    arrays, entries = model.codec.to_parts()
    card = {**model.card.to_json(), "temperatures": {}}
    weights = [] if model.net is None else model.net.state_dict().values()
    return fingerprint(
        [card, model.codec.schema.to_json(), entries],
        *(arrays[name] for name in sorted(arrays)),
        *(tensor.cpu().numpy() for tensor in weights),
    )
