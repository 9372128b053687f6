"""Find relations between the columns of a table, and write them as rules.

Relations are searched in some rows, and then checked in all of them. Sums, functions, groups of
flags and values that always occur together (ties) become rules of the schema, which every generated
row satisfies; orderings are only suggested, because enforcing them slows down sampling and gains
little.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tabmt.config import CodecConfig, most_bins
from tabmt.data.arrow_types import plain_array
from tabmt.data.dataset import Dataset
from tabmt.data.personal import may_identify_persons
from tabmt.data.protection import has_single_values
from tabmt.data.relations.flags import find_flags
from tabmt.data.relations.functions import (
    Function,
    families,
    find_functions,
    follow_from_another,
)
from tabmt.data.relations.orderings import find_orderings
from tabmt.data.relations.sums import Sum, choose_target, find_sums, quoted
from tabmt.data.relations.ties import Event, Tie, find_ties
from tabmt.data.relations.views import LEAST_SHARE, MISSING, ColumnView, Views
from tabmt.data.schema import Column, FoundRule, SchemaRules
from tabmt.data.typed_columns import parse_column
from tabmt.seeds import numpy_stream

log = logging.getLogger(__name__)

SEARCHED_ROWS = 20_000
SAMPLED_ROWS = 2**20  # of a table larger than memory, among which these are chosen
CHECKED_ROWS = 500_000  # at a time
LEAST_EXCEPTIONS = 3  # of a category that fails more often than not
LEAST_ROWS = 100  # in fewer rows, too many relations hold by chance
MOST_OWN_CODES = 2000  # of numbers that would be in bins, if a function needs each of them
ANY_NUMBER = 2**31


@dataclass
class Counted:
    """A rule, and in how many rows it could and did fail."""

    name: str
    text: str
    columns: tuple[str, ...]
    failures: Callable[[Views], np.ndarray]  # (n,) bool
    rows_checked: Callable[[Views], np.ndarray]  # (n,) bool
    exceptions: int = 0
    rows: int = 0

    def add(self, views: Views) -> None:
        checked = self.rows_checked(views)
        self.rows += int(checked.sum())
        self.exceptions += int((self.failures(views) & checked).sum())

    @property
    def is_systematic(self) -> bool:
        """Whether the exceptions follow a pattern of their own, which a rule would remove."""
        return False


@dataclass
class CountedTie:
    """The same for tied values, with the categories of the rows in which they are not tied."""

    name: str
    text: str
    tie: Tie
    exceptions: int = 0
    rows: int = 0
    categories: dict[tuple[str, object], int] = field(default_factory=dict)  # all rows
    failures: dict[tuple[str, object], int] = field(default_factory=dict)  # rows that fail

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(event.column for event in self.tie)

    def add(self, views: Views) -> None:
        one, two = (_occurs(event, views) for event in self.tie)
        failed = one != two
        self.rows += len(failed)
        self.exceptions += int(failed.sum())
        for name in self.columns:
            view = views[name]
            if view.column.kind == "categorical":
                for total, rows in ((self.categories, None), (self.failures, failed)):
                    values = view.values if rows is None else view.values.filter(pa.array(rows))
                    for pair in values.drop_null().value_counts().to_pylist():
                        key = name, pair["values"]
                        total[key] = total.get(key, 0) + pair["counts"]

    @property
    def is_systematic(self) -> bool:
        return any(
            count >= LEAST_EXCEPTIONS and count > self.categories[key] / 2
            for key, count in self.failures.items()
        )


@dataclass
class CountedFunction:
    """The same for a function, whose values are known only after all rows are counted."""

    name: str
    text: str
    function: Function
    has_numbers: bool  # whether what is determined are numbers
    counts: dict[tuple[object, object], int] = field(default_factory=dict)
    values: dict[str, dict[object, int]] = field(default_factory=dict)  # rows of each value

    @property
    def columns(self) -> tuple[str, ...]:
        return self.function.source, self.function.target

    def add(self, views: Views) -> None:
        for name in self.columns:
            own = self.values.setdefault(name, {})
            for pair in views[name].values.drop_null().value_counts().to_pylist():
                own[pair["values"]] = own.get(pair["values"], 0) + pair["counts"]
        names = ["source", "target"]
        table = pa.table([views[name].values for name in self.columns], names=names).drop_null()
        counted = table.group_by(names).aggregate([([], "count_all")])
        for source, target, count in zip(
            *(counted.column(name).to_pylist() for name in (*names, "count_all")), strict=True
        ):
            self.counts[source, target] = self.counts.get((source, target), 0) + count

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    @property
    def exceptions(self) -> int:
        most: dict[object, int] = {}
        for (source, _), count in self.counts.items():
            most[source] = max(most.get(source, 0), count)
        return self.rows - sum(most.values())

    @property
    def is_systematic(self) -> bool:
        """Whether there is a category that would hardly ever be generated."""
        if self.has_numbers:  # of many numbers, a few may be lost, like those of too few rows
            return False
        best: dict[object, object] = {}
        for (source, target), count in self.counts.items():
            if source not in best or count > self.counts[source, best[source]]:
                best[source] = target
        kept: dict[object, int] = {}
        lost: dict[object, int] = {}
        for (source, target), count in self.counts.items():
            side = kept if best[source] == target else lost
            side[target] = side.get(target, 0) + count
        return any(
            count >= LEAST_EXCEPTIONS and count > kept.get(target, 0)
            for target, count in lost.items()
        )


Candidate = Counted | CountedFunction | CountedTie


def find_rules(dataset: Dataset, columns: Mapping[str, Column], config: CodecConfig) -> SchemaRules:
    """The relations of a table with these columns.

    PAPER-DIFF find_rules: the paper learns relations like everything else, so its rows satisfy them
    only approximately.
    """
    views = _sampled_views(dataset, columns)
    if not views or len(next(iter(views.values())).known) < LEAST_ROWS:
        return SchemaRules()
    rng = numpy_stream(0, "relations")
    candidates, orderings = _search(views, config, dataset.num_rows, rng)
    if candidates:
        names = {name for candidate in candidates for name in candidate.columns}
        for piece in _pieces(dataset, {name: columns[name] for name in columns if name in names}):
            for candidate in candidates:
                candidate.add(piece)
    rules, found = {}, {}
    max_bins: dict[str, int] = {}
    for candidate in candidates:
        share = 1 - candidate.exceptions / max(candidate.rows, 1)
        if candidate.rows and share >= LEAST_SHARE and not candidate.is_systematic:
            own_codes = _own_codes(candidate, columns, config, dataset.num_rows)
            if own_codes is None:
                continue
            max_bins |= own_codes
            name = candidate.name
            rules[name] = candidate.text
            found[name] = FoundRule(share, _reason(candidate.exceptions, candidate.rows))
            percent = "100" if share == 1 else f"{min(100 * share, 99.99):.2f}"
            log.info("found a rule: %s (%s %% of rows)", candidate.text, percent)
    return SchemaRules(rules, found, dict(orderings), max_bins)


def _own_codes(
    candidate: "Candidate", columns: Mapping[str, Column], config: CodecConfig, rows: int
) -> dict[str, int] | None:
    """The columns of numbers of a rule that need a code for each value, and for how many; None if
    they cannot have that."""
    if not isinstance(candidate, CountedFunction):
        return {}
    found = {}
    for name, counts in candidate.values.items():
        column = columns[name]
        if column.kind == "categorical":
            continue
        usual, most = _limits(column, config, sum(counts.values()))
        counted = np.array(list(counts.values()), np.int64)
        if len(counts) > most or not has_single_values(counted, config.protect):
            return None
        if len(counts) > usual:
            found[name] = len(counts)
    return found


def _reason(exceptions: int, rows: int) -> str:
    if exceptions == 0:
        return f"holds in all {rows:,} rows in which it can be checked"
    share = 100 * (1 - exceptions / rows)
    return (
        f"holds in {min(share, 99.99):.2f} % of {rows:,} rows; all generated rows will satisfy it"
    )


def _search(
    views: Views, config: CodecConfig, rows: int, rng: np.random.Generator
) -> tuple[list[Candidate], list[tuple[str, float]]]:
    """Relations of the rows in the views, and orderings to suggest."""
    limits = {name: _limits_of(view, config, rows) for name, view in views.items()}
    most_bins = {name: usual for name, (usual, _) in limits.items()}
    most_values = {name: most for name, (_, most) in limits.items()}
    flags = find_flags(views, rng)
    sums = [
        found
        for found in find_sums(views, rng)
        if not any(set(found.names) <= set(group) for group in flags)
    ]
    functions = find_functions(_single_valued(views, config), most_values, most_bins, rng)
    # What one column determines need not be computed twice, and inside a sum it is the sum that is.
    sums = [found for found in sums if not follow_from_another(found.names, functions)]
    functions = [
        function
        for function in functions
        if not any({function.source, function.target} <= set(found.names) for found in sums)
    ]
    pairs = {frozenset(found.names) for found in sums if len(found.names) == 2}
    pairs |= {
        frozenset(pair)
        for family in families(functions)
        for pair in itertools.combinations(family, 2)
    }
    by_function = {function.target for function in functions}
    flags = [group for group in flags if not set(group) <= by_function]
    candidates: list[Candidate] = [
        *_counted_sums(sums, views, rng),
        *(_counted_function(function, views) for function in functions),
        *(_counted_flags(group) for group in flags),
        *(_counted_tie(tie) for tie in find_ties(views, most_bins, pairs, config.protect)),
    ]
    related = pairs | {
        frozenset((one, two)) for found in sums for one in found.names for two in found.names
    }
    return candidates, find_orderings(views, related, rng)


def _single_valued(views: Views, config: CodecConfig) -> Views:
    """The columns with one value for each code; rare numbers share bins if there are many."""
    return {
        name: view
        for name, view in views.items()
        if view.column.kind == "categorical"
        or has_single_values(np.bincount(view.codes[view.codes != MISSING]), config.protect)
    }


def _limits_of(view: ColumnView, config: CodecConfig, rows: int) -> tuple[int, int]:
    return _limits(view.column, config, int(rows * view.known.mean()))


def _limits(column: Column, config: CodecConfig, known: int) -> tuple[int, int]:
    """How many distinct values a column may have so that each has a code of its own: usually, and
    if a function needs it. What a user has set is not exceeded, and the numbers of persons are not
    stored for it: all rows of a value may be those of one person."""
    if column.kind == "categorical":
        return ANY_NUMBER, ANY_NUMBER
    if column.max_bins is not None:
        return column.max_bins, column.max_bins
    usual = most_bins(config.max_bins, known)
    if config.max_bins is not None or may_identify_persons(column.name):
        return usual, usual
    return usual, max(usual, MOST_OWN_CODES)


# --- rows ----------------------------------------------------------------------------------


def _sampled_views(dataset: Dataset, columns: Mapping[str, Column]) -> dict[str, ColumnView]:
    some = dataset.sample(SAMPLED_ROWS)
    rng = numpy_stream(0, "rows of relations")
    rows = pa.array(np.sort(rng.permutation(some.num_rows)[:SEARCHED_ROWS]))
    return {
        name: ColumnView.of(parse_column(plain_array(some.column(name)).take(rows), column))
        for name, column in columns.items()
        if "`" not in name  # which no rule could name
    }


def _pieces(dataset: Dataset, columns: Mapping[str, Column]) -> Iterator[Views]:
    """All rows of some columns, a bounded number at a time."""
    for fragment in dataset.fragments():
        arrays = {name: fragment.column(name) for name in columns}
        for start in range(0, fragment.num_rows, CHECKED_ROWS):
            yield {
                name: ColumnView.of(parse_column(array.slice(start, CHECKED_ROWS), columns[name]))
                for name, array in arrays.items()
            }


# --- relations as rules --------------------------------------------------------------------


def _counted_sums(sums: list[Sum], views: Views, rng: np.random.Generator) -> Iterator[Counted]:
    """Sums, each with a column that is computed from the others, without cycles."""
    computed_from: dict[str, set[str]] = {}
    for found in sums:
        taken = set(computed_from) | {
            name
            for name in found.names
            if any(_depends(other, name, computed_from) for other in found.names if other != name)
        }
        target = choose_target(found, views, taken, rng)
        if target is None:
            continue
        computed_from[target] = set(found.names) - {target}
        yield Counted(
            f"sum: {target}",
            found.as_rule(target),
            found.names,
            failures=lambda views, found=found: found.residual(views) != 0,  # type: ignore[misc]
            rows_checked=_all_known(found.names),
        )


def _depends(name: str, on: str, computed_from: Mapping[str, set[str]]) -> bool:
    """Whether a column is computed from another, directly or not."""
    sources = computed_from.get(name, set())
    return on in sources or any(_depends(source, on, computed_from) for source in sources)


def _all_known(names: tuple[str, ...]) -> Callable[[Views], np.ndarray]:
    return lambda views: np.logical_and.reduce([views[name].known for name in names])


def _counted_function(function: Function, views: Views) -> CountedFunction:
    source, target = quoted(function.source), quoted(function.target)
    name = f"function: {function.target} of {function.source}"
    has_numbers = views[function.target].column.kind != "categorical"
    return CountedFunction(name, f"determines({source}, {target})", function, has_numbers)


def _counted_flags(group: tuple[str, ...]) -> Counted:
    def failures(views: Views) -> np.ndarray:
        return np.asarray(np.sum([views[name].numbers == 1 for name in group], axis=0) != 1)

    listed = ", ".join(quoted(name) for name in group)
    name = f"flags: {group[0]} to {group[-1]}"
    return Counted(name, f"exactly_one({listed})", group, failures, _all_known(group))


def _counted_tie(tie: Tie) -> CountedTie:
    one, two = tie
    name = f"same rows: {_named(two)} and {_named(one)}"
    return CountedTie(name, f"{two.as_rule()} if and only if {one.as_rule()}", tie)


def _named(event: Event) -> str:
    return f"{event.column} {'missing' if event.value is None else event.value}"


def _occurs(event: Event, views: Views) -> np.ndarray:
    view = views[event.column]
    if event.value is None:
        return ~view.known
    if view.has_numbers:
        return np.asarray(view.numbers == float(event.value))
    code = view.encoded.dictionary.index(pa.scalar(event.value, view.values.type)).as_py()
    return view.codes == code if code >= 0 else np.zeros(len(view.known), bool)
