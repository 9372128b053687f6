"""The verdict on privacy: may these rows be shared, as far as tests can tell?

Three groups of tests: repeated rows, repeated identifiers, and attacks with test rows as a control.
The promised error rate is divided among the groups and among the tests of each, so fresh real rows
are called unsafe at most that often. Rows are called safe only if there are enough test rows to
find a leak.
"""

import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tabmt.data.plain_values import as_words
from tabmt.data.schema import Schema
from tabmt.evaluation.metrics import attacks, repeated_rows
from tabmt.evaluation.metrics.attacks import AttackedRows, Guesses
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.evaluation.metrics.privacy import row_keys
from tabmt.evaluation.results import ExposedRows, Privacy, PrivacyTest
from tabmt.seeds import numpy_stream

log = logging.getLogger(__name__)

ERROR_RATE = 0.05  # of the whole verdict, for fresh real rows
LEAK = 0.05  # share of recognisable training rows that enough test rows would show
MOST_ATTACKED = 4_000  # training rows, and test rows, that are attacked
MOST_SYNTHETIC = 32_768  # synthetic rows among which attacks search
MOST_COMPARED = 8_192  # rows whose closest training rows are searched, among all of them
MOST_SEEN = 0.1  # of test rows that are also training rows, beyond chance
RARE = 0.005  # share of rows up to which a category, or the end of a range, is rare
LEAST_OF_KIND = 30  # attacked rows of a kind, of either group

RARE_KIND = "rows with a rare category"
EXTREME_KIND = "rows with an extreme number"
OTHER_KIND = "all other rows"
FINDINGS = {  # attack -> what it means if it succeeds more often on training rows
    "nearest neighbour": "Training rows are recognised by their distance to the synthetic rows",
    "density ratio": "Training rows are recognised by the density of synthetic rows around them",
    "likelihood": "Training rows are recognised by their likelihood in the model",
    "singling out": "Properties of only one synthetic row single out training rows",
    "linkability": "Two parts of a training row are linked by the synthetic rows",
    "inference": "A column of a training row is inferred from its other columns",
}
Tests = Mapping[str, tuple[str, float]]  # name -> finding, p-value
LogProb = Callable[[pa.Table, str], np.ndarray]


@dataclass(frozen=True)
class RealRows:
    """The real rows as the tests need them, prepared once: both tables in random order."""

    train: EncodedTable
    control: EncodedTable | None  # None: there are no rows that the generator has not seen
    tables: tuple[pa.Table, pa.Table | None]  # the same rows, as they were given
    ids: dict[str, list[str]]  # id column -> the training rows' values
    seen_share: float  # of the test rows; if it is more than chance, there is no control
    seed: int

    @classmethod
    def of(
        cls, encoder: MetricEncoder, train: pa.Table, test: pa.Table | None, seed: int
    ) -> "RealRows":
        for table in (train, test):  # categories of either real table are distinguished
            if table is not None:
                encoder = encoder.with_categories_of(table)
        train = _shuffled(train, "training", seed)
        test = None if test is None else _shuffled(test, "test", seed)
        schema = encoder.schema
        ids = [column.name for column in schema.columns if column.kind == "id"]
        encoded = encoder.encode(train, "training")
        control = None if test is None else encoder.encode(test, "test")
        seen_share = 0.0 if control is None else _seen_share(control, encoded)
        return cls(
            encoded,
            None if seen_share > MOST_SEEN else control,
            (train, test),
            {name: _words(train, schema, name) for name in ids},
            seen_share,
            seed,
        )

    @cached_property
    def kinds(self) -> list[dict[str, np.ndarray]]:
        """Of the training and the test rows: kind -> (rows,) bool."""
        tables = [self.train] if self.control is None else [self.train, self.control]
        return _kinds(tables)

    @cached_property
    def exposed(self) -> np.ndarray:
        """(training rows,) bool: rows with a rare category or an extreme number."""
        return ~self.kinds[0][OTHER_KIND]

    @cached_property
    def ratios(self) -> tuple[np.ndarray, np.ndarray]:
        """The closeness ratios of training rows to the other ones, and of test rows to them."""
        some = _first(self.train, MOST_COMPARED)
        own = repeated_rows.closeness_ratios(some, self.train, same=True)
        if self.control is None:
            return own, np.empty(0)
        return own, repeated_rows.closeness_ratios(_first(self.control, MOST_ATTACKED), self.train)


