"""Planted secrets: values that few rows hold are neither in the model file nor in its rows."""

import datetime as dt
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tabmt import TabMT
from tabmt.cli import main
from tabmt.codec.quantize import quantize
from tabmt.config import PRESETS, CodecConfig
from tabmt.data.infer import infer_schema
from tabmt.data.protection import Protection, ValueCounts, most_needed
from tabmt.errors import UserError
from tabmt.model.stored_values import scan_file
from tests.conftest import TINY
from tests.tables import FIRST, LAST, NAME, PHONE, SALARY, planted

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
SHARED = Path(os.environ.get("TABMT_DATA", SHARED))
TABLES = sorted(path.stem for path in SHARED.glob("*.parquet")) or ["none"]
SETTINGS = {**TINY, "steps": 20, "threads": 1}
QUANTIZERS = ("kmeans", "plain-kmeans", "quantile", "uniform", "none")

RULES = {"rules": {"places": "together(city, country)"}}


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "planted.tabmt"
    model = TabMT(**SETTINGS).fit(planted(), schema=RULES)
    model.save(path)
    return model, path


def test_planted_secrets_are_not_in_the_file(secret):
    _, path = secret
    scan = scan_file(path, planted(), 5)
    assert {one.column: one.found for one in scan.columns} == dict.fromkeys(planted().columns, 0)
    assert scan.combinations == {"places": 0}
    content = path.read_bytes()
    for word in (NAME, PHONE, str(SALARY), FIRST.isoformat(), LAST.isoformat()):
        assert word.encode() not in content


def test_planted_secrets_are_in_no_row(secret):
    rows = secret[0].sample(100_000, seed=1)
    assert NAME not in set(rows["who"])
    assert rows["salary"].max() < 150_000
    assert rows["day"].min() > dt.date(2019, 12, 1) and rows["day"].max() < dt.date(2022, 2, 1)
    assert not set(rows["phone"]) & set(planted()["phone"])
    assert set(zip(rows["city"], rows["country"], strict=True)) == {
        ("Oslo", "south"), ("Bergen", "south"), ("Bodo", "north"),
    }  # fmt: skip


def test_without_protection_the_scan_finds_every_secret(tmp_path, caplog):
    caplog.set_level("INFO", "tabmt")
    table = planted()
    table.loc[:9, "phone"] = table.loc[10:19, "phone"].to_numpy()
    path = tmp_path / "open.tabmt"
    model = TabMT(protect=0, find_ids=False, **SETTINGS).fit(table, schema=RULES)
    model.save(path)
    scan = scan_file(path, table, 5)
    found = {one.column: one.found for one in scan.columns}
    assert found["who"] == 1 and found["phone"] > 2900
    assert found["salary"] > 2000 and found["day"] >= 2
    assert scan.combinations == {"places": 1}
    assert (
        "protection is off: the model stores rare values and exact numbers (protect 0)"
        in caplog.messages
    )


def walk(knots, known, steps):
    """The attack of a reader of the file: each knot lies half-way between two neighbours."""
    found = []
    for knot in knots:
        known = 2 * knot - known
        found.append(known)
    return found[:steps]


@pytest.mark.parametrize(("protect", "solved"), [(0, True), (5, False)])
def test_extremes_cannot_be_solved_from_edges_and_knots(rng, protect, solved):
    amounts = np.unique(np.round(rng.pareto(1.1, 3000) * 1000))
    codes = quantize(
        amounts, quantizer="kmeans", max_bins=60, continuous=False, seed=0, protect=protect
    )
    last = codes.knot_value[codes.knot_bin == codes.knot_bin.max()]
    guesses = walk(last[::-1][1:], codes.edges[-1], 3)
    assert bool(np.isin(guesses, amounts).any()) == solved
    assert (codes.edges[-1] == amounts.max()) == solved


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-30, 30) | st.integers(-(10**6), 10**6), min_size=30, max_size=200),
    st.sampled_from(QUANTIZERS),
    st.integers(2, 30),
    st.integers(2, 15),
    st.booleans(),
)
def test_every_code_stands_for_enough_rows(units, quantizer, max_bins, protect, continuous):
    units = np.asarray(units, np.float64) / (7 if continuous else 1)
    codes = quantize(
        units,
        quantizer=quantizer,
        max_bins=max_bins,
        continuous=continuous,
        seed=0,
        protect=protect,
    )
    tokens, _ = codes.encode(units)
    assert (np.bincount(tokens, minlength=codes.size) >= protect).all()
    values, counts = np.unique(units, return_counts=True)
    rare = values[counts < protect]
    stored = np.concatenate([codes.centres, codes.edges, codes.knot_value])
    assert not np.isin(stored, rare).any()
    rng = np.random.default_rng(0)
    drawn = codes.decode(np.repeat(tokens, 5), rng, "inside")
    assert np.array_equal(codes.encode(drawn)[0], np.repeat(tokens, 5))
    assert drawn.min() >= units.min() and drawn.max() <= units.max()


