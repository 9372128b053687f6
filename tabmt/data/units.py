"""Numbers, dates and times as float64 multiples of the smallest step of their column.

Prices are multiples of a cent, ages of a year, timestamps perhaps of a minute. Codecs calculate in
these *units*, whatever the Arrow type; a `Grid` converts a column to units and back exactly. A
float column without such a step is continuous: its units are the values themselves.
"""

import decimal
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.data.arrow_types import is_time, storage_type

MOST_DECIMALS = 10
FEWEST_DECIMALS = -6
LEAST_EVIDENCE = 10  # distinct values, to believe that a column holds multiples of 10
EXACT = 2.0**53  # whole numbers up to here are exact in float64
TIME_STEPS = {  # nanoseconds
    "day": 86_400_000_000_000,
    "hour": 3_600_000_000_000,
    "minute": 60_000_000_000,
    "second": 1_000_000_000,
    "millisecond": 1_000_000,
    "microsecond": 1_000,
    "nanosecond": 1,
}
UNIT_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def too_wide(raw: np.ndarray, step: int = 1) -> bool:
    """Whether the range of stored multiples of `step` is too wide for float64 to be exact."""
    return raw.dtype.kind != "f" and int(raw.max()) - int(raw.min()) >= EXACT * step


def time_too_wide(raw: np.ndarray, dtype: pa.DataType) -> bool:
    return too_wide(raw, _step_in_units(find_time_step(raw, dtype), dtype))


def raw_values(values: pa.Array) -> np.ndarray:
    """Values without nulls, as stored: whole numbers for all types but floats."""
    assert values.null_count == 0
    dtype = values.type
    if pa.types.is_decimal(dtype):
        shift = decimal.Context(prec=80)
        whole = [int(value.scaleb(dtype.scale, shift)) for value in values.to_pylist()]
        return np.array(whole, dtype=np.int64 if _fits_int64(whole) else object)
    if is_time(dtype):
        values = values.cast(storage_type(dtype))
    raw = np.asarray(values.to_numpy(zero_copy_only=False))
    return raw.astype(np.int64) if raw.dtype.kind in "iu" and raw.dtype != np.uint64 else raw


def _fits_int64(whole: list[int]) -> bool:
    return all(-(2**63) <= value < 2**63 for value in whole)


def _unit_nanoseconds(dtype: pa.DataType) -> int:
    if pa.types.is_date32(dtype):
        return TIME_STEPS["day"]
    return UNIT_NANOSECONDS["ms" if pa.types.is_date64(dtype) else dtype.unit]


