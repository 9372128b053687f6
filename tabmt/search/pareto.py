"""The privacy dial: temperatures, one for each column, searched for privacy against quality.

One fitted model, many tables: each trial draws a table at its own temperatures and scores it
twice. The search sees training and validation rows. Because a search also selects what was lucky,
the points it ends with are scored again on fresh samples: on validation rows, to choose by, and on
test rows, to judge the choice.
"""

import copy
import dataclasses
import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tabmt.config import Privacy, Quality, SamplerName
from tabmt.data import files as tables
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.metrics import fidelity, privacy, utility
from tabmt.evaluation.metrics.view import Lens, View
from tabmt.model import model_file as artifact
from tabmt.model.fitted import token_column
from tabmt.search import studies
from tabmt.search.front import Front, Point, non_dominated, signs
from tabmt.search.studies import Place, check_choice, import_optuna
from tabmt.seeds import derive, numpy_stream

if TYPE_CHECKING:
    import optuna

log = logging.getLogger(__name__)

COOLEST, HOTTEST = 0.5, 5.0  # paper, appendix
RAY = (1.0, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0)  # one temperature for all columns
MOST_TREES = 300  # of CatBoost in a trial; the last scoring has as many as it is told
MOST_ROWS = 10_000  # of a trial's table, unless told: most of its time goes into learning them
JUDGED_ROWS = 5_000  # whose distances are taken: the median of more is hardly steadier
LEAST_POPULATION, MOST_POPULATION = 4, 50  # of NSGA-II: a quarter of the trials
MOST_COPIES = 0.5  # of held-out rows that stand in the training table, without a word
MOST_POINTS = 10  # of the front that are scored again


@dataclass(frozen=True)
class Scorer:
    """Draws a table at given temperatures and scores it, on validation or on test rows."""

    model: str  # a file
    train: View
    valid: View
    judge: View  # the rows that quality is measured on, and held-out rows of privacy
    target: str | None
    privacy: Privacy
    quality: Quality
    rows: int
    settings: dict[str, Any]
    seed: int

    def score(self, model: TabMT, temperatures: Mapping[str, float], number: int) -> list[float]:
        drawn = model.sample(
            self.rows,
            seed=derive(self.seed, "trial", number),
            temperature=temperatures,
            kind="arrow",
        )
        view = self.train.lens.view(drawn, "synthetic")
        return [self._privacy(view), self._quality(view)]

    def _privacy(self, view: View) -> float:
        return privacy_of(self.privacy, view, self.train, self.judge)

    def _quality(self, view: View) -> float:
        if self.quality == "detector":
            return _detector(self.judge, view, self.seed)
        assert self.target is not None
        return utility.ml_efficiency(
            view, self.valid, self.judge, self.target, settings=self.settings, seed=self.seed
        ).score


def _detector(real: View, synthetic: View, seed: int) -> float:
    return max(0.5, fidelity.detector_auc(real, synthetic, numpy_stream(seed, "detector")))


def privacy_of(name: Privacy, rows: View, train: View, held_out: View) -> float:
    if name == "attack":
        return max(0.5, privacy.membership_auc(rows, train, held_out))  # less is luck, no better
    some = rows
    if len(rows) > JUDGED_ROWS:  # from all of the table: it may be sorted, and has many orders
        some = rows.take(np.linspace(0, len(rows) - 1, JUDGED_ROWS).astype(int))
    near = privacy.closeness(some, train)
    if name == "dcr":
        return near.median
    share = privacy.share_closer_to_train(some, train, held_out, near.distances)
    # As if there were as many held-out rows as training rows: 0.5 is then what fresh rows score,
    # whichever rows are held out.
    odds = share / max(1 - share, 1e-9) * len(held_out) / len(train)
    return odds / (1 + odds)


