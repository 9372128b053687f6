"""What codes keep of a table: repeated values are codes, and a detector measures the rest."""

import logging

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from tabmt import TabMT
from tabmt.cli import main
from tabmt.codec.quantize import quantize
from tabmt.codec.resolution import codes_detector_auc, detectable_columns
from tabmt.codec.table import TableCodec
from tabmt.config import CodecConfig
from tabmt.data.dataset import Dataset
from tabmt.data.infer import Inference
from tabmt.data.typed_columns import TypedTable
from tabmt.model import fit as fit_module


def codes_of(values: np.ndarray, *, continuous: bool = False, shared: bool = True):
    return quantize(
        values, quantizer="kmeans", max_bins=100, continuous=continuous, seed=0, shared=shared
    )


def test_values_that_many_rows_share_are_codes_of_their_own():
    rng = np.random.default_rng(0)
    pages = rng.permutation(1_000_000)[:200].astype(float)
    values = np.concatenate([rng.choice(pages, 8000), rng.integers(0, 1_000_000, 2000)])
    codes = codes_of(values)
    assert np.isin(pages, codes.centres[codes.atom]).all()
    drawn = codes.decode(codes.encode(values)[0], np.random.default_rng(1), "inside")
    assert (drawn == values).mean() >= 0.8


def test_values_that_are_frequent_only_because_all_values_around_them_are_stay_in_bins():
    values = np.random.default_rng(0).integers(0, 1000, 40_000).astype(float)  # 40 rows each
    assert codes_of(values).atom.sum() == 0


def test_numbers_without_decimals_to_round_to_are_codes_if_they_repeat():
    rng = np.random.default_rng(0)
    means = rng.normal(size=150)
    values = np.concatenate([rng.choice(means, 6000), rng.normal(size=6000)])
    codes = codes_of(values, continuous=True)
    assert np.isin(means, codes.centres[codes.atom]).all()
    assert codes.atom.sum() == 150


def test_nineteen_rows_are_too_few_for_a_code():
    rng = np.random.default_rng(0)
    base = rng.permutation(1_000_000)[:5000].astype(float)
    for rows, is_code in ((19, False), (20, True)):
        codes = codes_of(np.concatenate([base, np.full(rows, 123_456.5 * 2)]))
        assert codes.atom.any() == is_code


def detector(frame: pd.DataFrame, *, max_bins: int | None = None, **leave) -> float | None:
    dataset = Dataset.open(frame)
    config = CodecConfig(find_rules=False, max_bins=max_bins)
    typed = TypedTable.of(Inference.of(dataset, config, {}).columns(dataset))
    codec = TableCodec.fit(typed.columns.values(), dataset.source, {}, config, 0)
    return codes_detector_auc(codec, typed, seed=0, **leave)


def related(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    start = rng.normal(size=rows)
    return pd.DataFrame({"start": start, "end": start + rng.normal(size=rows) / 100})


def test_rows_of_unrelated_columns_cannot_be_told_from_redrawn_ones():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=6000), "b": rng.integers(0, 10**6, 6000)})
    frame.loc[::7, "a"] = None
    assert detector(frame) == pytest.approx(0.5, abs=0.04)


def test_relations_finer_than_a_bin_are_told_unless_the_column_is_computed():
    frame = related(3000)
    scores = [detector(frame, max_bins=bins) for bins in (5, 20)]
    assert scores[0] > 0.9 > scores[1] > 0.6
    assert detector(frame, max_bins=5, leave={"end"}) == pytest.approx(0.5, abs=0.06)


def test_small_tables_and_tables_without_numbers_have_no_score():
    assert detector(related(999)) is None
    assert detector(pd.DataFrame({"word": ["a", "b", "c"] * 400})) is None


def test_the_score_is_logged_and_part_of_the_model_file(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "tabmt"):
        model = TabMT(steps=2, seed=0).fit(pa.Table.from_pandas(related(1200)))
    score = model.card_.codes_detector_auc
    assert score is not None
    assert (
        "detectability of binned numbers: a classifier tells them from real ones with AUC "
        f"{score:.2f} (0.5: it cannot)" in caplog.messages
    )
    path = tmp_path / "model.tabmt"
    model.save(path)
    assert TabMT.load(path).card_.codes_detector_auc == score
    shown = " ".join(CliRunner().invoke(main, ["info", str(path)]).stdout.split())
    assert (
        f"binning a classifier tells binned numbers from real ones with AUC {score:.2f} "
        "(0.5: it cannot)" in shown
    )


def test_the_log_says_why_shared_numbers_of_all_columns_get_codes(monkeypatch, caplog):
    monkeypatch.setattr(fit_module, "MOST_DETECTABLE", 0.0)
    with caplog.at_level(logging.INFO, "tabmt"):
        TabMT(steps=0, seed=0).fit(pa.Table.from_pandas(related(1200)))
    assert (
        "numbers that occur in many rows get bins of their own in all columns, because binning is "
        "detectable" in caplog.messages
    )


def pages(rows: int = 3000) -> pd.DataFrame:
    """Every row repeats the two numbers of its page."""
    rng = np.random.default_rng(0)
    page = rng.integers(0, 60, rows)
    likes, score = rng.lognormal(8, 2, 60).round(), rng.normal(size=60)
    return pd.DataFrame({"likes": likes[page], "score": score[page], "x": rng.normal(size=rows)})


def test_shared_numbers_get_codes_where_bins_would_be_told_apart(caplog):
    frame, settings = pages(), {"steps": 2, "seed": 0, "max_bins": 20}
    with caplog.at_level(logging.INFO, "tabmt"):
        model = TabMT(**settings).fit(frame)
    own_bins = "numbers that occur in many rows get bins of their own in: likes, score"
    assert own_bins in caplog.messages
    assert model.card_.codes_detector_auc == pytest.approx(0.5, abs=0.05)
    assert set(model.sample(500, seed=1)["score"]) <= set(frame["score"])
    bins = TabMT(shared_values="bins", **settings).fit(frame)
    assert bins.card_.codes_detector_auc > 0.7
    assert not set(bins.sample(500, seed=1)["score"]) <= set(frame["score"])


def test_tables_that_bins_hold_keep_their_bins():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.integers(1, 2000, 3000), "y": rng.normal(size=3000)})
    sizes = {
        shared: TabMT(steps=2, seed=0, max_bins=20, shared_values=shared).fit(frame)
        for shared in ("auto", "bins")
    }
    assert sizes["auto"].model_.codec.sizes == sizes["bins"].model_.codec.sizes


def flows(rows: int = 20_000) -> pd.DataFrame:
    """A column with values that repeat among others, and one that has none."""
    rng = np.random.default_rng(0)
    speeds = rng.permutation(100_000)[:80]
    other = rng.integers(0, 100_000, rows)
    speed = np.where(rng.random(rows) < 0.6, rng.choice(speeds, rows), other)
    return pd.DataFrame({"speed": speed, "size": rng.integers(0, 100_000, rows)})


def test_only_columns_whose_own_values_are_told_apart_get_codes_for_them():
    frame = flows()
    dataset = Dataset.open(frame)
    config = CodecConfig(find_rules=False)
    typed = TypedTable.of(Inference.of(dataset, config, {}).columns(dataset))
    codec = TableCodec.fit(typed.columns.values(), dataset.source, {}, config, 0)
    assert detectable_columns(codec, typed, seed=0) == ["speed"]
    model = TabMT(steps=2, seed=0, find_rules=False).fit(frame)
    speed, size = (model.model_.codec[name].codec.numeric.codes for name in frame)
    assert (int(speed.atom.sum()), int(size.atom.sum())) == (80, 0)
