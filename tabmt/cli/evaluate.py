"""The command that evaluates."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tabmt.cli.options import file_option, force_option
from tabmt.json_files import json_text, read_json
from tabmt.outputs import Output, check_outputs
from tabmt.printable import printable
from tabmt.writing import make_folder, write_text

if TYPE_CHECKING:
    from tabmt.evaluation.evaluate import EvaluatedTable, Evaluator
    from tabmt.evaluation.report.report import Picture
    from tabmt.search.pareto_front import Front

log = logging.getLogger(__name__)

ABOVE_MAX_RISK = 1  # exit code
MAX_RISK = (
    'exit with code 1 unless the verdict is "safe by these tests" and the upper confidence limit '
    "of every attack's risk is at most this (0 to 1)"
)


@click.command()
@click.argument("synthetic", nargs=-1, required=True)
@file_option("--train", required=True, help="real table on which the generator was trained")
@file_option(
    "--test",
    help="test rows: real rows that the generator has not seen  [default: some of --train; scores "
    "then look better than they are]",
)
@file_option("--valid", help="real rows for CatBoost's early stopping  [default: some of --train]")
@click.option(
    "--target",
    help="column to predict, for ML efficiency: how well a model trained on SYNTHETIC predicts "
    "real rows",
)
@file_option("--schema", help="schema file that `fit` was given: kinds, missing values, rules")
@file_option("--rules", "rules_file", help='more rules: a JSON file {"name": "end >= start", ...}')
@file_option("--catboost", "catboost_file", help="JSON file of CatBoost settings")
@click.option(
    "--paper",
    is_flag=True,
    help="the paper's protocol for ML efficiency: 50 CatBoost models; SYNTHETIC must have at least "
    "40 times as many rows as --train (slow)",
)
@file_option(
    "--embed",
    metavar="MODEL",
    help="compute precision and recall (how realistic SYNTHETIC is, and how much of the real rows "
    "it covers) on embeddings from this model",
)
@file_option(
    "--model",
    metavar="MODEL",
    help="model that generated the rows, if you share it too; an attack then uses its likelihood",
)
@click.option(
    "--max-risk",
    type=float,
    metavar="RISK",
    help=f"{MAX_RISK}; needs --test",
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
@file_option(
    "--front",
    "front_file",
    help="Pareto front file, as written by `tabmt pareto search`, to show in the report",
)
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
    model: str | None,
    max_risk: float | None,
    seed: int,
    json_file: str | None,
    report_file: str | None,
    figures_folder: str | None,
    front_file: str | None,
    force: bool,
) -> None:
    """Compare SYNTHETIC tables with real ones.

    Measures how good and how private the SYNTHETIC tables are, whichever generator made them. Each
    score is shown next to the score of real rows. With --test, privacy attacks are run on training
    rows and, for comparison, on test rows. The verdict on privacy is "safe by these tests", "do not
    share" or "undecided by these tests".

    \b
    Examples:
      tabmt evaluate synthetic.csv --train train.csv --test test.csv --target income --report r.html
      tabmt evaluate synthetic.csv --train train.csv --test test.csv --max-risk 0.05
      tabmt evaluate a.csv b.csv --train train.csv --embed people.tabmt --figures figures
    """
    from tabmt.evaluation.evaluate import Evaluator
    from tabmt.evaluation.report.report import write_report
    from tabmt.rules.rule import load_rules

    _prepare_figures(figures_folder, embed)
    files = (schema, rules_file, catboost_file, embed, model, front_file)
    outputs = _outputs(json_file, report_file, figures_folder)
    check_outputs(outputs, [*synthetic, train, test, valid, *files], force=force)
    front = _load_front(front_file)
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
        model=model,
        max_risk=max_risk,
        seed=seed,
    )
    tables = _evaluate_all(evaluator, synthetic)
    _print_scores(tables)
    if json_file is not None:
        _write_json(json_file, tables)
    if report_file is not None:
        write_report(evaluator, tables, report_file, *front)
        log.info("wrote the report to %s", report_file)
    if figures_folder is not None:
        _write_figures(evaluator, tables, figures_folder)
    if any(table.evaluation.privacy.passed is False for table in tables):
        click.get_current_context().exit(ABOVE_MAX_RISK)


def _evaluate_all(evaluator: "Evaluator", paths: Sequence[str]) -> "list[EvaluatedTable]":
    for note in evaluator.notes:
        log.warning(note)
    names = zip(paths, _table_names(paths), strict=True)
    return [evaluator.evaluate(path, name) for path, name in names]


def _print_scores(tables: "list[EvaluatedTable]") -> None:
    """All scores, and the verdict on each table."""
    from tabmt.evaluation.report.report import scores_as_text, verdict

    evaluations = [table.evaluation for table in tables]
    lines = [scores_as_text(evaluations)]
    for evaluation in evaluations:
        lines += ["", f"Verdict on {evaluation.name}:", *verdict(evaluation)]
    click.echo(printable("\n".join(lines), keep="\n"))


def _write_json(path: str, tables: "list[EvaluatedTable]") -> None:
    content = [table.evaluation.to_json() for table in tables]
    write_text(Path(path), json_text(content, indent=2) + "\n")


def _write_figures(evaluator: "Evaluator", tables: "list[EvaluatedTable]", folder: str) -> None:
    from tabmt.evaluation.report.figures import write_figures

    for path in write_figures(evaluator, tables, folder):
        log.info("wrote %s", path)


def _load_front(path: str | None) -> "tuple[Front | None, list[Picture]]":
    """The front of a search and its pictures, if there is one."""
    if path is None:
        return None, []
    from tabmt.search.charts import front_pictures
    from tabmt.search.pareto_front import Front

    front = Front.load(path)
    return front, front_pictures(front)


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
