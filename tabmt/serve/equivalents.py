"""The command and the Python code that do the same as an action on the page."""

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tabmt.conditions.condition import Condition, known, missing


def sample_command(
    model: str, rows: int, where: Mapping[str, Condition], *, seed: int, temperature: Any
) -> str:
    """A line for a shell."""
    words = ["tabmt", "sample", model, "-n", str(rows)]
    for name, condition in where.items():
        for sentence in sentences(name, condition):
            words += ["--where", sentence]
    for text in _temperature_options(temperature):
        words += ["--temperature", text]
    return shlex.join([*words, "--seed", str(seed), "-o", "rows.csv"])


def sample_code(
    model: str, rows: int, where: Mapping[str, Condition], *, seed: int, temperature: Any
) -> str:
    """Lines of Python."""
    values = {name: _value(condition) for name, condition in where.items()}
    names = sorted({text.partition("(")[0] for text, is_call in values.values() if is_call})
    arguments = [str(rows)]
    if values:
        entries = ", ".join(f"{name!r}: {text}" for name, (text, _) in values.items())
        arguments.append(f"where={{{entries}}}")
    if temperature is not None:
        arguments.append(f"temperature={temperature!r}")
    arguments.append(f"seed={seed}")
    return "\n".join(
        [
            f"from tabmt import {', '.join(['TabMT', *names])}",
            "",
            f"model = TabMT.load({model!r})",
            f"rows = model.sample({', '.join(arguments)})",
        ]
    )


