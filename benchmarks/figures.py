"""The paper's figures for the tables of `python -m benchmarks paper`, from the parts of those runs.

    python -m benchmarks figures --data DATA --folder PARTS --tables DI CH [--label LABEL]

For each table docs/figures gets the overlaid histograms of correlation errors, and the manifold by
PaCMAP in the embedding of the paper's network, of the paper's method and of the default network.
(`python -m docs.generate` draws the Pareto fronts from the results of benchmarks.pareto.) With
--label the runs are those of `benchmarks paper --label LABEL`, for example shorter ones. Adds the
scores and the training minutes of these tables to benchmarks/results/figures.json.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.machine import result_path, run_info, save_result
from benchmarks.paper import Tables, find_table
from tabmt import TabMT
from tabmt.evaluation.evaluate import Evaluator
from tabmt.evaluation.report.figures import write_figures

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
METHODS = {"paper's method": "", "default network": "-default"}


def draw(table: str, data: Path, parts: Path, label: str) -> dict[str, dict[str, Any]]:
    """Write the figures of one table; the scores and training minutes of what they show."""
    info = find_table(table)
    tables = Tables.read(data, info, drop=0.0, seed=0)
    suffix = f"-{label}" if label else ""
    folders = {
        name: parts / f"paper-{info.name}{method}{suffix}" for name, method in METHODS.items()
    }
    model = folders["paper's method"] / "model.tabmt"
    evaluator = Evaluator.of(
        tables.train, tables.test, tables.valid, schema=tables.schema, embed=model, seed=0
    )
    evaluated = []
    for name, folder in folders.items():
        path = folder / "sample-0.parquet"
        if path.exists():
            rows = pd.read_parquet(path).sample(len(tables.train), random_state=0)
            evaluated.append(evaluator.evaluate(rows, name))
    with tempfile.TemporaryDirectory() as folder:
        for path in write_figures(evaluator, evaluated, folder):
            (FIGURES / f"{info.name}-{path.name}").write_text(path.read_text())
    names = ("correlation_error", "precision", "recall", "diversity", "detector_auc")
    return {
        one.evaluation.name: {
            **{name: one.evaluation[name].value for name in names},
            "training_minutes": training_minutes(folders[one.evaluation.name]),
        }
        for one in evaluated
    }


def training_minutes(folder: Path) -> float:
    summary = TabMT.load(folder / "model.tabmt").card_.summary
    assert summary is not None
    return round(summary.seconds / 60, 1)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks figures", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_data_option(parser)
    parser.add_argument("--folder", type=Path, required=True, help="parts of `benchmarks paper`")
    parser.add_argument("--tables", nargs="+", required=True, help="codes or names of tables")
    parser.add_argument("--label", default="", help="of those runs")
    arguments = parser.parse_args(argv)
    FIGURES.mkdir(exist_ok=True)
    path = result_path("figures")
    scores = json.loads(path.read_text())["scores"] if path.is_file() else {}
    for table in arguments.tables:
        name = find_table(table).name
        scores[name] = draw(table, arguments.data, arguments.folder, arguments.label)
    save_result("figures", {"scores": scores, **run_info("benchmarks", arguments.data, 1)})


if __name__ == "__main__":
    main()
