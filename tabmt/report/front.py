"""Pictures of the searches: privacy against quality, temperatures, what settings matter."""

from typing import TYPE_CHECKING, Any

from tabmt.report import charts

if TYPE_CHECKING:
    from tabmt.search.front import Front

FRONT, RAY, TRIED = charts.SYNTHETIC, "#d97706", charts.REAL
TITLES = {
    "dcr": "distance to the closest training row (more is more private)",
    "closer": "share closer to training rows (less is more private)",
    "attack": "success of an attack, AUC (0.5 is a guess)",
    "mle": "ML efficiency",
    "detector": "detector AUC (0.5 is best)",
}
MOST_LINES = 12  # columns whose temperatures are drawn: those that move most


def front_picture(front: "Front") -> dict[str, Any]:
    """Privacy against quality: trials, the front (validation and test), the ray, real rows."""
    rows: list[dict[str, Any]] = [
        {"x": x, "y": y, "what": "trials", "order": 0} for x, y in front.tried
    ]
    kinds = (("front, test rows", front.points), ("one temperature, test rows", front.ray))
    for what, points in kinds:
        rows += [
            {"x": p.test_privacy, "y": p.test_quality, "what": what, "order": place}
            for place, p in enumerate(points)
        ]
    rows += [
        {"x": p.valid_privacy, "y": p.valid_quality, "what": "front, validation", "order": place}
        for place, p in enumerate(front.points)
    ]
    one = [p for p in front.ray if p.uniform == 1.0]
    rows += [{"x": p.test_privacy, "y": p.test_quality, "what": "temperature 1"} for p in one]
    rows.append({"x": front.real["privacy"], "y": front.real["quality"], "what": "real rows"})
    names = ["trials", "front, validation", "front, test rows", "one temperature, test rows",
             "temperature 1", "real rows"]  # fmt: skip
    scale = {"domain": names, "range": [TRIED, "#5eead4", FRONT, RAY, "#b91c1c", "#111827"]}
    encoding: dict[str, Any] = {
        "x": {"field": "x", "type": "quantitative", "title": TITLES[front.privacy],
              "scale": {"zero": False}},
        "y": {"field": "y", "type": "quantitative", "title": TITLES[front.quality],
              "scale": {"zero": False}},
        "color": {"field": "what", "type": "nominal", "title": None, "scale": scale,
                  "legend": {"labelLimit": 200}},
    }  # fmt: skip
    lines = {"field": "what", "oneOf": ["front, test rows", "one temperature, test rows"]}
    return {
        "width": 420,
        "height": 300,
        "data": {"values": rows},
        "layer": [
            {
                "transform": [{"filter": lines}],
                "mark": {"type": "line", "opacity": 0.6},
                "encoding": {**encoding, "order": {"field": "order", "type": "quantitative"}},
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 0.85},
                "encoding": {
                    **encoding,
                    "size": {
                        "condition": {"test": "datum.what == 'trials'", "value": 12},
                        "value": 55,
                    },
                },
            },
        ],
    }


def temperature_picture(front: "Front") -> dict[str, Any]:
    """How each column's temperature moves along the front."""
    columns = list(front.points[0].temperatures) if front.points else []
    spread = {
        name: max(p.temperatures[name] for p in front.points)
        / min(p.temperatures[name] for p in front.points)
        for name in columns
    }
    shown = sorted(columns, key=lambda name: -spread[name])[:MOST_LINES]
    rows = [
        {"x": point.privacy, "column": name, "t": point.temperatures[name]}
        for point in front.points
        for name in shown
    ]
    return {
        "width": 420,
        "height": 300,
        "data": {"values": rows},
        "mark": {"type": "line", "point": True, "opacity": 0.8},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": TITLES[front.privacy],
                  "scale": {"zero": False}},
            "y": {"field": "t", "type": "quantitative", "title": "temperature",
                  "scale": {"type": "log", "domain": [0.5, 5], "nice": False}},
            "color": {"field": "column", "type": "nominal", "title": None, "sort": shown},
        },
    }  # fmt: skip


def front_pictures(front: "Front") -> list[tuple[str, str]]:
    """Captions and SVGs, for pages."""
    return [
        ("privacy against quality", charts.svg(front_picture(front))),
        ("temperatures along the front", charts.svg(temperature_picture(front))),
    ]


def side_by_side(front: "Front") -> dict[str, Any]:
    """Both pictures as one, for a file of its own."""
    return {
        "hconcat": [front_picture(front), temperature_picture(front)],
        "resolve": {"scale": {"color": "independent"}},
    }


def importance_picture(importances: dict[str, float]) -> str:
    """What share of the scores' spread each setting explains."""
    rows = [{"setting": name, "share": share} for name, share in importances.items()]
    return charts.svg(
        {
            "width": 320,
            "height": {"step": 20},
            "data": {"values": rows},
            "mark": {"type": "bar", "color": charts.SYNTHETIC},
            "encoding": {
                "y": {"field": "setting", "type": "nominal", "sort": "-x", "title": None},
                "x": {"field": "share", "type": "quantitative", "title": "importance",
                      "axis": {"format": ".0%"}},
            },
        },
        ink=charts.BLACK,
    )  # fmt: skip
