"""Columns that follow from others, by rules that were found: they are computed, not drawn.

A sum is computed in whole numbers on the decimal grid of its columns, so that 0.1 + 0.2 is 0.3; a
column that another determines has the code of its value. A sum that its column cannot represent,
because it lies outside the range or between two steps of the grid, makes the row invalid.
"""

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tabmt.codec.columns import CodedColumn, NumericCodec
from tabmt.codec.table import TableCodec
from tabmt.data.arrow_types import is_number
from tabmt.data.typed_columns import parse_column
from tabmt.data.units import EXACT, Grid
from tabmt.rules.enforce import NO_CODE, RuleSet
from tabmt.rules.rule import Rule
from tabmt.tokens import MASK

OFF_GRID = 1e-6  # distance from a whole number that is rounding


@dataclass(frozen=True)
class ComputedSum:
    """The target is a constant and the sum of coefficients times columns."""

    target: str
    terms: tuple[tuple[str, Fraction], ...]
    constant: Fraction
    is_sum: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)


@dataclass(frozen=True)
class ComputedCode:
    """The code of the target is that of the source in a list."""

    target: str
    source: str
    codes: np.ndarray  # (codes of the source,), NO_CODE where there is none
    is_sum: ClassVar[bool] = False

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)


Computed = ComputedSum | ComputedCode


def as_sum(rule: Rule) -> ComputedSum | None:
    """A rule `column = sum of other columns`; None if it is anything else."""
    match rule.trees:
        case (ast.Compare(left=ast.Name(id=target), ops=[ast.Eq()], comparators=[right]),):
            terms = _linear(right)
        case _:
            return None
    if terms is None or target in terms:
        return None
    constant = terms.pop("", Fraction(0))
    return ComputedSum(target, tuple(terms.items()), constant) if terms else None


def _linear(node: ast.expr) -> dict[str, Fraction] | None:
    """The coefficients of an expression by column, with the constant under an empty name."""
    match node:
        case ast.Name(id=name):
            return {name: Fraction(1)}
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return {"": Fraction(str(value))}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _scaled(_linear(operand), Fraction(-1))
        case ast.BinOp(left=left, op=op, right=right):
            one, two = _linear(left), _linear(right)
            if one is None or two is None:
                return None
            match op:
                case ast.Add() | ast.Sub():
                    sign = Fraction(1 if isinstance(op, ast.Add) else -1)
                    both = one.keys() | two.keys()
                    names = [name for name in (*one, *two) if name in both]
                    zero = Fraction(0)
                    return {n: one.get(n, zero) + sign * two.get(n, zero) for n in names}
                case ast.Mult() if two.keys() == {""}:
                    return _scaled(one, two[""])
                case ast.Mult() if one.keys() == {""}:
                    return _scaled(two, one[""])
                case ast.Div() if two.keys() == {""} and two[""]:
                    return _scaled(one, 1 / two[""])
    return None


def _scaled(terms: dict[str, Fraction] | None, by: Fraction) -> dict[str, Fraction] | None:
    return None if terms is None else {name: by * value for name, value in terms.items()}


def as_code(rule: Rule, rules: RuleSet, codec: TableCodec) -> ComputedCode | None:
    """A rule `determines(source, target)` between two columns with codes."""
    if rule.form != "determines" or any(name not in codec.token_index for name in rule.columns):
        return None
    source, target = rule.columns
    codes = np.full(codec[source].size, NO_CODE)
    pairs = rules.combinations[rule.name]
    known = (pairs[:, 0] < codec[source].codec.size) & (pairs[:, 1] < codec[target].codec.size)
    codes[pairs[known, 0]] = pairs[known, 1]
    return ComputedCode(target, source, codes)


def computable(rules: RuleSet, codec: TableCodec) -> dict[str, Computed]:
    """By rule: the columns that rules which were found compute, sources before targets.

    A column is computed by one rule only, and never from itself; what remains is enforced.
    """
    found: dict[str, Computed] = {}
    for rule in rules.rules:
        if rule.name not in rules.found:
            continue
        if any(name not in codec.token_index for name in rule.columns):
            continue
        step: Computed | None = as_sum(rule)
        if step is None:
            step = as_code(rule, rules, codec)
        elif not all(_has_numbers(name, codec) for name in rule.columns):
            step = None
        if step is None or any(step.target == other.target for other in found.values()):
            continue
        if not _depends(step.sources, step.target, found.values()):
            found[rule.name] = step
    return _sources_first(found)


def _depends(sources: Sequence[str], target: str, steps: Iterable[Computed]) -> bool:
    """Whether a column is among others, or among those that they are computed from."""
    by_target = {step.target: step for step in steps}
    return any(
        name == target
        or (name in by_target and _depends(by_target[name].sources, target, by_target.values()))
        for name in sources
    )


def _sources_first(steps: Mapping[str, Computed]) -> dict[str, Computed]:
    ordered: dict[str, Computed] = {}
    left = dict(steps)
    while left:
        targets = {step.target for step in left.values()}
        ready = {k: step for k, step in left.items() if not targets & set(step.sources)}
        assert ready, "computed columns form no circle"
        ordered |= ready
        left = {k: step for k, step in left.items() if k not in ready}
    return ordered


def _has_numbers(name: str, codec: TableCodec) -> bool:
    return name in codec.schema.names and is_number(codec[name].codec.value_type)


# --- numbers on their grids ----------------------------------------------------------------


