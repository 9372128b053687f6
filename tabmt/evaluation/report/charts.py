"""Charts as SVG text: Vega-Lite specifications rendered by vl-convert, with no script in the page.

Each function takes plain arrays and returns one picture. Text and lines have the colour
`currentColor`, so that they follow a light or dark page.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tabmt.errors import not_installed

REAL, SYNTHETIC = "#8a94a6", "#0d9488"
GENERATORS = (SYNTHETIC, "#9333ea", "#ea580c", "#2563eb", "#ca8a04", "#db2777")  # and again
INK, BLACK = "currentColor", "#1c2430"
LONGEST_LABEL = 130  # pixels
LONGEST_NAME = 400  # of a table, in a legend
CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "gridOpacity": 0.15,
        "gridColor": INK,
        "labelLimit": LONGEST_LABEL,
        "titleFontWeight": "normal",
    },
    "legend": {"labelColor": INK, "titleColor": INK, "labelLimit": LONGEST_LABEL},
    "title": {"color": INK},
}
TABLES = {"domain": ["real", "synthetic"], "range": [REAL, SYNTHETIC]}
COLOR = {"field": "table", "type": "nominal", "scale": TABLES, "legend": None}


def svg(spec: dict[str, Any], ink: str = INK) -> str:
    """Render a specification; `ink` is the text colour of a picture outside a page."""
    drawn: str = converter().vegalite_to_svg({"config": CONFIG, **spec}, allowed_base_urls=[])
    return drawn if ink == INK else drawn.replace(INK, ink)


def png(spec: dict[str, Any]) -> bytes:
    config = json.loads(json.dumps(CONFIG).replace(INK, BLACK)) | {"background": "white"}
    drawn: bytes = converter().vegalite_to_png(
        {"config": config, **spec}, scale=2, allowed_base_urls=[]
    )
    return drawn


def converter() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise not_installed("A picture", "vl-convert", "eval") from error
    return vl_convert


def _values(**columns: Any) -> dict[str, Any]:
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    return {"values": [dict(zip(names, row, strict=True)) for row in rows]}


def histogram(
    real: np.ndarray, synthetic: np.ndarray, title: str, *, bins: int = 30, dates: bool = False
) -> str:
    """Two overlaid histograms, as shares; `dates` are milliseconds since 1970."""
    tables = [("real", real), ("synthetic", synthetic)]
    if len(real) + len(synthetic) == 0:
        return ""
    edges, shares = _shares_of_bins(tables, bins)
    encoding = _histogram_encoding(title, "temporal" if dates else "quantitative")
    return svg(
        {
            "width": 260,
            "height": 110,
            "data": _values(
                start=edges[:-1].tolist() * 2,
                end=edges[1:].tolist() * 2,
                share=np.concatenate(shares).tolist(),
                table=[name for name, _ in tables for _ in range(bins)],
            ),
            "mark": {"type": "bar", "opacity": 0.55},
            "encoding": {
                **encoding,
                "x2": {"field": "end"},
                "y2": {"datum": 0},
                "color": COLOR,
            },
        }
    )


def overlaid_histograms(
    tables: Sequence[tuple[str, np.ndarray]], title: str, *, bins: int = 30
) -> dict[str, Any]:
    """The histograms of several generators in one picture, from 0, as a specification.

    Each table is a name and its values; the first is that of real rows.
    """
    edges, shares = _shares_of_bins(tables, bins, low=0.0)
    steps = [np.append(share, share[-1]) for share in shares]  # the last bin ends at its edge
    outline = {"interpolate": "step-after", "strokeWidth": 1.5}
    filled = {"field": "table", "oneOf": [name for name, _ in tables[1:]]}
    return {
        "width": 460,
        "height": 240,
        "data": _values(
            start=edges.tolist() * len(tables),
            share=np.concatenate(steps).tolist(),
            table=[name for name, _ in tables for _ in edges],
        ),
        "encoding": {**_histogram_encoding(title, "quantitative"), "color": _color_by(tables)},
        "layer": [
            {
                "transform": [{"filter": filled}],
                "mark": {"type": "area", "opacity": 0.3, **outline},
            },
            {"mark": {"type": "line", **outline}},
        ],
    }


def _histogram_encoding(title: str, kind: str) -> dict[str, Any]:
    return {
        "x": {"field": "start", "type": kind, "title": title,
              "scale": {"zero": False, "nice": False}},
        "y": {"field": "share", "type": "quantitative", "title": None, "stack": None,
              "axis": {"format": "%", "tickCount": 3}},
    }  # fmt: skip


def _shares_of_bins(
    tables: Sequence[tuple[str, np.ndarray]], bins: int, low: float | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The edges of bins for all tables, and the share of each table's values in them."""
    every = np.concatenate([values for _, values in tables])
    lower, high = np.quantile(every, [0.005, 0.995])  # an outlier would compress all others
    low = float(lower) if low is None else low
    if high <= low:
        low, high = float(every.min()) - 0.5, float(every.max()) + 0.5
    edges = np.linspace(low, high, bins + 1)
    shares = []
    for _, values in tables:
        counts, _ = np.histogram(np.clip(values, low, high), edges)
        shares.append(counts / max(len(values), 1))
    return edges, shares


