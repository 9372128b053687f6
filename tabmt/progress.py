"""Progress in a few words, and as a bar in a notebook."""

import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

SECONDS = 0.2  # between two updates of a bar


def describe(progress: Any) -> str:
    """A step of training (`method.train.Progress`) in one short line.

    It has to fit on a terminal of 80 columns beside the bar.
    """
    left = f"{progress.seconds_left / 60:.1f} min left"
    if progress.seconds_left < 60:
        left = f"{progress.seconds_left:.0f} s left"
    valid = "" if progress.valid_loss is None else f"  validation {progress.valid_loss:.3f}"
    return f"step {progress.step}  loss {progress.loss:.3f}{valid}  {left}"


def describe_stage(share: float, details: Mapping[str, Any]) -> str:
    """What a stage is doing, in a few words."""
    if "loss" in details:
        return describe(SimpleNamespace(**details))
    if "of" in details:
        return f"{details['rows']:,} of {details['of']:,} rows"
    return str(details.get("metric", f"{share:.0%}"))


def in_notebook() -> bool:
    """Whether this program is a cell of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


@contextmanager
def notebook_bar() -> Iterator[Callable[[float, str], None]]:
    """A bar below the cell that runs; it is called with the share that is done and with words."""
    from IPython.display import display

    last, state = time.monotonic(), (0.0, "")
    shown = display(_bar(*state), raw=True, display_id=True)

    def draw(share: float, words: str) -> None:
        nonlocal last, state
        state = (share, words)
        if time.monotonic() - last >= SECONDS:
            last = time.monotonic()
            shown.update(_bar(*state), raw=True)

    try:
        yield draw
    except BaseException:
        shown.update(_bar(*state), raw=True)  # where it ended
        raise
    shown.update(_bar(1.0, state[1]), raw=True)


def _bar(share: float, words: str) -> dict[str, str]:
    share = min(max(share, 0.0), 1.0)
    bar = f'<progress max="1" value="{share:.3f}" style="width:12em"></progress>'
    return {
        "text/html": f"<div>{bar} <code>{html.escape(words)}</code></div>",
        "text/plain": f"{share:.0%}  {words}",
    }
