"""Rules between columns: no row of either network violates one, with conditions or without."""

import logging
import re
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
    "country": "together(city, country)",
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


def violations(rows: pd.DataFrame) -> dict[str, int]:
    return {
        "order": int((rows["end"] < rows["start"]).sum()),
        "sum": int((rows["a"] + rows["b"] != rows["c"]).sum()),
        "country": int((rows["city"].map(COUNTRY) != rows["country"]).sum()),
        "fee": int((~rows["member"] & (rows["fee"] != 0)).sum()),
        "cap": int(((rows["a"] > 95) & (rows["b"] >= 30)).sum()),
    }


def test_no_generated_row_violates_a_rule(model, caplog):
    with caplog.at_level(logging.INFO):
        rows = model.sample(600, seed=1)
    assert violations(rows) == dict.fromkeys(RULES, 0)
    assert len(rows) == 600 and rows["end"].isna().any()
    assert rows["c"].between(trips()["c"].min(), trips()["c"].max()).all()
    assert re.search(r"rules: generated \d+ rows to get 600 that satisfy them", caplog.text)


def test_rules_hold_under_conditions_and_balance(model):
    asked = {"c": between(50, 60), "start": between("2020-05-01", "2020-06-01")}
    rows = model.sample(200, where=asked, seed=1)
    assert violations(rows) == dict.fromkeys(RULES, 0)
    assert rows["c"].between(50, 60).all()
    assert rows["start"].between("2020-05-01", "2020-06-01").all()
    even = model.sample(200, balance="city", seed=1)
    assert violations(even) == dict.fromkeys(RULES, 0)
    assert even["city"].value_counts().tolist() == [40] * 5


def test_rules_are_stored_and_the_same_seed_gives_the_same_rows(model, tmp_path):
    model.save(tmp_path / "m.tabmt")
    again = TabMT.load(tmp_path / "m.tabmt")
    assert again.schema_.rules == RULES
    assert again.sample(100, seed=3).equals(model.sample(100, seed=3))


def test_numbers_under_an_inequality_follow_the_truncated_distribution():
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
            "The rule 'order' names column 'ende', which does not exist; the columns are: start, "
            "end, a, b, c, city, "
            "country, member, fee, x. Did you mean 'end'?",
        ),
        (
            {"order": "end < start"},
            "721 of 800 training rows violate the rule 'order' (end < start); correct or remove "
            "the rule.",
        ),
        (
            {"pair": "together(a, city)"},
            "Rule 'pair': together() needs categorical columns, but 'a' is numeric.",
        ),
        (
            {"pair": "together(city)"},
            "The rule 'pair' needs at least two columns: 'together(city)'.",
        ),
        (
            ["end >= start"],
            'The rules of a schema have the form {"rules": {"name": "rule", ...}}.',
        ),
    ],
)
def test_a_rule_that_does_not_fit_the_table_is_refused_before_training(rules, sentence):
    with pytest.raises(UserError) as error:
        TabMT(steps=1, threads=1).fit(trips(), schema={"rules": rules})
    assert str(error.value) == sentence


def test_training_rows_that_violate_a_rule_are_logged(caplog):
    table = trips()
    table.loc[:4, "c"] = 0
    settings = {"width": 16, "depth": 1, "heads": 2, "steps": 2, "threads": 1}
    with caplog.at_level(logging.WARNING):
        model = TabMT(**settings).fit(table, schema={"rules": {"sum": "a + b = c"}})
    assert (
        "5 of 800 training rows violate the rule 'sum'; no generated row will." in caplog.messages
    )
    rows = model.sample(100, seed=0)
    assert (rows["a"] + rows["b"] == rows["c"]).all()


def test_conditions_that_contradict_a_rule_are_an_error(model):
    with pytest.raises(UserError) as error:
        model.sample(50, where={"start": between("2020-09-01"), "end": between(high="2020-02-01")})
    assert (
        "Only 0 of 50 rows satisfied the rule 'order' (end >= start); gave up after generating "
        in str(error.value)
    )


def test_evaluate_counts_combinations_that_training_rows_never_had():
    train, synthetic = trips(), trips(seed=1)
    synthetic.loc[:79, "country"] = "IT"
    wrong = float((synthetic["city"].map(COUNTRY) != synthetic["country"]).mean())
    rule = Rule.parse("country", RULES["country"])
    found = evaluate(synthetic, train, trips(seed=2), rules=[rule])
    assert found["rule: country"].value == pytest.approx(wrong)
    assert found["rule: country"].reference == 0


def with_missing_values(rows: pd.DataFrame, share: float, seed: int = 0) -> pd.DataFrame:
    masked = np.random.default_rng(seed).random(rows.shape) < share
    return rows.convert_dtypes().mask(masked)


