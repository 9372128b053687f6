"""Tables in several files or larger than memory: the same model as from one table in memory."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tabmt import TabMT, UserError
from tabmt.codec.large_tables import encode_to_file, fit_table_codec
from tabmt.config import CodecConfig
from tabmt.data import infer
from tabmt.data.dataset import Dataset
from tabmt.data.schema import Column
from tabmt.tokens import TokenFile, TokenStore
from tests.tables import mixed_frame, with_little_disk, write_parts

TINY = {"width": 16, "depth": 1, "heads": 2, "steps": 5, "threads": 1, "batch_size": 32,
        "calibrate_missing": False}  # fmt: skip


def wide(column: Column) -> Column:
    """Categories of several files have room for those of all of them."""
    return dataclasses.replace(column, dtype=column.dtype.replace("indices=int8", "indices=int32"))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_give_the_model_that_one_table_gives(tmp_path, suffix):
    frame = mixed_frame()
    whole = tmp_path / f"whole.{suffix}"
    frame.to_csv(whole, index=False) if suffix == "csv" else frame.to_parquet(whole)
    (tmp_path / "parts").mkdir()
    paths = write_parts(frame, tmp_path / "parts", suffix)
    assert not Dataset.open(paths).fits_in_memory
    one = TabMT(**TINY).fit(whole)
    for source in (paths, str(tmp_path / "parts" / "part*"), tmp_path / "parts"):
        many = TabMT(**TINY).fit(source)
        assert [wide(column) for column in one.schema_.columns] == list(many.schema_.columns)
        states = [model.model_.net.state_dict() for model in (one, many)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
        assert many.sample(50, seed=0).equals(one.sample(50, seed=0))


def test_categories_of_several_files_become_one_column(tmp_path):
    for number in (0, 1):
        words = pd.Categorical([f"{number}-{i}" for i in range(100)] * 2)
        pd.DataFrame({"word": words, "x": range(200)}).to_parquet(tmp_path / f"{number}.parquet")
    model = TabMT(**TINY, protect=0).fit(tmp_path)
    assert model.model_.codec.token_columns[0].size == 200
    assert isinstance(model.sample(20, seed=0)["word"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_workers_writes_the_same_tokens(tmp_path, workers):
    frame = mixed_frame()
    paths = write_parts(frame, tmp_path)
    pq.write_table(pq.read_table(paths[0]), paths[0], row_group_size=11)
    dataset = Dataset.open(paths)
    codec = fit_table_codec(dataset, CodecConfig(), None, seed=0)
    expected = codec.encode(codec.parse(dataset.to_table()))
    path = tmp_path / "tokens"
    encode_to_file(codec, dataset, path, engine="local", workers=workers)
    store = TokenStore(TokenFile(path, codec.sizes, 200))
    assert store.shape == expected.shape == (200, len(codec.token_columns))
    for index in range(store.shape[1]):
        assert np.array_equal(store.column(index), expected.column(index))
        assert store.column(index).dtype == expected.column(index).dtype


def test_a_value_that_the_codec_does_not_know_gets_a_sentence(tmp_path):
    paths = write_parts(mixed_frame(), tmp_path)
    model = TabMT(**TINY).fit(paths)
    other = pq.read_table(paths[-1]).to_pandas()
    other["city"] = "Nowhere"
    pq.write_table(pa.Table.from_pandas(other), paths[-1])
    with pytest.raises(UserError, match="has 60 cells with 1 value that"):
        TabMT(**TINY).fit(paths, continue_from=model)


def test_an_encoded_table_is_used_again(tmp_path, caplog):
    paths = write_parts(mixed_frame(), tmp_path)
    caplog.set_level("INFO", "tabmt")
    models = [TabMT(**TINY).fit(paths, store=tmp_path / "store") for _ in range(2)]
    assert sum(message.startswith("encoded the table in ") for message in caplog.messages) == 1
    assert caplog.messages.count(f"using the encoded table in {tmp_path / 'store'}") == 1
    states = [model.model_.net.state_dict() for model in (*models, TabMT(**TINY).fit(paths))]
    for other in states[1:]:
        assert all(torch.equal(states[0][name], other[name]) for name in other)
    for settings, files in (({"seed": 1}, paths), ({"max_bins": 7}, paths), ({}, paths[:2])):
        with pytest.raises(UserError) as error:
            TabMT(**TINY, **settings).fit(files, store=tmp_path / "store")
        assert str(error.value) == (
            f"The folder '{tmp_path / 'store'}' contains a table that was encoded from "
            "other files, or with other settings or another seed; use another folder, or delete "
            "this one."
        )
    with pytest.raises(UserError, match="contains other files; use an empty folder"):
        TabMT(**TINY).fit(paths, store=tmp_path)
    (tmp_path / "store" / "content.json").unlink()  # as if the fit had been interrupted
    TabMT(**TINY).fit(paths, store=tmp_path / "store")
    (tmp_path / "store" / "content.json").write_text("[")
    with pytest.raises(UserError, match="is damaged; delete it to encode the table again"):
        TabMT(**TINY).fit(paths, store=tmp_path / "store")


def test_a_very_large_table_is_inferred_from_some_rows_and_scanned_in_all(tmp_path, monkeypatch):
    rows = 300
    frame = pd.DataFrame(
        {
            "number": np.arange(rows) % 97,
            "word": [f"w{i // 50}" for i in range(rows)],
            "unit": ["kg"] * 250 + ["lb"] * 50,
            "missing": [1.5, 2.5] * 145 + [None] * 10,
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
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    model = TabMT(**TINY).fit(paths)
    columns = {column.name: column for column in model.schema_.columns}
    assert columns["unit"].kind == "categorical" and columns["missing"].missing == "learned"
    assert columns["late"].kind == "numeric"
    sizes = {coded.name: coded.size for coded in model.model_.codec.token_columns}
    assert sizes["word"] == sizes["kind"] == 6 and sizes["unit"] == 2
    drawn = model.sample(2000, seed=0)
    assert set(drawn["word"]) == set(frame["word"]) and set(drawn["unit"]) == {"kg", "lb"}
    assert drawn["missing"].isna().any()
    assert list(drawn["kind"].cat.categories) == [f"w{i}" for i in range(6)]  # those in use


def test_text_of_another_format_outside_the_sampled_rows_stays_text(tmp_path, monkeypatch):
    for start in range(6):
        words = ["00123"] * 50 if start == 5 else [str(100 + i) for i in range(50)]
        pd.DataFrame({"code": words, "x": range(50)}).to_csv(tmp_path / f"{start}.csv", index=False)
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    model = TabMT(**TINY, protect=0).fit(tmp_path)
    assert model.schema_.columns[0].format is None
    assert "00123" in set(model.sample(2000, seed=0, output="arrow").column("code").to_pylist())
    overrides = {"columns": [{"name": "code", "kind": "categorical", "missing": "masked"}]}
    (tmp_path / "6.csv").write_text("code,x\n100,1\n,2\n" * 10)
    model = TabMT(**TINY).fit(tmp_path, schema=overrides)
    assert (model.schema_.columns[0].kind, model.schema_.columns[0].missing) == (
        "categorical",
        "masked",
    )


@pytest.mark.parametrize(("cell", "missing_text"), [('""', ""), ("", None)])
def test_missing_values_only_outside_the_sampled_rows(tmp_path, monkeypatch, cell, missing_text):
    """Cells in quotes, so that a missing value may be "" too, and a file in which all are."""
    for part in range(8):
        cells = [cell if part == 5 else f'"{100 + i}"' for i in range(50)]
        lines = [f'{text},"{row}"' for row, text in enumerate(cells)]
        (tmp_path / f"{part}.csv").write_text("\n".join(["code,x", *lines]) + "\n")
    whole = TabMT(**TINY).fit(tmp_path).schema_.columns[0]
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    some = TabMT(**TINY).fit(tmp_path).schema_.columns[0]
    assert (some.kind, some.format, some.missing) == (whole.kind, whole.format, whole.missing)
    assert some.missing_text == whole.missing_text == missing_text


def test_a_missing_text_only_outside_the_sampled_rows(tmp_path, monkeypatch):
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
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    columns = TabMT(**TINY).fit(tmp_path, schema={"missing_text": "-9"}).schema_.columns
    kinds = ["categorical", "categorical", "numeric", "id"]
    assert [column.kind for column in columns] == kinds
    assert {(column.missing_text, column.missing) for column in columns} == {("-9", "learned")}


def test_a_missing_text_among_dates_does_not_make_the_column_differ(tmp_path, monkeypatch, caplog):
    days = pd.date_range("2020-01-01", periods=50).strftime("%Y-%m-%d").tolist()
    for part in range(8):
        cells = ["unknown"] * 50 if part == 5 else [*days[:-5], *["unknown"] * 5]
        pd.DataFrame({"day": cells}).to_csv(tmp_path / f"{part}.csv", index=False)
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    caplog.set_level("INFO")
    overrides = {"columns": [{"name": "day", "missing_text": "unknown"}]}
    (day,) = TabMT(**TINY).fit(tmp_path, schema=overrides).schema_.columns
    assert (day.kind, day.missing_text, day.missing) == ("datetime", "unknown", "learned")
    assert "inferring kinds and bins from" in caplog.text
    assert "differs outside the sampled rows" not in caplog.text


def test_a_full_disk_gets_a_sentence(tmp_path):
    """The copy of a large CSV file, and the tokens."""
    rows = "".join(f"{i},{i * i}\n" for i in range(50_000))
    for part in range(2):
        (tmp_path / f"{part}.csv").write_text("a,b\n" + rows)
    command = [*with_little_disk(100_000), "schema", str(tmp_path / "*.csv")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: " in done.stderr and "Traceback" not in done.stderr


def test_a_fit_that_is_terminated_leaves_no_temporary_files(tmp_path):
    for name in ("parts", "temporary"):
        (tmp_path / name).mkdir()
    write_parts(mixed_frame(), tmp_path / "parts", "csv")
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


def test_files_that_a_killed_fit_has_left_are_removed_by_the_next(tmp_path):
    (tmp_path / "store").mkdir()
    for name in (".tokens.part", ".codec.npz.part", ".lock"):
        (tmp_path / "store" / name).write_text("half")
    TabMT(**TINY).fit(write_parts(mixed_frame(), tmp_path), store=tmp_path / "store")
    names = sorted(path.name for path in (tmp_path / "store").iterdir())
    assert names == ["README.txt", "codec.npz", "content.json", "tokens"]


def test_row_groups_without_rows_are_skipped(tmp_path, monkeypatch):
    for number in range(6):
        frame = mixed_frame().iloc[: 40 * (number % 2)]
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / f"{number}.parquet")
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 50)
    assert TabMT(**TINY).fit(tmp_path).card_.rows == 120


def test_a_truncated_token_file_gets_a_sentence(tmp_path):
    paths = write_parts(mixed_frame(), tmp_path)
    TabMT(**TINY).fit(paths, store=tmp_path / "store")
    tokens = tmp_path / "store" / "tokens"
    tokens.write_bytes(tokens.read_bytes()[:-50])
    with pytest.raises(UserError, match="is damaged; delete it to encode the table again"):
        TabMT(**TINY).fit(paths, store=tmp_path / "store")
    tokens.unlink()
    with pytest.raises(UserError, match="is damaged; delete it to encode the table again"):
        TabMT(**TINY).fit(paths, store=tmp_path / "store")


@pytest.mark.parametrize("rows", [1, 30])
def test_files_in_which_nothing_varies(tmp_path, rows):
    for number in range(1 if rows == 1 else 2):
        frame = pd.DataFrame({"unit": ["kg"] * rows, "x": [1] * rows})
        frame.to_parquet(tmp_path / f"{number}.parquet")
    drawn = TabMT(**TINY, protect=0).fit(tmp_path).sample(3, seed=0)
    assert drawn.equals(pd.DataFrame({"unit": ["kg"] * 3, "x": [1] * 3}).astype(drawn.dtypes))
