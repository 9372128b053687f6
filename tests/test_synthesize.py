"""From a table to a folder of results, at once: stages, resume, refusals, formats, README."""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import tabmt
from tabmt import Cancelled, TabMT, UserError, synthesize
from tabmt.cli import main
from tabmt.evaluation.report.report import by_difference, overview
from tabmt.synthesis.synthesize import number_of_test_rows
from tests.conftest import TINY

SETTINGS = {"steps": 20, "threads": 1, "seed": 3, "precision": "float32", **TINY}
QUICK = ("--steps", "5", "--threads", "1")
FILES = ["README.txt", "arguments.json", "evaluation.json", "model.tabmt", "real-rows",
         "report.html", "synthetic.csv"]  # fmt: skip


def small(rows: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    return pd.DataFrame({"x": np.round(rng.normal(group, 1), 2), "g": np.array(["a", "b"])[group]})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def fails_with(sentence, *arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.splitlines()[-1] == f"Error: {sentence}"


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("synthesize") / "people.csv"
    small().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def undisturbed(table):
    """The results of one call, and its progress; do not change the folder."""
    calls = []
    result = synthesize(
        table, table.parent / "whole", target="g", progress=lambda *call: calls.append(call),
        **SETTINGS,
    )  # fmt: skip
    return result, calls


def test_a_folder_has_the_model_the_rows_the_report_and_a_readme(table, undisturbed):
    result, _ = undisturbed
    assert names(result.folder) == FILES
    real = pd.read_csv(table)
    train, test = pd.read_csv(result.train), pd.read_csv(result.test)
    assert len(test) == 20
    both = pd.concat([train, test]).sort_values(["x", "g"], ignore_index=True)
    assert both.equals(real.sort_values(["x", "g"], ignore_index=True))
    rows = pd.read_csv(result.synthetic)
    assert len(rows) == 80 and rows.dtypes.equals(real.dtypes)
    assert TabMT.load(result.model).card_.rows == 60
    assert json.loads(result.scores.read_text()) == [result.evaluation.to_json()]
    assert result.evaluation.rows["test"] == 20 and result.evaluation.target == "g"
    assert result.evaluation.privacy.outcome == "undecided"
    assert result.verdict[0] == "Undecided by these tests."
    assert "Verdict: Undecided by these tests.\n" in result.readme.read_text()
    assert "Undecided by these tests" in result.report.read_text()


def test_only_the_owner_can_read_the_results(undisturbed):
    folder = undisturbed[0].folder
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_progress_goes_through_all_stages_with_the_losses(undisturbed):
    _, calls = undisturbed
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages == ["reading", "fitting", "sampling", "evaluating"]
    for stage in stages:
        shares = [share for name, share, _ in calls if name == stage]
        assert shares[0] == 0 and shares[-1] == 1 and shares == sorted(shares)
    steps = [details for stage, _, details in calls if stage == "fitting" and "step" in details]
    assert [details["step"] for details in steps] == list(range(1, 21))
    assert all(np.isfinite(details["loss"]) for details in steps)


def test_the_number_of_test_rows():
    assert {rows: number_of_test_rows(rows) for rows in (40, 344, 499, 500, 625, 10_000)} == {
        40: 10, 344: 86, 499: 125, 500: 125, 625: 125, 10_000: 2_000,
    }  # fmt: skip


@pytest.mark.parametrize("stage", ["fitting", "sampling", "evaluating"])
def test_a_cancelled_call_continues_to_the_same_rows(stage, table, undisturbed, tmp_path):
    folder = tmp_path / "out"

    def cancel(name, share, details):
        if name == stage and share > 0.3:
            raise Cancelled

    with pytest.raises(Cancelled):
        synthesize(table, folder, target="g", progress=cancel, **SETTINGS)
    assert not (folder / "README.txt").exists()
    kept = {"fitting": "model.tabmt.checkpoint", "sampling": "model.tabmt"}
    assert (folder / kept.get(stage, "synthetic.csv")).exists()
    calls = []
    result = synthesize(
        table, folder, target="g", progress=lambda *call: calls.append(call), **SETTINGS
    )
    first = next((d["step"] for name, _, d in calls if name == "fitting" and "step" in d), None)
    assert first is None or 1 < first <= 8
    assert (first is None) == (stage != "fitting")
    assert result.synthetic.read_bytes() == undisturbed[0].synthetic.read_bytes()
    assert result.evaluation == undisturbed[0].evaluation
    assert names(folder) == FILES


def test_a_killed_command_continues(table, tmp_path):
    """Killed after the fit, it does not fit again; complete, it does nothing again."""
    whole = run("synthesize", table, "-o", tmp_path / "whole", *QUICK)
    assert whole.exit_code == 0, whole.output
    command = [sys.executable, "-m", "tabmt.cli", "synthesize", str(table), *QUICK]
    model = tmp_path / "people-synthetic" / "model.tabmt"
    environment = os.environ | {"PYTHONPATH": str(Path(tabmt.__file__).parent.parent)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while not model.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (model.parent / "README.txt").exists()
    fitted = model.stat().st_mtime_ns
    again = run("synthesize", table, "-o", model.parent, *QUICK)
    assert again.exit_code == 0, again.output
    assert model.stat().st_mtime_ns == fitted
    rows = (model.parent / "synthetic.csv").read_bytes()
    assert rows == (tmp_path / "whole" / "synthetic.csv").read_bytes()
    written = (model.parent / "report.html").stat().st_mtime_ns
    complete = run("synthesize", table, "-o", model.parent, *QUICK)
    assert complete.stdout == again.stdout and "is complete already" in complete.stderr
    assert (model.parent / "report.html").stat().st_mtime_ns == written


def test_other_arguments_are_refused_and_force_starts_again(table, undisturbed, tmp_path):
    folder = tmp_path / "out"
    first = synthesize(table, folder, **SETTINGS)
    advice = "choose another folder, or start again with --force."
    small(seed=1).to_csv(tmp_path / "other.csv", index=False)
    for changed, sentence in (
        ({"rows": 20}, f"results with rows 80, not 20; {advice}"),
        ({"target": "g"}, f"results with target None, not 'g'; {advice}"),
        ({"seed": 4}, f"results with seed 3, not 4; {advice}"),
        ({"steps": 21}, f"results with other settings; {advice}"),
        ({"schema": {"columns": []}}, f"results with another schema; {advice}"),
        ({"table": tmp_path / "other.csv"}, f"the results of another table; {advice}"),
    ):
        with pytest.raises(UserError) as error:
            synthesize(**{"table": table, "folder": folder, **SETTINGS, **changed})
        assert str(error.value) == f"The folder {str(folder)!r} holds {sentence}"
    assert names(folder) == FILES
    before = first.synthetic.read_bytes()
    second = synthesize(table, folder, rows=20, force=True, **SETTINGS)
    assert len(pd.read_csv(second.synthetic)) == 20 and second.synthetic.read_bytes() != before
    assert names(folder) == FILES


def test_a_folder_of_somebody_else_is_not_touched(table, tmp_path):
    (tmp_path / "model.tabmt").write_text("precious")
    fails_with(
        f"The folder {str(tmp_path)!r} contains other files; use an empty folder, or --force.",
        "synthesize", table, "-o", tmp_path,
    )  # fmt: skip
    assert names(tmp_path) == ["model.tabmt"]
    assert (tmp_path / "model.tabmt").read_text() == "precious"
    fails_with(
        f"The output folder {str(table.parent)!r} contains, or is in, an input of this command "
        f"({str(table)!r}); choose another folder.",
        "synthesize", table, "-o", table.parent, "--force",
    )  # fmt: skip


def test_bad_input_is_one_sentence_and_leaves_nothing(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small(39).to_csv("few.csv", index=False)
    fails_with(
        "The table has 39 rows, too few to train on some and test on others; it needs at "
        "least 40.",
        "synthesize", "few.csv",
    )  # fmt: skip
    fails_with("There is no file 'none.csv'.", "synthesize", "none.csv")
    fails_with(
        "There is no column 'income' to predict; the columns are: x, g.",
        "synthesize", table, "--target", "income",
    )  # fmt: skip
    fails_with(
        "max_risk is 2.0, but must be a number from 0 to 1.", "synthesize", table, "--max-risk", 2
    )
    fails_with(
        "The table has 60 rows, but protect is 31, which needs at least 62; set protect "
        "(--protect) lower, or to 0 to store every value.",
        "synthesize", table, "--protect", 31,
    )  # fmt: skip
    fails_with("steps is -1, but must be at least 0.", "synthesize", table, "--steps", -1)
    fails_with(
        "The output cannot be named after the pattern 'f*.csv'; give a name with --output.",
        "synthesize", "f*.csv",
    )  # fmt: skip
    assert names(tmp_path) == ["few.csv"]
    with pytest.raises(UserError) as error:
        synthesize(small())
    assert str(error.value) == (
        "Pass `folder`: its name can be derived only from the path of one table."
    )


def test_a_risk_above_the_limit_is_an_exit_code(table, tmp_path):
    result = run("synthesize", table, "-o", tmp_path / "out", "--max-risk", 0.5, *QUICK)
    assert result.exit_code == 1, result.output  # 20 test rows decide nothing
    assert "Risk limit 50.0%: failed, because the verdict is: undecided by these tests." in (
        result.stdout
    )
    assert names(tmp_path / "out") == FILES


def test_the_commands_of_the_readme_give_the_same_results(table, tmp_path, monkeypatch):
    schema = tmp_path / "my schema.json"
    schema.write_text('{"columns": [{"name": "g", "kind": "categorical"}]}')
    folder = tmp_path / "out"
    options = ("--schema", schema, "--target", "g", "-n", 30, *QUICK)
    assert run("synthesize", table, "-o", folder, *options).exit_code == 0
    before = {name: (folder / name).read_bytes() for name in ("synthetic.csv", "evaluation.json")}
    lines = (folder / "README.txt").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    tabmt ")]
    assert [words[1] for words in commands] == ["fit", "sample", "evaluate", "synthesize"]
    for name in ("model.tabmt", *before):
        (folder / name).unlink()
    monkeypatch.chdir(folder)
    for words in commands[:3]:
        result = run(*words[1:])
        assert result.exit_code == 0, result.output
    for name, content in before.items():
        assert (folder / name).read_bytes() == content, name
    complete = run(*commands[3][1:])
    assert complete.exit_code == 0 and "is complete already" in complete.stderr


def test_the_format_and_the_types_of_a_table_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = small().assign(when=pd.Timestamp("2024-01-01") + pd.to_timedelta(range(80), "D"))
    frame["g"] = frame["g"].astype("category")
    frame.to_parquet("people.parquet")
    from_file = synthesize("people.parquet", **SETTINGS)
    assert str(from_file.folder) == "people-synthetic"
    assert from_file.synthetic.name == "synthetic.parquet"
    from_frame = synthesize(frame, "from_frame", **SETTINGS)
    for result in (from_file, from_frame):
        for path in (result.synthetic, result.train, result.test):
            assert pd.read_parquet(path).dtypes.equals(frame.dtypes), path
    assert pd.read_parquet(from_frame.synthetic).equals(pd.read_parquet(from_file.synthetic))


def test_text_of_a_csv_file_stays_as_it_is(tmp_path):
    lines = [f'{i:03},"a; ""{i % 7}""",{"" if i % 5 else "NA"}' for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["code,text,odd", *lines]) + "\n")
    result = synthesize(tmp_path / "t.csv", tmp_path / "out", **SETTINGS)
    split = result.train.read_text().splitlines()[1:] + result.test.read_text().splitlines()[1:]
    assert sorted(split) == sorted(lines)


def test_a_fit_that_is_stopped_is_sampled_and_evaluated(table, tmp_path):
    steps = []
    result = synthesize(
        table, tmp_path / "out", progress=lambda stage, share, details: steps.append(details),
        should_stop=lambda: steps[-1].get("step") == 7, **SETTINGS,
    )  # fmt: skip
    summary = TabMT.load(result.model).card_.summary
    assert (summary.steps, summary.stopped) == (7, "asked")
    assert names(result.folder) == FILES


def test_a_table_that_can_decide_comes_to_a_verdict(tmp_path):
    small(500).to_csv(tmp_path / "t.csv", index=False)
    result = synthesize(tmp_path / "t.csv", tmp_path / "out", **SETTINGS | {"steps": 100})
    assert result.evaluation.rows["test"] == 125
    assert result.evaluation.privacy.outcome == "safe"


def test_fit_without_an_output_names_the_model_after_the_table(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("fit", table, *QUICK)
    assert result.exit_code == 0, result.output
    assert names(tmp_path) == ["people.tabmt"]
    assert TabMT.load("people.tabmt").card_.rows == 80
    Path("people.tabmt").write_text("precious")
    fails_with(
        "'people.tabmt' exists and is not a TabMT model, so it is not replaced; choose another "
        "name, or use --force.",
        "fit", table, *QUICK,
    )  # fmt: skip
    assert Path("people.tabmt").read_text() == "precious"


def test_a_notebook_shows_the_verdict_and_the_main_scores(undisturbed):
    evaluation = undisturbed[0].evaluation
    shown = dataclasses.replace(evaluation, name="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;: Undecided by these tests" in shown
    assert f"{evaluation.privacy.worst.risk:.1%}" in shown
    assert "Utility" in shown and "Similarity to real rows" in shown


def test_the_report_begins_with_what_differs_most(undisturbed):
    evaluation, page = undisturbed[0].evaluation, undisturbed[0].report.read_text()
    positions = [page.index(f"<h3>{name}</h3>") for name in by_difference(evaluation)]
    assert positions == sorted(positions)
    (ours, real), (after, behind) = (evaluation.columns[n] for n in by_difference(evaluation))
    assert ours - real >= after - behind
    assert "<h3>x and g</h3>" in page
    facts = overview(evaluation)
    assert page.index(f"<dt>{facts[0].title}</dt>") < page.index("Main scores")
