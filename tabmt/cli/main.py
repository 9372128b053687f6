"""The command line: parse, call one library function, say what happened.

Data goes to standard output, words to standard error. Exit codes: 0 fine, 2 the user's mistake
(one sentence), 130 interrupted, 1 our mistake (with traceback). Everything heavy is imported
inside the commands, so that `--help` answers at once.
"""

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any, get_args

import click

from tabmt.cli.console import one_speaks, show, show_model, training_progress
from tabmt.cli.netflow import netflow
from tabmt.cli.options import (
    INTERRUPTED,
    Commands,
    engine_option,
    model_to_write,
    options_from,
    read_config,
    typed_by_user,
)
from tabmt.cli.rows import impute, sample, score
from tabmt.cli.search import pareto, tune
from tabmt.config import CodecConfig, Gaps, NetworkConfig, TrainConfig
from tabmt.errors import UserError, read_json

log = logging.getLogger(__name__)

TERMINATED = 128 + signal.SIGTERM


@click.group(cls=Commands)
@click.version_option(package_name="tabmt")
@click.option("--quiet", "-q", is_flag=True, help="say nothing but warnings and errors")
def main(quiet: bool) -> None:
    """Learn a table, generate rows like it."""
    if threading.current_thread() is threading.main_thread():
        # A cluster ends a job so: temporary files are then removed as at any other end.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    root = logging.getLogger("tabmt")
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)


for command in (impute, netflow, pareto, sample, score, tune):
    main.add_command(command)


@main.command()
@click.argument("table")
@click.option("--output", "-o", help="write to this file instead of standard output")
@click.option("--schema", "overrides", help="start from this schema file")
@click.option(
    "--gaps",
    type=click.Choice(get_args(Gaps)),
    default=CodecConfig.gaps,
    show_default=True,
    help="what the schema says of columns with gaps",
)
def schema(table: str, output: str | None, overrides: str | None, gaps: Any) -> None:
    """Show what each column of TABLE is taken for, and why, as JSON to edit.

    Pass the edited file to `fit --schema`. Only what you change need be there.

    \b
    Example:
      tabmt schema people.csv -o schema.json
    """
    from tabmt.data import dataset as many_files
    from tabmt.data import files as tables
    from tabmt.data.schema import infer, read_overrides

    arrow, source = many_files.open_table(table)
    found = infer(arrow, source, gaps=gaps, overrides=read_overrides(overrides))
    text = json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        tables.write_text(Path(output), text)


@main.command()
@click.argument("table")
@click.option("--output", "-o", required=True, help="the model file to write, NAME.tabmt")
@click.option("--schema", "schema_file", help="a schema file, as `tabmt schema` writes it")
@click.option("--from", "start", help="go on from this model, on new rows of its schema")
@click.option("--resume", is_flag=True, help="continue an interrupted fit of the same model file")
@click.option("--config", "config_file", help="a TOML file of settings, or S, M, L of the paper")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="the same seed, the same model"
)
@click.option("--store", help="keep the codes of files too large for memory in this folder")
@engine_option("where files too large for memory are coded")
@options_from(CodecConfig, NetworkConfig, TrainConfig)
def fit(
    table: str,
    output: str,
    schema_file: str | None,
    start: str | None,
    resume: bool,
    config_file: str | None,
    seed: int,
    store: str | None,
    engine: Any,
    **settings: Any,
) -> None:
    """Learn TABLE (CSV, Parquet or Arrow; a folder or a pattern of files) and write a model.

    Ends after --steps or --minutes, or earlier when held-out rows fare worse. What is given here
    counts before what --config says.
    Interrupted, it loses at most --checkpoint-every seconds: the same command with --resume
    goes on.

    \b
    Example:
      tabmt fit people.csv -o people.tabmt --minutes 5
    """
    target = model_to_write(output)
    checkpoint = target.with_name(target.name + ".checkpoint")
    if resume and not checkpoint.exists():
        raise UserError(f"There is no unfinished run to resume: no file {str(checkpoint)!r}.")
    if checkpoint.exists() and not resume:
        raise UserError(
            f"An unfinished run is in {str(checkpoint)!r}. Go on with it by --resume, or delete "
            "the file to start anew."
        )
    from tabmt.estimator import TabMT

    first = one_speaks()
    if config_file is not None:
        settings |= read_config(config_file, settings) | typed_by_user(settings)
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
    except KeyboardInterrupt:
        if checkpoint.exists():
            log.warning("Interrupted; the same command with --resume goes on from here.")
        raise SystemExit(INTERRUPTED) from None
    if first:  # of several processes one speaks and writes
        model.save(target)
        checkpoint.unlink(missing_ok=True)
        log.info("wrote %s", target)


@main.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="everything, as JSON")
def info(model: str, as_json: bool) -> None:
    """Show what MODEL was learned from, how, and what it knows of each column.

    \b
    Example:
      tabmt info people.tabmt
    """
    from tabmt.estimator import TabMT

    loaded = TabMT.load(model)
    learned, card = loaded.learned_, loaded.card_
    if as_json:
        everything = {"card": card.to_json(), "schema": loaded.schema_.to_json()}
        click.echo(json.dumps(everything, indent=2, ensure_ascii=False))
        return
    show_model(model, learned)


