"""All metrics of a synthetic table, each beside what fresh real rows score.

Synthetic rows are compared with real *test* rows, which the generator has not seen; the reference
of a metric is the same comparison with real *training* rows in the synthetic rows' place. Privacy
is the other way round: synthetic rows against training rows, beside test rows against training
rows. The headline figures also say what a table of shuffled columns (or of copies) would score.
"""

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tabmt.data import files as tables
from tabmt.data.schema import but_the_table_has, infer, read_overrides
from tabmt.errors import UserError
from tabmt.evaluation.metrics import coverage, fidelity, privacy, utility, validity
from tabmt.evaluation.metrics.view import Lens, View
from tabmt.rules.rule import Rule
from tabmt.seeds import derive, numpy_stream

log = logging.getLogger(__name__)

Better = Literal["higher", "lower", "reference"]
TEST_SHARE = 0.2
PAPER_SAMPLES, PAPER_MODELS, PAPER_MULTIPLE = 5, 10, 8
MANY_ROWS = 100_000  # more synthetic rows than that, and than training rows, tell no more
MOST_BY_DISTANCE = 32_768  # rows whose distances to real ones are taken


@dataclass(frozen=True)
class Score:
    """One figure. `worst` is what shuffled columns score, for privacy what copies score."""

    name: str
    group: str
    title: str
    better: Better
    value: float | None
    reference: float | None = None
    worst: float | None = None
    note: str = ""  # how it was taken, or why it could not be


