"""A large mixed table with gaps and dates, end to end by the command line: nycflights13.

    python -m benchmarks.flights --data DATA --minutes 10

Fits the training rows, samples a million, and judges them against the test rows; each command in a
process of its own, with its seconds and peak memory. Writes benchmarks/results/flights.json.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.machine import save, told
from benchmarks.streaming import run

TARGET = "arr_delay"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the fit")
    parser.add_argument("--rows", type=int, default=1_000_000, help="to sample")
    arguments = parser.parse_args()
    table = pd.read_parquet(arguments.data / "nycflights13.parquet")
    split = np.load(arguments.data / "nycflights13.split.npz")
    tabmt = str(Path(sys.executable).parent / "tabmt")
    costs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("train", "val", "test"):
            table.iloc[split[part]].to_parquet(folder / f"{part}.parquet", index=False)
        model, rows, judged = (str(folder / it) for it in ("m.tabmt", "rows.parquet", "j.json"))
        train = str(folder / "train.parquet")
        test, valid = (str(folder / f"{part}.parquet") for part in ("test", "val"))
        one_thread = ["--threads", "1"]
        minutes, count = str(arguments.minutes), str(arguments.rows)
        fit = ["fit", train, "-o", model, "--minutes", minutes, "--target", TARGET]
        sample = ["sample", model, "-n", count, "-o", rows, "--seed", "0"]
        evaluate = ["evaluate", rows, "--train", train, "--test", test, "--valid", valid]
        evaluate += ["--target", TARGET, "--json", judged]
        for words in ([*fit, *one_thread], [*sample, *one_thread], evaluate):
            seconds, peak = run(tabmt, *words)
            costs[words[0]] = {"seconds": seconds, "peak_mb": peak}
            print(words[0], costs[words[0]], flush=True)
        (found,) = json.loads(Path(judged).read_text())
    scores = {
        one["name"]: {"value": one["value"], "real": one["reference"]} for one in found["scores"]
    }
    result = {"rows": found["rows"], "costs": costs, "scores": scores, "notes": found["notes"]}
    save("flights", {**result, **told("benchmarks.flights", arguments.data, 1)})


if __name__ == "__main__":
    main()
