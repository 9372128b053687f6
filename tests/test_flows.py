"""Simulated traffic satisfies the invariants and is the same however it is divided."""

import numpy as np

from benchmarks.flows import flows, part_of
from tabmt.netflow import FIELDS, INVARIANTS
from tabmt.rules.rule import Rule


def test_simulated_flows_satisfy_all_invariants_and_have_the_papers_fields():
    table = part_of(20_000, seed=0, number=0)
    assert tuple(table.column_names) == FIELDS
    values = {name: np.array(table.column(name).to_pylist()) for name in FIELDS}
    values = {n: v.astype(float) if v.dtype.kind in "if" else v for n, v in values.items()}
    missing = dict.fromkeys(values, np.zeros(20_000, bool))
    for name, text in INVARIANTS.items():
        assert not np.any(Rule.parse(name, text).violations(values, missing)), name
    distinct = {name: len(np.unique(values[name])) for name in FIELDS}
    assert distinct["src_ip"] > 3000 and distinct["src_port"] > 5000 and distinct["bytes"] > 5000
    assert {"192.168.100.255", "224.0.0.1"} <= set(values["dst_ip"])


def test_a_part_is_drawn_from_its_number():
    assert part_of(50, 0, 3).equals(part_of(50, 0, 3))
    assert not part_of(50, 0, 3).equals(part_of(50, 0, 4))
    (only,) = flows(60)
    assert only.equals(part_of(60, 0, 0))
