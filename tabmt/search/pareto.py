"""Search for a temperature for each column that balances privacy and quality.

One fitted model, many tables: each trial draws a table with its temperatures and scores it twice.
The search uses training and validation rows. Because a search also selects scores that are high by
chance, the best points are scored again on new samples: on validation rows, which are used to
choose a point, and on test rows, which evaluate the choice.
PAPER-DIFF pareto: the paper searches a linear interval, without initial trials, on 8 times as many
rows as there are training rows, with unlimited CatBoost models (`PAPER_PARETO` in config.py).
"""

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tabmt import parallel
from tabmt.config import (
    Privacy,
    Quality,
    SamplerName,
    Scale,
    check_choice,
    check_count,
    is_number,
)
from tabmt.data.dataset import Dataset
from tabmt.data.typed_columns import in_schema_types
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.evaluate import check_target
from tabmt.evaluation.metrics import attacks, fidelity, privacy, utility
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.fingerprint import fingerprint
from tabmt.model.fitted_model import token_column
from tabmt.model.model_file import model_fingerprint
from tabmt.search import trial_storage, workers
from tabmt.search.pareto_front import Front, Point, non_dominated, signs
from tabmt.search.trial_storage import StudyLocation, import_optuna
from tabmt.seeds import derive, numpy_stream

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

log = logging.getLogger(__name__)

LOWEST, HIGHEST = 0.5, 5.0  # temperatures; paper, appendix
UNIFORM = (1.0, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0)  # one temperature for all columns
MOST_TREES = 300  # of CatBoost in a trial; the final scoring has as many as are set
MOST_ROWS = 10_000  # of a trial's table, unless set: most of its time goes into training on them
MOST_BY_DISTANCE = 5_000  # rows whose distances are computed: more are hardly more precise
MOST_ATTACKED = 2_000  # training rows, and other real rows, that a trial attacks
LEAST_POPULATION, MOST_POPULATION = 4, 50  # of NSGA-II: a quarter of the trials
MOST_COPIES = 0.5  # of validation or test rows that are also training rows, without a warning
MOST_POINTS = 10  # of the front that are scored again


def pareto(
    model: TabMT | str | Path,
    train: Any,
    valid: Any,
    target: str | None = None,
    *,
    test: Any = None,
    trials: int = 100,
    minutes: float | None = None,
    sampler: SamplerName = "nsga2",
    privacy: Privacy = "dcr",
    quality: Quality = "mle",
    rows: int | None = None,
    final_rows: int | None = None,
    multiplier: int | None = None,
    scale: Scale = "log",
    uniform_first: bool = True,
    population: int | None = None,
    quick: bool = True,
    catboost_settings: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
    study: str = "search",
    workers: int | None = None,
    seed: int = 0,
    on_trial: Callable[[np.ndarray, int], None] = lambda scores, trials: None,
) -> Front:
    """Search the temperatures of a fitted model for privacy against quality.

    `train` are the rows that the model was fitted on, `valid` and `test` rows that it has not seen;
    without `test`, half of `valid` is set aside for the final scoring. A trial generates `rows`
    rows (as many as there are training rows, at most 10,000), the final scoring `final_rows` (as
    many as training rows); with a `multiplier`, both generate that many times the training rows.
    `scale` is that of the temperatures from 0.5 to 5; with `uniform_first`, trials with one
    temperature for all columns come first; `population` is that of NSGA-II (by default a quarter of
    the trials); a `quick` trial has at most 300 trees and the distances of at most 5,000 rows.
    `PAPER_PARETO` in tabmt.config has the paper's choices. `storage` is a file or the URL of a
    database in which trials are stored: the same call resumes with them. Searches that share a
    database have different `study` names. `on_trial` is called with the scores so far, (trials, 2),
    and the number of trials.

    Example:
        >>> front = pareto(model, train, valid, "income", trials=50)
        >>> private = model.with_temperatures(front.choose(quality_loss=0.02).temperatures)
    """
    plan = Plan.of(sampler, scale, uniform_first, population, trials)
    check_choice("privacy", privacy, Privacy)
    check_choice("quality", quality, Quality)
    check_limits(minutes, trials=trials, rows=rows, final_rows=final_rows, workers=workers,
                 multiplier=multiplier)  # fmt: skip
    import_optuna()
    fidelity.catboost()  # what is not installed is said before the search, not in it
    with tempfile.TemporaryDirectory() as folder:
        path = _model_file(model, Path(folder))
        loaded = TabMT.load(path)
        real = RealRows.read_checked(loaded, train, valid, test, seed)
        target = _find_target(loaded, target, real.train.encoder, quality)
        many = None if multiplier is None else multiplier * len(real.train)
        scorers = Scorers.make(
            Scorer(str(path), real.train, real.valid, real.valid, target, privacy, quality,
                   rows or many or min(len(real.train), MOST_ROWS), {}, seed, quick),
            real.test, final_rows or many, catboost_settings,
        )  # fmt: skip
        about = scorers.description(loaded, plan)
        stored = str(Path(folder) / "trials.journal" if storage is None else storage)
        job = _start_study(loaded, scorers, plan, StudyLocation(
            stored, study, _directions(privacy, quality)), about)  # fmt: skip
        search = Search(job, trials, workers or min(trials, parallel.cores()))
        search.run(None if minutes is None else 60 * minutes, seed, on_trial)
        return search.front(scorers, about)


