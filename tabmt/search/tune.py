"""Settings, searched: each trial fits a model on training rows and is judged on validation rows.

The first trial is the default settings, so a study says what tuning brought. Fits that fare worse
than most at the same moment are given up.
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

from tabmt.codec.columns import TableCodec
from tabmt.config import Objective, SpaceName
from tabmt.data import files as tables
from tabmt.data.schema import infer, read_overrides
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.metrics import fidelity, utility
from tabmt.evaluation.metrics.view import Lens, View
from tabmt.method.train import Progress
from tabmt.model.card import Settings
from tabmt.search import studies
from tabmt.search.studies import Place, check_choice, import_optuna
from tabmt.seeds import derive, numpy_stream

if TYPE_CHECKING:
    import optuna

log = logging.getLogger(__name__)

VALID_SHARE = 0.2  # of a table that comes without validation rows
# Name: (low, high, step), (low, high, "log"), or the choices.
SPACES: dict[str, dict[str, Any]] = {
    "paper": {  # appendix, in full
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
    "cpu": {
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
    again: float | None  # with another seed, of the first and the best


@dataclass(frozen=True)
class Tuned:
    """What a search of settings found."""

    objective: Objective
    best: Trial  # to take: what was found, or the defaults if they fare better with another seed
    default: Trial
    found: Trial  # the best of the search
    tried: int
    pruned: int
    importances: dict[str, float]
    search: dict[str, Any]

    def to_toml(self) -> str:
        """The best settings as a file for people and for `fit --config`."""
        taken = "the defaults" if self.best == self.default else "what was found"
        lines = [
            f"# {self.objective} on validation rows: {_told(self.found)}; "
            f"defaults {_told(self.default)}.",
            f"# Best of {self.tried} trials ({self.pruned} given up early). Below: {taken}.",
            *(
                f"{name} = {json.dumps(value, ensure_ascii=False)}"
                for name, value in self.best.settings.items()
                if value is not None
            ),
        ]
        return "\n".join(lines) + "\n"


def _told(trial: Trial) -> str:
    return f"{trial.score:.4f}" + (
        "" if trial.again is None else f" ({trial.again:.4f} with another seed)"
    )


@dataclass(frozen=True)
class TuneJob:
    place: Place
    train: pa.Table
    valid: pa.Table
    views: tuple[View, View]  # of training and validation rows
    target: str | None
    objective: Objective
    space: SpaceName
    fixed: dict[str, Any]
    overrides: Mapping[str, Any]  # the kinds that the whole table has
    catboost_settings: dict[str, Any]
    seed: int
    searched: bool = True  # otherwise the fixed settings are fitted as they are

    def beside(self, name: str, label: str) -> Place:
        """Of a study of its own in the same storage."""
        return dataclasses.replace(self.place, name=f"{self.place.name}, {name}: {label}")

    def distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]:
        made = import_optuna().distributions
        found: dict[str, Any] = {}
        if not self.searched:
            return found
        for name, range_ in SPACES[self.space].items():
            if name in self.fixed or (name == "steps" and "minutes" in self.fixed):
                continue  # with a limit in minutes, steps would do nothing
            if isinstance(range_, list):
                found[name] = made.CategoricalDistribution(range_)
            elif range_[2] == "log":
                found[name] = made.FloatDistribution(range_[0], range_[1], log=True)
            elif isinstance(range_[0], int):
                found[name] = made.IntDistribution(range_[0], range_[1], step=range_[2])
            else:
                found[name] = made.FloatDistribution(range_[0], range_[1], step=range_[2])
        return found

    def sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        sampler: optuna.samplers.BaseSampler = import_optuna().samplers.TPESampler(seed=seed)
        return sampler

    def prepare(self) -> Callable[["optuna.Trial"], Sequence[float]]:
        def perform(trial: "optuna.Trial") -> Sequence[float]:
            return [self.score(trial.params, trial if self.searched else None)]

        return perform

    def score(self, chosen: Mapping[str, Any], trial: "optuna.Trial | None") -> float:
        settings = {**self.fixed, **chosen}
        model = TabMT(**{"seed": self.seed, "threads": 1, **settings})
        watch = None if trial is None else self._pruner(trial, model)
        model.fit(self.train, schema=self.overrides, on_step=watch)
        if self.objective == "likelihood":
            return float(model.log_prob(self.valid, seed=self.seed).mean())
        drawn = model.sample(len(self.views[0]), seed=self.seed, kind="arrow")
        view = self.views[0].lens.view(drawn, "synthetic")
        valid = self.views[1]
        assert self.target is not None
        return utility.ml_efficiency(
            view, valid, valid, self.target, settings=self.catboost_settings, seed=self.seed
        ).score

    def _pruner(self, trial: "optuna.Trial", model: TabMT) -> Callable[[Progress], None]:
        """Reports held-out likelihood on the columns' own grids, so that fits with different bins
        compare, at each tenth of the budget."""
        optuna = import_optuna()
        config = Settings.of(model.get_params(), *self.train.shape).codec
        schema = infer(self.train, gaps=config.gaps, overrides=self.overrides)
        codec = TableCodec.fit(self.train, schema, config, model.seed)
        shares = codec.look(self.valid)[2]
        inside = float(shares.mean()) if shares.size else 0.0
        told: set[int] = set()

        def watch(progress: Progress) -> None:
            done = progress.seconds / max(progress.seconds + progress.seconds_left, 1e-9)
            tenth = int(10 * done)
            if progress.valid is None or tenth in told:
                return
            told.add(tenth)
            trial.report(inside - progress.valid, tenth)
            if trial.should_prune():
                raise optuna.TrialPruned

        return watch


def tune(
    table: Any,
    target: str | None = None,
    *,
    valid: Any = None,
    schema: Mapping[str, Any] | str | Path | None = None,
    trials: int = 50,
    minutes: float | None = None,
    space: SpaceName = "cpu",
    objective: Objective | None = None,
    fixed: Mapping[str, Any] | None = None,
    catboost_settings: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
    study: str = "tune",
    workers: int | None = None,
    seed: int = 0,
    on_look: Callable[[np.ndarray, int], None] = lambda scores, trials: None,
) -> Tuned:
    """Search settings for a table; `TabMT(**tuned.best.settings)` uses them.

    `minutes` bounds each fit (one by default in the space "cpu"). The objective is ML efficiency
    on validation rows if there is a target, otherwise their likelihood. `schema` is as for `fit`;
    `fixed` settings are not searched. `storage` keeps the trials: the same call goes on with them;
    searches that share a database are told apart by the names of their `study`.
    """
    objective = objective or ("likelihood" if target is None else "mle")
    check_choice("space", space, SpaceName)
    check_choice("objective", objective, Objective)
    if objective == "mle" and target is None:
        raise UserError("The objective mle needs a target: the column that is predicted.")
    studies.check_numbers(minutes, trials=trials, workers=workers)
    import_optuna()
    if objective == "mle":
        fidelity.catboost()
    given = dict(fixed or {})
    if "seed" in given:
        raise UserError("'seed' is fixed, but the best settings are fitted with another seed too.")
    for name in given:
        if name not in TabMT().get_params():
            raise UserError(
                f"{name!r} is fixed, but the settings are: {', '.join(TabMT().get_params())}."
            )
    if target is not None:
        given["target"] = target
    if minutes is not None or space == "cpu":
        given["minutes"] = 1.0 if minutes is None else minutes
    config = Settings.of(TabMT(**given).get_params()).codec  # what is wrong is said now
    arrow, source = tables.load(table)
    # Of the whole table, as `fit` will see it: a part of it may look different.
    found_schema = infer(arrow, source, gaps=config.gaps, overrides=read_overrides(schema))
    read = TableCodec(found_schema, ()).read
    arrow = read(arrow)
    if valid is None:
        order = numpy_stream(seed, "validation rows").permutation(arrow.num_rows)
        count = round(VALID_SHARE * len(order))
        if not 0 < count < len(order):
            raise UserError(f"The table has {len(order)} rows, too few to hold some out.")
        held_out = arrow.take(np.sort(order[:count]))
        arrow = arrow.take(np.sort(order[count:]))
        log.info("no validation table was given: %d of the rows serve as one", count)
    else:
        held_out = read(tables.load(valid)[0])
    lens = Lens.grind(arrow, found_schema)
    if target is not None and target not in lens.names:
        why = lens.left_out.get(target, f"the table has: {', '.join(found_schema.names)}")
        raise UserError(f"The target {target!r} cannot be predicted: {why}.")
    views = lens.view(arrow, "training"), lens.view(held_out, "validation")
    with tempfile.TemporaryDirectory() as folder:
        kept = str(Path(folder) / "trials.journal" if storage is None else storage)
        job = TuneJob(
            Place(kept, study, ("maximize",)),
            arrow,
            held_out,
            views,
            target,
            objective,
            space,
            given,
            found_schema.edits(),
            {**(catboost_settings or utility.DEFAULT_SETTINGS), "thread_count": 1},
            seed,
        )
        about = {
            "tables": studies.fingerprint(*views),
            "objective": objective,
            "space": space,
            "fixed": given,
            "schema": studies.short_name(job.overrides),
            "catboost": job.catboost_settings,
            "seed": seed,
        }
        studies.claim(job.place.open(), about, kept)
        workers = workers or min(trials, studies.cores())
        default = _fit(job, "first", {"defaults": ({}, seed)})["defaults"]
        if default is None:
            raise studies.why_none(job.beside("first", "defaults").open(), limited=False)

        def look(study: "optuna.Study") -> None:
            scores = [default, *(t.values[0] for t in studies.in_order(study))]
            on_look(np.array(scores), trials)

        kept_trials = job.place.open()
        studies.bury(kept_trials)
        studies.run(job, trials=trials - 1, seconds=None, workers=workers, seed=seed, on_look=look)
        searched = studies.complete(kept_trials)
        found = max(searched, key=lambda trial: trial.values[0], default=None)
        ours = {} if found is None or found.values[0] <= default else dict(found.params)
        other = derive(seed, "again") % 2**31
        label = json.dumps(ours, sort_keys=True) if ours else "defaults"
        wanted = {"defaults": ({}, other), label: (ours, other)}
        again = _fit(job, "again", wanted)
        first = top = Trial(dict(given), default, again["defaults"])
        if found is not None and ours:
            top = Trial({**given, **ours}, found.values[0], again[label])
        done = 1 + studies.finished(kept_trials)
        importances: dict[str, float] = {}
        if len({trial.values[0] for trial in searched}) > 1:
            importances = _importances(searched)
    return Tuned(
        objective,
        _better(top, first),
        first,
        top,
        done,
        done - 1 - len(searched),
        importances,
        about,
    )


def _better(found: Trial, default: Trial) -> Trial:
    """What is best of many with one seed is lucky: it has to beat the defaults with another too."""
    if found.again is None or (default.again is not None and found.again <= default.again):
        return default
    return found


def _fit(
    job: TuneJob, name: str, wanted: Mapping[str, tuple[Mapping[str, Any], int]]
) -> dict[str, float | None]:
    """Scores of given settings and seeds, in a study of their own: a sampler that is told of them
    would take them for trials of its space. None of what failed."""
    found: dict[str, float | None] = {}
    for label, (settings, seed) in wanted.items():
        one = dataclasses.replace(
            job,
            place=job.beside(name, label),
            fixed={**job.fixed, **settings},
            seed=seed,
            searched=False,
        )
        study = one.place.open()
        studies.bury(study)
        studies.run(one, trials=1, seconds=None, workers=1, seed=0)
        values = [trial.values[0] for trial in studies.complete(study)]
        found[label] = values[0] if values else None
    return found


def _importances(searched: Sequence[Any]) -> dict[str, float]:
    """How much each setting moves the score, by fANOVA over the finished trials."""
    optuna = import_optuna()
    own = optuna.create_study(direction="maximize")
    own.add_trials(searched)
    try:
        found = optuna.importance.get_param_importances(
            own, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
    except RuntimeError as error:  # the scores hardly differ
        log.warning("What matters among the settings cannot be told: %s", error)
        return {}
    return {name: float(value) for name, value in found.items()}
