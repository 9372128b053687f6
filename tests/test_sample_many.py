"""Several requests that are drawn in one go: each has its own rows, under its own conditions."""

import numpy as np
import pandas as pd
import pytest
import torch

from tabmt import TabMT, between, missing
from tabmt.errors import UserError
from tabmt.model.generate import LEAST_CHUNK
from tabmt.model.sample_many import MOST_ROWS, Asked, _rows_by_order
from tests.conftest import TINY
from tests.prompted import chances, follows


@pytest.fixture(scope="module")
def pairs():
    """A model of two columns that depend on each other, and gaps."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 600)
    size = 4 * kind + rng.integers(0, 6, 600)
    table = pd.DataFrame({"kind": np.array(["ant", "bee", None])[kind], "size": size})
    return TabMT(steps=150, seed=0, protect=0, **TINY).fit(table)


def test_each_request_has_its_own_rows_under_its_own_conditions(fitted):
    asked = [
        (3, {"group": "a", "height": between(150, 158)}),
        (0, None),
        (130, ["group in {b, c}"]),
        (5, None),
        (7, {"city": missing()}),
        (3, {"group": "a", "height": between(150, 158)}),
    ]
    tables = fitted.sample_many(asked, seed=1)
    assert [len(table) for table in tables] == [3, 0, 130, 5, 7, 3]
    for table in (tables[0], tables[5]):
        assert set(table["group"]) == {"a"} and table["height"].between(150, 158).all()
    assert set(tables[2]["group"]) == {"b", "c"}
    assert tables[4]["city"].isna().all()
    assert not tables[0].equals(tables[5])
    again = fitted.sample_many(asked, seed=1)
    assert all(one.equals(other) for one, other in zip(tables, again, strict=True))
    assert fitted.sample_many([]) == []


def test_conditions_are_given_to_the_network_before_the_other_columns(pairs):
    asked = [(3000, {"kind": "ant"}), (3000, {"size": 9}), (3000, {"kind": missing()})]
    ants, nines, gaps = pairs.sample_many(asked, seed=1)
    assert follows(ants, "size", chances(pairs, "size", {"kind": "ant"})) > 1e-4
    assert follows(gaps, "size", chances(pairs, "size", {"kind": None})) > 1e-4
    assert follows(nines, "kind", chances(pairs, "kind", {"size": 9})) > 1e-4
    assert follows(ants, "size", chances(pairs, "size", {"kind": "bee"})) < 1e-12


def test_every_request_has_as_many_orders_as_by_itself(pairs):
    asked = [Asked(rows, 0) for rows in (1, 130, 10, 0, 2000)]
    counts = _rows_by_order(pairs.model_, asked, False)
    assert counts.sum(0).tolist() == [1, 130, 10, 0, 2000]
    orders = (counts > 0).sum(0)
    assert orders[1] >= 3 and orders[4] >= 2000 // LEAST_CHUNK
    many = _rows_by_order(pairs.model_, [Asked(1, 0)] * 9000, False)  # memory is bounded
    assert many.sum() == 9000 and many.sum(1).max() <= MOST_ROWS


def test_rules_hold_for_every_request():
    rng = np.random.default_rng(0)
    schema = {"rules": {"order": "low <= high"}}
    low = rng.integers(0, 9, 300)
    table = pd.DataFrame({"low": low, "high": low + rng.integers(0, 5, 300), "flag": low % 2 == 0})
    model = TabMT(steps=30, find_rules=False, **TINY).fit(table, schema=schema)
    first, second = model.sample_many([(40, {"flag": True}), (90, {"low": between(2, 5)})], seed=1)
    assert len(first) == 40 and first["flag"].all() and (first["low"] <= first["high"]).all()
    assert len(second) == 90 and second["low"].between(2, 5).all()
    assert (second["low"] <= second["high"]).all()


def test_a_mistake_in_one_request_is_one_sentence(pairs):
    with pytest.raises(UserError, match="asks for 'wasp', which is not a value of this model"):
        pairs.sample_many([(1, None), (1, {"kind": "wasp"})])


def test_everything_is_computed_with_the_threads_of_the_model(pairs):
    """Threads that wait for each other on a busy machine made small samples ten times slower."""
    used = []
    smoothing = pairs.model_.net.embedding.smoothing
    hook = smoothing.register_forward_hook(lambda *_: used.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        pairs.sample(2, where={"size": between(2, 5), "kind": missing()}, seed=1)
        pairs.sample(2, where=["size in 2..5", "kind in {ant, bee}"], seed=1)
        pairs.complete({"kind": "ant"}, seed=1)
    finally:
        torch.set_num_threads(1)
        hook.remove()
    assert used and set(used) == {1}
