import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tabmt.data.arrow_types import is_time
from tabmt.data.units import (
    Grid,
    find_decimals,
    find_time_step,
    raw_values,
    time_step,
    too_wide,
)

COLUMNS = [
    (pa.array([0.1, 2.25, -3.5]), 2, None),
    (pa.array([0.1, 0.2, 5e9], pa.float32()), 1, None),
    (pa.array([1 / 3, 2.0]), None, None),
    (pa.array([100 * i for i in range(20)]), -2, None),
    (pa.array([1000.0 * i for i in range(20)]), -3, None),
    (pa.array([100, 200]), 0, None),  # too few values to be sure of hundreds
    (pa.array([1, -5], pa.int8()), 0, None),
    (pa.array([2**63 - 1, 2**63 - 5]), 0, None),
    (pa.array([2**64 - 1, 2**64 - 9], pa.uint64()), 0, None),
    (pa.array([-(2**63), -(2**63) + 5]), 0, None),
    (pa.array([Decimal("1.50"), Decimal("-99.25")]), 2, None),
    (pa.array([dt.date(1066, 10, 14), dt.date(2020, 1, 1)]), None, "day"),
    (pa.array([dt.datetime(1066, 10, 14, 10), dt.datetime(2020, 1, 1)]), None, "hour"),
    (pa.array([1_700_000_000_123_456_789, 1_700_000_000_000_000_000], pa.timestamp("ns")), None,
     "nanosecond"),
    (pa.array([dt.time(10, 30), dt.time(1)]), None, "minute"),
    (pa.array([dt.timedelta(hours=1), dt.timedelta(hours=30)]), None, "hour"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "decimals", "step"), COLUMNS)
def test_the_grid_of_a_column_is_found_and_converts_back_exactly(values, decimals, step):
    raw = raw_values(values)
    if is_time(values.type):
        assert find_time_step(raw, values.type) == step
    else:
        assert find_decimals(raw, values.type) == decimals
    grid = Grid.find(values, decimals=decimals, time_step=step)
    units = grid.units(values)
    assert grid.continuous == (decimals is None and step is None)
    assert grid.continuous or np.array_equal(units, np.round(units))
    assert grid.values(units).equals(values)


def test_a_range_of_whole_numbers_beyond_float64_is_too_wide():
    assert too_wide(np.array([-(2**63), 2**63 - 1]))
    assert not too_wide(np.array([2**63 - 1, 2**63 - 1000]))


def test_midnights_of_a_time_zone_are_whole_days():
    days = pa.array([dt.datetime(2020, month, 1) for month in range(1, 13)], pa.timestamp("us"))
    values = pc.assume_timezone(days, "Europe/Oslo")
    assert find_time_step(raw_values(values), values.type) == "hour"  # in UTC
    assert time_step(values) == "day"
    grid = Grid.find(values, decimals=None, time_step="day")
    assert grid.local and grid.values(grid.units(values)).equals(values)
    between = grid.values(np.arange(grid.units(values)[0], grid.units(values)[-1]))
    assert {moment.hour for moment in between.to_pylist()} == {0}


def test_hours_of_a_time_zone_are_counted_in_utc():
    hours = pa.array([1_600_000_000 + 3600 * i for i in range(48)], pa.timestamp("s", "Asia/Tokyo"))
    hours = pc.floor_temporal(hours, unit="hour")
    assert time_step(hours) == "hour"
    assert not Grid.find(hours, decimals=None, time_step="hour").local