class Plan(NamedTuple):
    """How the trials of a search are chosen."""

    sampler: SamplerName
    scale: Scale
    uniform_first: bool
    population: int

    @classmethod
    def of(
        cls,
        sampler: SamplerName,
        scale: Scale,
        uniform_first: bool,
        population: int | None,
        trials: int,
    ) -> "Plan":
        check_choice("sampler", sampler, SamplerName)
        check_choice("scale", scale, Scale)
        check_limits(None, trials=trials, population=population)
        quarter = max(LEAST_POPULATION, min(MOST_POPULATION, trials // 4))
        return cls(sampler, scale, uniform_first, population or quarter)


def check_limits(minutes: Any, **counts: Any) -> None:
    """Refuse numbers of trials, rows or workers below 1, and no time at all."""
    for name, count in counts.items():
        if count is not None:
            check_count(name, count, 1)
    if minutes is not None and not (is_number(minutes) and minutes > 0):
        raise UserError(f"minutes is {minutes!r}, but must be a number above 0.")


def _directions(privacy: Privacy, quality: Quality) -> tuple[str, ...]:
    return tuple("maximize" if sign > 0 else "minimize" for sign in signs(privacy, quality))


def _model_file(model: TabMT | str | Path, folder: Path) -> Path:
    """The file from which workers load the model."""
    if not isinstance(model, TabMT):
        return Path(model)
    model.save(folder / "model.tabmt")
    return folder / "model.tabmt"


def _start_study(
    model: TabMT,
    scorers: "Scorers",
    plan: Plan,
    location: StudyLocation,
    about: Mapping[str, Any],
) -> "TemperatureJob":
    """Open the study, score real rows, and request the uniform temperatures."""
    opened = location.open()
    # Mistakes are reported before anything takes time.
    trial_storage.claim(opened, about, location.storage)
    log.info("scoring real rows for comparison")
    job = TemperatureJob(
        location,
        scorers.search,
        tuple(model.model_.codec.token_index),
        plan,
        real=scorers.real_scores(),
    )
    if plan.uniform_first:
        uniform = {value: dict.fromkeys(job.columns, value) for value in UNIFORM}
        trial_storage.request_trials(opened, "uniform", uniform)
    return job


# --- real rows -----------------------------------------------------------------------------


class RealRows(NamedTuple):
    train: EncodedTable
    valid: EncodedTable
    test: EncodedTable

    @classmethod
    def read(cls, model: TabMT, train: Any, valid: Any, test: Any, seed: int) -> "RealRows":
        schema = model.schema_

        def read(table: Any) -> pa.Table:
            return in_schema_types(Dataset.open(table).to_table(), schema)

        train_table = read(train)
        encoder = MetricEncoder.fit(train_table, schema)
        encoded = encoder.encode(train_table, "training")
        encoded_valid = encoder.encode(read(valid), "validation")
        if test is not None:
            return cls(encoded, encoded_valid, encoder.encode(read(test), "test"))
        order = numpy_stream(seed, "set aside").permutation(len(encoded_valid))
        half = len(order) // 2
        if half == 0:
            raise UserError("The validation table has one row; the search needs two or more.")
        log.info("no test table was given: %d of the validation rows are used as test rows", half)
        halves = (encoded_valid.take(np.sort(part)) for part in (order[half:], order[:half]))
        return cls(encoded, *halves)

    @classmethod
    def read_checked(cls, model: TabMT, train: Any, valid: Any, test: Any, seed: int) -> "RealRows":
        rows = cls.read(model, train, valid, test, seed)
        rows.warn_if_seen(model)
        return rows

    def warn_if_seen(self, model: TabMT) -> None:
        """Warn about tables that would make scores look better than they are."""
        if len(self.train) != model.card_.rows:
            log.warning(
                "The training table has %d rows, but the model was fitted on %d: privacy can only "
                "be measured against the rows it was fitted on.",
                len(self.train),
                model.card_.rows,
            )
        if tables_fingerprint(self.test) == tables_fingerprint(self.valid):
            raise UserError(
                "The test and validation tables are the same, but validation rows are used to "
                "choose a point. Pass another test table, or none to use half of the validation "
                "rows."
            )
        for name, rows in (("validation", self.valid), ("test", self.test)):
            share = privacy.copies(rows, self.train)
            if share > MOST_COPIES:
                log.warning(
                    "%.0f %% of the %s rows are also training rows: if the model was fitted on "
                    "them, the scores look better than they are.",
                    100 * share,
                    name,
                )


def tables_fingerprint(*tables: EncodedTable) -> str:
    """Tells the content of tables from others, so that a resumed search has the same ones."""
    return fingerprint(*(a for t in tables for a in (*t.numbers.values(), *t.codes.values())))


def _find_target(
    model: TabMT, target: str | None, encoder: MetricEncoder, quality: Quality
) -> str | None:
    target = target or model.card_.settings.train.target
    if target is None and quality != "detector":
        raise UserError("The search needs a target: the column that is predicted.")
    token_column(model.model_.codec, target, "target")
    check_target(target, encoder)
    return target


# --- scores --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scorer:
    """Draws a table at given temperatures and scores its privacy and quality."""

    model: str  # a file
    train: EncodedTable
    valid: EncodedTable  # for CatBoost's early stopping
    scored_on: EncodedTable  # real rows, validation or test, against which it is scored
    target: str | None
    privacy: Privacy
    quality: Quality
    rows: int
    catboost_settings: dict[str, Any]
    seed: int
    quick: bool = True  # few trees, and the distances of some of the rows

    def score(self, model: TabMT, temperatures: Mapping[str, float], number: int) -> list[float]:
        drawn = model.sample(
            self.rows,
            seed=derive(self.seed, "trial", number),
            temperature=temperatures,
            output="arrow",
        )
        rows = self.train.encoder.encode(drawn, "synthetic")
        return [self.privacy_of(rows, self.scored_on), self._quality(rows)]

    def privacy_of(self, rows: EncodedTable, other: EncodedTable) -> float:
        """How private some rows are; `other` are real rows that the generator has not seen."""
        if self.privacy == "attack":
            most = MOST_ATTACKED if self.quick else len(self.train)
            return attacks.worst_risk(rows, self.train, other, seed=self.seed, most=most)
        if self.quick and len(rows) > MOST_BY_DISTANCE:
            order = numpy_stream(self.seed, "rows of distances").permutation(len(rows))
            rows = rows.take(order[:MOST_BY_DISTANCE])
        closeness = privacy.closeness(rows, self.train)
        if self.privacy == "dcr":
            return closeness.median
        share = privacy.share_closer_to_train(rows, self.train, other, closeness.distances)
        # As if there were as many other rows as training rows: then fresh rows score 0.5, whichever
        # rows are the others.
        odds = share / max(1 - share, 1e-9) * len(other) / len(self.train)
        return odds / (1 + odds)

    def _quality(self, rows: EncodedTable) -> float:
        if self.quality == "detector":
            return self.detector_auc(self.scored_on, rows)
        return self.efficiency(rows, self.scored_on).score

    def detector_auc(self, real: EncodedTable, rows: EncodedTable) -> float:
        return max(0.5, fidelity.detector_auc(real, rows, numpy_stream(self.seed, "detector")))

    def efficiency(self, rows: EncodedTable, test: EncodedTable) -> utility.Efficiency:
        assert self.target is not None
        return utility.ml_efficiency(
            rows, self.valid, test, self.target, settings=self.catboost_settings, seed=self.seed
        )


class RealScores(NamedTuple):
    scores: dict[str, float]  # privacy of test rows; quality of training rows on test, valid rows
    importances: dict[str, float]  # how much each column says about the target


@dataclass(frozen=True)
class Scorers:
    """One scorer for the search, and two for fresh samples of the points that it ends with."""

    search: Scorer
    valid: Scorer
    test: Scorer

    @classmethod
    def make(
        cls,
        search: Scorer,
        test_rows: EncodedTable,
        final_rows: int | None,
        catboost_settings: Mapping[str, Any] | None,
    ) -> "Scorers":
        settings = {**(catboost_settings or utility.DEFAULT_SETTINGS), "thread_count": 1}
        valid = dataclasses.replace(
            search,
            rows=final_rows or len(search.train),
            catboost_settings=settings,
            seed=derive(search.seed, "check") % 2**31,
        )
        test = dataclasses.replace(
            valid, scored_on=test_rows, seed=derive(search.seed, "again") % 2**31
        )
        few = _with_few_trees(settings) if search.quick else settings
        return cls(dataclasses.replace(search, catboost_settings=few), valid, test)

    def description(self, model: TabMT, plan: Plan) -> dict[str, Any]:
        """What tells this search from others."""
        scorer = self.search
        return {
            "model": model_fingerprint(model.model_),
            "target": scorer.target,
            "privacy": scorer.privacy,
            "quality": scorer.quality,
            **({"attacks": list(attacks.TITLES)} if scorer.privacy == "attack" else {}),
            **plan._asdict(),
            "quick": scorer.quick,
            "rows": scorer.rows,
            "seed": scorer.seed,
            "tables": tables_fingerprint(scorer.train, scorer.valid),
            "catboost": scorer.catboost_settings,
        }

    def real_scores(self) -> RealScores:
        """The scores of real rows, for comparison."""
        scorer = self.test
        scores = {"privacy": scorer.privacy_of(scorer.scored_on, scorer.valid)}
        importances: dict[str, float] = {}
        for name, rows in (("quality", scorer.scored_on), ("valid_quality", scorer.valid)):
            if scorer.target is not None:
                efficiency = scorer.efficiency(scorer.train, rows)
                importances, scores[name] = efficiency.importances, efficiency.score
            if scorer.quality == "detector":
                scores[name] = scorer.detector_auc(rows, scorer.train)
        if not np.isfinite(list(scores.values())).all():
            known = "" if scorer.target is None else f" with a known value of {scorer.target!r}"
            raise UserError(f"Cannot score real rows: too few validation or test rows{known}.")
        if scorer.target is not None:
            importances = {**importances, scorer.target: max(importances.values(), default=0.0)}
        return RealScores(scores, importances)


def _with_few_trees(settings: dict[str, Any]) -> dict[str, Any]:
    """CatBoost settings with few trees, by whichever of its names for their number."""
    names = ("iterations", "n_estimators", "num_trees", "num_boost_round")
    trees = next((settings[name] for name in names if name in settings), MOST_TREES)
    if not isinstance(trees, int) or trees < 1:
        raise UserError(
            f"CatBoost's iterations are {trees!r}, but must be a whole number of at least 1."
        )
    rest = {name: value for name, value in settings.items() if name not in names}
    return {**rest, "iterations": min(trees, MOST_TREES)}


# --- trials --------------------------------------------------------------------------------


@dataclass(frozen=True)
class TemperatureJob:
    """The search, and the scoring of its points, as worker processes see them."""

    location: StudyLocation
    scorer: Scorer
    columns: tuple[str, ...]
    plan: Plan
    real: RealScores

    def distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]:
        optuna = import_optuna()
        return {
            # On a linear scale most trials would be above 2, where little quality is left.
            name: optuna.distributions.FloatDistribution(
                LOWEST, HIGHEST, log=self.plan.scale == "log"
            )
            for name in self.columns
        }

    def sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        samplers = import_optuna().samplers
        from tabmt.search.guided_sampler import GuidedSampler  # needs Optuna to be importable

        makers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
            "nsga2": lambda: samplers.NSGAIISampler(
                population_size=self.plan.population, seed=seed
            ),
            "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=True),
            "gp": lambda: samplers.GPSampler(seed=seed),
            "guided": lambda: GuidedSampler(self.real.importances, seed=seed),
            "random": lambda: samplers.RandomSampler(seed=seed),
        }
        return makers[self.plan.sampler]()

    def prepare(self) -> Callable[["optuna.Trial"], Sequence[float]]:
        model = TabMT.load(self.scorer.model).set_params(threads=1)

        def perform(trial: "optuna.Trial") -> Sequence[float]:
            return self.scorer.score(model, trial.params, trial.number)

        return perform


