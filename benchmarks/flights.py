"""A large table with missing values and dates, from end to end on the command line: nycflights13.

    python -m benchmarks.flights --data DATA --minutes 10

Fits the training rows, samples a million rows and evaluates them with the test rows. Each command
runs in a separate process, of which time and peak memory are measured. Writes
benchmarks/results/flights.json.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from benchmarks.streaming import run

TARGET = "arr_delay"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--minutes", type=float, default=10.0, help="training time")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to sample")
    arguments = parser.parse_args()
    table = pd.read_parquet(arguments.data / "nycflights13.parquet")
    split = np.load(arguments.data / "nycflights13.split.npz")
    tabmt = str(Path(sys.executable).parent / "tabmt")
    costs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in ("train", "val", "test"):
            table.iloc[split[rows]].to_parquet(folder / f"{rows}.parquet", index=False)
        train, valid, test = (str(folder / f"{rows}.parquet") for rows in ("train", "val", "test"))
        model, synthetic, evaluation = (
            str(folder / file) for file in ("m.tabmt", "synthetic.parquet", "evaluation.json")
        )
        one_thread = ["--threads", "1"]
        fit = ["fit", train, "-o", model, "--minutes", str(arguments.minutes), "--target", TARGET]
        sample = ["sample", model, "-n", str(arguments.rows), "-o", synthetic, "--seed", "0"]
        evaluate = ["evaluate", synthetic, "--train", train, "--test", test, "--valid", valid]
        evaluate += ["--target", TARGET, "--json", evaluation]
        for command in ([*fit, *one_thread], [*sample, *one_thread], evaluate):
            seconds, peak = run(tabmt, *command)
            costs[command[0]] = {"seconds": seconds, "peak_mb": peak}
            print(command[0], costs[command[0]], flush=True)
        (evaluated,) = json.loads(Path(evaluation).read_text())
    result = {
        "rows": evaluated["rows"],
        "costs": costs,
        "scores": {
            score["name"]: {"value": score["value"], "real": score["reference"]}
            for score in evaluated["scores"]
        },
        "notes": evaluated["notes"],
    }
    save_result("flights", {**result, **run_info("benchmarks.flights", arguments.data, 1)})


if __name__ == "__main__":
    main()
