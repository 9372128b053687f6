"""Hyper-parameter search: each trial fits a model on training rows and is scored on validation
rows.

The first trial has the default settings, so a study shows the gain of tuning. Fits that are worse
than most others at the same point are pruned.
PAPER-DIFF tune: the paper does neither, and scores 8 times as many rows as there are training rows
(`PAPER_TUNE` in config.py).
"""

import dataclasses
import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tabmt import parallel
from tabmt.codec.table import TableCodec
from tabmt.config import Objective, SpaceName, check_choice
from tabmt.data.dataset import Dataset, InMemory
from tabmt.data.infer import Inference, infer_schema
from tabmt.data.overrides import as_overrides, read_overrides
from tabmt.data.schema import Schema
from tabmt.data.typed_columns import in_schema_types
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.evaluate import check_target
from tabmt.evaluation.metrics import fidelity, utility
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.fingerprint import fingerprint
from tabmt.method.train import Progress
from tabmt.model.model_card import Settings
from tabmt.search import trial_storage, workers
from tabmt.search.pareto import check_limits, tables_fingerprint
from tabmt.search.trial_storage import StudyLocation, import_optuna
from tabmt.seeds import derive, numpy_stream

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

log = logging.getLogger(__name__)

VALID_SHARE = 0.2  # of a table that comes without validation rows
# Name: (low, high, step), (low, high, "log"), or the choices.
SPACES: dict[str, dict[str, Any]] = {
    "paper": {  # appendix, complete
        "width": (16, 512, 16),
        "heads": [1, 2, 4, 8, 16],
        "depth": (2, 12, 2),
        "drop_path": (0.0, 0.25, 0.05),
        "dropout": (0.0, 0.5, 0.05),
        "learning_rate": (5e-5, 5e-3, "log"),
        "weight_decay": (0.001, 0.03, "log"),
        "steps": (10_000, 40_000, 5_000),
        "batch_size": (256, 2048, 256),
        "max_bins": (10, 200, 10),
    },
    "small": {
        "width": (32, 128, 16),
        "heads": [1, 2, 4, 8],
        "depth": (1, 6, 1),
        "drop_path": (0.0, 0.2, 0.05),
        "dropout": (0.0, 0.5, 0.05),
        "learning_rate": (2e-4, 5e-3, "log"),
        "weight_decay": (0.001, 0.03, "log"),
        "batch_size": [64, 128, 256, 512],
        "max_bins": (10, 200, 10),
    },
}


@dataclass(frozen=True)
class Trial:
    settings: dict[str, Any]  # for TabMT
    score: float
    score_again: float | None  # with another seed, of the first and the best


@dataclass(frozen=True)
class Tuned:
    """The result of a hyper-parameter search."""

    objective: Objective
    best: Trial  # to use: the best found, or the defaults if they score higher with another seed
    default: Trial | None  # None if they were not scored
    found: Trial  # the best of the search
    tried: int
    pruned: int
    importances: dict[str, float]
    search: dict[str, Any]

    def to_toml(self) -> str:
        """The best settings as a file for people and for `fit --config`."""
        used = "the defaults" if self.best == self.default else "the best found"
        defaults = "" if self.default is None else f"; defaults {_described(self.default)}"
        lines = [
            f"# {self.objective} on validation rows: {_described(self.found)}{defaults}.",
            f"# Best of {self.tried} trials ({self.pruned} pruned). Below: {used}.",
            *(
                f"{name} = {json.dumps(value, ensure_ascii=False)}"
                for name, value in self.best.settings.items()
                if value is not None
            ),
        ]
        return "\n".join(lines) + "\n"


def _described(trial: Trial) -> str:
    again = "" if trial.score_again is None else f" ({trial.score_again:.4f} with another seed)"
    return f"{trial.score:.4f}{again}"


