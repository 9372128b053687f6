"""Imputing and scoring large files: rows per second and peak memory, by the number of rows.

    python -m benchmarks.streaming --rows 500000 5000000

Uses a simulated Parquet file of four columns with missing values, and one model that is fitted on a
smaller file. Each command runs in a separate process. Writes benchmarks/results/streaming.json.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.machine import run_info, save_result

BATCH_ROWS = 100_000
TRAINING_ROWS = 50_000
MEASURED = (
    "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024); sys.exit(code)"
)


def simulate(rows: int, seed: int) -> pa.Table:
    """Two numbers, a category and a count that depend on each other, a tenth of each missing."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 5, rows)
    first = np.round(rng.normal(kind, 1.0), 2)
    columns = {
        "kind": np.array(["a", "b", "c", "d", "e"])[kind],
        "first": first,
        "second": np.round(first * 3 + rng.normal(size=rows), 1),
        "count": rng.poisson(kind + 1.0),
    }
    return pa.table(
        {name: pa.array(values, mask=rng.random(rows) < 0.1) for name, values in columns.items()}
    )


def write(path: Path, rows: int) -> None:
    with pyarrow.parquet.ParquetWriter(path, simulate(1, 0).schema) as writer:
        for seed, first in enumerate(range(0, rows, BATCH_ROWS)):
            writer.write_table(simulate(min(BATCH_ROWS, rows - first), seed))


def run(*command: str) -> tuple[float, float]:
    """Seconds and peak megabytes of a command."""
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - started, float(process.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[500_000, 5_000_000], help="sizes of the files"
    )
    arguments = parser.parse_args()
    tabmt = [sys.executable, "-m", "tabmt.cli"]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        model, train = f"{folder}/m.tabmt", f"{folder}/train.parquet"
        write(Path(train), TRAINING_ROWS)
        run(*tabmt, "fit", train, "-o", model, "--steps", "300", "--threads", "1")
        for rows in arguments.rows:
            table = f"{folder}/{rows}.parquet"
            write(Path(table), rows)
            for name, options in {
                "impute": ["-o", f"{folder}/imputed.parquet"],
                "score": ["-o", f"{folder}/scores.parquet", "--orders", "1"],
            }.items():
                seconds, peak = run(*tabmt, name, model, table, *options)
                speed = rows / seconds
                runs.append(
                    {"command": name, "rows": rows, "rows_per_second": speed, "peak_mb": peak}
                )
                print(f"{name} {rows:,} rows: {speed:,.0f} rows/s, {peak:,.0f} MB", flush=True)
            imputed = pyarrow.parquet.read_metadata(f"{folder}/imputed.parquet")
            assert imputed.num_rows == rows
            Path(table).unlink()
    info = run_info("benchmarks.streaming", Path(), 1)
    save_result("streaming", {"seed": 0, "runs": runs, **info})


if __name__ == "__main__":
    main()
