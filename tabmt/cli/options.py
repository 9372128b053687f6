"""Small notations of the command line that click does not read by itself."""

import dataclasses
import os
import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from tabmt.config import PRESETS, Engine
from tabmt.errors import UserError

INTERRUPTED = 130
BESIDE_MODELS = (".json", ".toml", ".trials", ".svg", ".png", ".html")  # endings of other outputs


class OneSentence(click.ClickException):
    """A user error as the command line shows it."""

    exit_code = UserError.exit_code


class Commands(click.Group):
    """User errors become one clear line and exit code 2; our bugs keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise OneSentence(str(error)) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None


def file_to_write(output: str, endings: tuple[str, ...] = ()) -> Path:
    """Said before the work, not after it."""
    target = Path(output)
    if not target.parent.is_dir():
        raise UserError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    if target.is_dir():
        raise UserError(f"{output!r} is a folder; name a file to write.")
    if endings and target.suffix not in endings:
        raise UserError(f"{output!r} must end in {' or '.join(endings)}.")
    probe = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{output!r} cannot be written: {error.strerror}.") from error
    return target


def model_to_write(output: str) -> Path:
    """A model that took the name of a table would take its place, and the table would be lost."""
    from tabmt.data.files import SUFFIXES

    target = file_to_write(output)
    if target.name.lower().endswith((*SUFFIXES, *BESIDE_MODELS)):
        raise UserError(
            f"{output!r} has the ending of another kind of file; name the model NAME.tabmt."
        )
    return target


def keep_apart(written: Sequence[str], given: Sequence[str | None]) -> None:
    """No file that a command writes may be another of them, or one that it was given."""
    known = {Path(name).resolve() for name in given if name is not None}
    for name in written:
        path = Path(name).resolve()
        if path in known:
            raise UserError(f"{name!r} would be written over another file of this command.")
        known.add(path)


def parse_temperatures(given: tuple[str, ...], names: list[str]) -> dict[str, float]:
    """`1.1` for all columns, `age=1.5` for one; later ones win."""
    heat: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UserError(
                f"The temperature {text!r} is not a number, nor of the form COLUMN=NUMBER."
            ) from None
        heat |= {name: value} if equals else dict.fromkeys(names, value)
    return heat


def parse_keep(given: str) -> list[str] | int:
    return int(given) if given.isdigit() else [name.strip() for name in given.split(",")]


def parse_balance(given: str) -> str | dict[str, dict[Any, float]]:
    """`Exited`, or `Exited:0=0.7,1=0.3`."""
    name, colon, rest = given.partition(":")
    if not colon:
        return name
    shares: dict[Any, float] = {}
    for part in rest.split(","):
        value, _, number = part.rpartition("=")
        try:
            shares[value.strip()] = float(number)
        except ValueError:
            raise UserError(
                f"The share {part!r} of --balance is not of the form VALUE=NUMBER."
            ) from None
    return {name: shares}


def options_from(*config_classes: type[Any]) -> Callable[[Any], Any]:
    """Turn every field of the config dataclasses into an option."""

    def decorate(command: Any) -> Any:
        for config_class in reversed(config_classes):
            for item in reversed(dataclasses.fields(config_class)):
                choices = item.metadata.get("choices")
                kind = item.metadata.get("type", type(item.default))
                auto = item.metadata.get("auto", False)
                default = None if auto else item.default
                command = click.option(
                    f"--{item.name.replace('_', '-')}",
                    item.name,
                    type=click.Choice(choices) if choices else kind,
                    default=default,
                    show_default="chosen for the table" if auto else default is not None,
                    help=item.metadata["help"],
                )(command)
        return command

    return decorate


def read_config(path: str, allowed: Collection[str]) -> dict[str, Any]:
    """Settings from a TOML file that `tabmt tune` or a person wrote, or one of the paper's."""
    if path in PRESETS:
        return dict(PRESETS[path])
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError as error:
        raise UserError(
            f"There is no configuration file {path!r}; give a TOML file, or the name of one of the "
            f"paper's models: {', '.join(PRESETS)}."
        ) from error
    except OSError as error:
        raise UserError(
            f"The configuration file {path!r} cannot be read: {error.strerror}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"The configuration file {path!r} is not valid TOML: {error}.") from error
    for name in found:
        if name not in allowed:
            raise UserError(
                f"The configuration file {path!r} sets {name!r}, but the settings are: "
                f"{', '.join(allowed)}."
            )
    return found


def typed_by_user(values: dict[str, Any]) -> dict[str, Any]:
    """Those of a command's options that stand on the command line."""
    context = click.get_current_context()
    return {
        name: value
        for name, value in values.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def engine_option(help: str) -> Callable[[Any], Any]:
    """--engine, for commands whose work falls into pieces."""
    return click.option(
        "--engine",
        type=click.Choice(get_args(Engine)),
        default="local",
        show_default=True,
        help=f"{help}: here, or on the Ray cluster that RAY_ADDRESS names or that is started here",
    )
