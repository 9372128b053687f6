"""Unfinished training runs on disk: write one, and read it back for the same table and settings."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from tabmt.config import TrainConfig
from tabmt.data.schema import Schema
from tabmt.errors import ModelFileError, UserError
from tabmt.fingerprint import fingerprint
from tabmt.json_files import convert, require
from tabmt.method.train import SavedRun, TrainState
from tabmt.model.model_card import ModelCard, Settings
from tabmt.model.model_file import read_file, write_file
from tabmt.tokens import TokenStore

FREE_ON_RESUME = (
    "checkpoint_every",
    "threads",
    "device",
    "precision",
)  # may differ between the two runs


def write_checkpoint(path: Path, card: ModelCard, table: str, run: SavedRun) -> None:
    """`table` is the fingerprint of the table."""
    state = dataclasses.asdict(run.state)
    write_file(
        path, "checkpoint", {"card": card.to_json(), "table": table, "state": state}, run.tensors
    )


def table_fingerprint(tokens: TokenStore, schema: Schema) -> str:
    """Tells whether a resumed run sees the same table as the interrupted one."""
    return fingerprint(schema.to_json(), *tokens.blocks())


def read_checkpoint(
    path: Path, settings: Settings, table: str, seed: int
) -> tuple[SavedRun, TrainConfig]:
    """An unfinished run, and how it was trained."""
    metadata, tensors = read_file(path, "checkpoint")
    try:
        card = ModelCard.from_json(metadata.get("card"))
        stored = metadata.get("state")
        state = convert(stored, TrainState)
        require(dataclasses.asdict(state) == stored, "the state has other entries")
        _check_tensors(tensors)
    except ValueError as error:
        raise ModelFileError(
            f"The unfinished run in {str(path)!r} is damaged or from another version of "
            "TabMT; delete the file to start again."
        ) from error
    before = {"seed": card.seed, **card.settings.to_json()}
    for name, value in {"seed": seed, **settings.to_json()}.items():
        if name not in FREE_ON_RESUME and before[name] != value:
            raise UserError(
                f"The unfinished run in {str(path)!r} was started with {name} {before[name]!r}, "
                f"but this fit has {value!r}. Resume with the same settings, or delete the file to "
                "start again."
            )
    if metadata.get("table") != table:
        raise UserError(
            f"The unfinished run in {str(path)!r} was learning another table. Resume with that "
            "table, or delete the file to start again."
        )
    return SavedRun(state, tensors), card.settings.train


def _check_tensors(tensors: Mapping[str, Tensor]) -> None:
    """See that no tensor is missing: the parts of a run have the same names."""
    names: dict[str, set[str]] = {}
    for key in tensors:
        part, _, name = key.partition("/")
        names.setdefault(part, set()).add(name)
    net, average, kept = (names.get(part, set()) for part in ("net", "average", "kept"))
    adamw = [names.get(part, set()) for part in ("exp_avg", "exp_avg_sq", "step")]
    muon = names.get("momentum", set())
    require(net == average and kept in (set(), net), "the weights are not complete")
    require(adamw[0] == adamw[1] == adamw[2] <= net, "the moments are not complete")
    require(muon <= net and not muon & adamw[0], "the momentum is not complete")
