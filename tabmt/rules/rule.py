"""Rules that rows must satisfy, written as a person would: `end >= start`, `a + b == c`.

A rule is an expression over column names with + - * /, comparisons, `in`, `and`, `or`, `not`,
numbers and quoted text; column names that are not plain words are put in backticks. `if A then B`
holds where A does not. A row with a missing value in a column of the rule cannot violate it.
`matches(column, 'pattern')` holds where the whole text matches a regular expression.
`together(city, country)` allows only the combinations that occur in the training table, and
`determines(city, country)` only one country for each city. `exactly_one(a, b, c)` holds where one
of several flags is set. `A if and only if B` ties a value of one column to a value of another;
there, `column is missing` counts like a value.
"""

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import numpy as np

from tabmt.errors import UserError
from tabmt.json_files import read_json

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
MOST_RULES = 10_000  # of a table
MOST_CHARACTERS = 10_000  # of a rule
MOST_DEPTH = 100  # of the parts of a rule inside each other
PATTERN_BYTES = 2**23  # of memory for a compiled regular expression
PLACEHOLDER = "__column"
BACKTICKS = re.compile(r"`([^`]+)`")
Form = Literal["expression", "together", "determines", "exactly_one", "tie"]
ABOUT_COLUMNS = re.compile(r"^\s*(together|determines|exactly_one)\((.+)\)\s*$", re.S)
IF_AND_ONLY_IF = re.compile(r"^(.*?)\s+if\s+and\s+only\s+if\s+(.*)$", re.S)
IS_MISSING = re.compile(r"^\s*(\w+)\s+is\s+missing\s*$")
SINGLE_EQUALS = re.compile(r"(?<![<>=!])=(?!=)")
TEXT = re.compile(r"""("[^"]*"|'[^']*')""")
IF_THEN = re.compile(r"^\s*if\s+(.*?)\s+then\s+(.*)$", re.S)


@dataclass(frozen=True)
class Event:
    """A column has a value; None: it is missing."""

    column: str
    value: float | str | None

    def occurs(self, values: np.ndarray, missing: np.ndarray) -> Any:
        """Where the event occurs among floats or words, of which some are missing."""
        if self.value is None:
            return missing
        value = _as_kind(self.value, values.dtype.kind)
        if values.dtype.kind == "U":
            return (values == value) & ~missing
        return np.isclose(values, value, rtol=1e-9, atol=1e-12) & ~missing


