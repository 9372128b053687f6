"""Pictures of the searches: privacy against quality, temperatures, importance of settings."""

from pathlib import Path
from typing import Any

from tabmt.evaluation.report import charts
from tabmt.evaluation.report.report import Picture, environment
from tabmt.search.pareto_front import Front
from tabmt.writing import replacing, write_text

FRONT, UNIFORM, TRIED = charts.SYNTHETIC, "#d97706", charts.REAL
TITLES = {
    "dcr": "distance to the closest training row (more is more private)",
    "closer": "share closer to training rows (less is more private)",
    "attack": "risk of the worst attack (less is more private)",
    "mle": "ML efficiency",
    "detector": "detector AUC (0.5 is best)",
}
LABELS = 200  # pixels of a label


def write_front(front: Front, path: Path) -> None:
    """A picture of a front: NAME.svg, NAME.png or NAME.html."""
    if path.suffix == ".html":
        page = environment().get_template("front.html")
        write_text(path, page.render(front=front, front_pictures=front_pictures(front)))
    elif path.suffix == ".png":
        with replacing(path) as temporary:
            temporary.write_bytes(charts.png(side_by_side(front)))
    else:
        write_text(path, charts.svg(side_by_side(front), ink=charts.BLACK))


def _points(front: Front) -> list[dict[str, Any]]:
    """Every point of the picture: trials, the front on validation and test rows, uniform points,
    real rows."""
    rows: list[dict[str, Any]] = [{"x": x, "y": y, "what": "trials"} for x, y in front.tried]
    for what, points in (("front", front.points), ("one temperature", front.uniform)):
        rows += [
            {"x": p.test_privacy, "y": p.test_quality, "what": f"{what}, test rows", "point": n}
            for n, p in enumerate(points, 1)
        ]
    rows += [
        {"x": p.valid_privacy, "y": p.valid_quality, "what": "front, validation"}
        for p in front.points
    ]
    at_one = [p for p in front.uniform if p.uniform_temperature == 1.0]
    rows += [{"x": p.test_privacy, "y": p.test_quality, "what": "temperature 1"} for p in at_one]
    rows.append({"x": front.real["privacy"], "y": front.real["quality"], "what": "real rows"})
    return rows


def front_picture(front: Front) -> dict[str, Any]:
    """Privacy against quality."""
    names = ["trials", "front, validation", "front, test rows", "one temperature, test rows",
             "temperature 1", "real rows"]  # fmt: skip
    scale = {"domain": names, "range": [TRIED, "#5eead4", FRONT, UNIFORM, "#b91c1c", "#111827"]}
    encoding: dict[str, Any] = {
        "x": {"field": "x", "type": "quantitative", "title": TITLES[front.privacy],
              "scale": {"zero": False}},
        "y": {"field": "y", "type": "quantitative", "title": TITLES[front.quality],
              "scale": {"zero": False}},
        "color": {"field": "what", "type": "nominal", "title": None, "scale": scale,
                  "legend": {"labelLimit": LABELS}},
    }  # fmt: skip
    lines = {"field": "what", "oneOf": ["front, test rows", "one temperature, test rows"]}
    size = {"condition": {"test": "datum.what == 'trials'", "value": 12}, "value": 55}
    number = {"type": "text", "dx": 8, "dy": -8, "fontSize": 10}
    return {
        "width": 420,
        "height": 300,
        "data": {"values": _points(front)},
        "layer": [
            {
                "transform": [{"filter": lines}],
                "mark": {"type": "line", "opacity": 0.6},
                "encoding": encoding,
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 0.85},
                "encoding": {**encoding, "size": size},
            },
            {
                "transform": [{"filter": "datum.what == 'front, test rows'"}],
                "mark": number,
                "encoding": {**encoding, "text": {"field": "point"}},
            },
        ],
    }


def temperature_picture(front: Front) -> dict[str, Any]:
    """The temperature of each column at each point of the front, the highest columns first."""
    rows = [
        {"point": number, "column": name, "t": temperature}
        for number, point in enumerate(front.points, 1)
        for name, temperature in point.temperatures.items()
    ]
    columns = front.points[0].temperatures
    total = {name: sum(p.temperatures[name] for p in front.points) for name in columns}
    order = sorted(columns, key=lambda name: -total[name])
    scale = {"type": "log", "domain": [0.5, 1, 5], "range": ["#2563eb", "#f8fafc", "#dc2626"]}
    encoding: dict[str, Any] = {
        "x": {"field": "point", "type": "ordinal", "title": "point of the front",
              "axis": {"labelAngle": 0}},
        "y": {"field": "column", "type": "nominal", "title": None, "sort": order,
              "axis": {"labelLimit": LABELS}},
    }  # fmt: skip
    color = {"field": "t", "type": "quantitative", "title": "temperature", "scale": scale}
    text = {"field": "t", "type": "quantitative", "format": ".2g"}
    return {
        "width": 34 * len(front.points),
        "height": {"step": 18},
        "data": {"values": rows},
        "layer": [
            {"mark": "rect", "encoding": {**encoding, "color": color}},
            {
                "mark": {"type": "text", "fontSize": 10, "color": charts.BLACK},
                "encoding": {**encoding, "text": text},
            },
        ],
    }


def front_pictures(front: Front) -> list[Picture]:
    """The pictures of a front, for pages."""
    return [
        ("privacy against quality", charts.svg(front_picture(front))),
        ("temperatures along the front", charts.svg(temperature_picture(front))),
    ]


def side_by_side(front: Front) -> dict[str, Any]:
    """Both pictures in one, for a file."""
    return {
        "hconcat": [front_picture(front), temperature_picture(front)],
        "resolve": {"scale": {"color": "independent"}},
    }


def importance_picture(importances: dict[str, float]) -> str:
    """The share of the variance of the scores that each setting explains."""
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