def test_the_randomness_of_protection_depends_on_the_values(rng):
    values = np.sort(rng.normal(size=20))
    other = np.append(values[:-1], values[-1] + 1)
    ones = np.ones(20)
    draws = [Protection.of(5, 0, column, ones).average(values[:10]) for column in (values, other)]
    again = Protection.of(5, 0, values, ones).average(values[:10])
    assert draws[0] == again and draws[0] != draws[1]


def test_a_threshold_is_drawn_for_each_value():
    counts = np.full(1000, 6)
    values = pa.array([f"{i:04}" for i in range(1000)])
    share = ValueCounts(values, counts).frequent(5, seed=0).mean()
    assert 0.5 < share < 0.8  # thresholds are 5, 6 and 7
    assert not ValueCounts(values, counts - 2).frequent(5, seed=0).any()
    assert ValueCounts(values, counts + 1).frequent(5, seed=0).all()


def rare_city(rows=300) -> pd.DataFrame:
    city = np.array(["Oslo", "Bergen"] * (rows // 2), dtype=object)
    city[:3] = ["Utsira", "Utsira", "Vega"]
    return pd.DataFrame({"city": city, "x": np.arange(rows) % 7})


def test_rare_categories_are_not_generated_and_not_in_the_schema():
    model = TabMT(**SETTINGS).fit(rare_city())
    assert set(model.sample(5000, seed=0)["city"]) == {"Oslo", "Bergen"}
    assert "Utsira" not in json.dumps(model.schema_.to_json())
    assert model.schema_["city"].reason == (
        "text with 4 distinct values; 2 of them in fewer than 5 rows, so not stored"
    )


def test_rare_categories_can_be_shown_as_a_text():
    model = TabMT(rare_text="elsewhere", **SETTINGS).fit(rare_city())
    assert set(model.sample(5000, seed=0)["city"]) == {"Oslo", "Bergen", "elsewhere"}
    only = model.sample(10, where={"city": "elsewhere"}, seed=0)
    assert set(only["city"]) == {"elsewhere"}


def test_given_rows_may_hold_rare_categories():
    model = TabMT(**SETTINGS).fit(rare_city())
    given = pd.DataFrame({"city": ["Utsira", "Nowhere", "Oslo"], "x": [None, None, 1.0]})
    assert list(model.complete(given, seed=0)["city"]) == ["Utsira", "Nowhere", "Oslo"]
    rows = rare_city()
    assert np.isfinite(model.score(rows)["log_prob"]).all()
    gaps = rows.assign(city=rows["city"].where(rows.index > 50))
    for how in ("draw", "mode"):
        assert set(model.impute(gaps, how=how, seed=0)["city"][:50]) <= {"Oslo", "Bergen"}


def test_a_condition_on_a_rare_category_says_no_more_than_on_one_that_never_was():
    model = TabMT(**SETTINGS).fit(rare_city())
    for city in ("Utsira", "Nowhere"):
        with pytest.raises(UserError) as error:
            model.sample(1, where={"city": city})
        assert str(error.value) == (
            f"The condition on column 'city' asks for {city!r}, which is not a value of this model "
            "(unknown, or too rare to be stored). Its values are: 'Bergen', 'Oslo'."
        )


def test_declared_categories_that_no_row_holds_are_not_stored(tmp_path):
    table = rare_city()
    table["city"] = table["city"].astype("category")
    path = tmp_path / "m.tabmt"
    TabMT(**SETTINGS).fit(table[3:].reset_index(drop=True)).save(path)
    assert b"Utsira" not in path.read_bytes()
    categories = TabMT.load(path).sample(10, seed=0)["city"].cat.categories
    assert list(categories) == ["Bergen", "Oslo"]


def test_a_table_of_too_few_rows_gets_a_sentence():
    with pytest.raises(UserError) as error:
        TabMT(**SETTINGS).fit(rare_city()[:8])
    assert str(error.value) == (
        "The table has 8 rows, but protect is 5, which needs at least 10; set protect (--protect) "
        "lower, or to 0 to store every value."
    )


def test_a_column_with_few_values_is_generated_as_missing(tmp_path):
    table = rare_city().assign(note=[612.5, 13.25] + [None] * 298)
    path = tmp_path / "m.tabmt"
    model = TabMT(**SETTINGS).fit(table)
    model.save(path)
    assert model.schema_["note"].reason.endswith(
        "; only 2 rows have a value, and 10 are needed (protect 5), so none is stored and all are "
        "generated as missing"
    )
    assert model.sample(50, seed=0)["note"].isna().all()
    assert model.impute(table, seed=0)["note"].equals(table["note"])
    assert scan_file(path, table, 5).found == 0


def test_the_reason_and_the_log_say_that_numbers_are_clipped(caplog):
    caplog.set_level("INFO", "tabmt")
    model = TabMT(**SETTINGS).fit(planted())
    assert model.schema_["salary"].reason.endswith(
        "; extreme values in fewer than 5 rows are clipped"
    )
    assert "protection: values in fewer than 5 rows are not stored" in caplog.messages
    assert "rare categories of 1 column are not generated" in caplog.messages
    (clipped,) = (text for text in caplog.messages if text.startswith("clipped "))
    assert re.fullmatch(r"clipped \d+ rare extreme numbers in \d+ columns?", clipped)


def test_numbers_with_few_values_are_protected_too(tmp_path):
    rooms = [1, 2, 3, 4] * 100 + [33, 57]
    table = pd.DataFrame({"rooms": rooms, "height": [x + 0.5 for x in rooms], "x": range(402)})
    path = tmp_path / "m.tabmt"
    model = TabMT(**SETTINGS).fit(table)
    model.save(path)
    assert scan_file(path, table, 5).found == 0
    rows = model.sample(3000, seed=0)
    assert set(rows["rooms"]) == {1, 2, 3, 4} and rows["height"].max() == 4.5


def test_presets_of_the_paper_turn_protection_off():
    assert all(preset["protect"] == 0 for preset in PRESETS.values())
    assert CodecConfig().protect == 5 and most_needed(5) == 7


def run_info(*arguments):
    return CliRunner().invoke(main, ["info", *map(str, arguments)])


def test_info_says_which_real_values_the_file_holds(secret):
    _, path = secret
    held = json.loads(run_info(path, "--json").output)["real_values"]
    assert held["who"] == (
        "4 categories, each in at least 5 rows; rare ones only together, as one value"
    )
    assert held["phone"] == "no value, only the format of the ids"
    assert held["salary"].endswith("stored as averages of at least 5 rows")


def test_the_exit_code_of_a_scan_says_whether_values_were_found(secret, tmp_path):
    table = tmp_path / "planted.parquet"
    planted().to_parquet(table)
    result = run_info(secret[1], "--scan", table)
    assert result.exit_code == 0, result.output
    assert "none was found" in result.output
    heads = ("column", "rare values", "in the bytes", "stored", "can be computed")
    assert result.output.splitlines()[0].split() == " ".join(heads).split()
    path = tmp_path / "open.tabmt"
    TabMT(protect=0, **SETTINGS).fit(planted()).save(path)
    result = run_info(path, "--scan", table)
    assert result.exit_code == 1
    assert NAME not in result.output and str(SALARY) not in result.output


@pytest.mark.skipif(TABLES == ["none"], reason="the shared tables are not here")
@pytest.mark.parametrize("name", TABLES)
def test_no_rare_value_of_a_real_table_is_in_its_model(name, tmp_path):
    table = pq.read_table(SHARED / f"{name}.parquet")
    rows = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:1000])
    table, path = table.take(rows), tmp_path / "m.tabmt"
    TabMT(**{**SETTINGS, "steps": 2}).fit(table).save(path)
    scan = scan_file(path, table, 5)
    assert [one for one in scan.columns if one.found] == []
    assert not any(scan.combinations.values())


def test_the_schema_names_personal_data():
    table = planted()
    assert infer_schema(table)["phone"].kind == "id"
    assert infer_schema(table)["phone"].reason == "telephone numbers: new ones are generated"
