"""One self-contained HTML page about one or several synthetic tables: no scripts, no other hosts.

Everything that comes from a table (names, values) is escaped by the template, or drawn as text by
the chart library.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.errors import UserError, not_installed
from tabmt.evaluation.evaluate import EvaluatedTable, Evaluator
from tabmt.evaluation.metrics import fidelity
from tabmt.evaluation.metrics.encoder import EncodedTable
from tabmt.evaluation.report import charts, figures
from tabmt.evaluation.report.pairs import pair_pictures, short_labels
from tabmt.evaluation.results import Attack, Evaluation, Privacy, Score
from tabmt.evaluation.verdict import OTHER_KIND
from tabmt.writing import write_text

MOST_COLUMNS = 60  # with a picture
MOST_BARS = 10
MOST_POINTS = 1500
MOST_IMPORTANCES = 15
MOST_MISSING = 40  # columns
MOST_REASONS = 2  # in the verdict; the page lists every test
OUTCOMES = {
    "safe": "Safe by these tests",
    "unsafe": "Do not share these rows",
    "undecided": "Undecided by these tests",
}
HEADLINES = ("worst_attack", "ml_efficiency", "detector_auc", "correlation_error")
EXPLANATIONS = {
    "ml_efficiency": "A model trained on the synthetic rows, scored on real ones.",
    "detector_auc": "How well a classifier tells synthetic rows from real ones; at 0.5 it cannot.",
    "correlation_error": "How much the relations between columns differ.",
    "worst_attack": "Share of training rows on which the worst attack succeeds beyond its success "
    "on test rows.",
}


@dataclass(frozen=True)
class Headline:
    """A main score, with its position between a useless table (0) and fresh real rows (1)."""

    score: Score
    explanation: str
    position: float | None
    worst_table: str


def format_number(value: float | None) -> str:
    """A number for people; decides the digits of reports and of the command line."""
    if value is None:
        return "n/a"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:.2e}" if abs(value) < 0.01 else f"{value:,.0f}"


def format_score(score: Score | None) -> str:
    """The value of a score, with the standard deviation if it is a mean."""
    return "n/a" if score is None else _with_deviation(score.value, score.sd)


def format_reference(score: Score) -> str:
    """The value of fresh real rows, in the same way."""
    return _with_deviation(score.reference, score.reference_sd)


def _with_deviation(value: float | None, sd: float | None) -> str:
    return format_number(value) if sd is None else f"{format_number(value)} ± {sd:.3f}"


def headlines(evaluation: Evaluation) -> list[Headline]:
    items = []
    for name in HEADLINES:
        score = evaluation[name]
        worst = "copies of training rows" if score.group == "privacy" else "shuffled columns"
        items.append(Headline(score, EXPLANATIONS[name], _position(score), worst))
    return items


def _position(score: Score) -> float | None:
    """Where a score lies between the worst (0) and that of fresh real rows (1)."""
    value, reference, worst = score.value, score.reference, score.worst
    if value is None or reference is None or worst is None or reference == worst:
        return None
    return float(np.clip((value - worst) / (reference - worst), 0, 1))


def verdict(evaluation: Evaluation) -> list[str]:
    """The privacy of a table and its quality in a few sentences, privacy first."""
    return [*privacy_verdict(evaluation), *quality_verdict(evaluation)]


def privacy_verdict(evaluation: Evaluation) -> list[str]:
    """For a privacy officer: may the rows be shared, why, and is the risk within the limit?"""
    privacy = evaluation.privacy
    sentences = [f"{OUTCOMES[privacy.outcome]}."]
    if privacy.outcome == "safe":
        sentences.append(
            "No test finds that these rows reveal individual training rows. That is a check, not a "
            "guarantee."
        )
    further = len(privacy.reasons) - MOST_REASONS
    sentences += privacy.reasons[:MOST_REASONS]
    if further > 0:
        sentences.append(
            f"{further} further {'test says' if further == 1 else 'tests say'} the same."
        )
    if privacy.worst is not None:
        sentences.append(f"The worst attack: {privacy.worst.title}, {_risk(privacy.worst)}.")
    if (exposed := privacy.exposed) is not None:
        sentences.append(
            f"The most exposed are {exposed.kind}: risk {exposed.risk:.1%} "
            f"({exposed.risk_low:.1%} to {exposed.risk_high:.1%})."
            if exposed.risk_low > 0 and exposed.kind != OTHER_KIND
            else "Rows with a rare category or an extreme number are not found to be more exposed "
            "than others."
        )
    if (limit := budget_verdict(privacy)) is not None:
        sentences.append(limit)
    return sentences


def _risk(attack: Attack) -> str:
    return f"risk {attack.risk:.1%} ({_risk_interval(attack)})"


def _risk_interval(attack: Attack) -> str:
    """The worst of several attacks has some risk by chance, even on new real rows."""
    interval = f"{attack.risk_low:.1%} to {attack.risk_high:.1%}"
    return interval if attack.risk_low > 0 else f"{interval}, so it may be due to chance"


def budget_verdict(privacy: Privacy) -> str | None:
    """Whether the risk is within the limit, and why not; None if there is no limit."""
    if privacy.max_risk is None:
        return None
    head = f"Risk limit {privacy.max_risk:.1%}"
    if privacy.passed:
        return f"{head}: passed. No attack's confidence interval exceeds it."
    if privacy.outcome != "safe":
        why = "do not share" if privacy.outcome == "unsafe" else "undecided by these tests"
        return f"{head}: failed, because the verdict is: {why}."
    highest = max(privacy.attacks, key=lambda attack: attack.risk_high)
    advice = (
        " More test rows would narrow the interval." if highest.risk <= privacy.max_risk else ""
    )
    return f"{head}: failed, because of {highest.title}, {_risk(highest)}.{advice}"


def quality_verdict(evaluation: Evaluation) -> list[str]:
    """For a data scientist: how similar are the rows to real ones, and how useful?"""
    sentences = []
    share = fidelity_share(evaluation)
    if share is not None:
        word = "very close to" if share > 0.9 else "close to" if share > 0.75 else (
            "noticeably different from" if share > 0.4 else "far from")  # fmt: skip
        sentences.append(
            f"The rows are {word} real rows: {share:.0%} on a scale from shuffled columns (0%) to "
            "real rows (100%)."
        )
    score = evaluation["ml_efficiency"]
    if _position(score) is not None:
        sentences.append(
            f"A model trained on them predicts {evaluation.target} with a score of "
            f"{format_number(score.value)}; a model trained on real rows has "
            f"{format_number(score.reference)}."
        )
    return sentences


def fidelity_share(evaluation: Evaluation) -> float | None:
    """How similar the rows are to real ones, from shuffled columns (0) to fresh real rows (1)."""
    scores = [evaluation[name] for name in ("detector_auc", "correlation_error")]
    known = [position for score in scores if (position := _position(score)) is not None]
    return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class Fact:
    """One of the main results of a table: a value, and what to compare it with."""

    title: str
    value: str
    comparison: str


def overview(evaluation: Evaluation) -> list[Fact]:
    """The main results beside the verdict, to be read at a glance."""
    attack, utility = evaluation.privacy.worst, evaluation["ml_efficiency"]
    share = fidelity_share(evaluation)
    facts = [Fact("Worst attack", "not measured", "it needs test rows")]
    if attack is not None:
        facts = [Fact("Risk of the worst attack", f"{attack.risk:.1%}",
                      f"{attack.title}, {_risk_interval(attack)}; 0% is best")]  # fmt: skip
    if utility.value is None:
        facts.append(Fact("Utility", "not measured", utility.note))
    else:
        real = f"a model trained on real rows scores {format_reference(utility)}"
        facts.append(Fact("Utility", format_score(utility), real))
    if share is not None:
        scale = "from shuffled columns (0%) to real rows (100%)"
        facts.append(Fact("Similarity to real rows", f"{share:.0%}", scale))
    return facts


def summary_html(evaluation: Evaluation) -> str:
    """The verdict and the main scores as a small piece of HTML, for notebooks."""
    rows = ""
    for fact in overview(evaluation):
        cells = (html.escape(text) for text in (fact.title, fact.value, fact.comparison))
        inside = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
        rows += f"<tr>{inside}</tr>"
    sentences = "".join(f"<p>{html.escape(line)}</p>" for line in evaluation.privacy.reasons)
    return (
        f"<div><p><b>{html.escape(evaluation.name)}: {OUTCOMES[evaluation.privacy.outcome]}</b></p>"
        f"{sentences}<table>{rows}</table></div>"
    )


def scores_as_text(evaluations: list[Evaluation]) -> str:
    """All scores as lines of text, with the tables side by side."""
    head = ["metric", *(evaluation.name for evaluation in evaluations), "real rows", "better"]
    lines = [head]
    for score in all_scores(evaluations):
        values = [format_score(evaluation.find(score.name)) for evaluation in evaluations]
        better = {"reference": "near real"}.get(score.better, score.better)
        lines.append([score.title, *values, format_reference(score), better])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, len(head) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def all_scores(evaluations: list[Evaluation]) -> list[Score]:
    """One score of each name that any of the tables has."""
    by_name: dict[str, Score] = {}
    longest = max(evaluations, key=lambda evaluation: len(evaluation.scores))
    for evaluation in (longest, *evaluations):
        for score in evaluation.scores:
            by_name.setdefault(score.name, score)
    return list(by_name.values())


Picture = tuple[str, str]  # caption and SVG


def write_report(
    evaluator: Evaluator,
    evaluated: list[EvaluatedTable],
    path: str | Path,
    front: Any = None,
    front_pictures: Sequence[Picture] = (),
    promise: Sequence[str] = (),
) -> None:
    """Write the page, with the Pareto front of a search and its pictures, if there is one, and
    with what the model promises."""
    write_text(Path(path), render(evaluator, evaluated, front, front_pictures, promise))


def environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise not_installed("A report", "Jinja2", "eval") from error
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("tabmt.evaluation.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "percent": "{:.1%}".format,
        "p_value": "{:.2g}".format,
        "number": format_number,
        "score": format_score,
        "reference": format_reference,
    }
    templates.globals |= {"real_color": charts.REAL, "synthetic_color": charts.SYNTHETIC}
    return templates


def render(
    evaluator: Evaluator,
    evaluated: list[EvaluatedTable],
    front: Any = None,
    front_pictures: Sequence[Picture] = (),
    promise: Sequence[str] = (),
) -> str:
    tables = [
        {
            "evaluation": table.evaluation,
            "overview": overview(table.evaluation),
            "headlines": headlines(table.evaluation),
            "outcome": OUTCOMES[table.evaluation.privacy.outcome],
            "privacy": privacy_verdict(table.evaluation)[1:],
            "quality": quality_verdict(table.evaluation),
            "pictures": _pictures(evaluator, table),
        }
        for table in evaluated
    ]
    page: str = (
        environment()
        .get_template("page.html")
        .render(
            tables=tables,
            scores=all_scores([table.evaluation for table in evaluated]),
            overlaid_errors=_overlaid_errors(evaluator, evaluated) if len(evaluated) > 1 else None,
            groups=("utility", "fidelity", "privacy", "coverage", "validity"),
            front=front,
            front_pictures=front_pictures,
            promise=promise,
        )
    )
    return page


def _pictures(evaluator: Evaluator, table: EvaluatedTable) -> dict[str, Any]:
    real, rows = evaluator.test, table.encoded
    ours, theirs = associations(real), associations(rows)
    names = list(real.names)
    return {
        "columns": [(name, _column(real, rows, name)) for name in by_difference(table.evaluation)],
        "pairs": pair_pictures(real, rows, np.abs(ours - theirs)),
        "columns_left": max(0, len(names) - MOST_COLUMNS),
        "matrices": [
            ("real", charts.heatmap(ours, names, low=0, scheme="teals")),
            ("synthetic", charts.heatmap(theirs, names, low=0, scheme="teals")),
            ("difference", charts.heatmap(np.abs(ours - theirs), names, low=0, scheme="oranges")),
        ],
        "errors": _correlation_errors(evaluator, table),
        "closeness": charts.histogram(
            evaluator.test_closeness.distances, table.closeness.distances, "distance"
        ),
        "map": _map(real, rows),
        "importances": _importances(evaluator, table),
        "missing": _missing_rates(real, rows),
    }


def by_difference(evaluation: Evaluation) -> list[str]:
    """The columns with a picture, first those that differ most beyond what fresh real rows do."""
    distances = evaluation.columns
    names = sorted(distances, key=lambda name: distances[name][1] - distances[name][0])
    return names[:MOST_COLUMNS]


def _correlation_errors(evaluator: Evaluator, table: EvaluatedTable) -> str | None:
    if table.evaluation["correlation_error"].value is None:
        return None
    return charts.histogram(
        fidelity.correlation_errors(evaluator.test, evaluator.train),
        fidelity.correlation_errors(evaluator.test, table.encoded),
        "correlation error",
    )


def _overlaid_errors(evaluator: Evaluator, evaluated: list[EvaluatedTable]) -> str | None:
    """The correlation errors of several tables in one picture."""
    try:
        specification = figures.correlation_errors(evaluator, evaluated)
    except UserError:  # the note of the score says why there is none
        return None
    return charts.svg(specification)


def _importances(evaluator: Evaluator, table: EvaluatedTable) -> str | None:
    real, ours = evaluator.importances, table.importances
    if not ours or not real:
        return None
    top = sorted(real, key=lambda name: -real[name])[:MOST_IMPORTANCES]
    return charts.bars(
        top,
        np.array([real[name] / 100 for name in top]),
        np.array([ours[name] / 100 for name in top]),
        "importance",
    )


def _missing_rates(real: EncodedTable, rows: EncodedTable) -> str | None:
    names = [n for n in real.names if real.missing(n).any() or rows.missing(n).any()]
    names = names[:MOST_MISSING]
    if not names:
        return None
    return charts.bars(
        names,
        np.array([real.missing(name).mean() for name in names]),
        np.array([rows.missing(name).mean() for name in names]),
        "share of missing values",
    )


def _column(real: EncodedTable, rows: EncodedTable, name: str) -> str:
    if name in real.codes:
        return _category_bars(real, rows, name)
    pair = [v[np.isfinite(v)] for v in (real.numbers[name], rows.numbers[name])]
    if not all(map(len, pair)):
        return ""
    column = real.encoder.schema[name]
    if column.kind == "datetime" and not column.dtype.startswith(("time32", "time64")):
        # The metrics count microseconds, the chart milliseconds.
        return charts.histogram(pair[0] / 1000, pair[1] / 1000, "", dates=True)
    return charts.histogram(pair[0], pair[1], "")


def _category_bars(real: EncodedTable, rows: EncodedTable, name: str) -> str:
    """The shares of the most frequent categories, of all others, and of missing values."""
    words = real.encoder.categories[name]
    labels = short_labels(words[:MOST_BARS])
    shown = len(labels)
    shares = []
    for codes in (real.codes[name], rows.codes[name]):
        counts = np.bincount(codes[codes >= 0], minlength=len(words) + 1)
        others = counts[shown:].sum()
        shares.append(np.array([*counts[:shown], others, (codes < 0).sum()]) / len(codes))
    labels += ["(all others)", "(missing)"]
    used = [i for i in range(len(labels)) if i < shown or max(shares[0][i], shares[1][i]) > 0]
    return charts.bars([labels[i] for i in used], shares[0][used], shares[1][used])


def associations(table: EncodedTable) -> np.ndarray:
    """(columns, columns): the strongest correlation, by size, between two columns, with categories
    one by one."""
    correlations, owners = fidelity.correlations(table)
    names = list(table.names)
    strength = np.abs(np.nan_to_num(correlations))
    starts = [owners.index(name) for name in names]
    rows = np.maximum.reduceat(strength, starts, axis=0)
    matrix = np.maximum.reduceat(rows, starts, axis=1)
    np.fill_diagonal(matrix, np.nan)
    return np.asarray(matrix)


def _map(real: EncodedTable, rows: EncodedTable) -> str:
    """Both tables on the two main axes of the real one."""
    rng = np.random.default_rng(0)
    picked = [t.take(rng.permutation(len(t))[:MOST_POINTS]).matrix for t in (real, rows)]
    centre = picked[0].mean(0)
    _, _, axes = np.linalg.svd(picked[0] - centre, full_matrices=False)
    flat = [(points - centre) @ axes[:2].T for points in picked]
    if flat[0].shape[1] < 2:
        flat = [np.pad(points, ((0, 0), (0, 2 - points.shape[1]))) for points in flat]
    return charts.scatter(flat[0], flat[1], ("first component", "second component"))
