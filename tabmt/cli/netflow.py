"""The commands for network flows, `tabmt netflow`; like `cli`, each calls the library."""

import datetime
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tabmt.cli.options import file_to_write
from tabmt.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ALL = "all"


@click.group()
def netflow() -> None:
    """Network flows of CIDDS-001: read the published files, write files of the same form."""


@netflow.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--output", "-o", required=True, help="the table of fields to write")
@click.option("--class", "label", default="normal", show_default=True, help=f"or {ALL!r}")
@click.option("--valid", help="put some of the flows into this file instead")
@click.option(
    "--share", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05,
    show_default=True, help="of the flows that --valid gets",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="of that choice")
def read(
    files: tuple[str, ...], output: str, label: str, valid: str | None, share: float, seed: int
) -> None:
    """Turn weekly FILES into the sixteen fields that the paper learns.

    \b
    Example:
      tabmt netflow read CIDDS-001-internal-week*.csv -o flows.parquet --valid valid.parquet
    """
    from tabmt.netflow import write_fields

    if valid is not None and Path(valid).resolve() == Path(output).resolve():
        raise UserError(f"--valid and --output are one file, {output!r}; name two.")
    for target in filter(None, (output, valid)):
        if file_to_write(target).resolve() in [Path(file).resolve() for file in files]:
            raise UserError(f"{target!r} is one of the files to read; name another to write.")
    kept = write_fields(output, files, label=None if label == ALL else label,
                        held_out=share if valid else 0.0, seed=seed)  # fmt: skip
    log.info("%s flows are in %s", f"{kept:,}", output)
    if valid:
        apart = write_fields(valid, files, label=None if label == ALL else label,
                             held_out=share, only_held_out=True, seed=seed)  # fmt: skip
        log.info("%s flows are in %s", f"{apart:,}", valid)


@netflow.command()
@click.option("--output", "-o", help="write to this file instead of standard output")
@click.option("--rules", is_flag=True, help="with the seven invariants: rows then keep them")
def schema(output: str | None, rules: bool) -> None:
    """A schema in which every field is a category, as in the paper.

    With --rules it is also a file for `tabmt evaluate --rules`.

    \b
    Example:
      tabmt netflow schema -o flows.json
      tabmt netflow schema --rules -o invariants.json
    """
    from tabmt.data.files import write_text
    from tabmt.netflow import schema as flow_schema

    text = json.dumps(flow_schema(rules), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(Path(output), text)


@netflow.command()
@click.argument("table")
@click.option("--output", "-o", required=True, help="the weekly file to write")
@click.option(
    "--week", type=click.DateTime(["%Y-%m-%d"]), required=True, help="a day of the week they lie in"
)
@click.option("--class", "label", default="normal", show_default=True, help="of all the flows")
@click.option("--attack-type", "attack", default="---", show_default=True, help="of all the flows")
def write(table: str, output: str, week: datetime.datetime, label: str, attack: str) -> None:
    """Turn a TABLE of fields into a file as CIDDS-001 publishes them.

    \b
    Example:
      tabmt netflow write synthetic.parquet -o synthetic-week.csv --week 2017-03-20
    """
    from tabmt.data import files as tables
    from tabmt.netflow import to_flows, write_flows
    from tabmt.netflow.cidds import BATCH_ROWS

    found, _ = tables.batches(table, BATCH_ROWS)
    rows = 0

    def flows() -> "Iterator[pa.Table]":
        nonlocal rows
        for part in found:
            rows += part.num_rows
            yield to_flows(part, week.date(), label=label, attack=attack)

    write_flows(output, flows())
    log.info("%s flows are in %s", f"{rows:,}", output)
