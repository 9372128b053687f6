"""Rows in a folder of files: every row once, whatever is cut off in the middle. A real Ray."""

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
from tabmt.codec.columns import TableCodec
from tabmt.codec.token_files import encode
from tabmt.config import CodecConfig
from tabmt.data.dataset import open_table
from tabmt.data.schema import infer
from tabmt.model.folders import PLAN, SamplePart
from tabmt.model.generate import BATCH_ROWS
from tabmt.parallel import each
from tabmt.tokens import PackedFile, TokenStore
from tests.tables import mixed_frame
from tests.test_many_files import TINY, in_parts

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


def test_parts_are_the_rows_that_sample_gives(model, tmp_path):
    counts: list[int] = []
    how = {"seed": 3, "part_rows": BATCH_ROWS, "on_part": counts.append}
    assert model.sample_to(tmp_path / "a", ROWS, **how) == ROWS
    assert counts == [BATCH_ROWS] * 3 + [100]
    expected = model.sample(ROWS, seed=3)
    pd.testing.assert_frame_equal(read(tmp_path / "a").reset_index(drop=True), expected)
    assert open_table(tmp_path / "a")[0].num_rows == ROWS  # the plan is not taken for data


def test_only_what_is_missing_is_made_again(model, tmp_path):
    how = {"seed": 3, "part_rows": BATCH_ROWS}

    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.sample_to(tmp_path / "a", ROWS, on_part=stop, **how)
    assert len(list((tmp_path / "a").glob("part-*"))) == 1
    first = tmp_path / "a" / "part-000000.parquet"
    before = first.stat()
    assert model.sample_to(tmp_path / "a", ROWS, **how) == ROWS
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    pd.testing.assert_frame_equal(
        read(tmp_path / "a").reset_index(drop=True), model.sample(ROWS, seed=3)
    )


def test_another_plan_gets_a_sentence(model, tmp_path):
    model.sample_to(tmp_path / "a", 10, seed=3)
    for other, sentence in (
        ({"rows": 11, "seed": 3}, "parts of another run: rows differs"),
        ({"rows": 10, "seed": 4}, "parts of another run: seed differs"),
        ({"rows": 10, "seed": 3, "complete": True}, "parts of another run: complete differs"),
        ({"rows": 10, "seed": 3, "part_rows": 5}, "part_rows is 5, but must be a multiple of"),
    ):
        with pytest.raises(UserError, match=sentence):
            model.sample_to(tmp_path / "a", **other)
    with pytest.raises(UserError, match="parts of another run: model differs"):
        TabMT(**TINY, seed=1).fit(mixed_frame()).sample_to(tmp_path / "a", 10, seed=3)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").touch()
    with pytest.raises(UserError, match="holds other files; name an empty one"):
        model.sample_to(tmp_path / "b", 10, seed=3)
    with pytest.raises(UserError, match="agge"):
        model.impute_to(tmp_path / "c", in_parts(mixed_frame(), tmp_path), columns=["agge"])
    model.impute_to(tmp_path / "c", in_parts(mixed_frame(), tmp_path), columns=["height"])
    (tmp_path / "a" / PLAN).write_text("{")
    with pytest.raises(UserError, match="is damaged; empty the folder"):
        model.sample_to(tmp_path / "a", 10, seed=3)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_gaps_of_several_files_are_filled(model, tmp_path, ending):
    frame = mixed_frame()
    paths = in_parts(frame, tmp_path, ending)
    model.impute_to(tmp_path / "full", str(tmp_path / f"part*.{ending}"), seed=1)
    files = sorted((tmp_path / "full").glob("*.parquet"))
    assert [pq.read_metadata(path).num_rows for path in files] == [70, 70, 60]
    full = read(tmp_path / "full").reset_index(drop=True)
    given = pd.concat(
        [pd.read_parquet(p) if ending == "parquet" else pd.read_csv(p) for p in paths]
    )
    known = given.notna().to_numpy()
    assert not full.isna().to_numpy().any() and not known.all()
    for place, name in enumerate(given):
        here = known[:, place]
        one, other = given[name].reset_index(drop=True)[here], full[name][here]
        if ending == "csv" and isinstance(other.iloc[0], pd.Timestamp | datetime.date):
            one = pd.to_datetime(one, utc=True).dt.strftime("%F %T")
            other = pd.to_datetime(other, utc=True).dt.strftime("%F %T")
        assert one.astype(other.dtype).tolist() == other.tolist(), name


