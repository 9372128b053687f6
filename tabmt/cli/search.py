"""The commands that search, `tabmt pareto` and `tabmt tune`; like `cli`, each calls the library."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import click

from tabmt.cli.console import search_progress, show
from tabmt.cli.options import INTERRUPTED, file_to_write, keep_apart, model_to_write
from tabmt.config import Objective, Privacy, Quality, SamplerName, SpaceName
from tabmt.errors import read_json

log = logging.getLogger(__name__)

MINUTES = click.FloatRange(min=0, min_open=True)
PICTURES = (".svg", ".png", ".html")


def shared_options(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--target", help="the column to predict"),
            click.option("--storage", help="file or database URL of the trials; the same goes on"),
            click.option("--study", help="its name among others in a database that many share"),
            click.option("--workers", type=click.IntRange(min=1), help="processes  [one per core]"),
            click.option("--catboost", "catboost_file", help="a JSON file of CatBoost settings"),
            click.option("--seed", type=int, default=0, show_default=True, help="of the search"),
        )
    ):
        command = option(command)
    return command


@click.group()
def pareto() -> None:
    """Trade privacy for quality: search temperatures, choose a point, draw the front."""


@pareto.command()
@click.argument("model")
@click.option("--train", required=True, help="the table that MODEL was fitted on")
@click.option("--val", "--valid", "valid", required=True, help="real rows that MODEL has not seen")
@click.option("--test", help="more such rows, for the last scoring; without it half of --val")
@click.option("--output", "-o", required=True, help="the front to write, NAME.json")
@click.option("--trials", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--minutes", type=MINUTES, help="begin no trial after so long")
@click.option(
    "--sampler", type=click.Choice(get_args(SamplerName)), default="nsga2", show_default=True,
    help="nsga2 as in the paper; guided learns from the trials what heat costs where",
)  # fmt: skip
@click.option(
    "--privacy", type=click.Choice(get_args(Privacy)), default="dcr", show_default=True,
    help="distance to the closest training row, share closer to training, an attack's success",
)  # fmt: skip
@click.option(
    "--quality", type=click.Choice(get_args(Quality)), default="mle", show_default=True,
    help="ML efficiency, or how well a detector tells the rows from real ones",
)  # fmt: skip
@click.option(
    "--rows", type=click.IntRange(min=1), help="of each trial's table  [as --train, at most 10,000]"
)
@click.option(
    "--rows-again", type=click.IntRange(min=1), help="of the last scoring's  [as --train]"
)
@shared_options
def search(
    model: str,
    train: str,
    valid: str,
    test: str | None,
    output: str,
    catboost_file: str | None,
    storage: str | None,
    study: str | None,
    **options: Any,
) -> None:
    """Search a temperature for each column of MODEL: privacy against quality.

    Finished trials are kept in --storage (NAME.trials beside the front): interrupted, the same
    command goes on.

    \b
    Example:
      tabmt pareto search people.tabmt --train train.csv --val val.csv --target income -o front.json
    """
    from tabmt.search.pareto import pareto as find

    target = file_to_write(output, (".json",))
    storage = storage or str(target.with_suffix(".trials"))
    keep_apart([output, storage], [model, train, valid, test, catboost_file])
    names = (options["privacy"], options["quality"])
    with _interruptible(storage), search_progress(names) as on_look:
        front = find(
            model,
            train,
            valid,
            test=test,
            catboost_settings=_settings(catboost_file),
            storage=storage,
            study=study or "search",
            on_look=on_look,
            **options,
        )
    front.save(target)
    _show_front(front)
    log.info("wrote %s", target)


@pareto.command()
@click.argument("front")
@click.argument("model")
@click.option("--quality", type=float, help="the most private point that is at least this good")
@click.option("--loss", type=float, help="the most private point at most so far below real rows")
@click.option("--privacy", type=float, help="the best point that is at least this private")
@click.option("--point", type=int, help="the point of this number, as `pareto show` counts them")
@click.option("--output", "-o", required=True, help="the model file to write, NAME.tabmt")
def apply(
    front: str,
    model: str,
    quality: float | None,
    loss: float | None,
    privacy: float | None,
    point: int | None,
    output: str,
) -> None:
    """Write MODEL with the temperatures of a point of FRONT, so that `sample` uses them.

    \b
    Example:
      tabmt pareto apply front.json people.tabmt --quality 0.80 -o private.tabmt
    """
    from tabmt.estimator import TabMT
    from tabmt.search.front import Front
    from tabmt.search.pareto import apply as carry
    from tabmt.search.pareto import file_fingerprint

    target = model_to_write(output)
    found = Front.load(front)
    chosen = found.choose(quality=quality, loss=loss, privacy=privacy, point=point)
    carrying = carry(TabMT.load(model), chosen)
    if found.search["model"] != file_fingerprint(model):
        log.warning(
            "the front was searched with another fit of the model: its figures may not hold"
        )
    carrying.save(target)
    log.info(
        "%s: %s %s, %s %s on validation rows; %s, %s on test rows, by which nothing was chosen",
        _name(found, chosen),
        found.privacy,
        _number(chosen.valid_privacy),
        found.quality,
        _number(chosen.valid_quality),
        _number(chosen.test_privacy),
        _number(chosen.test_quality),
    )
    log.info("wrote %s", target)


@pareto.command(name="show")
@click.argument("front")
@click.option("--output", "-o", help="draw it: NAME.svg, NAME.png or NAME.html")
def show_(front: str, output: str | None) -> None:
    """Show the points of FRONT, or draw them.

    \b
    Example:
      tabmt pareto show front.json -o front.html
    """
    from tabmt.evaluation.report import write_front
    from tabmt.search.front import Front

    target = None if output is None else file_to_write(output, PICTURES)
    found = Front.load(front)
    _show_front(found)
    if target is not None:
        write_front(found, target)
        log.info("wrote %s", target)


@click.command()
@click.argument("table")
@click.option("--output", "-o", required=True, help="the model file to write, NAME.tabmt")
@click.option(
    "--val", "--valid", "valid", help="real rows to judge on; without it a fifth of TABLE"
)
@click.option("--schema", "schema", help="a schema file, as `tabmt schema` writes it")
@click.option("--trials", type=click.IntRange(min=1), default=50, show_default=True)
@click.option(
    "--space", type=click.Choice(get_args(SpaceName)), default="cpu", show_default=True,
    help="small networks, or the paper's whole search space",
)  # fmt: skip
@click.option(
    "--objective", type=click.Choice(get_args(Objective)),
    help="of validation rows  [mle if there is a --target]",
)  # fmt: skip
@click.option("--minutes", type=MINUTES, help="most training time of a fit  [1 for --space cpu]")
@shared_options
def tune(
    table: str,
    output: str,
    catboost_file: str | None,
    storage: str | None,
    study: str | None,
    **options: Any,
) -> None:
    """Search settings for TABLE, then fit it with the best of them.

    Writes the model, NAME.toml with its settings (for `fit --config`) and NAME.svg with what
    matters among them. Finished trials are kept in --storage (NAME.trials): interrupted, the same
    command goes on.

    \b
    Example:
      tabmt tune people.csv --target income --trials 30 -o people.tabmt
    """
    from tabmt.data import files as tables
    from tabmt.estimator import TabMT
    from tabmt.evaluation.report.front import importance_picture
    from tabmt.search.tune import tune as find

    target = model_to_write(output)
    config, picture = (file_to_write(str(target.with_suffix(e))) for e in (".toml", ".svg"))
    storage = storage or str(target.with_suffix(".trials"))
    given = [table, options["valid"], options["schema"], catboost_file]
    keep_apart([output, str(config), str(picture), storage], given)
    with _interruptible(storage), search_progress(("score",)) as on_look:
        tuned = find(
            table,
            catboost_settings=_settings(catboost_file),
            storage=storage,
            study=study or "tune",
            on_look=on_look,
            **options,
        )
    tables.write_text(config, tuned.to_toml())
    click.echo(tuned.to_toml(), nl=False)
    log.info("wrote %s", config)
    if tuned.importances:
        tables.write_text(picture, importance_picture(tuned.importances))
        log.info("wrote %s", picture)
    else:
        log.info("too few trials were finished to tell which settings matter: no picture")
    model = TabMT(seed=options["seed"], **tuned.best.settings)
    model.fit(table, schema=options["schema"]).save(target)
    log.info("wrote %s", target)


@contextmanager
def _interruptible(storage: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        from tabmt.search.studies import shown

        log.warning("Interrupted; the same command goes on with the trials in %s.", shown(storage))
        raise SystemExit(INTERRUPTED) from None


def _settings(path: str | None) -> dict[str, Any] | None:
    return None if path is None else read_json(path, "settings")


def _show_front(front: Any) -> None:
    names = ("", "privacy", "quality", "privacy, test", "quality, test")
    rows = [
        (_name(front, p), *map(_number, values))
        for p in (*front.points, *front.ray)
        for values in [(p.valid_privacy, p.valid_quality, p.test_privacy, p.test_quality)]
    ]
    real = (front.real["privacy"], front.real["quality"])
    rows.append(("real rows", "", _number(front.real["valid_quality"]), *map(_number, real)))
    of = "" if front.target is None else f" of {front.target!r}"
    show(names, rows, f"{front.privacy} against {front.quality}{of}")


def _name(front: Any, point: Any) -> str:
    places = [place for place, one in enumerate(front.points, 1) if one is point]
    return f"point {places[0]}" if places else f"all at {point.uniform:g}"


def _number(value: float | None) -> str:
    return "failed" if value is None else f"{value:.4f}"
