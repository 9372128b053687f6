"""Suites: one folder for each run, resumed without doing anything twice, and their tables."""

import dataclasses
import json
import shutil
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from benchmarks import machine, peer_pictures, peer_tables, private, run, tables
from benchmarks.datasets import CLEAN_TABLES, Split
from benchmarks.peers import environments, frames
from benchmarks.peers.catalogue import PEERS
from tests.tables import correlated

METRICS = ["ml_efficiency", "detector_auc", "dcr_median", "worst_attack", "correlation_error"]
SUITE = f"""
metrics = {json.dumps(METRICS)}

[tables]
insurance = 0.01

[generators]
cart = 2
copies = 1
fresh = 1
"""
TARGET = "label"


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Run a suite of a small table that stands for a real one."""
    info = dataclasses.replace(
        CLEAN_TABLES["insurance"], target=TARGET, task="classification", categorical=("kind",)
    )
    rows = [correlated(count, seed) for seed, count in enumerate((200, 60, 80))]
    plain = [table.astype({"kind": object, TARGET: int}) for table in rows]
    split = Split(*plain, {"iterations": 10, "depth": 3})
    monkeypatch.setitem(CLEAN_TABLES, "insurance", info)
    monkeypatch.setattr(run, "load", lambda folder, info: split)
    monkeypatch.setattr(machine, "RESULTS", tmp_path / "results")
    path = tmp_path / "small.toml"
    path.write_text(SUITE)

    def start(*options: str) -> None:
        words = [str(path), "--data", str(tmp_path), "--folder", str(tmp_path / "runs"),
                 "--cache", str(tmp_path / "cache"), *options]  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["benchmarks", "run", *words])
        run.main(words)

    return start


def result_of(tmp_path, name: str) -> dict:
    path = tmp_path / "runs" / "small" / "insurance" / name / "result.json"
    return json.loads(path.read_text())


def test_a_run_has_scores_times_versions_and_an_end_mark_and_is_not_repeated(
    suite, tmp_path, capsys
):
    suite()
    folder = tmp_path / "runs" / "small" / "insurance"
    names = {"cart-0.01min-0", "cart-0.01min-1", "copies-0.01min-0", "fresh-0.01min-0"}
    assert {path.name for path in folder.iterdir()} == names
    assert all((folder / name / "done").exists() for name in names)
    found = result_of(tmp_path, "cart-0.01min-1")
    assert set(found["scores"]) == set(METRICS) and found["seed"] == 1
    assert found["attack"]["low"] <= found["attack"]["risk"] <= found["attack"]["high"]
    assert found["fit_cpu_seconds"] > 0 and found["machine"]["versions"]["catboost"]
    counts = [int(word) for word in found["correlation_errors"].split()]
    assert len(counts) == run.BINS and sum(counts) > 3
    copied = result_of(tmp_path, "copies-0.01min-0")["scores"]
    assert copied["dcr_median"]["value"] == 0 < copied["dcr_median"]["reference"]
    assert "ml_efficiency" not in result_of(tmp_path, "fresh-0.01min-0")["scores"]
    assert capsys.readouterr().out.count("insurance cart 0.01 min") == 2

    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}
    lost = folder / "copies-0.01min-0"
    (lost / "done").unlink()  # interrupted after the sample was made
    report = (lost / "report.json").stat().st_mtime_ns
    suite()
    again = {path: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}
    assert {path.parent.name for path in before if before[path] != again[path]} == {lost.name}
    assert (lost / "report.json").stat().st_mtime_ns == report
    assert (lost / "done").exists()

    saved = json.loads((tmp_path / "results" / "peers-small.json").read_text())
    assert [(one["generator"], one["seed"]) for one in saved["runs"]] == [
        ("cart", 0), ("cart", 1), ("copies", 0), ("fresh", 0),
    ]  # fmt: skip
    assert saved["command"].startswith("python -m benchmarks run") and "DATA" in saved["command"]
    assert set(saved["real"]["insurance"]["detector_auc"]) == {"reference", "worst"}


def test_stored_runs_are_kept_without_their_folders_and_repeated_when_asked(
    suite, tmp_path, capsys
):
    path = tmp_path / "results" / "peers-small.json"
    suite("--generators", "cart", "copies")
    before = json.loads(path.read_text())["runs"]
    shutil.rmtree(tmp_path / "runs")
    capsys.readouterr()
    suite()  # as on another machine: only what is not stored is run
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if "fit" in line] == [
        "fresh"
    ]
    assert json.loads(path.read_text())["runs"][: len(before)] == before
    suite("--generators", "copies", "--again")
    assert capsys.readouterr().out.count("insurance copies 0.01 min") == 1
    after = json.loads(path.read_text())["runs"]
    assert [(one["generator"], one["seed"]) for one in after] == [
        ("cart", 0), ("cart", 1), ("copies", 0), ("fresh", 0),
    ]  # fmt: skip


def test_a_fault_of_the_runner_is_not_a_result(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "interpreter", lambda peer, cache: "/no/such/python")
    with pytest.raises(FileNotFoundError):
        suite("--generators", "copies")
    assert not list(tmp_path.rglob("done"))


def test_a_failure_of_a_generator_is_a_result(suite, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "run_peer", lambda *a, **k: {"failure": "ValueError: too few rows"})
    suite("--generators", "copies")
    assert "failed: ValueError: too few rows" in capsys.readouterr().out
    saved = json.loads((tmp_path / "results" / "peers-small.json").read_text())
    assert saved["runs"][0]["failure"] == "ValueError: too few rows"
    monkeypatch.setattr(run, "run_peer", environments.run_peer)
    suite("--generators", "copies")
    assert "failure" in result_of(tmp_path, "copies-0.01min-0")
    suite("--generators", "copies", "--retry")
    assert "failure" not in result_of(tmp_path, "copies-0.01min-0")


def test_a_suite_needs_the_environments_of_its_generators(suite, tmp_path):
    (tmp_path / "small.toml").write_text(SUITE.replace("cart = 2", "arf = 1"))
    with pytest.raises(SystemExit, match="The environment of arf is not installed: run `python -m"):
        suite()
    folder = tmp_path / "cache" / "arf"
    folder.mkdir(parents=True)
    state = {
        "outcome": "failed",
        "reason": "no wheel",
        "requirements": environments.fingerprint("arf"),
    }
    (folder / "state.json").write_text(json.dumps(state))
    suite("--generators", "arf")
    assert result_of(tmp_path, "arf-0.01min-0")["failure"] == "installation: no wheel"


def test_two_processes_never_have_the_same_folder(tmp_path):
    with run.locked(tmp_path / "one") as first, run.locked(tmp_path / "one") as second:
        assert first and not second
    with run.locked(tmp_path / "one") as third:
        assert third


def test_the_suites_of_the_repository_name_things_that_exist():
    for path in run.SUITES.glob("*.toml"):
        suite = run.Suite.read(path.stem)
        assert list(suite.jobs()) and suite.metrics
    whole = run.Suite.read("comparison")
    # Those of two other benchmarks: network flows, and differential privacy.
    assert set(PEERS) - set(whole.generators) == {"nfgan", *private.OTHERS}
    assert run.Suite.read("comparison", minutes=0.5).name == "comparison-0.5min"
    with pytest.raises(SystemExit, match="There is no suite 'none'; there are checks, comparison"):
        run.Suite.read("none")


def test_generators_read_categories_and_samples_get_their_types_back(tmp_path, monkeypatch):
    info = dataclasses.replace(CLEAN_TABLES["churn"], target="flag", categorical=("count",))
    train = pd.DataFrame(
        {
            "count": [3, 1, 3, 2], "city": ["Oslo", None, "Bergen", "Oslo"],
            "flag": [True, False, False, True], "value": [0.5, 1.5, 2.5, 3.5],
        }
    )  # fmt: skip
    monkeypatch.setattr(run, "load", lambda folder, info: Split(train, train, train, {}))
    scorer = run.Scorer(tmp_path, info)
    scorer.training_table().to_parquet(tmp_path / "train.parquet", index=False)
    read = pd.read_parquet(tmp_path / "train.parquet")
    assert frames.category_columns(read) == ["count", "city", "flag"]
    pd.testing.assert_frame_equal(scorer.in_original_types(read), train)


# --- tables ------------------------------------------------------------------------------------


def one_run(table, generator, seed=0, minutes=5, **scores):
    return {
        "table": table, "generator": generator, "minutes": minutes, "seed": seed, "rows": 1000,
        "scores": scores, "cut": "", "fit_seconds": 10.0, "fit_cpu_seconds": 8.0, "peak_mb": 400.0,
        "sample_seconds": 1.0, "sample_cpu_seconds": 0.5,
        "attack": {"risk": 0.01, "low": -0.02, "high": 0.04, "name": "any", "auc": 0.5},
        "correlation_errors": " ".join(["5", *["0"] * 8, "5", *["0"] * 40]),
    }  # fmt: skip


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A result file with made-up numbers, outside the repository."""
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    runs = [
        one_run("adult", "ours", 0, ml_efficiency=0.80, detector_auc=0.53, dcr_median=0.2),
        one_run("adult", "ours", 1, ml_efficiency=0.82, detector_auc=0.51, dcr_median=0.2),
        one_run("adult", "tvae", ml_efficiency=0.79, detector_auc=0.45),
        one_run("adult", "copies", ml_efficiency=0.90, detector_auc=0.5),
        one_run("king", "tvae", ml_efficiency=0.85, detector_auc=0.9) | {"cut": "3 of 300 epochs"},
        one_run("king", "ours", ml_efficiency=0.84, detector_auc=0.7),
        {"table": "king", "generator": "ctgan", "minutes": 5, "seed": 0, "failure": "too slow"},
    ]
    real = {"adult": {"ml_efficiency": {"reference": 0.815, "worst": 0.4}}}
    content = {"suite": "comparison", "real": real, "runs": runs}
    for suite in ("comparison", "curves", "checks"):
        (tmp_path / f"peers-{suite}.json").write_text(json.dumps(content))
    return tmp_path


