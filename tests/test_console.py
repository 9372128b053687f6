"""What `tabmt fit` shows on a terminal of 80 columns: messages, and a progress bar below them."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

import pyte
import pytest

from tabmt.method.train import Progress
from tabmt.progress import describe
from tests.tables import mixed_frame

WIDTH, HEIGHT = 80, 24
COMMAND = [sys.executable, "-m", "tabmt.cli", "fit", "people.csv", "-o", "people.tabmt",
           "--width", "16", "--depth", "1", "--heads", "2", "--batch-size", "64",
           "--threads", "1", "--steps", "400", "--eval-every", "20",
           "--patience", "50"]  # fmt: skip
BAR = re.compile(r"[━╸╺]{12}")
BAR_ROW = re.compile(
    BAR.pattern + r"( step \d+  loss \d+\.\d+(  validation \d+\.\d+)?  [\d.]+ (s|min) left)?"
)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Session:
    """One run of a command on a terminal."""

    screens: list[list[str]]  # the rows of the screen whenever output pauses
    rows: list[str]  # all rows at the end, also those that have scrolled off the screen
    output: str  # as it was sent to the terminal

    @property
    def bars(self) -> list[str]:
        """Every row with a progress bar that was on the screen."""
        return [row for screen in self.screens for row in screen if BAR.search(row)]


def run_on_terminal(command: list[str], folder: Path) -> Session:
    """Run a command on a terminal of 80 columns, with a screenshot whenever its output pauses."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, cwd=folder, env=environment()
    )
    os.close(end)
    screen = pyte.HistoryScreen(WIDTH, HEIGHT, history=1000)
    stream = pyte.ByteStream(screen)
    output, screens = b"", []
    while piece := read(terminal):
        output += piece
        stream.feed(piece)
        if not select.select([terminal], [], [], 0.01)[0]:
            screens.append([row.rstrip() for row in screen.display])
    os.close(terminal)
    assert process.wait() == 0, output.decode()
    scrolled = ["".join(row[x].data for x in range(WIDTH)) for row in screen.history.top]
    rows = [row.rstrip() for row in (*scrolled, *screen.display) if row.strip()]
    return Session(screens, rows, output.decode())


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return {**own, "TERM": "xterm-256color"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("console")
    mixed_frame().to_csv(folder / "people.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def session(folder) -> Session:
    return run_on_terminal(COMMAND, folder)


def without_seconds(lines: list[str]) -> list[str]:
    return [re.sub(r"\d+ s\b", "N s", line) for line in lines]


def test_a_bar_with_losses_and_the_time_left_is_drawn(session):
    assert len(set(session.bars)) > 3
    assert any(re.search(r"  validation [\d.]+  \d+ s left$", row) for row in session.bars)


def test_no_row_holds_both_a_message_and_progress(session):
    for row in (row for screen in (*session.screens, session.rows) for row in screen):
        assert not re.search("left.*step|validation loss.*left|left.*validation loss", row), row
    for row in session.bars:
        assert BAR_ROW.fullmatch(row), row


def test_a_bar_is_one_row_of_at_most_80_characters(session):
    sent = ESCAPE.sub("", session.output).replace("\n", "\r").split("\r")
    bars = [text for text in sent if BAR.search(text)]
    assert bars and max(map(len, bars)) <= WIDTH
    for screen in session.screens:
        assert sum(bool(BAR.search(row)) for row in screen) <= 1


def test_a_bar_has_room_for_large_numbers():
    progress = Progress(9_999_999, None, 99.1234, 99.1234, 9_999_999.0, 9e6, 9_999 * 60)
    text = describe(progress)
    assert text == "step 9999999  loss 99.123  validation 99.123  9999.0 min left"
    assert len("━" * 12 + " " + text) < WIDTH


def test_every_message_is_whole_on_one_row_and_the_bar_is_gone_at_the_end(session, folder):
    """The rows of the screen are the lines that the same command writes without a terminal."""
    plain = subprocess.run(
        COMMAND, capture_output=True, text=True, cwd=folder, env=environment(), check=True
    )
    lines = [line for line in plain.stderr.splitlines() if not line.endswith(" left")]
    assert sum("validation loss" in line for line in lines) == 20
    assert without_seconds(session.rows) == without_seconds(lines)
    assert max(map(len, session.rows)) < WIDTH  # a row that is full may be half of a message
    assert not any(BAR.search(row) for row in session.rows)


def test_the_last_row_says_what_was_written(session, folder):
    assert session.rows[-1] == "wrote people.tabmt"
    assert (folder / "people.tabmt").exists()


def test_the_cursor_is_visible_again_at_the_end(session):
    assert session.output.rfind("\x1b[?25h") > session.output.rfind("\x1b[?25l") >= 0
