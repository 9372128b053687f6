"""The commands that search: pareto, tune."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import click

from tabmt.cli.console import search_progress, show_table
from tabmt.cli.options import (
    exit_code,
    file_option,
    force_option,
    given_on_command_line,
    model_to_write,
    read_config,
    with_suffix,
)
from tabmt.config import (
    PAPER_METHOD,
    PAPER_PARETO,
    PAPER_TUNE,
    Objective,
    Privacy,
    Quality,
    SamplerName,
    Scale,
    SpaceName,
)
from tabmt.json_files import read_json
from tabmt.outputs import Output, check_outputs
from tabmt.writing import write_text

if TYPE_CHECKING:
    from tabmt.search.pareto_front import Front, Point

log = logging.getLogger(__name__)

MINUTES = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)
PICTURES = (".svg", ".png", ".html")


def shared_options(command: Any) -> Any:
    """The options of both searches."""
    for option in reversed(
        (
            click.option(
                "--target",
                help="column to predict, for ML efficiency: how well a model trained on generated "
                "rows predicts real rows",
            ),
            file_option(
                "--storage",
                help="file or database URL in which trials are stored; use it again to resume "
                "[default: NAME.trials beside the output]",
            ),
            click.option("--study", help="name of this search, if --storage contains several"),
            click.option(
                "--workers", type=COUNT, help="number of worker processes  [default: one per core]"
            ),
            file_option("--catboost", "catboost_file", help="JSON file of CatBoost settings"),
            click.option(
                "--seed", type=int, default=0, show_default=True, help="random seed of the search"
            ),
            force_option,
        )
    ):
        command = option(command)
    return command


@click.group()
def pareto() -> None:
    """Search temperatures that trade quality for privacy."""


@pareto.command()
@click.argument("model")
@file_option("--train", required=True, help="table on which MODEL was fitted")
@file_option("--valid", required=True, help="validation rows: real rows that MODEL has not seen")
@file_option("--test", help="test rows, for the final scores only  [default: half of --valid]")
@file_option("--output", "-o", required=True, help="front to write, NAME.json")
@click.option("--trials", type=COUNT, default=100, show_default=True, help="number of trials")
@click.option("--minutes", type=MINUTES, help="minutes after which no further trial is started")
@click.option(
    "--sampler", type=click.Choice(get_args(SamplerName)), default="nsga2", show_default=True,
    help="how trials are chosen: nsga2 as in the paper, or another sampler of Optuna; guided "
    "learns what temperatures do and needs fewer trials",
)  # fmt: skip
@click.option(
    "--privacy", type=click.Choice(get_args(Privacy)), default="dcr", show_default=True,
    help="dcr: distance to the closest training row (higher is better); closer: share of rows "
    "closer to training than to other real rows (lower is better); attack: risk of the worst "
    "attack (0 is best)",
)  # fmt: skip
@click.option(
    "--quality", type=click.Choice(get_args(Quality)), default="mle", show_default=True,
    help="mle: ML efficiency (higher is better); detector: how well a classifier tells the rows "
    "from real ones (0.5 is best)",
)  # fmt: skip
@click.option(
    "--rows", type=COUNT, help="rows to generate per trial  [default: as --train, at most 10,000]"
)
@click.option(
    "--final-rows", type=COUNT, help="rows to generate per final score  [default: as --train]"
)
@click.option(
    "--multiplier",
    type=COUNT,
    help="rows to generate per trial and final score, as a multiple of --train",
)
@click.option(
    "--scale", type=click.Choice(get_args(Scale)), default="log", show_default=True,
    help="scale of the temperatures, from 0.5 to 5",
)  # fmt: skip
@click.option(
    "--uniform-first/--no-uniform-first", default=True, show_default=True,
    help="begin with trials that have one temperature for all columns",
)  # fmt: skip
@click.option(
    "--population", type=COUNT, help="population of nsga2  [default: a quarter of the trials]"
)
@click.option(
    "--quick/--no-quick", default=True, show_default=True,
    help="trials with at most 300 CatBoost trees, and distances of at most 5,000 rows",
)  # fmt: skip
@click.option(
    "--config",
    type=click.Choice(["paper"]),
    help="paper: search as the paper does (nsga2 with a population of 50, linear scale, 8 times "
    "the rows, full CatBoost models); options given here override it",
)
@shared_options
def search(
    model: str,
    train: str,
    valid: str,
    test: str | None,
    output: str,
    config: str | None,
    catboost_file: str | None,
    storage: str | None,
    study: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Search for a temperature for each column of MODEL.

    The result is a front of points from the most faithful to the most private. If the command is
    interrupted, run it again: finished trials are kept in --storage.

    \b
    Example:
      tabmt pareto search people.tabmt --train train.csv --valid valid.csv --target age -o f.json
    """
    from tabmt.search.pareto import pareto as find_front

    if config == "paper":
        options |= PAPER_PARETO | given_on_command_line(options)
    target = with_suffix(output, (".json",))
    storage = storage or str(target.with_suffix(".trials"))
    outputs = [Output(target, "front"), *_trials(storage)]
    check_outputs(outputs, [model, train, valid, test, catboost_file], force=force)
    names = (options["privacy"], options["quality"])
    with _resumable(storage), search_progress(names) as on_trial:
        front = find_front(
            model,
            train,
            valid,
            test=test,
            catboost_settings=_read_settings(catboost_file),
            storage=storage,
            study=study or "search",
            on_trial=on_trial,
            **options,
        )
    front.save(target, force=force)
    _show_front(front)
    log.info("wrote %s", target)


