"""Conditions on columns of unusual types."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tabmt import TabMT, UserError, between, known, missing, one_of
from tests.conftest import TINY

OSLO = "Europe/Oslo"


def unusual() -> pa.Table:
    rng, rows = np.random.default_rng(0), 200
    hours = pd.date_range("2020-03-01", periods=60 * 24, freq="h", tz=OSLO)
    return pa.table(
        {
            "zoned": pa.array(hours[rng.integers(0, len(hours), rows)]),
            "amount": pa.array(
                [Decimal(int(v)) / 100 for v in rng.integers(0, 5000, rows)], pa.decimal128(9, 2)
            ),
            "date": pa.array(
                [dt.date(2020, 1, 1) + dt.timedelta(int(v)) for v in rng.integers(0, 100, rows)]
            ),
            "time": pa.array(
                [dt.time(int(h), 30) for h in rng.integers(0, 24, rows)], pa.time64("us")
            ),
            "lasts": pa.array(
                [dt.timedelta(minutes=int(v)) for v in rng.integers(0, 500, rows)], pa.duration("s")
            ),
            "tens": pa.array(rng.integers(0, 90, rows) * 10),
            "text": pa.array([f"{v}.5" for v in rng.integers(0, 90, rows)]),
            "code": pa.array(rng.integers(0, 5, rows)),
            "huge": pa.array(2**60 + rng.integers(0, 1000, rows)),
            "void": pa.nulls(rows, pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def model() -> TabMT:
    return TabMT(steps=5, max_bins=4, **TINY).fit(unusual())


def oslo(moment):
    return pd.Timestamp(moment, tz=OSLO)


def minutes(number):
    return dt.timedelta(minutes=number)


UNUSUAL = [
    ({"zoned": "2020-03-20"}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": oslo("2020-03-20")}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": pd.Timestamp("2020-03-20")}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": dt.date(2020, 3, 20)}, oslo("2020-03-20"), oslo("2020-03-20")),
    ({"zoned": between("2020-03-20", "2020-03-21")}, oslo("2020-03-20"), oslo("2020-03-21 23:00")),
    # This day has 23 hours, because clocks are set forward.
    ({"zoned": between("2020-03-29", "2020-03-29")}, oslo("2020-03-29"), oslo("2020-03-29 23:00")),
    (
        {"zoned": between(dt.date(2020, 3, 20), dt.date(2020, 3, 21))},
        oslo("2020-03-20"),
        oslo("2020-03-21 23:00"),
    ),
    ({"amount": Decimal("3.5")}, Decimal("3.50"), Decimal("3.50")),
    ({"amount": 3.5}, Decimal("3.50"), Decimal("3.50")),
    ({"amount": 3}, Decimal("3.00"), Decimal("3.00")),
    ({"amount": "3.5"}, Decimal("3.50"), Decimal("3.50")),
    ({"amount": between(3.333, Decimal("3.36"))}, Decimal("3.34"), Decimal("3.36")),
    ({"amount": one_of(Decimal("1.07"), Decimal("2.5"))}, Decimal("1.07"), Decimal("2.50")),
    ({"date": "2020-02-01"}, dt.date(2020, 2, 1), dt.date(2020, 2, 1)),
    ({"date": between("2020-02-01", "2020-02-03")}, dt.date(2020, 2, 1), dt.date(2020, 2, 3)),
    (
        {"date": between("2020-02-01", dt.date(2020, 2, 4), closed="neither")},
        dt.date(2020, 2, 2),
        dt.date(2020, 2, 3),
    ),
    ({"time": dt.time(12, 30)}, dt.time(12, 30), dt.time(12, 30)),
    ({"time": "12:30:00"}, dt.time(12, 30), dt.time(12, 30)),
    ({"time": "12:30"}, dt.time(12, 30), dt.time(12, 30)),
    ({"time": between(dt.time(10), dt.time(10, 5))}, dt.time(10), dt.time(10, 5)),
    ({"lasts": minutes(30)}, minutes(30), minutes(30)),
    ({"lasts": between(pd.Timedelta("30min"), minutes(33))}, minutes(30), minutes(33)),
    ({"tens": 30}, 30, 30),
    ({"tens": between(25, 44)}, 30, 40),
    ({"tens": between(30, 60, closed="neither")}, 40, 50),
    ({"text": "3.5"}, "3.5", "3.5"),
    ({"text": 3.5}, "3.5", "3.5"),
    ({"text": between(3, "3.2")}, "3.0", "3.2"),
    ({"code": "3"}, 3, 3),
    ({"code": between(1, 3)}, 1, 3),
    ({"code": between(1, 3, closed="neither")}, 2, 2),
    ({"code": between(1.5, 3.5)}, 2, 3),
    ({"huge": 2**60 + 7}, 2**60 + 7, 2**60 + 7),
    ({"huge": between(2**60 + 5, 2**60 + 7)}, 2**60 + 5, 2**60 + 7),
]


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    UNUSUAL,
    ids=[f"{n} {name}" for n, (asked, *_) in enumerate(UNUSUAL) for name in asked],
)
def test_values_and_ranges_of_every_type_are_kept(model, asked, least, most):
    (name,) = asked
    rows = model.sample(400, seed=0, where=asked).column(name).to_pylist()
    assert (min(rows), max(rows)) == (least, most)


def test_a_column_without_values_can_only_be_missing(model):
    assert model.sample(3, seed=0, where={"void": missing()}).column("void").null_count == 3
    for condition in (known(), 3, between(1, 3)):
        with pytest.raises(UserError) as error:
            model.sample(3, seed=0, where={"void": condition})
        assert str(error.value) == (
            "Column 'void' had no known values in the training table, or none frequent enough to "
            "be stored, so a condition can only ask for missing values."
        )


def test_a_value_between_tens_gets_a_sentence_that_names_the_step(model):
    with pytest.raises(UserError) as error:
        model.sample(3, seed=0, where={"tens": 35})
    assert str(error.value) == (
        "The condition on column 'tens' asks for 35, but its values are multiples of 10."
    )
