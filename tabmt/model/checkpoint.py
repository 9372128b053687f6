"""Unfinished runs on disk: write one, and read it back for the same table and settings."""

import hashlib
import json
from pathlib import Path

from tabmt.data.schema import Schema
from tabmt.errors import ModelFileError, UserError
from tabmt.method.train import TrainState
from tabmt.model import model_file as artifact
from tabmt.model.card import Card, Settings
from tabmt.tokens import TokenStore

FREE_ON_RESUME = ("checkpoint_every", "threads", "device")  # may differ between the two runs


def write(path: Path, card: Card, fingerprint: str, state: TrainState) -> None:
    tensors, info = state.to_parts()
    metadata = {"card": card.to_json(), "fingerprint": fingerprint, "state": info}
    artifact.write(path, "checkpoint", metadata, tensors)


def fingerprint(tokens: TokenStore, schema: Schema) -> str:
    """Tells whether a resumed run sees the table that the interrupted one saw."""
    digest = hashlib.blake2b(json.dumps(schema.to_json()).encode(), digest_size=16)
    for block in tokens.blocks():
        digest.update(block.tobytes())
    return digest.hexdigest()


def read(
    path: Path, settings: Settings, fingerprint: str, seed: int
) -> tuple[TrainState, int | None]:
    """The state of an unfinished run, and how many threads it had."""
    metadata, tensors = artifact.read(path, "checkpoint")
    try:
        card = Card.from_json(metadata["card"])
        state = TrainState.from_parts(tensors, metadata["state"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"The unfinished run in {str(path)!r} is of another version of TabMT; "
            "delete the file to start anew."
        ) from error
    then, now = {"seed": card.seed, **card.settings.to_json()}, {"seed": seed, **settings.to_json()}
    for name in now:
        if name not in FREE_ON_RESUME and then[name] != now[name]:
            raise UserError(
                f"The unfinished run in {str(path)!r} has {name} {then[name]!r}, this one "
                f"{now[name]!r}. Resume with the same settings, or delete the file to start anew."
            )
    if metadata["fingerprint"] != fingerprint:
        raise UserError(
            f"The unfinished run in {str(path)!r} was learning another table. Resume with that "
            "table, or delete the file to start anew."
        )
    return state, card.settings.train.threads
