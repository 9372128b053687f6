"""A load test of the page's server: 200 clients on the loopback address for a minute.

    python -m benchmarks.serve --seconds 60

First ten-row prompts one after the other; then 200 clients at once, each asking for ten rows with
or without a condition, completing a row, or asking for a hundred rows, while two more clients read
one large stream after the other. Every answer is counted: no row may be lost or repeated. Writes
benchmarks/results/serve.json with the latencies of a ten-row prompt alone and under load, and the
memory of the server. The clients share the machine with the server.
"""

import argparse
import asyncio
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.machine import run_info, save_result
from tabmt import TabMT, penguins

STREAM_ROWS = 100_000
ALONE = 50  # prompts without other load
PROMPT = {"rows": 10, "where": {"species": {"equals": "Adelie"}, "body_mass_g": {"low": 4000}}}
SMALL: list[tuple[str, dict[str, Any], int]] = [  # what, body, rows that have to come back
    ("sample", PROMPT, 10),
    ("sample", {"rows": 10}, 10),
    ("complete", {"rows": [{"species": "Gentoo", "sex": "female"}]}, 1),
    ("sample", {"rows": 100, "where": ["island = Dream"]}, 100),
]


def start(folder: Path) -> tuple[subprocess.Popen[str], str, str]:
    """A server in a separate process; its address and token."""
    model = folder / "penguins.tabmt"
    TabMT(steps=20, seed=0, threads=1).fit(penguins()).save(model)
    command = [sys.executable, "-c", "from tabmt.cli import main; main()", "serve", str(model)]
    command += ["--folder", str(folder / "work"), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if match := re.search(r"(http://[^/]+)/.*token=(\S+)", line):
            # A full pipe would stop the server.
            rest = threading.Thread(
                target=sys.stderr.writelines, args=(process.stderr,), daemon=True
            )
            rest.start()
            return process, match[1], match[2]
    raise RuntimeError("the server has not started")


def memory_mb(process: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) / 1000


def percentiles(seconds: list[float]) -> dict[str, float]:
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    return {
        "requests": len(seconds),
        "p50_ms": round(1000 * p50, 1),
        "p95_ms": round(1000 * p95, 1),
    }


async def ask(program: httpx.AsyncClient, model: str, kind: int) -> float:
    """Seconds of one small request, whose rows are counted."""
    what, body, rows = SMALL[kind]
    started = time.perf_counter()
    response = await program.post(f"/api/models/{model}/{what}", json=body)
    seconds = time.perf_counter() - started
    response.raise_for_status()
    assert len(response.text.splitlines()) == rows
    return seconds


async def stream(program: httpx.AsyncClient, model: str, seed: int, until: float) -> int:
    """Read large streams until the time is over; returns the rows. The same seed is the same
    stream, so that lost or repeated rows would show."""
    digests, rows = set(), 0
    while time.perf_counter() < until:
        body = {"rows": STREAM_ROWS, "seed": seed, "format": "csv"}
        lines, digest = -1, hashlib.blake2b()  # the first line has the names
        async with program.stream("POST", f"/api/models/{model}/sample", json=body) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                lines += piece.count(b"\n")
                digest.update(piece)
        assert lines == STREAM_ROWS, lines
        digests.add(digest.hexdigest())
        rows += lines
    assert len(digests) == 1
    return rows


async def load(
    address: str, token: str, clients: int, seconds: float, server: int
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "base_url": address,
        "headers": {"authorization": f"Bearer {token}"},
        "timeout": 600,
        "verify": False,  # there is no TLS; loading certificates takes longer than a request
    }
    async with contextlib.AsyncExitStack() as stack:
        # A connection for each client: the work of a shared pool grows with its connections, and
        # would be most of what is measured.
        program, *programs = [
            await stack.enter_async_context(httpx.AsyncClient(**options))
            for _ in range(clients + 3)
        ]
        model = (await program.get("/api/models")).json()[0]["id"]
        alone = [await ask(program, model, 0) for _ in range(ALONE)]
        before = memory_mb(server)
        until = time.perf_counter() + seconds
        latencies: list[tuple[int, float]] = []
        memory: list[float] = []

        async def client(number: int) -> float:
            kind = number
            while time.perf_counter() < until:
                kind = (kind + 1) % len(SMALL)
                latencies.append((kind, await ask(programs[number], model, kind)))
            return time.perf_counter()

        async def watch() -> None:
            while time.perf_counter() < until:
                memory.append(memory_mb(server))
                await asyncio.sleep(1)

        streams = [
            stream(programs[clients + n], model, seed, until) for n, seed in ((0, 1), (1, 2))
        ]
        started = time.perf_counter()
        *ends, first, second, _ = await asyncio.gather(
            *(client(number) for number in range(clients)), *streams, watch()
        )
        took = max(ends) - started  # a stream goes on until its last row
    counts = Counter(kind for kind, _ in latencies)
    return {
        "ten_rows_alone": percentiles(alone),
        "ten_rows_under_load": percentiles([s for kind, s in latencies if kind == 0]),
        "small_requests": sum(counts.values()),
        "small_requests_per_second": round(len(latencies) / took, 1),
        "stream_rows": first + second,
        "errors": 0,  # any would have ended the run
        "memory_mb": {
            "before": round(before),
            "median": round(float(np.median(memory))),
            "highest": round(max(memory)),
            "end": round(memory[-1]),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, address, token = start(Path(folder))
        try:
            result = asyncio.run(
                load(address, token, arguments.clients, arguments.seconds, server.pid)
            )
        finally:
            server.terminate()
            server.wait()
    about = {"clients": arguments.clients, "seconds": arguments.seconds}
    busy = {"load_average": round(os.getloadavg()[0], 1)}
    save_result("serve", {**about, **busy, **result, **run_info("benchmarks.serve", Path(), 1)})


if __name__ == "__main__":
    main()
