"""Rules between columns: no generated row breaks one, of either network, prompted or not."""

import logging
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from tabmt import TabMT, UserError, between
from tabmt.config import NetworkName
from tabmt.evaluation.evaluate import evaluate
from tabmt.rules.rule import Rule

RULES = {
    "order": "end >= start",
    "sum": "a + b = c",
    "place": "together(city, country)",
    "fee": "if member == 0 then fee == 0",
    "cap": "a <= 95 or b < 30",
}
COUNTRY = {"Oslo": "NO", "Bergen": "NO", "Paris": "FR", "Lyon": "FR", "Rome": "IT"}


def trips(rows: int = 800, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, rows), "D")
    end = pd.Series(start + pd.to_timedelta(rng.geometric(0.05, rows) - 1, "D"))
    a, b = rng.integers(0, 90, rows), rng.poisson(20, rows)
    city = pd.Series(rng.choice(list(COUNTRY), rows))
    member = rng.random(rows) < 0.4
    return pd.DataFrame(
        {
            "start": start,
            "end": end.where(rng.random(rows) > 0.1),
            "a": a,
            "b": b,
            "c": a + b,
            "city": city,
            "country": city.map(COUNTRY),
            "member": member,
            "fee": np.where(member, rng.integers(10, 50, rows), 0),
            "x": rng.normal(size=rows).round(2),
        }
    )


@pytest.fixture(scope="module", params=get_args(NetworkName))
def model(request) -> TabMT:
    tiny = {"width": 16, "depth": 1, "heads": 2, "max_bins": 15, "threads": 1}
    return TabMT(network=request.param, steps=40, **tiny).fit(trips(), schema={"rules": RULES})


def broken(rows: pd.DataFrame) -> dict[str, int]:
    return {
        "order": int((rows["end"] < rows["start"]).sum()),
        "sum": int((rows["a"] + rows["b"] != rows["c"]).sum()),
        "place": int((rows["city"].map(COUNTRY) != rows["country"]).sum()),
        "fee": int((~rows["member"] & (rows["fee"] != 0)).sum()),
        "cap": int(((rows["a"] > 95) & (rows["b"] >= 30)).sum()),
    }


def test_no_generated_row_breaks_a_rule(model, caplog):
    with caplog.at_level(logging.INFO):
        rows = model.sample(600, seed=1)
    assert broken(rows) == dict.fromkeys(RULES, 0)
    assert len(rows) == 600 and rows["end"].isna().any()
    assert rows["c"].between(trips()["c"].min(), trips()["c"].max()).all()
    assert "rows were drawn to keep 600" in caplog.text  # the cost is told


def test_rules_hold_under_prompts_and_balance(model):
    asked = {"c": between(50, 60), "start": between("2020-05-01", "2020-06-01")}
    rows = model.sample(200, where=asked, seed=1)
    assert broken(rows) == dict.fromkeys(RULES, 0)
    assert rows["c"].between(50, 60).all()
    assert rows["start"].between("2020-05-01", "2020-06-01").all()
    even = model.sample(200, balance="city", seed=1)
    assert broken(even) == dict.fromkeys(RULES, 0)
    assert even["city"].value_counts().tolist() == [40] * 5


def test_rules_are_stored_and_the_same_seed_gives_the_same_rows(model, tmp_path):
    model.save(tmp_path / "m.tabmt")
    again = TabMT.load(tmp_path / "m.tabmt")
    assert again.schema_.rules == RULES
    assert again.sample(100, seed=3).equals(model.sample(100, seed=3))


