"""Rows in a folder of files: every row once, whatever is interrupted. With a real Ray cluster."""

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tabmt import TabMT, UserError
from tabmt.cli import main
from tabmt.codec.large_tables import encode_to_file, fit_table_codec
from tabmt.config import CodecConfig, SampleOptions
from tabmt.data.dataset import Dataset
from tabmt.model.folders import REQUEST, SampleFile
from tabmt.model.generate import BATCH_ROWS
from tabmt.parallel import each
from tabmt.tokens import TokenFile, TokenStore
from tests.tables import mixed_frame, write_parts

TINY = {"width": 16, "depth": 1, "heads": 2, "steps": 5, "threads": 1, "batch_size": 32,
        "calibrate_missing": False}  # fmt: skip
ROWS = 3 * BATCH_ROWS + 100
# Ray leaves open sockets and files behind when it is shut down.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def model() -> TabMT:
    return TabMT(**TINY).fit(mixed_frame())


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not ray.is_initialized():  # another test of this process may have begun
        ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    yield ray
    ray.shutdown()


def read(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("part-*.parquet"))])


def test_files_hold_the_rows_that_sample_gives(model, tmp_path):
    counts: list[int] = []
    options = {"seed": 3, "file_rows": BATCH_ROWS, "on_file": counts.append}
    assert model.sample_to(tmp_path / "a", ROWS, **options) == ROWS
    assert counts == [BATCH_ROWS] * 3 + [100]
    expected = model.sample(ROWS, seed=3)
    pd.testing.assert_frame_equal(read(tmp_path / "a").reset_index(drop=True), expected)
    assert Dataset.open(tmp_path / "a").num_rows == ROWS  # the request is not taken for data


def test_only_the_files_that_are_not_there_are_written(model, tmp_path):
    options = {"seed": 3, "file_rows": BATCH_ROWS}

    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.sample_to(tmp_path / "a", ROWS, on_file=stop, **options)
    assert len(list((tmp_path / "a").glob("part-*"))) == 1
    first = tmp_path / "a" / "part-000000.parquet"
    before = first.stat()
    assert model.sample_to(tmp_path / "a", ROWS, **options) == ROWS
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    pd.testing.assert_frame_equal(
        read(tmp_path / "a").reset_index(drop=True), model.sample(ROWS, seed=3)
    )


def test_another_request_for_the_same_folder_is_refused(model, tmp_path):
    folder = tmp_path / "a"
    model.sample_to(folder, 10, seed=3)

    def differing(name: str) -> str:
        return (
            f"The folder {str(folder)!r} contains files from a run with other values of: {name}. "
            "Run it again with the same values, or use an empty folder."
        )

    def refused(call: Callable[[], object]) -> str:
        with pytest.raises(UserError) as error:
            call()
        return str(error.value)

    for other, sentence in (
        ({"rows": 11, "seed": 3}, differing("rows")),
        ({"rows": 10, "seed": 4}, differing("seed")),
        ({"rows": 10, "seed": 3, "allow_missing": False}, differing("allow_missing")),
        ({"rows": 10, "seed": 3, "decode": "centre"}, differing("decode")),
        ({"rows": 10, "seed": 3, "temperature": 0.5}, differing("temperature")),
        ({"rows": 10, "seed": 3, "where": {"member": True}}, differing("where")),
        ({"rows": 10, "seed": 3, "balance": "group"}, differing("balance")),
        (
            {"rows": 10, "seed": 3, "file_rows": 5},
            f"file_rows is 5, but must be a multiple of {BATCH_ROWS}.",
        ),
        (
            {"rows": 10},
            "A folder of files needs a seed, so that an interrupted call can be resumed.",
        ),
    ):
        assert refused(lambda other=other: model.sample_to(folder, **other)) == sentence
    another = TabMT(**TINY, seed=1).fit(mixed_frame())
    assert refused(lambda: another.sample_to(folder, 10, seed=3)) == differing("model")
    mixed_frame().to_parquet(tmp_path / "t.parquet")
    assert refused(lambda: model.impute_to(folder, tmp_path / "t.parquet")) == differing("command")
    (folder / REQUEST).write_text("{")
    assert refused(lambda: model.sample_to(folder, 10, seed=3)) == (
        f"{str(folder / REQUEST)!r} is damaged; empty the folder to start again."
    )