def test_ray_gives_the_same_rows(model, tmp_path, cluster):
    how = {"seed": 3, "part_rows": BATCH_ROWS}
    assert model.sample_to(tmp_path / "a", ROWS, engine="ray", **how) == ROWS
    pd.testing.assert_frame_equal(
        read(tmp_path / "a").reset_index(drop=True), model.sample(ROWS, seed=3)
    )
    in_parts(mixed_frame(), tmp_path)
    for engine in ("local", "ray"):
        model.impute_to(tmp_path / engine, str(tmp_path / "part*"), seed=1, engine=engine)
    pd.testing.assert_frame_equal(read(tmp_path / "local"), read(tmp_path / "ray"))


def test_ray_fills_the_same_store(tmp_path, cluster):
    paths = in_parts(mixed_frame(), tmp_path)
    table, source = open_table(paths)
    codec = TableCodec.fit(table, infer(table, source), CodecConfig(), 0)
    encode(codec, table, tmp_path / "tokens", engine="ray")
    found = TokenStore(
        PackedFile(tmp_path / "tokens", [one.size for one in codec.token_columns], 200)
    )
    expected = codec.store(table)
    for place in range(found.shape[1]):
        assert np.array_equal(found.column(place), expected.column(place))


def test_a_mistake_of_the_users_comes_back_from_ray(model, tmp_path, cluster):
    other = mixed_frame().drop(columns="city")
    other.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match="city"):
        model.impute_to(tmp_path / "full", tmp_path / "t.parquet", engine="ray")


def dying(work: SamplePart, mark: str) -> Callable[[int], int]:
    """The same work, whose worker is killed the first time that it is amid the third part."""

    def do(number: int) -> int:
        if number == 2 and not os.path.exists(mark):
            open(mark, "w").close()
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return work(number)

    return do


def test_a_worker_that_is_killed_is_replaced_and_every_row_comes_once(model, tmp_path, cluster):
    rows = 8 * BATCH_ROWS
    (tmp_path / "a").mkdir()
    work = SamplePart(
        model.learned_, rows, BATCH_ROWS, model._request(3, None, False), tmp_path / "a"
    )
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
    "rows", 30 * BATCH_ROWS, seed=5, part_rows=BATCH_ROWS, engine="ray"
)
"""


def test_a_driver_that_is_killed_goes_on(model, tmp_path):
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
        os.killpg(driver.pid, signal.SIGKILL)  # with all that it has started here
    whole = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert 2 <= len(whole) < 30
    rows = 30 * BATCH_ROWS
    assert model.sample_to(folder, rows, seed=5, part_rows=BATCH_ROWS) == rows
    assert all(path.stat().st_mtime_ns == then for path, then in whole.items())
    pd.testing.assert_frame_equal(read(folder).reset_index(drop=True), model.sample(rows, seed=5))


def test_the_command_line_writes_folders(model, tmp_path):
    model.save(tmp_path / "m.tabmt")
    name, out = str(tmp_path / "m.tabmt"), f"{tmp_path}/rows/"
    for _ in range(2):
        result = CliRunner().invoke(main, ["sample", name, "-n", "50", "--seed", "1", "-o", out])
        assert result.exit_code == 0 and "wrote 50 rows" in result.output
    for arguments, sentence in (
        (["-n", "50", "-o", out], "needs --seed"),
        (["-n", "50", "--seed", "1", "-o", "x.csv", "--engine", "ray"], "end it with a slash"),
        (["--prompts", "x.csv", "--seed", "1", "-o", out], "give a file for prompts"),
        (["-n", "60", "--seed", "1", "-o", out], "rows differs"),
    ):
        result = CliRunner().invoke(main, ["sample", name, *arguments])
        assert result.exit_code == 2 and sentence in result.output, result.output
    pq.write_table(pa.Table.from_pandas(mixed_frame()), tmp_path / "gappy.parquet")
    filled = f"{tmp_path}/filled/"
    result = CliRunner().invoke(
        main, ["impute", name, str(tmp_path / "gappy.parquet"), "-o", filled]
    )
    assert result.exit_code == 0 and "wrote 200 rows" in result.output
