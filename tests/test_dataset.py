"""One way in for every table: what `Dataset.open` takes, and that all of it reads the same."""

from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tabmt import UserError
from tabmt.cli import main
from tabmt.data import dataset as datasets
from tabmt.data.arrow_types import plain_array
from tabmt.data.dataset import Dataset, InMemory, ParquetFiles
from tests.tables import mixed_frame, write_parts

ROWS = 200


def plain_frame() -> pd.DataFrame:
    """Types that every form of a table has; CSV files hold their text."""
    frame = mixed_frame(ROWS)
    return pd.DataFrame(
        {
            "id": frame["id"],
            "height": frame["height"],
            "weight": frame["weight"].round(1),
            "member": frame["member"],
            "city": frame["city"],
        }
    )


def arrow_table() -> pa.Table:
    return Dataset.open(plain_frame()).to_table()


def write_file(folder: Path, suffix: str) -> Path:
    path = folder / f"table.{suffix}"
    if suffix == "csv":
        plain_frame().to_csv(path, index=False)
    elif suffix == "parquet":
        pq.write_table(arrow_table(), path)
    else:
        pa.feather.write_feather(arrow_table(), path)
    return path


def write_folder(folder: Path, suffix: str) -> Path:
    (folder / "parts").mkdir()
    for number, start in enumerate(range(0, ROWS, 70)):
        part, path = arrow_table().slice(start, 70), folder / "parts" / f"{number}.{suffix}"
        if suffix == "csv":
            plain_frame().iloc[start : start + 70].to_csv(path, index=False)
        elif suffix == "parquet":
            pq.write_table(part, path, row_group_size=30)
        else:
            pa.feather.write_feather(part, path)
    return folder / "parts"


FORMS = {
    "pandas": lambda folder: plain_frame(),
    "polars": lambda folder: pl.from_pandas(plain_frame()),
    "arrow": lambda folder: arrow_table(),
    "record batch": lambda folder: arrow_table().to_batches()[0],
    "dataset": lambda folder: InMemory(arrow_table()),
    **{
        f"{suffix} {form}": make
        for suffix in ("csv", "parquet", "arrow")
        for form, make in {
            "file": lambda folder, suffix=suffix: write_file(folder, suffix),
            "path as text": lambda folder, suffix=suffix: str(write_file(folder, suffix)),
            "folder": lambda folder, suffix=suffix: write_folder(folder, suffix),
            "pattern": lambda folder, suffix=suffix: str(write_folder(folder, suffix) / "[0-9].*"),
            "list": lambda folder, suffix=suffix: sorted(write_folder(folder, suffix).iterdir()),
            "list of one": lambda folder, suffix=suffix: [str(write_file(folder, suffix))],
        }.items()
    },
}
KINDS = {"record batch": "arrow", "dataset": "arrow", "arrow": "arrow"}


def expected_values(form: str) -> dict[str, list]:
    """The columns of the table; those of CSV files as the text in which pandas writes them."""
    if not form.startswith("csv"):
        return arrow_table().to_pydict()
    text = plain_frame().to_csv(index=False)
    rows = [line.split(",") for line in text.splitlines()]
    columns = zip(*rows[1:], strict=True)
    return {
        name: [cell or None for cell in cells] for name, cells in zip(rows[0], columns, strict=True)
    }


def assert_same(dataset: Dataset, expected: dict[str, list], first: int, rows: int) -> None:
    assert (dataset.num_rows, dataset.num_columns) == (rows, len(expected))
    assert dataset.column_names == list(expected)
    for name, values in expected.items():
        assert dataset.column(name).to_pylist() == values[first : first + rows]
    table = dataset.to_table()
    assert table.to_pydict() == {n: v[first : first + rows] for n, v in expected.items()}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_reads_the_same(tmp_path, form):
    dataset = Dataset.open(FORMS[form](tmp_path))
    expected = expected_values(form)
    assert_same(dataset, expected, 0, ROWS)
    assert dataset.known_num_rows in (None, ROWS)
    several = any(form.endswith(end) for end in ("folder", "pattern", "list"))
    assert dataset.fits_in_memory == (not several)

    for rows in (1, 70, 133, ROWS, 1000):
        batches = list(dataset.batches(rows))
        full, rest = divmod(ROWS, rows)
        assert [batch.num_rows for batch in batches] == [rows] * full + [rest] * (rest > 0)
        assert pa.concat_tables(batches).to_pydict() == expected

    fragments = dataset.fragments()
    assert len(fragments) == (1 if not several else 8 if form.startswith("parquet") else 3)
    first = 0
    for fragment in fragments:
        assert_same(fragment, expected, first, fragment.num_rows)
        first += fragment.num_rows
    assert first == ROWS

    sample = dataset.sample(100)
    assert sample.num_rows == ROWS if not several else 60 <= sample.num_rows <= 150
    kept = sample.column("id").to_pylist()
    assert kept == [value for value in expected["id"] if value in set(kept)]
    assert dataset.sample(ROWS).num_rows == ROWS


@pytest.mark.parametrize("form", FORMS)
def test_the_source_says_where_a_table_comes_from(tmp_path, form):
    source = Dataset.open(FORMS[form](tmp_path)).source
    kind = KINDS.get(form, form.split()[0])
    assert source.kind == ("ipc" if kind == "arrow" and form not in KINDS else kind)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_files_are_identified_by_path_size_and_time(tmp_path, suffix):
    assert Dataset.open(plain_frame()).file_identities() is None
    path = write_file(tmp_path, suffix)
    ((name, size, changed),) = Dataset.open(path).file_identities()
    status = path.stat()
    assert (name, size, changed) == (str(path), status.st_size, status.st_mtime_ns)
    folder = write_folder(tmp_path, suffix)
    identities = Dataset.open(folder).file_identities()
    assert [name for name, _, _ in identities] == [str(path) for path in sorted(folder.iterdir())]