def test_a_folder_with_other_files_is_refused(model, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").touch()
    with pytest.raises(UserError) as error:
        model.sample_to(tmp_path / "b", 10, seed=3)
    assert str(error.value) == (
        f"The folder {str(tmp_path / 'b')!r} contains other files; use an empty folder."
    )


def test_a_refused_imputation_leaves_its_folder_free(model, tmp_path):
    paths = write_parts(mixed_frame(), tmp_path)
    with pytest.raises(UserError, match="agge"):
        model.impute_to(tmp_path / "c", paths, columns=["agge"])
    assert model.impute_to(tmp_path / "c", paths, columns=["height"]) == 200


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_missing_values_of_several_files_are_filled(model, tmp_path, ending):
    frame = mixed_frame()
    paths = write_parts(frame, tmp_path, ending)
    model.impute_to(tmp_path / "full", str(tmp_path / f"part*.{ending}"), seed=1)
    files = sorted((tmp_path / "full").glob("*.parquet"))
    assert [pq.read_metadata(path).num_rows for path in files] == [70, 70, 60]
    full = read(tmp_path / "full").reset_index(drop=True)
    given = pd.concat(
        [pd.read_parquet(p) if ending == "parquet" else pd.read_csv(p) for p in paths]
    )
    known = given.notna().to_numpy()
    assert not full.isna().to_numpy().any() and not known.all()
    for column, name in enumerate(given):
        here = known[:, column]
        one, other = given[name].reset_index(drop=True)[here], full[name][here]
        if ending == "csv" and isinstance(other.iloc[0], pd.Timestamp | datetime.date):
            one = pd.to_datetime(one, utc=True).dt.strftime("%F %T")
            other = pd.to_datetime(other, utc=True).dt.strftime("%F %T")
        assert one.astype(other.dtype).tolist() == other.tolist(), name


def test_ray_gives_the_same_rows(model, tmp_path, cluster):
    options = {"seed": 3, "file_rows": BATCH_ROWS}
    assert model.sample_to(tmp_path / "a", ROWS, engine="ray", **options) == ROWS
    pd.testing.assert_frame_equal(
        read(tmp_path / "a").reset_index(drop=True), model.sample(ROWS, seed=3)
    )
    write_parts(mixed_frame(), tmp_path)
    for engine in ("local", "ray"):
        model.impute_to(tmp_path / engine, str(tmp_path / "part*"), seed=1, engine=engine)
    pd.testing.assert_frame_equal(read(tmp_path / "local"), read(tmp_path / "ray"))


def test_ray_encodes_the_same_tokens(tmp_path, cluster):
    dataset = Dataset.open(write_parts(mixed_frame(), tmp_path))
    codec = fit_table_codec(dataset, CodecConfig(), None, 0)
    encode_to_file(codec, dataset, tmp_path / "tokens", engine="ray", workers=1)
    found = TokenStore(TokenFile(tmp_path / "tokens", codec.sizes, 200))
    expected = codec.encode(codec.parse(dataset.to_table()))
    assert found.shape == expected.shape
    for column in range(found.shape[1]):
        assert np.array_equal(found.column(column), expected.column(column))


def test_an_error_of_the_user_comes_back_from_ray(model, tmp_path, cluster):
    other = mixed_frame().drop(columns="city")
    other.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match="city"):
        model.impute_to(tmp_path / "full", tmp_path / "t.parquet", engine="ray")


def dying(work: SampleFile, mark: str) -> Callable[[int], int]:
    """The same work, but its worker is killed while it writes the third file, the first time."""

    def do(number: int) -> int:
        if number == 2 and not os.path.exists(mark):
            open(mark, "w").close()
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return work(number)

    return do


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_every_row_comes_once(model, tmp_path, cluster):
    rows = 8 * BATCH_ROWS
    (tmp_path / "a").mkdir()
    request = model._request(SampleOptions(seed=3))
    work = SampleFile(model.model_, rows, BATCH_ROWS, request, tmp_path / "a")
    killed = dying(work, str(tmp_path / "killed"))
    assert list(each(killed, list(range(8)), engine="ray")) == [BATCH_ROWS] * 8
    assert (tmp_path / "killed").exists()
    assert len(list((tmp_path / "a").glob("part-*"))) == 8
    pd.testing.assert_frame_equal(
        read(tmp_path / "a").reset_index(drop=True), model.sample(rows, seed=3)
    )


DRIVER = """
from tabmt import TabMT
from tabmt.model.generate import BATCH_ROWS
TabMT.load("m.tabmt").sample_to(
    "rows", 15 * BATCH_ROWS, seed=5, file_rows=BATCH_ROWS, engine="ray"
)
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_can_be_continued(model, tmp_path):
    pytest.importorskip("ray")
    model.save(tmp_path / "m.tabmt")
    folder = tmp_path / "rows"
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=tmp_path, start_new_session=True
    ) as driver:
        started = time.monotonic()
        while len(list(folder.glob("part-*"))) < 2:
            assert driver.poll() is None and time.monotonic() - started < 100
            time.sleep(0.05)
        os.killpg(driver.pid, signal.SIGKILL)  # with all that it has started
    whole = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert 2 <= len(whole) < 15
    rows = 15 * BATCH_ROWS
    assert model.sample_to(folder, rows, seed=5, file_rows=BATCH_ROWS) == rows
    assert all(path.stat().st_mtime_ns == then for path, then in whole.items())
    pd.testing.assert_frame_equal(read(folder).reset_index(drop=True), model.sample(rows, seed=5))


def test_the_command_line_writes_folders(model, tmp_path):
    model.save(tmp_path / "m.tabmt")
    name, out = str(tmp_path / "m.tabmt"), f"{tmp_path}/rows/"
    for _ in range(2):
        result = CliRunner().invoke(main, ["sample", name, "-n", "50", "--seed", "1", "-o", out])
        assert result.exit_code == 0 and "wrote 50 rows" in result.output
    rows = str(tmp_path / "rows")
    for arguments, sentence in (
        (
            ["sample", name, "-n", "50", "-o", out],
            "A folder of files needs --seed, so that an interrupted command can be resumed.",
        ),
        (
            ["sample", name, "-n", "50", "--seed", "1", "-o", "x.csv", "--engine", "ray"],
            "--engine ray writes a folder of files, but the output is 'x.csv'; end it with a "
            "slash.",
        ),
        (
            ["complete", name, "x.csv", "--seed", "1", "-o", out],
            f"The output {out!r} is a folder, but this command writes a file.",
        ),
        (
            ["sample", name, "-n", "60", "--seed", "1", "-o", out],
            f"The folder {rows!r} contains files from a run with other values of: rows. Run it "
            "again with the same values, or use an empty folder.",
        ),
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2 and sentence in result.output, result.output
    pq.write_table(pa.Table.from_pandas(mixed_frame()), tmp_path / "partial.parquet")
    filled = f"{tmp_path}/filled/"
    result = CliRunner().invoke(
        main, ["impute", name, str(tmp_path / "partial.parquet"), "-o", filled]
    )
    assert result.exit_code == 0 and "wrote 200 rows" in result.output
