"""Models and checkpoints on disk: one safetensors file each, whose metadata is JSON.

Loading runs no code. Whatever is not exactly what this version writes is refused with a sentence.
Large things (vocabularies, bin edges) are tensors, because a safetensors header must stay small.
"""

import json
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
from torch import Tensor

from tabmt.data.files import replacing
from tabmt.errors import ModelFileError, UserError

FORMAT = 2
FileKind = Literal["model", "checkpoint"]


def write(path: Path, kind: FileKind, metadata: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write beside `path` and rename, so that a file is always whole."""
    text = json.dumps({"format": FORMAT, "kind": kind, **metadata})
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as beside:
        try:
            safetensors.torch.save_file(whole, beside, metadata={"tabmt": text})
        except safetensors.SafetensorError as error:
            raise UserError(f"{str(path)!r} cannot be written: {error}.") from error


def read(path: Path, kind: FileKind) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise UserError(f"There is no {kind} file {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            names = list(file.keys())
            if "tabmt" not in header:
                raise ModelFileError(f"{str(path)!r} is not a TabMT {kind}.")
            metadata = json.loads(header["tabmt"])
            _check(path, kind, metadata)
            tensors = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, json.JSONDecodeError, OSError) as error:
        raise ModelFileError(
            f"{str(path)!r} cannot be read as a TabMT {kind}: the file is damaged or of another "
            f"sort ({error})."
        ) from error
    return metadata, tensors


def _check(path: Path, kind: FileKind, metadata: Any) -> None:
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise ModelFileError(
            f"{str(path)!r} has format {found!r}, but this version of TabMT reads format {FORMAT}. "
            "Load it with the version that wrote it, or fit again."
        )
    if metadata.get("kind") != kind:
        raise ModelFileError(f"{str(path)!r} is a {metadata.get('kind')}, not a {kind}.")
