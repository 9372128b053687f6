"""No command overwrites its input, or a file of somebody else."""

import json
import os
from pathlib import Path

import pytest

from tabmt import TabMT
from tabmt.errors import UserError
from tabmt.outputs import Output, check_outputs
from tests.tables import mixed_frame
from tests.test_cli import FIT, run


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A table, a folder of it, a model, and inputs of other kinds."""
    folder = tmp_path_factory.mktemp("files")
    mixed_frame().to_csv(folder / "people.csv", index=False)
    (folder / "parts").mkdir()
    mixed_frame().to_csv(folder / "parts" / "1.csv", index=False)
    (folder / "schema.json").write_text('{"columns": []}')
    assert run("fit", folder / "people.csv", "-o", folder / "m.tabmt", *FIT).exit_code == 0
    (folder / "link.csv").symlink_to(folder / "people.csv")
    os.link(folder / "people.csv", folder / "hard.csv")
    return folder


COMMANDS = {
    "schema": ("schema", "people.csv", "-o"),
    "schema of a schema": ("schema", "people.csv", "--schema", "schema.json", "-o"),
    "fit": ("fit", "people.csv", "--from", "m.tabmt", *FIT, "-o"),
    "impute": ("impute", "m.tabmt", "people.csv", "-o"),
    "complete": ("complete", "m.tabmt", "people.csv", "-o"),
    "like": ("like", "m.tabmt", "people.csv", "--keep", "1", "-o"),
    "score": ("score", "m.tabmt", "people.csv", "-o"),
    "embed": ("embed", "m.tabmt", "people.csv", "-o"),
    "evaluate --json": ("evaluate", "people.csv", "--train", "people.csv", "--json"),
    "evaluate --report": ("evaluate", "people.csv", "--train", "people.csv", "--report"),
    "tune": ("tune", "people.csv", "--config", "settings.toml", "--trials", "1", "-o"),
    "netflow write": ("netflow", "write", "people.csv", "--week", "2020-01-01", "-o"),
    "netflow read": ("netflow", "read", "people.csv", "-o"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_that_is_an_input_is_refused_even_with_force(files, name, monkeypatch):
    monkeypatch.chdir(files)
    words = COMMANDS[name]
    target = {"schema of a schema": "schema.json", "fit": "m.tabmt"}.get(name, "people.csv")
    if name == "tune":
        Path("settings.toml").write_text("steps = 1\n")
        target = "settings.tabmt"  # its settings would be written to settings.toml
    before = {path: path.read_bytes() for path in files.iterdir() if path.is_file()}
    for force in ([], ["--force"]):
        result = run(*words, target, *force)
        assert result.exit_code == 2, result.output
        assert "is also an input of this command" in result.stderr
    assert {path: path.read_bytes() for path in files.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("output", ["link.csv", "hard.csv", "./parts/../people.csv"])
def test_an_input_is_recognised_by_any_path_and_link(files, output, monkeypatch):
    monkeypatch.chdir(files)
    result = run("score", "m.tabmt", "people.csv", "-o", output)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"Error: The output {output!r} is also an input of this command ('people.csv'); choose "
        "another output."
    )


@pytest.mark.parametrize("table", ["parts", "parts/*.csv", "p*/*.csv", "**/*.csv"])
def test_a_file_that_the_next_run_would_read_is_refused(files, table, monkeypatch):
    monkeypatch.chdir(files)
    result = run("score", "m.tabmt", table, "-o", "parts/new.csv")
    assert (
        result.exit_code == 2 and f"is also an input of this command ({table!r})" in result.stderr
    )
    assert not Path("parts/new.csv").exists()


def test_an_output_folder_that_holds_an_input_is_refused(files, monkeypatch):
    monkeypatch.chdir(files)
    for output in ("parts/", "./", "parts/inner/"):
        result = run("impute", "m.tabmt", "parts", "-o", output)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1] == (
            f"Error: The output folder {output!r} contains, or is in, an input of this command "
            f"({'m.tabmt' if output == './' else 'parts'!r}); choose another folder."
        )
    assert sorted(path.name for path in Path("parts").iterdir()) == ["1.csv"]


def test_our_formats_do_not_replace_other_files_unless_forced(files, tmp_path):
    table, model = files / "people.csv", files / "m.tabmt"
    for words, name in (
        (("fit", table, *FIT, "-o"), "notes"),
        (("schema", table, "-o"), "notes.json"),
        (("sample", model, "-n", 2, "-o"), "notes.parquet"),
        (("evaluate", table, "--train", table, "--json"), "notes.json"),
        (("evaluate", table, "--train", table, "--report"), "notes.html"),
        (("netflow", "schema", "-o"), "notes.json"),
    ):
        stranger = tmp_path / name
        stranger.write_text("precious")
        result = run(*words, stranger)
        assert result.exit_code == 2 and "so it is not replaced" in result.stderr, result.output
        assert stranger.read_text() == "precious"
    stranger = tmp_path / "notes.json"
    assert run("schema", table, "-o", stranger, "--force").exit_code == 0
    assert "columns" in json.loads(stranger.read_text())
    assert run("schema", table, "-o", stranger).exit_code == 0  # a schema replaces a schema


def test_the_refusal_of_another_format_is_one_sentence(files, tmp_path):
    stranger = tmp_path / "notes"
    stranger.write_text("precious")
    with pytest.raises(UserError) as error:
        TabMT.load(files / "m.tabmt").save(stranger)
    assert str(error.value) == (
        f"{str(stranger)!r} exists and is not a TabMT model, so it is not replaced; choose another "
        "name, or use --force."
    )
    TabMT.load(files / "m.tabmt").save(stranger, force=True)
    TabMT.load(stranger).save(stranger)


def test_devices_and_two_outputs_of_one_name_are_refused(tmp_path):
    with pytest.raises(UserError, match="is a device or a pipe"):
        check_outputs([Output("/dev/null", "schema")], [])
    with pytest.raises(UserError, match="would be written twice"):
        check_outputs([Output(tmp_path / "a.svg", "SVG"), Output(tmp_path / "a.svg", "SVG")], [])


def test_the_demo_does_not_write_among_other_files(tmp_path):
    (tmp_path / "train.csv").write_text("precious")
    result = run("demo", "-o", tmp_path)
    assert result.exit_code == 2 and "contains other files" in result.stderr
    assert (tmp_path / "train.csv").read_text() == "precious"
