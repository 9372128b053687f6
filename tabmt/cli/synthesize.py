"""The commands that do all steps at once: synthesize, demo."""

import logging
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tabmt.cli.console import show_table, stage_progress
from tabmt.cli.evaluate import ABOVE_MAX_RISK, MAX_RISK
from tabmt.cli.options import exit_code, file_option, given_on_command_line, options_from
from tabmt.config import CodecConfig, PrivacyConfig, TrainConfig
from tabmt.printable import printable

if TYPE_CHECKING:
    from tabmt.synthesis.synthesize import Synthesis

log = logging.getLogger(__name__)

FORCE = (
    "start again and overwrite earlier results, and other files of the same names, in the folder; "
    "all other files are kept"
)


@click.command()
@click.argument("table")
@file_option(
    "--output",
    "-o",
    metavar="FOLDER",
    help="folder for the results  [default: the name of TABLE with -synthetic, in the current "
    "folder]",
)
@click.option(
    "--rows",
    "-n",
    type=click.IntRange(min=1),
    help="number of synthetic rows  [default: as many as TABLE has; with --epsilon, about as many "
    "as there are training rows]",
)
@file_option("--schema", help="schema file, as `tabmt schema` writes it")
@click.option(
    "--max-risk",
    type=float,
    metavar="RISK",
    help=MAX_RISK,
)
@click.option("--seed", type=int, default=0, show_default=True, help="random seed of all steps")
@options_from(TrainConfig, only=("target", "minutes", "steps", "threads"))
@options_from(CodecConfig, only=("protect",))
@options_from(PrivacyConfig)
@click.option("--force", is_flag=True, help=FORCE)
def synthesize(
    table: str,
    output: str | None,
    rows: int | None,
    schema: str | None,
    max_risk: float | None,
    seed: int,
    target: str | None,
    force: bool,
    **settings: Any,
) -> None:
    """Fit a model to TABLE, generate rows and evaluate them.

    Sets some rows of TABLE aside as test rows, fits a model to the others, generates rows, runs
    privacy attacks on them, and writes a folder with the model, the synthetic rows in the format of
    TABLE, a report, and README.txt, which describes the files and how to repeat each step. If the
    command is interrupted, run it again to resume. TABLE must fit in memory. With --epsilon, the
    model and the synthetic rows have differential privacy, but the report and the scores do not:
    they compare with real rows.

    \b
    Examples:
      tabmt synthesize people.csv
      tabmt synthesize people.csv -o results --target income --minutes 5 --max-risk 0.05
    """
    given = given_on_command_line(settings)
    result = _synthesize(table, output, rows=rows, schema=schema, max_risk=max_risk, seed=seed,
                         target=target, force=force, **given)  # fmt: skip
    _show(result)
    if result.evaluation.privacy.passed is False:
        click.get_current_context().exit(ABOVE_MAX_RISK)


def _synthesize(table: str, folder: str | None, **options: Any) -> "Synthesis":
    """Do it with one progress display for all stages."""
    from tabmt.synthesis.synthesize import STAGES, synthesize

    logging.getLogger("tabmt.evaluation").setLevel(logging.WARNING)  # the display says it
    try:
        with stage_progress(STAGES) as progress:
            return synthesize(table, folder, progress=progress, **options)
    except KeyboardInterrupt as error:
        log.warning("Interrupted; run the same command again to resume.")
        raise SystemExit(exit_code(error)) from None
    finally:
        logging.getLogger("tabmt.evaluation").setLevel(logging.NOTSET)


def _show(result: "Synthesis") -> None:
    click.echo(printable("\n".join(result.verdict), keep="\n"))
    click.echo(
        f"The results are in {result.folder}: {result.report.name}, the rows "
        f"({result.synthetic.name}), the model ({result.model.name}); {result.readme.name} "
        "describes all files."
    )


@click.command()
@file_option(
    "--output",
    "-o",
    metavar="FOLDER",
    default="demo",
    show_default=True,
    help="folder for the results",
)
@click.option("--minutes", type=float, default=1.0, show_default=True, help="maximum training time")
@click.option("--seed", type=int, default=0, show_default=True, help="random seed")
@click.option("--force", is_flag=True, help=FORCE)
def demo(output: str, minutes: float, seed: int, force: bool) -> None:
    """Run `synthesize` on the bundled penguins table.

    The table has 344 penguins. The command also shows real and synthetic rows side by side. A
    random quarter of the penguins is set aside as test rows. These are too few for the verdict
    "safe by these tests", but more test rows would leave too few for training.

    \b
    Example:
      tabmt demo -o demo
    """
    from tabmt.demo import penguins

    result = _synthesize(penguins(), output, target="species", minutes=minutes, seed=seed,
                         force=force)  # fmt: skip
    _show_tables(result)
    _show(result)
    click.echo(f"Next, try: {_program()} serve {result.model}")


def _program() -> str:
    """How this program is called: with its path, if the shell does not find it by its name."""
    return "tabmt" if shutil.which("tabmt") is not None else sys.argv[0]


def _show_tables(result: "Synthesis") -> None:
    """A summary of the real and the synthetic rows side by side, and some synthetic rows."""
    from tabmt.data.files import read_file
    from tabmt.data.typed_columns import in_schema_types
    from tabmt.demo import side_by_side
    from tabmt.estimator import TabMT

    schema = TabMT.load(result.model).schema_
    real, synthetic = (
        in_schema_types(read_file(path)[0], schema) for path in (result.train, result.synthetic)
    )
    lines = side_by_side(real, synthetic, schema)
    show_table(("column", "real", "synthetic"), lines, "median (5 % to 95 %), or shares")
    rows: Sequence[tuple[str, ...]] = [
        tuple("" if value is None else str(value) for value in row.values())
        for row in synthetic.slice(0, 5).to_pylist()
    ]
    show_table(tuple(schema.names), list(rows), "five synthetic rows")
