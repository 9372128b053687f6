"""How fast and how good, side by side: both networks of ours and TabularARGN, in one run.

    python -m benchmarks.speed --data DATA --tables adult --generators argn any-order masked

One process per generator, the same threads, tables and judge for all. TabularARGN lives in a
virtual environment of its own, made on first use. `--minutes` is our training time; with "peer" it
is what TabularARGN took on the same table. Writes benchmarks/results/speed-NAME.json.
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

from benchmarks.datasets import DATASETS, Dataset, Split, load
from benchmarks.machine import RESULTS, told

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv" / "peers"  # away from our own packages, gone with `make clean`
ARGN = "mostlyai-engine==2.7.3"
OURS = ("any-order", "masked")
RATIOS = ("fit_seconds", "rows_per_second", "peak_mb", "mle", "detector")


def argn_python() -> Path:
    """The interpreter of TabularARGN's own environment, made if need be."""
    folder = PEERS / "argn"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "torch==2.13.0"], check=True)  # the CPU build first
        subprocess.run([*pip, "install", ARGN, "torch==2.13.0", "pyarrow"], check=True)
        # PyPI's are built for CUDA and break the import; tables do without them.
        subprocess.run([*pip, "uninstall", "-y", "torchvision", "torchaudio"], check=True)
        (folder / "ready").touch()
    return python


def generate(
    generator: str,
    split: Split,
    dataset: Dataset,
    seed: int,
    minutes: float,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Fit and sample in a process of its own, then judge: means over the samples of the model."""
    threads = arguments.threads
    with tempfile.TemporaryDirectory() as folder:
        train, out = Path(folder) / "train.parquet", Path(folder) / "out.parquet"
        split.train.to_parquet(train, index=False)
        rows = [str(train), str(len(split.train)), str(out)]
        options = ["--threads", str(threads), "--seed", str(seed)]
        options += ["--samples", str(arguments.samples)]
        if generator == "argn":
            command = [argn_python(), HERE / "peers" / "argn.py", *rows, *options]
        else:
            command = [sys.executable, "-m", "benchmarks.peers.ours", *rows, *options]
            command += ["--network", generator, "--minutes", str(minutes)]
            command += ["--target", dataset.target]
        environment = os.environ | {
            name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{generator} on {dataset.name} failed:\n{done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        synthetic = pd.read_parquet(out)
    result["rows_per_second"] = len(synthetic) / result["sample_seconds"]
    size = len(split.train)
    judged = [
        split.judge(synthetic.iloc[at : at + size].reset_index(drop=True), dataset, seed)
        for at in range(0, len(synthetic), size)
    ]
    means = {key: float(np.mean([one[key] for one in judged])) for key in judged[0]}
    each = [one["mle"] for one in judged]
    return {"generator": generator, "seed": seed, **result, **means, "mle_of_each_sample": each}


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    dataset = DATASETS[name]
    split = load(arguments.data, dataset)
    runs: list[dict[str, Any]] = []
    minutes = 0.0
    for seed in range(arguments.seeds):
        for generator in arguments.generators:
            if arguments.minutes != "peer":
                minutes = float(arguments.minutes)
            run = generate(generator, split, dataset, seed, minutes, arguments)
            if arguments.minutes == "peer" and generator == "argn":
                minutes = run["fit_seconds"] / 60
            runs.append(run)
            print(
                f"{name} {generator} seed {seed}: fit {run['fit_seconds']:.0f} s, "
                f"{run['rows_per_second']:.0f} rows/s, {run['peak_mb']:.0f} MB, "
                f"MLE {run['mle']:.4f}, detector {run['detector']:.4f}, DCR {run['dcr']:.4f} "
                f"(held out {run['dcr_held_out']:.4f}), copies {run['copies']:.4f}",
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
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--tables", nargs="+", default=["adult"], choices=DATASETS)
    parser.add_argument("--generators", nargs="+", default=["argn", *OURS])
    parser.add_argument("--minutes", default="peer", help="our training time, or 'peer'")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int, default=1, help="tables judged of each model")
    parser.add_argument("--name", default="peer", help="of the result files")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    if arguments.minutes == "peer" and arguments.generators[0] != "argn":
        parser.error("--minutes peer needs argn as the first of the generators")
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.tables:
        result = compare(name, arguments)
        result |= told("benchmarks.speed", arguments.data, arguments.threads)
        path = RESULTS / f"speed-{arguments.name}-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"into {path}", flush=True)


if __name__ == "__main__":
    main()
