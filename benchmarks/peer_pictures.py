"""Pictures of the docs that compare generators: SVG text, the same for the same results.

The paper's histograms of correlation errors, and quality against training time. Without results
there are no pictures.
"""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from benchmarks import peer_tables
from benchmarks.peer_tables import OURS, SCORE_NAMES, TITLES, Result

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 64, 36, 200, 48
COLOURS = ("#1f5fa8", "#d1701c", "#3a8a3f", "#a23b6b", "#6b6b6b", "#7a56a8", "#2a9aa0")
HISTOGRAMS = (OURS, "tabddpm", "ctabgan")  # those of the paper's figure
MOST_ERROR = 0.4  # shown; larger ones count in the last bin
CURVES = ("ml_efficiency", "detector_auc")
Points = Sequence[tuple[float, float]]


def chart(title: str, labels: tuple[str, str], series: Mapping[str, Points]) -> str:
    """Lines with their names on the right. Nothing is drawn for a series without points."""
    series = {name: points for name, points in series.items() if points}
    ends = [
        _ends([point[axis] for points in series.values() for point in points]) for axis in (0, 1)
    ]
    size = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM)

    def place(point: tuple[float, float]) -> str:
        share = [(point[a] - ends[a][0]) / (ends[a][1] - ends[a][0]) for a in (0, 1)]
        return f"{LEFT + share[0] * size[0]:.1f},{TOP + (1 - share[1]) * size[1]:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, "start", 14),
        _text(LEFT + size[0] / 2, HEIGHT - 10, labels[0]),
        f'<g transform="rotate(-90 14 {TOP + size[1] / 2:.0f})">'
        + _text(14, TOP + size[1] / 2, labels[1])
        + "</g>",
        f'<rect x="{LEFT}" y="{TOP}" width="{size[0]}" height="{size[1]}" fill="none" '
        'stroke="#888"/>',
    ]
    for share in (0, 0.5, 1):
        x, y = (low + share * (high - low) for low, high in ends)
        parts.append(_text(LEFT + share * size[0], TOP + size[1] + 18, f"{x:.3g}"))
        parts.append(_text(LEFT - 6, TOP + (1 - share) * size[1] + 4, f"{y:.3g}", "end"))
    for number, (name, points) in enumerate(series.items()):
        colour, y = COLOURS[number % len(COLOURS)], TOP + 14 + 20 * number
        line = " ".join(place(point) for point in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x = WIDTH - RIGHT + 12
        parts.append(f'<path d="M{x} {y - 4}h16" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 22, y, name, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ends(values: list[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def histogram(result: Result, table: str) -> str | None:
    """Shares of the pairs of columns by their correlation error, as in the paper's figure."""
    series: dict[str, Points] = {}
    for name in HISTOGRAMS:
        runs = peer_tables.runs_of(result, table, name)
        counts = [
            [int(word) for word in run["correlation_errors"].split()]
            for run in runs
            if "correlation_errors" in run
        ]
        if counts:
            series[TITLES[name]] = steps(np.array(counts).sum(axis=0))
    if not series:
        return None
    labels = ("correlation error", "share of the pairs of columns")
    return chart(f"Correlation errors, {table}", labels, series)


def steps(counts: np.ndarray) -> Points:
    """The outline of a histogram whose bins divide 0..1."""
    shown = round(MOST_ERROR * len(counts))
    shares = counts[:shown] / counts.sum()
    shares[-1] = counts[shown - 1 :].sum() / counts.sum()
    points: list[tuple[float, float]] = [(0.0, 0.0)]
    for number, share in enumerate(shares):
        points += [(number / len(counts), share), ((number + 1) / len(counts), share)]
    return [*points, (shown / len(counts), 0.0)]


def curve(result: Result, table: str, score: str) -> str | None:
    """One score of every generator against its minutes of training."""
    series: dict[str, Points] = {}
    for name in peer_tables.generator_names(result):
        runs = [run for run in peer_tables.runs_of(result, table, name) if "failure" not in run]
        points = []
        for minutes in sorted({run["minutes"] for run in runs}):
            values = peer_tables.values_of(
                [run for run in runs if run["minutes"] == minutes], score
            )
            if values:
                points.append((float(minutes), float(np.mean(values))))
        series[TITLES[name]] = points
    if not any(series.values()):
        return None
    return chart(f"{SCORE_NAMES[score]}, {table}", ("minutes", SCORE_NAMES[score]), series)


def pictures() -> dict[str, str]:
    """Every picture that there are results for: file name -> SVG."""
    found: dict[str, str | None] = {}
    comparison, curves = peer_tables.read("comparison"), peer_tables.read("curves")
    for table in peer_tables.table_names(comparison) if comparison else ():
        found[f"correlations-{table}.svg"] = histogram(comparison, table)
    for table in peer_tables.table_names(curves) if curves else ():
        for score in CURVES:
            name = f"time-{score.partition('_')[0]}-{table}.svg"
            found[name] = curve(curves, table, score)
    return {name: text for name, text in found.items() if text is not None}


def links(beginning: str) -> str:
    """The pictures whose names begin so; nothing if there are none."""
    return "\n\n".join(
        f"![{name.removesuffix('.svg').replace('-', ' ')}](peers/{name})"
        for name in pictures()
        if name.startswith(beginning)
    )


MARKERS = {
    "peers: histograms": lambda: links("correlations"),
    "peers: curves": lambda: links("time"),
}
