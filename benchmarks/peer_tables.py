"""Tables of the docs that compare generators, from the results of `python -m benchmarks run`.

Every function returns Markdown. Without results it is one line that names the command.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.datasets import TABLES
from benchmarks.peers.catalogue import PEERS
from benchmarks.published import METHODS, MLE, MLE_STASY, NETFLOW

FRESH = "fresh"
TITLES = {name: peer.title for name, peer in PEERS.items()} | {FRESH: "validation rows (real)"}
NOT_COMPARED = ("copies", "shuffled", FRESH)  # they are there to read the others by
OURS = "ours"
CHOICES = {  # score -> how much better a value is, the larger the better
    "ml_efficiency": lambda value: value,
    "detector_auc": lambda value: -abs(value - 0.5),
    "correlation_error": lambda value: -value,
    "column_distance": lambda value: -value,
    "pair_distance": lambda value: -value,
}
SCORE_NAMES = {
    "ml_efficiency": "ML efficiency",
    "detector_auc": "detector",
    "correlation_error": "correlation error",
    "column_distance": "column distance",
    "pair_distance": "pair distance",
}

Result = Mapping[str, Any]
Runs = list[dict[str, Any]]


def read(suite: str) -> Result | None:
    path = machine.RESULTS / f"peers-{suite}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def with_results(suite: str) -> Callable[[Callable[[Result], str]], Callable[[], str]]:
    """Make a table of the results of a suite, or say that there are none."""

    def decorate(make: Callable[[Result], str]) -> Callable[[], str]:
        def made() -> str:
            result = read(suite)
            if result is None or not result["runs"]:
                return f"*No results yet: `python -m benchmarks run {suite} --data DATA`.*"
            return make(result)

        return made

    return decorate


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# --- reading a result --------------------------------------------------------------------------


def table_names(result: Result) -> list[str]:
    return list(dict.fromkeys(run["table"] for run in result["runs"]))


def generator_names(result: Result) -> list[str]:
    """In the order of the catalogue, real rows last."""
    names = {run["generator"] for run in result["runs"]}
    return [name for name in TITLES if name in names]


def runs_of(result: Result, table: str, generator: str, minutes: float | None = None) -> Runs:
    return [
        run
        for run in result["runs"]
        if (run["table"], run["generator"]) == (table, generator)
        and minutes in (None, run["minutes"])
    ]


def values_of(runs: Runs, score: str) -> list[float]:
    found = [run.get("scores", {}).get(score) for run in runs]
    return [value for value in found if value is not None]


def mean_of(result: Result, table: str, generator: str, score: str) -> float | None:
    values = values_of(runs_of(result, table, generator), score)
    return float(np.mean(values)) if values else None


def best_of(result: Result, table: str, score: str) -> str | None:
    """The generator with the best mean."""
    means = {
        name: mean
        for name in generator_names(result)
        if name not in NOT_COMPARED and (mean := mean_of(result, table, name, score)) is not None
    }
    return max(means, key=lambda name: CHOICES[score](means[name])) if means else None


# --- cells -------------------------------------------------------------------------------------


def number_text(values: list[float], digits: int = 3) -> str:
    """A mean, with its standard deviation over the seeds if there are several."""
    text = f"{np.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {np.std(values, ddof=1):.{digits}f}"


def cell(runs: Runs, score: str, digits: int = 3) -> str:
    if not runs:
        return ""
    failed = sum("failure" in run for run in runs)
    values = values_of(runs, score)
    if not values:
        return "failed" if failed else "-"
    return number_text(values, digits) + (f", {failed} failed" if failed else "")


def comparison(result: Result, score: str, digits: int = 3) -> str:
    """One score: generators against tables, the best in bold, and real rows below."""
    tables = table_names(result)
    best = {table: best_of(result, table, score) for table in tables}
    rows = []
    for name in generator_names(result):
        cells = []
        for table in tables:
            text = cell(runs_of(result, table, name), score, digits)
            cells.append(f"**{text}**" if name == best[table] else text)
        if any(text not in ("", "-") for text in cells):
            rows.append([TITLES[name], *cells])
    for key, title in (("reference", "training rows (real)"),):
        real = [result["real"].get(table, {}).get(score, {}).get(key) for table in tables]
        rows.append([title, *("" if value is None else f"{value:.{digits}f}" for value in real)])
    return markdown(["generator", *tables], rows)


# --- tables ------------------------------------------------------------------------------------


@with_results("comparison")
def readme_table(result: Result) -> str:
    """This package beside TabularARGN, the best of all other generators, and real rows."""
    head = ["table", "rows", "fit, s"]
    for title in ("ML efficiency", "detector"):
        real = "real rows" if title == "ML efficiency" else "new real rows"
        head += [f"{title}: TabMT", "TabularARGN", "best other", real]
    rows = []
    for table in table_names(result):
        own = runs_of(result, table, OURS)
        times = [run["fit_seconds"] for run in own if "fit_seconds" in run]
        if not times:
            continue
        cells = [table, f"{own[0]['rows']:,}", f"{np.mean(times):.0f}"]
        for score in ("ml_efficiency", "detector_auc"):
            cells += [cell(runs_of(result, table, name), score) for name in (OURS, "argn")]
            cells += [best_other(result, table, score), real_cell(result, table, score)]
        rows.append(cells)
    return markdown(head, rows)


def best_other(result: Result, table: str, score: str) -> str:
    """The best value of the other generators, which of them has it, and a star if the verdict on
    its rows is "do not share"."""
    runs = [r for r in result["runs"] if r["generator"] not in (OURS, "ours_paper", "argn")]
    best = best_of({**result, "runs": runs}, table, score)
    if best is None:
        return "-"
    own = runs_of(result, table, best)
    star = "\\*" if any(run.get("verdict") == "unsafe" for run in own) else ""
    return f"{cell(own, score)} ({TITLES[best]}{star})"


def real_cell(result: Result, table: str, score: str) -> str:
    """The score of real rows: training rows to learn from, validation rows to be told apart."""
    if score == "ml_efficiency":
        return f"{result['real'][table][score]['reference']:.3f}"
    return cell(runs_of(result, table, FRESH), score)


@with_results("comparison")
def efficiency_table(result: Result) -> str:
    return comparison(result, "ml_efficiency")


@with_results("comparison")
def detector_table(result: Result) -> str:
    return comparison(result, "detector_auc")


@with_results("comparison")
def correlation_table(result: Result) -> str:
    return comparison(result, "correlation_error", 4)


def published_table() -> str:
    """What the paper prints for the same tables: tuned, on a GPU, by its protocol."""
    tables = [info for info in TABLES.values() if info.name in PUBLISHED_TABLES]
    rows = []
    for method in (*METHODS[:-1], "STaSy", METHODS[-1]):
        cells = []
        for info in tables:
            if method == "STaSy":
                score = MLE_STASY.get(info.code)
                cells.append("-" if score is None else f"{score:.3f}")
            else:
                pair = MLE[info.code].get(method)
                cells.append("-" if pair is None else f"{pair[0]:.3f} ± {pair[1]:.3f}")
        rows.append([method, *cells])
    return markdown(["method, published", *(info.name for info in tables)], rows)


PUBLISHED_TABLES = ("abalone", "adult", "california", "churn", "diabetes", "insurance", "king")


@with_results("comparison")
def privacy_table(result: Result) -> str:
    """As the paper's table: the distance to the closest record, and ML efficiency in brackets."""
    tables = table_names(result)
    rows = []
    for name in generator_names(result):
        cells = []
        for table in tables:
            distance = mean_of(result, table, name, "dcr_median")
            quality = mean_of(result, table, name, "ml_efficiency")
            brackets = "" if quality is None else f" ({quality:.3f})"
            cells.append("" if distance is None else f"{distance:.3f}{brackets}")
        rows.append([TITLES[name], *cells])
    real = [result["real"].get(table, {}).get("dcr_median", {}) for table in tables]
    rows.append(["test rows (real)", *(f"{score['reference']:.3f}" for score in real if score)])
    return markdown(["generator", *tables], rows)


