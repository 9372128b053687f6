"""Columns of numbers, dates and times as float64 multiples of their own smallest step.

A price lives on a grid of cents, an age on whole years, a timestamp perhaps on minutes. Codecs
calculate in these *units*, whatever the Arrow type; `Grid` takes a column there and back exactly.
A float column whose values follow no decimal grid is continuous: its units are the values.
"""

import decimal
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOST_DECIMALS = 10
FEWEST_DECIMALS = -6
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
    """Whether stored multiples of `step` lie too far apart to be told apart in float64."""
    return raw.dtype.kind != "f" and int(raw.max()) - int(raw.min()) >= EXACT * step


def time_too_wide(raw: np.ndarray, dtype: pa.DataType) -> bool:
    return too_wide(raw, _step_in_units(find_time_step(raw, dtype), dtype))


def is_time(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(dtype)) and not pa.types.is_interval(dtype)


def is_number(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    )


def whole_type(dtype: pa.DataType) -> pa.DataType:
    """The integers that a type of whole numbers, dates or times is stored as."""
    if not is_time(dtype):
        return dtype
    return pa.int32() if pa.types.is_date32(dtype) or pa.types.is_time32(dtype) else pa.int64()


def raw_values(values: pa.Array) -> np.ndarray:
    """Values without gaps, as stored: whole numbers for all types but floats."""
    assert values.null_count == 0
    dtype = values.type
    if pa.types.is_decimal(dtype):
        shift = decimal.Context(prec=80)
        whole = [int(value.scaleb(dtype.scale, shift)) for value in values.to_pylist()]
        return np.array(whole, dtype=np.int64 if _fits_int64(whole) else object)
    if is_time(dtype):
        values = values.cast(whole_type(dtype))
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
    """The coarsest step of time that all values are multiples of."""
    unit = _unit_nanoseconds(dtype)
    for name, nanoseconds in TIME_STEPS.items():
        if nanoseconds <= unit or not np.any(raw % (nanoseconds // unit)):
            return name
    raise AssertionError("every time is a whole number of its own unit")


def on_the_clock(values: pa.Array) -> pa.Array:
    """Moments of a time zone as its clocks show them; other values as they are."""
    return pc.local_timestamp(values) if getattr(values.type, "tz", None) else values


def time_step(values: pa.Array) -> str:
    """The coarsest step of time that all values are multiples of, on the clocks of their zone if
    that is coarser: midnights in Oslo are whole days there, but not in UTC."""
    local = on_the_clock(values)
    steps = {find_time_step(raw_values(one), one.type) for one in (values, local)}
    return next(name for name in TIME_STEPS if name in steps)


def find_decimals(raw: np.ndarray, dtype: pa.DataType) -> int | None:
    """The fewest decimals that write every finite value exactly; None if there is no such number.

    Negative for multiples of 10, 100, ..., which is believed only of ten distinct values or more.
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
    if len(np.unique(raw[:1000])) < 10:
        return 0
    decimals = 0
    while decimals > FEWEST_DECIMALS and not np.any(raw % 10 ** (1 - decimals)):
        decimals -= 1
    return decimals


@dataclass(frozen=True)
class Grid:
    """Stored whole numbers are offset + step x units; floats are units / 10^decimals.

    With `local`, what is stored of a moment is what the clocks of its zone show.
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
            raw = raw_values(on_the_clock(values)) if local else raw
        elif pa.types.is_decimal(dtype):
            step = 1
        else:
            step = 10 ** max(0, -(decimals or 0))
        assert not too_wide(raw, step)
        low, high = int(raw.min()), int(raw.max())
        # Whole numbers too large for float64 are counted from the smallest one.
        offset = low if max(abs(low), abs(high)) >= EXACT * step else 0
        return cls(dtype, 0, step, offset, local)

    @property
    def continuous(self) -> bool:
        return self.decimals is None

    def raw(self, values: pa.Array) -> np.ndarray:
        """Values as stored, which the grid counts."""
        return raw_values(on_the_clock(values) if self.local else values)

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
        if pa.types.is_floating(self.dtype):
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
            # An hour that the clocks show twice is the first, one that they skip the next.
            moments = array.cast(pa.timestamp(self.dtype.unit))
            return pc.assume_timezone(
                moments, self.dtype.tz, ambiguous="earliest", nonexistent="latest"
            )
        return array.cast(whole_type(self.dtype)).cast(self.dtype)

    def _scale(self, numbers: np.ndarray, *, up: bool) -> np.ndarray:
        """Values to units (`up`) or back. Only ever by powers of ten that float64 holds exactly."""
        if self.decimals is None:
            return numbers
        power = 10.0 ** abs(self.decimals)
        if up:
            return np.round(numbers * power if self.decimals >= 0 else numbers / power)
        return numbers / power if self.decimals >= 0 else numbers * power
