"""Options of the command line: generated from the settings, grouped, parsed and checked."""

import contextlib
import dataclasses
import errno
import os
import signal
import sys
import threading
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from tabmt.config import PRESETS, Engine
from tabmt.errors import UserError
from tabmt.json_files import InvalidDataError, check_depth, read_bounded
from tabmt.printable import printable

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
# A full or broken disk, a file system that is read-only: no mistake of the program.
OUTSIDE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE)
NO_MEMORY = (
    "There is not enough memory; use fewer rows or columns, a smaller batch_size or width, or a "
    "machine with more memory."
)
SEVERAL_TIMES = "can be given several times"
FORCE = (
    "replace an existing output of another format too; one of the same format is always replaced"
)
MOST_CONFIG = 2**20  # bytes of a file of settings
OTHER_SUFFIXES = (".json", ".toml", ".trials", ".svg", ".png", ".html")  # of files besides models


class OneSentence(click.ClickException):
    """A user error as the command line shows it."""

    exit_code = UserError.exit_code


class Commands(click.Group):
    """User errors become one line and exit code 2; bugs keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here an error can still be reported
            return result
        except UserError as error:
            raise OneSentence(printable(str(error))) from error
        except KeyboardInterrupt as error:
            raise SystemExit(exit_code(error)) from None
        except MemoryError as error:
            raise OneSentence(NO_MEMORY) from error
        except RuntimeError as error:
            if "can't allocate memory" in str(error) or "out of memory" in str(error):
                raise OneSentence(NO_MEMORY) from error  # PyTorch's way to say so
            raise
        except BrokenPipeError:
            raise  # `| head` has seen enough
        except OSError as error:
            if error.errno not in OUTSIDE_FAULTS:
                raise
            what = "Standard output" if error.filename is None else repr(str(error.filename))
            close_stdout()
            message = f"{what} cannot be written or read: {error.strerror}."
            raise OneSentence(printable(message)) from error
        finally:
            # The work is over: SIGTERM must not interrupt what Python does when it ends. Not
            # SIG_IGN, which processes that are started would inherit.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, lambda *_: None)


class Terminated(KeyboardInterrupt):
    """SIGTERM, by which a cluster ends a job: everything ends as it does after Ctrl-C."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


def close_stdout() -> None:
    """Let nothing be written at the end of the process to an output that takes no more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


class GroupedOption(click.Option):
    """An option that `--help` lists under a heading."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose options are listed in groups."""

    GROUPS = ("Output", "Data", "Network", "Training", "Generation", "Hardware", "Other")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        for group in self.GROUPS:
            own = [option for option in options if getattr(option, "group", "Other") == group]
            with formatter.section(group):
                formatter.write_dl([r for o in own if (r := o.get_help_record(ctx)) is not None])


def options_from(*config_classes: type[Any], only: Collection[str] = ()) -> Callable[[Any], Any]:
    """Turn every field of config dataclasses into an option, or `only` some of them."""

    def decorate(command: Any) -> Any:
        for config_class in reversed(config_classes):
            for item in reversed(dataclasses.fields(config_class)):
                if not only or item.name in only:
                    command = _option(item)(command)
        return command

    return decorate


