import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.neighbors import NearestNeighbors

from tabmt.data.infer import infer_schema
from tabmt.evaluation.metrics import attacks
from tabmt.evaluation.metrics.attacks import AttackedRows, Predicates
from tabmt.evaluation.metrics.encoder import MetricEncoder
from tests.tables import people


def attacked(synthetic, train, control, most=1000) -> AttackedRows:
    tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in (train, control)]
    encoder = MetricEncoder.fit(tables[0], infer_schema(tables[0]))
    rows = pa.Table.from_pandas(synthetic, preserve_index=False)
    return AttackedRows(
        encoder.encode(rows, "synthetic"),
        encoder.encode(tables[0], "training"),
        encoder.encode(tables[1], "test"),
        seed=0,
        most=most,
    )


@pytest.fixture(scope="module")
def real():
    return people(600, 0), people(500, 1), people(600, 2)


def test_every_attack_finds_copies(real):
    train, control, _ = real
    for guesses in attacks.all_attacks(attacked(train, train, control)):
        result = guesses.result()
        assert result.risk_low > 0.5 and result.auc_low > 0.7, guesses.name
        assert result.true_positives_1 > 0.5 and result.true_positives_10 > 0.6, guesses.name
        assert min(guesses.p_values().values()) < 1e-6, guesses.name
        assert result.risk_low <= result.risk <= result.risk_high


def test_no_attack_finds_anything_in_fresh_rows(real):
    train, control, fresh = real
    found = attacks.all_attacks(attacked(fresh, train, control))
    assert [guesses.name for guesses in found] == [
        "nearest neighbour", "density ratio", "singling out", "linkability", "inference"
    ]  # fmt: skip
    for guesses in found:
        result = guesses.result()
        assert result.risk < 0.1 and abs(result.auc - 0.5) < 0.06, guesses.name
        assert min(guesses.p_values().values()) > 0.003, guesses.name


def test_a_tenth_of_copied_rows_has_a_risk_of_about_a_tenth(real):
    train, control, fresh = real
    rows = pd.concat([fresh[60:], train[:60]], ignore_index=True)
    by_name = {g.name: g.result() for g in attacks.all_attacks(attacked(rows, train, control))}
    for name in ("nearest neighbour", "density ratio", "linkability"):
        assert by_name[name].risk == pytest.approx(0.1, abs=0.04)


def test_linkability_is_what_its_definition_says(real):
    train, control, fresh = real
    rows = attacked(fresh, train, control)
    found = attacks.linkability(rows)
    names = attacks._by_detail(rows.synthetic)
    closest = []
    for half in (names[0::2], names[1::2]):
        own, synthetic = (table.robust_columns(half) for table in (rows.train, rows.synthetic))
        search = NearestNeighbors(n_neighbors=1).fit(synthetic)
        closest.append(search.kneighbors(own, return_distance=False)[:, 0])
    assert (found.member_success == (closest[0] == closest[1])).mean() > 0.99


def test_a_secret_is_inferred_from_the_closest_row_in_the_other_columns():
    train = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": list("abcd"), "z": [5.5, 6.5, 7.5, 9.5]})
    control = pd.DataFrame({"x": [9.0, 8.0], "y": list("zz"), "z": [0.5, 0.25]})
    found = attacks.inference(attacked(train, train, control))
    assert found.member_success.all()
    assert not found.other_success.any()


def test_a_predicate_that_one_row_satisfies_singles_it_out(real):
    train, control, _ = real
    rows = attacked(train, train, control)
    predicate = (("income", "at least", float(train["income"].max())), ("city", "is", 0))
    chosen = attacks._satisfying(rows.train, predicate)
    richest = train["income"] == train["income"].max()
    expected = richest & (train["city"] == rows.train.encoder.categories["city"][0])
    assert chosen.tolist() == expected.tolist()
    missing = attacks._satisfying(rows.train, (("score", "missing", 0.0),))
    assert missing.tolist() == train["score"].isna().tolist()


def test_predicates_single_out_as_many_training_rows_by_chance_as_control_rows():
    fair = Predicates(tried=1000, members=400, others=100, member_share=0.8)
    (risk, low, high), success, chance = fair.risk()
    assert risk == pytest.approx(0) and low == 0 and 0 < high < 0.2
    assert (success, chance) == pytest.approx((0.4, 0.4))
    leak = Predicates(tried=1000, members=900, others=0, member_share=0.8)
    assert leak.risk()[0][0] == pytest.approx(0.9)


def test_tables_too_small_for_an_attack_have_fewer_attacks():
    one = pd.DataFrame({"x": [0.5, 1.5, 2.25, 9.5, 7.5]})
    names = [g.name for g in attacks.all_attacks(attacked(one, one, one[:2]))]
    assert names == ["nearest neighbour", "singling out"]


def test_numbers_keep_their_distances_beside_an_extreme_value(real):
    train, control, _ = real
    plain = attacked(train, train, control).train
    train = train.copy()
    train.loc[0, "income"] = 1e15
    extreme = attacked(train, train, control).train
    change = extreme.robust_columns(["income"])[1:] - plain.robust_columns(["income"])[1:]
    assert np.abs(change).max() < 0.02
    assert np.ptp(extreme.matrix[1:, 2]) < 1e-6  # by the range, all other incomes are equal
