"""Which files a command may write: never one of its inputs, and no file of another format.

`check_outputs` is called by every command before its work. An output that is also an input is
always refused; a file of another format is replaced only with --force.
"""

import fnmatch
import glob
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tabmt.errors import UserError
from tabmt.json_files import MOST_BYTES, parse_json
from tabmt.writing import cannot_write, checked_target

Format = Literal[
    "model", "checkpoint", "front", "schema", "scores", "report", "settings", "SVG", "PNG",
    "Parquet", "Arrow", "CSV", "gzip", "trials",
]  # fmt: skip
BY_SUFFIX: dict[str, Format] = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".gz": "gzip",
    ".svg": "SVG",
    ".png": "PNG",
    ".html": "report",
}
HEAD = 2**16  # bytes by which a format is recognised
REPORT_MARK = b'<meta name="generator" content="tabmt">'


@dataclass(frozen=True)
class Output:
    """A file that will be written, and its format."""

    path: str | Path
    format: Format

    @classmethod
    def by_suffix(cls, path: str | Path) -> "Output":
        """A table or a picture, whose name says its format."""
        return cls(path, BY_SUFFIX.get(Path(path).suffix.lower(), "CSV"))


def check_outputs(
    outputs: Iterable[Output],
    inputs: Iterable[str | Path | None],
    *,
    folders: Iterable[str | Path] = (),
    force: bool = False,
) -> None:
    """Refuse what would destroy a file. Inputs are files, folders or patterns; `folders` are
    written as a whole."""
    given = [str(name) for name in inputs if name is not None]
    written: list[Path] = []
    for output in outputs:
        target = checked_target(Path(output.path))
        if any(_is_same(target, other) for other in written):
            raise UserError(
                f"{str(output.path)!r} would be written twice; choose another name for one of the "
                "outputs."
            )
        _check_not_read(str(output.path), target, given)
        check_replaceable(output.path, output.format, force=force)
        _check_writable(output.path, target)
        written.append(target)
    for folder in folders:
        _check_folder(folder, given)


def check_replaceable(path: str | Path, file_format: Format, *, force: bool = False) -> None:
    """Refuse to replace a file that is not of this format."""
    target = checked_target(Path(path))
    if force or not target.exists() or is_of_format(target, file_format):
        return
    raise UserError(
        f"{str(path)!r} exists and is not a {NAMES.get(file_format, file_format + ' file')}, so it "
        "is not replaced; choose another name, or use --force."
    )


def _check_writable(path: str | Path, target: Path) -> None:
    """See that a file can be written: before the work, not after it."""
    try:
        descriptor, probe = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(descriptor)
        os.unlink(probe)
    except OSError as error:
        raise cannot_write(path, error) from error


# --- outputs that are inputs ---------------------------------------------------------------


def _check_not_read(name: str, target: Path, given: Sequence[str]) -> None:
    for entry in given:
        if _reads(entry, target):
            raise UserError(
                f"The output {name!r} is also an input of this command ({entry!r}); choose another "
                "output."
            )


def _reads(entry: str, target: Path) -> bool:
    """Whether a command that is given `entry` reads the file `target`, now or the next time."""
    source = Path(entry)
    try:
        if source.is_dir():
            return target.is_relative_to(source.resolve())
        if source.exists():
            return _is_same(target, source)
    except (OSError, ValueError):
        return False  # what reads the file says what is wrong with it
    if not glob.has_magic(entry):
        return source.resolve() == target
    if any(_is_same(target, Path(match)) for match in glob.iglob(entry, recursive=True)):
        return True
    return _matches(Path(os.path.abspath(entry)).parts, target.parts) or _matches(
        Path(os.path.abspath(entry)).parts, Path(os.path.abspath(target)).parts
    )


def _is_same(one: Path, other: Path) -> bool:
    """Whether two names are one file, by any path, symbolic or hard link."""
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return one.resolve() == other.resolve()


