"""Rows per CPU second beside TabularARGN, both with one thread and measured in turns.

    python -m benchmarks.sampling_peer --data DATA

Each generator is fitted in a process of its own: ours for about `--cpu-seconds` (merging depends on
how well a model is trained), TabularARGN for `--epochs`, with its default size, on which its speed
depends. Then both processes stay, and draw the same numbers of rows in turns; ours also without
compiled kernels. CPU seconds are those of the whole process: drawing, decoding, the data frame.
Writes benchmarks/results/sampling-peer.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import default_cache, install, interpreter

OTHER_TABLES = {"bank_marketing": "y", "beijing_pm25": "pm2.5"}  # name: target
TABLES = ("adult", "bank_marketing", "beijing_pm25", "california", "churn", "king")
WARM_UP = 30_000  # rows: kernels are loaded, and PyTorch has prepared its products


def training_rows(data: Path, name: str) -> tuple[pd.DataFrame, str]:
    """The training rows of a table, and its target."""
    if name in CLEAN_TABLES:
        return load(data, CLEAN_TABLES[name]).train, CLEAN_TABLES[name].target
    table = pd.read_parquet(data / f"{name}.parquet")
    rows = np.load(data / f"{name}.split.npz")["train"]
    return table.iloc[rows].reset_index(drop=True), OTHER_TABLES[name]


def argn_python() -> Path:
    """The interpreter of TabularARGN's own environment, which is made if it does not exist."""
    peer, cache = PEERS["argn"], default_cache()
    outcome = install(peer.environment, cache)
    if outcome["outcome"] != "ready":
        raise SystemExit(f"TabularARGN cannot be installed: {outcome['reason']}")
    return interpreter(peer, cache)


class Server:
    """A fitted generator in a process of its own, which draws rows on request."""

    def __init__(self, command: list[Any]) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [*map(str, command)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.report = self._read()

    def rows_per_cpu_second(self, rows: int, **options: Any) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"rows": rows, **options}) + "\n")
        self._process.stdin.flush()
        return rows / float(self._read()["cpu_seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # others write there too
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit("a generator has stopped")


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    train, target = training_rows(arguments.data, name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.parquet"
        train.to_parquet(path, index=False)
        settings = ["--target", target, "--cpu-seconds", arguments.cpu_seconds]
        ours = Server([sys.executable, "-m", "benchmarks.peers.ours", path, *settings])
        epochs = ["--epochs", arguments.epochs]
        argn = Server([argn_python(), "-m", "benchmarks.peers.argn", path, *epochs])
        measured: dict[str, dict[str, list[float]]] = {}
        ours.rows_per_cpu_second(WARM_UP)
        argn.rows_per_cpu_second(WARM_UP)
        for rows in arguments.rows:
            speeds: dict[str, list[float]] = {"ours": [], "argn": [], "without kernels": []}
            for _ in range(arguments.turns):
                speeds["argn"].append(argn.rows_per_cpu_second(rows))
                speeds["ours"].append(ours.rows_per_cpu_second(rows))
            speeds["without kernels"].append(ours.rows_per_cpu_second(rows, kernels=False))
            measured[str(rows)] = speeds
        ours.close()
        argn.close()
    result: dict[str, Any] = {
        "table": name,
        "rows": len(train),
        "columns": len(train.columns),
        "fit_cpu_seconds": {"ours": ours.report["cpu_seconds"], "argn": argn.report["cpu_seconds"]},
        "generator_versions": {"ours": ours.report["versions"], "argn": argn.report["versions"]},
        "rows_per_cpu_second": {},
        "ratio": {},
        "ratio_without_kernels": {},
        "runs": measured,
    }
    for rows, speeds in measured.items():
        medians = {key: statistics.median(values) for key, values in speeds.items()}
        result["rows_per_cpu_second"][rows] = {key: round(v) for key, v in medians.items()}
        result["ratio"][rows] = medians["ours"] / medians["argn"]
        result["ratio_without_kernels"][rows] = medians["without kernels"] / medians["argn"]
    print(name, result["rows_per_cpu_second"], result["ratio"], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--rows", nargs="+", type=int, default=[50_000, 200_000])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cpu-seconds", type=float, default=80.0, help="our training time")
    parser.add_argument("--epochs", type=int, default=3, help="of TabularARGN")
    arguments = parser.parse_args()
    info = run_info("benchmarks.sampling_peer", arguments.data, 1)
    tables = []
    for name in arguments.tables:
        tables.append(compare(name, arguments))
        save_result("sampling-peer", {"summary": summary(tables), "tables": tables, **info})


def summary(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The least and the median ratio over the tables, by the number of rows."""
    result: dict[str, Any] = {}
    for key in ("ratio", "ratio_without_kernels"):
        for rows in tables[0][key]:
            ratios = [table[key][rows] for table in tables]
            spread = {"least": min(ratios), "median": statistics.median(ratios)}
            result.setdefault(key, {})[rows] = spread
    return result


if __name__ == "__main__":
    main()