@with_results("comparison")
def attack_table(result: Result) -> str:
    """The risk of the worst attack with its interval; of several seeds the worst."""
    tables = table_names(result)
    rows = []
    for name in generator_names(result):
        cells = []
        for table in tables:
            attacks = [run["attack"] for run in runs_of(result, table, name) if "attack" in run]
            worst = max(attacks, key=lambda attack: attack["risk"], default=None)
            cells.append(
                ""
                if worst is None
                else f"{worst['risk']:.3f} ({worst['low']:.3f} to {worst['high']:.3f})"
            )
        rows.append([TITLES[name], *cells])
    return markdown(["generator", *tables], rows)


@with_results("comparison")
def cost_table(result: Result) -> str:
    """Means over the tables; rows per CPU second are those of the table with most rows."""
    rows = []
    for name in generator_names(result):
        runs = [run for run in result["runs"] if run["generator"] == name and "fit_seconds" in run]
        sampled = [run for run in runs if run.get("sample_cpu_seconds")]
        if not runs:
            continue
        largest = max(sampled, key=lambda run: run["rows"], default=None)
        speed = "-"
        if largest is not None:
            speed = f"{largest['rows'] / largest['sample_cpu_seconds']:,.0f} ({largest['table']})"
        rows.append([
            TITLES[name],
            str(len(runs)),
            f"{np.mean([run['fit_seconds'] for run in runs]):.0f}",
            f"{np.mean([run['fit_cpu_seconds'] for run in runs]):.0f}",
            speed,
            f"{max(run['peak_mb'] for run in runs):,.0f}",
        ])  # fmt: skip
    head = ["generator", "runs", "fit, s", "fit, CPU s", "rows per CPU s", "peak MB, most"]
    return markdown(head, rows)