def complete_command(
    model: str, rows: Sequence[Mapping[str, Any]], *, seed: int, temperature: Any
) -> str:
    """Two lines for a shell: a file of the rows, and their completion."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [_csv_line(names), *(_csv_line([row.get(name) for name in names]) for row in rows)]
    words = ["tabmt", "complete", model, "prompts.csv"]
    for text in _temperature_options(temperature):
        words += ["--temperature", text]
    written = shlex.join(["printf", "%s\\n", *lines])
    command = shlex.join([*words, "--seed", str(seed), "-o", "rows.csv"])
    return f"{written} > prompts.csv\n{command}"


def complete_code(
    model: str, rows: Sequence[Mapping[str, Any]], *, seed: int, temperature: Any
) -> str:
    """Lines of Python."""
    shown = repr([dict(row) for row in rows])
    if all(row == rows[0] for row in rows):
        shown = f"[{dict(rows[0])!r}] * {len(rows)}"
    more = "" if temperature is None else f"temperature={temperature!r}, "
    return "\n".join(
        [
            "import pandas as pd",
            "",
            "from tabmt import TabMT",
            "",
            f"model = TabMT.load({model!r})",
            f"prompts = pd.DataFrame({shown})",
            f"rows = model.complete(prompts, {more}seed={seed})",
        ]
    )


def _csv_line(cells: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _value(condition: Condition) -> tuple[str, bool]:
    """A condition in Python, and whether it is a call."""
    if condition == missing():
        return "missing()", True
    if condition == known():
        return "known()", True
    if condition.values is not None:
        if len(condition.values) == 1:
            return repr(condition.values[0]), False
        return f"one_of({', '.join(map(repr, condition.values))})", True
    bounds = {"low": condition.low, "high": condition.high}
    given = [f"{name}={value!r}" for name, value in bounds.items() if value is not None]
    if condition.excludes_low or condition.excludes_high:
        sides = {(True, True): "neither", (True, False): "right", (False, True): "left"}
        given.append(f"closed={sides[condition.excludes_low, condition.excludes_high]!r}")
    return f"between({', '.join(given)})", True


def sentences(name: str, condition: Condition) -> list[str]:
    """A condition as the command line takes it."""
    column = _quoted(name)
    if condition == missing():
        return [f"{column} is missing"]
    if condition == known():
        return [f"{column} is not missing"]
    if condition.values is not None:
        if len(condition.values) == 1:
            return [f"{column} = {_quoted(condition.values[0])}"]
        return [f"{column} in {{{', '.join(map(_quoted, condition.values))}}}"]
    above = ">" if condition.excludes_low else ">="
    below = "<" if condition.excludes_high else "<="
    bounds = ((above, condition.low), (below, condition.high))
    return [f"{column} {sign} {_quoted(value)}" for sign, value in bounds if value is not None]


def _quoted(value: Any) -> str:
    """A value in quotes if it has anything but letters, digits and the like."""
    text = str(value)
    if text and all(char.isalnum() or char in "_-.:+" for char in text):
        return text
    quote = next((mark for mark in ("'", '"', "`") if mark not in text), "'")
    return f"{quote}{text}{quote}"


def _temperature_options(temperature: Any) -> list[str]:
    if temperature is None:
        return []
    if isinstance(temperature, Mapping):
        return [f"{name}={value:g}" for name, value in temperature.items()]
    return [f"{temperature:g}"]


# --- jobs ----------------------------------------------------------------------------------

FIT_OPTIONS = ("target", "minutes", "steps", "protect", "epsilon")
OPTIONS = {  # of each kind of job: what a request may set for it, besides the seed
    "fit": FIT_OPTIONS,
    "synthesize": ("rows", *FIT_OPTIONS, "max_risk"),
    "evaluate": ("target", "max_risk"),
    "pareto": ("target", "trials", "minutes", "sampler", "privacy", "quality"),
}


def job_command(
    request: Mapping[str, Any], paths: Mapping[str, str], schema: Mapping[str, Any] | None
) -> str:
    """The command of a job. `paths` are those of its tables and of its model, for people."""
    options = [word for key, value in _given(request) for word in _option(key, value)]
    if request["kind"] == "evaluate":
        words = ["evaluate", paths["synthetic"], "--train", paths["train"]]
        words += ["--test", paths["test"]] if "test" in paths else []
        return shlex.join(["tabmt", *words, *options, "--report", "report.html"])
    if request["kind"] == "pareto":
        words = ["pareto", "search", paths["model"], "--train", paths["train"]]
        words += ["--valid", paths["test"]]
        return shlex.join(["tabmt", *words, *options, "-o", "front.json"])
    command = shlex.join(["tabmt", request["kind"], paths["table"], *options])
    if schema is None:
        return command
    written = shlex.join(["printf", "%s\\n", json.dumps(schema, ensure_ascii=False)])
    return f"{written} > schema.json\n{command} --schema schema.json"


def _option(name: str, value: Any) -> list[str]:
    if name == "seed" and value == 0:
        return []
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return [f"--{name.replace('_', '-')}", text]


def job_code(
    request: Mapping[str, Any], paths: Mapping[str, str], schema: Mapping[str, Any] | None
) -> str:
    """The same in Python."""
    options = dict(_given(request))
    if request["kind"] == "fit":
        table = _arguments(paths["table"], **({} if schema is None else {"schema": schema}))
        fitted = f"model = TabMT({_arguments(**options)}).fit({table})"
        return f"from tabmt import TabMT\n\n{fitted}\nmodel.save('model.tabmt')"
    if request["kind"] == "synthesize":
        if schema is not None:
            options["schema"] = schema
        call = f"result = tabmt.synthesize({_arguments(paths['table'], **options)})"
        return f"import tabmt\n\n{call}\nprint(result.verdict)"
    names = ("synthetic", "train", "test") if request["kind"] == "evaluate" else (
        "model", "train", "test"
    )  # fmt: skip
    inputs = [paths[name] for name in names if name in paths]
    if request["kind"] == "evaluate":
        call = f"scores = tabmt.evaluate({_arguments(*inputs, **options)})"
        return f"import tabmt\n\n{call}\nprint(scores.privacy.outcome)"
    call = f"front = tabmt.pareto({_arguments(*inputs, **options)})"
    return f"import tabmt\n\n{call}\nfront.save('front.json')"


def _given(request: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The options that a request sets, in order."""
    keys = (*OPTIONS[request["kind"]], "seed")
    return [(key, request[key]) for key in keys if request.get(key) is not None]


def _arguments(*values: Any, **named: Any) -> str:
    """The arguments of a call."""
    return ", ".join([*map(repr, values), *(f"{key}={value!r}" for key, value in named.items())])
