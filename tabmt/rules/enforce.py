"""Rules at work while rows are drawn: which codes of a column keep them, given what is decided.

A rule binds when all of its columns but one are decided. Of that one, each code is tried by a few
numbers drawn inside it (a category by its word); a code is allowed as far as they keep the rule,
and the row's number is then one of those that do. `a + b == c` is solved for the last of its
columns. A row that comes to a column with nothing left has failed and is drawn again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tabmt.codec.columns import (
    Bounds,
    CategoricalCodec,
    CodedColumn,
    ConstantCodec,
    NumericCodec,
    TableCodec,
    as_given,
)
from tabmt.conditions.prompts import Prompt
from tabmt.data.dataset import Columns
from tabmt.data.schema import Columnar, but_the_table_has
from tabmt.data.values import plain_values
from tabmt.errors import UserError
from tabmt.rules.rule import Rule
from tabmt.tokens import TokenStore

log = logging.getLogger(__name__)

TRIES_PER_CODE = 16
CHECKED_ROWS = 500_000  # of the training table at a time
NO_CODE = -1
LAST_RESORT = 1e-6  # weight of a bin's ends, and of a solved number: taken if nothing else fits


@dataclass(frozen=True)
class RuleBook:
    """The rules of a model, with the combinations of codes that go together."""

    rules: tuple[Rule, ...]
    combinations: Mapping[str, np.ndarray]  # name of a rule -> (combinations, its columns)

    @classmethod
    def write(cls, codec: TableCodec, table: Columnar, tokens: TokenStore) -> "RuleBook":
        """The schema's rules, checked against the training table, and which codes go together."""
        rules = [Rule.parse(name, text) for name, text in codec.schema.rules.items()]
        names = codec.schema.names
        places = {coded.column.name: i for i, coded in enumerate(codec.token_columns)}
        found = {}
        for rule in rules:
            for name in rule.columns:
                if name not in names:
                    raise UserError(
                        f"The rule {rule.name!r} names column {name!r}, "
                        f"{but_the_table_has(name, names)}"
                    )
                coded = codec.coded[names.index(name)]
                if coded.column.kind == "id":
                    raise UserError(
                        f"The rule {rule.name!r} names column {name!r}, which is an id and is "
                        "regenerated; set its kind in the schema."
                    )
                if rule.together and isinstance(coded.codec, NumericCodec):
                    raise UserError(
                        f"The rule {rule.name!r} holds column {name!r} together with others, but "
                        f"it is {coded.column.kind}; that works for categorical columns."
                    )
            if rule.together:
                own = [places[name] for name in rule.columns if name in places]
                codes = [tokens.column(place).astype(np.int64) for place in own]
                none = np.zeros((1, 0), np.int64)
                found[rule.name] = np.unique(np.stack(codes, axis=1), axis=0) if codes else none
        _check_against(rules, codec, table)
        return cls(tuple(rules), found)

    def columns(self) -> set[str]:
        return {name for rule in self.rules for name in rule.columns}


NO_RULES = RuleBook((), {})


def _check_against(rules: Sequence[Rule], codec: TableCodec, table: Columnar) -> None:
    """Most rows of the training table must keep a rule; the others are told of."""
    asked = {name for rule in rules if not rule.together for name in rule.columns}
    columns = {column.name: column for column in codec.schema.columns}
    broken = dict.fromkeys((rule.name for rule in rules), 0)
    for part in table.parts() if isinstance(table, Columns) else [table]:
        arrays = {name: part.column(name) for name in asked}
        for start in range(0, part.num_rows, CHECKED_ROWS):  # as floats and words they are large
            plain = {
                name: plain_values(array.slice(start, CHECKED_ROWS), columns[name])
                for name, array in arrays.items()
            }
            values = {name: found for name, (found, _) in plain.items()}
            gaps = {name: found for name, (_, found) in plain.items()}
            for rule in rules:
                if not rule.together:
                    broken[rule.name] += int(np.sum(rule.broken(values, gaps)))
    for rule in rules:
        told = f"{broken[rule.name]:,} of {table.num_rows:,} rows of the training table"
        if broken[rule.name] > table.num_rows / 2:
            raise UserError(f"{told} break the rule {rule.name!r} ({rule.text}); it is none.")
        if broken[rule.name]:
            log.warning("%s break the rule %r; no generated row will.", told, rule.name)