@dataclass(frozen=True)
class Rule:
    """`trees` is one expression that must hold, or a condition and what must hold under it.

    Rules of the other forms are about columns as a whole, or about two events.
    """

    name: str
    text: str
    trees: tuple[ast.expr, ...]
    columns: tuple[str, ...]
    form: Form = "expression"
    events: tuple[Event, ...] = ()  # that occur together, in a rule that ties them

    @classmethod
    def parse(cls, name: str, text: str) -> "Rule":
        if len(text) > MOST_CHARACTERS:
            raise UserError(
                f"The rule {name[:80]!r} has {len(text):,} characters; it may have at most "
                f"{MOST_CHARACTERS:,}."
            )
        if PLACEHOLDER in text:
            raise UserError(
                f"The rule {name!r} contains {PLACEHOLDER!r}, which is a reserved name: {text!r}."
            )
        # Column names in backticks become plain names for Python's parser, and are put back later.
        in_backticks: dict[str, str] = {}

        def replace(match: re.Match[str]) -> str:
            placeholder = f"{PLACEHOLDER}{len(in_backticks)}_"  # "_": a digit after it is no number
            in_backticks[placeholder] = match[1]
            return placeholder

        def original(word: str) -> str:
            if word.startswith(PLACEHOLDER) and word not in in_backticks:
                raise UserError(
                    f"The rule {name!r} has a letter or digit right after a column name in "
                    f"backticks; put an operator between them: {text!r}."
                )
            return in_backticks.get(word, word)

        plain = _one_space(BACKTICKS.sub(replace, text))
        if match := ABOUT_COLUMNS.match(plain):
            names = [original(word.strip()) for word in match[2].split(",")]
            if len(set(names)) < 2:
                raise UserError(f"The rule {name!r} needs at least two columns: {text!r}.")
            form: Any = match[1]
            if form == "determines" and len(names) != 2:
                raise UserError(f"The rule {name!r} needs two columns: {text!r}.")
            return cls(name, text, (), tuple(names), form)
        if match := IF_AND_ONLY_IF.match(plain):
            events = tuple(_parse_event(name, text, side, original) for side in match.groups())
            return cls(name, text, (), tuple(event.column for event in events), "tie", events)
        trees = _parse_trees(name, text, plain)
        columns: list[str] = []
        for tree in trees:
            functions = {call.func for call in filter(_is_match, ast.walk(tree))}
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and node not in functions:
                    node.id = original(node.id)
                    if node.id not in columns:
                        columns.append(node.id)
        return cls(name, text, trees, tuple(columns))

    @property
    def is_combination(self) -> bool:
        """Whether the rule is about combinations: `together(...)`, `determines(...)`."""
        return self.form in ("together", "determines")

    @property
    def is_about_missing(self) -> bool:
        """Whether the rule says when a value is missing."""
        return any(event.value is None for event in self.events)

    def violations(
        self, columns: Mapping[str, np.ndarray], missing: Mapping[str, np.ndarray]
    ) -> Any:
        """(rows,) bool: which rows violate the rule. Values are floats or text, of any shapes that
        broadcast."""
        for name in self.columns:
            if name not in columns:
                raise UserError(
                    f"The rule {self.name!r} names a column {name!r} that does not exist."
                )
        if self.form == "tie":
            one, two = (self._occurs(event, columns, missing) for event in self.events)
            return one != two
        if self.form == "exactly_one":
            violated: Any = functools.reduce(operator.add, self._flags(columns)) != 1
            return self._known(violated, missing)
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                results = [np.asarray(self._value(tree, columns)) for tree in self.trees]
        except (TypeError, ValueError, ArithmeticError) as error:
            raise UserError(
                f"The rule {self.name!r} cannot be applied to its columns: {self.text!r} ({error})."
            ) from error
        if any(result.dtype != bool for result in results):
            raise UserError(
                f"The rule {self.name!r} must be a comparison, which is true or false: "
                f"{self.text!r}."
            )
        holds = results[0] if len(results) == 1 else ~results[0] | results[1]
        return self._known(~holds, missing)

    def _occurs(
        self, event: Event, columns: Mapping[str, np.ndarray], missing: Mapping[str, np.ndarray]
    ) -> Any:
        try:
            return event.occurs(columns[event.column], missing[event.column])
        except ValueError as error:
            raise UserError(
                f"The rule {self.name!r} compares column {event.column!r} with {event.value!r}, "
                f"but its values are numbers: {self.text!r}."
            ) from error

    def _known(self, violated: Any, missing: Mapping[str, np.ndarray]) -> Any:
        """A row with a missing value cannot violate a rule."""
        for name in self.columns:
            violated = violated & ~missing[name]
        return violated

    def _flags(self, columns: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name in self.columns:
            if columns[name].dtype.kind == "U":
                raise UserError(
                    f"Rule {self.name!r}: exactly_one() needs columns of 0 and 1, but {name!r} "
                    f"holds text: {self.text!r}."
                )
        return [(columns[name] != 0).astype(np.int64) for name in self.columns]

    def equations(self) -> list[ast.Compare]:
        """The equations `left == right` in the rule."""
        return [
            node
            for tree in self.trees
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and isinstance(node.ops[0], ast.Eq)
        ]

    def difference(self, equation: ast.Compare, columns: Mapping[str, np.ndarray]) -> Any:
        """Left side minus right side of an equation; None if it is not about numbers."""
        left = self._value(equation.left, columns)
        right = self._value(equation.comparators[0], columns)
        return left - right if _floats(left) and _floats(right) else None

    def _value(self, node: ast.expr, columns: Mapping[str, np.ndarray]) -> Any:
        def value(inner: ast.expr) -> Any:
            return self._value(inner, columns)

        match node:
            case ast.Name():
                return columns[node.id]
            case ast.Constant(value=str() as constant):
                return constant
            case ast.Constant(value=int() | float() as constant):
                return float(constant)
            case ast.List() | ast.Tuple() | ast.Set():
                return [value(item) for item in node.elts]
            case ast.UnaryOp(op=ast.USub()):
                operand = value(node.operand)
                if not _floats(operand):
                    raise TypeError("the operator - needs numbers")
                return -operand
            case ast.UnaryOp(op=ast.Not()):
                return ~self._truth(value(node.operand))
            case ast.BoolOp():
                join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                return functools.reduce(join, [self._truth(value(item)) for item in node.values])
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                sides = value(node.left), value(node.right)
                if not all(map(_floats, sides)):  # a text times a number would fill the memory
                    raise TypeError("the operators + - * / need numbers")
                return ARITHMETIC[type(node.op)](*sides)
            case ast.Compare():
                return self._compare(node, columns)
            case ast.Call(args=[texts, ast.Constant(value=str() as pattern)]) if _is_match(node):
                return self._matches(value(texts), pattern)
        raise UserError(
            f"Rule {self.name!r} is not valid: {ast.unparse(node)!r} is not allowed. "
            "Use + - * /, comparisons, in, and, or, not, matches(column, 'pattern'), numbers and "
            "quoted text."
        )

    def _matches(self, values: Any, pattern: str) -> Any:
        # Linear in the length of the text, whatever the pattern is: it comes from a file.
        import re2

        try:
            expression = re2.compile(pattern, quiet_options())
        except re2.error as error:
            raise UserError(
                f"Rule {self.name!r} is not valid: {pattern!r} is not a regular expression "
                f"({_pattern_problem(error)})."
            ) from error
        texts = np.asarray(values)
        if texts.dtype.kind != "U":
            raise TypeError("matches() needs text")
        distinct, inverse = np.unique(texts, return_inverse=True)
        matching = [expression.fullmatch(word) is not None for word in distinct.tolist()]
        return np.array(matching, bool)[inverse].reshape(texts.shape)

    def _truth(self, value: Any) -> Any:
        truth = np.asarray(value)
        if truth.dtype != bool:
            raise TypeError("`and`, `or`, `not` need comparisons")
        return truth

    def _compare(self, node: ast.Compare, columns: Mapping[str, np.ndarray]) -> Any:
        left = self._value(node.left, columns)
        results = []
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._value(comparator, columns)
            if isinstance(op, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
                left, right = _same_kind(left, right)
            if isinstance(op, ast.In | ast.NotIn):
                contained = np.isin(left, right)
                results.append(contained if isinstance(op, ast.In) else ~contained)
            elif isinstance(op, ast.Eq | ast.NotEq) and _floats(left) and _floats(right):
                # 0.1 + 0.2 is 0.3 to the person who wrote the rule.
                close = np.isclose(left, right, rtol=1e-9, atol=1e-12)
                results.append(close if isinstance(op, ast.Eq) else ~close)
            elif type(op) in COMPARISONS:
                results.append(COMPARISONS[type(op)](left, right))
            else:
                raise TypeError("`is` is not supported; use ==")
            left = right
        return functools.reduce(np.logical_and, results)


def _one_space(text: str) -> str:
    """Text with one space for each run of spaces outside quotes: the time to find `if ... then` in
    many of them would grow with their third power."""
    pieces = TEXT.split(text)
    return "".join(
        piece if index % 2 else re.sub(r"\s+", " ", piece) for index, piece in enumerate(pieces)
    )


def _parse_event(name: str, text: str, side: str, original: Callable[[str], str]) -> Event:
    """One side of `A if and only if B`: `column == value`, or `column is missing`."""
    if match := IS_MISSING.match(side):
        return Event(original(match[1]), None)
    (tree,) = _parse_trees(name, text, side)
    match tree:
        case ast.Compare(
            left=ast.Name(id=column), ops=[ast.Eq()], comparators=[ast.Constant(value=value)]
        ) if isinstance(value, int | float | str):
            return Event(original(column), value)
        case ast.Compare(
            left=ast.Name(id=column),
            ops=[ast.Eq()],
            comparators=[ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value))],
        ) if isinstance(value, int | float):
            return Event(original(column), -value)
    raise UserError(
        f"The rule {name!r} has the form `A if and only if B`, so each side must be "
        f"`column == value` or `column is missing`: {text!r}."
    )


