"""The paper's figures for the tables of `python -m benchmarks paper`, from the parts of those runs.

    python -m benchmarks figures --data DATA --folder PARTS --tables DI CH

For each table docs/figures gets the overlaid histograms of correlation errors, and the manifold by
PaCMAP in the embedding of the paper's network, of the paper's method and of the default network.
(`python -m docs.generate` draws the Pareto fronts from the results of benchmarks.pareto.) Writes
benchmarks/results/figures.json.
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from benchmarks.paper import Tables, find_table
from tabmt.evaluation.evaluate import Evaluator
from tabmt.evaluation.report.figures import write_figures

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
METHODS = {"paper's method": "paper-{}", "default network": "paper-{}-default"}


def draw(table: str, data: Path, parts: Path) -> dict[str, object]:
    """Write the figures of one table; the scores of what they show."""
    info = find_table(table)
    tables = Tables.read(data, info, drop=0.0, seed=0)
    model = parts / f"paper-{info.name}" / "model.tabmt"
    evaluator = Evaluator.of(
        tables.train, tables.test, tables.valid, schema=tables.schema, embed=model, seed=0
    )
    evaluated = []
    for name, folder in METHODS.items():
        path = parts / folder.format(info.name) / "sample-0.parquet"
        if path.exists():
            rows = pd.read_parquet(path).sample(len(tables.train), random_state=0)
            evaluated.append(evaluator.evaluate(rows, name))
    with tempfile.TemporaryDirectory() as folder:
        for path in write_figures(evaluator, evaluated, folder):
            (FIGURES / f"{info.name}-{path.name}").write_text(path.read_text())
    names = ("correlation_error", "precision", "recall", "diversity", "detector_auc")
    return {
        one.evaluation.name: {name: one.evaluation[name].value for name in names}
        for one in evaluated
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks figures", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_data_option(parser)
    parser.add_argument("--folder", type=Path, required=True, help="parts of `benchmarks paper`")
    parser.add_argument("--tables", nargs="+", required=True, help="codes or names of tables")
    arguments = parser.parse_args(argv)
    FIGURES.mkdir(exist_ok=True)
    scores = {table: draw(table, arguments.data, arguments.folder) for table in arguments.tables}
    save_result("figures", {"scores": scores, **run_info("benchmarks", arguments.data, 1)})


if __name__ == "__main__":
    main()
