"""What the command line shows: messages, progress, small tables. Everything goes to standard error.

On a terminal, messages are printed through the console that draws the progress bar, so that the two
never share a line. Elsewhere, messages are plain lines and progress is a line at intervals.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tabmt.printable import printable
from tabmt.progress import describe, describe_stage

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tabmt.method.train import Progress
    from tabmt.model.fitted_model import FittedModel
    from tabmt.model.stored_values import FileScan

log = logging.getLogger(__name__)

PLOT_WIDTH, PLOT_HEIGHT = 64, 16
STOPPED = {
    "early": "stopped early",
    "steps": "all steps done",
    "minutes": "time used up",
    "asked": "stopped by the user",
}
REPORT_SECONDS = 10.0  # between progress lines where there is no terminal

_console: Any = None  # the console that is drawing a progress bar, if any


class MessageHandler(logging.Handler):
    """Prints log messages, above the progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        message = printable(self.format(record))
        if _console is None:
            click.echo(message, err=True)
        else:
            _console.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _live_console() -> Iterator[Any]:
    """A console to draw on; log messages go through it meanwhile."""
    from rich.console import Console

    global _console
    _console = Console(stderr=True, highlight=False)
    try:
        yield _console
    finally:
        _console = None


def draws_progress() -> bool:
    return sys.stderr.isatty() and log.getEffectiveLevel() <= logging.INFO


@contextmanager
def training_progress() -> Iterator[Callable[["Progress"], None]]:
    """A progress bar with loss, speed and time left; without a terminal, a line now and then."""
    if not draws_progress():
        last = time.monotonic()

        def report(progress: "Progress") -> None:
            nonlocal last
            if time.monotonic() - last >= REPORT_SECONDS:
                last = time.monotonic()
                log.info(describe(progress))

        yield report
        return
    with _bar() as draw:

        def draw_step(progress: "Progress") -> None:
            draw(progress.share, describe(progress))

        yield draw_step


@contextmanager
def stage_progress(
    stages: Sequence[str],
) -> Iterator[Callable[[str, float, Mapping[str, Any]], None]]:
    """One progress bar for several stages; without a terminal, a line for each, and now and then.

    It is called with the stage, the share of it that is done, and details for people.
    """
    titles = {stage: f"{number}/{len(stages)} {stage}" for number, stage in enumerate(stages, 1)}
    if not draws_progress():
        last, shown = time.monotonic(), ""

        def report(stage: str, share: float, details: Mapping[str, Any]) -> None:
            nonlocal last, shown
            if stage != shown:
                log.info(titles[stage])
            elif time.monotonic() - last < REPORT_SECONDS:
                return
            else:
                log.info("%s  %s", titles[stage], describe_stage(share, details))
            last, shown = time.monotonic(), stage

        yield report
        return
    with _bar() as draw:

        def draw_stage(stage: str, share: float, details: Mapping[str, Any]) -> None:
            draw(share, f"{titles[stage]}  {describe_stage(share, details)}")

        yield draw_stage


@contextmanager
def _bar() -> Iterator[Callable[[float, str], None]]:
    """A progress bar on the terminal, with a text beside it."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    text = TextColumn("{task.description}", table_column=Column(no_wrap=True), markup=False)
    with (
        _live_console() as console,
        Bar(BarColumn(bar_width=12), text, console=console, transient=True) as bar,
    ):
        task = bar.add_task("", total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=words)


def report_rows(batches: "Iterator[pa.Table]", rows: int | None) -> "Iterator[pa.Table]":
    """The same batches, with a log line now and then."""
    of = "" if rows is None else f" of {rows:,}"
    started = last = time.monotonic()
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield batch
        now = time.monotonic()
        if now - last >= REPORT_SECONDS:
            last = now
            log.info("%s%s rows, %.0f rows/s", f"{done:,}", of, done / (now - started))


def report_files(rows: int | None) -> Callable[[int], None]:
    """A function that logs how many rows of a folder are written."""
    of = "" if rows is None else f" of {rows:,}"
    started, done = time.monotonic(), 0

    def report(file_rows: int) -> None:
        nonlocal done
        done += file_rows
        log.info("%s%s rows, %.0f s", f"{done:,}", of, time.monotonic() - started)

    return report


def _shown(cell: str) -> str:
    """Text from a file, for a table of rich: without control characters, and without markup."""
    from rich.markup import escape

    return escape(printable(cell))


def show_table(names: tuple[str, ...], rows: list[tuple[str, ...]], title: str) -> None:
    """A small table."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(*(_shown(name) for name in names), title=_shown(title))
    for row in rows:
        grid.add_row(*(_shown(cell) for cell in row))
    Console(stderr=True, highlight=False).print(grid)


def is_main_process() -> bool:
    """Join the processes that torchrun has started, if any; True in the one that reports and
    writes. The others only show warnings."""
    from tabmt.method import distributed

    is_main = distributed.join().rank == 0
    if not is_main:
        logging.getLogger("tabmt").setLevel(logging.WARNING)
    return is_main