def _parse_trees(name: str, text: str, plain: str) -> tuple[ast.expr, ...]:
    # People write `a + b = c`; inside quotes an equals sign is text.
    pieces = TEXT.split(plain)
    plain = "".join(
        piece.replace("\\", "\\\\") if index % 2 else SINGLE_EQUALS.sub("==", piece)
        for index, piece in enumerate(pieces)
    )
    match = IF_THEN.match(plain)
    try:
        halves = match.groups() if match else (plain,)
        trees = tuple(ast.parse(half.strip(), mode="eval").body for half in halves)
    except SyntaxError as error:
        raise UserError(f"Rule {name!r} is not valid: {text!r} ({error.msg}).") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL; nested too deeply
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise UserError(f"Rule {name!r} is not valid: {reason}.") from error
    for tree in trees:
        _check_depth(name, tree)
    return trees


def _check_depth(name: str, tree: ast.expr) -> None:
    """Refuse what functions that call themselves could not walk through."""
    level: list[ast.AST] = [tree]
    for _ in range(MOST_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise UserError(f"Rule {name!r} is not valid: it is nested too deeply.")


def quiet_options() -> Any:
    """Options of RE2 for patterns from files: bounded memory, errors only as exceptions."""
    import re2

    options = re2.Options()
    options.max_mem = PATTERN_BYTES
    options.log_errors = False
    return options


def _pattern_problem(error: Exception) -> str:
    detail = error.args[0] if error.args else ""
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)


