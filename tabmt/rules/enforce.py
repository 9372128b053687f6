"""Enforce rules while rows are drawn: which codes of a column satisfy them, given the others.

A rule restricts a column once all its other columns are decided. Then several candidates of each
code are tried (for a category, its one value). A code is allowed in proportion to the candidates
that satisfy the rule, and the row's number becomes one of those. `a + b == c` is solved for the
last of its columns. A row for which no code is left has failed and is drawn again (redraw.py).
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tabmt.codec.columns import (
    LAST_RESORT,
    Bounds,
    CodedColumn,
    Decoding,
    NumericCodec,
    Selection,
)
from tabmt.codec.table import TableCodec
from tabmt.conditions.selections import Selections
from tabmt.data.plain_values import plain_values
from tabmt.data.protection import Protection, most_needed
from tabmt.data.schema import Schema, unknown_column
from tabmt.errors import UserError
from tabmt.rules.rule import Rule, check_count
from tabmt.tokens import MASK, TokenStore

log = logging.getLogger(__name__)

CHECKED_ROWS = 500_000  # of the training table at a time
NO_CODE = -1  # of a cell that is undecided or missing

Binding = Sequence[tuple[Rule, np.ndarray]]  # rules, and the rows that they restrict, (B,) bool


@dataclass(frozen=True)
class RuleSet:
    """The rules of a model, with the combinations of codes that occurred in training."""

    rules: tuple[Rule, ...] = ()
    combinations: Mapping[str, np.ndarray] = field(default_factory=dict)  # rule -> (n, columns)
    found: frozenset[str] = frozenset()  # names of rules that nobody wrote

    @classmethod
    def from_table(
        cls,
        codec: TableCodec,
        columns: Iterable[Mapping[str, pa.ChunkedArray]],
        tokens: TokenStore,
        *,
        protect: int,
        seed: int,
    ) -> "RuleSet":
        """The rules of a model's schema, checked against the training table.

        `columns` are the columns of the rules, in one or more pieces of the table. Combinations
        that fewer than `protect` rows hold are not stored.
        """
        rules = parse_rules(codec.schema)
        combinations = {}
        for rule in rules:
            if rule.is_combination:
                combinations[rule.name] = _combinations(rule, codec, tokens, protect, seed)
        found = frozenset(codec.schema.found)
        check_training_rows(
            [rule for rule in rules if rule.name not in found], codec.schema, columns, len(tokens)
        )
        return cls(rules, combinations, found)

    def columns(self) -> set[str]:
        return {name for rule in self.rules for name in rule.columns}

    def for_rows(self, *, allow_missing: bool) -> "RuleSet":
        """The rules of rows that may have no missing values: those about them do not apply."""
        if allow_missing:
            return self
        rules = tuple(rule for rule in self.rules if not rule.is_about_missing)
        return dataclasses.replace(self, rules=rules)


def _combinations(
    rule: Rule, codec: TableCodec, tokens: TokenStore, protect: int, seed: int
) -> np.ndarray:
    """The combinations of codes that a rule allows, (n, columns)."""
    names = [name for name in rule.columns if name in codec.token_index]
    if not names:
        return np.zeros((1, 0), np.int64)
    codes = [tokens.column(codec.token_index[name]).astype(np.int64) for name in names]
    if rule.form == "together" or len(names) == 1:
        rows, counts = np.unique(np.stack(codes, axis=1), axis=0, return_counts=True)
        return _frequent_combinations(rule, rows, counts, protect, seed)
    source, target = (codec[name] for name in names)
    for coded in (source, target):
        bins = coded.codec.is_bin
        if bins is not None and bins.any():
            raise UserError(
                f"Rule {rule.name!r}: determines() needs columns with few distinct values; column "
                f"{coded.name!r} is {coded.column.kind} and was binned. Set its kind to "
                "categorical, or remove the rule."
            )
    known = (codes[0] < source.codec.size) & (codes[1] < target.codec.size)
    known &= (codes[0] != MASK) & (codes[1] != MASK)
    for own, coded in zip(codes, (source, target), strict=True):
        known &= own != (NO_CODE if coded.codec.rare_code is None else coded.codec.rare_code)
    pairs, counts = np.unique(codes[0][known] * target.size + codes[1][known], return_counts=True)
    # The values of the source are frequent, and so are these pairs, but for exceptions. A number
    # that is not has the code of another one, so here a pair needs as many rows as any number.
    least = protect if target.codec.numeric is None else most_needed(protect)
    pairs, counts = pairs[counts >= least], counts[counts >= least]
    order = np.lexsort((-counts, pairs // target.size))
    of_source, first = np.unique(pairs[order] // target.size, return_index=True)
    allowed = [np.stack([of_source, pairs[order][first] % target.size], axis=1)]
    # A row with a missing value cannot violate a rule.
    if target.missing_code is not None:
        every = np.arange(source.size)
        allowed.append(np.stack([every, np.full_like(every, target.missing_code)], axis=1))
    if source.missing_code is not None:
        every = np.arange(target.codec.size)
        allowed.append(np.stack([np.full_like(every, source.missing_code), every], axis=1))
    return np.concatenate(allowed)


def _frequent_combinations(
    rule: Rule, rows: np.ndarray, counts: np.ndarray, protect: int, seed: int
) -> np.ndarray:
    """The combinations that enough rows hold."""
    protection = Protection.of(protect, seed, "rule", rule.name, rows, counts)
    if protection is None:
        return rows
    frequent = protection.is_frequent(counts)
    if not frequent.any():
        raise UserError(
            f"Rule {rule.name!r}: no combination of its values occurs in enough rows to be stored "
            f"(protect is {protect}). Remove the rule, or lower protect (--protect)."
        )
    if not frequent.all():
        log.info(
            "rule %r: %s of %s combinations occur in too few rows to be stored",
            rule.name,
            f"{int((~frequent).sum()):,}",
            f"{len(frequent):,}",
        )
    return np.asarray(rows[frequent])


def parse_rules(schema: Schema) -> tuple[Rule, ...]:
    """The rules of a schema, checked against its columns."""
    check_count(schema.rules)
    rules = tuple(Rule.parse(name, text) for name, text in schema.rules.items())
    for rule in rules:
        for name in rule.columns:
            _check_column(rule, name, schema)
    return rules


def _check_column(rule: Rule, name: str, schema: Schema) -> None:
    if name not in schema.names:
        raise UserError(
            f"The rule {rule.name!r} names column {name!r}, {unknown_column(name, schema.names)}"
        )
    kind = schema[name].kind
    if kind == "id":
        raise UserError(
            f"The rule {rule.name!r} names column {name!r}, which is an id and is not learned; "
            "set its kind in the schema."
        )
    if rule.form == "together" and kind in ("numeric", "datetime"):
        raise UserError(
            f"Rule {rule.name!r}: together() needs categorical columns, but {name!r} is {kind}."
        )


def check_training_rows(
    rules: Sequence[Rule],
    schema: Schema,
    pieces: Iterable[Mapping[str, pa.ChunkedArray]],
    rows: int,
) -> None:
    """Most rows of the training table must satisfy a rule; the others get a warning."""
    rules = [rule for rule in rules if not rule.is_combination]
    names = {name for rule in rules for name in rule.columns}
    violations = dict.fromkeys((rule.name for rule in rules), 0)
    for piece in pieces if rules else ():
        length = len(next(iter(piece.values())))
        for start in range(0, length, CHECKED_ROWS):  # as floats and words they are large
            plain = {
                name: plain_values(piece[name].slice(start, CHECKED_ROWS), schema[name])
                for name in names
            }
            values = {name: pair[0] for name, pair in plain.items()}
            missing = {name: pair[1] for name, pair in plain.items()}
            for rule in rules:
                violations[rule.name] += int(np.sum(rule.violations(values, missing)))
    for rule in rules:
        count = violations[rule.name]
        if count > rows / 2:
            raise UserError(
                f"{count:,} of {rows:,} training rows violate the rule {rule.name!r} "
                f"({rule.text}); correct or remove the rule."
            )
        if count:
            log.warning(
                "%s of %s training rows violate the rule %r; no generated row will.",
                f"{count:,}",
                f"{rows:,}",
                rule.name,
            )


class RuleState:
    """A chunk of rows that is being drawn under rules.

    For each column of a rule it holds the values decided so far. Cells that are given before
    anything is drawn may differ from row to row.
    """

    def __init__(
        self,
        rule_set: RuleSet,
        codec: TableCodec,
        rows: int,
        rng: np.random.Generator,
        *,
        allowed: Sequence[np.ndarray | None],
        selections: Selections,
    ) -> None:
        """`allowed` are weights of codes by token column, whatever the rules."""
        self._rules, self._combinations = rule_set.rules, rule_set.combinations
        self._codec, self._rows, self._rng = codec, rows, rng
        self._allowed, self._selections = allowed, selections
        names = rule_set.columns()
        self._values: dict[str, np.ndarray] = {}  # floats or words, (B,)
        self._missing: dict[str, np.ndarray] = {}  # bool, (B,)
        self._codes = {name: np.full(rows, NO_CODE) for name in codec.token_index}
        self._decided = {name: np.zeros(rows, bool) for name in names}
        self._given = {name: np.zeros(rows, bool) for name in names}
        self._unsatisfiable = {rule.name: np.zeros(rows, bool) for rule in self._rules}
        self._candidates: RuleCandidates | None = None
        self._failed = np.zeros(rows, bool)
        self.units: dict[str, np.ndarray] = {}  # of drawn numbers, (B,); NaN where they are given
        for name in names - codec.token_index.keys():  # constants
            constant = codec[name].decode(np.zeros(rows, np.int64), Decoding(rng))
            everywhere = np.ones(rows, bool)
            self._decide(codec[name], constant, everywhere)
            self._given[name] = everywhere

    def set_known(self, name: str, known: np.ndarray, codes: np.ndarray, values: pa.Array) -> None:
        """Cells that are given before anything is drawn, (B,) each; missing values have no code."""
        self._given[name] = self._given[name] | known
        self._decide(self._codec[name], values, known)
        if name in self._codec.token_index:
            self._codes[name] = np.where(known & ~self._missing[name], codes, NO_CODE)

    def mark_unsatisfiable(self) -> np.ndarray:
        """Which rows violate a rule by their given cells alone, (B,). The rule is then waived."""
        for rule in self._rules:
            if rule.is_combination:
                self._unsatisfiable[rule.name] = ~self._has_seen_combination(rule)
                continue
            all_given = np.logical_and.reduce([self._given[name] for name in rule.columns])
            if all_given.any():
                self._unsatisfiable[rule.name] = all_given & self._violations(rule)
        return np.asarray(np.logical_or.reduce(list(self._unsatisfiable.values())))

    def allowed(self, index: int) -> np.ndarray | None:
        """Weights of the codes of a token column for each row, (B, K); None if no rule applies."""
        coded = self._codec.token_columns[index]
        name = coded.name
        self._candidates = None
        if name not in self._given or self._given[name].all():
            return None
        binding, combinations = self._applicable_rules(name)
        if not binding and not combinations:
            return None
        base = self._allowed[index]
        base = np.ones(coded.size) if base is None else base
        weights = np.tile(base, (self._rows, 1))
        if binding:
            self._candidates = RuleCandidates(
                coded, base, self._selections.get(name), self._rows, self._rng
            )
            weights = self._candidates.weigh(binding, self._values, self._missing)
        for rule in combinations:
            weights = weights * self._seen_with_decided(rule, name, coded.size)
        impossible = ~(weights > 0).any(1)
        self._failed |= impossible & ~self._given[name]
        weights[impossible] = base
        return weights

    def _applicable_rules(self, name: str) -> tuple[Binding, list[Rule]]:
        """Rules whose other columns are decided, with their rows, and rules of combinations."""
        binding, combinations = [], []
        for rule in self._rules:
            if name not in rule.columns:
                continue
            others = [other for other in rule.columns if other != name]
            if rule.is_combination:
                tokens = [other for other in others if other in self._codec.token_index]
                if any((self._codes[other] != NO_CODE).any() for other in tokens):
                    combinations.append(rule)
                continue
            decided = [self._decided[other] for other in others]
            rows = np.logical_and.reduce([~self._given[name], *decided])
            if rows.any():
                binding.append((rule, rows))
        return binding, combinations

    def drawn(self, index: int, codes: np.ndarray) -> None:
        """Decide the values of a token column, given the codes that were drawn, (B,)."""
        coded = self._codec.token_columns[index]
        name = coded.name
        if name not in self._given or self._given[name].all():
            return
        new = ~self._given[name]
        self._codes[name] = np.where(new, codes, self._codes[name])
        codes = np.where(new, codes, 0)
        within = None
        if (numeric := coded.codec.numeric) is not None:
            units = self._draw_units(numeric, name, codes)
            self.units[name] = np.where(new, units, np.nan)
            within = units, units
        values = coded.decode(codes, Decoding(self._rng, within=within))
        self._decide(coded, values, new)

    def _draw_units(self, codec: NumericCodec, name: str, codes: np.ndarray) -> np.ndarray:
        """A number for each code, in units, that satisfies the rules and conditions."""
        within: Bounds | None = None
        if self._candidates is not None:
            within = self._candidates.pick(codes, self._rng)
        elif name in self._selections:
            within = codec.bounds(self._selections[name], codes, self._rng)
        known = codes < codec.size
        if within is not None:
            low, high = within
            within = np.where(known, low, -np.inf), np.where(known, high, np.inf)
        return codec.decode_units(np.where(known, codes, 0), Decoding(self._rng, within=within))

    def satisfied(self) -> np.ndarray:
        """(B,) bool: rows that satisfy every rule, except those that are waived."""
        satisfied = ~self._failed
        for rule in self._rules:
            satisfied &= ~self._violated(rule) | self._unsatisfiable[rule.name]
        return satisfied

    def most_violated(self) -> Rule:
        """The rule that most rows violate, for an error."""
        shares = [
            0.0 if rule.is_combination else float(np.mean(self._violations(rule)))
            for rule in self._rules
        ]
        return self._rules[int(np.argmax(shares))]

    def _violated(self, rule: Rule) -> np.ndarray:
        if rule.is_combination:
            return ~self._has_seen_combination(rule)
        return self._violations(rule)

    def _violations(self, rule: Rule) -> np.ndarray:
        return np.broadcast_to(rule.violations(self._values, self._missing), (self._rows,))

    def _decide(self, coded: CodedColumn, values: pa.Array, rows: np.ndarray) -> None:
        name = coded.name
        plain, missing = plain_values(values, coded.column)
        self._values[name] = np.where(rows, plain, self._values.get(name, plain))
        self._missing[name] = np.where(rows, missing, self._missing.get(name, missing))
        self._decided[name] = self._decided[name] | rows

    def _columns_with_codes(self, rule: Rule) -> list[str]:
        """The columns of which a rule's combinations consist: constants have no codes."""
        return [name for name in rule.columns if name in self._codec.token_index]

    def _has_seen_combination(self, rule: Rule) -> np.ndarray:
        """(B,) bool: rows whose codes, as far as they are decided, occurred together."""
        names = self._columns_with_codes(rule)
        if not names:
            return np.ones(self._rows, bool)
        rows = np.stack([self._codes[name] for name in names], axis=1)
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        seen = self._combinations[rule.name]
        matching = np.array([_matching(seen, codes).any() for codes in distinct], bool)
        return np.asarray(matching[inverse.ravel()])

    def _seen_with_decided(self, rule: Rule, name: str, size: int) -> np.ndarray:
        """(B, K): codes that occurred together with the decided ones; all where it is waived."""
        names = self._columns_with_codes(rule)
        here = names.index(name)
        rows = np.stack([self._codes[column] for column in names], axis=1)
        rows[:, here] = NO_CODE
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        seen = self._combinations[rule.name]
        weights = np.zeros((len(distinct), size))
        for index, codes in enumerate(distinct):
            if (codes == NO_CODE).all():
                weights[index] = 1.0
            weights[index, seen[_matching(seen, codes), here]] = 1.0
        by_row = np.asarray(weights[inverse.ravel()])
        by_row[self._unsatisfiable[rule.name]] = 1.0
        return by_row