def privacy_verdict(
    real: RealRows,
    table: pa.Table,
    log_prob: LogProb | None = None,
    max_risk: float | None = None,
) -> Privacy:
    """Test and attack a synthetic table."""
    rng = numpy_stream(real.seed, "synthetic rows of attacks")
    rows = real.train.encoder.encode(table, "synthetic")
    shuffled = rows.take(rng.permutation(len(rows)))
    groups = [_repeated_row_tests(real, rows, _first(shuffled, MOST_COMPARED))]
    if real.ids:
        groups.append(_id_tests(real, table))
    guesses = _attack(real, _first(shuffled, MOST_SYNTHETIC), log_prob)
    if guesses:
        groups.append({name: test for one in guesses for name, test in _attack_tests(one).items()})
    groups = [group for group in groups if group]
    tests = tuple(
        PrivacyTest(name, finding, p_value, ERROR_RATE / len(groups) / len(group))
        for group in groups
        for name, (finding, p_value) in group.items()
    )
    # Without test rows there is no group of attacks to take the number of tests from.
    limit = tests[-1].limit if guesses else ERROR_RATE / (len(groups) + 1) / 9
    needed = math.ceil(math.log(limit) / math.log(1 - LEAK))
    results = sorted((one.result() for one in guesses), key=lambda attack: -attack.risk)
    significant = [test for test in tests if test.p_value < test.limit]
    privacy = Privacy(
        outcome="unsafe",
        # One for each kind of test: those of one kind have the same finding.
        reasons=tuple({test.name.partition(",")[0]: test.finding for test in significant}.values()),
        error_rate=ERROR_RATE,
        needed_test_rows=needed,
        tests=tests,
        attacks=tuple(results),
        exposed=_most_exposed(real, guesses),
    )
    if not significant:
        # Repeated rows are mentioned even if their number may be due to chance.
        repeated = [t.finding for t in tests if t.name == "copies" and t.p_value < 1]
        obstacle = _obstacle(real, needed)
        privacy = dataclasses.replace(
            privacy,
            outcome="safe" if obstacle is None else "undecided",
            reasons=(*([] if obstacle is None else [obstacle]), *repeated),
        )
    return _within_budget(privacy, max_risk)


def _obstacle(real: RealRows, needed: int) -> str | None:
    """Why these rows cannot show that a table is safe; None if they can."""
    ask = f"Give at least {needed:,} test rows that the generator has not seen."
    if real.seen_share > MOST_SEEN:
        return (
            f"{real.seen_share:.0%} of the test rows are training rows too, so attacks cannot be "
            f"compared with them. {ask}"
        )
    if real.control is None:
        return f"There are no test rows to compare with. {ask}"
    if len(real.control) < needed:
        return (
            f"With {len(real.control):,} test rows, a leak of 1 in {round(1 / LEAK)} training rows "
            f"could go unnoticed. {ask}"
        )
    return None


def _within_budget(privacy: Privacy, max_risk: float | None) -> Privacy:
    """Add whether the risk passes: the verdict is safe, and no interval exceeds the limit."""
    if max_risk is None:
        return privacy
    highest = max((attack.risk_high for attack in privacy.attacks), default=1.0)
    passed = privacy.outcome == "safe" and highest <= max_risk
    return dataclasses.replace(privacy, max_risk=max_risk, passed=passed)


# --- tests ---------------------------------------------------------------------------------


def _repeated_row_tests(real: RealRows, rows: EncodedTable, some: EncodedTable) -> Tests:
    log.info("searching for repeated rows")
    every = repeated_rows.exact_copies(rows, real.train, real.control)
    exposed = repeated_rows.exact_copies(rows, real.train, real.control, real.exposed)
    tests = {
        "copies": (
            f"{_are(every.found, 'training row')} repeated exactly; expected by chance: "
            f"{_about(every.expected)}.",
            every.p_value,
        ),
        "copies of exposed rows": (
            f"{_are(exposed.found, 'training row')} repeated exactly that "
            f"{'has' if exposed.found == 1 else 'have'} a rare category or an extreme number; "
            f"expected by chance: {_about(exposed.expected)}.",
            exposed.p_value,
        ),
    }
    ratios = repeated_rows.closeness_ratios(some, real.train)
    close = repeated_rows.unusually_close(ratios, *real.ratios)
    finding = (
        f"{close.found:,} of {close.rows:,} rows look like copies with noise: much closer to one "
        f"training row than to any other. Expected by chance: {_about(close.expected)}."
    )
    for share in repeated_rows.NEAR_SHARES:
        near = repeated_rows.near_copies(ratios, *real.ratios, share)
        tests[f"near copies, closest {share:.1%}"] = (finding, near.p_value)
    return tests


def _are(count: int, what: str) -> str:
    return f"{count:,} {what} is" if count == 1 else f"{count:,} {what}s are"


def _about(expected: float) -> str:
    return (
        "none" if expected < 0.05 else f"about {expected:,.0f}" if expected >= 1 else "less than 1"
    )


