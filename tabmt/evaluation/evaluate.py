"""All metrics of a synthetic table, each with the score of fresh real rows as reference.

Synthetic rows are compared with real *test* rows, which the generator has not seen; the reference
of a metric is the same comparison with real *training* rows in place of the synthetic ones. For
privacy, synthetic rows are compared with training rows, and the reference is test rows compared
with training rows. The main metrics also have the score of a table of shuffled columns (or of
copies).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.config import CodecConfig, is_number
from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.data.overrides import read_overrides
from tabmt.data.schema import Schema, unknown_column
from tabmt.errors import UserError
from tabmt.evaluation.embedding import RowEmbedding
from tabmt.evaluation.metrics import coverage, fidelity, privacy, utility, validity
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.evaluation.results import Better, Evaluation, Privacy, Score
from tabmt.evaluation.verdict import RealRows, privacy_verdict
from tabmt.progress import in_notebook, notebook_bar
from tabmt.rules.rule import Rule
from tabmt.seeds import derive, numpy_stream

log = logging.getLogger(__name__)

TEST_SHARE = 0.2
PAPER_SAMPLES, PAPER_MODELS, PAPER_MULTIPLE = 5, 10, 8
MOST_ROWS = 100_000  # of synthetic rows, or as many as training rows: more rows add no precision
MOST_BY_DISTANCE = 32_768  # rows whose distances to real ones are computed


def evaluate(synthetic: Any, train: Any, test: Any = None, **options: Any) -> Evaluation:
    """Evaluate one synthetic table, of any origin, against real ones: how good, how private.

    Options are those of `Evaluator.of`: `valid` rows for CatBoost's early stopping, the `target`
    column for ML efficiency, the `schema` that was fitted with, `rules`, `catboost_settings`, the
    `paper`'s protocol of ML efficiency, a model (or its path) to `embed` the rows for
    precision and recall, the `model` (or its path) that made the rows, if an attacker may have it
    too, the highest accepted risk (`max_risk`, 0 to 1), and a `seed`.

    Example:
        >>> scores = evaluate(synthetic, train, test, target="income")
        >>> scores["detector_auc"].value
        >>> scores.privacy.outcome  # "safe" by these tests, "unsafe" or "undecided"
    """
    evaluator = Evaluator.of(train, test, **options)
    if not in_notebook():
        return evaluator.evaluate(synthetic).evaluation
    with notebook_bar() as draw:
        return evaluator.evaluate(synthetic, on_progress=draw).evaluation


@dataclass(frozen=True)
class Metric:
    """A metric that compares real test rows with other rows: synthetic, training, shuffled."""

    name: str
    group: str
    title: str
    better: Better
    compute: Callable[[EncodedTable, EncodedTable, np.random.Generator], float]
    note: str = ""
    has_worst: bool = False  # whether shuffled columns are scored too
    equal_rows: bool = False  # whether both tables must be reduced to the same number of rows
    by_distance: bool = False  # whether all rows are compared with all
    needs_missing: bool = False  # whether it is about missing values


def _mean(values: Mapping[Any, float]) -> float:
    return float(np.mean(list(values.values()) or [0.0]))


def _alpha(index: int) -> Callable[[EncodedTable, EncodedTable, np.random.Generator], float]:
    return lambda real, rows, rng: fidelity.alpha_precision_beta_recall(real, rows)[index]


def _precision(index: int) -> Callable[[EncodedTable, EncodedTable, np.random.Generator], float]:
    return lambda real, rows, rng: coverage.precision_recall(real.matrix, rows.matrix)[index]


METRICS = (
    Metric(
        "detector_auc", "fidelity", "Detector (CatBoost AUC)", "lower", fidelity.mean_detector_auc,
        "0.5: synthetic rows cannot be told from real ones; 1: always can", has_worst=True,
    ),
    Metric(
        "logistic_detector_auc", "fidelity", "Detector (logistic AUC)", "lower",
        fidelity.logistic_detector_auc, "weak: even shuffled columns may pass",
    ),
    Metric(
        "column_distance", "fidelity", "Column distance", "lower",
        lambda real, rows, rng: _mean(fidelity.column_distances(real, rows)),
        "mean of the Kolmogorov-Smirnov distance (numbers) and total variation (categories)",
    ),
    Metric(
        "pair_distance", "fidelity", "Pair distance", "lower",
        lambda real, rows, rng: _mean(fidelity.pair_distances(real, rows)),
        "mean total variation between the joint shares of two columns", has_worst=True,
    ),
    Metric(
        "correlation_error", "fidelity", "Correlation error", "lower",
        lambda real, rows, rng: float(fidelity.correlation_errors(real, rows).mean()),
        "as in the paper, with categories one-hot", has_worst=True,
    ),
    Metric(
        "missing_rate_error", "fidelity", "Missing rate error", "lower",
        lambda real, rows, rng: fidelity.missing_rate_error(real, rows), needs_missing=True,
    ),
    Metric(
        "missing_correlation_error", "fidelity", "Missing correlation error", "lower",
        lambda real, rows, rng: fidelity.missing_correlation_error(real, rows), needs_missing=True,
    ),
    Metric(
        "alpha_precision", "fidelity", "Alpha-precision", "higher", _alpha(0), by_distance=True
    ),
    Metric("beta_recall", "fidelity", "Beta-recall", "higher", _alpha(1), by_distance=True),
    Metric(
        "precision", "coverage", "Precision", "higher", _precision(0), "k = 3", equal_rows=True,
        by_distance=True,
    ),
    Metric(
        "recall", "coverage", "Recall", "higher", _precision(1), "k = 3", equal_rows=True,
        by_distance=True,
    ),
    Metric(
        "diversity", "coverage", "Diversity", "higher",
        lambda real, rows, rng: coverage.diversity(real, rows),
        "share of the real rows' distinct values", equal_rows=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Efficiencies:
    """The scores of several models, or of one."""

    scores: np.ndarray
    importances: dict[str, float]  # of the first model

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def sd(self) -> float | None:
        """Of the population, as in TabDDPM's evaluation; None for a single model."""
        return float(self.scores.std()) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class EvaluatedTable:
    """An evaluation with what a report draws from."""

    evaluation: Evaluation
    encoded: EncodedTable
    closeness: privacy.Closeness
    importances: dict[str, float] | None  # of a model trained on it; None without a target
    vectors: np.ndarray | None = None  # embeddings of some rows; None without a model that embeds


