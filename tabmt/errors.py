"""What a user did, said in one sentence: the only exceptions that people are meant to read.

The command line prints them without a traceback and ends with `exit_code`; anything else that
escapes is a bug of ours and keeps its traceback.
"""


class UserError(Exception):
    """A mistake in the user's input: what, which value, what is allowed, what to do."""

    exit_code = 2


class TrainingError(UserError):
    """Training cannot go on with these settings, for example because the loss became NaN."""


class ModelFileError(UserError):
    """A model or checkpoint file cannot be read, or was made for something else."""
