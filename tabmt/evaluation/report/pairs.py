"""The pairs of columns whose association differs most, real and synthetic side by side.

Rows are counted in bins, so no single real row is drawn.
"""

from collections.abc import Sequence

import numpy as np

from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.report import charts
from tabmt.evaluation.report.charts import Axis

MOST_PAIRS = 4
NUMBER_BINS = 14
MOST_LABELS = 8
LONGEST_LABEL = 40  # characters


def pair_pictures(
    real: EncodedTable, rows: EncodedTable, differences: np.ndarray
) -> list[tuple[str, str]]:
    """Captions and pictures; `differences` of associations are (columns, columns)."""
    names = list(real.names)
    first, second = np.triu_indices(len(names), 1)
    order = np.argsort(-differences[first, second], kind="stable")[:MOST_PAIRS]
    pairs = [(names[first[i]], names[second[i]]) for i in order]
    drawn = [(f"{x} and {y}", _pair(real, rows, x, y)) for x, y in pairs]
    return [(caption, picture) for caption, picture in drawn if picture]


def _pair(real: EncodedTable, rows: EncodedTable, x: str, y: str) -> str:
    x_axis, y_axis = (_axis(real, rows, name) for name in (x, y))
    shares = []
    for table in (real, rows):
        x_bins, y_bins = _bins(table, x, x_axis), _bins(table, y, y_axis)
        known = (x_bins >= 0) & (y_bins >= 0)
        counts = np.zeros((x_axis.bins, y_axis.bins))
        np.add.at(counts, (x_bins[known], y_bins[known]), 1)
        shares.append(counts / max(1, known.sum()))
    if not all(table.any() for table in shares):  # no row has both values
        return ""
    return charts.pair_heatmaps(shares, x_axis, y_axis)


def _axis(real: EncodedTable, rows: EncodedTable, name: str) -> Axis:
    if name in real.codes:
        labels = short_labels(real.encoder.categories[name][:MOST_LABELS])
        if max(table.codes[name].max(initial=0) for table in (real, rows)) >= len(labels):
            labels.append("(all others)")
        return Axis(name, "labels", labels)
    column = real.encoder.schema[name]
    is_date = column.kind == "datetime" and not column.dtype.startswith(("time32", "time64"))
    values = np.concatenate([table.numbers[name] for table in (real, rows)])
    values = values[np.isfinite(values)] / (1000 if is_date else 1)  # from microseconds
    low, high = np.quantile(values, [0.005, 0.995]) if len(values) else (0.0, 0.0)
    if high <= low:
        low, high = low - 0.5, low + 0.5
    edges = np.linspace(low, high, NUMBER_BINS + 1).tolist()
    return Axis(name, "dates" if is_date else "numbers", edges)


def _bins(table: EncodedTable, name: str, axis: Axis) -> np.ndarray:
    """(rows,): the bin of each row, -1 for a missing value."""
    if axis.kind == "labels":
        return np.asarray(np.minimum(table.codes[name], axis.bins - 1))
    values = table.numbers[name] / (1000 if axis.kind == "dates" else 1)
    found = np.searchsorted(axis.values, np.nan_to_num(values), side="right") - 1
    return np.where(np.isfinite(values), np.clip(found, 0, axis.bins - 1), -1)


def short_labels(words: Sequence[str]) -> list[str]:
    """Categories as labels of an axis."""
    shortened = [
        word if len(word) <= LONGEST_LABEL else word[: LONGEST_LABEL - 1] + "…" for word in words
    ]
    if len(set(shortened)) < len(shortened):  # to the same text
        return [f"{label} ({number})" for number, label in enumerate(shortened, 1)]
    return shortened
