"""Planted secrets: are they in the model file, or in a million rows, with protection and without?

    python -m benchmarks.secrets --rows 1000000

A table with a unique name, an extreme salary, a first and a last date, a telephone number that
occurs twice among unique ones, and a combination of two frequent values that only one row has, is
fitted with default settings for a few minutes. The benchmark counts the secrets that `tabmt info
--scan` finds in the file, and the generated rows that contain one. Writes
benchmarks/results/secrets.json.
"""

import argparse
import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.config import CodecConfig
from tabmt.model.stored_values import scan_file
from tests.tables import FIRST, LAST, NAME, PHONE, SALARY, planted


def rows_with_secrets(rows: pd.DataFrame, table: pd.DataFrame) -> dict[str, int]:
    """How many rows contain each secret; for numbers and dates, also values next to it."""
    day = pd.to_datetime(rows["day"])
    near = dt.timedelta(days=30)
    return {
        "name": int((rows["who"] == NAME).sum()),
        "extreme salary, within 10 %": int(
            rows["salary"].between(0.9 * SALARY, 1.1 * SALARY).sum()
        ),
        "first date, within 30 days": int((day <= pd.Timestamp(FIRST + near)).sum()),
        "last date, within 30 days": int((day >= pd.Timestamp(LAST - near)).sum()),
        "telephone number that occurs twice": int((rows["phone"] == PHONE).sum()),
        "any real telephone number": int(rows["phone"].isin(set(table["phone"])).sum()),
        "combination": int(((rows["city"] == "Bodo") & (rows["country"] == "south")).sum()),
    }


def measure(protect: int, arguments: argparse.Namespace) -> dict[str, Any]:
    table = planted(arguments.table_rows, arguments.seed)
    model = TabMT(
        protect=protect, minutes=arguments.minutes, seed=arguments.seed, threads=arguments.threads
    ).fit(table)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planted.tabmt"
        model.save(path)
        scan = scan_file(path, table, CodecConfig.protect)
    counts: dict[str, int] = {}
    for seed in range(max(1, arguments.rows // 100_000)):  # in parts, for the memory
        part = rows_with_secrets(model.sample(min(arguments.rows, 100_000), seed=seed), table)
        counts = {name: counts.get(name, 0) + count for name, count in part.items()}
    found = {one.column: one.found for one in scan.columns}
    return {"protect": protect, "found in the file": found, "rows with it": counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="that are sampled")
    parser.add_argument("--table-rows", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=2.0, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    runs = [measure(protect, arguments) for protect in (CodecConfig.protect, 0)]
    save_result(
        "secrets", {"runs": runs, **run_info("benchmarks.secrets", Path(), arguments.threads)}
    )


if __name__ == "__main__":
    main()