def test_the_best_generator_is_bold_and_copies_do_not_compete(results):
    lines = peer_tables.efficiency_table().splitlines()
    assert lines[0] == "| generator | adult | king |"
    assert "| TabMT (this package) | **0.810 ± 0.014** | 0.840 |" in lines
    assert "| TVAE | 0.790 | **0.850** |" in lines
    assert "| copies of training rows | 0.900 |  |" in lines
    assert "| CTGAN |  | failed |" in lines
    assert lines[-1] == "| training rows (real) | 0.815 |  |"


def test_the_best_detector_is_the_one_nearest_to_a_guess(results):
    assert (
        "| TabMT (this package) | **0.520 ± 0.014** | **0.700** |" in peer_tables.detector_table()
    )


def test_where_ours_is_behind_is_listed(results):
    first, second, *_ = peer_tables.losses_list().splitlines()
    assert first == (
        "- ML efficiency: first on 1 of 2 tables; behind on king (TVAE 0.850, ours 0.840)."
    )
    assert second == "- detector: first on 2 of 2 tables."


def test_without_runs_of_ours_the_list_says_so(results):
    path = results / "peers-comparison.json"
    content = json.loads(path.read_text())
    content["runs"] = [run for run in content["runs"] if run["generator"] != "ours"]
    path.write_text(json.dumps(content))
    assert peer_tables.losses_list() == (
        "There are no results of this package with its default settings in these runs yet."
    )