class Page:
    """A chunk of rows being drawn under a rule book. What is known of a row may differ from what is
    known of another; a code of NO_CODE is none that combinations could be looked up by."""

    def __init__(
        self,
        book: RuleBook,
        codec: TableCodec,
        rows: int,
        rng: np.random.Generator,
        *,
        base: Sequence[np.ndarray | None],
        prompts: Mapping[str, Prompt],
    ) -> None:
        self._book, self._rows, self._rng = book, rows, rng
        self._base, self._prompts = base, prompts
        self._columns = codec.token_columns
        self._by_name = {coded.column.name: coded for coded in codec.coded}
        self._places = {coded.column.name: i for i, coded in enumerate(self._columns)}
        nothing = np.zeros(rows, bool)
        self._values: dict[str, np.ndarray] = {}  # floats or words, (B,)
        self._gaps: dict[str, np.ndarray] = {}
        self._codes = {name: np.full(rows, NO_CODE) for name in self._places}
        self._decided = {name: nothing.copy() for name in book.columns()}
        self._given = {name: nothing.copy() for name in book.columns()}
        self._excused = {rule.name: nothing for rule in book.rules}
        self._pending: _Candidates | None = None
        self.units: dict[str, np.ndarray] = {}  # of drawn numbers, (B,); NaN where they are given
        self.failed = nothing.copy()
        for name in book.columns() - self._places.keys():  # constants
            coded, same = self._by_name[name], np.zeros(rows, np.int64)
            self._decide(coded, coded.decode(same, rng, "inside", 0, 0, None), ~nothing)
            self._given[name] = ~nothing

    def give(self, name: str, known: np.ndarray, codes: np.ndarray, values: pa.Array) -> None:
        """What is known of a column beforehand, (B,) each. Given gaps have no code."""
        self._given[name] = self._given[name] | known
        self._decide(self._by_name[name], values, known)
        if name in self._places:
            self._codes[name] = np.where(known & ~self._gaps[name], codes, NO_CODE)

    def excuse(self) -> np.ndarray:
        """Which rows break a rule by what is given alone, (B,): nothing can be drawn to keep it."""
        for rule in self._book.rules:
            if rule.together:
                self._excused[rule.name] = ~self._seen_together(rule)
                continue
            whole = np.logical_and.reduce([self._given[name] for name in rule.columns])
            if whole.any():
                self._excused[rule.name] = whole & self._breaks(rule)
        return np.asarray(np.logical_or.reduce(list(self._excused.values())))

    def allowed(self, place: int) -> np.ndarray | None:
        """Weights of each code for each row, (B, K); None if no rule binds here."""
        coded = self._columns[place]
        name = coded.column.name
        self._pending = None
        if name not in self._given or self._given[name].all():
            return None
        open_ = ~self._given[name]
        binding, partners = [], []
        for rule in self._book.rules:
            others = [other for other in rule.columns if other != name]
            if len(others) == len(rule.columns):
                continue
            if rule.together:
                if any((self._codes[o] != NO_CODE).any() for o in others if o in self._places):
                    partners.append(rule)
                continue
            rows = np.logical_and.reduce([open_, *(self._decided[other] for other in others)])
            if rows.any():
                binding.append((rule, rows))
        if not binding and not partners:
            return None
        base = self._base[place]
        weights = np.tile(np.ones(coded.size) if base is None else base, (self._rows, 1))
        if binding:
            self._pending = _Candidates.draw(coded, base, self._prompts.get(name), self._rng)
            weights = self._pending.weigh(binding, self._values, self._gaps, self._rows)
        for rule in partners:
            weights = weights * self._go_together(rule, name, coded.size)
        dead = ~(weights > 0).any(1)
        self.failed |= dead & open_
        weights[dead] = 1.0 if base is None else base
        return weights

    def drawn(self, place: int, codes: np.ndarray) -> None:
        """Decide the numbers of a column's codes, (B,)."""
        coded = self._columns[place]
        name = coded.column.name
        if name not in self._given or self._given[name].all():
            return
        new = ~self._given[name]
        self._codes[name] = np.where(new, codes, self._codes[name])
        codes = np.where(new, codes, 0)
        prompt = self._prompts.get(name)
        within = None
        if isinstance(coded.codec, NumericCodec):
            if self._pending is not None:
                within = self._pending.pick(codes, self._rng)
            elif prompt is not None:
                within = prompt.within(codes, coded, self._rng)
            known = codes < coded.codec.size
            own = np.where(known, codes, 0)
            if within is not None:
                low, high = within
                within = np.where(known, low, -np.inf), np.where(known, high, np.inf)
            units = coded.codec.codes.decode(own, self._rng, "inside", within)
            self.units[name] = np.where(new, units, np.nan)
            within = units, units
        values = coded.decode(codes, self._rng, "inside", 0, 0, within)
        self._decide(coded, values, new)

    def kept(self) -> np.ndarray:
        """(B,) bool: rows that keep every rule, but for what they are excused from."""
        kept = ~self.failed
        for rule in self._book.rules:
            broken = ~self._seen_together(rule) if rule.together else self._breaks(rule)
            kept &= ~broken | self._excused[rule.name]
        return kept

    def broken_most(self) -> Rule:
        """The rule that most rows break, for an error."""
        shares = [
            0.0 if rule.together else float(np.mean(self._breaks(rule)))
            for rule in self._book.rules
        ]
        return self._book.rules[int(np.argmax(shares))]

    def _breaks(self, rule: Rule) -> np.ndarray:
        return np.broadcast_to(rule.broken(self._values, self._gaps), (self._rows,))

    def _decide(self, coded: CodedColumn, values: pa.Array, rows: np.ndarray) -> None:
        name = coded.column.name
        found, gaps = plain_values(pa.chunked_array([values]), coded.column)
        self._values[name] = np.where(rows, found, self._values.get(name, found))
        self._gaps[name] = np.where(rows, gaps, self._gaps.get(name, gaps))
        self._decided[name] = self._decided[name] | rows

    def _own(self, rule: Rule) -> list[str]:
        """The columns that a rule's combinations are made of: constants have no codes."""
        return [name for name in rule.columns if name in self._places]

    def _seen_together(self, rule: Rule) -> np.ndarray:
        """(B,) bool: rows whose codes, as far as they have some, go together."""
        own = self._own(rule)
        if not own:
            return np.ones(self._rows, bool)
        rows = np.stack([self._codes[name] for name in own], axis=1)
        distinct, which = np.unique(rows, axis=0, return_inverse=True)
        seen = self._book.combinations[rule.name]
        fits = np.array([_fitting(seen, codes).any() for codes in distinct], bool)
        return np.asarray(fits[which.ravel()])

    def _go_together(self, rule: Rule, name: str, size: int) -> np.ndarray:
        """(B, K): codes seen together with those decided; all for a row that is excused."""
        own = self._own(rule)
        here = own.index(name)
        rows = np.stack([self._codes[column] for column in own], axis=1)
        rows[:, here] = NO_CODE
        distinct, which = np.unique(rows, axis=0, return_inverse=True)
        seen = self._book.combinations[rule.name]
        table = np.zeros((len(distinct), size))
        for place, codes in enumerate(distinct):
            if (codes == NO_CODE).all():
                table[place] = 1.0
            table[place, seen[_fitting(seen, codes), here]] = 1.0
        found = np.asarray(table[which.ravel()])
        found[self._excused[rule.name]] = 1.0
        return found