def _same_kind(left: Any, right: Any) -> tuple[Any, Any]:
    """Both sides as numbers or both as text: `'53'` is the number 53 to a column of numbers, and 53
    is text to a column of text. Otherwise they would silently count as different."""
    kinds = [np.asarray(side).dtype.kind for side in (left, right)]
    empty = any(np.asarray(side).size == 0 for side in (left, right))
    if empty or (kinds[0] == "U") == (kinds[1] == "U"):
        return left, right
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        raise TypeError("numbers and text cannot be compared")
    if isinstance(left, np.ndarray):
        return left, _as_kind(right, kinds[0])
    return _as_kind(left, kinds[1]), right


def _as_kind(constant: Any, kind: str) -> Any:
    """Constants, one or a list, as text or as numbers."""
    if isinstance(constant, list):
        return [_as_kind(item, kind) for item in constant]
    if kind == "U":
        return constant if isinstance(constant, str) else f"{constant:g}"
    return float(constant)


def _is_match(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "matches"
        and not node.keywords
    )


def _floats(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iuf"


def load_rules(path: str) -> list[Rule]:
    """A JSON file {"name": "rule", ...}, or a schema file with such `rules` in it."""
    data = read_json(path, "rules")
    if isinstance(data.get("rules"), dict):
        data = data["rules"]
    if not all(isinstance(text, str) for text in data.values()):
        raise UserError(f'The rules file {path!r} must have the form {{"name": "rule", ...}}.')
    check_count(data)
    return [Rule.parse(name, text) for name, text in data.items()]


def check_count(rules: Mapping[str, str]) -> None:
    if len(rules) > MOST_RULES:
        raise UserError(f"There are {len(rules):,} rules; a table may have at most {MOST_RULES:,}.")