@dataclass(frozen=True)
class Search:
    """The trials of a search, and the front that they make."""

    job: TemperatureJob
    trials: int
    workers: int

    def run(
        self, seconds: float | None, seed: int, on_trial: Callable[[np.ndarray, int], None]
    ) -> None:
        def report(study: "optuna.Study") -> None:
            done = [trial.values for trial in trial_storage.completed_in_order(study)]
            on_trial(np.array(done).reshape(-1, 2), self.trials)

        workers.run(
            self.job,
            trials=self.trials,
            seconds=seconds,
            workers=self.workers,
            seed=seed % 2**31,
            on_trial=report,
        )
        study = self.job.location.open()
        if not trial_storage.completed_trials(study):
            raise trial_storage.no_trials_error(study, limited=seconds is not None)

    def front(self, scorers: Scorers, about: Mapping[str, Any]) -> Front:
        """The points that no other beats, and the uniform ones, scored again on fresh samples."""
        scorer = self.job.scorer
        trials = trial_storage.completed_trials(self.job.location.open())
        best, uniform = self._points(trials)
        on_valid, on_test = (
            self._score_again([*best, *uniform], len(trials), again)
            for again in (scorers.valid, scorers.test)
        )

        def point(trial: "FrozenTrial") -> Point:
            return Point(
                temperatures={name: trial.params[name] for name in self.job.columns},
                privacy=trial.values[0],
                quality=trial.values[1],
                valid_privacy=on_valid[trial.number][0],
                valid_quality=on_valid[trial.number][1],
                test_privacy=on_test[trial.number][0],
                test_quality=on_test[trial.number][1],
                uniform_temperature=trial.user_attrs.get("uniform"),
            )

        uniform_points = sorted(map(point, uniform), key=lambda p: p.uniform_temperature or 0.0)
        return Front(
            scorer.privacy,
            scorer.quality,
            scorer.target,
            tuple(map(point, best)),
            tuple(uniform_points),
            tuple((trial.values[0], trial.values[1]) for trial in trials),
            self.job.real.scores,
            {
                **about,
                "final_rows": scorers.test.rows,
                "trials": len(trials),
                "seconds_per_trial": float(np.mean([t.user_attrs["seconds"] for t in trials])),
                "workers": self.workers,
            },
        )

    def _points(
        self, trials: Sequence["FrozenTrial"]
    ) -> tuple[list["FrozenTrial"], list["FrozenTrial"]]:
        """The trials that no other beats, or some of many of them, and the uniform ones."""
        sign = signs(self.job.scorer.privacy, self.job.scorer.quality)
        scores = np.array([trial.values for trial in trials])
        best = [t for t, kept in zip(trials, non_dominated(scores * sign), strict=True) if kept]
        best.sort(key=lambda trial: trial.values[0] * sign[0])
        if len(best) > MOST_POINTS:  # both ends, and evenly between them
            chosen = np.linspace(0, len(best) - 1, MOST_POINTS).round().astype(int)
            best = [best[index] for index in chosen]
        return best, [trial for trial in trials if "uniform" in trial.user_attrs]

    def _score_again(
        self, trials: Sequence["FrozenTrial"], after: int, scorer: Scorer
    ) -> dict[int, tuple[float | None, float | None]]:
        """Privacy and quality of trials' temperatures on fresh samples; None if that failed."""
        rows = tables_fingerprint(scorer.scored_on)
        about = fingerprint([scorer.rows, rows, scorer.catboost_settings, scorer.seed])
        name = f"{self.job.location.name}: again after {after}, {about}"
        location = dataclasses.replace(self.job.location, name=name)
        plan = self.job.plan._replace(sampler="random")
        job = dataclasses.replace(self.job, location=location, scorer=scorer, plan=plan)
        params = {trial.number: trial.params for trial in trials}
        study = location.open()
        rows_name = "validation" if scorer.scored_on is scorer.valid else "test"
        log.info("scoring %d points again, on new samples and %s rows", len(params), rows_name)
        report = _quarterly_report(len(params))
        for also_running in (False, True):  # finally also what another machine did not finish
            trial_storage.request_trials(study, "of", params, also_running=also_running)
            count = trial_storage.finished_count(study) + trial_storage.waiting_count(study)
            workers.run(
                job,
                trials=count,
                seconds=None,
                workers=self.workers,
                seed=0,
                only="of",
                on_trial=report,
            )
        done = trial_storage.completed_trials(study)
        scores = {t.user_attrs["of"]: (t.values[0], t.values[1]) for t in done}
        return {number: scores.get(number, (None, None)) for number in params}


def _quarterly_report(count: int) -> Callable[["optuna.Study"], None]:
    """Logs each quarter of `count` trials."""
    reported = 0

    def report(study: "optuna.Study") -> None:
        nonlocal reported
        done = trial_storage.finished_count(study)
        if 4 * done // count > 4 * reported // count and done < count:
            log.info("%d of %d points are scored", done, count)
            reported = done

    return report