def _fitting(seen: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which combinations agree with some codes, as far as these are known."""
    return np.asarray(((seen == codes) | (codes == NO_CODE)).all(1))


@dataclass
class _Candidates:
    """Values to try a column's rules with: some for each code, and solutions of equations."""

    coded: CodedColumn
    values: np.ndarray  # (V,) floats or words
    gaps: np.ndarray  # (V,)
    units: np.ndarray  # (V,), of numbers
    owner: np.ndarray  # (V,) code
    weight: np.ndarray  # (V,)
    fits: np.ndarray  # (B, V) which keep the rules, set by `weigh`
    solved: np.ndarray  # (B,) units of a solution, NaN without one
    prompt: Prompt | None

    @classmethod
    def draw(
        cls,
        coded: CodedColumn,
        base: np.ndarray | None,
        prompt: Prompt | None,
        rng: np.random.Generator,
    ) -> "_Candidates":
        share = np.ones(coded.size) if base is None else base
        codec = coded.codec
        owners = np.flatnonzero(share[: codec.size] > 0)
        weights = share[owners]
        units = np.zeros(len(owners))
        if isinstance(codec, NumericCodec):
            bins = owners[~codec.codes.atom[owners]]
            owners = np.concatenate([owners[codec.codes.atom[owners]], bins.repeat(TRIES_PER_CODE)])
            within = None if prompt is None else prompt.within(owners, coded, rng)
            units = codec.codes.decode(owners, rng, "inside", within)
            counts = np.bincount(owners, minlength=coded.size)
            weights = share[owners] / counts[owners]
            if prompt is None:
                ends, own = codec.codes.ends()
                units, owners = np.concatenate([units, ends]), np.concatenate([owners, own])
                weights = np.concatenate([weights, np.full(len(own), LAST_RESORT) * share[own]])
            array = codec.grid.values(units)
        else:
            assert isinstance(codec, CategoricalCodec | ConstantCodec)
            array = codec.values.take(pa.array(owners))
        values, gaps = _plain(array, coded)
        if coded.missing_code is not None and share[coded.missing_code] > 0:
            values = np.append(values, values.dtype.type())
            gaps, units = np.append(gaps, True), np.append(units, 0.0)
            owners = np.append(owners, coded.missing_code)
            weights = np.append(weights, share[coded.missing_code])
        empty = np.zeros((0, len(owners)), bool)
        return cls(coded, values, gaps, units, owners, weights, empty, np.zeros(0), prompt)

    def weigh(
        self,
        rules: Sequence[tuple[Rule, np.ndarray]],
        known: Mapping[str, np.ndarray],
        gaps: Mapping[str, np.ndarray],
        rows: int,
    ) -> np.ndarray:
        """(B, K): the share of each code's candidates that keep all rules, each in its rows."""
        name = self.coded.column.name
        columns = {key: value[:, None] for key, value in known.items()} | {name: self.values[None]}
        holes = {key: value[:, None] for key, value in gaps.items()} | {name: self.gaps[None]}
        self.fits = np.ones((rows, len(self.values)), bool)
        for rule, bound in rules:
            self.fits &= ~(rule.broken(columns, holes) & bound[:, None])
        order = np.argsort(self.owner, kind="stable")
        codes, starts = np.unique(self.owner[order], return_index=True)
        weights = np.zeros((rows, self.coded.size))
        if len(codes):
            fitting = self.fits[:, order] * self.weight[order]
            weights[:, codes] = np.add.reduceat(fitting, starts, axis=1)
        self.solved = np.full(rows, np.nan)
        if isinstance(self.coded.codec, NumericCodec):
            self._solve(self.coded.codec, rules, known, gaps, weights)
        return weights

    def _solve(
        self,
        codec: NumericCodec,
        rules: Sequence[tuple[Rule, np.ndarray]],
        known: Mapping[str, np.ndarray],
        gaps: Mapping[str, np.ndarray],
        weights: np.ndarray,
    ) -> None:
        name = self.coded.column.name
        (zero, one), _ = _plain(codec.grid.values(np.array([0.0, 1.0])), self.coded)
        rows = len(weights)
        for rule, bound in rules:
            for equation in rule.equations():
                at = [
                    rule.difference(equation, {**known, name: np.full(rows, x)})
                    for x in (zero, one)
                ]
                if at[0] is None:
                    continue
                with np.errstate(divide="ignore", invalid="ignore"):
                    units = at[0] / (at[0] - at[1])
                if not codec.grid.continuous:
                    units = np.round(units)
                units = np.broadcast_to(np.where(np.isfinite(units), units, 0.0), (rows,))
                codes, outside = codec.codes.encode(units)
                values, holes = _plain(codec.grid.values(units), self.coded)
                good = bound & ~outside & (self._share(codes) > 0)
                if self.prompt is not None:
                    good &= self.prompt.admits(units)
                for other, there in rules:
                    broken = other.broken({**known, name: values}, {**gaps, name: holes})
                    good &= ~(broken & there)
                good &= np.isnan(self.solved)
                self.solved[good] = units[good]
                extra = np.zeros_like(weights)
                extra[np.flatnonzero(good), codes[good]] = LAST_RESORT
                weights += np.where(weights > 0, 0.0, extra)

    def _share(self, codes: np.ndarray) -> np.ndarray:
        """Weight that conditions leave to codes, whatever the rules."""
        return np.asarray(np.bincount(self.owner, self.weight, minlength=self.coded.size)[codes])

    def pick(self, codes: np.ndarray, rng: np.random.Generator) -> Bounds:
        """A number for each row that keeps the rules, as its lower and upper bound."""
        chances = self.fits & (self.owner[None] == codes[:, None])  # (B, V)
        weights = chances * self.weight
        total = weights.sum(1)
        point = rng.random(len(codes)) * total
        picked = (weights.cumsum(1) <= point[:, None]).sum(1).clip(max=len(self.units) - 1)
        units = self.units[picked]
        use_solved = (total <= 0) & ~np.isnan(self.solved)
        units = np.where(use_solved, self.solved, units)
        free = (total <= 0) & ~use_solved  # a row that has failed: anything will do
        return np.where(free, -np.inf, units), np.where(free, np.inf, units)


def _plain(array: pa.Array, coded: CodedColumn) -> tuple[np.ndarray, np.ndarray]:
    """Values of a codec as rules see those of its column."""
    return plain_values(pa.chunked_array([as_given(array, coded)]), coded.column)