def tune(
    table: Any,
    target: str | None = None,
    *,
    valid: Any = None,
    schema: Mapping[str, Any] | str | Path | None = None,
    trials: int = 50,
    minutes: float | None = None,
    space: SpaceName = "small",
    objective: Objective | None = None,
    fixed: Mapping[str, Any] | None = None,
    prune: bool = True,
    compare_defaults: bool = True,
    multiplier: int = 1,
    catboost_settings: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
    study: str = "tune",
    workers: int | None = None,
    seed: int = 0,
    on_trial: Callable[[np.ndarray, int], None] = lambda scores, trials: None,
) -> Tuned:
    """Search the settings for a table.

    `minutes` limits each fit (by default to one minute in the space "small"). The objective is ML
    efficiency on validation rows if there is a target, otherwise their likelihood. `schema` is as
    for `fit`; `fixed` settings are not searched. With `prune`, fits that are worse than most others
    are stopped early; with `compare_defaults`, the defaults are scored too, and used if they are
    better with another seed; ML efficiency is that of `multiplier` times as many rows as there are
    training rows. `PAPER_METHOD` and `PAPER_TUNE` in tabmt.config are those of the paper. `storage`
    is where trials are stored: the same call resumes with them. Searches that share a database have
    different `study` names. `on_trial` is called with the scores so far, (trials,), and the number
    of trials.

    Example:
        >>> tuned = tune(df, "income", trials=30)
        >>> model = TabMT(**tuned.best.settings).fit(df)
    """
    objective = objective or ("likelihood" if target is None else "mle")
    check_choice("space", space, SpaceName)
    check_choice("objective", objective, Objective)
    if objective == "mle" and target is None:
        raise UserError("The objective mle needs a target: the column that is predicted.")
    check_limits(minutes, trials=trials, workers=workers, multiplier=multiplier)
    import_optuna()
    if objective == "mle":
        fidelity.catboost()
    settings = _fixed_settings(fixed or {}, target, minutes, space)
    tables = TuneTables.read(table, valid, schema, settings, seed)
    check_target(target, tables.train.encoder)
    with tempfile.TemporaryDirectory() as folder:
        stored = str(Path(folder) / "trials.journal" if storage is None else storage)
        job = TuneJob(
            StudyLocation(stored, study, ("maximize",)),
            tables,
            target,
            objective,
            space,
            settings,
            {**(catboost_settings or utility.DEFAULT_SETTINGS), "thread_count": 1},
            seed,
            prune,
            multiplier,
        )
        trial_storage.claim(job.location.open(), job.description(), stored)
        search = TuneSearch(job, trials, workers or min(trials, parallel.cores()))
        default = search.score_defaults() if compare_defaults else None
        search.run(default, on_trial)
        return search.best_found() if default is None else search.result(default)


def _fixed_settings(
    fixed: Mapping[str, Any], target: str | None, minutes: float | None, space: SpaceName
) -> dict[str, Any]:
    """The settings that are not searched, checked."""
    if "seed" in fixed:
        raise UserError(
            "`seed` cannot be in `fixed`: the search fits with several seeds. Pass it as an "
            "argument of tune() (--seed)."
        )
    known = TabMT().get_params()
    for name in fixed:
        if name not in known:
            raise UserError(f"{name!r} is not a setting; the settings are: {', '.join(known)}.")
    settings = dict(fixed)
    if target is not None:
        settings["target"] = target
    if minutes is not None or space == "small":
        settings["minutes"] = 1.0 if minutes is None else minutes
    if Settings.of(TabMT(**settings).get_params()).privacy.epsilon is not None:  # or a mistake
        raise UserError(
            "A search fits many models, each of which would spend epsilon; search without it, on a "
            "table that is public, and fit the private table with the settings that were found."
        )
    return settings


@dataclass(frozen=True)
class TuneTables:
    """Training and validation rows, as tables of one schema and as the metrics see them."""

    schema: Schema
    train_table: pa.Table
    valid_table: pa.Table
    train: EncodedTable
    valid: EncodedTable

    @classmethod
    def read(
        cls, table: Any, valid: Any, schema: Any, settings: Mapping[str, Any], seed: int
    ) -> "TuneTables":
        config = Settings.of(TabMT(**settings).get_params()).codec
        dataset = Dataset.open(table)
        # Of the whole table, as `fit` will see it: some of its rows may look different.
        inferred = infer_schema(dataset, config=config, overrides=read_overrides(schema))
        rows = in_schema_types(dataset.to_table(), inferred)
        if valid is not None:
            valid_rows = in_schema_types(Dataset.open(valid).to_table(), inferred)
        else:
            order = numpy_stream(seed, "validation rows").permutation(rows.num_rows)
            count = round(VALID_SHARE * len(order))
            if not 0 < count < len(order):
                raise UserError(f"The table has {len(order)} rows, too few for validation rows.")
            valid_rows = rows.take(np.sort(order[:count]))
            rows = rows.take(np.sort(order[count:]))
            log.info("no validation table was given: %d of the rows are used for it", count)
        encoder = MetricEncoder.fit(rows, inferred)
        return cls(
            inferred,
            rows,
            valid_rows,
            encoder.encode(rows, "training"),
            encoder.encode(valid_rows, "validation"),
        )


