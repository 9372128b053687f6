"""Speed and quality side by side: our two networks and TabularARGN, in one run.

    python -m benchmarks.speed --data DATA --tables adult --generators argn any-order masked

Each generator runs in a separate process, with the same threads, tables and evaluation. TabularARGN
has its own virtual environment, which is made on first use. `--minutes` is our training time; with
"peer" it is the time that TabularARGN took for the same table. Writes
benchmarks/results/speed-NAME-TABLE.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import CLEAN_TABLES, Split, TableInfo, add_data_option, load
from benchmarks.machine import run_info, save_result
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import default_cache, install, interpreter

OURS = ("any-order", "masked")
RATIOS = ("fit_seconds", "rows_per_second", "peak_mb", "mle", "detector")


def argn_python() -> Path:
    """The interpreter of TabularARGN's own environment, which is made if it does not exist."""
    peer, cache = PEERS["argn"], default_cache()
    outcome = install(peer.environment, cache)
    if outcome["outcome"] != "ready":
        raise SystemExit(f"TabularARGN cannot be installed: {outcome['reason']}")
    return interpreter(peer, cache)


def fit_and_sample(
    generator: str,
    split: Split,
    info: TableInfo,
    seed: int,
    minutes: float,
    arguments: argparse.Namespace,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Run a generator in a separate process: what it reports, and its samples, concatenated."""
    threads = arguments.threads
    with tempfile.TemporaryDirectory() as folder:
        train, output = Path(folder) / "train.parquet", Path(folder) / "synthetic.parquet"
        split.train.to_parquet(train, index=False)
        options = [str(train), str(len(split.train)), str(output)]
        options += ["--threads", str(threads), "--seed", str(seed)]
        options += ["--samples", str(arguments.samples)]
        if generator == "argn":
            command = [argn_python(), "-m", "benchmarks.peers.argn", *options]
        else:
            command = [sys.executable, "-m", "benchmarks.peers.ours", *options]
            command += ["--network", generator, "--minutes", str(minutes)]
            command += ["--target", info.target]
        environment = os.environ | {
            name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
        }
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode:
            raise SystemExit(f"{generator} on {info.name} failed:\n{process.stderr[-3000:]}")
        return json.loads(process.stdout.splitlines()[-1]), pd.read_parquet(output)


def measure(
    generator: str,
    split: Split,
    info: TableInfo,
    seed: int,
    minutes: float,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Speed of a generator, and the mean scores of its samples."""
    report, rows = fit_and_sample(generator, split, info, seed, minutes, arguments)
    size = len(split.train)
    evaluations = [
        split.evaluate(rows.iloc[start : start + size].reset_index(drop=True), info, seed)
        for start in range(0, len(rows), size)
    ]
    means = {key: float(np.mean([scores[key] for scores in evaluations])) for key in evaluations[0]}
    return {
        "generator": generator,
        "seed": seed,
        **report,
        "rows_per_second": len(rows) / report["sample_seconds"],
        **means,
        "mle_of_each_sample": [scores["mle"] for scores in evaluations],
    }


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    info = CLEAN_TABLES[name]
    split = load(arguments.data, info)
    runs: list[dict[str, Any]] = []
    minutes = 0.0
    for seed in range(arguments.seeds):
        for generator in arguments.generators:
            if arguments.minutes != "peer":
                minutes = float(arguments.minutes)
            run = measure(generator, split, info, seed, minutes, arguments)
            if arguments.minutes == "peer" and generator == "argn":
                minutes = run["fit_seconds"] / 60
            runs.append(run)
            print(
                f"{name} {generator} seed {seed}: fit {run['fit_seconds']:.0f} s, "
                f"{run['rows_per_second']:.0f} rows/s, {run['peak_mb']:.0f} MB, "
                f"MLE {run['mle']:.4f}, detector {run['detector']:.4f}, DCR {run['dcr']:.4f} "
                f"(test rows {run['dcr_held_out']:.4f}), copies {run['copies']:.4f}",
                flush=True,
            )
    means = {
        generator: {
            key: float(np.mean([run[key] for run in runs if run["generator"] == generator]))
            for key, value in runs[0].items()
            if isinstance(value, float)
        }
        for generator in arguments.generators
    }
    ratios = {
        f"{ours} / {other}": {key: means[ours][key] / means[other][key] for key in RATIOS}
        for ours in arguments.generators
        for other in arguments.generators
        if ours in OURS and other != ours
    }
    return {"table": name, "means": means, "ratios": ratios, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--tables", nargs="+", default=["adult"], choices=CLEAN_TABLES)
    parser.add_argument("--generators", nargs="+", default=["argn", *OURS])
    parser.add_argument("--minutes", default="peer", help="our training time, or 'peer'")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int, default=1, help="synthetic tables of each model")
    parser.add_argument("--name", default="peer", help="name of the result files")
    arguments = parser.parse_args()
    if arguments.minutes == "peer" and arguments.generators[0] != "argn":
        parser.error("--minutes peer needs argn as the first of the generators")
    for name in arguments.tables:
        result = compare(name, arguments)
        result |= run_info("benchmarks.speed", arguments.data, arguments.threads)
        save_result(f"speed-{arguments.name}-{name}", result)


if __name__ == "__main__":
    main()
