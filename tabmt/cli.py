"""The command line: parse, call one library function, say what happened.

Data goes to standard output, words to standard error. Exit codes: 0 fine, 2 the user's mistake
(one sentence), 130 interrupted, 1 our mistake (with traceback). Everything heavy is imported
inside the commands, so that `--help` answers at once.
"""

import dataclasses
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from tabmt.config import CodecConfig, Decode, Gaps, NetworkConfig, TrainConfig
from tabmt.errors import UserError, read_json

if TYPE_CHECKING:
    import pyarrow as pa

    from tabmt.train import Progress

log = logging.getLogger(__name__)

QUIET_SECONDS = 10.0  # between progress lines where there is no terminal to draw on
INTERRUPTED = 130


class OneSentence(click.ClickException):
    """A user error as the command line shows it."""

    exit_code = UserError.exit_code


class Commands(click.Group):
    """User errors become one clear line and exit code 2; our bugs keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise OneSentence(str(error)) from error


def options_from(*config_classes: type[Any]) -> Callable[[Any], Any]:
    """Turn every field of the config dataclasses into an option."""

    def decorate(command: Any) -> Any:
        for config_class in reversed(config_classes):
            for item in reversed(dataclasses.fields(config_class)):
                choices = item.metadata.get("choices")
                kind = item.metadata.get("type", type(item.default))
                auto = item.metadata.get("auto", False)
                default = None if auto else item.default
                command = click.option(
                    f"--{item.name.replace('_', '-')}",
                    item.name,
                    type=click.Choice(choices) if choices else kind,
                    default=default,
                    show_default="chosen for the table" if auto else default is not None,
                    help=item.metadata["help"],
                )(command)
        return command

    return decorate


@click.group(cls=Commands)
@click.version_option(package_name="tabmt")
@click.option("--quiet", "-q", is_flag=True, help="say nothing but warnings and errors")
def main(quiet: bool) -> None:
    """Learn a table, generate rows like it."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    root = logging.getLogger("tabmt")
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if quiet else logging.INFO)


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
    from tabmt import tables
    from tabmt.schema import infer

    arrow, source = tables.load(table)
    given = None if overrides is None else read_json(overrides, "schema")
    found = infer(arrow, source, gaps=gaps, overrides=given)
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
@click.option(
    "--seed", type=int, default=0, show_default=True, help="the same seed, the same model"
)
@options_from(CodecConfig, NetworkConfig, TrainConfig)
def fit(
    table: str,
    output: str,
    schema_file: str | None,
    start: str | None,
    resume: bool,
    seed: int,
    **settings: Any,
) -> None:
    """Learn TABLE (CSV, Parquet or Arrow) and write a model.

    Ends after --steps or --minutes, or earlier when held-out rows fare worse.
    Interrupted, it loses at most --checkpoint-every seconds: the same command with --resume
    goes on.

    \b
    Example:
      tabmt fit people.csv -o people.tabmt --minutes 5
    """
    target = Path(output)
    checkpoint = target.with_name(target.name + ".checkpoint")
    if not target.parent.is_dir():
        raise UserError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    if target.is_dir():
        raise UserError(f"{str(target)!r} is a folder; name a file to write.")
    if resume and not checkpoint.exists():
        raise UserError(f"There is no unfinished run to resume: no file {str(checkpoint)!r}.")
    if checkpoint.exists() and not resume:
        raise UserError(
            f"An unfinished run is in {str(checkpoint)!r}. Go on with it by --resume, or delete "
            "the file to start anew."
        )
    from tabmt.synthesizer import TabMT

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
                on_step=on_step,
            )
    except KeyboardInterrupt:
        if checkpoint.exists():
            log.warning("Interrupted; the same command with --resume goes on from here.")
        raise SystemExit(INTERRUPTED) from None
    model.save(target)
    checkpoint.unlink(missing_ok=True)
    log.info("wrote %s", target)


