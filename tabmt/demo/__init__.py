"""The demonstration: a real table that the package carries, and a side-by-side view of two tables.

`penguins.csv` is the Palmer penguins table (Horst, Hill and Gorman 2020; CC0): 344 birds with
measurements, categories and gaps.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.schema import Schema, combine
from tabmt.data.units import is_number

MOST_CATEGORIES = 3


def penguins() -> str:
    """The path of the embedded table."""
    return str(files("tabmt.demo") / "penguins.csv")


def split(folder: Path) -> tuple[Path, Path]:
    """The embedded table as train.csv and test.csv, every fourth bird held out."""
    head, *lines = Path(penguins()).read_text(encoding="utf-8").splitlines(keepends=True)
    train, test = folder / "train.csv", folder / "test.csv"
    # The table is sorted by species, so every fourth row is a fair share of each.
    train.write_text(head + "".join(line for i, line in enumerate(lines) if i % 4), "utf-8")
    test.write_text(head + "".join(lines[::4]), "utf-8")
    return train, test


def side_by_side(real: pa.Table, synthetic: pa.Table, schema: Schema) -> list[tuple[str, ...]]:
    """One line per column: its name, and what it looks like in either table."""
    lines = []
    for column in schema.columns:
        arrays = [combine(table.column(column.name)) for table in (real, synthetic)]
        if column.kind in ("numeric", "datetime") and is_number(arrays[0].type):
            lines.append((column.name, *(_numbers(array) for array in arrays)))
        else:
            counts = arrays[0].drop_null().value_counts().to_pylist()
            counts.sort(key=lambda item: -item["counts"])
            shown = [item["values"] for item in counts[:MOST_CATEGORIES]]
            lines.append((column.name, *(_categories(array, shown) for array in arrays)))
    return lines


def _numbers(array: pa.Array) -> str:
    values = array.drop_null().cast(pa.float64()).to_numpy()
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return f"{middle:.4g}  ({low:.4g} to {high:.4g}){_gaps(array)}"


def _categories(array: pa.Array, shown: list[object]) -> str:
    known = array.drop_null()
    shares = [pc.mean(pc.equal(known, value)).as_py() or 0.0 for value in shown]
    words = [f"{value} {share:.0%}" for value, share in zip(shown, shares, strict=True)]
    return ", ".join(words) + _gaps(array)


def _gaps(array: pa.Array) -> str:
    return f"; {array.null_count / len(array):.1%} gaps" if array.null_count else ""