def test_notes_say_what_failed_and_what_was_cut(results):
    assert peer_tables.notes_list() == (
        "- TVAE: 3 of 300 epochs (king).\n- CTGAN: failed: too slow (king)."
    )


def test_other_tables_have_a_line_for_each_generator(results):
    assert "| TabMT (this package) | 0.010 (-0.020 to 0.040) |" in peer_tables.attack_table()
    assert "| TabMT (this package) | 0.200 (0.810) |" in peer_tables.privacy_table()
    assert "| TabMT (this package) | 50 / 50 | 50 / 50 |" in peer_tables.correlation_shares()
    assert "| TVAE | 2 | 10 | 8 | 2,000 (adult) | 400 |" in peer_tables.cost_table()
    assert "| adult | TVAE | 0.790 | 0.781 |" in peer_tables.checks_table()
    assert "5 min | published |" in peer_tables.efficiency_curves()
    assert "| STaSy | 0.482 | 0.790 |" in peer_tables.published_table()


def test_pictures_show_the_papers_histograms_and_quality_against_time(results):
    found = peer_pictures.pictures()
    assert list(found) == [
        "correlations-adult.svg", "correlations-king.svg", "time-ml-adult.svg",
        "time-detector-adult.svg", "time-ml-king.svg", "time-detector-king.svg",
    ]  # fmt: skip
    for svg in found.values():
        root = ElementTree.fromstring(svg)  # it is well formed
        names = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
        assert "TabMT (this package)" in names and "CTGAN" not in names
    assert peer_pictures.pictures() == found
    assert "![correlations king](peers/correlations-king.svg)" in peer_pictures.links("corr")


