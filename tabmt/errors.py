"""Mistakes of users, each with a message of one sentence: the exceptions that users should read.

The command line prints them without a traceback and exits with `exit_code`. Any other exception is
a bug and keeps its traceback.
"""


class UserError(Exception):
    """A mistake in the input: what it is, which value, what is allowed, what to do.

    Example:
        >>> try:
        ...     TabMT(width=10, heads=3).fit(table)
        ... except UserError as error:
        ...     print(error)
        heads is 3, but must divide the width of 10 evenly.
    """

    exit_code = 2


def not_installed(what: str, package: str, extra: str) -> UserError:
    """What to say if an optional package is not there."""
    return UserError(f"{what} needs {package}: {how_to_install(extra)}.")


def how_to_install(extra: str) -> str:
    return (
        f"install the extra {extra}, with pip install 'tabmt[{extra}]', or pip install "
        f"'.[{extra}]' in a clone"
    )


class Cancelled(Exception):
    """Raised in a callback, ends the work as Ctrl-C does: a fit saves its checkpoint first.

    Example:
        >>> def on_step(progress):
        ...     if cancelled.is_set():
        ...         raise Cancelled
    """


class TrainingError(UserError):
    """Training cannot continue with these settings, for example because the loss became NaN."""


class ModelFileError(UserError):
    """A model or checkpoint file cannot be read, or belongs to something else."""
