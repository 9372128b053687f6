"""The commands for network flows: netflow read, schema, write."""

import datetime
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tabmt.cli.options import file_option, force_option
from tabmt.outputs import Output, check_outputs
from tabmt.writing import write_text

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ALL = "all"


@click.group()
def netflow() -> None:
    """Read and write network flows of CIDDS-001."""


@netflow.command()
@click.argument("files", nargs=-1, required=True)
@file_option("--output", "-o", required=True, help="table of fields to write")
@click.option(
    "--class", "label", default="normal", show_default=True,
    help=f"class of the flows to read, or {ALL!r}",
)  # fmt: skip
@file_option(
    "--valid", help="write a random part of the flows to this file instead, for validation"
)
@click.option(
    "--share", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05,
    show_default=True, help="share of the flows for --valid",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="random seed of that split")
@force_option
def read(
    files: tuple[str, ...],
    output: str,
    label: str,
    valid: str | None,
    share: float,
    seed: int,
    force: bool,
) -> None:
    """Turn weekly FILES into the paper's sixteen fields.

    \b
    Example:
      tabmt netflow read CIDDS-001-internal-week*.csv -o flows.parquet --valid valid.parquet
    """
    from tabmt.netflow import write_fields

    targets = [output] if valid is None else [output, valid]
    check_outputs([Output.by_suffix(target) for target in targets], files, force=force)
    selected = None if label == ALL else label
    valid_share = share if valid else 0.0
    count = write_fields(output, files, label=selected, valid_share=valid_share, seed=seed)
    log.info("wrote %s flows to %s", f"{count:,}", output)
    if valid:
        count = write_fields(valid, files, label=selected, valid_share=share, only_valid=True,
                             seed=seed)  # fmt: skip
        log.info("wrote %s flows to %s", f"{count:,}", valid)


@netflow.command()
@file_option("--output", "-o", help="write to this file instead of standard output")
@click.option(
    "--rules",
    is_flag=True,
    help="include the seven invariants as rules, which generated rows then satisfy",
)
@force_option
def schema(output: str | None, rules: bool, force: bool) -> None:
    """Write a schema in which every field is a category.

    That is what the paper does. With --rules, the file can also be passed to `tabmt evaluate
    --rules`.

    \b
    Example:
      tabmt netflow schema -o flows.json
      tabmt netflow schema --rules -o invariants.json
    """
    from tabmt.netflow import schema as flow_schema

    if output is not None:
        check_outputs([Output(output, "schema")], [], force=force)
    text = json.dumps(flow_schema(rules), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(Path(output), text)


@netflow.command()
@click.argument("table")
@file_option("--output", "-o", required=True, help="weekly file to write")
@click.option(
    "--week",
    type=click.DateTime(["%Y-%m-%d"]),
    required=True,
    metavar="YYYY-MM-DD",
    help="any day of the week in which the flows take place",
)
@click.option("--class", "label", default="normal", show_default=True, help="class of all flows")
@click.option(
    "--attack-type", "attack", default="---", show_default=True, help="type of attack of all flows"
)
@force_option
def write(
    table: str, output: str, week: datetime.datetime, label: str, attack: str, force: bool
) -> None:
    """Turn a TABLE of fields into a weekly file.

    \b
    Example:
      tabmt netflow write synthetic.parquet -o synthetic-week.csv --week 2017-03-20
    """
    from tabmt.data.dataset import Dataset
    from tabmt.netflow import to_flows, write_flows
    from tabmt.netflow.cidds import BATCH_ROWS

    check_outputs([Output.by_suffix(output)], [table], force=force)
    rows = 0

    def flows() -> "Iterator[pa.Table]":
        nonlocal rows
        for batch in Dataset.open(table).batches(BATCH_ROWS):
            rows += batch.num_rows
            yield to_flows(batch, week.date(), label=label, attack=attack)

    write_flows(output, flows())
    log.info("wrote %s flows to %s", f"{rows:,}", output)
