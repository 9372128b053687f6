"""Checkpoints: interrupted fits on disk. Write one, and read it for the same table and settings."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tabmt.config import TrainConfig
from tabmt.data.schema import Schema
from tabmt.errors import ModelFileError, UserError
from tabmt.fingerprint import fingerprint
from tabmt.json_files import convert, require
from tabmt.method.train import OPTIMIZER_STATE, SavedRun, TrainState
from tabmt.model.model_card import ModelCard, Settings
from tabmt.model.model_file import read_file, write_file
from tabmt.private.noise import Answers
from tabmt.tokens import TokenStore

ANSWERS = "answers/"
FREE_ON_RESUME = (
    "checkpoint_every",
    "threads",
    "device",
    "precision",
)  # may differ between the two runs


def write_checkpoint(
    path: Path, card: ModelCard, table: str, run: SavedRun, answers: Answers | None = None
) -> None:
    """`table` is the fingerprint of the table; `answers` are those of a fit with epsilon."""
    metadata: dict[str, Any] = {
        "card": card.to_json(),
        "table": table,
        "state": dataclasses.asdict(run.state),
    }
    tensors = run.tensors
    if answers is not None:
        arrays, metadata["answers"] = answers.to_parts()
        tensors = tensors | {ANSWERS + k: torch.from_numpy(a) for k, a in arrays.items()}
    write_file(path, "checkpoint", metadata, tensors)


def read_answers(path: Path, settings: Settings) -> Answers:
    """The noisy answers of an interrupted fit with epsilon, from its checkpoint."""
    metadata, tensors = read_file(path, "checkpoint")
    try:
        before = ModelCard.from_json(metadata.get("card")).settings.privacy
        if before == settings.privacy:
            arrays = {
                k[len(ANSWERS) :]: t.numpy() for k, t in tensors.items() if k.startswith(ANSWERS)
            }
            return Answers.from_parts(arrays, metadata.get("answers"))
    except ValueError as error:
        raise ModelFileError(_damaged(path)) from error
    raise UserError(
        f"The checkpoint {str(path)!r} belongs to a fit with other settings of differential "
        "privacy. Resume with the same epsilon, delta and private_method, or delete the file to "
        "start again."
    )


def table_fingerprint(tokens: TokenStore, schema: Schema) -> str:
    """Tells whether a resumed run sees the same table as the interrupted one."""
    return fingerprint(schema.to_json(), *tokens.blocks())


def read_checkpoint(
    path: Path, settings: Settings, table: str, seed: int, net: Mapping[str, Tensor]
) -> tuple[SavedRun, TrainConfig]:
    """A run, and how it was trained. `net` is the state of a network to be trained."""
    metadata, tensors = read_file(path, "checkpoint")
    tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith(ANSWERS)}
    try:
        card = ModelCard.from_json(metadata.get("card"))
        stored = metadata.get("state")
        state = convert(stored, TrainState)
        require(dataclasses.asdict(state) == stored, "the state has other entries")
        _check_names(tensors)
        _check_state(state, has_kept=any(name.startswith("kept/") for name in tensors))
    except ValueError as error:
        raise ModelFileError(_damaged(path)) from error
    before: dict[str, Any] = {"seed": card.seed, **card.settings.to_json()}
    now: dict[str, Any] = {"seed": seed, **settings.to_json()}
    for name in {**now, **before}:  # those of privacy are there only if epsilon is
        was, value = before.get(name), now.get(name)
        if name not in FREE_ON_RESUME and was != value:
            raise UserError(
                f"The checkpoint {str(path)!r} belongs to a fit with {name} {was!r}, but "
                f"this fit has {value!r}. Resume with the same settings, or delete the file to "
                "start again."
            )
    if metadata.get("table") != table:
        raise UserError(
            f"The checkpoint {str(path)!r} belongs to a fit of another table. Resume with that "
            "table, or delete the file to start again."
        )
    try:
        _check_sizes(tensors, net)
    except ValueError as error:
        raise ModelFileError(_damaged(path)) from error
    return SavedRun(state, tensors), card.settings.train


def _damaged(path: Path) -> str:
    return (
        f"The checkpoint {str(path)!r} is damaged or from another version of TabMT; delete the "
        "file to start again."
    )


def _check_state(state: TrainState, *, has_kept: bool) -> None:
    """The numbers of a run must be some that training can have led to."""
    stopping, finish = state.early_stopping, state.finish
    for count in (
        state.step, state.loss_count, stopping.patience, stopping.kept_step, stopping.last_step,
        stopping.checks_without_improvement,
    ):  # fmt: skip
        require(0 <= count < 2**53, "a count is negative")
    require(0 <= state.seconds < math.inf, "the time is negative")
    require(state.is_consistent, "an update was not complete")
    require(max(stopping.kept_step, stopping.last_step) <= state.step, "a check is in the future")
    require(has_kept == (stopping.kept_loss is not None), "the best weights are not complete")
    if finish is not None:
        require(has_kept and 1 <= finish.steps < 2**53, "the last steps have no weights")
        require(0 <= finish.start_progress <= 1, "the last steps began at no time")
        require(0 <= finish.start_step <= state.step, "the last steps began in the future")
    require(not stopping.should_stop or has_kept, "training has stopped without weights")


def _check_sizes(tensors: Mapping[str, Tensor], net: Mapping[str, Tensor]) -> None:
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        require(name in net, "a weight is unknown")
        shape = () if part == "step" else net[name].shape
        require(tuple(tensor.shape) == tuple(shape), f"{key} has the wrong size")
        require(tensor.dtype == torch.float32, f"{key} has the wrong type")
        require(bool(torch.isfinite(tensor).all()), f"{key} holds NaN or infinity")
    require({key[4:] for key in tensors if key.startswith("net/")} == set(net), "a weight is gone")


def _check_names(tensors: Mapping[str, Tensor]) -> None:
    """See that no tensor is missing: the parts of a run have the same names."""
    names: dict[str, set[str]] = {}
    for key in tensors:
        part, _, name = key.partition("/")
        names.setdefault(part, set()).add(name)
    known = {"net", "average", "kept", *OPTIMIZER_STATE}
    require(set(names) <= known, "there are unknown tensors")
    net, average, kept = (names.get(part, set()) for part in ("net", "average", "kept"))
    adamw = [names.get(part, set()) for part in ("exp_avg", "exp_avg_sq", "step")]
    muon = names.get("momentum", set())
    require(net == average and kept in (set(), net), "the weights are not complete")
    require(adamw[0] == adamw[1] == adamw[2] <= net, "the moments are not complete")
    require(muon <= net and not muon & adamw[0], "the momentum is not complete")
