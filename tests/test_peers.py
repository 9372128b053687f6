"""Generators behind one protocol: baselines, the driver, and what comes back from it."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from benchmarks.peers import cart, catalogue, copies, environments, frames, shuffled, smote
from benchmarks.peers.driver import check, cpu_seconds
from benchmarks.peers.environments import small_table

BASELINES = (cart, copies, shuffled, smote)


@pytest.fixture
def train():
    return small_table(200)


@pytest.mark.parametrize("peer", BASELINES, ids=lambda peer: peer.__name__.rpartition(".")[2])
def test_a_sample_has_the_columns_and_types_of_the_table_and_repeats(peer, train):
    model = peer.fit(train, "dear", 1.0, 0)
    sample = peer.sample(model, 450, 1)
    assert list(sample) == list(train) and len(sample) == 450
    assert (sample.dtypes == train.dtypes).all()
    pd.testing.assert_frame_equal(sample, peer.sample(model, 450, 1))
    assert not sample.equals(peer.sample(model, 450, 2))


def test_copies_are_every_row_equally_often(train):
    sample = copies.sample(copies.fit(train, None, 1.0, 0), 400, 0)
    assert sorted(sample["area"]) == sorted(2 * list(train["area"]))
    assert sample[:200].merge(train).shape[0] >= 200


def test_shuffled_columns_keep_their_values_and_lose_their_relations(train):
    sample = shuffled.sample(shuffled.fit(train, None, 1.0, 0), len(train), 0)
    for name in train:
        assert sample[name].value_counts().to_dict() == train[name].value_counts().to_dict()
    assert train["rooms"].corr(train["area"]) > 0.9
    assert abs(sample["rooms"].corr(sample["area"])) < 0.3


def test_cart_draws_only_values_of_the_table_and_keeps_relations(train):
    sample = cart.sample(cart.fit(train, "dear", 1.0, 0), 400, 0)
    assert set(sample["area"]) <= set(train["area"])
    assert sample["rooms"].corr(sample["area"]) > 0.85
    missing = [table["garden"].isna().mean() for table in (train, sample)]
    assert missing[1] == pytest.approx(missing[0], abs=0.06) and missing[0] > 0
    oslo = [(table["garden"][table["city"] == "Oslo"] == "yes").mean() for table in (train, sample)]
    assert oslo[1] > 0.8 and oslo[0] > 0.8


def test_a_leaf_of_cart_is_drawn_from_by_the_empirical_distribution():
    """With one predictor of two categories, the leaves are the two groups."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 1000)
    value = np.where(group, rng.integers(10, 13, 1000), rng.integers(0, 2, 1000))
    train = pd.DataFrame(
        {
            "group": pd.Categorical.from_codes(group, ["a", "b"]),
            "value": pd.Categorical.from_codes(value, range(13)),
        }
    )
    sample = cart.sample(cart.fit(train, None, 1.0, 0), 20_000, 0)
    for table in (train, sample):
        table["count"] = 1
    real, ours = (
        pd.crosstab(table["group"], table["value"], normalize=True) for table in (train, sample)
    )
    assert np.abs(real - ours).to_numpy().max() < 0.01


def test_missing_numbers_come_back_at_their_rate():
    rng = np.random.default_rng(0)
    city = rng.integers(0, 2, 600)
    value = np.where(rng.random(600) < 0.5 * city, np.nan, rng.normal(size=600))
    train = pd.DataFrame({"city": pd.Categorical.from_codes(city, ["a", "b"]), "value": value})
    sample = cart.sample(cart.fit(train, None, 1.0, 0), 3000, 0)
    rates = sample.groupby("city", observed=True)["value"].apply(lambda x: x.isna().mean())
    assert rates["a"] == 0 and rates["b"] == pytest.approx(0.5, abs=0.06)


def test_smote_rows_lie_between_two_rows_of_one_class():
    train = pd.DataFrame(
        {
            "x": [0.0, 1.0, 10.0, 11.0],
            "y": [0.0, 1.0, 10.0, 12.0],
            "kind": pd.Categorical(["a", "a", "b", "b"]),
        }
    )
    sample = smote.sample(smote.fit(train, "kind", 1.0, 0), 500, 0)
    assert train["x"].to_numpy().tolist() == [0, 1, 10, 11]
    low = sample["kind"] == "a"
    assert sample["x"][low].between(0, 1).all() and sample["x"][~low].between(10, 11).all()
    assert (sample["y"][~low] - 10).to_numpy() == pytest.approx((sample["x"][~low] - 10) * 2, abs=1)
    assert 0.4 < low.mean() < 0.6


def test_smote_takes_the_most_frequent_category_of_the_neighbours():
    codes = np.array([[[0, 2], [1, 2], [1, 3], [1, 2], [0, 4]]])
    assert smote._most_frequent(codes, np.random.default_rng(0)).tolist() == [[1, 2]]


def test_codes_and_back_is_the_same_table(train):
    train = train.assign(flag=pd.Categorical(np.arange(len(train)) % 3 == 0))
    codes = frames.Codes.of(train)
    values, categories = codes.encode(train)
    assert codes.sizes == [3, 3, 2, 2]  # a missing garden is a code of its own
    pd.testing.assert_frame_equal(codes.decode(values, categories), train)
    assert codes.one_hot(categories).sum() == 4 * len(train)