@main.command()
@click.argument("model")
@click.option("--rows", "-n", type=click.IntRange(min=0), required=True, help="how many rows")
@click.option("--output", "-o", default="-", help="CSV, Parquet or Arrow file; - is CSV on stdout")
@click.option("--seed", type=int, help="the same seed, the same rows")
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
def sample(
    model: str,
    rows: int,
    output: str,
    seed: int | None,
    temperature: tuple[str, ...],
    complete: bool,
    decode: Decode,
    threads: int | None,
) -> None:
    """Generate rows from MODEL; they are written as they are made.

    \b
    Example:
      tabmt sample people.tabmt -n 1000 -o synthetic.csv --temperature 1.1 --temperature age=1.5
    """
    from tabmt import tables
    from tabmt.synthesizer import TabMT

    loaded = TabMT.load(model).set_params(threads=threads)
    if output != tables.STDOUT:
        tables.file_kind(Path(output))
    heat = parse_temperatures(temperature, loaded.schema_.names)
    batches = loaded.sample_batches(
        rows, seed=seed, temperature=heat, complete=complete, decode=decode
    )
    tables.write_file(output, loaded.schema_, counted(batches, rows))
    if output != tables.STDOUT:
        log.info("wrote %s rows to %s", f"{rows:,}", output)


