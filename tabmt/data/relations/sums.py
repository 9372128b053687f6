"""Sums and differences of columns, and products with constants: `a = b + c`, `a = 100 * b + c`.

Some rows are fitted by least squares, for every pair of terms and for the most promising larger
sums. A fit that is exact has its coefficients rounded to simple fractions, and is then checked in
all rows on the decimal grid of its columns. Rows that violate a relation prevent an exact fit, so
several small sets of rows are tried.
"""

import keyword
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from tabmt.data.relations.views import (
    MOST_DECIMALS,
    OFF_GRID,
    ColumnView,
    Views,
    is_evidence,
    is_exact,
)

FITTED_ROWS, FITS = 256, 6  # rows of a fit, and how many fits there are
INEXACT = 1e-8  # share of the variance that an exact fit may leave
DEPENDENT = 1e-7  # terms of which less is independent of the others are not fitted
MOST_TERMS = 4  # on the right side of a sum
WIDTH = 8  # sums that are extended by another term
MOST_MISSING = 0.01  # of the rows in which a group of columns is known
GROUPS = 8  # sets of columns that are known in the same rows
LEAST_ROWS = 100
MOST_DENOMINATOR = 1000
SHUFFLED_ROWS = 2000


@dataclass(frozen=True)
class Sum:
    """The sum of coefficient times column is a constant."""

    terms: tuple[tuple[str, Fraction], ...]  # in the order of the table
    constant: Fraction
    digits: int | None  # the decimals in which all columns are whole numbers; None: continuous

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)

    def residual(self, views: Views) -> np.ndarray:
        """(n,): 0 where the relation holds, NaN where a column is missing."""
        total: np.ndarray | float = 0.0
        sizes: np.ndarray | float = 0.0
        rounded: np.ndarray | bool = False
        scale, power = self._scale, 10.0 ** (self.digits or 0)
        for name, coefficient in self.terms:
            numbers = views[name].numbers * power
            if self.digits is not None:
                nearest = np.round(numbers)
                is_whole = np.abs(numbers - nearest) <= OFF_GRID
                numbers = np.where(is_whole, nearest, numbers)
                rounded = rounded | ~is_whole
            term = float(coefficient * scale) * numbers
            total, sizes = total + term, sizes + np.abs(term)
        total = np.asarray(total - float(self.constant * scale) * power)
        if self.digits is None:
            tolerance = 1e-9 * sizes + 1e-12
        else:
            # Whole numbers are exact. Where one column is finer, the others may be rounded.
            by_rounding = 0.5 * sum(abs(float(c * scale)) for _, c in self.terms)
            tolerance = 0.5 + 1e-13 * sizes + np.where(rounded, by_rounding, 0.0)
        return np.asarray(np.where(np.abs(total) <= tolerance, 0.0, total / scale / power))

    @property
    def _scale(self) -> int:
        """The factor that makes all coefficients and the constant whole numbers."""
        if self.digits is None:
            return 1
        whole = math.lcm(*(coefficient.denominator for _, coefficient in self.terms))
        constant: Fraction = self.constant * whole * 10**self.digits
        return whole * constant.denominator

    def solved_for(self, target: str) -> "Sum":
        """The same relation with the coefficient -1 for a column: it is the sum of the others."""
        own = -dict(self.terms)[target]
        terms = tuple((name, coefficient / own) for name, coefficient in self.terms)
        return Sum(terms, self.constant / own, self.digits)

    def compute(self, target: str, numbers: dict[str, np.ndarray]) -> np.ndarray:
        """The column, computed from the others."""
        solved = self.solved_for(target)
        total = np.full(len(next(iter(numbers.values()))), -float(solved.constant))
        for name, coefficient in solved.terms:
            if name != target:
                total = total + float(coefficient) * numbers[name]
        return total

    def as_rule(self, target: str) -> str:
        """`target = 2 * a - b + 3`, as the rule language writes it."""
        solved = self.solved_for(target)
        words = []
        for name, coefficient in solved.terms:
            if name != target:
                words.append((coefficient < 0, _times(abs(coefficient), quoted(name))))
        words.sort(key=lambda pair: pair[0])  # what is added comes first
        if solved.constant:
            words.append((solved.constant > 0, _number(abs(solved.constant))))
        text = "".join((" - " if negative else " + ") + word for negative, word in words)
        text = (
            text.removeprefix(" + ") if text.startswith(" + ") else "-" + text.removeprefix(" - ")
        )
        return f"{quoted(target)} = {text}"


