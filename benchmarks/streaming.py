"""Imputing and scoring files larger than memory need be: rows per second and peak memory by rows.

    python -m benchmarks.streaming --rows 500000 5000000

A made-up Parquet file of four columns with gaps; one model, learned from its first rows. Each
command runs in a process of its own. Writes benchmarks/results/streaming.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.machine import RESULTS, told

PART = 100_000
MEASURED = (
    "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024); sys.exit(code)"
)


def part(rows: int, seed: int) -> pa.Table:
    """Two numbers, a category and a count that hang together, a tenth of each missing."""
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
    with pyarrow.parquet.ParquetWriter(path, part(1, 0).schema) as writer:
        for seed in range(-(-rows // PART)):
            writer.write_table(part(min(PART, rows - seed * PART), seed))


def run(*words: str) -> tuple[float, float]:
    """Seconds and peak megabytes of a command."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - started, float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[500_000, 5_000_000])
    arguments = parser.parse_args()
    tabmt = [sys.executable, "-m", "tabmt.cli"]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        model, few = f"{folder}/m.tabmt", f"{folder}/few.parquet"
        write(Path(few), 50_000)
        run(*tabmt, "fit", few, "-o", model, "--steps", "300", "--threads", "1")
        for rows in arguments.rows:
            table = f"{folder}/{rows}.parquet"
            write(Path(table), rows)
            for name, options in {
                "impute": ["-o", f"{folder}/filled.parquet"],
                "score": ["-o", f"{folder}/scores.parquet", "--orders", "1"],
            }.items():
                seconds, peak = run(*tabmt, name, model, table, *options)
                speed = rows / seconds
                runs.append(
                    {"command": name, "rows": rows, "rows_per_second": speed, "peak_mb": peak}
                )
                print(f"{name} {rows:,} rows: {speed:,.0f} rows/s, {peak:,.0f} MB", flush=True)
            filled = pyarrow.parquet.read_metadata(f"{folder}/filled.parquet")
            assert filled.num_rows == rows
            Path(table).unlink()
    result = {"seed": 0, "runs": runs, **told("benchmarks.streaming", Path(), 1)}
    (RESULTS / "streaming.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
