"""JSON that comes from a file: read it, and check it against the dataclass that describes it."""

import json
from pathlib import Path
from typing import Any, TypeVar

from tabmt.errors import UserError

T = TypeVar("T")


class InvalidDataError(ValueError):
    """Data that does not have the form it must have. The message says what and where."""


def read_json(path: str | Path, what: str) -> dict[str, Any]:
    """A JSON object; `what` names the kind of file in errors."""
    name = str(path)
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"There is no {what} file {name!r}.") from error
    except OSError as error:
        raise UserError(f"The {what} file {name!r} cannot be read: {error.strerror}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"The {what} file {name!r} is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise UserError(f"The {what} file {name!r} must contain one JSON object.")
    return data


def convert(data: Any, kind: type[T]) -> T:
    """Plain data as an instance of a dataclass, every field checked against its type."""
    import msgspec  # here, so that the command line starts without it

    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InvalidDataError(str(error)) from error


def require(condition: bool, message: str) -> None:
    """Like `assert`, for data from files: it also holds under `python -O`."""
    if not condition:
        raise InvalidDataError(message)