def test_the_outline_of_a_histogram_counts_every_pair():
    counts = np.array([6, 0, 2, 0, 0, 0, 0, 0, 1, 1])
    points = peer_pictures.steps(counts)
    assert points[0] == (0, 0) and points[-1] == (peer_pictures.MOST_ERROR, 0)
    assert sum(share for _, share in points[1:-1:2]) == pytest.approx(1)


def test_flows_are_compared_beside_the_papers(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    scores = {"precision": 0.5, "recall": 0.25, "diversity": 1.0, "invariants_broken": {"DNS": 0.1}}
    sources = {"validation rows": scores, "nfgan": {"failure": "out of memory"}}
    (tmp_path / "flow-peers.json").write_text(json.dumps({"sources": sources}))
    lines = peer_tables.flows_table().splitlines()
    assert lines[0] == "| rows | precision | recall | diversity | violate DNS, % |"
    assert "| paper: NFGAN | 77.6 | 63.3 | 47.0 |  |" in lines
    assert "| validation rows | 50.0 | 25.0 | 100.0 | 10.00 |" in lines
    assert lines[-1] == "| NFGAN with IP2Vec | failed |  |  |  |"


def test_without_results_a_table_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    line = "*No results yet: `python -m benchmarks run comparison --data DATA`.*"
    assert peer_tables.efficiency_table() == line
    assert all(make() for make in peer_tables.MARKERS.values())
    assert peer_pictures.pictures() == {} and peer_pictures.links("") == ""


def test_check_fails_when_a_page_differs_from_the_results(tmp_path, monkeypatch, capsys):
    from docs import generate

    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    monkeypatch.setattr(generate, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(generate, "pages", lambda: {page: "right"})
    page.write_text("wrong")
    with pytest.raises(SystemExit, match=r"Not what the results say: docs/page.md. Run `python"):
        tables.main(["--check"])
    assert page.read_text() == "wrong"
    tables.main([])
    assert page.read_text() == "right"
    tables.main(["--check"])
    assert "The pages are what the results say." in capsys.readouterr().out


def test_five_digits_are_kept():
    assert run.shortened({"a": [0.123456789], "b": 0.123456789, "c": {"d": 12345.678}}) == {
        "a": [0.123456789], "b": 0.12346, "c": {"d": 12346.0},
    }  # fmt: skip
    assert np.isnan(run.shortened(float("nan")))