@dataclass(frozen=True)
class Evaluation:
    """What was found about one synthetic table."""

    name: str
    rows: dict[str, int]  # synthetic, train, valid, test
    target: str | None
    seed: int
    scores: tuple[Score, ...]
    columns: dict[str, tuple[float, float]]  # column -> distance, and that of training rows
    notes: tuple[str, ...]
    left_out: dict[str, str]  # column -> why

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.name == name:
                return score
        raise KeyError(name)

    def get(self, name: str) -> float | None:
        """The value of a score; None where this table has none."""
        return next((score.value for score in self.scores if score.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Evaluation":
        return cls(
            name=data["name"],
            rows=dict(data["rows"]),
            target=data["target"],
            seed=data["seed"],
            scores=tuple(Score(**score) for score in data["scores"]),
            columns={name: (pair[0], pair[1]) for name, pair in data["columns"].items()},
            notes=tuple(data["notes"]),
            left_out=dict(data["left_out"]),
        )


@dataclass(frozen=True)
class Comparison:
    """A metric that compares real test rows with other rows: synthetic, training, shuffled."""

    name: str
    group: str
    title: str
    better: Better
    compute: Callable[[View, View, np.random.Generator], float]
    note: str = ""
    worst: bool = False  # whether shuffled columns are scored too
    equal_rows: bool = False  # whether both sides must have the same number of rows
    by_distance: bool = False  # whether all rows are compared with all
    needs_gaps: bool = False


def _mean(values: Mapping[Any, float]) -> float:
    return float(np.mean(list(values.values()) or [0.0]))


def _alpha(place: int) -> Callable[[View, View, np.random.Generator], float]:
    return lambda real, rows, rng: fidelity.alpha_precision_beta_recall(real, rows)[place]


def _precision(place: int) -> Callable[[View, View, np.random.Generator], float]:
    return lambda real, rows, rng: coverage.precision_recall(real.matrix, rows.matrix)[place]


COMPARISONS = (
    Comparison(
        "detector_auc", "fidelity", "Detector (CatBoost AUC)", "lower", fidelity.detector_auc,
        "0.5: cannot be told from real rows; 1: always told", worst=True,
    ),
    Comparison(
        "logistic_detector_auc", "fidelity", "Detector (logistic AUC)", "lower",
        fidelity.logistic_detector_auc, "easily fooled: even shuffled columns may pass",
    ),
    Comparison(
        "column_distance", "fidelity", "Column distance", "lower",
        lambda real, rows, rng: _mean(fidelity.column_distances(real, rows)),
        "mean of Kolmogorov-Smirnov (numbers) and total variation (categories)",
    ),
    Comparison(
        "pair_distance", "fidelity", "Pair distance", "lower",
        lambda real, rows, rng: _mean(fidelity.pair_distances(real, rows)),
        "mean total variation between the joint shares of two columns", worst=True,
    ),
    Comparison(
        "correlation_error", "fidelity", "Correlation error", "lower",
        lambda real, rows, rng: float(fidelity.correlation_errors(real, rows).mean()),
        "the paper's, categories one-hot", worst=True,
    ),
    Comparison(
        "gap_rate_error", "fidelity", "Gap rate error", "lower",
        lambda real, rows, rng: fidelity.gap_rate_error(real, rows), needs_gaps=True,
    ),
    Comparison(
        "gap_correlation_error", "fidelity", "Gap correlation error", "lower",
        lambda real, rows, rng: fidelity.gap_correlation_error(real, rows), needs_gaps=True,
    ),
    Comparison(
        "alpha_precision", "fidelity", "Alpha-precision", "higher", _alpha(0), by_distance=True
    ),
    Comparison("beta_recall", "fidelity", "Beta-recall", "higher", _alpha(1), by_distance=True),
    Comparison(
        "precision", "coverage", "Precision", "higher", _precision(0), "k = 3", equal_rows=True,
        by_distance=True,
    ),
    Comparison(
        "recall", "coverage", "Recall", "higher", _precision(1), "k = 3", equal_rows=True,
        by_distance=True,
    ),
    Comparison(
        "diversity", "coverage", "Diversity", "higher",
        lambda real, rows, rng: coverage.diversity(real, rows),
        "share of the real rows' distinct values", equal_rows=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """An evaluation with the material that a report draws from."""

    evaluation: Evaluation
    view: View
    closeness: privacy.Closeness
    importances: dict[str, float] | None


@dataclass(frozen=True)
class Judge:
    """The real tables, looked at once; judges any number of synthetic ones."""

    train_table: pa.Table
    train: View
    valid: View
    test: View
    target: str | None
    rules: tuple[Rule, ...]
    settings: dict[str, Any]
    paper: bool
    seed: int
    notes: tuple[str, ...]
    fit_rows: View  # the training rows that are not validation rows
    _cache: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        train: Any,
        test: Any = None,
        valid: Any = None,
        *,
        target: str | None = None,
        schema: Any = None,
        rules: Sequence[Rule] = (),
        catboost_settings: Mapping[str, Any] | None = None,
        paper: bool = False,
        seed: int = 0,
    ) -> "Judge":
        table, source = tables.load(train)
        found = infer(table, source, overrides=read_overrides(schema))
        named = {name: Rule.parse(name, rule) for name, rule in found.rules.items()}
        named |= {rule.name: rule for rule in rules}
        for rule in named.values():  # before anything takes time
            for name in rule.columns:
                if name not in found.names:
                    which = but_the_table_has(name, found.names)
                    raise UserError(f"The rule {rule.name!r} names a column {name!r}, {which}")
        notes = []
        test_table = None if test is None else tables.load(test)[0]
        valid_table = None if valid is None else tables.load(valid)[0]
        if test_table is None and table.num_rows < 2:
            raise UserError(
                f"The training table has {table.num_rows} rows, too few to split test rows off; "
                "give a test table."
            )
        if test_table is None:
            table, test_table = _split(table, numpy_stream(seed, "test rows"))
            notes.append(
                f"No test table was given, so {test_table.num_rows:,} of the training rows serve "
                "as one. The generator has probably seen them: its figures then look better than "
                "they are, those of privacy above all."
            )
        lens = Lens.grind(table, found)
        if target is not None and target not in lens.names:
            why = lens.left_out.get(target, f"the table has: {', '.join(found.names)}")
            raise UserError(f"The target {target!r} cannot be predicted: {why}.")
        kept = table
        if target is not None and valid_table is None:
            kept, valid_table = _split(table, numpy_stream(seed, "validation rows"))
            notes.append(
                f"No validation table was given, so {valid_table.num_rows:,} of the training rows "
                "tell CatBoost when to stop, and the other training rows give the reference."
            )
        views = [lens.view(table, "training"), lens.view(test_table, "test")]
        valid_view = views[0] if valid_table is None else lens.view(valid_table, "validation")
        return cls(
            table,
            views[0],
            valid_view,
            views[1],
            target,
            tuple(named.values()),
            dict(catboost_settings or {}),
            paper,
            seed,
            tuple(notes),
            lens.view(kept, "training"),
        )

    # --- what real rows and bad tables score, computed once ------------------------------------

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

    @cached_property
    def shuffled(self) -> View:
        """Training rows with every column shuffled by itself: right columns, no structure."""
        rng = numpy_stream(self.seed, "shuffle")
        view = self.train
        return View(
            {name: rng.permutation(values) for name, values in view.numbers.items()},
            {name: rng.permutation(codes) for name, codes in view.codes.items()},
            view.lens,
        )

    @cached_property
    def test_closeness(self) -> privacy.Closeness:
        return privacy.closeness(self._some(self.test, MOST_BY_DISTANCE), self.train)

    @property
    def importances(self) -> dict[str, float] | None:
        """What a model trained on real rows goes by; None before a table was judged."""
        return self._cache.get("importances")

    def judge(self, synthetic: Any, name: str = "synthetic") -> Judged:
        """Every metric of one synthetic table. One that cannot be had says why; the rest go on."""
        table = tables.load(synthetic)[0]
        whole = self.train.lens.view(table, "synthetic")
        view = self._some(whole, max(MANY_ROWS, len(self.train)))
        notes = list(self.notes)
        if len(view) < len(whole):
            trained = ", and the paper's ML efficiency took all" if self.paper else ""
            notes.append(
                f"Of {len(whole):,} synthetic rows, {len(view):,} drawn at random were judged; "
                f"values, types, rules and copies were looked for in all{trained}."
            )
        near = self._some(view, MOST_BY_DISTANCE)
        if max(len(view), len(self.test)) > MOST_BY_DISTANCE:
            notes.append(
                f"Distances are those of at most {MOST_BY_DISTANCE:,} rows of a table, drawn at "
                "random; for privacy they are to all training and test rows."
            )
        closeness = privacy.closeness(near, self.train)
        efficiency, importances = self._utility(whole if self.paper else view)
        scores = [efficiency, *self._compare(view), *self._privacy(whole, near, closeness)]
        scores += self._validity(whole, table)
        ours = fidelity.column_distances(self.test, view)
        real = self._once("columns", lambda: fidelity.column_distances(self.test, self.train))
        evaluation = Evaluation(
            name=name,
            rows={
                "synthetic": len(whole),
                "train": len(self.train),
                "valid": len(self.valid),
                "test": len(self.test),
            },
            target=self.target,
            seed=self.seed,
            scores=tuple(scores),
            columns={column: (ours[column], real[column]) for column in ours},
            notes=tuple(notes),
            left_out=self.train.lens.left_out,
        )
        return Judged(evaluation, view, closeness, importances)

    def _some(self, view: View, most: int) -> View:
        """A table as it is, or so many of its rows drawn at random."""
        if len(view) <= most:
            return view
        return view.take(numpy_stream(self.seed, "some rows").permutation(len(view))[:most])

    def _utility(self, view: View) -> tuple[Score, dict[str, float] | None]:
        title, target = "ML efficiency", self.target
        if target is None:
            note = "no target column was named"
            return Score("ml_efficiency", "utility", title, "higher", None, note=note), None
        metric = "macro F1" if utility.is_classification(view, target) else "R2"
        note = f"{metric} on real test rows, quick: one CatBoost model on {len(view):,} rows"
        models = 1
        if self.paper:
            models = PAPER_MODELS
            note = (
                f"{metric} on real test rows, paper: {PAPER_MODELS} CatBoost models on each of "
                f"{PAPER_SAMPLES} samples of {PAPER_MULTIPLE} times the training rows"
            )

        def efficiency(samples: Sequence[View]) -> tuple[float, dict[str, float]]:
            found = [
                utility.ml_efficiency(
                    rows,
                    self.valid,
                    self.test,
                    target,
                    settings=self.settings,
                    seed=derive(self.seed, "catboost", seed) % 2**31,
                )
                for rows in samples
                for seed in range(models)
            ]
            return float(np.mean([one.score for one in found])), found[0].importances

        log.info("%s", title)
        try:
            samples = [view]
            if self.paper:
                rows = PAPER_MULTIPLE * len(self.train)
                samples = utility.parts_of(view, PAPER_SAMPLES, rows)
            value, importances = efficiency(samples)
            real, self._cache["importances"] = self._once(
                "real", lambda: efficiency([self.fit_rows])
            )
            worst, _ = self._once("shuffled", lambda: efficiency([self.shuffled]))
        except UserError as error:
            note = str(error)
            return Score("ml_efficiency", "utility", title, "higher", None, note=note), None
        title = f"{title} ({metric})"
        score = Score("ml_efficiency", "utility", title, "higher", value, real, worst, note)
        return score, importances

    def _compare(self, view: View) -> list[Score]:
        """The metrics of COMPARISONS."""
        count = min(len(self.test), len(self.train), len(view), MOST_BY_DISTANCE)
        gappy = any(rows.gaps(n).any() for rows in (self.train, view) for n in view.lens.names)

        def score(metric: Comparison, rows: View) -> float:
            real = self.test
            if metric.equal_rows:
                if count <= coverage.NEIGHBOURS:
                    raise UserError(f"{count} rows are too few")
                real, rows = (
                    one.take(numpy_stream(self.seed, "rows", place).permutation(len(one))[:count])
                    for place, one in enumerate((real, rows))
                )
            elif metric.by_distance:
                real, rows = (self._some(one, MOST_BY_DISTANCE) for one in (real, rows))
            found = float(metric.compute(real, rows, numpy_stream(self.seed, metric.name)))
            if not np.isfinite(found):
                raise UserError("these tables do not give a number")
            return found

        scores = []
        for metric in COMPARISONS:
            if metric.needs_gaps and not gappy:
                continue
            log.info("%s", metric.title)
            head = (metric.name, metric.group, metric.title, metric.better)
            key = f"{metric.name} {count if metric.equal_rows else ''}"
            try:
                value = score(metric, view)
                real = self._once(f"real {key}", partial(score, metric, self.train))
                worst = None
                if metric.worst:
                    worst = self._once(f"shuffled {key}", partial(score, metric, self.shuffled))
            except UserError as error:
                scores.append(Score(*head, None, note=str(error)))
                continue
            rows = f"{count:,} rows of each" if metric.equal_rows else ""
            note = ", ".join(part for part in (metric.note, rows) if part)
            scores.append(Score(*head, value, real, worst, note))
        return scores

    def _privacy(self, view: View, near: View, ours: privacy.Closeness) -> list[Score]:
        train, test = self.train, self.test
        real = self.test_closeness
        log.info("Privacy")
        closer = privacy.share_closer_to_train(near, train, test, ours.distances)
        expected = len(train) / (len(train) + len(test))
        copied = privacy.copies(view, train)
        fresh = self._once("copies", lambda: privacy.copies(test, train))
        distance = "distance to the closest training row"

        def score(
            name: str, title: str, better: Better, value: float, reference: float, note: str
        ) -> Score:
            worst = None if name == "nndr" else float(better == "lower")  # of copies
            return Score(name, "privacy", title, better, value, reference, worst, note)

        return [
            score("share_closer_to_train", "Closer to training than to held-out rows", "lower",
                  closer, expected,
                  "share of rows; the reference is the training rows' share of real rows"),
            score("dcr_median", "DCR, median", "reference", ours.median, real.median, distance),
            score("dcr_5", "DCR, 5th percentile", "reference", ours.fifth_percentile,
                  real.fifth_percentile, distance),
            score("nndr", "Nearest-neighbour distance ratio", "reference", ours.ratio, real.ratio,
                  "closest over second closest training row, median"),
            score("copies", "Exact copies of training rows", "lower", copied, fresh,
                  "share of rows"),
        ]  # fmt: skip

    def _validity(self, view: View, table: pa.Table) -> list[Score]:
        train, schema = self.train, self.train.lens.schema
        outside = [_mean(validity.outside_support(train, rows)) for rows in (view, self.test)]
        types = validity.type_differences(self.train_table, table)
        told = "; ".join(f"{name}: {what}" for name, what in types.items())

        def score(name: str, title: str, value: float, reference: float, note: str) -> Score:
            return Score(name, "validity", title, "lower", value, reference, note=note)

        scores = [
            score("outside_support", "Values outside the real support", outside[0], outside[1],
                  "share of values, mean over columns"),
            score("type_differences", "Columns of another type", float(len(types)), 0.0, told),
        ]  # fmt: skip
        for rule in self.rules:
            ours, real = (
                validity.broken_rule_share(rule, rows, schema, self.train_table)
                for rows in (table, self.train_table)
            )
            note = f"share of rows; {rule.text}"
            scores.append(score(f"rule: {rule.name}", f"Breaks {rule.name}", ours, real, note))
        return scores


def evaluate(synthetic: Any, train: Any, test: Any = None, **options: Any) -> Evaluation:
    """Judge one synthetic table. Options are those of `Judge.of`.

    Example:
        evaluate(synthetic, train, test, target="income")["detector_auc"].value
    """
    return Judge.of(train, test, **options).judge(synthetic).evaluation


def _split(table: pa.Table, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    rows = rng.permutation(table.num_rows)
    count = max(1, int(table.num_rows * TEST_SHARE))
    return table.take(np.sort(rows[count:])), table.take(np.sort(rows[:count]))