@dataclass(frozen=True)
class TuneJob:
    """The search, and fits of given settings, as worker processes see them."""

    location: StudyLocation
    tables: TuneTables
    target: str | None
    objective: Objective
    space: SpaceName
    fixed: dict[str, Any]
    catboost_settings: dict[str, Any]
    seed: int
    prune: bool = True
    multiplier: int = 1
    is_search: bool = True  # otherwise the fixed settings are fitted as they are

    def description(self) -> dict[str, Any]:
        """What tells this search from others."""
        return {
            "tables": tables_fingerprint(self.tables.train, self.tables.valid),
            "objective": self.objective,
            "space": self.space,
            "fixed": self.fixed,
            "schema": fingerprint(as_overrides(self.tables.schema)),
            "catboost": self.catboost_settings,
            "seed": self.seed,
            "prune": self.prune,
            "multiplier": self.multiplier,
        }

    def location_beside(self, name: str, label: str) -> StudyLocation:
        """The location of another study in the same storage."""
        return dataclasses.replace(self.location, name=f"{self.location.name}, {name}: {label}")

    def distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]:
        kinds = import_optuna().distributions
        made: dict[str, Any] = {}
        if not self.is_search:
            return made
        for name, values in SPACES[self.space].items():
            if name in self.fixed or (name == "steps" and "minutes" in self.fixed):
                continue  # with a limit in minutes, steps would do nothing
            if isinstance(values, list):
                made[name] = kinds.CategoricalDistribution(values)
                continue
            low, high, step = values
            if step == "log":
                made[name] = kinds.FloatDistribution(low, high, log=True)
            elif isinstance(low, int):
                made[name] = kinds.IntDistribution(low, high, step=step)
            else:
                made[name] = kinds.FloatDistribution(low, high, step=step)
        return made

    def sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        sampler: optuna.samplers.BaseSampler = import_optuna().samplers.TPESampler(seed=seed)
        return sampler

    def prepare(self) -> Callable[["optuna.Trial"], Sequence[float]]:
        def perform(trial: "optuna.Trial") -> Sequence[float]:
            return [self.score(trial.params, trial if self.is_search else None)]

        return perform

    def score(self, chosen: Mapping[str, Any], trial: "optuna.Trial | None") -> float:
        """Fit a model and score it on validation rows."""
        settings = {**self.fixed, **chosen}
        model = TabMT(**{"seed": self.seed, "threads": 1, **settings})
        on_step = self._pruner(trial, model) if trial is not None and self.prune else None
        tables = self.tables
        model.fit(tables.train_table, schema=as_overrides(tables.schema), on_step=on_step)
        if self.objective == "likelihood":
            return float(model.log_prob(tables.valid_table, seed=self.seed).mean())
        count = self.multiplier * len(tables.train)
        drawn = model.sample(count, seed=self.seed, output="arrow")
        rows = tables.train.encoder.encode(drawn, "synthetic")
        assert self.target is not None
        return utility.ml_efficiency(
            rows,
            tables.valid,
            tables.valid,
            self.target,
            settings=self.catboost_settings,
            seed=self.seed,
        ).score

    def _pruner(self, trial: "optuna.Trial", model: TabMT) -> Callable[[Progress], None]:
        """Reports the validation likelihood at each tenth of the budget, in nats of numbers on
        their own grids, so that fits with different bins compare."""
        optuna = import_optuna()
        inside = self._mean_log_share(model)
        reported: set[int] = set()

        def on_step(progress: Progress) -> None:
            share = progress.seconds / max(progress.seconds + progress.seconds_left, 1e-9)
            tenth = int(10 * share)
            if progress.valid_loss is None or tenth in reported:
                return
            reported.add(tenth)
            trial.report(inside - progress.valid_loss, tenth)
            if trial.should_prune():
                raise optuna.TrialPruned

        return on_step

    def _mean_log_share(self, model: TabMT) -> float:
        """The mean log-share of validation numbers inside their codes, for this model's bins."""
        tables = self.tables
        config = Settings.of(model.get_params(), *tables.train_table.shape).codec
        dataset = InMemory(tables.train_table)
        inference = Inference.of(dataset, config, as_overrides(tables.schema))
        columns = inference.columns(dataset)
        codec = TableCodec.fit(columns, dataset.source, {}, config, model.seed)
        shares = codec.encode_scored(tables.valid_table).log_shares
        return float(shares.mean()) if shares.size else 0.0


