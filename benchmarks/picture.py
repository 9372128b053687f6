"""The picture of the README: real penguins beside synthetic ones.

    python -m benchmarks.picture

Fits the bundled penguins table for up to a minute, samples as many rows, and plots bill length
against body mass by species. Writes docs/penguins.svg and benchmarks/results/picture.json.
"""

from pathlib import Path

import pandas as pd

from benchmarks.machine import run_info, save_result
from tabmt import TabMT, penguins
from tabmt.evaluation.report import charts

PICTURE = Path(__file__).parent.parent / "docs" / "penguins.svg"
SPECIES = {"Adelie": "#d97706", "Chinstrap": "#7c3aed", "Gentoo": "#0d9488"}


def specification(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, object]:
    columns = ["bill_length_mm", "body_mass_g", "species"]
    rows = []
    for name, table in (("real", real), ("synthetic", synthetic)):
        known = table[columns].dropna()
        rows += [
            {**row, "table": f"{len(known)} {name} penguins"} for row in known.to_dict("records")
        ]
    scale = {"domain": list(SPECIES), "range": list(SPECIES.values())}
    return {
        "background": "white",
        "data": {"values": rows},
        "facet": {"column": {"field": "table", "title": None, "header": {"labelFontSize": 13}}},
        "spec": {
            "width": 330,
            "height": 220,
            "mark": {"type": "point", "filled": True, "size": 22, "opacity": 0.7},
            "encoding": {
                "x": {"field": "bill_length_mm", "type": "quantitative", "title": "bill length, mm",
                      "scale": {"zero": False}},
                "y": {"field": "body_mass_g", "type": "quantitative", "title": "body mass, g",
                      "scale": {"zero": False}},
                "color": {"field": "species", "type": "nominal", "title": None, "scale": scale},
            },
        },
    }  # fmt: skip


def main() -> None:
    real = pd.read_csv(penguins())
    model = TabMT(minutes=1, seed=0, threads=1).fit(real)
    synthetic = model.sample(len(real), seed=1)
    PICTURE.write_text(charts.svg(specification(real, synthetic), ink=charts.BLACK))
    summary = model.card_.summary
    assert summary is not None
    result = {"table": "penguins", "seed": 0, "rows": len(real), "steps": summary.steps}
    save_result("picture", {**result, **run_info("benchmarks.picture", Path(), 1)})


if __name__ == "__main__":
    main()
