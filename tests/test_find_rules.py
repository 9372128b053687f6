"""Relations between columns: which are found, which are chance, and that rows satisfy them."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from tabmt import TabMT, UserError, between
from tabmt.cli import main
from tabmt.config import PAPER, CodecConfig
from tabmt.data.infer import infer_schema
from tabmt.data.relations import find
from tabmt.model.fitted_model import order_of_training
from tests.conftest import TINY
from tests.prompted import p_value

FOLDER = Path(os.environ.get("TABMT_DATA", Path(__file__).parents[2] / "shared" / "data"))


def rules_of(table, **settings) -> set[str]:
    return set(infer_schema(table, config=CodecConfig(**settings)).rules.values())


def flats(rows: int = 800, seed: int = 0) -> pd.DataFrame:
    """A sum, a product, a function, a tie and missing values that go together."""
    rng = np.random.default_rng(seed)
    above = 10 * rng.integers(50, 200, rows)
    below = np.where(rng.random(rows) < 0.5, 0, 10 * rng.integers(1, 60, rows))
    city = rng.choice(["Oslo", "Bergen", "Lyon", "Nice"], rows)
    visits = rng.poisson(1.0, rows)
    joint = np.where(rng.random(rows) < 0.4, np.nan, rng.integers(0, 50, rows))
    return pd.DataFrame({
        "above": above,
        "below": below,
        "living": above + below,
        "city": city,
        "country": np.where(np.isin(city, ["Oslo", "Bergen"]), "NO", "FR"),
        "visits": visits,
        "last_visit": np.where(visits == 0, -1, rng.integers(1, 300, rows)),
        "joint": joint,
        "kind": np.where(np.isnan(joint), "single", "shared"),
        "price": np.round(rng.lognormal(3, 1, rows), 2),
    })  # fmt: skip


RULES = {
    "living = above + below",
    "determines(city, country)",
    "last_visit == -1 if and only if visits == 0",
    "kind == 'single' if and only if joint is missing",
}


def violations(made: pd.DataFrame) -> int:
    country = made["city"].isin(["Oslo", "Bergen"])
    wrong = [
        made["living"] != made["above"] + made["below"],
        (made["country"] == "NO") != country,
        (made["last_visit"] == -1) != (made["visits"] == 0),
        (made["kind"] == "single") != made["joint"].isna(),
    ]
    return int(sum(np.sum(one) for one in wrong))


# --- what is found --------------------------------------------------------------------------


def test_sums_functions_and_ties_are_found_and_nothing_else():
    assert rules_of(flats()) == RULES


def test_a_rule_says_in_how_many_rows_it_holds_and_why_it_is_there():
    frame = flats(5000)
    frame.loc[:3, "living"] += 10
    schema = infer_schema(frame).to_json()
    assert schema["rules"]["sum: living"] == "living = above + below"
    assert schema["found"]["sum: living"] == {
        "share": 0.9992,
        "reason": "holds in 99.92 % of 5,000 rows; all generated rows will satisfy it",
    }
    assert schema["rules"]["same rows: last_visit -1 and visits 0"] == (
        "last_visit == -1 if and only if visits == 0"
    )
    assert schema["found"]["function: country of city"]["reason"] == (
        "holds in all 5,000 rows in which it can be checked"
    )


def test_a_relation_that_fails_in_one_row_of_a_hundred_is_none():
    frame = flats(5000)
    changed = np.arange(0, 5000, 100)
    frame.loc[changed, "living"] += 10
    frame.loc[changed, "country"] = np.where(frame.loc[changed, "country"] == "NO", "FR", "NO")
    frame.loc[changed, "last_visit"] = np.where(frame.loc[changed, "visits"] == 0, 5, -1)
    frame.loc[changed, "kind"] = np.where(
        frame.loc[changed, "kind"] == "single", "shared", "single"
    )
    assert rules_of(frame) == set()


@pytest.mark.parametrize("seed", range(10))
def test_shuffled_columns_have_no_relations(seed):
    rng = np.random.default_rng(seed)
    frame = flats(2000, seed)
    shuffled = frame.apply(lambda column: rng.permutation(column.to_numpy()))
    schema = infer_schema(shuffled)
    assert (dict(schema.rules), dict(schema.suggested)) == ({}, {})


def test_columns_that_are_nearly_constant_have_no_relations():
    rng = np.random.default_rng(0)
    rare = {name: (rng.random(3000) < 0.002) * rng.integers(1, 9, 3000) for name in "abcd"}
    assert rules_of(pd.DataFrame({**rare, "total": sum(rare.values())})) == set()


def test_a_unique_key_determines_nothing():
    rng = np.random.default_rng(0)
    names = [f"name {i}" for i in range(500)]
    frame = pd.DataFrame({"name": names, "size": rng.integers(0, 5, 500)})
    schema = {"columns": [{"name": "name", "kind": "categorical"}]}
    assert not infer_schema(frame, overrides=schema).rules


def test_a_key_that_is_mostly_unique_determines_nothing():
    rng = np.random.default_rng(0)
    key = np.concatenate([np.arange(2000), 5000 + np.arange(1000) // 4])
    size = rng.integers(0, 5, 6000)[key]
    assert rules_of(pd.DataFrame({"key": [f"k{x}" for x in key], "size": size})) == set()


def test_decimals_are_added_exactly():
    rng = np.random.default_rng(0)
    cents = rng.integers(1, 10_000, (3, 1000))
    parts = {name: one / 100 for name, one in zip("abc", cents, strict=True)}
    assert (parts["a"] + parts["b"] + parts["c"] != cents.sum(0) / 100).any()  # as floats
    frame = pd.DataFrame({**parts, "total": cents.sum(0) / 100})
    assert rules_of(frame) == {"total = a + b + c"}


def test_a_sum_that_is_finer_than_its_terms_holds_up_to_rounding():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 3000)) * 100
    a, b = np.where(rng.random(3000) < 0.95, np.round((a, b), 2), (a, b))
    frame = pd.DataFrame({"a": np.round(a, 2), "b": np.round(b, 2), "total": np.round(a + b, 5)})
    assert rules_of(frame) == {"total = a + b"}


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda a, b, c, d: a - b, "y = a - b"),
        (lambda a, b, c, d: 100 * a + b, "y = 100 * a + b"),
        (lambda a, b, c, d: a + b - c, "y = a + b - c"),
        (lambda a, b, c, d: a + b + c + d, "y = a + b + c + d"),
        (lambda a, b, c, d: 60 * a, "y = 60 * a"),
        (lambda a, b, c, d: 1.8 * a + 32, "y = 1.8 * a + 32"),
        (lambda a, b, c, d: 2024 - a, "y = -a + 2024"),
        (lambda a, b, c, d: a, "y = a"),
    ],
)
def test_sums_differences_and_products_with_constants_are_found(make, rule):
    rng = np.random.default_rng(1)
    a, b, c, d = (rng.integers(0, 500, 1500) for _ in range(4))
    frame = pd.DataFrame({"a": a, "b": b, "c": c, "d": d, "y": make(a, b, c, d)})
    assert rules_of(frame) == {rule}


def test_a_rare_term_of_a_sum_is_found():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 5000, (2, 8000))
    fee = np.where(rng.random(8000) < 0.006, 15, 0)
    assert rules_of(pd.DataFrame({"a": a, "b": b, "fee": fee, "y": a + b + fee})) == {
        "y = a + b + fee"
    }


def test_a_sum_that_follows_from_others_is_not_repeated():
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(0, 500, (3, 1500))
    frame = pd.DataFrame({"a": a, "b": b, "c": c, "ab": a + b, "abc": a + b + c})
    assert len(rules_of(frame)) == 2


def test_many_columns_take_seconds():
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.integers(0, 1000, 5000) for i in range(120)}
    columns["total"] = columns["c17"] + columns["c71"] - columns["c99"]
    assert rules_of(pd.DataFrame(columns)) == {"total = c17 + c71 - c99"}


def test_rows_with_missing_values_cannot_fail_and_the_others_decide():
    frame = flats(3000)
    rng = np.random.default_rng(1)
    for name in ("above", "living", "city"):
        frame.loc[rng.random(3000) < 0.2, name] = None
    assert {"living = above + below", "determines(city, country)"} <= rules_of(frame)


def test_flags_of_which_one_is_set_are_found_in_groups():
    rng = np.random.default_rng(0)
    posted, based = rng.integers(0, 7, (2, 3000))
    flags = {f"post_{i}": (posted == i).astype(int) for i in range(7)}
    flags |= {f"base_{i}": based == i for i in range(7)}
    frame = pd.DataFrame(flags)[sorted(flags, key=lambda name: name[-1])]
    assert rules_of(frame) == {
        "exactly_one(post_0, post_1, post_2, post_3, post_4, post_5, post_6)",
        "exactly_one(base_0, base_1, base_2, base_3, base_4, base_5, base_6)",
    }


def test_of_two_columns_that_fix_each_other_one_relation_is_reported():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 16, 1000)
    frame = pd.DataFrame({"degree": [f"degree {x}" for x in level], "degree-num": level})
    assert rules_of(frame) == {"determines(degree, `degree-num`)"}


def test_of_a_chain_of_functions_only_the_steps_are_reported():
    code = np.random.default_rng(0).integers(0, 12, 1000)
    frame = pd.DataFrame({"a": [f"a{x}" for x in code], "b": [f"b{x // 2}" for x in code],
                          "c": [f"c{x // 4}" for x in code]})  # fmt: skip
    assert rules_of(frame) == {"determines(a, b)", "determines(b, c)"}


def test_exceptions_that_are_a_rule_of_their_own_are_respected():
    rng = np.random.default_rng(0)
    work = rng.choice(["private", "state", None], 20_000, p=[0.6, 0.35, 0.05])
    job = np.where(pd.isna(work), None, rng.choice(["clerk", "sales"], 20_000))
    work[:8], job[:8] = "never", None
    assert rules_of(pd.DataFrame({"work": work, "job": job})) == set()


def test_orderings_are_suggested_and_not_enforced():
    rng = np.random.default_rng(0)
    start = rng.integers(0, 1000, 2000)
    frame = pd.DataFrame({"start": start, "end": start + rng.integers(0, 900, 2000)})
    schema = infer_schema(frame)
    assert (dict(schema.rules), dict(schema.suggested)) == ({}, {"start <= end": 1.0})


def test_relations_are_checked_in_all_rows_of_a_larger_table(monkeypatch):
    monkeypatch.setattr(find, "SEARCHED_ROWS", 300)
    monkeypatch.setattr(find, "CHECKED_ROWS", 1000)
    frame = flats(3500)
    assert rules_of(frame) == RULES
    assert "living = above + below" not in rules_of(frame.assign(
        living=frame["living"].where(np.arange(3500) % 400 > 0, 7)
    ))  # fmt: skip


def test_files_larger_than_memory_have_the_relations_of_the_table(tmp_path):
    for index in range(3):
        pa.parquet.write_table(
            pa.Table.from_pandas(flats(400, index)), tmp_path / f"{index}.parquet"
        )
    model = TabMT(steps=5, **TINY).fit(tmp_path)
    assert set(model.schema_.rules.values()) == RULES
    assert violations(model.sample(300, seed=1)) == 0


# --- what users say -------------------------------------------------------------------------


def test_nothing_is_found_if_users_or_the_paper_say_so():
    assert rules_of(flats(), find_rules=False) == set()
    assert PAPER["find_rules"] is False
    model = TabMT(steps=2, find_rules=False, **TINY).fit(flats())
    assert not model.schema_.rules


def test_rules_of_users_replace_those_that_are_found():
    written = {"order": "above >= below"}
    frame = flats()
    assert dict(infer_schema(frame, overrides={"rules": written}).rules) == written
    assert dict(infer_schema(frame, overrides={"rules": {}}).rules) == {}


def test_a_rule_that_is_removed_from_the_schema_file_stays_removed(tmp_path):
    def run(*arguments):
        result = CliRunner().invoke(main, [str(one) for one in arguments])
        assert result.exit_code == 0, result.output
        return result

    flats().to_csv(tmp_path / "flats.csv", index=False)
    run("schema", tmp_path / "flats.csv", "-o", tmp_path / "schema.json")
    schema = json.loads((tmp_path / "schema.json").read_text())
    assert set(schema["rules"].values()) == RULES
    del schema["rules"]["sum: living"]
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    small = ["--width", 16, "--depth", 1, "--heads", 2, "--steps", 5]
    run("fit", tmp_path / "flats.csv", "-o", tmp_path / "m.tabmt",
        "--schema", tmp_path / "schema.json", *small)  # fmt: skip
    left = TabMT.load(tmp_path / "m.tabmt").schema_
    assert set(left.rules.values()) == RULES - {"living = above + below"}
    assert left.found.keys() == left.rules.keys()
    shown = run("schema", tmp_path / "flats.csv", "--no-find-rules").stdout
    assert "rules" not in json.loads(shown)
    shown = run("info", tmp_path / "m.tabmt").stdout
    assert "determines(city, country)" in " ".join(shown.split())


# --- rows -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["any-order", "masked"])
def model(request) -> TabMT:
    return TabMT(steps=60, network=request.param, **TINY).fit(flats())


def test_what_rules_compute_comes_last_in_training(model):
    fitted = model.model_
    order = order_of_training(fitted.codec, fitted.card.settings, fitted.rules)
    index = fitted.codec.token_index
    assert set(order.computed) == {index["living"], index["country"]}
    assert order.late == ()


def test_of_a_sum_that_may_be_missing_only_that_is_drawn():
    frame = flats()
    frame.loc[::7, "living"] = np.nan
    fitted = TabMT(steps=0, **TINY).fit(frame).model_
    order = order_of_training(fitted.codec, fitted.card.settings, fitted.rules)
    assert order.late == (fitted.codec.token_index["living"],)


def test_generated_rows_satisfy_what_was_found(model):
    assert violations(model.sample(2000, seed=1)) == 0
    made = model.sample(500, seed=2, decode="centre")
    assert violations(made) == 0


def test_generated_rows_without_missing_values_are_of_all_kinds(model):
    made = model.sample(500, seed=1, allow_missing=False)
    assert made.notna().all().all() and set(made["kind"]) == {"single", "shared"}
    assert violations(made[made["kind"] == "shared"]) == 0


def test_a_saved_model_generates_the_same_rows(model, tmp_path):
    model.save(tmp_path / "m.tabmt")
    again = TabMT.load(tmp_path / "m.tabmt")
    pd.testing.assert_frame_equal(model.sample(200, seed=1), again.sample(200, seed=1))


@pytest.mark.parametrize("decode", ["inside", "centre"])
def test_generated_decimals_add_up(decode):
    rng = np.random.default_rng(0)
    cents = rng.integers(1, 100_000, (2, 1000))
    frame = pd.DataFrame({"a": cents[0] / 100, "b": cents[1] / 100, "total": cents.sum(0) / 100})
    made = TabMT(steps=5, **TINY).fit(frame).sample(500, seed=1, decode=decode)
    assert (np.round(100 * made["total"]) == np.round(100 * (made["a"] + made["b"]))).all()
    assert (made["total"] == np.round(made["total"], 2)).all()


def test_conditions_on_both_columns_of_a_tie_hold_with_it(model):
    where = {"visits": between(0, 2), "last_visit": between(-1, 100)}
    made = model.sample(200, where=where, seed=1)
    assert violations(made) == 0 and made["visits"].max() == 2


def test_computed_columns_have_the_types_of_the_table(model):
    made, real = model.sample(100, seed=1), flats()
    assert made.dtypes.equals(real.dtypes)


@pytest.mark.parametrize(
    "where",
    [
        {"living": between(1000, 1200)},
        {"above": between(500, 900)},
        {"country": "NO"},
        {"city": "Lyon"},
        {"last_visit": -1},
        {"visits": 0},
        {"kind": "single"},
    ],
)
def test_conditions_on_any_column_of_a_relation_hold_with_it(model, where):
    made = model.sample(200, where=where, seed=1)
    assert len(made) == 200 and violations(made) == 0
    ((name, wanted),) = where.items()
    if name == "living":
        assert made[name].between(1000, 1200).all()
    elif name == "above":
        assert made[name].between(500, 900).all()
    else:
        assert (made[name] == wanted).all()


def test_balanced_classes_of_a_computed_column_are_consistent(model):
    made = model.sample(100, balance="country", seed=1)
    assert made["country"].value_counts().tolist() == [50, 50] and violations(made) == 0


def test_completed_rows_are_consistent_with_what_is_given(model):
    prompts = pd.DataFrame({"living": [1000, 1500, None], "below": [0, None, 100],
                            "country": ["NO", None, "FR"]})  # fmt: skip
    whole = model.complete(pd.concat([prompts] * 30, ignore_index=True), seed=1)
    assert violations(whole) == 0
    assert whole["living"][0] == 1000 and whole["above"][0] == 1000


def test_rows_like_a_row_are_consistent(model):
    rows = model.like(flats().iloc[3], 50, keep=["living", "city"], seed=1)
    assert violations(rows) == 0 and rows["living"].nunique() == 1


def test_imputed_cells_follow_from_known_ones(model):
    table = flats(60, seed=5)
    gone = table.copy()
    gone["living"] = gone["living"].astype(float)
    gone.loc[::3, "living"] = None
    gone.loc[1::3, "country"] = None
    filled = model.impute(gone, seed=1)
    known = flats(60, seed=5)
    assert (filled["country"] == known["country"]).all()
    assert (filled["living"] == known["living"]).mean() > 0.95  # within the range of training


def test_rules_that_users_write_in_the_new_forms_hold_in_rows_and_prompts():
    frame = flats()
    frame["owned"] = np.random.default_rng(0).integers(0, 2, len(frame))
    frame["rented"] = 1 - frame["owned"]
    rules = {"a": "determines(city, country)", "b": "exactly_one(owned, rented)",
             "c": "visits == 0 if and only if last_visit == -1"}  # fmt: skip
    model = TabMT(steps=20, **TINY).fit(frame, schema={"rules": rules})
    whole = model.complete(pd.DataFrame({"country": ["NO", "FR"] * 20, "visits": [0, 1] * 20}))
    for made in (model.sample(300, seed=1), whole):
        assert ((made["country"] == "NO") == made["city"].isin(["Oslo", "Bergen"])).all()
        assert (made["owned"] + made["rented"] == 1).all()
        assert ((made["last_visit"] == -1) == (made["visits"] == 0)).all()


def test_numbers_in_bins_cannot_be_determined():
    frame = flats()
    frame["area"] = frame["above"] / 7
    sentence = (
        "Rule 'r': determines() needs columns with few distinct values; column 'area' is numeric "
        "and was binned. Set its kind to categorical, or remove the rule."
    )
    with pytest.raises(UserError) as error:
        TabMT(steps=2, **TINY).fit(frame, schema={"rules": {"r": "determines(city, area)"}})
    assert str(error.value) == sentence


# --- likelihood -----------------------------------------------------------------------------


def levels(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    level = rng.integers(0, 4, rows)
    return pd.DataFrame({
        "level": np.array(list("abcd"))[level],
        "group": np.array(["low", "high"])[level // 2],
        "sex": rng.choice(["m", "f"], rows),
    })  # fmt: skip


def test_probabilities_sum_to_one_over_the_rows_that_satisfy_a_function():
    model = TabMT(steps=30, **TINY).fit(levels())
    assert set(model.schema_.rules.values()) == {"determines(level, group)"}
    rows = [(level, group, sex) for level in "abcd" for group in ("low", "high") for sex in "mf"]
    table = pd.DataFrame(rows, columns=["level", "group", "sex"])
    holds = (table["group"] == "low") == table["level"].isin(["a", "b"])
    nats = model.log_prob(table)
    assert np.exp(nats[holds]).sum() == pytest.approx(1.0)
    unseen = nats[~holds] - nats[holds][np.argsort(np.argsort(table[~holds].index))]
    assert nats[~holds].max() < nats[holds].max() - np.log(400) + 1 and len(unseen) == 8


@pytest.mark.parametrize("network", ["any-order", "masked"])
def test_prompted_rows_under_a_function_come_as_often_as_the_network_says(network):
    """Conditions on a free column, on the column that decides, and on the computed one."""
    model = TabMT(steps=40, network=network, **TINY).fit(levels())
    assert set(model.schema_.rules.values()) == {"determines(level, group)"}

    def chances(given: dict[str, str], column: str) -> pd.Series:
        return model.predict_proba(pd.DataFrame([given]), column).iloc[0]

    rows = model.sample(4000, where={"sex": "m"}, seed=1)
    level = chances({"sex": "m"}, "level")
    assert p_value(rows["level"].value_counts().reindex(level.index, fill_value=0), level) > 0.001

    rows = model.sample(4000, where={"level": "c"}, seed=2)
    assert set(rows["group"]) == {"high"}
    sex = chances({"level": "c"}, "sex")  # what is drawn never sees what is computed
    assert p_value(rows["sex"].value_counts().reindex(sex.index, fill_value=0), sex) > 0.001

    rows = model.sample(4000, where={"group": "low"}, seed=3)
    assert set(rows["level"]) == {"a", "b"}
    sex_first, level_first = chances({"group": "low"}, "sex"), chances({"group": "low"}, "level")
    wanted = {}
    for one, other in itertools.product("ab", "mf"):
        later_sex = chances({"group": "low", "level": one}, "sex")[other]
        later_level = chances({"group": "low", "sex": other}, "level")
        wanted[one, other] = (
            level_first[one] / level_first[["a", "b"]].sum() * later_sex
            + sex_first[other] * later_level[one] / later_level[["a", "b"]].sum()
        )
    counts = rows.value_counts(["level", "sex"]).reindex(list(wanted), fill_value=0)
    assert p_value(counts, list(wanted.values())) > 0.001


def test_a_row_that_contradicts_a_relation_is_anomalous_there(model):
    table = flats(20, seed=7)
    wrong = table.assign(living=table["living"] + 10)
    before, after = model.score(table), model.score(wrong)
    assert (after["log_prob"] < before["log_prob"] - np.log(400)).all()
    assert (after["least_likely"] == "living").mean() > 0.9


def test_the_value_that_others_give_is_predicted_with_certainty(model):
    table = flats(40, seed=7)
    shares = model.predict_proba(table, "country")
    assert (shares.to_numpy().max(1) == 1.0).all()
    assert (shares.columns[shares.to_numpy().argmax(1)] == table["country"]).all()
    assert (model.predict_proba(table, "living").to_numpy().max(1) == 1.0).mean() > 0.9
    unknown = model.predict_proba(table.drop(columns="above"), "living").to_numpy()
    assert (unknown.max(1) < 1.0).all()


# --- real tables ----------------------------------------------------------------------------


REAL = {
    "king": {"sqft_living = sqft_above + sqft_basement"},
    "nycflights13": {"sched_dep_time = 100 * hour + minute"},
    "loans_full_schema": {
        "paid_total = paid_principal + paid_interest + paid_late_fees",
        "balance = loan_amount - paid_principal",
        "determines(sub_grade, grade)",
    },
    "facebook_variant1": {
        "cc5 = cc2 - cc3",
        "exactly_one(post_sun, post_mon, post_tue, post_wed, post_thu, post_fri, post_sat)",
        "exactly_one(base_sun, base_mon, base_tue, base_wed, base_thu, base_fri, base_sat)",
    },
    "bank_marketing": {"previous == 0 if and only if pdays == -1"},
    "adult": {"determines(education, `education-num`)"},
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no tables in {FOLDER}; set TABMT_DATA")
@pytest.mark.parametrize("name", REAL)
def test_the_known_relations_of_a_real_table_are_found(name):
    assert rules_of(str(FOLDER / f"{name}.parquet")) >= REAL[name]


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no tables in {FOLDER}; set TABMT_DATA")
@pytest.mark.parametrize("name", REAL)
def test_a_real_table_with_shuffled_columns_has_no_relations(name):
    table = pa.parquet.read_table(FOLDER / f"{name}.parquet")
    rng = np.random.default_rng(0)
    columns = [column.take(rng.permutation(table.num_rows)) for column in table.columns]
    shuffled = pa.table(columns, names=table.column_names)
    schema = infer_schema(shuffled)
    assert (dict(schema.rules), dict(schema.suggested)) == ({}, {})


# --- numbers that determine others ----------------------------------------------------------


def sales(rows: int = 6000, seed: int = 0) -> pd.DataFrame:
    """Sales of 300 products, each with a number, a weight and a price of its own."""
    rng = np.random.default_rng(seed)
    own = np.random.default_rng(9)
    numbers = own.permutation(90_000)[:300] + 10_000
    weight = own.integers(1, 40, 300)
    price = np.round(own.lognormal(3, 1, 300), 2)
    product = rng.choice(300, rows, p=own.dirichlet(np.full(300, 5.0)))
    amount = rng.integers(1, 2000, rows)
    return pd.DataFrame({
        "product": numbers[product],
        "weight": weight[product],
        "price": price[product],
        "amount": amount,
        "size": np.array(["small", "large"])[(amount > 700).astype(int)],
    })  # fmt: skip


SALES_RULES = {"determines(product, weight)", "determines(product, price)"}


def test_a_number_that_is_a_key_determines_other_columns():
    schema = infer_schema(sales())
    assert set(schema.rules.values()) == SALES_RULES  # and sizes follow from bins of the amount
    assert {c.name: c.max_bins for c in schema.columns if c.max_bins} == {
        "product": 300, "price": sales()["price"].nunique(),
    }  # fmt: skip
    assert schema["product"].reason.endswith(
        "; a separate bin for each value, because a found rule needs it"
    )
    assert schema["amount"].max_bins is None


def test_a_maximum_number_of_bins_that_a_user_has_set_is_not_exceeded():
    assert rules_of(sales(), max_bins=50) == set()
    overrides = {"columns": [{"name": "product", "max_bins": 50}]}
    assert not infer_schema(sales(), overrides=overrides).rules


def test_values_of_columns_that_a_key_determines_are_not_tied_too():
    frame = sales()
    frame["box"] = "box " + (frame["product"] % 7).astype(str)
    frame.loc[frame["product"] == frame["product"].mode()[0], "box"] = "crate"  # of one product
    assert {rule.partition("(")[0] for rule in rules_of(frame)} == {"determines"}


@pytest.mark.parametrize("name", ["customer_id", "CustomerID", "patient", "member no", "user-nr"])
def test_numbers_that_may_belong_to_persons_get_no_codes_of_their_own(name):
    schema = infer_schema(sales().rename(columns={"product": name}))
    assert not schema.rules and schema[name].max_bins is None


@pytest.mark.parametrize("seed", range(3))
def test_keys_among_shuffled_columns_determine_nothing(seed):
    rng = np.random.default_rng(seed)
    shuffled = sales(seed=seed).apply(lambda column: rng.permutation(column.to_numpy()))
    assert not infer_schema(shuffled).rules


def test_a_sum_of_columns_that_a_key_determines_is_not_found_twice():
    frame = sales()
    frame["gross"] = frame["weight"] + 7 * (frame["product"] % 13)
    frame["box"] = frame["gross"] - frame["weight"]
    assert rules_of(frame) == {
        *SALES_RULES, "determines(product, gross)", "determines(product, box)",
    }  # fmt: skip


def test_a_key_in_a_sum_is_computed_by_it():
    rng = np.random.default_rng(0)
    hour, minute = rng.integers(0, 24, 9000), 5 * rng.integers(0, 12, 9000)
    frame = pd.DataFrame({"clock": 100 * hour + minute, "hour": hour, "minute": minute})
    assert rules_of(frame) == {"clock = 100 * hour + minute"}


@pytest.fixture(scope="module", params=["any-order", "masked"])
def shop(request) -> TabMT:
    return TabMT(steps=30, network=request.param, **TINY).fit(sales())


def inconsistent(made: pd.DataFrame) -> int:
    real = sales().drop_duplicates("product").set_index("product")
    columns = ["weight", "price"]
    return int((made[columns].to_numpy() != real.loc[made["product"], columns].to_numpy()).sum())


def test_generated_rows_have_what_their_key_determines(shop):
    made = shop.sample(3000, seed=1)
    assert inconsistent(made) == 0 and made["product"].nunique() > 200
    assert inconsistent(shop.sample(300, seed=1, decode="centre")) == 0


def test_few_rows_are_drawn_in_vain_under_a_key(shop, caplog):
    with caplog.at_level("INFO", "tabmt"):
        shop.sample(3000, seed=1)
    drawn = [int(text.replace(",", "")) for text in caplog.text.split() if text[0].isdigit()]
    assert not any("rules: drew" in record.message for record in caplog.records) or (
        max(drawn) < 3300
    )


@pytest.mark.parametrize(
    "where", [{"price": between(5, 20)}, {"weight": 7}, {"amount": between(100, 300)}]
)
def test_conditions_beside_a_key_hold_with_it(shop, where):
    made = shop.sample(200, where=where, seed=1)
    assert len(made) == 200 and inconsistent(made) == 0


def test_a_key_that_is_asked_for_gives_its_values(shop):
    number = int(sales()["product"].value_counts().index[0])
    made = shop.sample(50, where={"product": number}, seed=1)
    assert (made["product"] == number).all() and inconsistent(made) == 0


def test_what_a_key_determines_is_certain_in_the_likelihood(shop):
    table = sales(50, seed=3)
    wrong = table.assign(price=np.roll(table["price"], 1))
    differs = (wrong["price"] != table["price"]).to_numpy()
    known, changed = shop.log_prob(table, seed=0), shop.log_prob(wrong, seed=0)
    assert np.isfinite(known).all()
    # Some products have too few rows for that.
    assert (changed[differs] < known[differs]).mean() > 0.95


def test_keys_of_few_rows_are_not_stored():
    frame = pd.concat([sales(), sales(3, seed=5).assign(product=99_999, price=123.45, weight=3)])
    model = TabMT(steps=5, **TINY).fit(frame.reset_index(drop=True))
    assert set(model.schema_.rules.values()) == SALES_RULES
    made = model.sample(20_000, seed=1)
    assert not (made["product"] == 99_999).any() and not (made["price"] == 123.45).any()


def test_a_written_schema_and_files_larger_than_memory_give_the_same_codes(tmp_path):
    frame = sales()
    frame.to_csv(tmp_path / "sales.csv", index=False)
    schema = infer_schema(str(tmp_path / "sales.csv")).to_json()
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "parts").mkdir()
    for part in range(3):
        rows = pa.Table.from_pandas(frame[part * 2000 : (part + 1) * 2000], preserve_index=False)
        pa.parquet.write_table(rows, tmp_path / "parts" / f"{part}.parquet")
    models = [
        TabMT(steps=2, **TINY).fit(tmp_path / "sales.csv"),
        TabMT(steps=2, **TINY).fit(tmp_path / "sales.csv", schema=tmp_path / "schema.json"),
        TabMT(steps=2, **TINY).fit(tmp_path / "parts"),
    ]
    assert {tuple(model.model_.codec.sizes) for model in models} == {
        tuple(models[0].model_.codec.sizes)
    }
    assert {frozenset(model.schema_.rules.values()) for model in models} == {frozenset(SALES_RULES)}
