"""The demonstration: a real table that the package contains, and two tables side by side.

`penguins.csv` is the Palmer penguins table (Horst, Hill and Gorman 2020; CC0): 344 birds with
measurements, categories and missing values.
"""

from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.arrow_types import is_number, plain_array
from tabmt.data.schema import Schema

MOST_CATEGORIES = 3


def penguins() -> str:
    """The path of the bundled penguins table, a CSV file.

    Example:
        >>> model = TabMT(steps=100).fit(penguins())
    """
    return str(files("tabmt.demo") / "penguins.csv")


def side_by_side(real: pa.Table, synthetic: pa.Table, schema: Schema) -> list[tuple[str, ...]]:
    """One line per column: its name, and a summary of it in either table."""
    lines = []
    for column in schema.columns:
        arrays = [plain_array(table.column(column.name)) for table in (real, synthetic)]
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
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    return f"{median:.4g}  ({low:.4g} to {high:.4g}){_missing(array)}"


def _categories(array: pa.Array, shown: list[object]) -> str:
    known = array.drop_null()
    shares = [pc.mean(pc.equal(known, value)).as_py() or 0.0 for value in shown]
    words = [f"{value} {share:.0%}" for value, share in zip(shown, shares, strict=True)]
    return ", ".join(words) + _missing(array)


def _missing(array: pa.Array) -> str:
    return f"; {array.null_count / len(array):.1%} missing" if array.null_count else ""
