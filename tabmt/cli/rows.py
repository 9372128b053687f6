"""The commands that use a model: sample, impute, score.

For `cli`. As there, everything heavy is imported inside the commands.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from tabmt.cli.console import counted
from tabmt.cli.options import engine_option, parse_balance, parse_keep, parse_temperatures
from tabmt.config import Decode, Engine, Imputation
from tabmt.errors import UserError

log = logging.getLogger(__name__)


@click.command()
@click.argument("model")
@click.option("--rows", "-n", type=click.IntRange(min=0), help="how many rows")
@click.option(
    "--output",
    "-o",
    default="-",
    help="CSV, Parquet or Arrow file; - is CSV on stdout; NAME/ a folder of Parquet files",
)
@click.option("--seed", type=int, help="the same seed, the same rows")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help='"age in 30..40", "sex = Female", "city in {Oslo, Bergen}", "x is missing"; repeatable',
)
@click.option(
    "--balance",
    metavar="COLUMN[:VALUE=SHARE,...]",
    help="each value of a column equally often, or in these shares",
)
@click.option("--prompts", help="a table whose rows are completed: gaps and absent columns drawn")
@click.option("--like", help="a table of rows to be like; needs --keep")
@click.option(
    "--keep", help="with --like: columns that stay (a,b,c), or how many cells of each row"
)
@click.option(
    "--temperature",
    multiple=True,
    metavar="T | COLUMN=T",
    help="above 1 more novel, below 1 more typical; for all columns or for one; repeatable",
)
@click.option("--complete", is_flag=True, help="leave no gaps")
@click.option(
    "--decode",
    type=click.Choice(get_args(Decode)),
    default="inside",
    show_default=True,
    help="numbers drawn inside their bin, or its centre as in the paper",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads")
@engine_option("where the files of a folder are made")
def sample(
    model: str,
    rows: int | None,
    output: str,
    seed: int | None,
    where: tuple[str, ...],
    balance: str | None,
    prompts: str | None,
    like: str | None,
    keep: str | None,
    temperature: tuple[str, ...],
    complete: bool,
    decode: Decode,
    threads: int | None,
    engine: Engine,
) -> None:
    """Generate rows from MODEL; they are written as they are made.

    With an output that ends with a slash the same rows are written as Parquet files of a million
    rows each; cut off, the same command goes on with those that are missing.

    \b
    Example:
      tabmt sample people.tabmt -n 1000 -o synthetic.csv --temperature 1.1 --temperature age=1.5
      tabmt sample people.tabmt -n 500 --where "sex = Female" --where "age in 30..40" -o women.csv
      tabmt sample people.tabmt --prompts half_known.csv -o completed.csv
      tabmt sample people.tabmt -n 100000000 -o rows/ --seed 1 --engine ray
    """
    from tabmt.data import files as tables
    from tabmt.estimator import TabMT

    if like is not None and keep is None:
        raise UserError(
            "--like needs --keep: the columns that stay, or how many cells of each row."
        )
    if rows is None and prompts is None and like is None:
        raise UserError("How many rows? Give -n, or a table of prompts.")
    in_parts = _is_folder(output, engine)
    if in_parts and not (prompts is None and like is None and keep is None):
        raise UserError("A folder of files takes a number of rows; give a file for prompts.")
    if in_parts and seed is None:
        raise UserError("A folder of files needs --seed, so that the same command can go on.")
    loaded = TabMT.load(model).set_params(threads=threads)
    how: dict[str, Any] = {
        "temperature": parse_temperatures(temperature, loaded.schema_.names),
        "complete": complete,
        "decode": decode,
        "where": where or None,
        "balance": None if balance is None else parse_balance(balance),
    }
    if in_parts:
        assert rows is not None and seed is not None
        tell = _progress(rows)
        loaded.sample_to(output, rows, seed=seed, engine=engine, on_part=tell, **how)
        log.info("wrote %s rows to %s", f"{rows:,}", output)
        return
    if output != tables.STDOUT:
        tables.file_kind(Path(output))
    batches = loaded.sample_batches(
        rows,
        seed=seed,
        **how,
        prompts=prompts,
        like=like,
        keep=None if keep is None else parse_keep(keep),
    )
    tables.write_file(output, loaded.schema_, counted(batches, rows))
    if output != tables.STDOUT:
        log.info("wrote %s", output if rows is None else f"{rows:,} rows to {output}")


@click.command()
@click.argument("model")
@click.argument("table")
@click.option(
    "--output",
    "-o",
    required=True,
    help="CSV, Parquet or Arrow file to write; NAME/ a folder of Parquet files",
)
@click.option(
    "--how",
    type=click.Choice(get_args(Imputation)),
    default="draw",
    show_default=True,
    help="a draw from what the row leaves open, the likeliest value, or the expected number",
)
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    help="so many tables, NAME.1.csv and on: multiple imputation",
)
@click.option("--column", "columns", multiple=True, help="fill only this column; repeatable")
@click.option("--seed", type=int, default=0, show_default=True, help="the same seed, the same rows")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads")
@engine_option("where the files of a folder are made")
def impute(
    model: str,
    table: str,
    output: str,
    how: Imputation,
    draws: int | None,
    columns: tuple[str, ...],
    seed: int,
    threads: int | None,
    engine: Engine,
) -> None:
    """Fill the gaps of TABLE by MODEL; every known cell stays as it is.

    With an output that ends with a slash, TABLE may be a folder or a pattern of files, and the
    output is Parquet files; cut off, the same command goes on with those that are missing.

    \b
    Example:
      tabmt impute people.tabmt people.csv -o complete.csv
      tabmt impute people.tabmt 'months/*.parquet' -o complete/ --engine ray
    """
    from tabmt.data import files as tables
    from tabmt.estimator import TabMT
    from tabmt.model.generate import BATCH_ROWS

    loaded = TabMT.load(model).set_params(threads=threads)
    if _is_folder(output, engine):
        if draws is not None:
            raise UserError("--draws goes with one file; give each folder a --seed of its own.")
        made = loaded.impute_to(
            output,
            table,
            how=how,
            columns=columns or None,
            seed=seed,
            engine=engine,
            on_part=_progress(None),
        )
        log.info("wrote %s rows to %s", f"{made:,}", output)
        return
    tables.file_kind(Path(output))
    if draws is not None and how != "draw":
        raise UserError(f"--draws goes with --how draw; {how} gives the same table every time.")
    warned: set[str] = set()
    for draw in range(draws or 1):
        target = output if draws is None else tables.numbered(output, draw + 1)
        given, count = tables.batches(table, BATCH_ROWS)
        filled = loaded.impute_batches(
            counted(given, count),
            how=how,
            columns=columns or None,
            seed=seed,
            draw=draw,
            warned=warned,
        )
        tables.write_like(target, table, loaded.learned_.codec.read, loaded.schema_, filled)
        log.info("wrote %s", target)


@click.command()
@click.argument("model")
@click.argument("table")
@click.option("--output", "-o", default="-", help="CSV, Parquet or Arrow file; - is CSV on stdout")
@click.option(
    "--orders",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="orders of columns to take the mean over: more are steadier and slower",
)
@click.option("--seed", type=int, default=0, show_default=True, help="the same seed, same scores")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads")
def score(model: str, table: str, output: str, orders: int, seed: int, threads: int | None) -> None:
    """Tell for each row of TABLE how usual it is to MODEL: log-likelihood and anomaly score.

    \b
    Example:
      tabmt score people.tabmt new_people.csv -o scores.csv
    """
    from tabmt.data import files as tables
    from tabmt.data.schema import plain_schema
    from tabmt.estimator import TabMT
    from tabmt.model.generate import BATCH_ROWS
    from tabmt.model.score import SCORES

    loaded = TabMT.load(model).set_params(threads=threads)
    if output != tables.STDOUT:
        tables.file_kind(Path(output))
    given, count = tables.batches(table, BATCH_ROWS)
    found = (
        loaded.score(part, orders=orders, seed=seed, kind="arrow") for part in counted(given, count)
    )
    tables.write_file(output, plain_schema(SCORES), found)
    if output != tables.STDOUT:
        log.info("wrote %s", output)


def _is_folder(output: str, engine: Engine) -> bool:
    """Whether files in a folder are asked for."""
    if output.endswith(("/", os.sep)) or Path(output).is_dir():
        return True
    if engine != "local":
        raise UserError(
            f"--engine {engine} writes a folder of files, but the output is {output!r}; "
            "end it with a slash."
        )
    return False


def _progress(rows: int | None) -> Callable[[int], None]:
    """Says how far the parts are."""
    of = "" if rows is None else f" of {rows:,}"
    started, done = time.monotonic(), 0

    def tell(part: int) -> None:
        nonlocal done
        done += part
        log.info("%s%s rows, %.0f s", f"{done:,}", of, time.monotonic() - started)

    return tell