@main.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="everything, as JSON")
def info(model: str, as_json: bool) -> None:
    """Show what MODEL was learned from, how, and what it knows of each column.

    \b
    Example:
      tabmt info people.tabmt
    """
    from tabmt.synthesizer import TabMT

    loaded = TabMT.load(model)
    learned, card = loaded.learned_, loaded.card_
    if as_json:
        everything = {"card": card.to_json(), "schema": loaded.schema_.to_json()}
        click.echo(json.dumps(everything, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    settings, summary = card.settings, card.summary
    console = Console(highlight=False)
    weights = 0 if learned.net is None else sum(p.numel() for p in learned.net.parameters())
    console.print(
        f"[bold]{escape(model)}[/bold]: learned from {card.rows:,} rows, seed {card.seed}"
    )
    network = settings.network
    console.print(
        f"network   {network.network}, width {network.width}, depth {network.depth}, "
        f"heads {network.heads}, dropout {network.dropout:g}, {weights:,} weights"
    )
    training = settings.train
    console.print(
        f"settings  batch size {training.batch_size}, learning rate {training.learning_rate:g}, "
        f"target {training.target or 'none'}, threads {training.threads or 'not recorded'}",
        markup=False,
    )
    if summary is None:
        console.print("training  none: no column varies")
    else:
        loss = summary.valid_loss
        held_out = "" if loss is None else f", held out {loss:.4f} nats per cell"
        console.print(
            f"training  {summary.steps:,} steps in {summary.seconds:.0f} s, ended by "
            f"{summary.stopped}, weights of step {summary.best_step:,}{held_out}"
        )
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    console.print(f"made with {versions}\n")
    grid = Table("column", "kind", "type", "codes", "gaps", "why", box=None, pad_edge=False)
    for coded in learned.codec.coded:
        column = coded.column
        codes = f"{coded.size:,}" if coded.has_tokens else "-"
        cells = (column.name, column.kind, column.dtype, codes, column.gaps, column.reason)
        grid.add_row(*(escape(cell) for cell in cells))
    console.print(grid)


@main.command()
@click.argument("synthetic", nargs=-1, required=True)
@click.option("--train", required=True, help="the real table that the generator was trained on")
@click.option("--test", help="real rows that the generator has not seen")
@click.option("--valid", help="real rows that tell CatBoost when to stop")
@click.option("--target", help="the column to predict, for ML efficiency")
@click.option("--rules", "rules_file", help='a JSON file {"name": "end >= start", ...}')
@click.option("--catboost", "catboost_file", help="a JSON file of CatBoost settings")
@click.option("--paper", is_flag=True, help="ML efficiency as in the paper: 50 models, slow")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="the same seed, the same figures"
)
@click.option("--json", "json_file", help="write every figure to this file")
@click.option("--report", "report_file", help="write an HTML page to this file")
def evaluate(
    synthetic: tuple[str, ...],
    train: str,
    test: str | None,
    valid: str | None,
    target: str | None,
    rules_file: str | None,
    catboost_file: str | None,
    paper: bool,
    seed: int,
    json_file: str | None,
    report_file: str | None,
) -> None:
    """Judge SYNTHETIC tables, of any make, against real ones: how good, how private.

    Every figure stands beside what fresh real rows score.

    \b
    Example:
      tabmt evaluate synthetic.csv --train train.csv --test test.csv --target income --report r.html
    """
    from tabmt import tables
    from tabmt.evaluate import Judge
    from tabmt.report import figures_table, write_report
    from tabmt.rules import load_rules

    for path in (json_file, report_file):
        if path is not None and not Path(path).parent.is_dir():
            raise UserError(f"There is no folder {str(Path(path).parent)!r} to write into.")
    judge = Judge.of(
        train,
        test,
        valid,
        target=target,
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
        write_report(judge, judged, report_file)
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
    from tabmt import tables
    from tabmt.demo import penguins, side_by_side, split
    from tabmt.evaluate import Judge
    from tabmt.metrics import fidelity
    from tabmt.report import verdict, write_report
    from tabmt.synthesizer import TabMT

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
    logging.getLogger("tabmt.evaluate").setLevel(logging.WARNING)
    judged = judge.judge(folder / "synthetic.csv", name="synthetic.csv")
    write_report(judge, [judged], folder / "report.html")
    for sentence in verdict(judged.evaluation):
        click.echo(sentence)
    click.echo(f"The report is {folder / 'report.html'}; the model and the rows lie beside it.")


def show(names: tuple[str, ...], rows: list[tuple[str, ...]], title: str) -> None:
    """A small table for people, on standard error."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    grid = Table(*names, title=title)
    for row in rows:
        grid.add_row(*(escape(cell) for cell in row))
    Console(stderr=True, highlight=False).print(grid)


def parse_temperatures(given: tuple[str, ...], names: list[str]) -> dict[str, float]:
    """`1.1` for all columns, `age=1.5` for one; later ones win."""
    heat: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UserError(
                f"The temperature {text!r} is not a number, nor of the form COLUMN=NUMBER."
            ) from None
        heat |= {name: value} if equals else dict.fromkeys(names, value)
    return heat


@contextmanager
def training_progress() -> Iterator[Callable[["Progress"], None]]:
    """A live line with loss, speed and time left; on no terminal, a plain line now and then."""
    if not sys.stderr.isatty() or log.getEffectiveLevel() > logging.INFO:
        last = time.monotonic()

        def say(progress: "Progress") -> None:
            nonlocal last
            if time.monotonic() - last >= QUIET_SECONDS:
                last = time.monotonic()
                log.info(describe(progress))

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(
        BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=1.0)

        def draw(progress: "Progress") -> None:
            done = progress.seconds / max(progress.seconds + progress.seconds_left, 1e-9)
            bar.update(task, completed=done, description=describe(progress))

        yield draw


def describe(progress: "Progress") -> str:
    left = f"{progress.seconds_left / 60:.1f} min left"
    if progress.seconds_left < 60:
        left = f"{progress.seconds_left:.0f} s left"
    held_out = "" if progress.valid is None else f"  held out {progress.valid:.4f}"
    return (
        f"step {progress.step}  loss {progress.loss:.4f}{held_out}  "
        f"{progress.rows_per_second:,.0f} rows/s  {left}"
    )


def counted(batches: "Iterator[pa.Table]", rows: int) -> "Iterator[pa.Table]":
    """The same batches, with a word on how far they are."""
    started = last = time.monotonic()
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield batch
        now = time.monotonic()
        if now - last >= QUIET_SECONDS:
            last = now
            log.info("%s of %s rows, %.0f rows/s", f"{done:,}", f"{rows:,}", done / (now - started))


if __name__ == "__main__":
    main()