@dataclass(frozen=True)
class Scaled:
    """Numbers as whole multiples of a power of ten; with digits None they are as they are."""

    numbers: np.ndarray
    digits: int | None

    def times_power(self, digits: int | None) -> np.ndarray:
        """The numbers in multiples of another power of ten; None: as they are."""
        if digits is None:
            return self.numbers if self.digits is None else self.numbers / 10.0**self.digits
        assert self.digits is not None
        return self.numbers * 10.0 ** (digits - self.digits)


def scaled_units(grid: Grid, units: np.ndarray) -> Scaled:
    """Units of a grid as numbers."""
    if grid.is_float:
        if grid.decimals is None:
            return Scaled(units, None)
        return Scaled(units * 10.0 ** max(0, -grid.decimals), max(0, grid.decimals))
    digits = grid.dtype.scale if pa.types.is_decimal(grid.dtype) else 0
    return Scaled(units * grid.step + grid.offset, digits)


def units_of(grid: Grid, numbers: Scaled) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `scaled_units`: units, and which numbers are on the grid."""
    if grid.is_float:
        if grid.decimals is None:
            return numbers.times_power(None), np.ones(len(numbers.numbers), bool)
        units = numbers.numbers * 10.0 ** (grid.decimals - (numbers.digits or 0))
    else:
        digits = grid.dtype.scale if pa.types.is_decimal(grid.dtype) else 0
        raw = numbers.numbers * 10.0 ** (digits - (numbers.digits or 0))
        units = (raw - grid.offset) / grid.step
    nearest = np.round(units)
    # Sums of numbers without a grid are rounded, like any other number of the column.
    is_near = np.abs(units - nearest) <= OFF_GRID if numbers.digits is not None else True
    return nearest, np.asarray(is_near & (np.abs(nearest) < EXACT))


def category_numbers(coded: CodedColumn) -> Scaled:
    """The number of each category, (size,); the missing code is 0."""
    categories = coded.codec.categories
    assert categories is not None
    numbers = np.zeros(coded.size)
    numbers[: len(categories)] = categories.cast(pa.float64(), safe=False).to_numpy()
    is_whole = bool((numbers == np.floor(numbers)).all())
    return Scaled(numbers, 0 if is_whole else None)


def add_up(step: ComputedSum, columns: Mapping[str, Scaled]) -> Scaled:
    """The numbers of the target."""
    digits = [columns[name].digits for name in step.sources]
    finest = None if None in digits else max(d for d in digits if d is not None)
    whole = math.lcm(step.constant.denominator, *(c.denominator for _, c in step.terms))
    scale = 1.0 if finest is None else 10.0**finest
    total = np.asarray(float(step.constant * whole) * scale)
    for name, coefficient in step.terms:
        total = total + float(coefficient * whole) * columns[name].times_power(finest)
    return Scaled(total / whole, finest)


def numbers_of_table(coded: CodedColumn, array: pa.ChunkedArray) -> tuple[Scaled, np.ndarray]:
    """The numbers of a column of a table, and which of them are known; the others are 0."""
    typed = parse_column(array, coded.column)
    known = typed.is_known
    numbers = np.zeros(len(known))
    if (numeric := coded.codec.numeric) is None:
        numbers[known] = typed.known.cast(pa.float64(), safe=False).to_numpy()
        return Scaled(numbers, category_numbers(coded).digits), known
    scaled = scaled_units(numeric.grid, numeric.grid.units(typed.known))
    numbers[known] = scaled.numbers
    return Scaled(numbers, scaled.digits), known


def codes_of_table(
    step: Computed, codec: TableCodec, table: pa.Table, tokens: np.ndarray
) -> np.ndarray:
    """The codes of a computed column, (B,), from a table and its tokens; NO_CODE where a source is
    unknown, or where the column cannot have the value."""
    if isinstance(step, ComputedCode):
        source = tokens[:, codec.token_index[step.source]]
        known = (source != MASK) & (source < codec[step.source].codec.size)
        return np.where(known, step.codes[np.where(known, source, 0)], NO_CODE)
    if not set(step.sources) <= set(table.column_names):
        return np.full(len(tokens), NO_CODE)
    columns, known = {}, np.ones(len(tokens), bool)
    for name in step.sources:
        columns[name], is_known = numbers_of_table(codec[name], table.column(name))
        known &= is_known
    total, coded = add_up(step, columns), codec[step.target]
    if (numeric := coded.codec.numeric) is None:
        return np.where(known, code_of_category(coded, total), NO_CODE)
    _, codes, fits = encode_units(numeric, total)
    return np.where(known & fits, codes, NO_CODE)


def code_of_category(coded: CodedColumn, numbers: Scaled) -> np.ndarray:
    """The codes of the categories that are these numbers; NO_CODE where there is none."""
    assert coded.codec.categories is not None
    own = category_numbers(coded).times_power(None)[: len(coded.codec.categories)]
    order = np.argsort(own)
    wanted = numbers.times_power(None)
    index = np.searchsorted(own[order], wanted - OFF_GRID).clip(max=len(own) - 1)
    codes = order[index]
    return np.where(np.abs(own[codes] - wanted) <= OFF_GRID, codes, NO_CODE)


def encode_units(codec: NumericCodec, numbers: Scaled) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Units and codes of computed numbers, and which of them the column can represent."""
    units, on_grid = units_of(codec.grid, numbers)
    codes, outside = codec.codes.encode(units)
    return units, codes, on_grid & ~outside