@dataclass(frozen=True)
class TemperatureJob:
    """The search, and the second scoring, as worker processes see them."""

    place: Place
    scorer: Scorer
    columns: tuple[str, ...]
    algorithm: SamplerName
    population: int
    importances: dict[str, float]

    def distributions(self) -> dict[str, "optuna.distributions.BaseDistribution"]:
        optuna = import_optuna()
        return {
            # PAPER-DIFF: the paper's interval is linear, which would spend most trials above 2.
            name: optuna.distributions.FloatDistribution(COOLEST, HOTTEST, log=True)
            for name in self.columns
        }

    def sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        samplers = import_optuna().samplers
        from tabmt.search.guided import GuidedSampler  # is one of Optuna's, which may be missing

        made: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
            "nsga2": lambda: samplers.NSGAIISampler(population_size=self.population, seed=seed),
            "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=True),
            "gp": lambda: samplers.GPSampler(seed=seed),
            "guided": lambda: GuidedSampler(self.importances, seed=seed),
            "random": lambda: samplers.RandomSampler(seed=seed),
        }
        return made[self.algorithm]()

    def prepare(self) -> Callable[["optuna.Trial"], Sequence[float]]:
        model = TabMT.load(self.scorer.model).set_params(threads=1)

        def perform(trial: "optuna.Trial") -> Sequence[float]:
            return self.scorer.score(model, trial.params, trial.number)

        return perform


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
    rows_again: int | None = None,
    catboost_settings: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
    study: str = "search",
    workers: int | None = None,
    seed: int = 0,
    on_look: Callable[[np.ndarray, int], None] = lambda scores, trials: None,
) -> Front:
    """Search temperatures of a fitted model for privacy against quality; see `Front`.

    `train` are the rows the model was fitted on, `valid` and `test` rows it has not seen; without
    `test`, half of `valid` is set aside for the last scoring. A trial draws `rows` rows (as many as
    there are training rows, at most 10,000), the last scoring `rows_again` (as training rows).
    `storage` is a file or the URL of a database that keeps the trials: the same call goes on with
    them. Searches that share a database are told apart by the names of their `study`. `on_look` is
    given the scores so far, (trials, 2), and how many there shall be.
    """
    check_choice("sampler", sampler, SamplerName)
    check_choice("privacy", privacy, Privacy)
    check_choice("quality", quality, Quality)
    studies.check_numbers(minutes, trials=trials, rows=rows, rows_again=rows_again, workers=workers)
    import_optuna()
    fidelity.catboost()  # what is missing is said before the search, not in it
    settings = {**(catboost_settings or utility.DEFAULT_SETTINGS), "thread_count": 1}
    seconds = None if minutes is None else 60 * minutes
    workers = workers or min(trials, studies.cores())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tabmt" if isinstance(model, TabMT) else Path(model)
        if isinstance(model, TabMT):
            model.save(path)
        loaded = TabMT.load(path)
        real_rows = _views(loaded, train, valid, test, seed)
        _check_rows(loaded, real_rows)
        target = _target(loaded, target, real_rows.train.lens, quality)
        scorer = Scorer(
            str(path),
            train=real_rows.train,
            valid=real_rows.valid,
            judge=real_rows.valid,
            target=target,
            privacy=privacy,
            quality=quality,
            rows=rows or min(len(real_rows.train), MOST_ROWS),
            settings=_quick(settings),
            seed=seed,
        )
        check = dataclasses.replace(
            scorer,
            rows=rows_again or len(real_rows.train),
            settings=settings,
            seed=derive(seed, "check") % 2**31,
        )
        judge = dataclasses.replace(check, judge=real_rows.test, seed=derive(seed, "again") % 2**31)
        about = {
            "model": file_fingerprint(path),
            "target": target,
            "privacy": privacy,
            "quality": quality,
            "sampler": sampler,
            "rows": scorer.rows,
            "seed": seed,
            "tables": studies.fingerprint(real_rows.train, real_rows.valid),
            "catboost": scorer.settings,
        }
        kept = str(Path(folder) / "trials.journal" if storage is None else storage)
        turn = signs(privacy, quality)
        directions = tuple("maximize" if sign > 0 else "minimize" for sign in turn)
        place = Place(kept, study, directions)
        trials_kept = place.open()
        studies.claim(trials_kept, about, kept)  # mistakes are said before anything takes time
        log.info("scoring real rows, to compare")
        real, importances = _real(judge)
        job = TemperatureJob(
            place,
            scorer,
            tuple(coded.column.name for coded in loaded.learned_.codec.token_columns),
            sampler,
            population=max(LEAST_POPULATION, min(MOST_POPULATION, trials // 4)),
            importances=importances,
        )
        studies.enqueue(trials_kept, "uniform", {t: dict.fromkeys(job.columns, t) for t in RAY})

        def look(study: "optuna.Study") -> None:
            done = [trial.values for trial in studies.in_order(study)]
            on_look(np.array(done).reshape(-1, 2), trials)

        studies.run(
            job, trials=trials, seconds=seconds, workers=workers, seed=seed % 2**31, on_look=look
        )
        found = studies.complete(trials_kept)
        if not found:
            raise studies.why_none(trials_kept, limited=seconds is not None)
        scores = np.array([trial.values for trial in found])
        front = [found[place] for place in np.flatnonzero(non_dominated(scores * turn))]
        front = _spread(sorted(front, key=lambda trial: trial.values[0] * turn[0]))
        ray = [trial for trial in found if "uniform" in trial.user_attrs]
        checked, tested = (
            _score_again(job, [*front, *ray], len(found), again, workers)
            for again in (check, judge)
        )

    def point(trial: "optuna.trial.FrozenTrial") -> Point:
        return Point(
            {name: trial.params[name] for name in job.columns},
            privacy=trial.values[0],
            quality=trial.values[1],
            valid_privacy=checked[trial.number][0],
            valid_quality=checked[trial.number][1],
            test_privacy=tested[trial.number][0],
            test_quality=tested[trial.number][1],
            uniform=trial.user_attrs.get("uniform"),
        )

    spent = float(np.mean([trial.user_attrs["seconds"] for trial in found]))
    return Front(
        privacy,
        quality,
        target,
        tuple(map(point, front)),
        tuple(sorted(map(point, ray), key=lambda p: p.uniform or 0.0)),
        tuple((trial.values[0], trial.values[1]) for trial in found),
        real,
        {
            **about,
            "rows_again": judge.rows,
            "trials": len(found),
            "seconds_per_trial": spent,
            "workers": workers,
        },
    )


class _Views(NamedTuple):
    train: View
    valid: View
    test: View


def _views(model: TabMT, train: Any, valid: Any, test: Any, seed: int) -> _Views:
    read = model.learned_.codec.read
    arrow = read(tables.load(train)[0])
    lens = Lens.grind(arrow, model.schema_)
    seen = lens.view(arrow, "training")
    valid_view = lens.view(read(tables.load(valid)[0]), "validation")
    if test is not None:
        return _Views(seen, valid_view, lens.view(read(tables.load(test)[0]), "test"))
    order = numpy_stream(seed, "set aside").permutation(len(valid_view))
    half = len(order) // 2
    if half == 0:
        raise UserError("The validation table has one row; the search needs some to set aside.")
    log.info("no test table was given: %d of the validation rows serve as one", half)
    return _Views(seen, *(valid_view.take(np.sort(part)) for part in (order[half:], order[:half])))


def _check_rows(model: TabMT, rows: _Views) -> None:
    """Say what would make figures look better than they are."""
    if len(rows.train) != model.card_.rows:
        log.warning(
            "the training table has %d rows, but the model was fitted on %d: privacy is only told "
            "against the rows it was fitted on",
            len(rows.train),
            model.card_.rows,
        )
    if studies.fingerprint(rows.test) == studies.fingerprint(rows.valid):
        raise UserError(
            "The test table is the validation table, by which points are chosen. Give other rows, "
            "or none: half of the validation rows are then set aside."
        )
    for name, held_out in (("validation", rows.valid), ("test", rows.test)):
        share = privacy.copies(held_out, rows.train)
        if share > MOST_COPIES:
            log.warning(
                "%.0f %% of the %s rows stand in the training table too: figures look better than "
                "they are unless the model has not seen these rows",
                100 * share,
                name,
            )


def _target(model: TabMT, target: str | None, lens: Lens, quality: Quality) -> str | None:
    target = target or model.card_.settings.train.target
    if target is None:
        if quality == "detector":
            return None
        raise UserError("The search needs a target: the column that is predicted.")
    token_column(model.learned_.codec, target, "target")
    if target not in lens.names:
        raise UserError(f"The target {target!r} cannot be predicted: {lens.left_out[target]}.")
    return target


def _quick(settings: dict[str, Any]) -> dict[str, Any]:
    """The same with few trees, by whichever of CatBoost's names for them."""
    names = ("iterations", "n_estimators", "num_trees", "num_boost_round")
    trees = next((settings[name] for name in names if name in settings), MOST_TREES)
    if not isinstance(trees, int) or trees < 1:
        raise UserError(f"CatBoost's iterations are {trees!r}, but must be a whole number from 1.")
    rest = {name: value for name, value in settings.items() if name not in names}
    return {**rest, "iterations": min(trees, MOST_TREES)}


def _real(scorer: Scorer) -> tuple[dict[str, float], dict[str, float]]:
    """What real rows score, and how much each column tells of the target."""
    found = {"privacy": privacy_of(scorer.privacy, scorer.judge, scorer.train, scorer.valid)}
    importances: dict[str, float] = {}
    for name, rows in (("quality", scorer.judge), ("valid_quality", scorer.valid)):
        if scorer.target is not None:
            learned = utility.ml_efficiency(
                scorer.train,
                scorer.valid,
                rows,
                scorer.target,
                settings=scorer.settings,
                seed=scorer.seed,
            )
            importances, found[name] = learned.importances, learned.score
        if scorer.quality == "detector":
            found[name] = _detector(rows, scorer.train, scorer.seed)
    for name, value in found.items():
        if not np.isfinite(value):
            raise UserError(
                f"The {name} of real rows is {value}: too few validation or test rows have a "
                f"{scorer.target!r}."
            )
    if scorer.target is not None:
        importances = {**importances, scorer.target: max(importances.values(), default=0.0)}
    return found, importances


def _score_again(
    job: TemperatureJob, trials: Sequence[Any], after: int, scorer: Scorer, workers: int
) -> dict[int, tuple[float | None, float | None]]:
    """Privacy and quality of some trials' temperatures on fresh samples; None of those that
    failed."""
    about = [scorer.rows, studies.fingerprint(scorer.judge), scorer.settings, scorer.seed]
    name = f"{job.place.name}: again after {after}, {studies.short_name(about)}"
    again = dataclasses.replace(
        job,
        place=dataclasses.replace(job.place, name=name),
        scorer=scorer,
        algorithm="random",
    )
    params = {trial.number: trial.params for trial in trials}
    study = again.place.open()
    rows_of = "validation" if scorer.judge is scorer.valid else "test"
    log.info("scoring %d points again, on fresh samples and %s rows", len(params), rows_of)
    told = 0

    def look(study: "optuna.Study") -> None:
        nonlocal told
        done = studies.finished(study)
        if 4 * done // len(params) > 4 * told // len(params) and done < len(params):
            log.info("%d of %d points are scored", done, len(params))
            told = done

    for elsewhere in (False, True):  # what another machine began and did not finish, is done here
        studies.enqueue(study, "of", params, elsewhere=elsewhere)
        every = studies.finished(study) + studies.waiting(study)
        studies.run(
            again, trials=every, seconds=None, workers=workers, seed=0, queue="of", on_look=look
        )
    found = {t.user_attrs["of"]: (t.values[0], t.values[1]) for t in studies.complete(study)}
    return {number: found.get(number, (None, None)) for number in params}


def _spread(front: list[Any]) -> list[Any]:
    """Some points of a long front: both ends and what lies evenly between them."""
    if len(front) <= MOST_POINTS:
        return front
    places = np.linspace(0, len(front) - 1, MOST_POINTS).round().astype(int)
    return [front[place] for place in places]


def file_fingerprint(path: str | Path) -> str:
    """A short name for a model, whatever temperatures it carries."""
    metadata, tensors = artifact.read(Path(path), "model")
    metadata["card"]["temperatures"] = {}
    digest = hashlib.blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=8)
    for name in sorted(tensors):
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def apply(model: TabMT, point: Point) -> TabMT:
    """The same model, whose samples have the point's temperatures unless they are asked for
    others."""
    columns = [coded.column.name for coded in model.learned_.codec.token_columns]
    if set(point.temperatures) != set(columns):
        differ = ", ".join(sorted(set(point.temperatures) ^ set(columns)))
        raise UserError(
            f"The front and the model differ in the columns {differ}: it belongs to another model."
        )
    card = dataclasses.replace(model.card_, temperatures=dict(point.temperatures))
    made = copy.copy(model)
    made.learned_ = dataclasses.replace(model.learned_, card=card)
    return made
