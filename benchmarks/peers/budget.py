"""Training loops that end when the time is over; needs nothing but Python."""

import time
from collections.abc import Iterator


class Budget:
    """At most so many steps, in at most so many seconds since it was made, but at least one.

    Iterating yields what is used of it before each step, from 0 to 1: the larger share of both.
    """

    def __init__(self, seconds: float, steps: int) -> None:
        self.seconds, self.steps, self.done = seconds, steps, 0
        self.started = time.monotonic()

    def __iter__(self) -> Iterator[float]:
        while self.done < self.steps:
            used = max(self.done / self.steps, (time.monotonic() - self.started) / self.seconds)
            if used >= 1 and self.done:
                return
            yield min(used, 1.0)
            self.done += 1

    @property
    def cut(self) -> list[str]:
        return [] if self.done >= self.steps else [f"{self.done} of {self.steps} steps"]
