"""The commands that use a model: sample, complete, like, impute, score, embed."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from tabmt.cli.console import report_files, report_rows
from tabmt.cli.options import (
    SEVERAL_TIMES,
    engine_option,
    file_option,
    force_option,
    formulas_option,
    options_from,
    parse_draw_options,
    parse_keep,
    threads_option,
)
from tabmt.config import DrawOptions, Engine, Imputation, SampleOptions
from tabmt.errors import UserError
from tabmt.outputs import Output, check_outputs

if TYPE_CHECKING:
    import pyarrow as pa

    from tabmt.estimator import TabMT

log = logging.getLogger(__name__)

FILE = "CSV, Parquet or Arrow file to write; - writes CSV to standard output"
SEED = "random seed; the same seed gives the same rows"


def _load(model: str, threads: int | None) -> "TabMT":
    from tabmt.estimator import TabMT

    loaded: TabMT = TabMT.load(model).set_params(threads=threads)
    return loaded


def _write(
    model: "TabMT",
    output: str,
    batches: "Iterator[pa.Table]",
    rows: int | None,
    *,
    escape_formulas: bool,
) -> None:
    """Write rows as they are made."""
    from tabmt.data import files

    reported = report_rows(batches, rows)
    files.write_file(output, model.schema_, reported, escape_formulas=escape_formulas)
    if output != files.STDOUT:
        log.info("wrote %s", output if rows is None else f"{rows:,} rows to {output}")


def _check_output(output: str, inputs: Sequence[str], *, force: bool, draws: int = 0) -> None:
    """See that an output can be written, and its name says its format: before the work."""
    from tabmt.data import files

    if output.endswith(("/", os.sep)) or Path(output).is_dir():
        raise UserError(f"The output {output!r} is a folder, but this command writes a file.")
    if output == files.STDOUT:
        if sys.stdout is None:
            raise UserError("Standard output is closed; name a file with --output.")
        return
    files.file_kind(Path(output))
    names = [files.numbered(output, draw + 1) for draw in range(draws)] or [output]
    check_outputs([Output.by_suffix(name) for name in names], inputs, force=force)


def _is_folder(output: str, engine: Engine) -> bool:
    """Whether a folder of files is asked for."""
    if output.endswith(("/", os.sep)) or Path(output).is_dir():
        return True
    if engine != "local":
        raise UserError(
            f"--engine {engine} writes a folder of files, but the output is {output!r}; "
            "end it with a slash."
        )
    return False


@click.command()
@click.argument("model")
@click.option("--rows", "-n", type=click.IntRange(min=0), required=True, help="number of rows")
@file_option(
    "--output",
    "-o",
    default="-",
    help=f"{FILE}; NAME/ for a folder of Parquet files  [default: -]",
)
@options_from(SampleOptions)
@threads_option
@engine_option("where to generate the files of an output folder")
@formulas_option
@force_option
def sample(
    model: str,
    rows: int,
    output: str,
    threads: int | None,
    engine: Engine,
    escape_formulas: bool,
    force: bool,
    **options: Any,
) -> None:
    """Generate new rows from MODEL.

    If the output ends with a slash, the rows are written to a folder of Parquet files of a million
    rows each; this needs --seed. If the command is interrupted, run it again: finished files are
    kept.

    \b
    Examples:
      tabmt sample people.tabmt -n 1000 -o synthetic.csv --temperature 1.1 --temperature age=1.5
      tabmt sample people.tabmt -n 500 --where "sex = Female" --where "age in 30..40" -o women.csv
      tabmt sample people.tabmt -n 100000000 -o rows/ --seed 1 --engine ray
    """
    is_folder = _is_folder(output, engine)
    if is_folder and options["seed"] is None:
        raise UserError(
            "A folder of files needs --seed, so that an interrupted command can be resumed."
        )
    if is_folder:
        check_outputs([], [model], folders=[output])
    else:
        _check_output(output, [model], force=force)
    loaded = _load(model, threads)
    options = parse_draw_options(options, loaded.schema_.names)
    if is_folder:
        loaded.sample_to(output, rows, engine=engine, on_file=report_files(rows), **options)
        log.info("wrote %s rows to %s", f"{rows:,}", output)
        return
    batches = loaded.sample_batches(rows, **options)
    _write(loaded, output, batches, rows, escape_formulas=escape_formulas)


@click.command()
@click.argument("model")
@click.argument("table")
@file_option("--output", "-o", default="-", help=f"{FILE}  [default: -]")
@options_from(DrawOptions)
@threads_option
@formulas_option
@force_option
def complete(
    model: str,
    table: str,
    output: str,
    threads: int | None,
    escape_formulas: bool,
    force: bool,
    **options: Any,
) -> None:
    """Generate the cells that are missing in the rows of TABLE.

    Columns that TABLE does not have are generated, too; known cells stay as they are. A cell may be
    generated as missing: use --no-missing, or `tabmt impute`, to fill every cell.

    \b
    Example:
      tabmt complete people.tabmt half_known.csv -o completed.csv
    """
    _check_output(output, [model, table], force=force)
    loaded = _load(model, threads)
    options = parse_draw_options(options, loaded.schema_.names)
    batches = loaded.complete_batches(table, **options)
    _write(loaded, output, batches, None, escape_formulas=escape_formulas)


@click.command()
@click.argument("model")
@click.argument("table")
@click.option(
    "--rows",
    "-n",
    type=click.IntRange(min=0),
    help="number of rows  [default: as many as TABLE has]",
)
@click.option(
    "--keep",
    required=True,
    help="columns to keep (a,b,c), or how many random cells of each row to keep",
)
@file_option("--output", "-o", default="-", help=f"{FILE}  [default: -]")
@options_from(DrawOptions)
@threads_option
@formulas_option
@force_option
def like(
    model: str,
    table: str,
    rows: int | None,
    keep: str,
    output: str,
    threads: int | None,
    escape_formulas: bool,
    force: bool,
    **options: Any,
) -> None:
    """Generate rows that share some cells with the rows of TABLE.

    If --rows is more than TABLE has, its rows are used repeatedly.

    \b
    Example:
      tabmt like people.tabmt people.csv --keep group,height -n 100 -o similar.csv
    """
    _check_output(output, [model, table], force=force)
    loaded = _load(model, threads)
    options = parse_draw_options(options, loaded.schema_.names)
    batches = loaded.like_batches(table, rows, keep=parse_keep(keep), **options)
    _write(loaded, output, batches, rows, escape_formulas=escape_formulas)


@click.command()
@click.argument("model")
@click.argument("table")
@file_option(
    "--output",
    "-o",
    default="-",
    help=f"{FILE}; NAME/ for a folder of Parquet files  [default: -]",
)
@click.option(
    "--how",
    type=click.Choice(get_args(Imputation)),
    default="draw",
    show_default=True,
    help="draw: a random value given the known cells; mode: the likeliest value; mean: the "
    "expected number, and the likeliest value of other columns",
)
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    help="write this many tables, NAME.1.csv and so on, for multiple imputation",
)
@click.option("--column", "columns", multiple=True, help=f"fill only this column; {SEVERAL_TIMES}")
@click.option("--seed", type=int, default=0, show_default=True, help=SEED)
@threads_option
@engine_option("where to generate the files of an output folder")
@formulas_option
@force_option
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
    escape_formulas: bool,
    force: bool,
) -> None:
    """Fill missing values with random, likeliest or mean values.

    Every known cell of TABLE stays as it is. TABLE may be a file, a folder of files or a pattern.
    If the output ends with a slash, a folder of Parquet files is written. If the command is then
    interrupted, run it again: finished files are kept.

    \b
    Examples:
      tabmt impute people.tabmt people.csv -o filled.csv
      tabmt impute people.tabmt 'months/*.parquet' -o filled/ --engine ray
    """
    from tabmt.data import files

    chosen = columns or None
    if _is_folder(output, engine):
        if draws is not None:
            raise UserError(
                "--draws writes files, not folders; run the command once for each folder, with "
                "another --seed."
            )
        check_outputs([], [model, table], folders=[output])
        loaded = _load(model, threads)
        rows = loaded.impute_to(
            output,
            table,
            how=how,
            columns=chosen,
            seed=seed,
            engine=engine,
            on_file=report_files(None),
        )
        log.info("wrote %s rows to %s", f"{rows:,}", output)
        return
    if draws is not None and output == files.STDOUT:
        raise UserError("--draws writes several files; give their name with --output.")
    if draws is not None and how != "draw":
        raise UserError(f"--draws needs --how draw; {how} gives the same table every time.")
    _check_output(output, [model, table], force=force, draws=draws or 0)
    loaded = _load(model, threads)
    warned: set[str] = set()
    for draw in range(draws or 1):
        target = output if draws is None else files.numbered(output, draw + 1)
        _impute_file(loaded, table, target, escape_formulas, how=how, columns=chosen, seed=seed,
                     draw=draw, warned=warned)  # fmt: skip
        if target != files.STDOUT:
            log.info("wrote %s", target)


def _impute_file(
    model: "TabMT", table: str, target: str, escape_formulas: bool, **options: Any
) -> None:
    from tabmt.data import files
    from tabmt.data.dataset import Dataset
    from tabmt.data.typed_columns import in_schema_types
    from tabmt.model.generate import BATCH_ROWS

    dataset = Dataset.open(table)
    batches = report_rows(dataset.batches(BATCH_ROWS), dataset.known_num_rows)
    files.write_like(
        target,
        dataset.source.kind,
        lambda batch: in_schema_types(batch, model.schema_),
        model.schema_,
        model.impute_batches(batches, **options),
        escape_formulas=escape_formulas,
    )


@click.command()
@click.argument("model")
@click.argument("table")
@file_option("--output", "-o", default="-", help=f"{FILE}  [default: -]")
@click.option(
    "--orders",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="column orders to average over: more are more precise and slower",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="random seed of the column orders"
)
@threads_option
@force_option
def score(
    model: str,
    table: str,
    output: str,
    orders: int,
    seed: int,
    threads: int | None,
    force: bool,
) -> None:
    """Compute the log-likelihood and anomaly score of each row.

    For each row of TABLE: its log-likelihood under MODEL, an anomaly score (higher is more
    unusual), and its most unusual column.

    \b
    Example:
      tabmt score people.tabmt new_people.csv -o scores.csv
    """
    from tabmt.data import files
    from tabmt.data.dataset import Dataset
    from tabmt.data.schema import Schema
    from tabmt.model.generate import BATCH_ROWS
    from tabmt.model.row_scores import SCORES

    _check_output(output, [model, table], force=force)
    loaded = _load(model, threads)
    dataset = Dataset.open(table)
    scores = (
        loaded.score(batch, orders=orders, seed=seed, output="arrow")
        for batch in report_rows(dataset.batches(BATCH_ROWS), dataset.known_num_rows)
    )
    files.write_file(output, Schema.of_table(SCORES), scores)
    if output != files.STDOUT:
        log.info("wrote %s", output)


@click.command()
@click.argument("model")
@click.argument("table")
@file_option("--output", "-o", default="-", help=f"{FILE}  [default: -]")
@threads_option
@force_option
def embed(model: str, table: str, output: str, threads: int | None, force: bool) -> None:
    """Write the embedding of each row of TABLE.

    The embedding of a row is the mean of what the network computes for its columns, as in the
    paper. The columns are embedding_0, embedding_1 and so on, as many as the width of MODEL.
    TABLE may be a file, a folder of files or a pattern.

    \b
    Example:
      tabmt embed people.tabmt new_people.csv -o embeddings.parquet
    """
    import pyarrow as pa

    from tabmt.data import files
    from tabmt.data.dataset import Dataset
    from tabmt.data.schema import Schema
    from tabmt.model.generate import BATCH_ROWS

    _check_output(output, [model, table], force=force)
    loaded = _load(model, threads)
    dataset = Dataset.open(table)
    width = loaded.card_.settings.network.width
    columns = pa.schema([(f"embedding_{i}", pa.float32()) for i in range(width)])
    batches = report_rows(dataset.batches(BATCH_ROWS), dataset.known_num_rows)
    files.write_file(output, Schema.of_table(columns), loaded.embed_batches(batches))
    if output != files.STDOUT:
        log.info("wrote %s", output)
