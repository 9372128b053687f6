"""A real server on the loopback address, for tests."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tabmt.serve.server import Opened, opened


@dataclass(frozen=True)
class Served:
    """A running server, as a program and as a page see it."""

    address: str
    token: str
    opened: Opened

    def client(self, **options: Any) -> httpx.Client:
        """A program with the token."""
        headers = {"authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, **options)

    @contextlib.contextmanager
    def page(self) -> Iterator[httpx.Client]:
        """A page that has opened the printed address: it has a cookie, and no token."""
        with httpx.Client(base_url=self.address, timeout=60) as client:
            assert client.get("/", params={"token": self.token}).status_code == 303
            yield client


@contextlib.contextmanager
def running(folder: Path, models: Sequence[Path | str] = (), port: int = 0) -> Iterator[Served]:
    with opened([str(model) for model in models], folder, port) as ready:
        thread = threading.Thread(target=ready.run)
        thread.start()
        try:
            while not ready.server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield Served(ready.access.address, ready.access.token, ready)
        finally:
            ready.server.should_exit = True
            thread.join()


def finished(client: httpx.Client, job: str, seconds: float = 120) -> dict[str, Any]:
    """A job when it has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        current: dict[str, Any] = client.get(f"/api/jobs/{job}").json()
        if current["state"] not in ("queued", "running"):
            return current
        time.sleep(0.1)
    raise AssertionError(f"the job is still {current['state']}: {current['events'][-1:]}")