def test_a_dataset_is_opened_as_it_is():
    dataset = Dataset.open(plain_frame())
    assert Dataset.open(dataset) is dataset


def test_a_table_without_rows_is_one_empty_batch(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    for table in (pa.table({"a": [], "b": []}), tmp_path / "t.csv"):
        dataset = Dataset.open(table)
        assert dataset.num_rows == 0
        assert [batch.column_names for batch in dataset.batches(10)] == [["a", "b"]]


def test_an_index_that_pandas_wrote_is_not_a_column_of_several_files(tmp_path):
    frame = mixed_frame().sample(frac=1, random_state=0)  # its index is then written
    for number, part in enumerate((frame[:100], frame[100:])):
        table = pa.Table.from_pandas(part)
        first = ["__index_level_0__", *frame.columns]  # at whichever position it is
        pq.write_table(table.select(first) if number else table, tmp_path / f"{number}.parquet")
    dataset = Dataset.open(tmp_path)
    assert dataset.column_names == list(frame.columns)
    for name in frame.columns:
        values = plain_array(dataset.column(name)).to_pylist()
        assert values == pa.Table.from_pandas(frame).column(name).to_pylist()


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_large_file_is_read_column_by_column(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"table.{suffix}"
    frame = mixed_frame()
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    whole = Dataset.open(path)
    assert whole.fits_in_memory
    monkeypatch.setattr(datasets, "MOST_CELLS", 100)
    monkeypatch.setattr(datasets, "MOST_BYTES", 100)
    large = Dataset.open(path)
    assert not large.fits_in_memory and large.num_rows == 200
    for name in whole.column_names:
        assert large.column(name).equals(whole.column(name))
    assert large.to_table().equals(whole.to_table())


def test_a_nested_column_gets_a_sentence(tmp_path):
    for name in "ab":
        table = pa.table({"s": pa.array([{"x": 1}]), "y": [1]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(UserError, match=r"Column 's' has type struct<x: int64>, but TabMT learns"):
        Dataset.open(tmp_path).num_rows  # noqa: B018


def test_what_other_programs_leave_in_a_folder_is_not_read(tmp_path):
    write_parts(mixed_frame(), tmp_path)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part0.parquet.crc").touch()
    assert Dataset.open(tmp_path).num_rows == 200


def test_names_with_dots_are_columns(tmp_path):
    frame = pd.DataFrame({"a.b": [1, 2], "a": [3, 4], "": [5, 6]})
    frame.to_parquet(tmp_path / "t.parquet")
    table = ParquetFiles([tmp_path / "t.parquet"], [tmp_path / "t.parquet"])
    assert [table.column(name).to_pylist() for name in frame] == [[1, 2], [3, 4], [5, 6]]


def test_row_groups_without_rows_are_no_fragments(tmp_path):
    for number in range(3):
        frame = mixed_frame().iloc[: 40 * (number % 2)]
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / f"{number}.parquet")
    dataset = Dataset.open(tmp_path)
    assert [fragment.num_rows for fragment in dataset.fragments()] == [40]
    assert dataset.num_rows == 40


def test_categories_of_several_files_are_one_column(tmp_path):
    words = [[f"{number}-{i}" for i in range(100)] for number in (0, 1)]
    for number, own in enumerate(words):
        frame = pd.DataFrame({"word": pd.Categorical(own)})
        frame.to_parquet(tmp_path / f"{number}.parquet")
    dataset = Dataset.open(tmp_path)
    assert dataset.column("word").to_pylist() == [*words[0], *words[1]]
    assert pa.types.is_dictionary(dataset.column("word").type)
    joined = pa.concat_tables(dataset.batches(150))
    assert joined.column("word").to_pylist() == [*words[0], *words[1]]


def test_files_that_differ_get_a_sentence(tmp_path):
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    pd.DataFrame({"x": [1]}).to_parquet(a)
    pd.DataFrame({"y": [1]}).to_parquet(b)
    pd.DataFrame({"x": ["1"]}).to_parquet(c)
    d = tmp_path / "d.csv"
    d.write_text("x\n1\n")
    for paths, sentence in (
        (
            [a, b],
            rf"'{b}' has the columns y, but '{a}' has x; files of one table must have the same "
            r"columns.",
        ),
        ([a, c], r"Column 'x' is (large_)?string in .* but int64 in .*; cast it to one type."),
        ([a, d], r"The files of one table must have one format, but these are csv, parquet."),
        ([tmp_path / "no.parquet"], r"There is no file"),
        (
            str(tmp_path / "q*.parquet"),
            r"There are no files in .*q\*.parquet'; give another folder or pattern",
        ),
        ([pd.DataFrame()], r"Cannot read a list as a table"),
    ):
        for access in (lambda d: d.num_rows, lambda d: list(d.batches(10))):
            with pytest.raises(UserError, match=sentence):
                access(Dataset.open(paths))


def test_the_command_line_takes_a_pattern(tmp_path):
    write_parts(mixed_frame(), tmp_path)
    options = ["--steps", "2", "--width", "16", "--depth", "1", "--heads", "2"]
    model = str(tmp_path / "m.tabmt")
    result = CliRunner().invoke(main, ["fit", str(tmp_path / "*.parquet"), "-o", model, *options])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["schema", str(tmp_path / "*.parquet")])
    assert result.exit_code == 0 and '"columns"' in result.output
    result = CliRunner().invoke(main, ["fit", str(tmp_path / "q*.parquet"), "-o", model])
    assert result.exit_code == 2 and "There are no files in" in result.output
