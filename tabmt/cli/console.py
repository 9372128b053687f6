"""What the command line shows people: progress, small tables, what a model is."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tabmt.method.train import Progress
    from tabmt.model.fitted import Learned

log = logging.getLogger(__name__)

PLOT_WIDTH, PLOT_HEIGHT = 64, 16
QUIET_SECONDS = 10.0  # between progress lines where there is no terminal to draw on


def show(names: tuple[str, ...], rows: list[tuple[str, ...]], title: str) -> None:
    """A small table for people, on standard error."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    grid = Table(*names, title=escape(title))
    for row in rows:
        grid.add_row(*(escape(cell) for cell in row))
    Console(stderr=True, highlight=False).print(grid)


def one_speaks() -> bool:
    """Join the processes that torchrun has started us with; True in the one that says and writes
    what there is to, the others keep silent."""
    from tabmt.method import distributed as processes

    first = processes.join().rank == 0
    if not first:
        logging.getLogger("tabmt").setLevel(logging.WARNING)
    return first


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


def counted(batches: "Iterator[pa.Table]", rows: int | None) -> "Iterator[pa.Table]":
    """The same batches, with a word on how far they are."""
    of = "" if rows is None else f" of {rows:,}"
    started = last = time.monotonic()
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield batch
        now = time.monotonic()
        if now - last >= QUIET_SECONDS:
            last = now
            log.info("%s%s rows, %.0f rows/s", f"{done:,}", of, done / (now - started))


def show_model(name: str, learned: "Learned") -> None:
    """What a model was learned from, how, and what it knows of each column, on standard output."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    card = learned.card
    settings, summary = card.settings, card.summary
    console = Console(highlight=False)
    weights = 0 if learned.net is None else sum(p.numel() for p in learned.net.parameters())
    console.print(f"[bold]{escape(name)}[/bold]: learned from {card.rows:,} rows, seed {card.seed}")
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
        then = summary.finish_steps
        on = f", then {then:,} steps with all rows" if then else ""
        console.print(
            f"training  {summary.steps:,} steps in {summary.seconds:.0f} s, ended by "
            f"{summary.stopped}, weights of step {summary.best_step:,}{held_out}{on}"
        )
    if card.temperatures:
        told = ", ".join(f"{name} {heat:.3g}" for name, heat in card.temperatures.items())
        console.print(f"sampled   at temperatures {told}", markup=False)
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    console.print(f"made with {versions}\n")
    grid = Table("column", "kind", "type", "codes", "gaps", "why", box=None, pad_edge=False)
    for coded in learned.codec.coded:
        column = coded.column
        codes = f"{coded.size:,}" if coded.has_tokens else "-"
        cells = (column.name, column.kind, column.dtype, codes, column.gaps, column.reason)
        grid.add_row(*(escape(cell) for cell in cells))
    console.print(grid)


@contextmanager
def search_progress(names: tuple[str, ...]) -> "Iterator[Callable[[np.ndarray, int], None]]":
    """The trials so far: on a terminal a live picture, otherwise a line for each that is new.

    It is given scores, (trials,) or (trials, 2), and how many trials there shall be.
    """
    from rich.console import Console
    from rich.live import Live

    if not sys.stderr.isatty() or log.getEffectiveLevel() > logging.INFO:
        known = 0

        def say(scores: "np.ndarray", trials: int) -> None:
            nonlocal known
            for place in range(known, len(scores)):
                pairs = zip(names, scores[place].ravel().tolist(), strict=True)
                told = ", ".join(f"{name} {value:.4f}" for name, value in pairs)
                log.info("trial %d of %d: %s", place + 1, trials, told)
            known = len(scores)

        yield say
        return
    with Live(console=Console(stderr=True, highlight=False), refresh_per_second=4) as live:
        known = -1

        def draw(scores: "np.ndarray", trials: int) -> None:
            nonlocal known
            if len(scores) != known:
                known = len(scores)
                live.update(plot(scores, trials, names))

        yield draw


def plot(scores: "np.ndarray", trials: int, names: tuple[str, ...]) -> str:
    """Trials as a picture of letters: dots, and circles for those that no other beats."""
    import numpy as np

    from tabmt.search.front import non_dominated, signs

    head = f"trial {len(scores)} of {trials}"
    if len(scores) == 0:
        return head
    if len(names) == 1:
        return f"{head}: best {names[0]} {scores.max():.4f}, last {scores[-1]:.4f}"
    span = np.maximum(np.ptp(scores, axis=0), 1e-9)
    places = ((scores - scores.min(0)) / span * (PLOT_WIDTH - 1, PLOT_HEIGHT - 1)).round()
    grid = np.full((PLOT_HEIGHT, PLOT_WIDTH), " ")
    best = non_dominated(scores * signs(*names))
    for mark, which in (("·", ~best), ("o", best)):
        x, y = places[which].astype(int).T
        grid[PLOT_HEIGHT - 1 - y, x] = mark
    low, high = scores.min(0), scores.max(0)
    lines = [head, f"{names[1]} {high[1]:.4f}", *("| " + "".join(row) for row in grid)]
    lines += [f"{low[1]:.4f}", f"{names[0]} {low[0]:.4f} to {high[0]:.4f}; o is the front"]
    return "\n".join(lines)