def test_numbers_under_an_inequality_follow_the_model_cut_off():
    """x <= y with independent uniforms: given y, x is uniform below it."""
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.integers(0, 1000, (4000, 2)), axis=1).T
    table = pd.DataFrame({"x": x, "y": y})
    settings = {"width": 16, "depth": 1, "heads": 2, "max_bins": 10, "threads": 1, "steps": 300}
    model = TabMT(seed=0, **settings).fit(table, schema={"rules": {"order": "x <= y"}})
    rows = model.sample(4000, seed=1)
    assert (rows["x"] <= rows["y"]).all()
    assert abs((rows["x"] / rows["y"].clip(lower=1)).mean() - (x / y.clip(1)).mean()) < 0.05
    assert rows["x"].nunique() > 500  # numbers are drawn inside bins, not picked from a few


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (
            {"order": "ende >= start"},
            "The rule 'order' names column 'ende', but the table has: start, end, a, b, c, city, "
            "country, member, fee, x. Did you mean 'end'?",
        ),
        (
            {"order": "end < start"},
            "721 of 800 rows of the training table break the rule 'order' (end < start); "
            "it is none.",
        ),
        (
            {"pair": "together(a, city)"},
            "The rule 'pair' holds column 'a' together with others, but it is numeric; that works "
            "for categorical columns.",
        ),
        (
            {"pair": "together(city)"},
            "The rule 'pair' needs two columns or more: 'together(city)'.",
        ),
        (
            ["end >= start"],
            'The rules of a schema are of the form {"rules": {"name": "rule", ...}}.',
        ),
    ],
)
def test_a_rule_that_does_not_suit_the_table_is_refused_before_training(rules, sentence):
    with pytest.raises(UserError) as error:
        TabMT(steps=1, threads=1).fit(trips(), schema={"rules": rules})
    assert str(error.value) == sentence


def test_training_rows_that_break_a_rule_are_told_of(caplog):
    table = trips()
    table.loc[:4, "c"] = 0
    settings = {"width": 16, "depth": 1, "heads": 2, "steps": 2, "threads": 1}
    with caplog.at_level(logging.WARNING):
        model = TabMT(**settings).fit(table, schema={"rules": {"sum": "a + b = c"}})
    assert "5 of 800 rows of the training table break the rule 'sum'" in caplog.text
    rows = model.sample(100, seed=0)
    assert (rows["a"] + rows["b"] == rows["c"]).all()


def test_conditions_that_leave_a_rule_no_room_are_an_error(model):
    with pytest.raises(UserError) as error:
        model.sample(50, where={"start": between("2020-09-01"), "end": between(high="2020-02-01")})
    assert "The rule 'order' (end >= start) left only 0 of 50 rows" in str(error.value)


def test_evaluate_counts_combinations_that_training_never_had():
    train, synthetic = trips(), trips(seed=1)
    synthetic.loc[:79, "country"] = "IT"
    wrong = float((synthetic["city"].map(COUNTRY) != synthetic["country"]).mean())
    rule = Rule.parse("place", RULES["place"])
    found = evaluate(synthetic, train, trips(seed=2), rules=[rule])
    assert found["rule: place"].value == pytest.approx(wrong)
    assert found["rule: place"].reference == 0


def with_gaps(rows: pd.DataFrame, share: float, seed: int = 0) -> pd.DataFrame:
    holes = np.random.default_rng(seed).random(rows.shape) < share
    return rows.convert_dtypes().mask(holes)


def test_imputed_rows_keep_the_rules_and_what_was_known(model, caplog):
    gappy = with_gaps(trips(), 0.3)
    filled = model.impute(gappy, seed=1)
    known = gappy.notna()
    assert filled.notna().all().all()
    assert filled.where(known).equals(gappy)
    assert broken(filled.astype({"member": bool})) == dict.fromkeys(RULES, 0)
    assert "break a rule" not in caplog.text
    assert model.impute(gappy, seed=1).equals(filled)


def test_prompted_rows_keep_the_rules(model):
    prompts = with_gaps(trips()[["c", "start", "city", "a"]], 0.4).head(300)
    rows = model.sample(prompts=prompts, seed=1)
    assert broken(rows) == dict.fromkeys(RULES, 0)
    known = prompts["c"].notna()
    assert (rows["c"][known] == prompts["c"][known]).all()


def test_columns_that_are_left_alone_bind_the_others_where_they_are_known(model):
    gappy = with_gaps(trips(), 0.3)
    filled = model.impute(gappy, columns=["end", "country", "b"], seed=1)
    assert filled["a"].equals(gappy["a"])
    assert not (filled["end"] < filled["start"]).fillna(False).any()
    assert not (filled["a"] + filled["b"] != filled["c"]).fillna(False).any()
    cities = filled["city"].notna()
    assert (filled["city"].map(COUNTRY) == filled["country"])[cities].all()