def test_imputed_rows_satisfy_the_rules_and_keep_known_cells(model, caplog):
    incomplete = with_missing_values(trips(), 0.3)
    filled = model.impute(incomplete, seed=1)
    known = incomplete.notna()
    assert filled.notna().all().all()
    assert filled.where(known).equals(incomplete)
    assert violations(filled.astype({"member": bool})) == dict.fromkeys(RULES, 0)
    assert "violate a rule" not in caplog.text
    assert model.impute(incomplete, seed=1).equals(filled)


def test_completed_rows_satisfy_the_rules(model):
    prompts = with_missing_values(trips()[["c", "start", "city", "a"]], 0.4).head(300)
    rows = model.complete(prompts, seed=1)
    assert violations(rows) == dict.fromkeys(RULES, 0)
    known = prompts["c"].notna()
    assert (rows["c"][known] == prompts["c"][known]).all()


def test_known_cells_of_columns_that_are_not_imputed_restrict_the_others(model):
    incomplete = with_missing_values(trips(), 0.3)
    filled = model.impute(incomplete, columns=["end", "country", "b"], seed=1)
    assert filled["a"].equals(incomplete["a"])
    assert not (filled["end"] < filled["start"]).fillna(False).any()
    assert not (filled["a"] + filled["b"] != filled["c"]).fillna(False).any()
    cities = filled["city"].notna()
    assert (filled["city"].map(COUNTRY) == filled["country"])[cities].all()


def test_rows_whose_known_cells_violate_a_rule_are_logged_and_kept(model, caplog):
    rows = trips().head(20).copy()
    rows.loc[3, ["a", "b", "c"]] = [10, 10, 30]
    rows["x"] = np.nan
    filled = model.impute(rows, seed=1)
    assert filled.loc[3, ["a", "b", "c"]].tolist() == [10, 10, 30]
    assert (
        "1 of 20 rows violate a rule because of their known cells, which are not changed."
        in caplog.messages
    )


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


def test_a_rule_that_few_draws_satisfy_holds_in_every_row(sum_model, caplog):
    rows = sum_model.complete(pd.DataFrame({"c": [2, 5, 10] * 60}), seed=0)
    assert (rows["a"] + rows["b"] == rows["c"]).all()
    assert "violate a rule" not in caplog.text


def test_a_rule_that_known_cells_violate_does_not_suspend_the_others(sum_model, caplog):
    prompts = pd.DataFrame({"c": [30] * 100, "f": [40] * 100, "g": [10] * 100})
    rows = sum_model.complete(prompts, seed=0)
    assert (rows["a"] + rows["b"] == 30).all()
    assert (
        "100 of 100 rows violate a rule because of their known cells, which are not changed."
        in caplog.messages
    )


def test_known_values_of_a_constant_column_restrict_the_others(sum_model):
    rows = sum_model.complete(pd.DataFrame({"lim": [60] * 100}), seed=0)
    assert (rows["g"] <= 60).all()
    incomplete = sums(100).assign(lim=90, g=None)
    assert (sum_model.impute(incomplete.astype({"g": "Int64"}), seed=0)["g"] <= 90)[
        incomplete["f"] <= 90
    ].all()


def test_missing_values_that_stay_missing_violate_no_combination(caplog):
    table = pd.DataFrame({"city": ["Oslo", "Paris"] * 100, "x": range(200)})
    table["country"] = table["city"].map(COUNTRY)
    rules = {"country": "together(city, country)"}
    model = TabMT(steps=2, **TINY).fit(table, schema={"rules": rules})
    incomplete = table.assign(x=table["x"].astype("Int64").mask(table["x"] < 50))
    incomplete.loc[10:20, ["city", "country"]] = None
    filled = model.impute(incomplete, columns=["x"], seed=0)
    assert filled["city"].isna().sum() == 11 and "violate a rule" not in caplog.text
    one_missing = table.copy()
    one_missing.loc[0, "city"] = None
    learned = TabMT(steps=2, **TINY).fit(one_missing, schema={"rules": rules})
    incomplete = table.assign(city=pd.Series([None] * 200, dtype="str"), country=None)
    filled = learned.impute(incomplete.astype({"country": "str"}), columns=["country", "x"], seed=0)
    assert set(filled["country"]) == {"NO", "FR"} and "violate a rule" not in caplog.text


def test_constant_columns_are_a_combination():
    table = pd.DataFrame({"city": ["Oslo"] * 50, "country": ["NO"] * 50, "x": range(50)})
    rules = {"country": "together(city, country)"}
    rows = TabMT(steps=2, **TINY).fit(table, schema={"rules": rules}).sample(20, seed=0)
    assert set(rows["city"] + rows["country"]) == {"OsloNO"}
