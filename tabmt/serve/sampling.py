"""Requests for rows, answered fairly: small ones drawn together, large ones in their own process.

Each lane is a thread with a queue. Requests that arrive while it draws wait in the queue. All that
ask the same model for new rows, whatever their conditions, are then drawn together, and so are all
that complete rows. A request with a seed is drawn alone, because the rows of a seed depend on the
number of rows.
"""

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tabmt.errors import UserError
from tabmt.serve.jobs import Busy
from tabmt.serve.limits import (
    MOST_STREAMS,
    MOST_WAITING,
    ROWS_AT_ONCE,
    STREAM_SECONDS,
)

Draw = Callable[[Sequence[Any]], Sequence[Any]]  # what several requests ask -> their answers
PIECE = 2**16  # bytes that are passed on at a time


@dataclass
class Task:
    """A request in a lane. Tasks of one key can be drawn together; None is drawn alone."""

    key: Hashable
    rows: int
    asked: Any
    draw: Draw
    future: "Future[Any]" = field(default_factory=Future)


class Lane:
    """One thread that draws the rows of waiting requests, the oldest first."""

    def __init__(self, name: str) -> None:
        self._waiting: deque[Task] = deque()
        self._condition = threading.Condition()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, task: Task) -> "Future[Any]":
        with self._condition:
            if len(self._waiting) >= MOST_WAITING:
                raise Busy("Too many requests are waiting; try again in a moment.")
            self._waiting.append(task)
            self._condition.notify()
        return task.future

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting:
                    self._condition.wait()
                group = self._next_group()
            running = [task for task in group if task.future.set_running_or_notify_cancel()]
            if running:
                _draw_group(running)

    def _next_group(self) -> list[Task]:
        """The oldest task, and those that can be drawn with it."""
        first = self._waiting.popleft()
        if first.key is None:
            return [first]
        group, rows, others = [first], first.rows, deque[Task]()
        for task in self._waiting:
            if task.key == first.key and rows + task.rows <= ROWS_AT_ONCE:
                group.append(task)
                rows += task.rows
            else:
                others.append(task)
        self._waiting = others
        return group


def _draw_group(group: Sequence[Task]) -> None:
    try:
        tables = group[0].draw([task.asked for task in group])
    except UserError as error:
        if len(group) == 1:
            group[0].future.set_exception(error)
            return
        half = len(group) // 2  # only one of them may have caused the error
        _draw_group(group[:half])
        _draw_group(group[half:])
    except BaseException as error:  # passed to the waiting requests; the lane has to continue
        for task in group:
            task.future.set_exception(error)
    else:
        for task, table in zip(group, tables, strict=True):
            task.future.set_result(table)


# --- large requests ------------------------------------------------------------------------


class Streams:
    """Processes that answer large requests."""

    def __init__(self) -> None:
        self.number = 0  # of those that are being answered
        self._ending: set[asyncio.Task[tuple[bytes, bytes]]] = set()

    async def start(self, order: dict[str, Any]) -> "Pieces":
        """The bytes of the answer while they are generated. Raises `UserError` before the first."""
        if self.number >= MOST_STREAMS:
            raise Busy(f"{MOST_STREAMS} large requests are being answered; wait for one to end.")
        self.number += 1
        pieces = Pieces(self)
        try:
            await pieces.start(order)
        except BaseException:
            pieces.end()
            raise
        return pieces

    def end(self, process: asyncio.subprocess.Process | None) -> None:
        """End the process of an answer, if it has not ended."""
        self.number -= 1
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(RuntimeError):  # the server is closing
            # Its pipe is closed only when it has been read to its end.
            rest = asyncio.get_running_loop().create_task(process.communicate())
            self._ending.add(rest)
            rest.add_done_callback(self._ending.discard)


class Pieces:
    """The answer of one process, which ends with it, even if the answer is not read to its end."""

    def __init__(self, streams: Streams) -> None:
        self._streams: Streams | None = streams
        self._until = time.monotonic() + STREAM_SECONDS
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, order: dict[str, Any]) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tabmt.serve", "rows",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the server
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        await process.stdin.drain()
        status = json.loads(await process.stdout.readline() or b"{}")
        if "error" in status:
            raise UserError(status["error"])
        if "ok" not in status:
            raise RuntimeError("the sampling process has ended")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        piece = await self._process.stdout.read(PIECE)
        if piece and time.monotonic() < self._until:
            return piece
        code = await self._process.wait() if not piece else None
        self.end()
        if code != 0:  # the connection is cut, so that the client sees that rows are missing
            raise RuntimeError("the sampling process stopped before all rows were written")
        raise StopAsyncIteration

    def end(self) -> None:
        if self._streams is None:
            return
        streams, self._streams = self._streams, None
        streams.end(self._process)

    def __del__(self) -> None:
        self.end()