@pareto.command()
@click.argument("front")
@click.argument("model")
@click.option("--quality", type=float, help="the most private point that is at least this good")
@click.option(
    "--quality-loss",
    type=float,
    help="the most private point whose quality is at most this much worse than that of real rows",
)
@click.option("--privacy", type=float, help="the best point that is at least this private")
@click.option("--point", type=int, help="the point with this number, as in `pareto show`")
@file_option("--output", "-o", required=True, help="model file to write, NAME.tabmt")
@force_option
def apply(
    front: str,
    model: str,
    quality: float | None,
    quality_loss: float | None,
    privacy: float | None,
    point: int | None,
    output: str,
    force: bool,
) -> None:
    """Write MODEL with the temperatures of a point of FRONT.

    `tabmt sample` then uses these temperatures by default. Give exactly one of --quality,
    --quality-loss, --privacy and --point. For scores that are better if lower (detector, closer,
    attack), the value is an upper bound.

    \b
    Example:
      tabmt pareto apply front.json people.tabmt --quality 0.80 -o private.tabmt
    """
    from tabmt.estimator import TabMT
    from tabmt.model.model_file import model_fingerprint
    from tabmt.search.pareto_front import Front

    target = model_to_write(output)
    check_outputs([Output(target, "model")], [front, model], force=force)
    loaded_front, loaded = Front.load(front), TabMT.load(model)
    chosen = loaded_front.choose(
        quality=quality, quality_loss=quality_loss, privacy=privacy, point=point
    )
    private = loaded.with_temperatures(chosen.temperatures)
    if loaded_front.search["model"] != model_fingerprint(loaded.model_):
        log.warning("The front belongs to another fit of the model, so its scores may be wrong.")
    private.save(target, force=force)
    log.info(
        "%s: %s %s, %s %s on validation rows; %s, %s on test rows, which were not used to choose",
        _point_name(loaded_front, chosen),
        loaded_front.privacy,
        _number(chosen.valid_privacy),
        loaded_front.quality,
        _number(chosen.valid_quality),
        _number(chosen.test_privacy),
        _number(chosen.test_quality),
    )
    log.info("wrote %s", target)


@pareto.command(name="show")
@click.argument("front")
@file_option("--output", "-o", help="write a plot: NAME.svg, NAME.png or NAME.html")
@force_option
def show(front: str, output: str | None, force: bool) -> None:
    """Show the points of FRONT, or plot them.

    \b
    Example:
      tabmt pareto show front.json -o front.html
    """
    from tabmt.search.charts import write_front
    from tabmt.search.pareto_front import Front

    target = None if output is None else with_suffix(output, PICTURES)
    if target is not None:
        check_outputs([Output.by_suffix(target)], [front], force=force)
    loaded = Front.load(front)
    _show_front(loaded)
    if target is not None:
        write_front(loaded, target)
        log.info("wrote %s", target)