def quoted(name: str) -> str:
    """A column name as it is written in a rule."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return name if plain else f"`{name}`"


def _number(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.10g}"


def _times(coefficient: Fraction, name: str) -> str:
    if coefficient == 1:
        return name
    if 10**6 % coefficient.denominator == 0:
        return f"{_number(coefficient)} * {name}"
    if coefficient.numerator == 1:
        return f"{name} / {coefficient.denominator}"
    return f"{coefficient.numerator} * {name} / {coefficient.denominator}"


def _rows(views: Views) -> int:
    return len(next(iter(views.values())).known)


def find_sums(views: Views, rng: np.random.Generator) -> list[Sum]:
    """Sums that hold in the rows of the views, none of which follows from others."""
    columns = {
        name: view
        for name, view in views.items()
        if view.has_numbers and view.distinct > 1 and is_exact(view.numbers[view.known])
    }
    found: dict[Sum, float] = {}
    searched: set[str] = set()
    tried: set[frozenset[str]] = set()
    for names, rows in _groups(columns):
        some = {name: columns[name] for name in names}
        new = [index for index, name in enumerate(names) if name not in searched]
        for chosen in _row_sets(rows, rng) if new else ():
            matrix = np.stack([columns[name].numbers[chosen] for name in names], axis=1)
            for indices in _exact_fits(matrix, new):
                terms = frozenset(names[index] for index in indices)
                if terms not in tried and any(columns[name].distinct > 2 for name in terms):
                    tried.add(terms)
                    candidate = _rounded(matrix, names, indices, columns)
                    found |= {} if candidate is None else _checked(candidate, some, rng)
        searched |= set(names)
    ordered = sorted(found, key=lambda s: (-round(found[s], 4), len(s.terms), s.constant != 0))
    return _independent(ordered, list(columns))


def _groups(columns: Views) -> Iterator[tuple[list[str], np.ndarray]]:
    """Columns that are known in the same rows, and these rows."""
    seen: set[tuple[str, ...]] = set()
    for names in _columns_together(columns):
        rows = np.flatnonzero(np.logical_and.reduce([columns[name].known for name in names]))
        if len(rows) >= LEAST_ROWS and len(names) > 1 and tuple(names) not in seen:
            seen.add(tuple(names))
            yield names, rows


def _columns_together(columns: Views) -> Iterator[list[str]]:
    """As many columns as have enough rows without missing values, and then those that are known
    where another is."""
    if not columns:
        return
    most: list[str] = []
    complete = np.ones(_rows(columns), bool)
    for name, view in sorted(columns.items(), key=lambda pair: -pair[1].known.sum()):
        if (complete & view.known).sum() >= max(LEAST_ROWS, len(complete) // 10):
            complete = complete & view.known
            most.append(name)
    yield [name for name in columns if name in most]
    patterns = {view.known.tobytes(): view.known for view in columns.values()}
    for known in sorted(patterns.values(), key=lambda known: -known.sum())[:GROUPS]:
        if known.any():
            yield [n for n, view in columns.items() if view.known[known].mean() > 1 - MOST_MISSING]


def _row_sets(rows: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    if len(rows) <= FITTED_ROWS:
        yield rows
    for _ in range(FITS):
        yield rng.permutation(rows)[: min(FITTED_ROWS, max(LEAST_ROWS, len(rows) // 2))]


# --- least squares -------------------------------------------------------------------------


def _exact_fits(matrix: np.ndarray, targets: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Sets of columns, (n, C) -> indices, of which the first, a target, is a sum of the others."""
    spread = matrix.std(0)
    varying = np.flatnonzero(spread > 1e-9 * np.abs(matrix).max(0))
    scaled = (matrix[:, varying] - matrix[:, varying].mean(0)) / spread[varying]
    correlation = scaled.T @ scaled / len(scaled)  # (V, V)
    for target in np.flatnonzero(np.isin(varying, targets)).tolist():
        others = np.array([i for i in range(len(varying)) if i != target])
        for terms in _fits_of(correlation, target, others):
            yield (int(varying[target]), *(int(varying[i]) for i in terms))


