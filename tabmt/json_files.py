"""JSON that comes from a file: read it within limits, check it against the dataclass that describes
it, and write it so that a terminal can show it."""

import json
import re
import stat
from pathlib import Path
from typing import Any, TypeVar

from tabmt.errors import UserError
from tabmt.printable import UNPRINTABLE

T = TypeVar("T")

MOST_BYTES = 2**24  # of a JSON file; a schema of ten thousand columns has a fifth of it
MOST_DEPTH = 40  # lists and objects inside each other
MOST_DIGITS = 1000  # of a whole number: an id of many letters stands for a large one


class InvalidDataError(ValueError):
    """Data that does not have the form it must have. The message says what and where."""


def read_bounded(path: str | Path, what: str, most: int = MOST_BYTES) -> bytes:
    """The content of a small file; `what` names the kind of file in errors."""
    name = str(path)
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"The {what} file {name!r} is a folder or a device; give a file.")
        if about.st_size > most:
            raise UserError(
                f"The {what} file {name!r} has {about.st_size:,} bytes; it may have at most "
                f"{most:,}."
            )
        with Path(path).open("rb") as file:
            return file.read(most)
    except FileNotFoundError as error:
        raise UserError(f"There is no {what} file {name!r}.") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"The {what} file {name!r} cannot be read: {reason}.") from error


def read_json(path: str | Path, what: str) -> dict[str, Any]:
    """A JSON object; `what` names the kind of file in errors."""
    content = read_bounded(path, what)
    try:
        data = parse_json(content)
    except InvalidDataError as error:
        raise UserError(f"The {what} file {str(path)!r} is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise UserError(f"The {what} file {str(path)!r} must contain one JSON object.")
    return data


def parse_json(content: bytes | str) -> Any:
    """JSON of bounded depth, without NaN and infinities. Raises `InvalidDataError`."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        data = json.loads(text, parse_int=_whole_number, parse_constant=_no_constant)
    except InvalidDataError:
        raise
    except RecursionError as error:
        raise InvalidDataError(_TOO_DEEP) from error
    except ValueError as error:  # not JSON, not UTF-8
        raise InvalidDataError(str(error)) from error
    check_depth(data)
    return data


_TOO_DEEP = f"it has more than {MOST_DEPTH} lists or objects inside each other"


def check_depth(data: Any) -> None:
    """Refuse data that functions which call themselves could not walk through."""
    level = [data]
    for _ in range(MOST_DEPTH + 1):
        level = [
            item
            for entry in level
            if isinstance(entry, dict | list)
            for item in (entry.values() if isinstance(entry, dict) else entry)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise InvalidDataError(_TOO_DEEP)


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise InvalidDataError(f"a number has more than {MOST_DIGITS:,} digits")
    return int(digits)


def _no_constant(name: str) -> float:
    raise InvalidDataError(f"{name} is not a number")


def json_text(data: Any, indent: int | None = None) -> str:
    """Data as JSON in which control characters and broken text are escaped, so that it can be shown
    on a terminal and written as UTF-8."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return re.sub(UNPRINTABLE, lambda m: m[0] if m[0] == "\n" else json.dumps(m[0])[1:-1], text)


def convert(data: Any, kind: type[T]) -> T:
    """Plain data as an instance of a dataclass, every field checked against its type."""
    import msgspec  # here, so that the command line starts without it

    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidDataError(str(error)) from error


def parse_texts(content: bytes) -> list[str]:
    """A JSON list of texts, which may be long; anything else is refused as it is read."""
    import msgspec

    try:
        return msgspec.json.decode(content, type=list[str])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidDataError("values are not a list of texts") from error


def require(condition: bool, message: str) -> None:
    """Like `assert`, for data from files: it also holds under `python -O`."""
    if not condition:
        raise InvalidDataError(message)