@dataclass(frozen=True)
class RealTables:
    """The real tables, and notes on what replaces a missing one."""

    schema: Schema
    train: pa.Table
    test: pa.Table
    valid: pa.Table | None
    seen: pa.Table  # all rows that the generator was trained on
    has_test: bool  # whether the test rows are rows that it has not seen
    notes: list[str]

    @classmethod
    def read(cls, train: Any, test: Any, valid: Any, schema: Any, seed: int) -> "RealTables":
        dataset = Dataset.open(train)
        # Only the rules that a user names are scored, so that tables compare whatever else holds.
        config = CodecConfig(find_rules=False, protect=0)  # nothing is stored
        inferred = infer_schema(dataset, config=config, overrides=read_overrides(schema))
        train_table = dataset.to_table()
        valid_table = None if valid is None else Dataset.open(valid).to_table()
        if test is not None:
            test_table = Dataset.open(test).to_table()
            return cls(inferred, train_table, test_table, valid_table, train_table, True, [])
        if train_table.num_rows < 2:
            raise UserError(
                f"The training table has {train_table.num_rows} rows, too few to split off test "
                "rows; pass a test table."
            )
        rest, test_table = _split(train_table, numpy_stream(seed, "test rows"))
        note = (
            f"No test table was given, so {test_table.num_rows:,} of the training rows are used as "
            "test rows. The generator has probably seen them, so all scores, and those of privacy "
            "above all, look better than they are; nothing is called safe."
        )
        return cls(inferred, rest, test_table, valid_table, train_table, False, [note])

    def split_validation(self, seed: int) -> tuple[pa.Table, pa.Table]:
        """Training and validation rows for CatBoost; from the training rows if none were given."""
        if self.valid is not None:
            return self.train, self.valid
        rest, valid = _split(self.train, numpy_stream(seed, "validation rows"))
        self.notes.append(
            f"No validation table was given, so {valid.num_rows:,} of the training rows are used "
            "for CatBoost's early stopping, and the score of real rows is that of the others."
        )
        return rest, valid