def _matching(seen: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Which combinations agree with some codes, as far as these are decided."""
    return np.asarray(((seen == codes) | (codes == NO_CODE)).all(1))


class RuleCandidates:
    """Values with which the rules of one column are tried, and solutions of equations."""

    def __init__(
        self,
        coded: CodedColumn,
        allowed: np.ndarray,
        selection: Selection | None,
        rows: int,
        rng: np.random.Generator,
    ) -> None:
        """`allowed` are the weights of the column's codes, whatever the rules, (K,)."""
        self._coded, self._selection, self._rows = coded, selection, rows
        found = coded.codec.candidates(allowed, selection, rng)
        self._units, self._codes, self._weights = found.units, found.codes, found.weights
        self._values, self._missing = _as_rules_see(found.values, coded)  # (V,) each
        missing_code = coded.missing_code
        if missing_code is not None and allowed[missing_code] > 0:
            self._values = np.append(self._values, self._values.dtype.type())
            self._missing = np.append(self._missing, True)
            self._units = np.append(self._units, 0.0)
            self._codes = np.append(self._codes, missing_code)
            self._weights = np.append(self._weights, allowed[missing_code])
        self._satisfying = np.ones((rows, len(self._values)), bool)  # (B, V)
        self._solutions = np.full(rows, np.nan)  # (B,) in units

    def weigh(
        self,
        binding: Binding,
        values: Mapping[str, np.ndarray],
        missing: Mapping[str, np.ndarray],
    ) -> np.ndarray:
        """(B, K): the share of each code's candidates that satisfy the rules that bind a row."""
        name = self._coded.name
        columns = {key: value[:, None] for key, value in values.items()}
        is_missing = {key: value[:, None] for key, value in missing.items()}
        columns[name], is_missing[name] = self._values[None], self._missing[None]
        for rule, rows in binding:
            self._satisfying &= ~(rule.violations(columns, is_missing) & rows[:, None])
        order = np.argsort(self._codes, kind="stable")
        codes, starts = np.unique(self._codes[order], return_index=True)
        weights = np.zeros((self._rows, self._coded.size))
        if len(codes):
            satisfying = self._satisfying[:, order] * self._weights[order]
            weights[:, codes] = np.add.reduceat(satisfying, starts, axis=1)
        if (numeric := self._coded.codec.numeric) is not None:
            for rule, rows in binding:
                for units in self._solutions_of(rule, numeric, values):
                    weights = self._add_solutions(
                        weights, units, rows, numeric, binding, values, missing
                    )
        return weights

    def _solutions_of(
        self, rule: Rule, codec: NumericCodec, values: Mapping[str, np.ndarray]
    ) -> Iterable[np.ndarray]:
        """The units that solve each equation of a rule, if it is linear in this column, (B,)."""
        name = self._coded.name
        (zero, one), _ = _as_rules_see(codec.grid.values(np.array([0.0, 1.0])), self._coded)
        for equation in rule.equations():
            at_zero, at_one = (
                rule.difference(equation, {**values, name: np.full(self._rows, x)})
                for x in (zero, one)
            )
            if at_zero is None:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                units = at_zero / (at_zero - at_one)
            if not codec.grid.continuous:
                units = np.round(units)
            yield np.broadcast_to(np.where(np.isfinite(units), units, 0.0), (self._rows,))

    def _add_solutions(
        self,
        weights: np.ndarray,
        units: np.ndarray,
        rows: np.ndarray,
        codec: NumericCodec,
        binding: Binding,
        values: Mapping[str, np.ndarray],
        missing: Mapping[str, np.ndarray],
    ) -> np.ndarray:
        """Give the codes of valid solutions a small weight where no candidate satisfies a rule."""
        name = self._coded.name
        codes, outside = codec.codes.encode(units)
        plain, is_missing = _as_rules_see(codec.grid.values(units), self._coded)
        possible = ~outside | codec.codes.is_beyond(units)
        valid = rows & possible & (self._weight_of_codes()[codes] > 0)
        if self._selection is not None:
            valid &= self._selection.allows(units)
        for rule, restricted in binding:
            violated = rule.violations({**values, name: plain}, {**missing, name: is_missing})
            valid &= ~(violated & restricted)
        valid &= np.isnan(self._solutions)
        self._solutions[valid] = units[valid]
        extra = np.zeros_like(weights)
        extra[np.flatnonzero(valid), codes[valid]] = LAST_RESORT
        return weights + np.where(weights > 0, 0.0, extra)

    def _weight_of_codes(self) -> np.ndarray:
        """The weight that conditions leave to each code, whatever the rules, (K,)."""
        return np.bincount(self._codes, self._weights, minlength=self._coded.size)

    def pick(self, codes: np.ndarray, rng: np.random.Generator) -> Bounds:
        """A number for each row that satisfies the rules, as its lower and upper bound."""
        weights = (self._satisfying & (self._codes[None] == codes[:, None])) * self._weights
        total = weights.sum(1)
        point = rng.random(len(codes)) * total
        picked = (weights.cumsum(1) <= point[:, None]).sum(1).clip(max=len(self._units) - 1)
        use_solution = (total <= 0) & ~np.isnan(self._solutions)
        units = np.where(use_solution, self._solutions, self._units[picked])
        failed = (total <= 0) & ~use_solution  # any number will do, the row is drawn again
        return np.where(failed, -np.inf, units), np.where(failed, np.inf, units)


def _as_rules_see(values: pa.Array, coded: CodedColumn) -> tuple[np.ndarray, np.ndarray]:
    """Values of a codec as rules see those of its column."""
    return plain_values(coded.in_user_type(values), coded.column)
