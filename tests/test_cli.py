import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tabmt.cli import main
from tests.tables import mixed_frame, with_little_disk

TINY = [
    "--no-calibrate-missing", "--width", "16", "--depth", "1", "--heads", "2",
    "--batch-size", "64", "--threads", "1",
]  # fmt: skip
FIT = [*TINY, "--steps", "30", "--eval-every", "10"]


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def fails_with(sentence, *arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.splitlines()[-1] == f"Error: {sentence}"


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    mixed_frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    mixed_frame().to_csv(folder / "people.csv", index=False)
    result = run("fit", folder / "people.csv", "-o", folder / "people.tabmt", *FIT)
    assert result.exit_code == 0, result.output
    return folder / "people.tabmt"


def test_schema_writes_json_that_fit_accepts(people, tmp_path):
    result = run("schema", people)
    schema = json.loads(result.stdout)
    assert [column["name"] for column in schema["columns"]] == list(mixed_frame().columns)
    for column in schema["columns"]:
        if column["name"] == "visits":
            column["kind"] = "numeric"
    edited = tmp_path / "schema.json"
    edited.write_text(json.dumps(schema))
    result = run("fit", people, "-o", tmp_path / "m.tabmt", "--schema", edited, *FIT)
    assert result.exit_code == 0, result.output
    info = json.loads(run("info", tmp_path / "m.tabmt", "--json").stdout)
    kinds = {column["name"]: column["kind"] for column in info["schema"]["columns"]}
    assert kinds["visits"] == "numeric"


def test_fit_writes_a_model_and_nothing_else(model):
    assert sorted(path.name for path in model.parent.iterdir()) == ["people.csv", "people.tabmt"]


def test_sample_writes_the_columns_of_the_table_in_every_format(model, tmp_path):
    for ending in ("csv", "parquet", "arrow"):
        out = tmp_path / f"out.{ending}"
        result = run("sample", model, "-n", 700, "-o", out, "--seed", 1)
        assert result.exit_code == 0, result.output
    frame = pd.read_csv(tmp_path / "out.csv")
    assert list(frame.columns) == list(mixed_frame().columns) and len(frame) == 700
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 700


def test_data_goes_to_stdout_and_messages_to_stderr(model):
    result = run("sample", model, "-n", 3, "--seed", 1)
    lines = result.stdout.splitlines()
    assert lines[0] == ",".join(mixed_frame().columns) and len(lines) == 4
    result = run("sample", model, "-n", 3)
    assert len(result.stdout.splitlines()) == 4
    assert "with seed" in result.stderr


def test_quiet_shows_no_messages(model):
    result = run("--quiet", "sample", model, "-n", 3)
    assert result.stderr == ""


def test_temperatures_are_set_for_all_columns_and_for_one(model):
    likeliest = run("sample", model, "-n", 5, "--seed", 1, "--temperature", "0").stdout
    assert likeliest == run("sample", model, "-n", 5, "--seed", 1, "--temperature", "0").stdout
    varied = run(
        "sample", model, "-n", 5, "--seed", 1, "--temperature", "0", "--temperature", "height=9"
    )
    assert varied.exit_code == 0 and varied.stdout != likeliest


def test_with_no_missing_no_generated_value_is_missing(model, tmp_path):
    run("sample", model, "-n", 500, "-o", tmp_path / "x.csv", "--no-missing", "--seed", 0)
    assert pd.read_csv(tmp_path / "x.csv").notna().all().all()


def test_info_shows_what_the_model_knows(model):
    text = " ".join(run("info", model).stdout.split())  # a long path makes a line wrap
    for word in (
        "200 rows",
        "any-order",
        "height",
        "numeric",
        "nats per cell",
        "torch",
        "batch size",
    ):
        assert word in text


def test_fit_continues_from_a_model(model, people, tmp_path):
    result = run("fit", people, "-o", tmp_path / "more.tabmt", "--from", model, *FIT)
    assert result.exit_code == 0, result.output
    info = json.loads(run("info", tmp_path / "more.tabmt", "--json").stdout)
    assert info["card"]["settings"]["width"] == 16


def test_mistakes_give_one_sentence_and_exit_code_2(model, people, tmp_path):
    nowhere = tmp_path / "no" / "m.tabmt"
    fails_with("There is no file 'nowhere.csv'.", "schema", "nowhere.csv")
    fails_with("There is no model file 'nowhere.tabmt'.", "info", "nowhere.tabmt")
    fails_with(
        f"There is no folder {str(nowhere.parent)!r} to write 'm.tabmt' into.",
        "fit", people, "-o", nowhere,
    )  # fmt: skip
    fails_with(
        "The temperature 'height=hot' is neither a number nor of the form COLUMN=NUMBER.",
        "sample", model, "-n", 1, "--temperature", "height=hot",
    )  # fmt: skip
    fails_with(
        "heads is 3, but must divide the width of 16 evenly.",
        "fit", people, "-o", tmp_path / "m.tabmt", *TINY[:-2], "--heads", 3,
    )  # fmt: skip
    fails_with(
        f"There is no checkpoint {str(tmp_path / 'm.tabmt.checkpoint')!r} to resume from.",
        "fit", people, "-o", tmp_path / "m.tabmt", "--resume",
    )  # fmt: skip
    fails_with(
        f"{str(people)!r} cannot be read as a TabMT model: it is damaged or a file of another kind "
        "(it has no header).",
        "info", people,
    )  # fmt: skip
    fails_with(
        "There is no rules file 'nowhere.json'.",
        "evaluate", people, "--train", people, "--rules", "nowhere.json",
    )  # fmt: skip
    assert run("sample", model, "-n", -5).exit_code == 2
    assert not (tmp_path / "m.tabmt").exists()


def test_a_nan_loss_gives_one_sentence_and_no_model(people, tmp_path):
    result = run("fit", people, "-o", tmp_path / "m.tabmt", *FIT, "--learning-rate", "1e38",
                 "--warmup", "0", "--clip", "1e30")  # fmt: skip
    assert result.exit_code == 2, result.output
    assert result.stderr.splitlines()[-1].startswith("Error: The loss became")
    assert not (tmp_path / "m.tabmt").exists()


def command(*arguments):
    return [sys.executable, "-m", "tabmt.cli", *map(str, arguments)]


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_fit_resumes_to_the_model_of_an_uninterrupted_one(people, tmp_path, signal_number):
    settings = [*TINY, "--steps", "200", "--eval-every", "50", "--threads", "1"]
    killed, whole = tmp_path / "killed.tabmt", tmp_path / "whole.tabmt"
    process = subprocess.Popen(
        command("fit", people, "-o", killed, *settings, "--checkpoint-every", 0),
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = tmp_path / "killed.tabmt.checkpoint"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal_number)
    process.communicate()
    codes = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}
    assert process.returncode == codes[signal_number]
    assert checkpoint.exists() and not killed.exists()
    fails_with(
        f"There is a checkpoint of an interrupted fit, {str(checkpoint)!r}. Use --resume, or "
        "delete the file to start again.",
        "fit", people, "-o", killed, *settings,
    )  # fmt: skip
    assert run("fit", people, "-o", killed, *settings, "--resume").exit_code == 0
    assert run("fit", people, "-o", whole, *settings).exit_code == 0
    assert not checkpoint.exists()
    rows = [run("sample", path, "-n", 50, "--seed", 1).stdout for path in (killed, whole)]
    assert rows[0] == rows[1]


