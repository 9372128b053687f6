"""The driver from a raw table to its row of the paper's table: parts, resumption, cuts."""

import json
import sys

import pytest

from benchmarks import machine, paper
from tests.test_benchmark_datasets import REAL as DATA
from tests.test_benchmark_datasets import in_folder

pytestmark = in_folder("diabetes.parquet", "king.parquet")
SMALL = '{"steps": 8, "width": 16, "depth": 2, "heads": 2, "batch_size": 32, "max_bins": 10}'


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def run(tmp_path, results, monkeypatch):
    def run(*options: str) -> None:
        words = ["--data", str(DATA), "--table", "DI", "--folder", str(tmp_path / "parts"),
                 "--samples", "2", "--models", "2", "--multiplier", "2", *options]  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["benchmarks", "paper", *words])
        paper.main(words)

    return run


def test_a_row_of_the_table_and_its_parts(run, tmp_path, results, capsys):
    run("--trials", "0", "--settings", SMALL)
    result = json.loads((results / "paper-diabetes.json").read_text())
    assert result["models"] == 4 and 0 < result["mle"] < 1 and result["sd"] >= 0
    assert result["published"] == [0.769, 0.018] and result["dcr"] > 0
    assert result["settings"]["network"] == "masked" and result["settings"]["decode"] == "centre"
    assert result["command"].startswith("python -m benchmarks paper --data DATA --table DI")
    assert result["cut"] == [
        "2 samples of 2 times the rows with 2 models each; the paper has 5, 8 and 10",
        "0 of 50 trials",
    ]
    assert "DI: macro F1" in capsys.readouterr().out
    parts = tmp_path / "parts" / "paper-diabetes"
    before = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    samples = {"sample-0.parquet", "sample-1.parquet"}
    assert {"model.tabmt", "request.json", "scores.json"} | samples == set(before)

    done = json.loads((parts / "scores.json").read_text())
    lost = done.pop("mle 1 1")  # an interrupted run goes on with what is missing
    (parts / "scores.json").write_text(json.dumps(done))
    run("--trials", "0", "--settings", SMALL)
    assert json.loads((parts / "scores.json").read_text())["mle 1 1"] == lost
    assert (parts / "model.tabmt").stat().st_mtime_ns == before["model.tabmt"]
    again = json.loads((results / "paper-diabetes.json").read_text())
    assert (again["mle"], again["cut"]) == (result["mle"], result["cut"])
    with pytest.raises(SystemExit, match="has parts of a run with other options"):
        run("--trials", "0", "--settings", SMALL, "--seed", "5")


@pytest.mark.slow  # one step of the paper's largest networks takes seconds
def test_what_does_not_fit_into_the_time_is_cut_and_reported(run, results):
    run("--trials", "2", "--minutes", "0.2", "--settings", '{"threads": 1}')
    result = json.loads((results / "paper-diabetes.json").read_text())
    assert any("trials trained" in line for line in result["cut"])
    assert any(line.startswith("trained ") for line in result["cut"])
    assert "2 of 50 trials" in result["cut"]


def test_missing_values_are_dropped_from_training_rows_only(tmp_path):
    info = paper.find_table("KI")
    tables = paper.Tables.read(DATA, info, 0.25, seed=0)
    assert tables.train.isna().to_numpy().mean() == pytest.approx(0.25, abs=0.01)
    assert not tables.test.isna().any().any() and not tables.valid.isna().any().any()
    assert {"id", "date"} <= set(tables.train)


def test_a_table_that_is_not_in_the_paper_is_refused():
    with pytest.raises(SystemExit, match="There is no table 'XX'; the tables are: AB"):
        paper.find_table("XX")