def test_rows_that_break_a_rule_by_what_is_known_are_told_of_and_kept(model, caplog):
    rows = trips().head(20).copy()
    rows.loc[3, ["a", "b", "c"]] = [10, 10, 30]
    rows["x"] = np.nan
    filled = model.impute(rows, seed=1)
    assert filled.loc[3, ["a", "b", "c"]].tolist() == [10, 10, 30]
    assert "1 of 20 rows break a rule by what is known of them." in caplog.text


TINY = {"width": 16, "depth": 1, "heads": 2, "max_bins": 15, "threads": 1}


def sums(rows: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b, f = rng.integers(0, 100, (3, rows))
    table = pd.DataFrame({"a": a, "b": b, "c": a + b, "f": f, "g": f + rng.integers(0, 50, rows)})
    return table.assign(lim=200)


@pytest.fixture(scope="module")
def sum_model() -> TabMT:
    rules = {"sum": "a + b == c", "order": "f <= g", "limit": "g <= lim"}
    return TabMT(steps=60, **TINY).fit(sums(), schema={"rules": rules})


def test_a_rule_that_few_draws_keep_is_kept_all_the_same(sum_model, caplog):
    rows = sum_model.sample(prompts=pd.DataFrame({"c": [2, 5, 10] * 60}), seed=0)
    assert (rows["a"] + rows["b"] == rows["c"]).all()
    assert "break a rule" not in caplog.text


def test_a_rule_broken_by_known_cells_does_not_set_the_others_free(sum_model, caplog):
    prompts = pd.DataFrame({"c": [30] * 100, "f": [40] * 100, "g": [10] * 100})
    rows = sum_model.sample(prompts=prompts, seed=0)
    assert (rows["a"] + rows["b"] == 30).all()
    assert "100 of 100 rows break a rule by what is known of them." in caplog.text


def test_known_values_of_a_column_that_never_varied_bind_too(sum_model):
    rows = sum_model.sample(prompts=pd.DataFrame({"lim": [60] * 100}), seed=0)
    assert (rows["g"] <= 60).all()
    gappy = sums(100).assign(lim=90, g=None)
    assert (sum_model.impute(gappy.astype({"g": "Int64"}), seed=0)["g"] <= 90)[
        gappy["f"] <= 90
    ].all()


def test_gaps_that_stay_gaps_break_no_combination(caplog):
    table = pd.DataFrame({"city": ["Oslo", "Paris"] * 100, "x": range(200)})
    table["country"] = table["city"].map(COUNTRY)
    rules = {"place": "together(city, country)"}
    model = TabMT(steps=2, **TINY).fit(table, schema={"rules": rules})
    gappy = table.assign(x=table["x"].astype("Int64").mask(table["x"] < 50))
    gappy.loc[10:20, ["city", "country"]] = None
    filled = model.impute(gappy, columns=["x"], seed=0)
    assert filled["city"].isna().sum() == 11 and "break a rule" not in caplog.text
    one_gap = table.copy()
    one_gap.loc[0, "city"] = None
    learned = TabMT(steps=2, **TINY).fit(one_gap, schema={"rules": rules})
    gappy = table.assign(city=pd.Series([None] * 200, dtype="str"), country=None)
    filled = learned.impute(gappy.astype({"country": "str"}), columns=["country", "x"], seed=0)
    assert set(filled["country"]) == {"NO", "FR"} and "break a rule" not in caplog.text


def test_columns_that_never_varied_go_together():
    table = pd.DataFrame({"city": ["Oslo"] * 50, "country": ["NO"] * 50, "x": range(50)})
    rules = {"place": "together(city, country)"}
    rows = TabMT(steps=2, **TINY).fit(table, schema={"rules": rules}).sample(20, seed=0)
    assert set(rows["city"] + rows["country"]) == {"OsloNO"}