def _step_in_units(time_step: str, dtype: pa.DataType) -> int:
    return max(1, TIME_STEPS[time_step] // _unit_nanoseconds(dtype))


def find_time_step(raw: np.ndarray, dtype: pa.DataType) -> str:
    """The coarsest unit of time of which all values are multiples."""
    unit = _unit_nanoseconds(dtype)
    for name, nanoseconds in TIME_STEPS.items():
        if nanoseconds <= unit or not np.any(raw % (nanoseconds // unit)):
            return name
    raise AssertionError("every time is a whole number of its own unit")


def local_time(values: pa.Array) -> pa.Array:
    """Timestamps with a time zone as local times; other values as they are."""
    return pc.local_timestamp(values) if getattr(values.type, "tz", None) else values


def in_zone(local: Any, zone: str) -> Any:
    """Local times as moments of a zone. When clocks are set back, an hour that occurs twice is the
    first one; when they are set forward, a time that is skipped becomes the next that exists."""
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")


def time_step(values: pa.Array) -> str:
    """The coarsest unit of time of which all values are multiples, in local time if that is
    coarser: midnights in Oslo are whole days there, but not in UTC."""
    local = local_time(values)
    steps = {find_time_step(raw_values(array), array.type) for array in (values, local)}
    return next(name for name in TIME_STEPS if name in steps)


def find_decimals(raw: np.ndarray, dtype: pa.DataType) -> int | None:
    """The smallest number of decimals that represents every finite value exactly, or None.

    Negative for multiples of 10, 100, ..., which several distinct values have to support.
    """
    if pa.types.is_decimal(dtype):
        return int(dtype.scale)
    if raw.dtype.kind == "f":
        raw = np.unique(raw[np.isfinite(raw)])
        largest = float(np.abs(raw).max(initial=0.0))
        for decimals in range(MOST_DECIMALS + 1):
            if largest >= EXACT / 10.0**decimals:
                return None
            units = np.round(raw.astype(np.float64) * 10.0**decimals)
            back = (units / 10.0**decimals).astype(raw.dtype)
            if np.array_equal(back, raw):
                break
        else:
            return None
        if decimals > 0:
            return decimals
    if pc.count_distinct(pa.array(raw)).as_py() < LEAST_EVIDENCE:
        return 0
    decimals = 0
    while decimals > FEWEST_DECIMALS and not np.any(raw % 10 ** (1 - decimals)):
        decimals -= 1
    return decimals


def _round_below(low: int, high: int, step: int) -> int:
    """The roundest multiple of the step below all values from which float64 counts them exactly;
    the smallest value itself would be a value of some row."""
    size = 2**62
    while size > 1:
        offset = low // (size * step) * (size * step)
        if high - offset < EXACT * step and offset >= -(2**63):
            return offset
        size //= 2
    return low // step * step


@dataclass(frozen=True)
class Grid:
    """Stored whole numbers are offset + step x units; floats are units / 10^decimals.

    With `local`, timestamps are counted in local time.
    """

    dtype: pa.DataType
    decimals: int | None
    step: int = 1
    offset: int = 0
    local: bool = False

    @classmethod
    def find(cls, values: pa.Array, *, decimals: int | None, time_step: str | None) -> "Grid":
        dtype, raw = values.type, raw_values(values)
        if raw.dtype.kind == "f":
            return cls(dtype, decimals)
        local = False
        if time_step is not None:
            step = _step_in_units(time_step, dtype)
            local = getattr(dtype, "tz", None) is not None and bool(np.any(raw % step))
            raw = raw_values(local_time(values)) if local else raw
        elif pa.types.is_decimal(dtype):
            step = 1
        else:
            step = 10 ** max(0, -(decimals or 0))
        assert not too_wide(raw, step)
        low, high = int(raw.min()), int(raw.max())
        # Whole numbers too large for float64 are counted from a round number below the smallest.
        offset = _round_below(low, high, step) if max(abs(low), abs(high)) >= EXACT * step else 0
        return cls(dtype, 0, step, offset, local)

    @property
    def continuous(self) -> bool:
        return self.decimals is None

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.dtype))

    def raw(self, values: pa.Array) -> np.ndarray:
        """The stored numbers that the grid counts in steps."""
        return raw_values(local_time(values) if self.local else values)

    def units(self, values: pa.Array) -> np.ndarray:
        """(n,) float64; whole numbers unless the grid is continuous."""
        raw = self.raw(values)
        if raw.dtype.kind == "f":
            return self._scale(raw.astype(np.float64), up=True)
        if raw.dtype == object:
            return np.array([(value - self.offset) // self.step for value in raw], np.float64)
        if self.offset:
            # Modulo 2^64 no difference overflows.
            raw = (raw.astype(np.uint64) - np.uint64(self.offset % 2**64)) // np.uint64(self.step)
        elif self.step > 1:
            raw = raw // raw.dtype.type(self.step)
        return raw.astype(np.float64)

    def values(self, units: np.ndarray) -> pa.Array:
        """The inverse of `units`."""
        if self.is_float:
            floats = self._scale(units, up=False)
            return pa.array(floats.astype(self.dtype.to_pandas_dtype()), self.dtype)
        if pa.types.is_decimal(self.dtype):
            shift = decimal.Context(prec=80)
            whole = (decimal.Decimal(int(unit) + self.offset) for unit in units)
            return pa.array([value.scaleb(-self.dtype.scale, shift) for value in whole], self.dtype)
        raw: np.ndarray = units.astype(np.int64) * self.step
        if self.offset:
            # Modulo 2^64 no sum overflows.
            raw = raw.astype(np.uint64) + np.uint64(self.offset % 2**64)
        array = pa.array(raw.view(np.uint64 if pa.types.is_uint64(self.dtype) else np.int64))
        if self.local:
            return in_zone(array.cast(pa.timestamp(self.dtype.unit)), self.dtype.tz)
        return array.cast(storage_type(self.dtype)).cast(self.dtype)

    def _scale(self, numbers: np.ndarray, *, up: bool) -> np.ndarray:
        """Values to units (`up`) or back. Only ever by powers of ten that float64 holds exactly."""
        if self.decimals is None:
            return numbers
        power = 10.0 ** abs(self.decimals)
        if up:
            return np.round(numbers * power if self.decimals >= 0 else numbers / power)
        return numbers / power if self.decimals >= 0 else numbers * power