def test_text_and_back_is_the_same_table(train):
    text = frames.as_text(train)
    assert not text.isna().any().any() and set(text["garden"]) == {"no", "yes", "nan"}
    pd.testing.assert_frame_equal(frames.restore(text, train), train)
    with pytest.raises(ValueError, match="column 'city' has no category 'Voss'"):
        frames.restore(text.assign(city="Voss"), train)


def test_numbers_are_whole_where_all_training_values_are(train):
    sample = train.assign(rooms=train["rooms"] + 0.3, area=train["area"] + 0.3)
    restored = frames.restore(sample, train)
    assert restored["rooms"].equals(train["rooms"]) and not restored["area"].equals(train["area"])


def test_the_driver_reports_seconds_memory_and_versions(tmp_path):
    report = environments.check(catalogue.PEERS["cart"], 5.0, tmp_path)
    assert report["peer"] == "cart" and report["versions"]["scikit-learn"]
    assert report["fit_seconds"] > 0 and report["sample_cpu_seconds"] >= 0
    assert report["peak_mb"] > 20 and report["about"]["settings"]["least rows of a leaf"] == 5


def test_a_sample_may_lack_categories_but_not_have_others_or_another_type(train):
    known = train["city"].where(train["city"] != "Oslo")
    fewer = train.assign(city=known.cat.remove_unused_categories())
    text = train.assign(city=train["city"].astype(str))
    assert "Oslo" not in fewer["city"].cat.categories
    check(fewer, train, len(train))
    for sample, table in ((train, fewer), (text, train), (train, text)):
        with pytest.raises(ValueError, match="another type in the columns city"):
            check(sample, table, len(train))


def test_a_peer_that_fails_is_a_report_with_the_reason(tmp_path):
    train = small_table(30)
    train.to_parquet(tmp_path / "train.parquet", index=False)
    report = environments.run_peer(
        catalogue.PEERS["cart"], tmp_path / "train.parquet", tmp_path / "sample.parquet",
        rows=-1, target=None, seconds=1.0, seed=0, cache=tmp_path, log=tmp_path / "log.txt",
    )  # fmt: skip
    assert report["failure"].startswith("ValueError: ") and "fit_seconds" in report
    assert "Traceback" in (tmp_path / "log.txt").read_text()
    assert not (tmp_path / "sample.parquet").exists()


def test_a_peer_that_does_not_end_is_killed_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "GRACE", 0.0)
    started = time.monotonic()
    small_table(30).to_parquet(tmp_path / "train.parquet", index=False)
    report = environments.run_peer(
        catalogue.PEERS["cart"], tmp_path / "train.parquet", tmp_path / "sample.parquet",
        rows=30, target=None, seconds=0.01, seed=0, cache=tmp_path, log=tmp_path / "log.txt",
    )  # fmt: skip
    assert report == {"failure": "killed after 0 s, with 0 s to fit"}
    assert time.monotonic() - started < 5


def test_an_installation_that_fails_is_remembered_as_the_reason(tmp_path, monkeypatch):
    lists = tmp_path / "requirements"
    lists.mkdir()
    (lists / "ctgan.txt").write_text("no-such-package-as-this==1.0\n")
    monkeypatch.setattr(environments, "REQUIREMENTS", lists)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    peer = catalogue.PEERS["ctgan"]
    assert "run `python -m benchmarks peers install ctgan`" in environments.why_not_installed(
        peer, tmp_path
    )
    assert environments.install("ctgan", tmp_path)["outcome"] == "failed"
    assert "no-such-package-as-this" in environments.installation_failure(peer, tmp_path)
    (lists / "ctgan.txt").write_text("other==1.0\n")  # of other requirements it says nothing
    assert environments.installation_failure(peer, tmp_path) is None


def test_the_reason_of_a_failed_installation_is_no_warning_of_pip():
    text = "ERROR: no matching distribution\n\nWARNING: this location is ignored\n"
    assert environments.last_errors(text) == "ERROR: no matching distribution"


def test_an_installation_that_was_ended_by_a_signal_is_not_recorded(tmp_path, monkeypatch):
    ended = subprocess.CompletedProcess([], -15, "", "")
    monkeypatch.setattr(environments.subprocess, "run", lambda *a, **k: ended)
    with pytest.raises(SystemExit, match=r"The installation of arf was ended by a signal\."):
        environments.install("arf", tmp_path)
    assert environments.state("arf", tmp_path) == {}


def test_every_peer_has_a_module_and_its_requirements():
    for peer in catalogue.PEERS.values():
        folder = environments.REQUIREMENTS.parent
        assert (folder / f"{peer.name}.py").is_file(), peer.name
        if peer.environment:
            lines = environments.requirements(peer.environment).read_text().splitlines()
            pins = [line for line in lines if line and not line.startswith("#")]
            assert pins and all("==" in pin for pin in pins), peer.name


def test_cpu_seconds_count_children(tmp_path):

    before = cpu_seconds()
    code = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert cpu_seconds() - before > 0.25


def test_reports_are_one_line_of_json_whatever_else_is_printed(tmp_path):
    report = environments.check(catalogue.PEERS["copies"], 1.0, tmp_path)
    assert json.loads(json.dumps(report)) == report
