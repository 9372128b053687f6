"""README.txt of a results folder: what each file is, the verdict, and how to repeat each step."""

import shlex
from collections.abc import Mapping
from typing import Any

from tabmt.evaluation.report.report import OUTCOMES, verdict
from tabmt.evaluation.results import Evaluation
from tabmt.model.model_card import ModelCard
from tabmt.printable import printable
from tabmt.synthesis.results_folder import REAL_ROWS, ResultsFolder

OPTIONS = (
    "steps",
    "minutes",
    "threads",
    "protect",
    "epsilon",
    "delta",
    "private_method",
)  # settings that `tabmt synthesize` takes


def readme_text(
    folder: ResultsFolder, arguments: Mapping[str, Any], evaluation: Evaluation, card: ModelCard
) -> str:
    rows = evaluation.rows
    sentences = verdict(evaluation)
    lines = [
        "Synthetic rows by TabMT",
        "=======================",
        "",
        f"Verdict: {OUTCOMES[evaluation.privacy.outcome]}.",
        "",
        *sentences[1:],
        "",
        "Files",
        "-----",
        "",
        f"{folder.synthetic.name}: {rows['synthetic']:,} synthetic rows",
        f"{folder.report.name}: how good and how private they are, as a page for a browser",
        f"{folder.scores.name}: the scores of the report, for programs",
        f"{folder.model.name}: the model, which generates more rows",
        f"{REAL_ROWS}/{folder.train.name}: {rows['train']:,} training rows (real), on which it was "
        "fitted",
        f"{REAL_ROWS}/{folder.test.name}: {rows['test']:,} test rows (real), which it has not seen",
        f"{folder.arguments.name}: the arguments, so that an interrupted run can be resumed",
    ]
    if folder.schema.exists():
        lines.append(f"{folder.schema.name}: the schema that was given")
    lines += [
        "",
        f"The folder {REAL_ROWS} contains REAL rows: do not share it with the other files.",
        *_privacy_lines(folder, card),
        "",
        "Commands",
        "--------",
        "",
        "Each step can be repeated in this folder:",
        "",
        *(f"    {shlex.join(command)}" for command in commands(folder, arguments, card)),
        "",
        *_on_repeated_fits(card),
        "the same results with the same versions on the same kind of processor.",
        "",
        "To repeat all steps at once, in the folder where the command was run:",
        "",
        f"    {whole_command(folder, arguments)}",
    ]
    return printable("\n".join(lines), keep="\n") + "\n"


def _on_repeated_fits(card: ModelCard) -> list[str]:
    """Why a repeated fit may give other rows; the sentence goes on."""
    if card.privacy is not None:
        return [
            "A fit with --epsilon draws new noise and spends its epsilon once more, so it gives "
            "another model;",
            "the other steps give",
        ]
    return [
        "A fit with --minutes depends on the speed of the machine, so it gives similar rows; the "
        "other steps give",
    ]


def _privacy_lines(folder: ResultsFolder, card: ModelCard) -> list[str]:
    """What differential privacy covers in this folder, and what not."""
    if card.privacy is None:
        return []
    names = ", ".join(
        p.name for p in (folder.report, folder.scores, folder.readme, folder.arguments)
    )
    return [
        "",
        "Privacy",
        "-------",
        "",
        *card.privacy.lines(),
        "",
        f"Only {folder.model.name} and {folder.synthetic.name} have this promise. The verdict, and "
        f"{names}, compare with real rows or describe them: the promise does NOT cover them.",
    ]


def commands(
    folder: ResultsFolder, arguments: Mapping[str, Any], card: ModelCard
) -> list[list[str]]:
    """The commands that repeat fit, sample and evaluate, to be run in the folder."""
    train, test = (f"{REAL_ROWS}/{path.name}" for path in (folder.train, folder.test))
    seed = arguments["seed"]
    schema = ["--schema", folder.schema.name] if arguments["schema"] is not None else []
    target = _option("target", arguments["target"])
    settings = {**arguments["settings"], "threads": card.settings.train.threads}
    options = [word for name, value in settings.items() for word in _option(name, value)]
    fit = ["tabmt", "fit", train, "-o", folder.model.name, "--seed", str(seed)]
    rows = card.rows if arguments["rows"] is None else arguments["rows"]
    sample = ["tabmt", "sample", folder.model.name, "-n", str(rows)]
    sample += ["-o", folder.synthetic.name, "--seed", str(seed + 1)]
    evaluate = ["tabmt", "evaluate", folder.synthetic.name, "--train", train, "--test", test]
    evaluate += ["--seed", str(seed), *target, *schema, *_option("max_risk", arguments["max_risk"])]
    evaluate += ["--json", folder.scores.name, "--report", folder.report.name]
    return [[*fit, *target, *schema, *options], sample, evaluate]


def whole_command(folder: ResultsFolder, arguments: Mapping[str, Any]) -> str:
    """The command, or the call in Python, that makes such a folder."""
    names = ("rows", "target", "seed", "max_risk")
    given = {name: arguments[name] for name in names if arguments[name] is not None}
    given |= arguments["settings"]
    table, schema = arguments["table"], arguments["schema_file"]
    has_schema = arguments["schema"] is not None
    by_command = table is not None and set(arguments["settings"]) <= set(OPTIONS)
    if not by_command or (has_schema and schema is None):
        given |= {"schema": schema or folder.schema.name} if has_schema else {}
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
        name = "table" if table is None else repr(table)
        return f"tabmt.synthesize({name}, {str(folder.path)!r}, {words})"
    command = ["tabmt", "synthesize", table, "-o", str(folder.path)]
    command += [word for name, value in given.items() for word in _option(name, value)]
    return shlex.join([*command, *_option("schema", schema)])


def _option(name: str, value: Any) -> list[str]:
    words = name.replace("_", "-")
    if value is None or isinstance(value, bool):
        return [] if value is None else [f"--{words}" if value else f"--no-{words}"]
    text = str(value)
    return [f"--{words}={text}"] if text.startswith("-") else [f"--{words}", text]
