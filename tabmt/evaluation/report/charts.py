"""Charts as SVG text: Vega-Lite specifications rendered by vl-convert, with no script in the page.

Each function takes plain arrays and returns one picture. Text and lines have the colour
`currentColor`, so that they follow a light or dark page.
"""

import json
from typing import Any

import numpy as np

from tabmt.errors import not_installed

REAL, SYNTHETIC = "#8a94a6", "#0d9488"
INK, BLACK = "currentColor", "#1c2430"
LONGEST_LABEL = 130  # pixels
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
    drawn: str = _converter().vegalite_to_svg({"config": CONFIG, **spec}, allowed_base_urls=[])
    return drawn if ink == INK else drawn.replace(INK, ink)


def png(spec: dict[str, Any]) -> bytes:
    config = json.loads(json.dumps(CONFIG).replace(INK, BLACK)) | {"background": "white"}
    drawn: bytes = _converter().vegalite_to_png(
        {"config": config, **spec}, scale=2, allowed_base_urls=[]
    )
    return drawn


def _converter() -> Any:
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
    every = np.concatenate([real, synthetic])
    if len(every) == 0:
        return ""
    low, high = np.quantile(every, [0.005, 0.995])  # an outlier would compress all others
    if high <= low:
        low, high = float(every.min()) - 0.5, float(every.max()) + 0.5
    edges = np.linspace(low, high, bins + 1)
    starts, ends, shares, names = [], [], [], []
    for name, values in (("real", real), ("synthetic", synthetic)):
        counts, _ = np.histogram(np.clip(values, low, high), edges)
        starts += edges[:-1].tolist()
        ends += edges[1:].tolist()
        shares += (counts / max(len(values), 1)).tolist()
        names += [name] * bins
    return svg(
        {
            "width": 260,
            "height": 110,
            "data": _values(start=starts, end=ends, share=shares, table=names),
            "mark": {"type": "bar", "opacity": 0.55},
            "encoding": {
                "x": {"field": "start", "type": "temporal" if dates else "quantitative",
                      "title": title,
                      "scale": {"zero": False, "nice": False}},
                "x2": {"field": "end"},
                "y2": {"datum": 0},
                "y": {"field": "share", "type": "quantitative", "title": None, "stack": None,
                      "axis": {"format": "%", "tickCount": 3}},
                "color": COLOR,
            },
        }
    )  # fmt: skip


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
