"""The commands that evaluate: evaluate, demo."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tabmt.cli.console import show_table, training_progress
from tabmt.cli.options import file_option, force_option
from tabmt.errors import UserError
from tabmt.json_files import json_text, read_json
from tabmt.outputs import Output, check_outputs
from tabmt.printable import printable
from tabmt.writing import make_folder, write_text

log = logging.getLogger(__name__)


@click.command()
@click.argument("synthetic", nargs=-1, required=True)
@file_option("--train", required=True, help="real table on which the generator was trained")
@file_option(
    "--test",
    help="real rows that the generator has not seen  [default: some of --train; scores then look "
    "better than they are]",
)
@file_option("--valid", help="real rows for CatBoost's early stopping  [default: some of --train]")
@click.option("--target", help="column to predict, for ML efficiency")
@file_option("--schema", help="schema file that `fit` was given: kinds, missing values, rules")
@file_option("--rules", "rules_file", help='more rules: a JSON file {"name": "end >= start", ...}')
@file_option("--catboost", "catboost_file", help="JSON file of CatBoost settings")
@click.option(
    "--paper",
    is_flag=True,
    help="ML efficiency as in the paper: 50 models on 40 times the training rows, slow",
)
@file_option(
    "--embed",
    metavar="MODEL",
    help="compute precision and recall of all tables in the embedding of this model",
)
@click.option("--seed", type=int, default=0, show_default=True, help="random seed of the metrics")
@file_option("--json", "json_file", help="write all scores to this file")
@file_option("--report", "report_file", help="write an HTML report to this file")
@file_option(
    "--figures",
    "figures_folder",
    metavar="FOLDER",
    help="write correlation_errors.svg and, with --embed, manifold.svg into this folder",
)
@file_option("--front", "front_file", help="front of `tabmt pareto search` to add to the report")
@force_option
def evaluate(
    synthetic: tuple[str, ...],
    train: str,
    test: str | None,
    valid: str | None,
    target: str | None,
    schema: str | None,
    rules_file: str | None,
    catboost_file: str | None,
    paper: bool,
    embed: str | None,
    seed: int,
    json_file: str | None,
    report_file: str | None,
    figures_folder: str | None,
    front_file: str | None,
    force: bool,
) -> None:
    """Compare SYNTHETIC tables with real ones.

    Measures how good and how private they are. They may come from any generator. With --test, every
    score is shown beside that of real rows which the generator has not seen.

    \b
    Examples:
      tabmt evaluate synthetic.csv --train train.csv --test test.csv --target income --report r.html
      tabmt evaluate a.csv b.csv --train train.csv --embed people.tabmt --figures figures
    """
    from tabmt.evaluation.evaluate import Evaluator
    from tabmt.evaluation.report.report import scores_as_text, write_report
    from tabmt.rules.rule import load_rules

    _prepare_figures(figures_folder, embed)
    inputs = [*synthetic, train, test, valid, schema, rules_file, catboost_file, embed, front_file]
    check_outputs(_outputs(json_file, report_file, figures_folder), inputs, force=force)
    front, pictures = _read_front(front_file)
    evaluator = Evaluator.of(
        train,
        test,
        valid,
        target=target,
        schema=schema,
        rules=[] if rules_file is None else load_rules(rules_file),
        catboost_settings=None if catboost_file is None else read_json(catboost_file, "settings"),
        paper=paper,
        embed=embed,
        seed=seed,
    )
    for note in evaluator.notes:
        log.warning(note)
    named = zip(synthetic, _table_names(synthetic), strict=True)
    tables = [evaluator.evaluate(path, name) for path, name in named]
    click.echo(printable(scores_as_text([t.evaluation for t in tables]), keep="\n"))
    if json_file is not None:
        content = [table.evaluation.to_json() for table in tables]
        write_text(Path(json_file), json_text(content, indent=2) + "\n")
    if report_file is not None:
        write_report(evaluator, tables, report_file, front, pictures)
        log.info("wrote the report to %s", report_file)
    if figures_folder is not None:
        from tabmt.evaluation.report.figures import write_figures

        for path in write_figures(evaluator, tables, figures_folder):
            log.info("wrote %s", path)


def _read_front(path: str | None) -> tuple[Any, list[Any]]:
    """A front and its pictures, if one is given."""
    if path is None:
        return None, []
    from tabmt.search.charts import front_pictures
    from tabmt.search.pareto_front import Front

    front = Front.load(path)
    return front, list(front_pictures(front))


def _prepare_figures(folder: str | None, embed: str | None) -> None:
    """See that figures can be drawn: before the work, not after it."""
    from tabmt.evaluation.report import charts, figures

    if folder is not None:
        charts.converter()
        if embed is not None:
            figures.pacmap()
        make_folder(Path(folder))


def _outputs(json_file: str | None, report_file: str | None, folder: str | None) -> list[Output]:
    outputs = [] if json_file is None else [Output(json_file, "scores")]
    if report_file is not None:
        outputs.append(Output(report_file, "report"))
    if folder is not None:
        figures = ("correlation_errors.svg", "manifold.svg")
        outputs += [Output(Path(folder) / name, "SVG") for name in figures]
    return outputs


def _table_names(paths: Sequence[str]) -> list[str]:
    """The name of each file or folder; a pattern, and what has the name of another, as it is."""
    names = [Path(path).name if Path(path).exists() else path for path in paths]
    return [n if names.count(n) == 1 else path for n, path in zip(names, paths, strict=True)]


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
@force_option
def demo(output: str, minutes: float, seed: int, force: bool) -> None:
    """Fit, sample and evaluate an embedded real table.

    The table is about penguins. A random quarter of its rows is kept for the evaluation.

    \b
    Example:
      tabmt demo -o demo
    """
    from tabmt.data.files import read_file, write_file
    from tabmt.data.typed_columns import in_schema_types
    from tabmt.demo import penguins, side_by_side, split
    from tabmt.estimator import TabMT
    from tabmt.evaluation.evaluate import Evaluator
    from tabmt.evaluation.metrics import fidelity
    from tabmt.evaluation.report.report import verdict, write_report

    fidelity.catboost()  # what is not installed is said before training, not after it
    folder = Path(output)
    make_folder(folder)
    if any(folder.iterdir()) and not (folder / "penguins.tabmt").exists() and not force:
        raise UserError(
            f"The folder {output!r} contains other files; use an empty folder, or --force."
        )
    train, test = split(folder, seed)
    real, _ = read_file(train)
    name = Path(penguins()).name
    log.info("Learning %d penguins of %s for up to %g minutes", len(real), name, minutes)
    with training_progress() as on_step:
        model = TabMT(minutes=minutes, seed=seed).fit(train, on_step=on_step)
    model.save(folder / "penguins.tabmt")
    synthetic = model.sample(len(real), seed=seed + 1, output="arrow")
    write_file(folder / "synthetic.csv", model.schema_, [synthetic])

    lines = side_by_side(in_schema_types(real, model.schema_), synthetic, model.schema_)
    show_table(("column", "real", "synthetic"), lines, "median (5 % to 95 %), or shares")
    rows = [
        tuple("" if value is None else str(value) for value in row.values())
        for row in synthetic.slice(0, 5).to_pylist()
    ]
    show_table(tuple(model.schema_.names), rows, "five synthetic rows")

    log.info("Comparing them with the penguins that were kept for the evaluation")
    evaluator = Evaluator.of(train, test, target="species", seed=seed)
    logging.getLogger("tabmt.evaluation.evaluate").setLevel(logging.WARNING)
    evaluated = evaluator.evaluate(folder / "synthetic.csv", name="synthetic.csv")
    write_report(evaluator, [evaluated], folder / "report.html")
    for sentence in verdict(evaluated.evaluation):
        click.echo(sentence)
    click.echo(f"The report is {folder / 'report.html'}; the model and the rows are beside it.")