def _option(item: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    rule = item.metadata
    default = None if rule.get("auto") else item.default
    settings: dict[str, Any] = {"help": _help(item), "default": default}
    if "group" in rule:
        settings |= {"cls": GroupedOption, "group": rule["group"]}
    if "flag" in rule:
        return click.option(rule["flag"], item.name, show_default=True, **settings)
    if rule.get("multiple"):
        settings |= {"multiple": True, "default": ()}
    elif "choices" in rule:
        settings["type"] = click.Choice(rule["choices"])
    else:
        settings["type"] = rule.get("type", type(item.default))
    show = settings["default"] not in (None, ())
    flag = f"--{item.name.replace('_', '-')}"
    return click.option(flag, item.name, show_default=show, metavar=rule.get("metavar"), **settings)


def _help(item: dataclasses.Field[Any]) -> str:
    """The help text of an option on the command line."""
    rule = item.metadata
    about, opening, default = rule["help"].partition("  [default: ")
    parts = [about]
    if "off" in rule:
        parts.append(f"with {rule['flag'].partition('/')[2]}, {rule['off']}")
    if "typed" in rule:
        parts.append(rule["typed"])
    if rule.get("multiple"):
        parts.append(SEVERAL_TIMES)
    if rule.get("auto"):
        opening, default = "  [default: ", "depends on the table]"
    return f"{'; '.join(parts)}{opening}{default}"


def file_option(*names: str, metavar: str = "FILE", **settings: Any) -> Callable[[Any], Any]:
    """An option that takes the name of a file."""
    return click.option(*names, metavar=metavar, **settings)


def engine_option(what: str, **settings: Any) -> Callable[[Any], Any]:
    """--engine, for commands whose work can be distributed."""
    return click.option(
        "--engine",
        type=click.Choice(get_args(Engine)),
        default="local",
        show_default=True,
        help=f"{what}: on this machine, or on a Ray cluster (at RAY_ADDRESS, or started here)",
        **settings,
    )


def threads_option(command: Any) -> Any:
    """--threads, for commands that use a model."""
    threads = click.option(
        "--threads", type=click.IntRange(min=1), help="number of CPU threads  [default: 1]"
    )
    return threads(command)


def formulas_option(command: Any) -> Any:
    """--escape-formulas, for commands that write rows with text."""
    escape = click.option(
        "--escape-formulas",
        is_flag=True,
        help="in CSV, put ' before text that a spreadsheet would run as a formula (= + - @)",
    )
    return escape(command)


# --- files ---------------------------------------------------------------------------------


def force_option(command: Any) -> Any:
    """--force, for commands that write files."""
    force = click.option(
        "--force",
        is_flag=True,
        help=FORCE,
    )
    return force(command)


def with_suffix(output: str, suffixes: tuple[str, ...]) -> Path:
    """The name of a file whose extension says its format."""
    if Path(output).suffix not in suffixes:
        raise UserError(f"{output!r} must end in {' or '.join(suffixes)}.")
    return Path(output)


def model_to_write(output: str) -> Path:
    """A model that took the name of a table would replace it, and the table would be lost."""
    from tabmt.data.files import SUFFIXES

    target = Path(output)
    if target.name.lower().endswith((*SUFFIXES, *OTHER_SUFFIXES)):
        raise UserError(
            f"{output!r} has the extension of another file format; a model file should be named "
            "NAME.tabmt."
        )
    return target


# --- values --------------------------------------------------------------------------------


def parse_draw_options(options: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The options of generation as the library takes them; `names` are the model's columns."""
    parsed = {**options, "temperature": parse_temperatures(options["temperature"], names)}
    if "where" in options:
        parsed["where"] = options["where"] or None
    if options.get("balance") is not None:
        parsed["balance"] = parse_balance(options["balance"])
    return parsed


def parse_temperatures(given: tuple[str, ...], names: list[str]) -> dict[str, float]:
    """`1.1` for all columns, `age=1.5` for one; later ones override earlier ones."""
    temperatures: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UserError(
                f"The temperature {text!r} is neither a number nor of the form COLUMN=NUMBER."
            ) from None
        temperatures |= {name: value} if equals else dict.fromkeys(names, value)
    return temperatures


def parse_keep(given: str) -> list[str] | int:
    return int(given) if given.isdigit() else [name.strip() for name in given.split(",")]


def parse_balance(given: str) -> str | dict[str, dict[Any, float]]:
    """`Exited`, or `Exited:0=0.7,1=0.3`."""
    name, colon, rest = given.partition(":")
    if not colon:
        return name
    shares: dict[Any, float] = {}
    for pair in rest.split(","):
        value, _, number = pair.rpartition("=")
        try:
            shares[value.strip()] = float(number)
        except ValueError:
            raise UserError(
                f"The share {pair!r} of --balance is not of the form VALUE=NUMBER."
            ) from None
    return {name: shares}


def read_config(path: str, allowed: Collection[str]) -> dict[str, Any]:
    """Settings from a TOML file that `tabmt tune` or a person wrote, or one of the presets."""
    if path in PRESETS:
        return dict(PRESETS[path])
    if not Path(path).exists():
        raise UserError(
            f"There is no settings file {path!r}; give a TOML file, or one of the presets: "
            f"{', '.join(PRESETS)}."
        )
    try:
        settings = tomllib.loads(read_bounded(path, "settings", MOST_CONFIG).decode("utf-8"))
        check_depth(settings)
    except RecursionError as error:
        raise UserError(
            f"The settings file {path!r} is not valid TOML: it is nested too deeply."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InvalidDataError) as error:
        raise UserError(f"The settings file {path!r} is not valid TOML: {error}.") from error
    for name in settings:
        if name not in allowed:
            raise UserError(
                f"The settings file {path!r} has {name[:80]!r}, which is not a setting; the "
                f"settings are: {', '.join(allowed)}."
            )
    return settings


def given_on_command_line(values: dict[str, Any]) -> dict[str, Any]:
    """Those of a command's options that the user has typed."""
    context = click.get_current_context()
    return {
        name: value
        for name, value in values.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
