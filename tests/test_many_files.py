"""Tables in several files or larger than memory: the same model as from one table in memory."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner

from tabmt import TabMT, UserError
from tabmt import tokens as store_module
from tabmt.cli import main
from tabmt.codec import large_tables as looking
from tabmt.codec.columns import TableCodec
from tabmt.codec.token_files import encode
from tabmt.config import CodecConfig
from tabmt.data import dataset as many_files
from tabmt.data.dataset import Columns, open_table
from tabmt.data.schema import Column, infer
from tabmt.tokens import MASK, PackedFile, TokenStore, pack, smallest, write
from tests.tables import mixed_frame, with_little_disk

TINY = {"width": 16, "depth": 1, "heads": 2, "steps": 5, "threads": 1, "batch_size": 32}


def in_parts(frame: pd.DataFrame, folder: Path, ending: str = "parquet") -> list[Path]:
    table = pa.Table.from_pandas(frame)  # parts of one table have its types
    paths = []
    for number, start in enumerate(range(0, len(frame), 70)):
        path = folder / f"part{number}.{ending}"
        if ending == "csv":
            frame.iloc[start : start + 70].to_csv(path, index=False)
        else:
            pq.write_table(table.slice(start, 70), path)
        paths.append(path)
    return paths


def wide(column: Column) -> Column:
    """Categories of several files have room for those of all of them."""
    return dataclasses.replace(column, dtype=column.dtype.replace("indices=int8", "indices=int32"))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_give_the_model_that_one_table_gives(tmp_path, ending):
    frame = mixed_frame()
    whole = tmp_path / f"whole.{ending}"
    frame.to_csv(whole, index=False) if ending == "csv" else frame.to_parquet(whole)
    (tmp_path / "parts").mkdir()
    paths = in_parts(frame, tmp_path / "parts", ending)
    assert isinstance(open_table(paths)[0], Columns)
    one = TabMT(**TINY).fit(whole)
    for source in (paths, str(tmp_path / "parts" / "part*"), tmp_path / "parts"):
        many = TabMT(**TINY).fit(source)
        assert [wide(column) for column in one.schema_.columns] == list(many.schema_.columns)
        states = [model.learned_.net.state_dict() for model in (one, many)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
        assert many.sample(50, seed=0).equals(one.sample(50, seed=0))


def test_an_index_that_pandas_wrote_is_no_column_of_several_files(tmp_path):
    frame = mixed_frame().sample(frac=1, random_state=0)  # its index is then written
    for number, part in enumerate((frame[:100], frame[100:])):
        table = pa.Table.from_pandas(part)
        first = ["__index_level_0__", *frame.columns]  # wherever it stands
        pq.write_table(table.select(first) if number else table, tmp_path / f"{number}.parquet")
    found = open_table(tmp_path)[0]
    assert found.column_names == list(frame.columns)
    for name in frame.columns:
        assert found.column(name).combine_chunks().to_pylist() == [
            *(row for row in pa.Table.from_pandas(frame).column(name).to_pylist()),
        ]


def test_a_large_file_is_read_column_by_column(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    mixed_frame().to_parquet(path)
    assert isinstance(open_table(path)[0], pa.Table)
    monkeypatch.setattr(many_files, "MANY_CELLS", 100)
    table, _ = open_table(path)
    assert isinstance(table, Columns) and table.num_rows == 200
    plain = pq.read_table(path)
    for name in plain.column_names:
        assert table.column(name).equals(plain.column(name))


def test_categories_of_several_files_become_one_column(tmp_path):
    for number in (0, 1):
        words = pd.Categorical([f"{number}-{i}" for i in range(100)] * 2)
        pd.DataFrame({"word": words, "x": range(200)}).to_parquet(tmp_path / f"{number}.parquet")
    model = TabMT(**TINY).fit(tmp_path)
    assert model.learned_.codec.token_columns[0].size == 200
    assert isinstance(model.sample(20, seed=0)["word"].dtype, pd.CategoricalDtype)


def test_a_nested_column_gets_a_sentence(tmp_path):
    for name in "ab":
        pq.write_table(
            pa.table({"s": pa.array([{"x": 1}]), "y": [1]}), tmp_path / f"{name}.parquet"
        )
    with pytest.raises(UserError, match=r"Column 's' has type struct<x: int64>, but TabMT learns"):
        open_table(tmp_path)


def test_what_other_programs_leave_in_a_folder_is_no_data(tmp_path):
    in_parts(mixed_frame(), tmp_path)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part0.parquet.crc").touch()
    assert open_table(tmp_path)[0].num_rows == 200


def test_names_with_dots_are_columns(tmp_path):
    frame = pd.DataFrame({"a.b": [1, 2], "a": [3, 4], "": [5, 6]})
    frame.to_parquet(tmp_path / "t.parquet")
    table = Columns([tmp_path / "t.parquet"])
    assert [table.column(name).to_pylist() for name in frame] == [[1, 2], [3, 4], [5, 6]]


def test_files_that_differ_get_a_sentence(tmp_path):
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    pd.DataFrame({"x": [1]}).to_parquet(a)
    pd.DataFrame({"y": [1]}).to_parquet(b)
    pd.DataFrame({"x": ["1"]}).to_parquet(c)
    d = tmp_path / "d.csv"
    d.write_text("x\n1\n")
    for paths, sentence in (
        ([a, b], rf"'{b}' has the columns y, but '{a}' has x; files of one table have the same."),
        ([a, c], r"Column 'x' is (large_)?string in .* but int64 in .*; cast it to one type."),
        ([a, d], r"The files of one table are of one kind, but these are csv, parquet."),
        ([tmp_path / "no.parquet"], r"There is no file"),
        (str(tmp_path / "q*.parquet"), r"There is no file in .*q\*.parquet'; name a folder"),
        ([pd.DataFrame()], r"A list is not a table"),
    ):
        with pytest.raises(UserError, match=sentence):
            open_table(paths)


def test_the_command_line_takes_a_pattern(tmp_path):
    in_parts(mixed_frame(), tmp_path)
    options = ["--steps", "2", "--width", "16", "--depth", "1", "--heads", "2"]
    model = str(tmp_path / "m.tabmt")
    result = CliRunner().invoke(main, ["fit", str(tmp_path / "*.parquet"), "-o", model, *options])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["schema", str(tmp_path / "*.parquet")])
    assert result.exit_code == 0 and '"columns"' in result.output
    result = CliRunner().invoke(main, ["fit", str(tmp_path / "q*.parquet"), "-o", model])
    assert result.exit_code == 2 and "There is no file in" in result.output


@pytest.mark.parametrize(
    ("codes", "width"), [(1, 1), (128, 1), (129, 2), (32_768, 2), (32_769, 4), (2**31 + 1, 8)]
)
def test_codes_are_stored_in_the_smallest_integers(codes, width):
    assert np.dtype(smallest(codes)).itemsize == width


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_store_reads_like_a_matrix(on_disk, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = (3, 200, 70_000)
    plain = np.stack([rng.integers(MASK, size, 50) for size in sizes], axis=1)
    packed = pack(plain.T, sizes, 50)
    assert packed.itemsize == 1 + 2 + 4
    store = TokenStore(packed)
    if on_disk:
        PackedFile.create(tmp_path / "tokens", sizes, 50)
        for first, last in ((20, 50), (0, 20)):
            write(tmp_path / "tokens", first, packed[first:last])
        monkeypatch.setattr(store_module, "BLOCK", 7)
        store = TokenStore(PackedFile(tmp_path / "tokens", sizes, 50))
    assert store.shape == (50, 3)
    rows = rng.integers(0, 50, 20)
    assert np.array_equal(store[rows], plain[rows]) and store[rows].dtype == np.int64
    part = store.subset(np.arange(10, 40)).subset(np.array([5, 3, 3]))
    del store
    assert np.array_equal(part[np.array([0, 1, 2])], plain[[15, 13, 13]])
    assert part.column(2).tolist() == plain[[15, 13, 13], 2].tolist() and len(part) == 3


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_workers_gives_the_same_store(tmp_path, workers):
    frame = mixed_frame()
    paths = in_parts(frame, tmp_path)
    pq.write_table(pq.read_table(paths[0]), paths[0], row_group_size=11)
    table, source = open_table(paths)
    codec = TableCodec.fit(table, infer(table, source), CodecConfig(), 0)
    expected = codec.store(table)
    encode(codec, table, tmp_path / "tokens", workers=workers)
    found = TokenStore(
        PackedFile(tmp_path / "tokens", [one.size for one in codec.token_columns], 200)
    )
    assert found.shape == expected.shape == (200, len(codec.token_columns))
    for place in range(found.shape[1]):
        assert np.array_equal(found.column(place), expected.column(place))
        assert found.column(place).dtype == expected.column(place).dtype


def test_a_value_that_a_worker_does_not_know_gets_its_sentence(tmp_path):
    paths = in_parts(mixed_frame(), tmp_path)
    model = TabMT(**TINY).fit(paths)
    other = pq.read_table(paths[-1]).to_pandas()
    other["city"] = "Nowhere"
    pq.write_table(pa.Table.from_pandas(other), paths[-1])
    with pytest.raises(UserError, match="Nowhere"):
        TabMT(**TINY).fit(paths, continue_from=model)


def test_codes_that_are_kept_are_found_again(tmp_path, caplog):
    paths = in_parts(mixed_frame(), tmp_path)
    caplog.set_level("INFO", "tabmt")
    models = [TabMT(**TINY).fit(paths, store=tmp_path / "codes") for _ in range(2)]
    assert caplog.text.count("coded them") == caplog.text.count("are in") == 1
    states = [model.learned_.net.state_dict() for model in (*models, TabMT(**TINY).fit(paths))]
    for other in states[1:]:
        assert all(torch.equal(states[0][name], other[name]) for name in other)
    for change, sentence in (
        ({"seed": 1}, "holds the tokens of other files, or of other settings"),
        ({"max_bins": 7}, "holds the tokens of other files, or of other settings"),
    ):
        with pytest.raises(UserError, match=sentence):
            TabMT(**TINY, **change).fit(paths, store=tmp_path / "codes")
    with pytest.raises(UserError, match="holds the tokens of other files"):
        TabMT(**TINY).fit(paths[:2], store=tmp_path / "codes")
    with pytest.raises(UserError, match="holds other files; name an empty one"):
        TabMT(**TINY).fit(paths, store=tmp_path)
    (tmp_path / "codes" / "about.json").unlink()  # as if it had been cut off
    TabMT(**TINY).fit(paths, store=tmp_path / "codes")
    (tmp_path / "codes" / "about.json").write_text("[")
    with pytest.raises(UserError, match="is damaged; delete the folder"):
        TabMT(**TINY).fit(paths, store=tmp_path / "codes")


def test_of_a_very_large_table_some_rows_are_looked_at_and_all_are_counted(tmp_path, monkeypatch):
    rows = 300
    frame = pd.DataFrame(
        {
            "number": np.arange(rows) % 97,
            "word": [f"w{i // 50}" for i in range(rows)],
            "unit": ["kg"] * 250 + ["lb"] * 50,
            "gappy": [1.5, 2.5] * 145 + [None] * 10,
            "late": [1.5] * 250 + list(np.linspace(0, 1, 50)),
        }
    )
    frame["kind"] = pd.Categorical(frame["word"], categories=[f"w{i}" for i in range(9)])
    paths = []
    for start in range(0, rows, 50):
        paths.append(tmp_path / f"{start:03d}.parquet")
        pa.parquet.write_table(
            pa.Table.from_pandas(frame[start : start + 50], preserve_index=False), paths[-1]
        )
    monkeypatch.setattr(looking, "LOOKED_ROWS", 150)
    model = TabMT(**TINY).fit(paths)
    columns = {column.name: column for column in model.schema_.columns}
    assert columns["unit"].kind == "categorical" and columns["gappy"].gaps == "learned"
    assert columns["late"].kind == "numeric"
    sizes = {one.column.name: one.size for one in model.learned_.codec.token_columns}
    assert sizes["word"] == sizes["kind"] == 6 and sizes["unit"] == 2
    drawn = model.sample(2000, seed=0)
    assert set(drawn["word"]) == set(frame["word"]) and set(drawn["unit"]) == {"kg", "lb"}
    assert drawn["gappy"].isna().any()
    assert list(drawn["kind"].cat.categories) == [f"w{i}" for i in range(9)]


def test_text_of_another_form_in_rows_not_looked_at_stays_text(tmp_path, monkeypatch):
    for start in range(6):
        words = ["00123"] * 50 if start == 5 else [str(100 + i) for i in range(50)]
        pd.DataFrame({"code": words, "x": range(50)}).to_csv(tmp_path / f"{start}.csv", index=False)
    monkeypatch.setattr(looking, "LOOKED_ROWS", 150)
    model = TabMT(**TINY).fit(tmp_path)
    assert model.schema_.columns[0].format is None
    assert "00123" in set(model.sample(2000, seed=0, kind="arrow").column("code").to_pylist())
    overrides = {"columns": [{"name": "code", "kind": "categorical", "gaps": "masked"}]}
    (tmp_path / "6.csv").write_text("code,x\n100,1\n,2\n" * 10)
    model = TabMT(**TINY).fit(tmp_path, schema=overrides)
    assert (model.schema_.columns[0].kind, model.schema_.columns[0].gaps) == (
        "categorical",
        "masked",
    )


@pytest.mark.parametrize(("gap", "gap_text"), [('""', ""), ("", None)])
def test_gaps_only_in_rows_not_looked_at(tmp_path, monkeypatch, gap, gap_text):
    """Cells in quotes, so that a gap may be "" too, and one part of nothing but gaps."""
    for part in range(8):
        cells = [gap if part == 5 else f'"{100 + i}"' for i in range(50)]
        lines = [f'{cell},"{row}"' for row, cell in enumerate(cells)]
        (tmp_path / f"{part}.csv").write_text("\n".join(["code,x", *lines]) + "\n")
    whole = TabMT(**TINY).fit(tmp_path).schema_.columns[0]
    monkeypatch.setattr(looking, "LOOKED_ROWS", 150)
    some = TabMT(**TINY).fit(tmp_path).schema_.columns[0]
    assert (some.kind, some.format, some.gaps) == (whole.kind, whole.format, whole.gaps)
    assert some.gap_text == whole.gap_text == gap_text


def test_a_gap_spelled_as_a_word_only_in_rows_not_looked_at(tmp_path, monkeypatch):
    for part in range(8):
        frame = pd.DataFrame(
            {
                "word": ["a", "b"] * 25,
                "code": [0, 1] * 25,
                "number": range(0, 150, 3),
                "key": [f"k{part}{row:02}" for row in range(50)],
            },
            dtype=object,
        )
        if part == 5:
            frame[:30] = "-9"
        frame.to_csv(tmp_path / f"{part}.csv", index=False)
    monkeypatch.setattr(looking, "LOOKED_ROWS", 150)
    columns = TabMT(**TINY).fit(tmp_path, schema={"gap_text": "-9"}).schema_.columns
    kinds = ["categorical", "categorical", "numeric", "id"]
    assert [column.kind for column in columns] == kinds
    assert {(column.gap_text, column.gaps) for column in columns} == {("-9", "learned")}


def test_a_spelled_gap_among_dates_needs_no_look_at_the_whole_column(tmp_path, monkeypatch, caplog):
    days = pd.date_range("2020-01-01", periods=50).strftime("%Y-%m-%d").tolist()
    for part in range(8):
        cells = ["unknown"] * 50 if part == 5 else [*days[:-5], *["unknown"] * 5]
        pd.DataFrame({"day": cells}).to_csv(tmp_path / f"{part}.csv", index=False)
    monkeypatch.setattr(looking, "LOOKED_ROWS", 150)
    caplog.set_level("INFO")
    told = {"columns": [{"name": "day", "gap_text": "unknown"}]}
    (day,) = TabMT(**TINY).fit(tmp_path, schema=told).schema_.columns
    assert (day.kind, day.gap_text, day.gaps) == ("datetime", "unknown", "learned")
    assert "kinds, and bins of numbers, are those of" in caplog.text
    assert "otherwise than in those rows" not in caplog.text


def test_a_full_disk_gets_a_sentence(tmp_path):
    """The copy of a large CSV file, and the codes."""
    rows = "".join(f"{i},{i * i}\n" for i in range(50_000))
    for part in range(2):
        (tmp_path / f"{part}.csv").write_text("a,b\n" + rows)
    command = [*with_little_disk(100_000), "schema", str(tmp_path), "-o", str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: " in done.stderr and "Traceback" not in done.stderr


def test_a_fit_that_is_terminated_leaves_no_temporary_files(tmp_path):
    for name in ("parts", "temporary"):
        (tmp_path / name).mkdir()
    in_parts(mixed_frame(), tmp_path / "parts", "csv")
    command = [
        sys.executable,
        "-m",
        "tabmt.cli",
        "fit",
        "parts",
        "-o",
        "m.tabmt",
        "--steps",
        "9999",
    ]
    command += ["--width", "16", "--depth", "1", "--heads", "2", "--checkpoint-every", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while not (tmp_path / "m.tabmt.checkpoint").exists():
        assert process.poll() is None
        time.sleep(0.05)
    assert any((tmp_path / "temporary").iterdir())
    process.terminate()
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert not any((tmp_path / "temporary").iterdir())


def test_what_killed_processes_left_is_removed_after_a_while(tmp_path):
    old, new = (tmp_path / f".tokens.{pid}.part" for pid in (1, 2))
    for left in (old, new):
        left.write_text("half")
    os.utime(old, (0, 0))
    paths = in_parts(mixed_frame(), tmp_path)
    (tmp_path / "codes").mkdir()
    for left in (old, new):
        left.rename(tmp_path / "codes" / left.name)
    TabMT(**TINY).fit(paths, store=tmp_path / "codes")
    assert [one.name for one in (tmp_path / "codes").glob(".*")] == [new.name]


def test_row_groups_without_rows_are_passed_over(tmp_path, monkeypatch):
    for number in range(6):
        frame = mixed_frame().iloc[: 40 * (number % 2)]
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / f"{number}.parquet")
    monkeypatch.setattr(looking, "LOOKED_ROWS", 50)
    assert TabMT(**TINY).fit(tmp_path).card_.rows == 120


def test_a_store_that_is_cut_off_gets_a_sentence(tmp_path):
    paths = in_parts(mixed_frame(), tmp_path)
    TabMT(**TINY).fit(paths, store=tmp_path / "codes")
    tokens = tmp_path / "codes" / "tokens"
    tokens.write_bytes(tokens.read_bytes()[:-50])
    with pytest.raises(UserError, match=r"damaged; delete the folder"):
        TabMT(**TINY).fit(paths, store=tmp_path / "codes")
    tokens.unlink()
    with pytest.raises(UserError, match="damaged; delete the folder"):
        TabMT(**TINY).fit(paths, store=tmp_path / "codes")


@pytest.mark.parametrize("rows", [1, 30])
def test_files_in_which_nothing_varies(tmp_path, rows):
    for number in range(1 if rows == 1 else 2):
        frame = pd.DataFrame({"unit": ["kg"] * rows, "x": [1] * rows})
        frame.to_parquet(tmp_path / f"{number}.parquet")
    drawn = TabMT(**TINY).fit(tmp_path).sample(3, seed=0)
    assert drawn.equals(pd.DataFrame({"unit": ["kg"] * 3, "x": [1] * 3}).astype(drawn.dtypes))