def _fits_of(correlation: np.ndarray, target: int, others: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Exact fits of one column, from one term upwards; no fit contains another."""
    own = correlation[target]
    equal = 1 - own[others] ** 2 < INEXACT
    yield from ((int(other),) for other in others[equal])
    others = others[~equal]
    if len(others) < 2:
        return
    sets = others[np.stack(np.triu_indices(len(others), 1), axis=1)]  # (S, 2)
    for size in range(2, MOST_TERMS + 1):
        left = _unexplained(correlation, own, sets)
        exact = left < INEXACT
        yield from (tuple(terms) for terms in sets[exact].tolist())
        few = min(WIDTH, int((~exact).sum()))
        best = (
            sets[~exact][np.sort(np.argpartition(left[~exact], few - 1)[:few])] if few else sets[:0]
        )
        longer = np.hstack([best.repeat(len(others), 0), np.tile(others, len(best))[:, None]])
        longer = longer[(best.repeat(len(others), 0) != longer[:, -1:]).all(1)]
        for fit in sets[exact]:
            longer = longer[~_contains(longer, fit)]
        if size == MOST_TERMS or len(longer) == 0:
            return
        sets = np.unique(np.sort(longer, 1), axis=0)


def _contains(sets: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(S,) bool: which sets, (S, T), contain all wanted members."""
    return np.asarray((sets[:, :, None] == wanted).any(1).all(1))


def _unexplained(correlation: np.ndarray, own: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Share of the variance that each set of terms leaves: (C, C), (C,), (S, T) -> (S,)."""
    outer = own[sets]  # (S, T)
    if sets.shape[1] == 2:  # by far the most sets
        between, (one, two) = correlation[sets[:, 0], sets[:, 1]], outer.T
        free = 1 - between**2
        usable = free > DEPENDENT
        explained = one**2 + two**2 - 2 * one * two * between
        return np.where(usable, 1 - explained / np.where(usable, free, 1.0), 2.0)
    inner = correlation[sets[:, :, None], sets[:, None, :]]  # (S, T, T)
    usable = np.linalg.det(inner) > DEPENDENT
    left = np.full(len(sets), 2.0)
    if usable.any():
        solved = np.linalg.solve(inner[usable], outer[usable][..., None])[..., 0]
        left[usable] = 1 - (solved * outer[usable]).sum(1)
    return left


def _rounded(
    matrix: np.ndarray, names: Sequence[str], indices: tuple[int, ...], columns: Views
) -> Sum | None:
    """The sum with simple coefficients that a fit approximates, if there is one."""
    target, *terms = indices
    own = matrix[:, terms]
    centred = own - own.mean(0)
    spread = centred.std(0)
    solution = np.linalg.lstsq(centred / spread, matrix[:, target] - matrix[:, target].mean())[0]
    coefficients = []
    for value in (solution / spread).tolist():
        near = Fraction(value).limit_denominator(MOST_DENOMINATOR)
        if len(terms) == 1 and abs(float(near) - value) > 1e-9 * abs(value):
            near = Fraction(round(value, 6)).limit_denominator(10**6)
        if near == 0 or abs(float(near) - value) > 1e-4 * max(abs(value), 1e-3):
            return None
        coefficients.append(near)
    remainder = matrix[:, target] - own @ np.array([float(c) for c in coefficients])
    digits = [columns[names[i]].decimals for i in indices]
    constant = float(np.median(remainder))
    size = float(np.abs(matrix[:, indices]).max())
    if abs(constant) < 1e-9 * size:
        constant = 0.0
    finest = None if None in digits else max(d for d in digits if d is not None)
    digits_of_constant = 9 if finest is None else finest + 3
    common = math.lcm(*(coefficient.denominator for coefficient in coefficients))
    scaled = Fraction(round(constant * common, digits_of_constant))
    whole = scaled.limit_denominator(10**digits_of_constant) / common
    pairs = {names[target]: Fraction(-1)}
    pairs |= {names[i]: c for i, c in zip(terms, coefficients, strict=True)}
    first = next(name for name in names if name in pairs)
    sign = pairs[first]
    ordered = tuple((name, pairs[name] / sign) for name in names if name in pairs)
    return Sum(ordered, -whole / sign, finest)


# --- checks --------------------------------------------------------------------------------


def _checked(candidate: Sum, views: Views, rng: np.random.Generator) -> dict[Sum, float]:
    """The sum if it holds, or with another term that explains where it does not."""
    if (share := _share(candidate, views, rng)) is not None:
        best = {candidate: share}
        if share == 1.0:
            return best
    else:
        best = {}
    residual = candidate.residual(views)
    wrong = np.flatnonzero(np.nan_to_num(residual) != 0)
    if len(candidate.terms) > MOST_TERMS or not 5 <= len(wrong) < 0.1 * len(residual):
        return best
    for name, view in views.items():
        if name in candidate.names:
            continue
        term = view.numbers[wrong]
        if not np.isfinite(term).all() or not term.any():
            continue
        slope = float(np.median(residual[wrong][term != 0] / term[term != 0]))
        coefficient = Fraction(slope).limit_denominator(100)
        if coefficient == 0:
            continue
        pairs = {**dict(candidate.terms), name: -coefficient}
        ordered = tuple((other, pairs[other]) for other in views if other in pairs)
        sign = ordered[0][1]
        digits = [candidate.digits, view.decimals]
        finest = None if None in digits else max(d for d in digits if d is not None)
        longer = Sum(tuple((n, c / sign) for n, c in ordered), candidate.constant / sign, finest)
        share = _share(longer, views, rng)
        if share is not None and share > max(best.values(), default=0.0):
            best = {longer: share}
    return best


def _share(candidate: Sum, views: Views, rng: np.random.Generator) -> float | None:
    """Share of the rows in which a sum holds; None if it does not, or by chance, or if it does
    without one of its terms."""
    residual = candidate.residual(views)
    known = ~np.isnan(residual)
    rows = int(known.sum())
    failures = int((residual[known] != 0).sum())
    if rows < LEAST_ROWS or failures > 0.05 * rows:
        return None
    some = {name: _some_rows(views[name], known) for name in candidate.names}
    for name in candidate.names:
        shuffled = {**some, name: _permuted(some[name], rng)}
        chance = int((candidate.residual(shuffled) != 0).sum())
        if not is_evidence(failures, chance, rows):
            return None
        usual = np.median(some[name].numbers)
        unusual = some[name].numbers != usual
        if np.mean(residual[known][unusual] != 0) > 0.1:
            return None
    return 1 - failures / rows


def _some_rows(view: ColumnView, rows: np.ndarray) -> ColumnView:
    return ColumnView(view.column, view.values.filter(pa.array(rows)), view.known[rows])


def _permuted(view: ColumnView, rng: np.random.Generator) -> ColumnView:
    order = rng.permutation(len(view.known))
    return ColumnView(view.column, view.values.take(pa.array(order)), view.known[order])


def _independent(found: Sequence[Sum], names: Sequence[str]) -> list[Sum]:
    """Those sums that do not follow from sums before them."""
    chosen: list[Sum] = []
    rows: list[np.ndarray] = []
    for candidate in found:
        pairs = dict(candidate.terms)
        vector = np.array([float(pairs.get(name, 0)) for name in names])
        stacked = np.stack([*rows, vector / np.abs(vector).max()])
        if np.linalg.matrix_rank(stacked, tol=1e-6) == len(stacked):
            chosen.append(candidate)
            rows.append(stacked[-1])
    return chosen


def choose_target(
    candidate: Sum, views: Views, taken: set[str], rng: np.random.Generator
) -> str | None:
    """The column to compute from the others: the one that stays among its own values most often
    when the others are drawn independently."""
    known = np.logical_and.reduce([views[name].known for name in candidate.names])
    rows = rng.permutation(np.flatnonzero(known))[:SHUFFLED_ROWS]
    numbers = {name: views[name].numbers[rng.permutation(rows)] for name in candidate.names}
    best, best_score = None, -1.0
    for name in candidate.names:
        if name in taken:
            continue
        score = _fitting(candidate.compute(name, numbers), views[name])
        if score >= best_score - 1e-9:  # of equally good columns the last of the table
            best, best_score = name, score
    return best


def _fitting(computed: np.ndarray, view: ColumnView) -> float:
    """Share of computed numbers that the column can contain."""
    own = view.numbers[view.known]
    fitting = (computed >= own.min() - 1e-9) & (computed <= own.max() + 1e-9)
    if view.column.kind == "categorical":
        nearest = np.abs(computed[:, None] - np.unique(own)).min(1)
        fitting &= nearest < 1e-9
    elif view.column.decimals is not None and view.column.decimals <= MOST_DECIMALS:
        scaled = computed * 10.0**view.column.decimals
        fitting &= np.abs(scaled - np.round(scaled)) < 1e-6
    return float(fitting.mean())
