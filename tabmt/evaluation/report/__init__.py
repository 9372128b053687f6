"""One self-contained HTML page on one or several synthetic tables: no script, no outside address.

Everything that comes from a table (names, values) passes through the template's escaping or
through the chart library, which draws it as text.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.data.files import replacing, write_text
from tabmt.errors import UserError
from tabmt.evaluation.evaluate import Evaluation, Judge, Judged, Score
from tabmt.evaluation.metrics import fidelity
from tabmt.evaluation.metrics.view import View
from tabmt.evaluation.report import charts
from tabmt.evaluation.report.front import front_pictures, side_by_side

MOST_COLUMNS = 60  # drawn; the table of distances has them all
MOST_BARS = 10
MOST_POINTS = 1500
HEADLINES = ("ml_efficiency", "detector_auc", "correlation_error", "share_closer_to_train")
EXPLAINED = {
    "ml_efficiency": "A model trained on the synthetic rows, scored on real ones.",
    "detector_auc": "How well a machine tells synthetic rows from real ones; 0.5 is not at all.",
    "correlation_error": "How far the relations between columns are off.",
    "share_closer_to_train": "Rows that hug a training row closer than any held-out row.",
}


@dataclass(frozen=True)
class Headline:
    """A score placed on the way from a useless table (0) to fresh real rows (1)."""

    score: Score
    explained: str
    place: float | None  # 0 to 1, for the picture
    worst_is: str


def format_number(value: float | None) -> str:
    """Digits for people: the one place that decides them."""
    if value is None:
        return "n/a"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:.2e}" if abs(value) < 0.01 else f"{value:,.0f}"


def headline(evaluation: Evaluation) -> list[Headline]:
    found = []
    for name in HEADLINES:
        score = evaluation[name]
        place = None
        if None not in (score.value, score.reference, score.worst):
            span = score.reference - score.worst  # type: ignore[operator]
            if span:
                place = float(np.clip((score.value - score.worst) / span, 0, 1))  # type: ignore[operator]
        worst = "copies of training rows" if score.group == "privacy" else "shuffled columns"
        found.append(Headline(score, EXPLAINED[name], place, worst))
    return found


def verdict(evaluation: Evaluation) -> list[str]:
    """Two or three sentences that a privacy officer and a data scientist can both read."""
    places = {item.score.name: item.place for item in headline(evaluation)}
    said = []
    looks = [places[n] for n in ("detector_auc", "correlation_error") if places[n] is not None]
    if looks:
        share = float(np.mean([place for place in looks if place is not None]))
        word = "very close to" if share > 0.9 else "close to" if share > 0.75 else (
            "recognisably different from" if share > 0.4 else "far from")  # fmt: skip
        said.append(f"The rows are {word} real rows: {share:.0%} of the way from shuffled columns.")
    if places["ml_efficiency"] is not None:
        score = evaluation["ml_efficiency"]
        said.append(
            f"A model trained on them predicts {evaluation.target} with "
            f"{format_number(score.value)}, where real training rows give "
            f"{format_number(score.reference)}."
        )
    copies, closer = evaluation["copies"], evaluation["share_closer_to_train"]
    if copies.value is not None and closer.value is not None:
        fresh = (copies.reference or 0.0, closer.reference or 0.0)
        rows = min(evaluation.rows["synthetic"], evaluation.rows["test"])
        chance = 2 * float(np.sqrt(fresh[1] * (1 - fresh[1]) / rows))  # two standard errors
        if copies.value > fresh[0] + 0.01 or closer.value > fresh[1] + max(0.02, chance):
            said.append(
                f"They are closer to the training rows than fresh real rows would be "
                f"({copies.value:.1%} copies, {closer.value:.1%} closer to training; expected "
                f"{fresh[0]:.1%} and {fresh[1]:.1%}): do not share them before you know why."
            )
        else:
            said.append(
                f"Within chance, they lie no closer to the training rows than fresh real rows do "
                f"({copies.value:.1%} copies, {closer.value:.1%} closer to training; expected "
                f"{fresh[0]:.1%} and {fresh[1]:.1%}). That is a check, not a guarantee."
            )
    return said


def figures_table(evaluations: list[Evaluation]) -> str:
    """All figures as lines of text, the tables side by side."""
    head = ["metric", *(one.name for one in evaluations), "real rows", "better"]
    lines = [head]
    for score in every_score(evaluations):
        values = [format_number(one.get(score.name)) for one in evaluations]
        better = {"reference": "near real"}.get(score.better, score.better)
        lines.append([score.title, *values, format_number(score.reference), better])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, len(head) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def every_score(evaluations: list[Evaluation]) -> list[Score]:
    """One score of each name that any table has: not all tables have gaps to speak of."""
    found: dict[str, Score] = {}
    for one in max(evaluations, key=lambda e: len(e.scores)).scores:
        found[one.name] = one
    for evaluation in evaluations:
        for one in evaluation.scores:
            found.setdefault(one.name, one)
    return list(found.values())


def write_report(judge: Judge, judged: list[Judged], path: str | Path, front: Any = None) -> None:
    """Write the page beside `path` and rename it; with the front of a search, if there is one."""
    page = render(judge, judged, front)
    write_text(Path(path), page)


def write_front(front: Any, path: Path) -> None:
    """A front by itself: NAME.svg, NAME.png or NAME.html."""
    if path.suffix == ".html":
        page = environment().get_template("front.html")
        write_text(path, page.render(front=front, front_pictures=front_pictures(front)))
    elif path.suffix == ".png":
        with replacing(path) as beside:
            beside.write_bytes(charts.png(side_by_side(front)))
    else:
        write_text(path, charts.svg(side_by_side(front), ink=charts.BLACK))


def environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise UserError("A report needs Jinja2: pip install 'tabmt[eval]'.") from error
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tabmt.evaluation.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = format_number
    made.globals |= {"real_color": charts.REAL, "synthetic_color": charts.SYNTHETIC}
    return made


def render(judge: Judge, judged: list[Judged], front: Any = None) -> str:
    tables = [
        {
            "evaluation": one.evaluation,
            "headline": headline(one.evaluation),
            "verdict": verdict(one.evaluation),
            "pictures": _pictures(judge, one),
        }
        for one in judged
    ]
    page: str = (
        environment()
        .get_template("page.html")
        .render(
            tables=tables,
            scores=every_score([one.evaluation for one in judged]),
            groups=("utility", "fidelity", "privacy", "coverage", "validity"),
            front=front,
            front_pictures=[] if front is None else front_pictures(front),
        )
    )
    return page


def _pictures(judge: Judge, one: Judged) -> dict[str, Any]:
    real, view = judge.test, one.view
    ours, theirs = associations(real), associations(view)
    names = list(real.lens.names)
    pictures: dict[str, Any] = {
        "columns": [(name, _column(real, view, name)) for name in names[:MOST_COLUMNS]],
        "columns_left": max(0, len(names) - MOST_COLUMNS),
        "matrices": [
            ("real", charts.heatmap(ours, names, low=0, scheme="teals")),
            ("synthetic", charts.heatmap(theirs, names, low=0, scheme="teals")),
            ("difference", charts.heatmap(np.abs(ours - theirs), names, low=0, scheme="oranges")),
        ],
        "errors": None,
        "closeness": charts.histogram(
            judge.test_closeness.distances,
            one.closeness.distances,
            "distance",
        ),
        "map": _map(real, view),
        "importances": None,
        "gaps": None,
    }
    if one.evaluation["correlation_error"].value is not None:
        pictures["errors"] = charts.histogram(
            fidelity.correlation_errors(real, judge.train),
            fidelity.correlation_errors(real, view),
            "correlation error",
        )
    fresh = judge.importances
    if one.importances and fresh:
        top = sorted(fresh, key=lambda name: -fresh[name])[:15]
        pictures["importances"] = charts.bars(
            top,
            np.array([fresh[name] / 100 for name in top]),
            np.array([one.importances[name] / 100 for name in top]),
            "importance",
        )
    gappy = [name for name in names if real.gaps(name).any() or view.gaps(name).any()]
    if gappy:
        pictures["gaps"] = charts.bars(
            gappy[:40],
            np.array([real.gaps(name).mean() for name in gappy[:40]]),
            np.array([view.gaps(name).mean() for name in gappy[:40]]),
            "share of gaps",
        )
    return pictures


def _column(real: View, view: View, name: str) -> str:
    if name in real.numbers:
        pair = [v[np.isfinite(v)] for v in (real.numbers[name], view.numbers[name])]
        if all(map(len, pair)):
            column = next(one for one in real.lens.schema.columns if one.name == name)
            if column.kind == "datetime" and not column.dtype.startswith(("time32", "time64")):
                # The view counts microseconds, the chart milliseconds.
                return charts.histogram(pair[0] / 1000, pair[1] / 1000, "", dates=True)
            return charts.histogram(pair[0], pair[1], "")
        return ""
    words = real.lens.words[name]
    labels = [word if len(word) <= 40 else word[:39] + "…" for word in words[:MOST_BARS]]
    if len(set(labels)) < len(labels):  # cut to the same beginning
        labels = [f"{label} ({place + 1})" for place, label in enumerate(labels)]
    shares = []
    for codes in (real.codes[name], view.codes[name]):
        counts = np.bincount(codes[codes >= 0], minlength=len(words) + 1)
        rest = counts[len(labels) :].sum()
        shares.append(np.array([*counts[: len(labels)], rest, (codes < 0).sum()]) / len(codes))
    keep = [*range(len(labels))]
    labels = [*labels, "(all others)", "(gaps)"]
    keep += [place for place in (len(labels) - 2, len(labels) - 1) if max(shares[0][place],
             shares[1][place]) > 0]  # fmt: skip
    return charts.bars([labels[i] for i in keep], shares[0][keep], shares[1][keep])


def associations(view: View) -> np.ndarray:
    """(fields, fields): the strongest correlation, by size, between any columns of two fields."""
    found, fields = fidelity.correlations(view)
    names = list(view.lens.names)
    strength = np.abs(np.nan_to_num(found))
    starts = [fields.index(name) for name in names]
    rows = np.maximum.reduceat(strength, starts, axis=0)
    matrix = np.maximum.reduceat(rows, starts, axis=1)
    np.fill_diagonal(matrix, np.nan)
    return np.asarray(matrix)


def _map(real: View, view: View) -> str:
    """Both tables on the two main axes of the real one."""
    rng = np.random.default_rng(0)
    picked = [v.take(rng.permutation(len(v))[:MOST_POINTS]).matrix for v in (real, view)]
    titles = ("first component", "second component")
    try:
        import pacmap
    except ImportError:
        centre = picked[0].mean(0)
        _, _, axes = np.linalg.svd(picked[0] - centre, full_matrices=False)
        flat = [(part - centre) @ axes[:2].T for part in picked]
        if flat[0].shape[1] < 2:
            flat = [np.pad(part, ((0, 0), (0, 2 - part.shape[1]))) for part in flat]
    else:
        both = pacmap.PaCMAP(random_state=0).fit_transform(np.concatenate(picked))
        flat = [both[: len(picked[0])], both[len(picked[0]) :]]
        titles = ("", "")
    return charts.scatter(flat[0], flat[1], titles)