@click.command()
@click.argument("table")
@file_option("--output", "-o", required=True, help="model file to write, NAME.tabmt")
@file_option("--valid", help="real rows for validation  [default: a fifth of TABLE]")
@file_option("--schema", "schema", help="schema file, as `tabmt schema` writes it")
@click.option("--trials", type=COUNT, default=50, show_default=True, help="number of trials")
@click.option(
    "--space", type=click.Choice(get_args(SpaceName)), default="small", show_default=True,
    help="small: settings of small networks; paper: the paper's search space",
)  # fmt: skip
@click.option(
    "--objective", type=click.Choice(get_args(Objective)),
    help="what is maximised on validation rows: mle (ML efficiency, needs --target) or likelihood "
    "[default: mle if there is a --target]",
)  # fmt: skip
@click.option(
    "--minutes",
    type=MINUTES,
    help="training minutes per trial  [default: 1 with --space small, no limit with paper]",
)
@click.option(
    "--prune/--no-prune", default=True, show_default=True,
    help="stop trials early that are worse than most others",
)  # fmt: skip
@click.option(
    "--compare-defaults/--no-compare-defaults", default=True, show_default=True,
    help="score the default settings too, and use them if they are better with another seed",
)  # fmt: skip
@click.option(
    "--multiplier", type=COUNT, default=1, show_default=True,
    help="rows to generate per trial, as a multiple of TABLE",
)  # fmt: skip
@file_option(
    "--config",
    "config_file",
    help="TOML file of settings that are not searched; or paper: the paper's method and search "
    "space, without pruning, without the defaults, with a multiplier of 8",
)
@shared_options
def tune(
    table: str,
    output: str,
    config_file: str | None,
    catboost_file: str | None,
    storage: str | None,
    study: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Find the best settings for TABLE and fit a model.

    Writes the model, NAME.toml with its settings (for `fit --config`) and NAME.svg with the
    importance of each setting. If the command is interrupted, run it again: finished trials are
    kept in --storage.

    \b
    Example:
      tabmt tune people.csv --target income --trials 30 -o people.tabmt
    """
    from tabmt.estimator import TabMT
    from tabmt.search.charts import importance_picture
    from tabmt.search.tune import tune as find_settings

    fixed: dict[str, Any] | None = None
    if config_file == "paper":
        fixed = PAPER_METHOD
        options |= PAPER_TUNE | given_on_command_line(options)
    elif config_file is not None:
        fixed = read_config(config_file, TabMT().get_params())
    target = model_to_write(output)
    config, picture = target.with_suffix(".toml"), target.with_suffix(".svg")
    storage = storage or str(target.with_suffix(".trials"))
    outputs = [Output(target, "model"), Output(config, "settings"), Output(picture, "SVG")]
    given = [table, options["valid"], options["schema"], catboost_file, config_file]
    check_outputs([*outputs, *_trials(storage)], given, force=force)
    with _resumable(storage), search_progress(("score",)) as on_trial:
        tuned = find_settings(
            table,
            fixed=fixed,
            catboost_settings=_read_settings(catboost_file),
            storage=storage,
            study=study or "tune",
            on_trial=on_trial,
            **options,
        )
    write_text(config, tuned.to_toml())
    click.echo(tuned.to_toml(), nl=False)
    log.info("wrote %s", config)
    if tuned.importances:
        write_text(picture, importance_picture(tuned.importances))
        log.info("wrote %s", picture)
    else:
        log.info("too few trials were completed to compute the importance of settings; no picture")
    model = TabMT(seed=options["seed"], **tuned.best.settings)
    model.fit(table, schema=options["schema"]).save(target, force=force)
    log.info("wrote %s", target)


def _trials(storage: str) -> list[Output]:
    """The file in which trials are stored, unless it is a database."""
    return [] if "://" in storage else [Output(storage, "trials")]


@contextmanager
def _resumable(storage: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        from tabmt.search.trial_storage import without_password

        log.warning(
            "Interrupted; run the same command to resume with the trials in %s.",
            without_password(storage),
        )
        raise SystemExit(exit_code(error)) from None


def _read_settings(path: str | None) -> dict[str, Any] | None:
    return None if path is None else read_json(path, "settings")


def _show_front(front: "Front") -> None:
    names = ("", "privacy", "quality", "privacy, test", "quality, test")
    rows = []
    for point in (*front.points, *front.uniform):
        scores = (point.valid_privacy, point.valid_quality, point.test_privacy, point.test_quality)
        rows.append((_point_name(front, point), *map(_number, scores)))
    real = (front.real["privacy"], front.real["quality"])
    rows.append(("real rows", "", _number(front.real["valid_quality"]), *map(_number, real)))
    of = "" if front.target is None else f" of {front.target!r}"
    show_table(names, rows, f"{front.privacy} against {front.quality}{of}")


def _point_name(front: "Front", point: "Point") -> str:
    if point in front.points:
        return f"point {front.points.index(point) + 1}"
    return f"all columns at {point.uniform_temperature:g}"


def _number(value: float | None) -> str:
    return "failed" if value is None else f"{value:.4f}"
