import re
import runpy
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tabmt.cli import main
from tests.tables import FLOW_LINES, mixed_frame, weekly_file

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
QUICK = ["--steps", "3", "--width", "16", "--depth", "1", "--heads", "2", "--batch-size", "32",
         "--no-calibrate-missing"]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    text = page.read_text()
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for match in PYTHON.finditer(text):
        line = text[: match.start()].count("\n") + 1  # tracebacks then point into the page
        exec(compile("\n" * line + match[1], str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shell_lines_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed_frame().to_csv("people.csv", index=False)
    mixed_frame(80).to_csv("more_people.csv", index=False)
    mixed_frame()[["group", "height"]][:20].to_csv("half_known.csv", index=False)
    Path("months").mkdir()
    for month in range(2):
        mixed_frame().to_parquet(f"months/{month}.parquet")
    weekly_file(Path("week1.csv"), *FLOW_LINES[:2] * 150)
    for block in SHELL.finditer(page.read_text()):
        for line in block[1].splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["tabmt"]:
                continue
            if words[1] == "serve":  # would not end
                main.commands["serve"].make_context("serve", words[2:])
                continue
            if words[1] == "fit":
                words = [w for w in words if w not in ("--minutes", "5")] + QUICK
            if words[1] == "tune" or words[1:3] == ["pareto", "search"]:
                words += ["--trials", "2", "--minutes", "0.01", "--workers", "1"]
            words = ["500" if word.isdigit() and int(word) > 10**6 else word for word in words]
            if words[1] in ("demo", "synthesize"):
                words += ["--minutes", "0.01"]
            result = CliRunner().invoke(main, words[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def commands(group=main, path=()):
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_every_command_has_an_example_that_it_accepts(path, command):
    lines = (command.help or "").replace("Examples:", "Example:").partition("Example:")[2]
    lines = lines.strip().splitlines()
    assert lines
    for line in lines:
        example = shlex.split(line)
        assert example[: len(path) + 1] == ["tabmt", *path]
        command.make_context(path[-1], example[len(path) + 1 :])


def test_every_command_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    for name in main.commands:
        assert f"tabmt {name}" in readme


def test_generated_pages_are_up_to_date():
    make = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert (ROOT / "docs" / "cli.md").read_text() == make["cli_page"](), "run `make docs`"
    assert (ROOT / "docs" / "api.md").read_text() == make["api_page"](), "run `make docs`"
    assert (ROOT / "README.md").read_text() == make["readme_page"](), "run `make docs`"
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page == make["benchmarks_page"](), "run `make docs`"
