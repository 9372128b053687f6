"""The `tabmt` command, and what all its commands have in common.

Data goes to standard output, messages to standard error. Exit codes: 0 success, 2 a mistake of the
user (one sentence), 130 interrupted, 143 terminated, 1 a risk above `--max-risk`, or a bug
(with traceback). Slow imports are inside the commands, so that `--help` answers at once.
"""

import logging
import os
import signal
import threading
from typing import Any, NoReturn

import click

from tabmt.cli.console import MessageHandler
from tabmt.cli.evaluate import evaluate
from tabmt.cli.fit import fit, info, schema
from tabmt.cli.netflow import netflow
from tabmt.cli.options import Commands, Terminated
from tabmt.cli.rows import complete, embed, impute, like, sample, score
from tabmt.cli.search import pareto, tune
from tabmt.cli.serve import serve
from tabmt.cli.synthesize import demo, synthesize
from tabmt.writing import remove_abandoned_folders


def _terminate(*_: Any) -> NoReturn:
    raise Terminated


@click.group(cls=Commands)
@click.version_option(package_name="tabmt", help="show the version and exit")
@click.option("--quiet", "-q", is_flag=True, help="show only warnings and errors")
def main(quiet: bool) -> None:
    """Fit a model to a table and generate rows like it.

    \b
    Start with all steps at once, or go step by step:
      tabmt synthesize people.csv
      tabmt fit train.csv -o people.tabmt
      tabmt sample people.tabmt -n 1000 -o synthetic.csv
      tabmt evaluate synthetic.csv --train train.csv --test test.csv --report report.html
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    os.umask(0o077)  # whatever is written holds rows, or what was learned from them
    remove_abandoned_folders()
    handler = MessageHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    root = logging.getLogger("tabmt")
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)


for command in (
    complete,
    demo,
    embed,
    evaluate,
    fit,
    impute,
    info,
    like,
    netflow,
    pareto,
    sample,
    schema,
    score,
    serve,
    synthesize,
    tune,
):
    main.add_command(command)


def _help_in_one_style(command: click.Command) -> None:
    """Say what --help does in the style of the other options, which begin with a small letter."""
    click.help_option(help="show this help and exit")(command)
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _help_in_one_style(one)


_help_in_one_style(main)