def show_scan(name: str, scan: "FileScan") -> None:
    """How many rare values of a table are in a model file, by column, on standard output."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    heads = ("column", "rare values", "in the bytes", "stored", "can be computed")
    grid = Table(*heads, box=None, pad_edge=False)
    for one in scan.columns:
        counts = (one.rare, one.text, one.stored, one.solved)
        grid.add_row(escape(one.column), *(f"{count:,}" for count in counts))
    console.print(grid)
    for rule, count in scan.combinations.items():
        console.print(f"rule {rule!r}: {count:,} rare combinations", markup=False)
    verdict = f"{scan.found:,} were found" if scan.found else "none was found"
    console.print(
        f"{name}: of the values in fewer than {scan.protect} rows of the table, {verdict}.",
        markup=False,
    )


def show_model(name: str, model: "FittedModel") -> None:
    """Print how a model was fitted, and its columns, on standard output."""
    from rich.console import Console
    from rich.table import Table

    from tabmt.model.stored_values import describe

    console = Console(highlight=False)
    for line in _model_lines(name, model):
        console.print(printable(line), markup=False)
    console.print()
    heads = ("column", "kind", "type", "values/bins", "missing", "reason",
             "real values in the file")  # fmt: skip
    grid = Table(*heads, box=None, pad_edge=False)
    held = describe(model)
    for coded in model.codec.coded:
        column = coded.column
        codes = f"{coded.size:,}" if coded.has_tokens else "-"
        cells = (column.name, column.kind, column.dtype, codes, column.missing, column.reason,
                 held[column.name])  # fmt: skip
        grid.add_row(*(_shown(cell) for cell in cells))
    console.print(grid)
    schema = model.codec.schema
    if schema.rules:
        console.print()
        rules = Table("rule", "origin", box=None, pad_edge=False)
        for name, text in schema.rules.items():
            origin = schema.found[name].reason if name in schema.found else "set in the schema"
            rules.add_row(_shown(text), _shown(origin))
        console.print(rules)


def _model_lines(name: str, model: "FittedModel") -> list[str]:
    card = model.card
    network, training, summary = card.settings.network, card.settings.train, card.summary
    weights = 0 if model.net is None else sum(p.numel() for p in model.net.parameters())
    lines = [
        f"{name}: fitted on {card.rows:,} rows with seed {card.seed}",
        f"network   {network.network}, width {network.width}, depth {network.depth}, "
        f"heads {network.heads}, dropout {network.dropout:g}, {weights:,} weights",
        f"settings  batch size {training.batch_size}, learning rate {training.learning_rate:g}, "
        f"target {training.target or 'none'}, threads {training.threads or 'not recorded'}",
    ]
    if summary is None:
        lines.append("training  none: all columns are constant or ids")
    else:
        loss = summary.valid_loss
        valid = "" if loss is None else f", validation loss {loss:.4f} nats per cell"
        finish = summary.finish_steps
        then = f", then {finish:,} steps on all rows" if finish else ""
        lines.append(
            f"training  {summary.steps:,} steps in {summary.seconds:.0f} s, "
            f"{STOPPED[summary.stopped]}, weights of step {summary.best_step:,}{valid}{then}"
        )
    if card.codes_detector_auc is not None:
        lines.append(
            "binning   a classifier tells binned numbers from real ones with AUC "
            f"{card.codes_detector_auc:.2f} (0.5: it cannot)"
        )
    if card.privacy is not None:
        first, *rest = card.privacy.lines()
        lines += [f"privacy   {first}", *(f"          {line}" for line in rest)]
    if card.temperatures:
        listed = ", ".join(f"{column} {t:.3g}" for column, t in card.temperatures.items())
        lines.append(f"sampling  with temperatures {listed}")
    versions = ", ".join(f"{package} {version}" for package, version in card.versions.items())
    return [*lines, f"versions  {versions}"]


@contextmanager
def search_progress(names: tuple[str, ...]) -> "Iterator[Callable[[np.ndarray, int], None]]":
    """The trials so far: on a terminal a live plot, otherwise a line for each new one.

    It is called with scores, (trials,) or (trials, 2), and the number of trials.
    """
    shown = 0
    if not draws_progress():

        def report(scores: "np.ndarray", trials: int) -> None:
            nonlocal shown
            for index in range(shown, len(scores)):
                pairs = zip(names, scores[index].ravel().tolist(), strict=True)
                listed = ", ".join(f"{name} {value:.4f}" for name, value in pairs)
                log.info("trial %d of %d: %s", index + 1, trials, listed)
            shown = len(scores)

        yield report
        return
    from rich.live import Live

    with _live_console() as console, Live(console=console, refresh_per_second=4) as live:

        def draw(scores: "np.ndarray", trials: int) -> None:
            nonlocal shown
            if len(scores) != shown or shown == 0:
                shown = len(scores)
                live.update(plot(scores, trials, names))

        yield draw


def plot(scores: "np.ndarray", trials: int, names: tuple[str, ...]) -> str:
    """Trials as a plot of characters: dots, and circles for those that no other beats."""
    import numpy as np

    from tabmt.search.pareto_front import non_dominated, signs

    head = f"trial {len(scores)} of {trials}"
    if len(scores) == 0:
        return head
    if len(names) == 1:
        return f"{head}: best {names[0]} {scores.max():.4f}, last {scores[-1]:.4f}"
    span = np.maximum(np.ptp(scores, axis=0), 1e-9)
    cells = ((scores - scores.min(0)) / span * (PLOT_WIDTH - 1, PLOT_HEIGHT - 1)).round()
    grid = np.full((PLOT_HEIGHT, PLOT_WIDTH), " ")
    best = non_dominated(scores * signs(*names))
    for mark, chosen in (("·", ~best), ("o", best)):
        x, y = cells[chosen].astype(int).T
        grid[PLOT_HEIGHT - 1 - y, x] = mark
    low, high = scores.min(0), scores.max(0)
    lines = [head, f"{names[1]} {high[1]:.4f}", *("| " + "".join(row) for row in grid)]
    lines += [f"{low[1]:.4f}", f"{names[0]} {low[0]:.4f} to {high[0]:.4f}; o is the front"]
    return "\n".join(lines)