def _split(table: pa.Table, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    rows = rng.permutation(table.num_rows)
    count = max(1, int(table.num_rows * TEST_SHARE))
    return table.take(np.sort(rows[count:])), table.take(np.sort(rows[:count]))


@dataclass(frozen=True)
class Evaluator:
    """Real tables, prepared once, against which any number of synthetic ones are evaluated."""

    train_table: pa.Table
    test_table: pa.Table
    train: EncodedTable
    valid: EncodedTable
    test: EncodedTable
    fit_rows: EncodedTable  # the training rows that are not validation rows
    target: str | None
    rules: tuple[Rule, ...]
    catboost_settings: dict[str, Any]
    paper: bool
    embedding: RowEmbedding | None
    model: RowEmbedding | None  # that made the rows, if an attacker may have it
    max_risk: float | None
    real_rows: RealRows
    seed: int
    notes: tuple[str, ...]
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
        embed: Any = None,
        model: Any = None,
        max_risk: float | None = None,
        seed: int = 0,
    ) -> "Evaluator":
        _check_max_risk(max_risk, test)
        embedding = None if embed is None else RowEmbedding.of(embed)
        attacked = None if model is None else RowEmbedding.of(model, "model")
        real = RealTables.read(train, test, valid, schema, seed)
        all_rules = _all_rules(real.schema, rules)
        encoder = MetricEncoder.fit(real.train, real.schema)
        check_target(target, encoder)
        encoded = encoder.encode(real.train, "training")
        encoded_test = encoder.encode(real.test, "test")
        if embedding is not None:  # a model of another table is refused before the work
            embedding.vectors(real.train.slice(0, 1), "training")
            embedding.vectors(real.test.slice(0, 1), "test")
        if attacked is not None:
            attacked.log_prob(real.train.slice(0, 1), "training")
            attacked.log_prob(real.test.slice(0, 1), "test")
        fit_rows = encoded_valid = encoded
        if target is not None or real.valid is not None:
            fit_table, valid_table = real.split_validation(seed)
            encoded_valid = encoder.encode(valid_table, "validation")
            fit_rows = encoder.encode(fit_table, "training")
        return cls(
            train_table=real.train,
            test_table=real.test,
            train=encoded,
            valid=encoded_valid,
            test=encoded_test,
            fit_rows=fit_rows,
            target=target,
            rules=all_rules,
            catboost_settings=dict(catboost_settings or {}),
            paper=paper,
            embedding=embedding,
            model=attacked,
            max_risk=max_risk,
            real_rows=RealRows.of(encoder, real.seen, real.test if real.has_test else None, seed),
            seed=seed,
            notes=tuple(real.notes),
        )

    # --- scores of real rows and bad tables, computed once ---------------------------------

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

    @cached_property
    def shuffled(self) -> EncodedTable:
        """Training rows with each column shuffled independently: right columns, no relations."""
        rng = numpy_stream(self.seed, "shuffle")
        return EncodedTable(
            {name: rng.permutation(values) for name, values in self.train.numbers.items()},
            {name: rng.permutation(codes) for name, codes in self.train.codes.items()},
            self.train.encoder,
        )

    @cached_property
    def test_closeness(self) -> privacy.Closeness:
        return privacy.closeness(self._some_rows(self.test, MOST_BY_DISTANCE), self.train)

    @property
    def importances(self) -> dict[str, float] | None:
        """Feature importances of a model trained on real rows; None before a first evaluation."""
        return self._cache["real"].importances if "real" in self._cache else None

    # --- one synthetic table ---------------------------------------------------------------

    def evaluate(
        self,
        synthetic: Any,
        name: str = "synthetic",
        on_progress: Callable[[float, str], None] = lambda share, title: None,
    ) -> EvaluatedTable:
        """Every metric of one synthetic table. One that cannot be computed says why.

        `on_progress` is called with the share of the work that is done and with the next metric.
        """
        on_progress(0.0, "ML efficiency")
        table = Dataset.open(synthetic).to_table()
        all_rows = self.train.encoder.encode(table, "synthetic")
        rows = self._some_rows(all_rows, max(MOST_ROWS, len(self.train)))
        if self.embedding is not None:
            self.embedding.vectors(table.slice(0, 1), "synthetic")
        few_rows = self._some_rows(rows, MOST_BY_DISTANCE)
        closeness = privacy.closeness(few_rows, self.train)
        efficiency, importances = self._utility(all_rows if self.paper else rows)
        count = min(len(self.test), len(self.train), len(rows), MOST_BY_DISTANCE)
        vectors = None
        if self.embedding is not None:
            vectors = self._vectors(table, "synthetic", 1, count, len(rows))
        scores = [efficiency, *self._compare(rows, count, vectors, on_progress)]
        on_progress(0.7, "attacks")
        verdict = privacy_verdict(
            self.real_rows,
            table,
            None if self.model is None else self.model.log_prob,
            self.max_risk,
        )
        scores += [_worst_attack(verdict), *self._privacy(all_rows, few_rows, closeness)]
        scores += self._validity(all_rows, table)
        ours = fidelity.column_distances(self.test, rows)
        real = self._once("columns", lambda: fidelity.column_distances(self.test, self.train))
        evaluation = Evaluation(
            name=name,
            rows={
                "synthetic": len(all_rows),
                "train": len(self.train),
                "valid": len(self.valid),
                "test": len(self.test),
            },
            target=self.target,
            seed=self.seed,
            scores=tuple(scores),
            columns={column: (ours[column], real[column]) for column in ours},
            notes=(*self.notes, *self._notes_on_size(all_rows, rows)),
            left_out=self.train.encoder.left_out,
            privacy=verdict,
        )
        return EvaluatedTable(evaluation, rows, closeness, importances, vectors)

    def _some_rows(self, table: EncodedTable, most: int) -> EncodedTable:
        """A table as it is, or `most` of its rows at random."""
        if len(table) <= most:
            return table
        return table.take(self._some_indices(len(table), most))

    def _some_indices(self, rows: int, most: int) -> np.ndarray:
        return numpy_stream(self.seed, "some rows").permutation(rows)[:most]

    def _notes_on_size(self, all_rows: EncodedTable, rows: EncodedTable) -> list[str]:
        notes = []
        if len(rows) < len(all_rows):
            efficiency = ", and ML efficiency by the paper's protocol" if self.paper else ""
            notes.append(
                f"Of {len(all_rows):,} synthetic rows, {len(rows):,} random ones were evaluated; "
                f"values, types, rules and copies were checked in all{efficiency}."
            )
        if max(len(rows), len(self.test)) > MOST_BY_DISTANCE:
            notes.append(
                f"Distances use at most {MOST_BY_DISTANCE:,} random rows of a table; for "
                "privacy they are to all training and test rows."
            )
        return notes

    def _utility(self, rows: EncodedTable) -> tuple[Score, dict[str, float] | None]:
        """ML efficiency, and the feature importances of a model trained on the synthetic rows."""

        def failed(note: str) -> tuple[Score, None]:
            title = "ML efficiency"
            return Score("ml_efficiency", "utility", title, "higher", None, note=note), None

        if self.target is None:
            return failed("no target column was named")
        log.info("computing ML efficiency")
        samples = [rows]
        try:
            if self.paper:
                count = PAPER_MULTIPLE * len(self.train)
                rng = numpy_stream(self.seed, "paper samples")
                samples = utility.split_into_samples(rows, PAPER_SAMPLES, count, rng)
            ours = self._efficiency(samples)
            real: Efficiencies = self._once("real", lambda: self._efficiency([self.fit_rows]))
            worst: Efficiencies = self._once("shuffled", lambda: self._efficiency([self.shuffled]))
        except UserError as error:
            return failed(str(error))
        metric = "macro F1" if utility.is_classification(rows, self.target) else "R2"
        note = f"{metric} on real test rows, quick: one CatBoost model on {len(rows):,} rows"
        if self.paper:
            note = (
                f"{metric} on real test rows, paper: mean and standard deviation of {PAPER_MODELS} "
                f"CatBoost models on each of {PAPER_SAMPLES} samples of {PAPER_MULTIPLE} times the "
                f"training rows; real rows: of {PAPER_MODELS} models on the training rows"
            )
        score = Score(
            "ml_efficiency", "utility", f"ML efficiency ({metric})", "higher", ours.mean, real.mean,
            worst.mean, note, sd=ours.sd, reference_sd=real.sd,
        )  # fmt: skip
        return score, ours.importances

    def _efficiency(self, samples: Sequence[EncodedTable]) -> Efficiencies:
        """The scores of models trained on samples."""
        assert self.target is not None
        results = [
            utility.ml_efficiency(
                sample,
                self.valid,
                self.test,
                self.target,
                settings=self.catboost_settings,
                seed=derive(self.seed, "catboost", number) % 2**31,
            )
            for sample in samples
            for number in range(PAPER_MODELS if self.paper else 1)
        ]
        return Efficiencies(np.array([result.score for result in results]), results[0].importances)

    def _compare(
        self,
        rows: EncodedTable,
        count: int,
        vectors: np.ndarray | None,
        on_progress: Callable[[float, str], None],
    ) -> list[Score]:
        """The scores of METRICS; `count` rows of each table where numbers must be equal."""
        embedded = {} if vectors is None else self._coverage_of(vectors)
        has_missing = any(t.missing(n).any() for t in (self.train, rows) for n in rows.names)
        scores = []
        for number, metric in enumerate(METRICS):
            on_progress(0.1 + 0.6 * number / len(METRICS), metric.title)
            if metric.needs_missing and not has_missing:
                continue
            log.info("computing %s", metric.title)
            head = (metric.name, metric.group, metric.title, metric.better)
            if metric.name in embedded:
                scores.append(Score(*head, *embedded[metric.name]))
                continue
            key = f"{metric.name} {count if metric.equal_rows else ''}"
            try:
                value = self._compute(metric, rows, count)
                real = self._once(f"real {key}", partial(self._compute, metric, self.train, count))
                worst = None
                if metric.has_worst:
                    shuffled = partial(self._compute, metric, self.shuffled, count)
                    worst = self._once(f"shuffled {key}", shuffled)
            except UserError as error:
                scores.append(Score(*head, None, note=str(error)))
                continue
            size = f"{count:,} rows of each" if metric.equal_rows else ""
            note = ", ".join(text for text in (metric.note, size) if text)
            scores.append(Score(*head, value, real, worst, note))
        return scores

    def _compute(self, metric: Metric, rows: EncodedTable, count: int) -> float:
        """One metric of some rows against the real test rows."""
        real = self.test
        if metric.equal_rows:
            if count <= coverage.NEIGHBOURS:
                raise UserError(f"needs more than {coverage.NEIGHBOURS} rows, but has {count}")
            real, rows = (
                table.take(self._equal_indices(len(table), i, count))
                for i, table in enumerate((real, rows))
            )
        elif metric.by_distance:
            real, rows = (self._some_rows(table, MOST_BY_DISTANCE) for table in (real, rows))
        value = float(metric.compute(real, rows, numpy_stream(self.seed, metric.name)))
        if not np.isfinite(value):
            raise UserError("undefined for these tables")
        return value

    def _equal_indices(self, rows: int, stream: int, count: int) -> np.ndarray:
        """Which rows of a table are compared where both must have the same number."""
        return numpy_stream(self.seed, "rows", stream).permutation(rows)[:count]

    def _vectors(
        self, table: pa.Table, what: str, stream: int, count: int, most: int
    ) -> np.ndarray:
        """Embeddings of `count` rows among the `most` that are evaluated: those of diversity."""
        assert self.embedding is not None
        indices = self._equal_indices(most, stream, count)
        if most < table.num_rows:
            indices = self._some_indices(table.num_rows, most)[indices]
        return self.embedding.vectors(table.take(indices), what)

    def test_vectors(self, count: int) -> np.ndarray:
        """Embeddings of some real test rows."""
        embed = partial(self._vectors, self.test_table, "test", 0, count, len(self.test))
        vectors: np.ndarray = self._once(f"test vectors {count}", embed)
        return vectors

    def _coverage_of(
        self, vectors: np.ndarray
    ) -> dict[str, tuple[float | None, float | None, None, str]]:
        """Precision and recall of embedded rows: value, reference, no worst case, and note."""
        assert self.embedding is not None
        count = len(vectors)
        names = ("precision", "recall")
        if count <= coverage.NEIGHBOURS:
            note = f"needs more than {coverage.NEIGHBOURS} rows, but has {count}"
            return dict.fromkeys(names, (None, None, None, note))

        def train_scores() -> tuple[float, float]:
            train = self._vectors(self.train_table, "training", 1, count, len(self.train))
            return coverage.precision_recall_of_embeddings(self.test_vectors(count), train)

        ours = coverage.precision_recall_of_embeddings(self.test_vectors(count), vectors)
        real = self._once(f"train embedded {count}", train_scores)
        note = (
            f"k = {coverage.NEIGHBOURS}, in the embedding of {self.embedding.name}, "
            f"{count:,} rows of each"
        )
        return {name: (ours[i], real[i], None, note) for i, name in enumerate(names)}

    def _privacy(
        self, all_rows: EncodedTable, few_rows: EncodedTable, ours: privacy.Closeness
    ) -> list[Score]:
        log.info("computing privacy")
        train, test, real = self.train, self.test, self.test_closeness
        closer = privacy.share_closer_to_train(few_rows, train, test, ours.distances)
        expected = len(train) / (len(train) + len(test))
        copies = privacy.copies(all_rows, train)
        copies_in_test = self._once("copies", lambda: privacy.copies(test, train))
        distance = "distance to the closest training row"

        def score(
            name: str, title: str, better: Better, value: float, reference: float, note: str
        ) -> Score:
            worst = None if name == "nndr" else float(better == "lower")  # of copies
            return Score(name, "privacy", title, better, value, reference, worst, note)

        return [
            score("share_closer_to_train", "Closer to training than to test rows", "lower",
                  closer, expected,
                  "share of rows; the reference is the training rows' share of real rows"),
            score("dcr_median", "DCR, median", "reference", ours.median, real.median, distance),
            score("dcr_5", "DCR, 5th percentile", "reference", ours.fifth_percentile,
                  real.fifth_percentile, distance),
            score("nndr", "Nearest-neighbour distance ratio", "reference", ours.ratio, real.ratio,
                  "closest over second closest training row, median"),
            score("copies", "Exact copies of training rows", "lower", copies, copies_in_test,
                  "share of rows"),
        ]  # fmt: skip

    def _validity(self, rows: EncodedTable, table: pa.Table) -> list[Score]:
        outside = [_mean(validity.outside_support(self.train, t)) for t in (rows, self.test)]
        types = validity.type_differences(self.train_table, table)
        listed = "; ".join(f"{name}: {difference}" for name, difference in types.items())

        def score(name: str, title: str, value: float, reference: float, note: str) -> Score:
            return Score(name, "validity", title, "lower", value, reference, note=note)

        scores = [
            score("outside_support", "Values outside the real support", outside[0], outside[1],
                  "share of values, mean over columns"),
            score("type_differences", "Columns of another type", float(len(types)), 0.0, listed),
        ]  # fmt: skip
        schema = self.train.encoder.schema
        for rule in self.rules:
            ours, real = (
                validity.rule_violation_share(rule, t, schema, self.train_table)
                for t in (table, self.train_table)
            )
            note = f"share of rows; {rule.text}"
            scores.append(score(f"rule: {rule.name}", f"Violates {rule.name}", ours, real, note))
        return scores


