"""The command and the Python code that do the same as an action on the page."""

import csv
import io
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


def job_command(request: Mapping[str, Any], name: str, *, has_schema: bool) -> str:
    """The command of a job. Uploaded tables have the names of their files."""
    kind = request["kind"]
    keys = ("rows", "target", "minutes", "steps", "protect", "epsilon", "max_risk", "seed")
    options = [word for key in keys for word in _option(key, request.get(key))]
    if has_schema:
        options += ["--schema", "schema.json"]
    if kind in ("fit", "synthesize"):
        return shlex.join(["tabmt", kind, name, *options])
    if kind == "evaluate":
        return shlex.join(["tabmt", "evaluate", name, "--train", "train.csv", "--test", "test.csv",
                           *options, "--report", "report.html"])  # fmt: skip
    searched = [word for key in ("trials", "privacy", "quality", "sampler")
                for word in (f"--{key}", str(request[key]))]  # fmt: skip
    return shlex.join(["tabmt", "pareto", "search", name, "--train", "train.csv", "--valid",
                       "test.csv", *searched, *options, "-o", "front.json"])  # fmt: skip


def _option(name: str, value: Any) -> list[str]:
    if value is None or (name == "seed" and value == 0):
        return []
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return [f"--{name.replace('_', '-')}", text]


def job_code(request: Mapping[str, Any], name: str, *, has_schema: bool) -> str:
    """The call in Python of a job that fits a table."""
    keys = ("rows", "target", "minutes", "steps", "protect", "epsilon", "max_risk", "seed")
    given = {key: request[key] for key in keys if request.get(key) is not None}
    if has_schema:
        given["schema"] = "schema.json"
    words = ", ".join([repr(name), *(f"{key}={value!r}" for key, value in given.items())])
    if request["kind"] == "synthesize":
        return f"import tabmt\n\nresult = tabmt.synthesize({words})\nprint(result.verdict)"
    settings = {key: value for key, value in given.items() if key != "schema"}
    inside = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    fit = f"{name!r}" + (", schema='schema.json'" if has_schema else "")
    return (
        f"from tabmt import TabMT\n\nmodel = TabMT({inside}).fit({fit})\nmodel.save('model.tabmt')"
    )
