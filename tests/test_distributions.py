"""The pictures of the page: shares of rows in bins, also of numbers and dates that are text."""

import numpy as np
import pandas as pd
import pytest

from tabmt import TabMT
from tests.conftest import TINY

pytest.importorskip("fastapi")


def test_numbers_and_dates_that_are_text_have_bins(tmp_path):
    from tabmt.serve.distributions import Baseline

    amounts = np.random.default_rng(0).gamma(3, 900, 400)
    pd.DataFrame({
        "price": [f"${amount:,.2f}" for amount in amounts],
        "day": pd.date_range("2020-01-01", periods=400).strftime("%d.%m.%Y"),
        "gap": ["NA" if row % 9 == 0 else str(row / 10) for row in range(400)],
        "share": [f"{row % 90}%" for row in range(400)],
        "moment": pd.date_range("2020-01-01", periods=400, tz="Europe/Berlin").astype(str),
    }).to_csv(tmp_path / "table.csv", index=False)  # fmt: skip
    baseline = Baseline.of(TabMT(steps=10, **TINY).fit(tmp_path / "table.csv"))
    forms = {axis.name: axis.form for axis in baseline.axes}
    assert forms == {
        "price": "numbers", "day": "dates", "gap": "numbers", "share": "numbers", "moment": "dates",
    }  # fmt: skip
    for column in baseline.columns:
        total = sum(column["shares"]) + column["others"] + column["missing"]
        assert total == pytest.approx(1, abs=1e-3), column["name"]
    missing = {column["name"]: column["missing"] for column in baseline.columns}
    assert missing.pop("gap") > 0 and set(missing.values()) == {0.0}