@with_results("comparison")
def losses_list(result: Result) -> str:
    """Where another generator is better than ours, for each score and table."""
    lines = []
    for score, title in SCORE_NAMES.items():
        first, behind = 0, []
        for table in table_names(result):
            best = best_of(result, table, score)
            ours = mean_of(result, table, OURS, score)
            if best is None or ours is None:
                continue
            if best == OURS:
                first += 1
                continue
            other = mean_of(result, table, best, score)
            behind.append(f"{table} ({TITLES[best]} {other:.3f}, ours {ours:.3f})")
        if first or behind:
            text = f"- {title}: first on {first} of {first + len(behind)} tables"
            lines.append(text + (f"; behind on {', '.join(behind)}." if behind else "."))
    if not lines:  # no table has a run of ours
        return "There are no results of this package with its default settings in these runs yet."
    return "\n".join(lines)


@with_results("comparison")
def notes_list(result: Result) -> str:
    """Why generators failed, and what was not done as in their packages or papers."""
    lines = []
    for name in generator_names(result):
        texts: dict[str, list[str]] = {}
        for run in result["runs"]:
            if run["generator"] == name:
                text = f"failed: {run['failure']}" if "failure" in run else run.get("cut", "")
                if text:
                    texts.setdefault(text, []).append(run["table"])
        parts = [f"{text} ({', '.join(dict.fromkeys(tables))})" for text, tables in texts.items()]
        if parts:
            lines.append(f"- {TITLES[name]}: {'; '.join(parts)}.")
    return "\n".join(lines) or "Nothing was cut, and nothing failed."


@with_results("comparison")
def correlation_shares(result: Result) -> str:
    """The paper's histograms as shares: how many pairs of columns have a small error."""
    limits = (0.02, 0.1)
    rows = []
    for name in generator_names(result):
        cells = []
        for table in table_names(result):
            runs = [r for r in runs_of(result, table, name) if "correlation_errors" in r]
            if not runs:
                cells.append("")
                continue
            counts = np.array([list(map(int, r["correlation_errors"].split())) for r in runs])
            total = counts.sum(axis=0)
            below = [total[: round(limit * len(total))].sum() / total.sum() for limit in limits]
            cells.append(" / ".join(f"{100 * share:.0f}" for share in below))
        rows.append([TITLES[name], *cells])
    return markdown(["generator", *table_names(result)], rows)


def by_minutes(result: Result, score: str) -> str:
    """One score: generators against the minutes of training, for each table."""
    minutes = sorted({run["minutes"] for run in result["runs"]})
    rows = []
    for table in table_names(result):
        code = TABLES[table].code
        for name in generator_names(result):
            cells = [cell(runs_of(result, table, name, each), score) for each in minutes]
            column = PEERS[name].published
            pair = MLE[code].get(column)
            published = "-" if pair is None else f"{pair[0]:.3f}"
            if column == "STaSy" and code in MLE_STASY:
                published = f"{MLE_STASY[code]:.3f}"
            if any(cells):
                rows.append([table, TITLES[name], *cells, published])
    head = ["table", "generator", *(f"{each:g} min" for each in minutes), "published"]
    if score != "ml_efficiency":
        return markdown(head[:-1], [row[:-1] for row in rows])
    return markdown(head, rows)


@with_results("curves")
def efficiency_curves(result: Result) -> str:
    return by_minutes(result, "ml_efficiency")


@with_results("curves")
def detector_curves(result: Result) -> str:
    return by_minutes(result, "detector_auc")


@with_results("checks")
def checks_table(result: Result) -> str:
    return by_minutes(result, "ml_efficiency")


def flows_table() -> str:
    """Real flows: the paper's figures, then generators of here in one embedding."""
    path = machine.RESULTS / "flow-peers.json"
    if not path.is_file():
        return "*No results yet: `python -m benchmarks flow-peers --data DATA`.*"
    sources = json.loads(path.read_text())["sources"]
    invariants = list(sources["validation rows"]["invariants_broken"])
    rows = [
        [f"paper: {name}", *(f"{score:.1f}" for score in NETFLOW[name]), *[""] * len(invariants)]
        for name in ("validation rows", "NFGAN", "TabMT-S")
    ]
    for name, scores in sources.items():
        title = TITLES.get(name, name)
        if "failure" in scores:
            rows.append([title, "failed", "", "", *[""] * len(invariants)])
            continue
        rows.append([
            title,
            *(f"{100 * scores[key]:.1f}" for key in ("precision", "recall", "diversity")),
            *(f"{100 * scores['invariants_broken'][key]:.2f}" for key in invariants),
        ])  # fmt: skip
    head = ["rows", "precision", "recall", "diversity"]
    return markdown([*head, *(f"violate {name}, %" for name in invariants)], rows)


MARKERS: dict[str, Callable[[], str]] = {
    "peers: flows": flows_table,
    "peers: ML efficiency": efficiency_table,
    "peers: published": published_table,
    "peers: detector": detector_table,
    "peers: correlations": correlation_table,
    "peers: correlation shares": correlation_shares,
    "peers: privacy": privacy_table,
    "peers: attacks": attack_table,
    "peers: cost": cost_table,
    "peers: losses": losses_list,
    "peers: notes": notes_list,
    "peers: efficiency curves": efficiency_curves,
    "peers: detector curves": detector_curves,
    "peers: checks": checks_table,
}
