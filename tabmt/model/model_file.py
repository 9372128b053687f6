"""Models and checkpoints on disk: one safetensors file each, with JSON as its metadata.

Loading runs no code. A checksum over all bytes detects a damaged file. Because anybody can compute
one, all content is also checked before it is used. Large arrays (vocabularies, bin edges) are
tensors, because a safetensors header has to stay small.
"""

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tabmt.codec.table import TableCodec
from tabmt.data.schema import Schema
from tabmt.errors import ModelFileError, UserError
from tabmt.fingerprint import fingerprint
from tabmt.json_files import MOST_BYTES, parse_json, require
from tabmt.memory import available_memory
from tabmt.method import devices
from tabmt.method.networks import Network
from tabmt.model.fitted_model import FittedModel, check_buffers, new_network, order_of_columns
from tabmt.model.model_card import ModelCard
from tabmt.outputs import check_replaceable
from tabmt.rules.enforce import RuleSet, parse_rules
from tabmt.tokens import MASK
from tabmt.writing import replacing

FORMAT = 5
CHECKSUM_BYTES = 32
BLOCK_BYTES = 2**20  # read at a time for the checksum
MOST_HEADER = 2**26  # the metadata, and a line for each tensor
FileKind = Literal["model", "checkpoint"]


def save_model(model: FittedModel, path: Path, *, force: bool = False) -> None:
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
    write_file(path, "model", metadata, tensors, force=force)


def load_model(path: Path) -> FittedModel:
    metadata, tensors = read_file(path, "model")
    try:
        return _from_parts(metadata, tensors)
    # What wrong content leads to, besides the errors of our own checks.
    except (
        ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, UserError,
    ) as error:  # fmt: skip
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelFileError(
            f"The TabMT model {str(path)!r} is inconsistent ({detail}); the file is damaged."
        ) from error