def _color_by(tables: Sequence[tuple[str, np.ndarray]]) -> dict[str, Any]:
    """Real rows grey, generators in the paper's order: green, then purple. With a legend."""
    names = [name for name, _ in tables]
    colors = [REAL, *(GENERATORS[i % len(GENERATORS)] for i in range(len(names) - 1))]
    scale = {"domain": names, "range": colors}
    legend = {"title": None, "orient": "top", "columns": 3, "labelLimit": LONGEST_NAME,
              "symbolType": "square", "symbolOpacity": 1}  # fmt: skip
    return {"field": "table", "type": "nominal", "scale": scale, "legend": legend}


def bars(labels: list[str], real: np.ndarray, synthetic: np.ndarray, title: str = "share") -> str:
    """Two bars for each label."""
    count = len(labels)
    return svg(
        {
            "width": 220,
            "height": {"step": 9},
            "data": _values(
                label=labels * 2,
                position=list(range(count)) * 2,
                share=[*map(float, real), *map(float, synthetic)],
                table=["real"] * count + ["synthetic"] * count,
            ),
            "mark": "bar",
            "encoding": {
                "y": {"field": "label", "type": "nominal", "title": None,
                      "sort": {"field": "position"}},
                "yOffset": {"field": "table"},
                "x": {"field": "share", "type": "quantitative", "title": title,
                      "axis": {"format": ".0%", "tickCount": 3}},
                "color": COLOR,
            },
        }
    )  # fmt: skip


def heatmap(matrix: np.ndarray, names: list[str], *, low: float, scheme: str) -> str:
    """A square matrix of numbers from `low` to 1; NaN stays empty."""
    ys, xs = np.nonzero(~np.isnan(matrix))
    step = float(np.clip(300 / len(names), 5, 22))
    axis = {"labelFontSize": float(np.clip(step - 1, 4, 10)), "title": None, "labelAngle": -60}
    return svg(
        {
            "width": {"step": step},
            "height": {"step": step},
            "data": _values(
                x=[names[i] for i in xs],
                y=[names[i] for i in ys],
                value=[float(v) for v in matrix[ys, xs]],
            ),
            "mark": "rect",
            "encoding": {
                "x": {"field": "x", "type": "nominal", "sort": names, "axis": axis},
                "y": {"field": "y", "type": "nominal", "sort": names,
                      "axis": {**axis, "labelAngle": 0}},
                "color": {"field": "value", "type": "quantitative",
                          "scale": {"domain": [low, 1], "scheme": scheme, "clamp": True},
                          "legend": {"title": None, "gradientLength": 100}},
            },
        }
    )  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One side of a picture of two columns: a label for each bin, or the edges of all bins.

    Edges of dates are milliseconds since 1970.
    """

    title: str
    kind: Literal["labels", "numbers", "dates"]
    values: Sequence[Any]

    @property
    def bins(self) -> int:
        return len(self.values) - (self.kind != "labels")

    def encoding(self, letter: str, bins: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of cells in some bins, and how they are drawn."""
        channel: dict[str, Any] = {"field": letter, "title": self.title}
        values: dict[str, Any] = {letter: [self.values[position] for position in bins]}
        if self.kind == "labels":
            axis = {"labelLimit": 90, "labelAngle": -40 if letter == "x" else 0}
            scale: dict[str, Any] = {"domain": list(self.values)}
            return values, {letter: {**channel, "type": "nominal", "axis": axis, "scale": scale}}
        end = f"{letter}2"
        values[end] = [self.values[position + 1] for position in bins]
        kind = "temporal" if self.kind == "dates" else "quantitative"
        scale = {"zero": False, "nice": False, "domain": [self.values[0], self.values[-1]]}
        if self.kind == "dates":
            del scale["zero"]
        drawn = {**channel, "type": kind, "scale": scale, "axis": {"tickCount": 4}}
        return values, {letter: drawn, end: {"field": end}}