def test_a_model_that_does_not_fit_on_the_disk_gives_one_sentence(people, tmp_path):
    fit = ["fit", str(people), "-o", str(tmp_path / "m.tabmt"), *TINY, "--steps", "1"]
    done = subprocess.run([*with_little_disk(1000), *fit], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "m.tabmt' cannot be written: " in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == [people.name]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that takes no files")
def test_an_output_that_cannot_be_written_is_refused_before_training(people):
    fails_with("'/proc/m.tabmt' cannot be written: No such file or directory.",
               "fit", people, "-o", "/proc/m.tabmt", "--minutes", 60)  # fmt: skip


def test_output_can_be_piped_to_a_reader_that_stops(model):
    shell = " ".join(command("sample", model, "-n", 15_000, "--seed", 1)) + " | head -n 2"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=120)
    assert len(done.stdout.splitlines()) == 2
    assert "Traceback" not in done.stderr


def test_demo_shows_both_tables_side_by_side(tmp_path):
    result = run("demo", "-o", tmp_path / "demo", "--minutes", 0.02)
    assert result.exit_code == 0, result.output
    assert "bill_length_mm" in result.stderr and "synthetic" in result.stderr
    report, further = result.stdout.splitlines()[-2:]
    assert report == (
        f"The results are in {tmp_path / 'demo'}: report.html, the rows (synthetic.csv), the model "
        "(model.tabmt); README.txt describes all files."
    )
    assert further.startswith("Next, try: ")
    assert further.endswith(f" serve {tmp_path / 'demo' / 'model.tabmt'}")
    assert "86 are set aside as test rows: too few for the verdict" in result.stderr
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        "README.txt",
        "arguments.json",
        "evaluation.json",
        "model.tabmt",
        "real-rows",
        "report.html",
        "synthetic.csv",
    ]
    assert len(pd.read_csv(tmp_path / "demo" / "synthetic.csv")) == 344


def test_evaluate_prints_scores_and_writes_json_and_a_report(model, tmp_path):
    mixed_frame(150, seed=5).to_csv(tmp_path / "test.csv", index=False)
    mixed_frame(150, seed=6).to_csv(tmp_path / "fresh.csv", index=False)
    run("sample", model, "-n", 150, "-o", tmp_path / "synthetic.csv", "--seed", 1)
    (tmp_path / "rules.json").write_text('{"tall": "height > 100"}')
    (tmp_path / "settings.json").write_text('{"iterations": 20}')
    result = run(
        "evaluate", tmp_path / "synthetic.csv", tmp_path / "fresh.csv",
        "--train", model.parent / "people.csv", "--test", tmp_path / "test.csv",
        "--target", "group", "--rules", tmp_path / "rules.json",
        "--catboost", tmp_path / "settings.json",
        "--json", tmp_path / "out.json", "--report", tmp_path / "out.html",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    head = result.stdout.splitlines()[0].split()
    assert head == ["metric", "synthetic.csv", "fresh.csv", "real", "rows", "better"]
    assert "Violates tall" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert [one["name"] for one in found] == ["synthetic.csv", "fresh.csv"]
    assert "Comparison of 2 synthetic tables" in (tmp_path / "out.html").read_text()
    assert "No validation table was given" in result.stderr


def test_a_large_sample_is_written_in_batches(model, tmp_path):
    out = tmp_path / "big.parquet"
    result = run("sample", model, "-n", 40_000, "-o", out, "--seed", 1)
    assert result.exit_code == 0, result.output
    frame = pd.read_parquet(out)
    assert len(frame) == 40_000
    assert np.array_equal(frame["id"], np.arange(1, 40_001))
