"""How cost grows: the time of an epoch and of a sample, against the number of rows and columns.

    python -m benchmarks.scale --data DATA

Each column is a column of a real table, drawn with replacement independently of the others; if more
columns are needed, they repeat. Writes benchmarks/results/scale.json and docs/scale.svg.
"""

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT

ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
COLUMNS = (8, 16, 32, 64)
FEW_ROWS, FEW_COLUMNS = 10_000, 8
BATCH = 256
PICTURE = Path(__file__).parent.parent / "docs" / "scale.svg"


def random_table(real: pd.DataFrame, rows: int, columns: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = {}
    for index in range(columns):
        name = real.columns[index % len(real.columns)]
        values[f"{name} {index}"] = real[name].to_numpy()[rng.integers(0, len(real), rows)]
    return pd.DataFrame(values)


def measure(
    real: pd.DataFrame, rows: int, columns: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    table = random_table(real, rows, columns, seed=0)
    steps = max(20, rows // BATCH)
    settings = {"threads": arguments.threads, "batch_size": BATCH, "patience": 10**6}
    model = TabMT(network=arguments.network, steps=steps, **settings)
    step_seconds = []
    model.fit(table, on_step=lambda progress: step_seconds.append(progress.seconds))
    started = time.perf_counter()
    model.sample(rows, seed=0)
    point = {
        "rows": rows,
        "columns": columns,
        "epoch_seconds": step_seconds[-1] / steps * rows / BATCH,
        "sample_seconds": time.perf_counter() - started,
    }
    print(point, flush=True)
    return point


def exponent(points: list[dict[str, Any]], quantity: str, cost: str) -> float:
    """The power with which a cost grows: the slope of a line through the logarithms."""
    x, y = (np.log([point[key] for point in points]) for key in (quantity, cost))
    return float(np.polyfit(x, y, 1)[0])


def picture(results: dict[str, list[dict[str, Any]]]) -> str:
    import vl_convert

    values = [
        {
            "x": point[quantity],
            "seconds": point[cost],
            "cost": label,
            "along": f"against {quantity}",
        }
        for quantity, points in results.items()
        for point in points
        for cost, label in (("epoch_seconds", "one epoch"), ("sample_seconds", "sample"))
    ]
    log_scale = {"type": "log"}
    spec = {
        "data": {"values": values},
        "facet": {"column": {"field": "along", "title": None}},
        "resolve": {"scale": {"x": "independent"}},
        "spec": {
            "width": 260,
            "height": 220,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "scale": log_scale, "title": None},
                "y": {"field": "seconds", "type": "quantitative", "scale": log_scale},
                "color": {"field": "cost", "type": "nominal", "title": None},
            },
        },
    }
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--network", default="any-order", help="any-order or masked")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most-rows", type=int, default=ROWS[-1], help="skip larger tables")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    real = load(arguments.data, CLEAN_TABLES["adult"]).train
    results = {
        "rows": [
            measure(real, rows, FEW_COLUMNS, arguments)
            for rows in ROWS
            if rows <= arguments.most_rows
        ],
        "columns": [measure(real, FEW_ROWS, columns, arguments) for columns in COLUMNS],
    }
    exponents = {
        f"{cost} against {quantity}": exponent(points, quantity, cost)
        for quantity, points in results.items()
        for cost in ("epoch_seconds", "sample_seconds")
    }
    print(exponents)
    info = run_info("benchmarks.scale", arguments.data, arguments.threads)
    save_result("scale", {"points": results, "exponents": exponents, **info})
    PICTURE.write_text(picture(results))


if __name__ == "__main__":
    main()