def _id_tests(real: RealRows, table: pa.Table) -> Tests:
    tests = {}
    for name, values in real.ids.items():
        if name not in table.column_names:
            continue
        words = _words(table, real.train.encoder.schema, name)
        if not words:
            continue
        found = repeated_rows.repeated_ids(name, words, values)
        tests[f"identifiers: {name}"] = (
            f"{found.found:,} of {found.ids:,} values of the id column {name!r} also occur in "
            f"training rows; expected by chance: {_about(found.expected)}.",
            found.p_value,
        )
    return tests


def _words(table: pa.Table, schema: Schema, name: str) -> list[str]:
    """The known values of an id column as text."""
    words: list[str] = as_words(table.column(name), schema[name]).drop_null().to_pylist()
    return words


def _attack(real: RealRows, rows: EncodedTable, log_prob: LogProb | None) -> list[Guesses]:
    if real.control is None:
        return []
    log.info("running privacy attacks")
    attacked = AttackedRows(rows, real.train, real.control, real.seed, MOST_ATTACKED)
    found = attacks.all_attacks(attacked)
    if log_prob is not None:
        assert real.tables[1] is not None
        scores = [
            log_prob(table.slice(0, MOST_ATTACKED), name)
            for table, name in ((real.tables[0], "training"), (real.tables[1], "test"))
        ]
        found.append(attacks.likelihood(*scores))
    return found


def _attack_tests(guesses: Guesses) -> Tests:
    result = guesses.result()
    finding = (
        f"{FINDINGS[result.name]}: {result.success:.1%} of training rows, but only "
        f"{result.control_success:.1%} of test rows (AUC {result.auc:.3f})."
    )
    if guesses.predicates is not None:
        finding = (
            f"{FINDINGS[result.name]}: {result.success:.1%} of predicates; expected by chance: "
            f"{result.control_success:.1%}."
        )
    return {name: (finding, p_value) for name, p_value in guesses.p_values().items()}


# --- kinds of rows -------------------------------------------------------------------------


def _kinds(tables: list[EncodedTable]) -> list[dict[str, np.ndarray]]:
    """The kinds of rows of real tables, which together say what is rare."""
    bounds = np.cumsum([len(table) for table in tables])[:-1]
    rare = np.zeros(sum(map(len, tables)), bool)
    extreme = rare.copy()
    for name in tables[0].names:
        if name in tables[0].codes:
            codes = np.concatenate([table.codes[name] for table in tables])
            counts = np.bincount(codes + 1)
            rare |= counts[codes + 1] <= RARE * len(codes)
            continue
        values = np.concatenate([table.numbers[name] for table in tables])
        ordered = np.sort(values[~np.isnan(values)])
        at_most = np.searchsorted(ordered, values, side="right")
        at_least = len(ordered) - np.searchsorted(ordered, values)
        extreme |= ~np.isnan(values) & (np.minimum(at_most, at_least) <= RARE * len(values))
    kinds = {RARE_KIND: rare, EXTREME_KIND: extreme, OTHER_KIND: ~(rare | extreme)}
    parts = {kind: np.split(mask, bounds) for kind, mask in kinds.items()}
    return [{kind: parts[kind][i] for kind in kinds} for i in range(len(tables))]


def _most_exposed(real: RealRows, guesses: list[Guesses]) -> ExposedRows | None:
    """The kind of training rows that a membership attack recognises best."""
    found = []
    for one in guesses:
        if one.name not in attacks.MEMBERSHIP:
            continue
        for kind in real.kinds[0]:
            members, others = (
                scores[real.kinds[i][kind][: len(scores)]]
                for i, scores in enumerate((one.members, one.others))
            )
            if min(len(members), len(others)) < LEAST_OF_KIND:
                continue
            result = dataclasses.replace(one, members=members, others=others).result()
            count = int(real.kinds[0][kind].sum())
            interval = (result.risk, result.risk_low, result.risk_high)
            found.append(ExposedRows(kind, count, *interval, one.name))
    # In a kind with few rows the risk itself may be due to chance.
    return max(found, key=lambda exposed: (exposed.risk_low, exposed.risk), default=None)


def _seen_share(control: EncodedTable, train: EncodedTable) -> float:
    """The share of test rows that are training rows too, beyond that of training rows which are
    repeated among themselves."""
    counts = Counter(row_keys(train))
    seen = np.mean([key in counts for key in row_keys(control)])
    repeated = sum(count for count in counts.values() if count > 1) / len(train)
    return max(0.0, float(seen - repeated))


def _shuffled(table: pa.Table, name: str, seed: int) -> pa.Table:
    rng = numpy_stream(seed, "order of real rows", name)
    return table.take(rng.permutation(table.num_rows))


def _first(table: EncodedTable, count: int) -> EncodedTable:
    return table if len(table) <= count else table.take(np.arange(count))