@dataclass(frozen=True)
class TuneSearch:
    """The trials of a search, and what they amount to."""

    job: TuneJob
    trials: int
    workers: int

    def score_defaults(self) -> float:
        seed = self.job.seed
        score = self._score_settings("first", {"defaults": ({}, seed)})["defaults"]
        if score is None:
            study = self.job.location_beside("first", "defaults").open()
            raise trial_storage.no_trials_error(study, limited=False)
        return score

    def run(self, default: float | None, on_trial: Callable[[np.ndarray, int], None]) -> None:
        """Perform the trials; the defaults, if they were scored, are the first of them."""
        before = [] if default is None else [default]

        def report(study: "optuna.Study") -> None:
            scores = [*before, *(t.values[0] for t in trial_storage.completed_in_order(study))]
            on_trial(np.array(scores), self.trials)

        trial_storage.fail_stale_trials(self.job.location.open())
        workers.run(
            self.job,
            trials=self.trials - len(before),
            seconds=None,
            workers=self.workers,
            seed=self.job.seed,
            on_trial=report,
        )

    def best_found(self) -> Tuned:
        """The trial with the best score, as the paper takes it."""
        study = self.job.location.open()
        completed = trial_storage.completed_trials(study)
        if not completed:
            raise trial_storage.no_trials_error(study, limited=False)
        best = max(completed, key=lambda trial: trial.values[0])
        found = Trial({**self.job.fixed, **best.params}, best.values[0], None)
        tried = trial_storage.finished_count(study)
        return Tuned(
            self.job.objective,
            found,
            None,
            found,
            tried,
            tried - len(completed),
            importances(completed),
            self.job.description(),
        )

    def result(self, default: float) -> Tuned:
        """The best settings, after the best and the defaults were fitted with another seed too."""
        job = self.job
        study = job.location.open()
        completed = trial_storage.completed_trials(study)
        best = max(completed, key=lambda trial: trial.values[0], default=None)
        chosen = {} if best is None or best.values[0] <= default else dict(best.params)
        seed = derive(job.seed, "again") % 2**31
        label = json.dumps(chosen, sort_keys=True) if chosen else "defaults"
        again = self._score_settings("again", {"defaults": ({}, seed), label: (chosen, seed)})
        default_trial = found = Trial(dict(job.fixed), default, again["defaults"])
        if best is not None and chosen:
            found = Trial({**job.fixed, **chosen}, best.values[0], again[label])
        tried = 1 + trial_storage.finished_count(study)
        return Tuned(
            job.objective,
            better_trial(found, default_trial),
            default_trial,
            found,
            tried,
            tried - 1 - len(completed),
            importances(completed),
            job.description(),
        )

    def _score_settings(
        self, name: str, wanted: Mapping[str, tuple[Mapping[str, Any], int]]
    ) -> dict[str, float | None]:
        """Scores of given settings and seeds, None if they failed. They have studies of their own:
        the sampler would take them for trials of its space."""
        scores: dict[str, float | None] = {}
        for label, (settings, seed) in wanted.items():
            job = dataclasses.replace(
                self.job,
                location=self.job.location_beside(name, label),
                fixed={**self.job.fixed, **settings},
                seed=seed,
                is_search=False,
            )
            study = job.location.open()
            trial_storage.fail_stale_trials(study)
            workers.run(job, trials=1, seconds=None, workers=1, seed=0)
            values = [trial.values[0] for trial in trial_storage.completed_trials(study)]
            scores[label] = values[0] if values else None
        return scores


def better_trial(found: Trial, default: Trial) -> Trial:
    """The best of many with one seed is lucky: it has to beat the defaults with another too."""
    if found.score_again is None:
        return default
    if default.score_again is not None and found.score_again <= default.score_again:
        return default
    return found


def importances(trials: Sequence["FrozenTrial"]) -> dict[str, float]:
    """How much each setting changes the score, by fANOVA over the completed trials."""
    if len({trial.values[0] for trial in trials}) < 2:
        return {}
    optuna = import_optuna()
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    try:
        shares = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
    except RuntimeError as error:  # the scores hardly differ
        log.warning("The importance of the settings cannot be computed: %s", error)
        return {}
    return {name: float(share) for name, share in shares.items()}
