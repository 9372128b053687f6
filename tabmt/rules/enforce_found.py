"""Enforce found rules, on codes alone: computed columns are not drawn.

Ties, groups of flags and functions restrict the codes of the column that is drawn later. Sums are
computed from numbers that are drawn inside their codes. Rows for which that fails are drawn again.
Rules that users write are enforced by enforce.py, which takes any rule and is slower.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabmt.codec.columns import Bounds, CodedColumn, Decoding
from tabmt.codec.table import TableCodec
from tabmt.conditions.selections import Selections
from tabmt.data.plain_values import plain_values
from tabmt.rules.computed import (
    Computed,
    ComputedCode,
    ComputedSum,
    Scaled,
    add_up,
    category_numbers,
    code_of_category,
    computable,
    encode_units,
    scaled_units,
)
from tabmt.rules.enforce import NO_CODE, RuleSet
from tabmt.rules.rule import Event, Rule

MOST_PAIRS = 2**24  # of codes, for which a table of those that go together is kept


Codes = Mapping[int, np.ndarray]  # of the token columns that are drawn, (B,) each


@dataclass(frozen=True)
class Tie:
    """Codes of two or more columns that occur only together."""

    columns: tuple[int, ...]
    events: tuple[np.ndarray, ...]  # (K,) bool each

    def allowed_codes(self, column: int, codes: Codes) -> np.ndarray | None:
        """The codes of a column that each row allows, (B, K) bool; None if all are allowed."""
        own = self.columns.index(column)
        both = np.stack([~self.events[own], self.events[own]])  # (2, K)
        for other, event in zip(self.columns, self.events, strict=True):
            if other != column and other in codes:
                return np.asarray(both[event[codes[other]].astype(np.int64)])
        return None

    def holds(self, tokens: np.ndarray) -> np.ndarray:
        """(B,) bool."""
        first, *others = (
            own[tokens[:, column]] for own, column in zip(self.events, self.columns, strict=True)
        )
        return np.asarray(np.logical_and.reduce([first == other for other in others]))

    def joined(self, other: "Tie") -> "Tie | None":
        """Both ties as one, if they share an event and no other column."""
        shared = set(self.columns) & set(other.columns)
        if len(shared) != 1:
            return None
        (column,) = shared
        here, there = self.columns.index(column), other.columns.index(column)
        if not np.array_equal(self.events[here], other.events[there]):
            return None
        rest = [index for index in range(len(other.columns)) if index != there]
        return Tie(
            (*self.columns, *(other.columns[index] for index in rest)),
            (*self.events, *(other.events[index] for index in rest)),
        )


@dataclass(frozen=True)
class Flags:
    """Codes of several columns, of which exactly one occurs."""

    columns: tuple[int, ...]
    is_set: tuple[np.ndarray, ...]  # (K,) bool each

    def allowed_codes(self, column: int, codes: Codes) -> np.ndarray | None:
        own = self.columns.index(column)
        others = [index for index in range(len(self.columns)) if index != own]
        decided = [index for index in others if self.columns[index] in codes]
        if not decided:
            return None
        taken = np.logical_or.reduce(
            [self.is_set[index][codes[self.columns[index]]] for index in decided]
        )
        is_last = len(decided) == len(others)
        if not is_last and not taken.any():
            return None
        unset = ~self.is_set[own]
        open_codes = self.is_set[own] if is_last else np.ones_like(unset)
        return np.asarray(np.stack([open_codes, unset])[taken.astype(np.int64)])

    def holds(self, tokens: np.ndarray) -> np.ndarray:
        count = sum(
            own[tokens[:, column]].astype(np.int64)
            for own, column in zip(self.is_set, self.columns, strict=True)
        )
        return np.asarray(count == 1)


@dataclass(frozen=True)
class Pair:
    """Codes of two columns that go together."""

    columns: tuple[int, ...]
    allowed: np.ndarray  # (K of the first, K of the second) bool

    def allowed_codes(self, column: int, codes: Codes) -> np.ndarray | None:
        own = self.columns.index(column)
        if (decided := codes.get(self.columns[1 - own])) is None:
            return None
        return np.asarray(self.allowed[decided] if own else self.allowed.T[decided])

    def holds(self, tokens: np.ndarray) -> np.ndarray:
        return np.asarray(self.allowed[tuple(tokens[:, column] for column in self.columns)])


Restriction = Tie | Flags | Pair


@dataclass(frozen=True)
class FoundRules:
    """The rules of a model in the form in which they are enforced on codes."""

    codec: TableCodec
    computed: tuple[Computed, ...]  # sources before targets
    restrictions: tuple[Restriction, ...]
    leave: tuple[int, ...]  # token columns that are not drawn
    last: tuple[int, ...]  # token columns of which only that a value is missing is used

    @classmethod
    def of(
        cls, rules: RuleSet, codec: TableCodec, *, conditioned: Collection[str], allow_missing: bool
    ) -> "FoundRules | None":
        """None if a rule is not of these forms, or if a sum has a condition."""
        if any(rule.name not in rules.found for rule in rules.rules):
            return None
        if any(name not in codec.token_index for name in rules.columns()):
            return None
        steps = computable(rules, codec)
        if any(isinstance(s, ComputedSum) and s.target in conditioned for s in steps.values()):
            return None
        steps = {name: step for name, step in steps.items() if step.target not in conditioned}
        restrictions: list[Restriction] = []
        for rule in rules.rules:
            if rule.name not in steps:
                restriction = _restriction(rule, rules, codec)
                if restriction is None:
                    return None
                _add(restriction, restrictions)
        leave: list[int] = []
        last: list[int] = []
        for step in steps.values():
            names = (step.target, *step.sources)
            may_be_missing = any(codec[name].missing_code is not None for name in names)
            drawn = last if allow_missing and may_be_missing else leave
            drawn.append(codec.token_index[step.target])
        return cls(codec, tuple(steps.values()), tuple(restrictions), tuple(leave), tuple(last))


def _add(restriction: Restriction, restrictions: list[Restriction]) -> None:
    """Ties of one event with several others become one: any of them decides the others."""
    for index, before in enumerate(restrictions):
        if isinstance(restriction, Tie) and isinstance(before, Tie):
            joined = before.joined(restriction)
            if joined is not None:
                restrictions[index] = joined
                return
    restrictions.append(restriction)


def _restriction(rule: Rule, rules: RuleSet, codec: TableCodec) -> Restriction | None:
    """A rule in terms of codes; None if codes are not enough."""
    columns = tuple(codec.token_index[name] for name in rule.columns)
    coded = [codec[name] for name in rule.columns]
    if rule.form == "determines":
        if coded[0].size * coded[1].size > MOST_PAIRS:
            return None
        allowed = np.zeros((coded[0].size, coded[1].size), bool)
        allowed[tuple(rules.combinations[rule.name].T)] = True
        return Pair(columns, allowed)
    events = rule.events
    if rule.form == "exactly_one":
        events = tuple(Event(name, 1.0) for name in rule.columns)
    codes = [_codes_of(event, own) for event, own in zip(events, coded, strict=True)]
    known = tuple(own for own in codes if own is not None)
    if not events or len(known) < len(codes):
        return None
    if rule.form == "tie":
        return Tie(columns, known)
    if any(own.missing_code is not None for own in coded):
        return None
    return Flags(columns, known)


def _codes_of(event: Event, coded: CodedColumn) -> np.ndarray | None:
    """(K,) bool: the codes that stand for an event and for nothing else; None without any."""
    codes = np.zeros(coded.size, bool)
    if event.value is None:
        if coded.missing_code is None:
            return None
        codes[coded.missing_code] = True
        return codes
    numeric = coded.codec.numeric
    values = coded.codec.categories
    if numeric is not None:
        values = numeric.grid.values(numeric.codes.centres)
    if values is None:
        return None
    plain, missing = plain_values(coded.in_user_type(values), coded.column)
    codes[: len(plain)] = event.occurs(plain, missing)
    if numeric is not None:
        codes[: len(plain)] &= numeric.codes.atom
    return codes if codes.any() else None


class FoundRuleState:
    """A chunk of rows that is being drawn under rules that were found."""

    def __init__(
        self,
        rules: FoundRules,
        rows: int,
        rng: np.random.Generator,
        *,
        allowed: Sequence[np.ndarray | None],
        selections: Selections,
    ) -> None:
        """`allowed` are weights of codes by token column, whatever the rules."""
        self._found, self._codec = rules, rules.codec
        self._rows, self._rng = rows, rng
        self._allowed, self._selections = allowed, selections
        self._codes: dict[int, np.ndarray] = {}  # (B,), by token column
        self._failed = np.zeros(rows, bool)
        self._restricting: dict[int, list[Restriction]] = {}
        for restriction in rules.restrictions:
            for column in restriction.columns:
                self._restricting.setdefault(column, []).append(restriction)

    def allowed(self, column: int) -> np.ndarray | None:
        """Weights of the codes of a token column for each row, (B, K); None if no rule applies."""
        weights: np.ndarray | None = None
        for restriction in self._restricting.get(column, ()):
            own = restriction.allowed_codes(column, self._codes)
            if own is not None:
                weights = own.astype(np.float64) if weights is None else weights * own
        if weights is None:
            return None
        base = self._allowed[column]
        if base is not None:
            weights = weights * base
        impossible = ~(weights > 0).any(1)
        if impossible.any():
            self._failed |= impossible
            weights[impossible] = 1.0 if base is None else base
        return weights

    def drawn(self, column: int, codes: np.ndarray) -> None:
        """Take note of the codes that were drawn, (B,)."""
        if column in self._restricting:
            self._codes[column] = codes

    def finish(self, tokens: np.ndarray) -> tuple[np.ndarray, dict[str, Bounds], np.ndarray]:
        """Rows with their computed columns, (B, C); their numbers, as bounds in units; and which
        rows are valid, (B,)."""
        tokens, valid = tokens.copy(), ~self._failed
        units: dict[str, np.ndarray] = {}
        for step in self._found.computed:
            index = self._codec.token_index[step.target]
            known = self._known(tokens, step.sources)
            if index not in self._found.leave:
                known &= tokens[:, index] < self._codec[step.target].codec.size
            if isinstance(step, ComputedCode):
                source = tokens[:, self._codec.token_index[step.source]]
                codes = step.codes[source]
                fits = codes != NO_CODE
            else:
                codes, fits = self._add_up(step, tokens, known, units)
            valid &= fits | ~known
            tokens[:, index] = np.where(known & fits, codes, np.maximum(tokens[:, index], 0))
        for restriction in self._found.restrictions:
            valid &= restriction.holds(tokens)
        within = {name: (_or(own, -np.inf), _or(own, np.inf)) for name, own in units.items()}
        return tokens, within, valid

    def _known(self, tokens: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """(B,) bool: rows in which no column is missing."""
        known = np.ones(self._rows, bool)
        for name in names:
            known &= tokens[:, self._codec.token_index[name]] < self._codec[name].codec.size
        return known

    def _add_up(
        self, step: ComputedSum, tokens: np.ndarray, known: np.ndarray, units: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Codes of a sum, and which rows can have it; its numbers are added to `units`."""
        columns = {name: self._numbers(name, tokens, units) for name in step.sources}
        total = add_up(step, columns)
        coded = self._codec[step.target]
        numeric = coded.codec.numeric
        if numeric is None:
            codes = code_of_category(coded, total)
            return codes, codes != NO_CODE
        own, codes, fits = encode_units(numeric, total)
        before = np.full(self._rows, np.nan)
        units[step.target] = np.where(known & fits, own, before)
        return codes, fits

    def _numbers(self, name: str, tokens: np.ndarray, units: dict[str, np.ndarray]) -> Scaled:
        """The numbers of a column; missing values have any."""
        coded = self._codec[name]
        codes = tokens[:, self._codec.token_index[name]]
        numeric = coded.codec.numeric
        if numeric is None:
            categories = category_numbers(coded)
            return Scaled(categories.numbers[codes], categories.digits)
        known = codes < coded.codec.size
        codes = np.where(known, codes, 0)
        undecided = np.isnan(units[name]) if name in units else np.ones(self._rows, bool)
        if name not in units or (undecided & known).any():
            within = None
            if name in self._selections:
                low, high = numeric.bounds(self._selections[name], codes, self._rng)
                within = np.where(known, low, -np.inf), np.where(known, high, np.inf)
            drawn = numeric.decode_units(codes, Decoding(self._rng, within=within))
            drawn = np.where(known, drawn, np.nan)
            units[name] = np.where(undecided, drawn, units.get(name, drawn))
        return scaled_units(numeric.grid, np.nan_to_num(units[name]))


def _or(units: np.ndarray, otherwise: float) -> np.ndarray:
    return np.where(np.isnan(units), otherwise, units)
