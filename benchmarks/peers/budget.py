"""Training loops with a time limit; needs only the standard library."""

import time
from collections.abc import Iterator


class Budget:
    """A maximum number of steps, and of seconds since it was created; at least one step is made.

    Iterating yields the used share before each step, from 0 to 1: the larger one of both.
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
