"""Conditions held against a column's codes: how much of each code they allow, and where inside.

For `generate`: `weights` steer the drawing of codes, `within` the drawing of numbers inside them.
A value that no code has, or a range that holds none, is an error that names what is there.
"""

import datetime as dt
import decimal
import difflib
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.codec.columns import (
    CategoricalCodec,
    CodedColumn,
    ConstantCodec,
    NumericCodec,
    TableCodec,
)
from tabmt.conditions.condition import Condition, one_of
from tabmt.data import text_formats as text
from tabmt.data.schema import but_the_table_has
from tabmt.data.units import is_number, is_time
from tabmt.errors import UserError


@dataclass(frozen=True)
class Prompt:
    """What a condition leaves of one column."""

    column: str
    weights: np.ndarray  # (K,) in [0, 1]: share of each code that is allowed
    low: float = -math.inf  # numbers: what is drawn lies here, in units
    high: float = math.inf
    choices: np.ndarray | None = None  # numbers: or is one of these, in units

    @property
    def exact(self) -> bool:
        """Whether only one code is left."""
        return int((self.weights > 0).sum()) == 1

    def admits(self, units: np.ndarray) -> np.ndarray:
        """(n,) bool: which numbers the condition allows."""
        if self.choices is not None:
            return np.isin(units, self.choices)
        return (units >= self.low) & (units <= self.high)

    def within(
        self, codes: np.ndarray, coded: CodedColumn, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of each drawn number, (n,) and (n,)."""
        if self.choices is None:
            return np.full(len(codes), self.low), np.full(len(codes), self.high)
        assert isinstance(coded.codec, NumericCodec)
        own, _ = coded.codec.codes.encode(self.choices)
        chance = _point_weights(coded.codec, self.choices)
        picked = np.zeros(len(codes))
        for code in np.unique(codes):
            here = np.flatnonzero(own == code)
            if len(here) == 0:  # the missing code
                continue
            rows = np.flatnonzero(codes == code)
            shares = chance[here] / chance[here].sum()
            picked[rows] = rng.choice(self.choices[here], len(rows), p=shares)
        return picked, picked


def compile_conditions(codec: TableCodec, asked: Mapping[str, Condition]) -> dict[str, Prompt]:
    """The prompts of token columns; conditions on other columns are checked and then done with."""
    names = codec.schema.names
    found = {}
    for name, condition in asked.items():
        if name not in names:
            raise UserError(f"A condition names column {name!r}, {but_the_table_has(name, names)}")
        coded = codec.coded[names.index(name)]
        weights, bounds = _weigh(coded, condition)
        if coded.has_tokens:
            found[name] = Prompt(name, weights, **bounds)
    return found


def _weigh(coded: CodedColumn, condition: Condition) -> tuple[np.ndarray, dict[str, Any]]:
    """(K,) weights of all codes, the missing one too, and bounds inside codes."""
    name, missing = coded.column.name, coded.missing_code
    weights = np.zeros(coded.size)
    if isinstance(coded.codec, ConstantCodec) and len(coded.codec.values) == 0:
        if condition.gap:
            return weights, {}
        raise UserError(f"Column {name!r} has nothing but gaps, so it can only be missing.")
    if condition.gap:
        if missing is None:
            raise UserError(_no_gaps(coded))
        weights[missing] = 1.0
        return weights, {}
    if condition.values is None and condition.low is None and condition.high is None:
        weights[: coded.codec.size] = 1.0
        return weights, {}
    match coded.codec:
        case NumericCodec():
            own, bounds = _weigh_numbers(coded, coded.codec, condition)
        case CategoricalCodec() | ConstantCodec():
            own, bounds = _weigh_categories(coded, coded.codec.values, condition), {}
        case _:
            raise UserError(
                f"Column {name!r} is an id, which is regenerated for every row; it cannot be "
                "asked for. Set its kind in the schema if its values mean something."
            )
    weights[: len(own)] = own
    return weights, bounds


def _no_gaps(coded: CodedColumn) -> str:
    name = coded.column.name
    if coded.column.gaps == "masked":
        return (
            f"Column {name!r} is asked to be missing, but its gaps were masked when the model was "
            "made, so it never generates any; fit with gaps learned."
        )
    return f"Column {name!r} is asked to be missing, but it had no gaps in the training table."


def _weigh_categories(coded: CodedColumn, words: pa.Array, condition: Condition) -> np.ndarray:
    name = coded.column.name
    if condition.values is not None:
        allowed = np.zeros(len(words))
        for value in condition.values:
            code = pc.index(words, _read(coded, value)).as_py()
            if code < 0:
                raise UserError(_unknown(name, value, words))
            allowed[code] = 1.0
        return allowed
    if not (is_number(words.type) or is_time(words.type)):
        raise UserError(
            f"Column {name!r} is asked for by a range, but holds {_kind(words.type)}; "
            f"name its values: {_listed(words)}."
        )
    met = np.ones(len(words), bool)
    for bound, keeps in (
        (condition.low, operator.gt if condition.low_open else operator.ge),
        (condition.high, operator.lt if condition.high_open else operator.le),
    ):
        if bound is not None:
            limit = _limit(coded, bound, words.type)
            met &= np.array([keeps(word, limit) for word in words.to_pylist()], bool)
    if not met.any():
        raise UserError(_empty(name, condition, words[0].as_py(), words[-1].as_py()))
    return met.astype(np.float64)


def _weigh_numbers(
    coded: CodedColumn, codec: NumericCodec, condition: Condition
) -> tuple[np.ndarray, dict[str, Any]]:
    name, grid, codes = coded.column.name, codec.grid, codec.codes
    least, most = (_show(codec, unit) for unit in codes.extent)
    if condition.values is not None:
        scalars = [_read(coded, value) for value in condition.values]
        units = np.unique(grid.units(pa.array(scalars, grid.dtype)))
        if not grid.values(units).equals(_sorted(pa.array(scalars, grid.dtype))):
            listed = ", ".join(str(value) for value in condition.values)
            raise UserError(
                f"Column {name!r} is asked to be {listed}, but its values are {_step(coded)}."
            )
        own, outside = codes.encode(units)
        if outside.any():
            value = _show(codec, units[outside][0])
            raise UserError(
                f"Column {name!r} is asked to be {value}, which the model does not know; nearest "
                f"{_around(codec, units[outside][0])}, and it knows {least} to {most}."
            )
        if len(units) == 1:
            return np.bincount(own, minlength=codes.size).astype(float), {"choices": units}
        weights = np.bincount(own, _point_weights(codec, units), minlength=codes.size)
        return np.clip(weights, 0.0, 1.0), {"choices": units}
    low = -math.inf if condition.low is None else _bound(coded, codec, condition.low)
    high = (
        math.inf
        if condition.high is None
        else _bound(coded, codec, condition.high, whole_day=not condition.high_open)
    )
    if grid.continuous:
        low = np.nextafter(low, math.inf) if condition.low_open else low
        high = np.nextafter(high, -math.inf) if condition.high_open else high
    else:
        if math.isfinite(low):
            low = math.floor(low) + 1 if condition.low_open else math.ceil(low)
        if math.isfinite(high):
            high = math.ceil(high) - 1 if condition.high_open else math.floor(high)
    weights = codes.shares(np.array([low]), np.array([high]))[0]
    if not (weights > 0).any():
        raise UserError(_empty(name, condition, least, most))
    return weights, {"low": float(low), "high": float(high)}


def _point_weights(codec: NumericCodec, units: np.ndarray) -> np.ndarray:
    own, _ = codec.codes.encode(units)
    return np.asarray(np.maximum(codec.codes.point_shares(units, own), 1e-12))


def _sorted(values: pa.Array) -> pa.Array:
    distinct = pc.unique(values)
    return distinct.take(pc.sort_indices(distinct))


def _show(codec: NumericCodec, unit: float) -> Any:
    return codec.grid.values(np.array([unit]))[0].as_py()


def _around(codec: NumericCodec, unit: float) -> str:
    """The values on both sides of one that no code has."""
    centres, edges = codec.codes.centres, codec.codes.edges
    points = np.concatenate([centres[codec.codes.atom], edges])
    below, above = points[points < unit], points[points > unit]
    sides = [*([below.max()] if len(below) else []), *([above.min()] if len(above) else [])]
    named = " and ".join(str(_show(codec, side)) for side in sides)
    return f"{'is' if len(sides) == 1 else 'are'} {named}"


def _bound(
    coded: CodedColumn, codec: NumericCodec, value: Any, *, whole_day: bool = False
) -> float:
    """A bound in units, which need not be a value of the column."""
    grid = codec.grid
    if is_time(grid.dtype):
        scalar = _read(coded, value)
        # A day that ends a range of moments ends when the day does: before the next one.
        ends_later = whole_day and pa.types.is_timestamp(grid.dtype) and _is_day(value)
        if ends_later:
            zone = grid.dtype.tz
            local = pc.local_timestamp(scalar) if zone is not None else scalar
            scalar = pc.add(
                local, pa.scalar(dt.timedelta(days=1)).cast(pa.duration(grid.dtype.unit))
            )
            if zone is not None:
                scalar = _in_zone(scalar, zone)
        raw = int(grid.raw(pa.array([scalar.as_py()], grid.dtype))[0]) - ends_later
        return (raw - grid.offset) / grid.step
    number = _decimal(value)
    if number is None:
        raise UserError(_not_of_type(coded, value))
    if pa.types.is_floating(grid.dtype) or pa.types.is_decimal(grid.dtype):
        digits = grid.dtype.scale if pa.types.is_decimal(grid.dtype) else grid.decimals
        return float(number if digits is None else number.scaleb(digits))
    return float((number - grid.offset) / grid.step)


def _decimal(value: Any) -> decimal.Decimal | None:
    """A number by way of what is written: 0.3 is three tenths, and no digit of a whole number is
    lost. None if it is none."""
    try:
        number = decimal.Decimal(str(value))
    except decimal.InvalidOperation:
        return None
    return None if number.is_nan() else number


def _is_day(value: Any) -> bool:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str):
        return ":" not in value
    return not hasattr(value, "hour")


def _limit(coded: CodedColumn, value: Any, dtype: pa.DataType) -> Any:
    """A bound of categories, which need not be one, to compare them with."""
    if not is_number(dtype):
        return _read(coded, value).as_py()
    number = _decimal(value)
    if number is None:
        raise UserError(_not_of_type(coded, value))
    return float(number) if pa.types.is_floating(dtype) else number


def _step(coded: CodedColumn) -> str:
    decimals = coded.column.decimals
    if decimals is not None and decimals < 0:
        return f"multiples of {10**-decimals}"
    if coded.column.time_step is not None:
        return f"whole {coded.column.time_step}s"
    return f"rounded to {decimals} decimal{'s' * (decimals != 1)}"


def _read(coded: CodedColumn, value: Any) -> pa.Scalar:
    """A value that a user gave, in the type of the column's values."""
    codec, fmt = coded.codec, coded.column.format
    dtype = codec.grid.dtype if isinstance(codec, NumericCodec) else codec.values.type
    if hasattr(value, "item"):
        value = value.item()  # numpy
    if value is None or str(value) == "<NA>" or value != value:
        raise UserError(
            f"Column {coded.column.name!r} is asked to be {value}; missing() asks for a gap."
        )
    if isinstance(value, str) and value == coded.column.gap_text:
        raise UserError(
            f"Column {coded.column.name!r} is asked to be {value!r}, which spells a gap there; "
            "missing() asks for one, `is missing` on the command line, not together with values."
        )
    try:
        if isinstance(value, str) and not text.is_text(dtype):
            return _from_text(value, dtype, fmt)
        if text.is_text(dtype) and not isinstance(value, str):
            raise pa.ArrowInvalid("not text")
        if isinstance(value, bool) != pa.types.is_boolean(dtype):
            raise pa.ArrowInvalid("not of this type")
        if isinstance(value, int) and pa.types.is_decimal(dtype):
            value = decimal.Decimal(value)
        array = pa.array([value])
        if getattr(dtype, "tz", None) is not None and getattr(array.type, "tz", None) is None:
            # A moment without a zone is one of the column's own.
            array = _in_zone(array.cast(pa.timestamp(dtype.unit)), dtype.tz)
        return array.cast(dtype)[0]
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise UserError(_not_of_type(coded, value)) from error


def _in_zone(moments: Any, zone: str) -> Any:
    """What clocks show as moments: an hour shown twice is the first, a skipped one the next."""
    return pc.assume_timezone(moments, zone, ambiguous="earliest", nonexistent="latest")


def _from_text(word: str, dtype: pa.DataType, fmt: str | None) -> pa.Scalar:
    """A value typed on the command line: as the column is written, or as Arrow reads it."""
    array = pa.array([word])
    if fmt is not None and is_time(dtype):
        try:
            return text.read(array, fmt, dtype)[0]
        except pa.ArrowInvalid:
            pass  # not in the column's own form; perhaps 2020-01-31
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        moment = array.cast(pa.timestamp(dtype.unit))
        return _in_zone(moment, dtype.tz).cast(dtype)[0]
    if pa.types.is_date32(dtype) or pa.types.is_date64(dtype):
        return array.cast(pa.timestamp("s")).cast(dtype)[0]
    if pa.types.is_time(dtype):
        return pa.array([dt.time.fromisoformat(word)]).cast(dtype)[0]
    if pa.types.is_integer(dtype):
        number = _decimal(word)  # not a float, which has 53 bits; 3.0 is 3, but 3.5 is refused
        if number is None or number != number.to_integral_value():
            raise pa.ArrowInvalid("not a whole number")
        return pa.scalar(int(number), dtype)
    return array.cast(dtype)[0]


def _not_of_type(coded: CodedColumn, value: Any) -> str:
    codec = coded.codec
    dtype = codec.grid.dtype if isinstance(codec, NumericCodec) else codec.values.type
    return f"Column {coded.column.name!r} is asked to be {value!r}, but it holds {_kind(dtype)}."


def _kind(dtype: pa.DataType) -> str:
    if text.is_text(dtype):
        return "text"
    return {"double": "numbers", "bool": "true or false"}.get(str(dtype), str(dtype))


def _unknown(name: str, value: Any, words: pa.Array) -> str:
    known = [str(word) for word in words.to_pylist()]
    close = difflib.get_close_matches(str(value), known, n=3, cutoff=0.5)
    hint = f"closest are {', '.join(map(repr, close))}" if close else f"it knows {_listed(words)}"
    return f"Column {name!r} is asked to be {value!r}, which the model has not seen; {hint}."


def _listed(words: pa.Array) -> str:
    shown = ", ".join(repr(str(word)) for word in words[:8].to_pylist())
    return shown + (f" and {len(words) - 8} more" if len(words) > 8 else "")


def _empty(name: str, condition: Condition, least: Any, most: Any) -> str:
    low = "" if condition.low is None else f" from {condition.low}"
    high = "" if condition.high is None else f" to {condition.high}"
    return (
        f"Column {name!r} is asked to be{low}{high}, but the model has no value there; "
        f"it knows {least} to {most}."
    )


Parts = list[tuple[float, Mapping[str, Prompt]]]


def parts(
    codec: TableCodec,
    asked: dict[str, Condition],
    balance: str | Mapping[str, Mapping[Any, float]] | None,
) -> Parts:
    """Shares of the rows with the conditions of each: one for all, or one per class."""
    if balance is None:
        return [(1.0, compile_conditions(codec, asked))]
    name, shares = _classes(codec, balance)
    if name in asked:
        raise UserError(f"Column {name!r} is balanced and has a condition; give one of them.")
    return [
        (share, compile_conditions(codec, {name: one_of(value), **asked}))
        for value, share in shares.items()
    ]


def _classes(
    codec: TableCodec, balance: str | Mapping[str, Mapping[Any, float]]
) -> tuple[str, Mapping[Any, float]]:
    if isinstance(balance, Mapping):
        if len(balance) != 1:
            raise UserError("balance takes one column, such as {'Exited': {0: 0.5, 1: 0.5}}.")
        name = next(iter(balance))
    else:
        name = balance
    names = codec.schema.names
    if name not in names:
        raise UserError(f"balance names column {name!r}, {but_the_table_has(str(name), names)}")
    coded = codec.coded[names.index(name)]
    if not isinstance(coded.codec, CategoricalCodec):
        raise UserError(
            f"Column {name!r} is {coded.column.kind}; only a categorical column can be balanced."
        )
    if not isinstance(balance, Mapping):
        values = coded.codec.values.to_pylist()
        return name, dict.fromkeys(values, 1.0)
    shares = balance[name]
    if not isinstance(shares, Mapping):
        raise UserError(f"balance gives {name!r} {shares!r}, but must map its values to shares.")
    for value, share in shares.items():
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not number or not math.isfinite(share) or share < 0:
            raise UserError(f"The share of {value!r} in {name!r} is {share!r}, but must be from 0.")
    if not sum(shares.values()) > 0:
        raise UserError(f"The shares of column {name!r} are all 0.")
    return name, {value: share for value, share in shares.items() if share > 0}
