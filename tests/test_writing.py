"""Files are complete or not there, written by one run at a time, and readable by their owner."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import pytest

from tabmt.errors import UserError
from tabmt.writing import (
    TemporaryFolder,
    claimed,
    remove_abandoned,
    remove_abandoned_folders,
    replacing,
    write_text,
)
from tests.tables import mixed_frame, write_parts
from tests.test_cli import FIT, TINY, run

HOLD = """
import sys, time
from pathlib import Path
from tabmt.writing import TemporaryFolder, claimed, replacing

kind, path = sys.argv[1], Path(sys.argv[2])
folder = TemporaryFolder("something") if kind == "folder" else None
holder = {"file": lambda: replacing(path), "run": lambda: claimed(path, "The output")}.get(kind)
context = holder() if holder else None
if context:
    context.__enter__()
print(folder.path if folder else "", flush=True)
time.sleep(100)
"""


@contextmanager
def hold(kind, path):
    """Another process that has a file, an output or a temporary folder; it is killed at the end."""
    command = [sys.executable, "-c", HOLD, kind, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_for_their_owner_only_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        write_text(tmp_path / "file", "text")
        temporary = TemporaryFolder("rows")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o600 and mode(temporary.path) == 0o700


def test_everything_with_rows_is_for_its_owner_only(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    write_parts(mixed_frame(), parts)
    for words in (
        ("fit", parts, "-o", tmp_path / "m.tabmt", "--store", tmp_path / "store", *FIT),
        ("sample", tmp_path / "m.tabmt", "-n", 5, "-o", tmp_path / "rows.csv", "--seed", 1),
        ("sample", tmp_path / "m.tabmt", "-n", 5, "-o", f"{tmp_path}/rows/", "--seed", 1),
    ):
        result = run(*words)
        assert result.exit_code == 0, result.output
    written = [p for p in tmp_path.rglob("*") if parts not in (p, p.parent)]
    assert {p.name for p in written} >= {"m.tabmt", "rows.csv", "tokens", "part-000000.parquet"}
    assert [p.name for p in written if mode(p) & 0o077] == []
    assert "every row as numbers" in (tmp_path / "store" / "README.txt").read_text()


def test_a_file_that_another_run_writes_is_refused_and_taken_over_when_it_is_killed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("before")
    with hold("file", path), pytest.raises(UserError) as error, replacing(path):
        pass
    assert str(error.value) == (
        f"{str(path)!r} is being written by another run; wait until that has ended, or choose "
        "another output."
    )
    assert (tmp_path / ".rows.csv.part").exists() and path.read_text() == "before"
    write_text(path, "after")
    assert path.read_text() == "after" and [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_a_second_fit_of_the_same_output_is_refused(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    words = ("fit", tmp_path / "people.csv", "-o", tmp_path / "m.tabmt", *FIT)
    with hold("run", tmp_path / "m.tabmt"):
        result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"Error: The output {str(tmp_path / 'm.tabmt')!r} is in use by another run; wait until "
        "that has ended, or choose another output."
    )
    assert run(*words).exit_code == 0  # the lock of a dead process is taken over
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.tabmt", "people.csv"]


def test_two_runs_cannot_write_into_one_folder(tmp_path):
    (tmp_path / "rows").mkdir()
    folder = tmp_path / "rows"
    with (
        claimed(folder, "The output folder"),
        pytest.raises(UserError, match="in use by another run"),
        claimed(folder, "The output folder"),
    ):
        pass
    assert list((tmp_path / "rows").iterdir()) == []


def test_unfinished_files_of_dead_runs_are_removed_and_those_of_living_ones_kept(tmp_path):
    (tmp_path / ".dead.part").write_text("half")
    with hold("file", tmp_path / "living"):
        remove_abandoned(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [".living.part"]


def test_temporary_folders_say_what_they_hold_and_the_next_run_removes_those_of_killed_ones(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with hold("folder", "") as (process, folder):
        about = (tmp_path / folder / "README.txt").read_text()
        assert about.startswith("This folder contains something.") and str(process.pid) in about
        remove_abandoned_folders()
        assert os.path.isdir(folder)
    remove_abandoned_folders()
    assert not os.path.exists(folder)


def test_sigterm_saves_a_checkpoint_from_which_the_same_model_comes(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    command = [sys.executable, "-m", "tabmt.cli", "fit", "people.csv", "-o", "m.tabmt", *TINY,
               "--steps", "120", "--eval-every", "10", "--checkpoint-every", "1000"]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step "):  # a validation check: training has begun
                break
        process.terminate()
        messages = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert "run the same command with --resume" in messages and "Traceback" not in messages
    assert (tmp_path / "m.tabmt.checkpoint").exists()
    assert mode(tmp_path / "m.tabmt.checkpoint") == 0o600
    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.tabmt", "people.csv"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output_is_one_sentence(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tabmt.cli", "schema", "people.csv"],
            cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: Standard output cannot be written or read: No space left on device."
    )
    assert "Exception" not in done.stderr and "Traceback" not in done.stderr
