"""Make the virtual environments of the peers, and say which there are.

    python -m benchmarks peers list
    python -m benchmarks peers install ctgan arf
    python -m benchmarks peers check tvae

Each peer that is a package has an environment of its own in --cache, or in the folder that the
variable TABMT_PEERS names, or in ~/.cache/tabmt-peers. requirements/NAME.txt pins everything in it,
dependencies included, so pip resolves nothing; its comments say which versions matter and why. An
installation that fails is recorded, and its peers are rows of the results that say so. `check`
fits 300 rows in a few seconds.
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.peers.catalogue import PEERS, Peer

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements"
GRACE = 300.0  # seconds beyond three times the budget after which a peer is killed


def default_cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TABMT_PEERS") or caches / "tabmt-peers")


def requirements(environment: str) -> Path:
    return REQUIREMENTS / f"{environment}.txt"


def fingerprint(environment: str) -> str:
    return hashlib.sha256(requirements(environment).read_bytes()).hexdigest()


def state(environment: str, cache: Path) -> dict[str, str]:
    """What was recorded of an installation; empty if there is none of these requirements."""
    path = cache / environment / "state.json"
    found: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}
    return found if found.get("requirements") == fingerprint(environment) else {}


def install(environment: str, cache: Path) -> dict[str, str]:
    """Make an environment unless it is there; how that ended."""
    found = state(environment, cache)
    if found.get("outcome") == "ready":
        return found
    folder = cache / environment
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", folder / "bin" / "python"]
    commands = [
        [sys.executable, "-m", "venv", "--clear", "--without-pip", folder],
        [*pip, "install", "--no-deps", "-r", requirements(environment)],
    ]
    result = {"requirements": fingerprint(environment), "outcome": "ready"}
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode < 0:
            raise SystemExit(f"The installation of {environment} was ended by a signal.")
        if ended.returncode:
            result |= {"outcome": "failed", "reason": last_errors(ended.stderr)}
            break
    (folder / "state.json").write_text(json.dumps(result))
    return result


def last_errors(text: str) -> str:
    """What pip says at last, without its warnings."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("WARNING")]
    return " ".join(lines[-3:])[:500] or "no reason given"


def interpreter(peer: Peer, cache: Path) -> Path:
    if not peer.environment:
        return Path(sys.executable)
    return cache / peer.environment / "bin" / "python"


def why_not_installed(peer: Peer, cache: Path) -> str | None:
    """One sentence if a peer cannot be run; None if it can."""
    if not peer.environment or state(peer.environment, cache).get("outcome") == "ready":
        return None
    return (
        f"The environment of {peer.name} is not installed: run `python -m benchmarks peers install "
        f"{peer.environment}`."
    )


def installation_failure(peer: Peer, cache: Path) -> str | None:
    """Why the installation failed, if it was tried."""
    if not peer.environment:
        return None
    found = state(peer.environment, cache)
    return f"installation: {found['reason']}" if found.get("outcome") == "failed" else None


def run_peer(
    peer: Peer,
    train: Path,
    sample: Path,
    *,
    rows: int,
    target: str | None,
    seconds: float,
    seed: int,
    cache: Path,
    log: Path,
) -> dict[str, Any]:
    """Fit and sample a peer in its environment: its report, or why there is none."""
    command: list[Any] = [interpreter(peer, cache), "-m", "benchmarks.peers.driver", peer.name]
    command += [train.absolute(), sample.absolute(), "--rows", rows, "--seconds", seconds]
    command += ["--seed", seed, *(["--target", target] if target else [])]
    limit = 3 * seconds + GRACE
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # so that its children can be killed with it
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            return {"failure": f"killed after {limit:.0f} s, with {seconds:.0f} s to fit"}
        except BaseException:
            _kill_group(process)
            raise
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if lines:
        report: dict[str, Any] = json.loads(lines[-1])
        return report
    tail = " ".join(log.read_text().split()[-40:])
    return {"failure": f"exit code {process.returncode}: {tail}"[:500]}


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def small_table(rows: int = 300) -> pd.DataFrame:
    """A table with numbers, whole numbers and categories that depend on one another."""
    rng = np.random.default_rng(0)
    city = rng.integers(0, 3, rows)
    rooms = rng.integers(1, 6, rows)
    area = 20 * rooms + rng.normal(0, 5, rows)
    dear = area * (1 + city) + rng.normal(0, 20, rows) > 120
    garden = pd.Series(np.where(rng.random(rows) < 0.1, None, np.array(["no", "yes"])[city // 2]))
    return pd.DataFrame(
        {
            "city": pd.Categorical.from_codes(city, ["Bergen", "Molde", "Oslo"]),
            "rooms": rooms,
            "area": area,
            "garden": garden.astype("category"),
            "dear": pd.Categorical.from_codes(dear.astype(int), ["no", "yes"]),
        }
    )


def check(peer: Peer, seconds: float, cache: Path) -> dict[str, Any]:
    """Fit a small table, and sample as many rows."""
    train = small_table()
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "train.parquet", Path(folder) / "log.txt"
        train.to_parquet(path, index=False)
        report = run_peer(
            peer, path, Path(folder) / "sample.parquet", rows=len(train), target="dear",
            seconds=seconds, seed=0, cache=cache, log=log,
        )  # fmt: skip
        if "failure" in report:
            print(log.read_text()[-4000:], file=sys.stderr)
    return report


def describe(peer: Peer, cache: Path) -> str:
    if not peer.environment:
        status = "runs beside tabmt"
    else:
        found = state(peer.environment, cache)
        status = found.get("reason") or found.get("outcome") or "not installed"
    return f"{peer.name:18} {peer.title:26} {peer.kind:14} {status}"


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=("list", "install", "check"))
    parser.add_argument("names", nargs="*", help="of peers; all if none are given")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="of environments")
    parser.add_argument("--seconds", type=float, default=5.0, help="to fit, of `check`")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in PEERS]
    if unknown:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    peers = [PEERS[name] for name in arguments.names or PEERS]
    failed = False
    for peer in peers:
        if arguments.action == "list":
            print(describe(peer, arguments.cache))
        elif arguments.action == "install" and peer.environment:
            outcome = install(peer.environment, arguments.cache)
            failed |= outcome["outcome"] == "failed"
            print(peer.environment, outcome.get("reason", outcome["outcome"]), flush=True)
        elif arguments.action == "check":
            report = check(peer, arguments.seconds, arguments.cache)
            failed |= "failure" in report
            print(peer.name, json.dumps(report), flush=True)
    sys.exit(1 if failed else 0)
