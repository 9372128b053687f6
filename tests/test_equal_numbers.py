"""Columns that often have the number of another one keep doing so, and likelihoods know it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tabmt import TabMT, between
from tabmt.codec import equal_numbers
from tabmt.codec.columns import Decoding
from tabmt.codec.table import TableCodec
from tests.conftest import TINY


def plots(rows: int = 4000, seed: int = 0) -> pd.DataFrame:
    """A lot is as large as its neighbour's in three rows of ten, and the neighbour's is missing in
    one of ten."""
    rng = np.random.default_rng(seed)
    lot = np.round(rng.lognormal(8, 0.6, rows))
    neighbour = np.round(lot * rng.lognormal(0, 0.3, rows))
    neighbour = np.where(rng.random(rows) < 0.3, lot, neighbour)
    frame = pd.DataFrame({"lot": lot, "neighbour": neighbour, "other": rng.normal(size=rows)})
    frame.loc[rng.random(rows) < 0.1, "neighbour"] = np.nan
    return frame.astype({"lot": int, "neighbour": "Int64"})


@pytest.fixture(scope="module")
def model() -> TabMT:
    return TabMT(steps=400, **TINY | {"width": 32, "learning_rate": 1e-2}).fit(plots())


def codec_of(model: TabMT) -> TableCodec:
    return model.model_.codec


def equal_share(frame: pd.DataFrame) -> float:
    known = frame.dropna()
    return float((known["lot"] == known["neighbour"]).mean())


def test_columns_that_are_often_equal_are_found_and_stored(model, tmp_path):
    (found,) = codec_of(model).equal
    assert {found.column, found.other} == {"lot", "neighbour"}
    model.save(tmp_path / "m.tabmt")
    again = TabMT.load(tmp_path / "m.tabmt")
    assert np.array_equal(codec_of(again).equal[0].shares, found.shares)
    assert again.sample(200, seed=1).equals(model.sample(200, seed=1))


def test_decoded_rows_are_nearly_as_often_equal(model):
    """Real rows that are coded and decoded: the network has no part in it."""
    codec, frame = codec_of(model), plots(20_000, seed=1)
    typed = codec.parse(model_table(frame))
    columns = [coded.encode(typed.columns[coded.name])[0] for coded in codec.token_columns]
    made = codec.decode(np.stack(columns, 1), seed=0).to_pandas()
    # Some are lost: the other number, drawn anew in its bin, may leave the bin that both shared.
    assert 0.85 * equal_share(frame) < equal_share(made) < 1.05 * equal_share(frame)


def model_table(frame: pd.DataFrame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def test_generated_rows_are_often_equal(model):
    assert equal_share(model.sample(4000, seed=1)) > 0.08  # trained for a moment


def test_the_mass_of_all_numbers_is_one_whatever_the_other_column_has(model):
    codec = codec_of(model)
    (found,) = codec.equal
    numeric = codec[found.column].codec.numeric
    code = np.flatnonzero(numeric.is_bin)[5]
    low, high = numeric.codes.extent
    units = np.arange(low, high + 1)
    units = units[numeric.codes.encode(units)[0] == code]
    codes = np.full(len(units), code)
    alone = numeric.codes.point_shares(units, codes)
    for other in (units[3], units[-1], low, np.nan):
        mass = found.mass(numeric, codes, units, np.full(len(units), other), alone)
        assert mass.sum() == pytest.approx(1.0)


def test_numbers_come_as_often_as_their_mass_says(model):
    codec = codec_of(model)
    (found,) = codec.equal
    numeric = codec[found.column].codec.numeric
    code = int(np.flatnonzero(numeric.is_bin)[5])
    drawn = numeric.decode_units(np.full(1, code), Decoding(np.random.default_rng(0)))
    codes, other = np.full(20_000, code), np.full(20_000, drawn[0])
    bounds = found.draw(numeric, codes, other, np.random.default_rng(1))
    rows = numeric.decode_units(codes, Decoding(np.random.default_rng(2), within=bounds))
    alone = numeric.codes.point_shares(drawn, codes[:1])
    expected = found.mass(numeric, codes[:1], drawn, other[:1], alone)[0]
    assert (rows == drawn).mean() == pytest.approx(expected, abs=0.015)


def test_an_equal_number_is_likelier_than_its_neighbours(model):
    row = pd.DataFrame({"lot": [3000, 3000], "neighbour": [3000, 3001], "other": [0.0, 0.0]})
    equal, close = model.log_prob(row.astype({"neighbour": "Int64"}), orders=8, seed=0)
    assert equal > close + 2


def test_a_condition_holds_whatever_the_other_column_has(model):
    made = model.sample(300, seed=2, where={"neighbour": between(3000, 3100)})
    assert made["neighbour"].between(3000, 3100).all()
    made = model.sample(300, seed=2, where={"lot": between(3000, 3100)})
    assert made["lot"].between(3000, 3100).all()


def test_without_rules_that_are_found_there_are_none():
    assert codec_of(TabMT(steps=0, find_rules=False, **TINY).fit(plots())).equal == ()


def test_columns_that_are_equal_by_chance_are_not_found():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, 300, 4000) for name in "abc"})
    assert codec_of(TabMT(steps=0, **TINY).fit(frame)).equal == ()


def test_three_columns_form_no_circle():
    frame = plots()
    frame["third"] = np.where(np.arange(len(frame)) % 3, frame["lot"], frame["lot"] + 7)
    codec = codec_of(TabMT(steps=0, **TINY).fit(frame))
    assert len(codec.equal) == 2
    codec._check_equal()


@pytest.mark.parametrize("change", ["circle", "unknown", "length", "above one", "kind"])
def test_damaged_files_are_refused(model, change):
    codec = codec_of(model)
    (one,) = codec.equal
    arrays, entries = codec.to_parts()
    index = codec.schema.names.index(one.column)
    if change == "circle":
        entries[index]["equal_to"] = one.column
    if change == "unknown":
        entries[index]["equal_to"] = ["x"]
    if change == "kind":
        entries[index]["equal_to"] = "other"
    if change == "length":
        arrays[f"{index}.equal_shares"] = one.shares[1:]
    if change == "above one":
        arrays[f"{index}.equal_shares"] = one.shares + 1
    with pytest.raises(ValueError):
        TableCodec.from_parts(codec.schema, arrays, entries)


def test_very_many_columns_are_not_compared_and_the_log_says_so(monkeypatch, caplog):
    monkeypatch.setattr(equal_numbers, "MOST_COLUMNS", 2)
    with caplog.at_level("INFO"):
        assert codec_of(TabMT(steps=0, **TINY).fit(plots())).equal == ()
    assert (
        "more than 2 numeric columns: not searching for columns that often equal each other"
        in caplog.messages
    )
