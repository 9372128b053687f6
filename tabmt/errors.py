"""What a user did, said in one sentence: the only exceptions that people are meant to read.

The command line prints them without a traceback and ends with `exit_code`; anything else that
escapes is a bug of ours and keeps its traceback.
"""

import json
from typing import Any


class UserError(Exception):
    """A mistake in the user's input: what, which value, what is allowed, what to do."""

    exit_code = 2


class TrainingError(UserError):
    """Training cannot go on with these settings, for example because the loss became NaN."""


class ModelFileError(UserError):
    """A model or checkpoint file cannot be read, or was made for something else."""


def read_json(path: str, what: str) -> dict[str, Any]:
    """A JSON object that a person wrote; `what` names the file in errors."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError as error:
        raise UserError(f"There is no {what} file {path!r}.") from error
    except OSError as error:
        raise UserError(f"The {what} file {path!r} cannot be read: {error.strerror}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"The {what} file {path!r} is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise UserError(f"The {what} file {path!r} must hold one JSON object.")
    return data