def _matches(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a path matches a pattern, in which ** stands for any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[skipped:]) for skipped in range(len(parts) + 1))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], pattern[0])
        and _matches(pattern[1:], parts[1:])
    )


def _check_folder(folder: str | Path, given: Sequence[str]) -> None:
    """Refuse an output folder that is an input, is inside one, or contains one."""
    target = Path(folder).resolve()
    for entry in given:
        sources = [Path(match) for match in glob.iglob(entry, recursive=True)] or [Path(entry)]
        inside = any(source.resolve().is_relative_to(target) for source in sources)
        if inside or _reads(entry, target):
            raise UserError(
                f"The output folder {str(folder)!r} contains, or is in, an input of this command "
                f"({entry!r}); choose another folder."
            )


# --- formats -------------------------------------------------------------------------------


def is_of_format(path: Path, file_format: Format) -> bool:
    """Whether a file has a format, of this or another version; an empty file has any."""
    try:
        if path.stat().st_size == 0:
            return True
        with path.open("rb") as file:
            head = file.read(HEAD)
            return RECOGNISE[file_format](head, path)
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}.") from error


def file_kind_of(head: bytes, path: Path) -> str | None:
    """Whether a safetensors file is a model or a checkpoint of ours."""
    size = int.from_bytes(head[:8], "little")
    if not 2 <= size <= min(path.stat().st_size - 8, MOST_BYTES):
        return None
    with path.open("rb") as file:
        file.seek(8)
        try:
            header = parse_json(file.read(size))
            about = parse_json(header["__metadata__"]["tabmt"])
            kind = about["kind"]
        except (ValueError, KeyError, TypeError):
            return None
    return kind if isinstance(kind, str) else None


def _json_with(*keys: str) -> Callable[[bytes, Path], bool]:
    """Recognises a JSON object, or a list of them, that has these entries."""

    def recognise(head: bytes, path: Path) -> bool:
        if head.lstrip()[:1] not in (b"{", b"[") or path.stat().st_size > MOST_BYTES:
            return False
        try:
            data = parse_json(path.read_bytes())
        except ValueError:
            return False
        first: Any = data[0] if isinstance(data, list) and data else data
        return isinstance(first, dict) and set(keys) <= set(first)

    return recognise


def _is_settings(head: bytes, path: Path) -> bool:
    from tabmt.config import setting_names

    try:
        settings = tomllib.loads(head.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return bool(settings) and set(settings) <= setting_names()


def _begins(*marks: bytes) -> Callable[[bytes, Path], bool]:
    return lambda head, _: head.lstrip(b"\xef\xbb\xbf").startswith(marks)


NAMES: dict[str, str] = {
    "model": "TabMT model",
    "checkpoint": "TabMT checkpoint",
    "front": "front of `tabmt pareto search`",
    "schema": "schema",
    "scores": "file of scores of `tabmt evaluate`",
    "report": "report of `tabmt`",
    "settings": "TOML file of settings",
    "trials": "file of trials",
}
RECOGNISE: dict[Format, Callable[[bytes, Path], bool]] = {
    "model": lambda head, path: file_kind_of(head, path) == "model",
    "checkpoint": lambda head, path: file_kind_of(head, path) == "checkpoint",
    "front": _json_with("points", "uniform", "search"),
    "schema": _json_with("columns"),
    "scores": _json_with("name", "scores"),
    "report": lambda head, _: REPORT_MARK in head,
    "settings": _is_settings,
    "SVG": lambda head, _: b"<svg" in head,
    "PNG": _begins(b"\x89PNG"),
    "Parquet": _begins(b"PAR1"),
    "Arrow": _begins(b"ARROW1", b"\xff\xff\xff\xff"),
    "CSV": lambda head, _: b"\0" not in head,
    "gzip": _begins(b"\x1f\x8b"),
    "trials": _begins(b'{"op_code"'),
}