def _from_parts(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedModel:
    for name in ("card", "schema", "codecs"):
        require(name in metadata, f"there is no {name}")
    card = ModelCard.from_json(metadata["card"])
    schema = Schema.from_json(metadata["schema"])
    arrays = {name: tensor.numpy() for name, tensor in _under("codec/", tensors).items()}
    codec = TableCodec.from_parts(schema, arrays, metadata["codecs"])
    codec.check()
    rules = _rules(codec, _under("rules/", tensors))
    weights = _under("net/", tensors)
    require(
        len(arrays) + len(weights) + len(rules.combinations) == len(tensors),
        "there are unknown tensors",
    )
    for name, temperature in card.temperatures.items():
        require(name in schema.names, "a temperature is of an unknown column")
        require(0 <= temperature < math.inf, "a temperature is negative or infinite")
    if not codec.token_columns:
        require(not weights, "there are weights, but nothing is learned")
        return FittedModel(codec, None, card, rules)
    order_of_columns(codec, card.settings)  # the target exists
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
            names = [name for name in rule.columns if name in codec.token_index]
            stored = tensors.get(str(index))
            if stored is None or stored.dtype != torch.int64 or stored.shape[1:] != (len(names),):
                raise ValueError(f"the combinations of rule {rule.name!r} are missing")
            codes = stored.numpy()
            sizes = np.array([codec[name].size for name in names], np.int64)
            require(
                bool(((codes >= MASK) & (codes < sizes)).all()),
                f"the combinations of rule {rule.name!r} are no codes",
            )
            combinations[rule.name] = codes
    return RuleSet(rules, combinations, frozenset(codec.schema.found))


def _network(codec: TableCodec, card: ModelCard, weights: Mapping[str, Tensor]) -> Network:
    """A network of the size that the file claims: only if the weights have that size."""
    config = card.settings.network
    blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    require(len(blocks) == config.depth, "the network has the wrong depth")
    embeddings = weights.get("embedding.unordered")
    require(
        embeddings is not None and tuple(embeddings.shape) == (sum(codec.sizes), config.width),
        "the embeddings have the wrong size",
    )
    # So a network takes at most some ten times the memory of the weights that are here.
    numbers = sum(tensor.numel() for name, tensor in weights.items() if name.startswith("blocks."))
    require(numbers >= config.depth * config.width**2, "the blocks have the wrong size")
    check_buffers(codec, config)
    net = new_network(codec, config, card.seed)
    expected = net.state_dict()
    require(set(expected) == set(weights), "the weights are not those of the network")
    for name, tensor in weights.items():
        require(tensor.shape == expected[name].shape, f"the weight {name} has the wrong size")
        require(tensor.dtype == expected[name].dtype, f"the weight {name} has the wrong type")
        require(bool(torch.isfinite(tensor).all()), f"the weight {name} holds NaN or infinity")
    net.load_state_dict(weights)
    return net


# --- the file ------------------------------------------------------------------------------


def write_file(
    path: Path,
    kind: FileKind,
    metadata: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    force: bool = False,
) -> None:
    """Write beside `path` and rename, so that a file is always complete."""
    check_replaceable(path, kind, force=force)
    text = json.dumps({"format": FORMAT, "kind": kind, **metadata}, allow_nan=False)
    require(len(text) < MOST_BYTES, "the schema is too large for a file")
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {"tabmt": text, "checksum": "0" * 2 * CHECKSUM_BYTES}
    with replacing(path) as temporary:
        try:
            safetensors.torch.save_file(contiguous, temporary, metadata=about)
        except safetensors.SafetensorError as error:
            raise UserError(f"{str(path)!r} cannot be written: {error}.") from error
        with temporary.open("r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            position = 8 + _checksum_position(file.read(length))
            file.seek(0)
            digest = _digest(file, position)
            file.seek(position)
            file.write(digest)


def read_file(path: Path, kind: FileKind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata and the tensors of a file whose checksum is right."""
    if not path.is_file():
        raise UserError(f"There is no {kind} file {str(path)!r}.")
    try:
        size = path.stat().st_size
        if size > available_memory() // 2:
            raise UserError(
                f"{str(path)!r} is too large for this machine's memory ({size:,} bytes)."
            )
        with path.open("rb") as file:
            content = file.read(size)
        metadata = _checked_metadata(path, kind, content)
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        detail = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelFileError(
            f"{str(path)!r} cannot be read as a TabMT {kind}: it is damaged or a file of another "
            f"kind ({detail})."
        ) from error
    return metadata, tensors


def _checked_metadata(path: Path, kind: FileKind, content: bytes) -> dict[str, Any]:
    """The metadata of a file of this kind and version, if the checksum is right."""
    length = int.from_bytes(content[:8], "little")
    require(2 <= length <= min(len(content) - 8, MOST_HEADER), "it has no header")
    header = content[8 : 8 + length]
    about = parse_json(header)
    about = about.get("__metadata__") if isinstance(about, dict) else None
    if not isinstance(about, dict) or not isinstance(about.get("tabmt"), str):
        raise ModelFileError(f"{str(path)!r} is not a TabMT {kind}.")
    metadata = parse_json(about["tabmt"])
    _check_format(path, kind, metadata)
    position = _checksum_position(header)
    stored = header[position : position + 2 * CHECKSUM_BYTES]
    computed = _digest(io.BytesIO(content), 8 + position)
    require(stored == computed, "its checksum is wrong")
    return metadata  # type: ignore[no-any-return]


def _checksum_position(header: bytes) -> int:
    """Where the digits of the checksum are in a header."""
    found = list(re.finditer(rb'"checksum":"[0-9a-f]{%d}"' % (2 * CHECKSUM_BYTES), header))
    require(len(found) == 1, "it has no checksum")
    return found[0].start() + len('"checksum":"')


def _digest(file: BinaryIO, position: int) -> bytes:
    """The checksum of a file, from where it stands, with zeros for the digits at `position`."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    digest.update(file.read(position))
    file.seek(position + 2 * CHECKSUM_BYTES)
    digest.update(b"0" * 2 * CHECKSUM_BYTES)
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest().encode()


def _check_format(path: Path, kind: FileKind, metadata: Any) -> None:
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        shown = found if isinstance(found, int) else "unknown"
        raise ModelFileError(
            f"{str(path)!r} has format {shown}, but this version of TabMT reads format {FORMAT}. "
            "Load it with the version that wrote it, or fit again."
        )
    if metadata.get("kind") != kind:
        other = metadata.get("kind")
        shown = other if other in get_args(FileKind) else "file of another kind"
        raise ModelFileError(f"{str(path)!r} is a {shown}, not a {kind}.")


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
