"""How cost grows: one epoch of training and one table of samples, against rows and columns.

    python -m benchmarks.scale --data DATA

Each column is a real one, drawn with replacement by itself; more columns are the same ones again.
Writes benchmarks/results/scale.json and docs/scale.svg.
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import RESULTS, told
from tabmt import TabMT

ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
COLUMNS = (8, 16, 32, 64)
FEW_ROWS, FEW_COLUMNS = 10_000, 8
BATCH = 256
PICTURE = Path(__file__).parent.parent / "docs" / "scale.svg"


def table(real: pd.DataFrame, rows: int, columns: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = {}
    for place in range(columns):
        name = real.columns[place % len(real.columns)]
        parts[f"{name} {place}"] = real[name].to_numpy()[rng.integers(0, len(real), rows)]
    return pd.DataFrame(parts)


def measure(
    real: pd.DataFrame, rows: int, columns: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    given = table(real, rows, columns, seed=0)
    steps = max(20, rows // BATCH)
    settings = {"threads": arguments.threads, "batch_size": BATCH, "patience": 10**6}
    model = TabMT(network=arguments.network, steps=steps, **settings)
    seconds = []
    model.fit(given, on_step=lambda progress: seconds.append(progress.seconds))
    began = time.perf_counter()
    model.sample(rows, seed=0)
    sampled = time.perf_counter() - began
    found = {
        "rows": rows,
        "columns": columns,
        "epoch_seconds": seconds[-1] / steps * rows / BATCH,
        "sample_seconds": sampled,
    }
    print(found, flush=True)
    return found


def exponent(points: list[dict[str, Any]], along: str, cost: str) -> float:
    """The power with which a cost grows: the slope of the line through the logarithms."""
    x, y = (np.log([point[key] for point in points]) for key in (along, cost))
    return float(np.polyfit(x, y, 1)[0])


def draw(found: dict[str, list[dict[str, Any]]]) -> str:
    import vl_convert

    rows = [
        {"x": point[along], "seconds": point[cost], "cost": label, "along": f"against {along}"}
        for along, points in found.items()
        for point in points
        for cost, label in (("epoch_seconds", "one epoch"), ("sample_seconds", "sample"))
    ]
    log_scale = {"type": "log"}
    spec = {
        "data": {"values": rows},
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
    picture: str = vl_convert.vegalite_to_svg(spec)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--network", default="any-order")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most-rows", type=int, default=ROWS[-1])
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    real = load(arguments.data, DATASETS["adult"]).train
    found = {
        "rows": [
            measure(real, rows, FEW_COLUMNS, arguments)
            for rows in ROWS
            if rows <= arguments.most_rows
        ],
        "columns": [measure(real, FEW_ROWS, columns, arguments) for columns in COLUMNS],
    }
    exponents = {
        f"{cost} against {along}": exponent(points, along, cost)
        for along, points in found.items()
        for cost in ("epoch_seconds", "sample_seconds")
    }
    print(exponents)
    result = {
        "points": found,
        "exponents": exponents,
        **told("benchmarks.scale", arguments.data, arguments.threads),
    }
    (RESULTS / "scale.json").write_text(json.dumps(result, indent=2) + "\n")
    PICTURE.write_text(draw(found))


if __name__ == "__main__":
    main()