@main.command()
@click.argument("synthetic", nargs=-1, required=True)
@click.option("--train", required=True, help="the real table that the generator was trained on")
@click.option("--test", help="real rows that the generator has not seen")
@click.option("--valid", help="real rows that tell CatBoost when to stop")
@click.option("--target", help="the column to predict, for ML efficiency")
@click.option("--schema", help="the schema file that `fit` was given: kinds, gaps, rules")
@click.option("--rules", "rules_file", help='a JSON file {"name": "end >= start", ...}')
@click.option("--catboost", "catboost_file", help="a JSON file of CatBoost settings")
@click.option("--paper", is_flag=True, help="ML efficiency as in the paper: 50 models, slow")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="the same seed, the same figures"
)
@click.option("--json", "json_file", help="write every figure to this file")
@click.option("--report", "report_file", help="write an HTML page to this file")
@click.option("--front", "front_file", help="a front of `tabmt pareto search` to put in the page")
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
    seed: int,
    json_file: str | None,
    report_file: str | None,
    front_file: str | None,
) -> None:
    """Judge SYNTHETIC tables, of any make, against real ones: how good, how private.

    Every figure stands beside what fresh real rows score.

    \b
    Example:
      tabmt evaluate synthetic.csv --train train.csv --test test.csv --target income --report r.html
    """
    from tabmt.data import files as tables
    from tabmt.evaluation.evaluate import Judge
    from tabmt.evaluation.report import figures_table, write_report
    from tabmt.rules.rule import load_rules

    for path in (json_file, report_file):
        if path is not None and not Path(path).parent.is_dir():
            raise UserError(f"There is no folder {str(Path(path).parent)!r} to write into.")
    front = None
    if front_file is not None:
        from tabmt.search.front import Front

        front = Front.load(front_file)
    judge = Judge.of(
        train,
        test,
        valid,
        target=target,
        schema=schema,
        rules=[] if rules_file is None else load_rules(rules_file),
        catboost_settings=None if catboost_file is None else read_json(catboost_file, "settings"),
        paper=paper,
        seed=seed,
    )
    for note in judge.notes:
        log.warning(note)
    judged = [judge.judge(path, name=Path(path).name) for path in synthetic]
    click.echo(figures_table([one.evaluation for one in judged]))
    if json_file is not None:
        found = [one.evaluation.to_json() for one in judged]
        tables.write_text(Path(json_file), json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if report_file is not None:
        write_report(judge, judged, report_file, front)
        log.info("wrote the report to %s", report_file)


@main.command()
@click.option("--output", "-o", default="demo", show_default=True, help="folder for what it makes")
@click.option("--minutes", type=float, default=1.0, show_default=True, help="training time")
def demo(output: str, minutes: float) -> None:
    """Learn an embedded real table (penguins), generate rows, judge them, write a report.

    \b
    Example:
      tabmt demo -o demo
    """
    from tabmt.data import files as tables
    from tabmt.demo import penguins, side_by_side, split
    from tabmt.estimator import TabMT
    from tabmt.evaluation.evaluate import Judge
    from tabmt.evaluation.metrics import fidelity
    from tabmt.evaluation.report import verdict, write_report

    fidelity.catboost()  # what is missing is said before the training, not after it
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {output!r} cannot be made: {error.strerror}.") from error
    train, test = split(folder)
    real, _ = tables.load(train)
    log.info(
        "Learning %d penguins of %s for up to %g minutes", len(real), Path(penguins()).name, minutes
    )
    with training_progress() as on_step:
        model = TabMT(minutes=minutes, seed=0).fit(train, on_step=on_step)
    model.save(folder / "penguins.tabmt")
    synthetic = model.sample(len(real), seed=1, kind="arrow")
    tables.write_file(folder / "synthetic.csv", model.schema_, [synthetic])

    both = side_by_side(model.learned_.codec.read(real), synthetic, model.schema_)
    show(("column", "real", "synthetic"), both, "median (5 % to 95 %), or shares")
    rows = [tuple("" if v is None else str(v) for v in row.values())
            for row in synthetic.slice(0, 5).to_pylist()]  # fmt: skip
    show(tuple(model.schema_.names), rows, "five synthetic rows")

    log.info("Judging them against the penguins that were held out")
    judge = Judge.of(train, test, target="species")
    logging.getLogger("tabmt.evaluation.evaluate").setLevel(logging.WARNING)
    judged = judge.judge(folder / "synthetic.csv", name="synthetic.csv")
    write_report(judge, [judged], folder / "report.html")
    for sentence in verdict(judged.evaluation):
        click.echo(sentence)
    click.echo(f"The report is {folder / 'report.html'}; the model and the rows lie beside it.")


if __name__ == "__main__":
    main()
