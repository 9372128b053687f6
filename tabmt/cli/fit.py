"""The commands around fitting: schema, fit, info."""

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from tabmt.cli.console import is_main_process, show_model, show_scan, training_progress
from tabmt.cli.options import (
    FORCE,
    GroupedCommand,
    GroupedOption,
    engine_option,
    exit_code,
    file_option,
    force_option,
    given_on_command_line,
    model_to_write,
    options_from,
    read_config,
)
from tabmt.config import (
    CodecConfig,
    GenerationConfig,
    NetworkConfig,
    PrivacyConfig,
    TrainConfig,
)
from tabmt.errors import UserError
from tabmt.json_files import json_text
from tabmt.outputs import Output, check_outputs
from tabmt.writing import claimed, write_text

log = logging.getLogger(__name__)


@click.command()
@click.argument("table")
@file_option("--output", "-o", help="write to this file instead of standard output")
@file_option(
    "--schema", "overrides", help="schema file with your changes, to check and show with the rest"
)
@force_option
@options_from(CodecConfig, only=("missing", "few_values", "find_ids", "find_rules", "protect"))
def schema(
    table: str, output: str | None, overrides: str | None, force: bool, **settings: Any
) -> None:
    """Show the kind of each column of TABLE, and why.

    The result is JSON. Edit it and pass it to `fit --schema`; entries that you do not change may be
    left out. Rules that were found are under `rules`: remove those that generated rows need not
    satisfy. The settings from --missing to --protect have the same meaning as in `fit`.

    \b
    Example:
      tabmt schema people.csv -o schema.json
    """
    from tabmt.data.infer import infer_schema
    from tabmt.data.overrides import read_overrides

    if output is not None:
        check_outputs([Output(output, "schema")], [table, overrides], force=force)
    found = infer_schema(table, config=CodecConfig(**settings), overrides=read_overrides(overrides))
    text = json_text(found.to_json(), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(Path(output), text)


@click.command(cls=GroupedCommand)
@click.argument("table")
@file_option(
    "--output",
    "-o",
    cls=GroupedOption,
    group="Output",
    help="model file to write  [default: the name of TABLE with .tabmt, in the current folder]",
)
@click.option(
    "--resume",
    is_flag=True,
    cls=GroupedOption,
    group="Output",
    help="resume an interrupted fit from its checkpoint, the file OUTPUT.checkpoint",
)
@file_option(
    "--schema",
    "schema_file",
    cls=GroupedOption,
    group="Data",
    help="schema file, as `tabmt schema` writes it",
)
@file_option(
    "--from",
    "start",
    cls=GroupedOption,
    group="Data",
    help="model to continue training from; its schema and network are kept",
)
@file_option(
    "--config",
    "config_file",
    cls=GroupedOption,
    group="Training",
    help="TOML file of settings, or a preset: paper (the paper's method), or S, M, L (the models "
    "of the paper's scaling experiments)",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    cls=GroupedOption,
    group="Training",
    help="random seed; fits are reproducible if --threads is set and --minutes is not",
)
@file_option(
    "--store",
    metavar="FOLDER",
    cls=GroupedOption,
    group="Data",
    help="folder in which the encoded table is kept for later fits; used only if TABLE is larger "
    "than memory",
)
@engine_option(
    "where to encode a table that does not fit in memory", cls=GroupedOption, group="Hardware"
)
@click.option(
    "--force",
    is_flag=True,
    cls=GroupedOption,
    group="Output",
    help=FORCE,
)
@options_from(CodecConfig, PrivacyConfig, NetworkConfig, TrainConfig, GenerationConfig)
def fit(
    table: str,
    output: str | None,
    resume: bool,
    schema_file: str | None,
    start: str | None,
    config_file: str | None,
    seed: int,
    store: str | None,
    engine: Any,
    force: bool,
    **settings: Any,
) -> None:
    """Fit a model to TABLE and write it to a file.

    TABLE is a CSV, Parquet or Arrow file, a folder of such files, or a pattern such as
    'months/*.csv'. Training ends after --steps or --minutes, or earlier when the validation loss no
    longer improves. Options given here override those in --config. Checkpoints are saved
    during training: if the command is interrupted, run it again with --resume.

    \b
    Example:
      tabmt fit people.csv --minutes 5
    """
    target = model_to_write(_model_name(table) if output is None else output)
    checkpoint = target.with_name(target.name + ".checkpoint")
    outputs = [Output(target, "model"), Output(checkpoint, "checkpoint")]
    given = [table, schema_file, start, config_file]
    check_outputs(outputs, given, folders=[] if store is None else [store], force=force)
    is_main = is_main_process()
    with claimed(target, "The output") if is_main else nullcontext():
        _check_checkpoint(checkpoint, resume)
        from tabmt.estimator import TabMT

        if config_file is not None:
            settings |= read_config(config_file, settings) | given_on_command_line(settings)
        model = TabMT(seed=seed, **settings)
        before = None if start is None else TabMT.load(start)
        try:
            with training_progress() as on_step:
                model.fit(
                    table,
                    schema=schema_file,
                    continue_from=before,
                    checkpoint=checkpoint,
                    resume=resume,
                    store=store,
                    engine=engine,
                    on_step=on_step,
                )
        except KeyboardInterrupt as error:
            if checkpoint.exists():
                log.warning("Interrupted; run the same command with --resume.")
            raise SystemExit(exit_code(error)) from None
        if is_main:  # of several processes, one writes
            model.save(target, force=force)
            checkpoint.unlink(missing_ok=True)
            log.info("wrote %s", target)


def _model_name(table: str) -> str:
    from tabmt.data.files import name_of_table

    return f"{name_of_table(table)}.tabmt"


def _check_checkpoint(checkpoint: Path, resume: bool) -> None:
    if resume and not checkpoint.exists():
        raise UserError(f"There is no checkpoint {str(checkpoint)!r} to resume from.")
    if checkpoint.exists() and not resume:
        raise UserError(
            f"There is a checkpoint of an interrupted fit, {str(checkpoint)!r}. Use --resume, or "
            "delete the file to start again."
        )


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="everything, as JSON")
@click.option(
    "--scan",
    "table",
    metavar="TABLE",
    help="search the file for values of TABLE that occur in too few rows; the exit code is 1 if "
    "there are any",
)
@click.option(
    "--protect",
    type=click.IntRange(min=2),
    help="with --scan: search for values in fewer rows than this  [default: as MODEL was fitted]",
)
def info(model: str, as_json: bool, table: str | None, protect: int | None) -> None:
    """Describe MODEL and the real values in its file.

    \b
    Examples:
      tabmt info people.tabmt
      tabmt info people.tabmt --scan people.csv
    """
    from tabmt.estimator import TabMT

    loaded = TabMT.load(model)
    if table is not None:
        _scan(model, table, protect or loaded.card_.settings.codec.protect or CodecConfig.protect)
        return
    if as_json:
        from tabmt.model.stored_values import describe

        everything = {
            "card": loaded.card_.to_json(),
            "schema": loaded.schema_.to_json(),
            "real_values": describe(loaded.model_),
        }
        click.echo(json_text(everything, indent=2))
        return
    show_model(model, loaded.model_)


def _scan(model: str, table: str, protect: int) -> None:
    from tabmt.model.stored_values import scan_file

    scan = scan_file(Path(model), table, protect)
    show_scan(model, scan)
    if scan.found:
        raise SystemExit(1)