def pair_heatmaps(shares: Sequence[np.ndarray], x: Axis, y: Axis) -> str:
    """The joint shares of two columns, (bins of x, bins of y), in the real and in the synthetic
    table, side by side."""
    tables = zip(("real", "synthetic"), shares, strict=True)
    cells = [(name, i, j, float(table[i, j]))
             for name, table in tables
             for i, j in np.argwhere(table > 0).tolist()]  # fmt: skip
    x_values, x_drawn = x.encoding("x", [cell[1] for cell in cells])
    y_values, y_drawn = y.encoding("y", [cell[2] for cell in cells])
    highest = max(float(table.max()) for table in shares)
    color = {"field": "share", "type": "quantitative", "legend": None,
             "scale": {"type": "sqrt", "scheme": "teals", "domain": [0, highest]}}  # fmt: skip
    values = {
        "table": [cell[0] for cell in cells],
        "share": [cell[3] for cell in cells],
        **x_values,
        **y_values,
    }
    return svg(
        {
            "data": _values(**values),
            "facet": {"field": "table", "type": "nominal", "title": None,
                      "sort": ["real", "synthetic"], "header": {"labelColor": INK}},
            "spec": {
                "width": 165,
                "height": 150,
                "view": {"stroke": INK, "strokeOpacity": 0.2},
                "mark": "rect",
                "encoding": {**x_drawn, **y_drawn, "color": color},
            },
        }
    )  # fmt: skip


def scatter(real: np.ndarray, synthetic: np.ndarray, titles: tuple[str, str]) -> str:
    """The points of two tables in one picture."""
    points = np.round(np.concatenate([real, synthetic]), 3)
    names = ["real"] * len(real) + ["synthetic"] * len(synthetic)
    order = np.random.default_rng(0).permutation(len(points))  # neither table hides the other
    axis = {"labels": False, "ticks": False, "grid": False}
    return svg(
        {
            "width": 420,
            "height": 320,
            "data": _values(
                x=points[order, 0].tolist(),
                y=points[order, 1].tolist(),
                table=[names[i] for i in order],
            ),
            "mark": {"type": "point", "filled": True, "size": 9, "opacity": 0.5},
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "title": titles[0], "axis": axis},
                "y": {"field": "y", "type": "quantitative", "title": titles[1], "axis": axis},
                "color": COLOR,
            },
        }
    )


def maps(tables: Sequence[tuple[str, np.ndarray]]) -> dict[str, Any]:
    """The points of several tables on one map, a panel for each table, as a specification.

    The first table is that of real rows.
    """
    points = np.round(np.concatenate([table for _, table in tables]), 3)
    names = [name for name, table in tables for _ in range(len(table))]
    color = {**_color_by(tables), "legend": None}  # each panel has its name above it
    position = {"type": "quantitative", "axis": None, "scale": {"zero": False}}
    return {
        "data": _values(x=points[:, 0].tolist(), y=points[:, 1].tolist(), table=names),
        "facet": {"field": "table", "type": "nominal", "title": None,
                  "sort": [name for name, _ in tables],
                  "header": {"labelColor": INK, "labelLimit": 260, "labelFontSize": 13}},
        "columns": 3,
        "spec": {
            "width": 260,
            "height": 260,
            "view": {"stroke": INK, "strokeOpacity": 0.3},
            "mark": {"type": "point", "filled": True, "size": 9, "opacity": 0.5},
            "encoding": {
                "x": {"field": "x", **position},
                "y": {"field": "y", **position},
                "color": color,
            },
        },
    }  # fmt: skip