def _worst_attack(verdict: Privacy) -> Score:
    score = partial(Score, "worst_attack", "privacy", "Risk of the worst attack", "lower")
    attack = verdict.worst
    if attack is None:
        return score(None, note="there are no test rows that the generator has not seen")
    interval = f"95 % interval {attack.risk_low:.3f} to {attack.risk_high:.3f}"
    return score(attack.risk, 0.0, 1.0, f"{attack.title}, {interval}")


def _all_rules(schema: Schema, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules of a schema and others, checked before anything takes time."""
    by_name = {name: Rule.parse(name, text) for name, text in schema.rules.items()}
    by_name |= {rule.name: rule for rule in rules}
    for rule in by_name.values():
        for name in rule.columns:
            if name not in schema.names:
                which = unknown_column(name, schema.names)
                raise UserError(f"The rule {rule.name!r} names a column {name!r}, {which}")
    return tuple(by_name.values())


def _check_max_risk(max_risk: Any, test: Any) -> None:
    if max_risk is None:
        return
    if not (is_number(max_risk) and 0 <= max_risk <= 1):
        raise UserError(f"max_risk is {max_risk!r}, but must be a number from 0 to 1.")
    if test is None:
        raise UserError(
            "The risk is measured with test rows, which the generator has not seen, so max_risk "
            "needs a test table."
        )


def check_target(target: str | None, encoder: MetricEncoder) -> None:
    """Refuse a target that does not exist or cannot be predicted."""
    if target is not None and target not in encoder.names:
        if target not in encoder.left_out:
            names = ", ".join(encoder.schema.names)
            raise UserError(f"There is no column {target!r} to predict; the columns are: {names}.")
        raise UserError(f"The target {target!r} cannot be predicted: {encoder.left_out[target]}.")
