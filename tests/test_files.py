"""CSV, Parquet and Arrow files: read and written without loss."""

import base64
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tabmt.codec.large_tables import fit_table_codec
from tabmt.config import CodecConfig
from tabmt.data.dataset import Dataset
from tabmt.data.files import write_file
from tabmt.errors import UserError
from tests.tables import every_type

CSV = '''name,zip,price,when,missing,quoted,note
Ann,00123,1.50,2020-01-02,,"a,b",""
Bo,00124,2.25,2020-02-29,5,"say ""hi""",
"Cy
Lee",00123,10.00,1066-10-14,7,plain,x
Ann,00124,0.05,2020-01-02,,plain,x
'''


def read(path) -> pa.Table:
    return Dataset.open(path).to_table()


def test_a_csv_file_comes_back_character_for_character(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(CSV)
    codec = fit_table_codec(Dataset.open(path), CodecConfig(quantizer="none"), None, seed=0)
    store = codec.encode(codec.parse(read(path)))
    rows = codec.decode(store[np.arange(len(store))], seed=0)
    write_file(tmp_path / "out.csv", codec.schema, [rows])
    assert (tmp_path / "out.csv").read_text() == CSV
    assert [column.dtype for column in codec.schema.columns] == [
        "string", "string", "double", "date32[day]", "int64", "string", "string",
    ]  # fmt: skip


def test_an_empty_cell_is_missing_and_in_quotes_it_is_text(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(CSV)
    assert read(path)["note"].to_pylist() == ["", None, "x", "x"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    path = tmp_path / "in.csv"
    path.write_text(f"a{delimiter}b\n1,5{delimiter}x\n2,5{delimiter}y\n")
    assert read(path).to_pydict() == {"a": ["1,5", "2,5"], "b": ["x", "y"]}


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert read(path).column_names == ["a", "b"]


def test_an_empty_line_is_a_missing_value_in_a_file_of_one_column(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n\n3\n")
    assert read(path)["a"].to_pylist() == ["1", None, "3"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".csv", ".csv.gz", ".tsv"])
def test_every_kind_of_file_is_read_as_it_was_written(tmp_path, suffix, fitted):
    rows = fitted.sample(50, seed=0, output="arrow")
    path = tmp_path / f"out{suffix}"
    write_file(path, fitted.schema_, [rows.slice(0, 20), rows.slice(20)])
    back = read(path)
    assert back.num_rows == 50 and back.column_names == rows.column_names
    if Dataset.open(path).source.kind != "csv":
        pd.testing.assert_frame_equal(back.to_pandas(), rows.to_pandas())


def test_an_arrow_stream_is_read_too(tmp_path):
    table = every_type()
    with pa.ipc.new_stream(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert read(tmp_path / "x.arrow").equals(table)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_an_index_that_pandas_wrote_into_a_file_is_not_a_column(tmp_path, caplog, suffix):
    frame = pd.DataFrame({"a": range(40), "b": list("xy") * 20}).sample(frac=1, random_state=0)
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(frame), path)
    caplog.set_level("INFO")
    assert read(path).column_names == ["a", "b"]
    assert "the pandas index in __index_level_0__ is not a column and is left out" in caplog.text
    batches = list(Dataset.open(path).batches(15))
    assert [batch.column_names for batch in batches] == [["a", "b"]] * 3
    assert read(pa.Table.from_pandas(frame)).column_names == ["a", "b"]
    named = pa.Table.from_pandas(frame.rename_axis("person"))  # a name that somebody gave it
    assert read(named).column_names == ["a", "b", "person"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere.csv", "There is no file 'nowhere.csv'."),
        (
            "table.xlsx",
            "'table.xlsx' has an unknown file extension; it must be one of: "
            ".csv, .tsv, .csv.gz, .parquet, .pq, .arrow, .feather.",
        ),
    ],
)
def test_a_path_that_is_not_a_table_gets_a_sentence(path, sentence):
    with pytest.raises(UserError) as error:
        Dataset.open(path)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("e.csv", b"", "{} is empty; a CSV file begins with a line of column names."),
        ("r.csv", b"a,b\n1,2\n3\n", "{} cannot be read as csv: a row has 1 cells, but there are 2 "
         "columns."),
        ("l.csv", b"a\n\xe9t\xe9\n", "{} is not UTF-8 text; convert it, for example with "
         "`iconv -f latin1 -t utf-8`."),
        ("p.parquet", b"hello", "{} cannot be read as parquet: "),
        ("a.arrow", b"hello", "{} cannot be read as ipc: "),
    ],
)  # fmt: skip
def test_a_damaged_file_gets_a_sentence(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    for access in (read, lambda path: list(Dataset.open(path).batches(10))):
        with pytest.raises(UserError) as error:
            access(path)
        assert str(error.value).startswith(sentence.format(repr(str(path))))


def test_a_file_is_never_left_half_written(tmp_path, fitted):
    path = tmp_path / "out.csv"
    path.write_text("precious")

    def batches():
        yield fitted.sample(5, seed=0, output="arrow")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, fitted.schema_, batches())
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ('"a;b;c",d\n1,2\n', {"a;b;c": ["1"], "d": ["2"]}),
        ('"net, EUR, 2020";city\n1;2\n', {"net, EUR, 2020": ["1"], "city": ["2"]}),
        ('"a,b"\n1\n\n3\n', {"a,b": ["1", None, "3"]}),
    ],
)
def test_a_delimiter_in_quotes_does_not_count(tmp_path, content, columns):
    path = tmp_path / "in.csv"
    path.write_text(content)
    assert read(path).to_pydict() == columns


def test_a_header_in_another_encoding_gets_a_sentence(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"caf\xe9,b\n1,2\n")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read(path)


def test_a_compressed_file_is_read_whatever_the_case_of_its_suffix(tmp_path, fitted):
    write_file(tmp_path / "x.csv.gz", fitted.schema_, [fitted.sample(5, seed=0, output="arrow")])
    (tmp_path / "x.csv.gz").rename(tmp_path / "X.CSV.GZ")
    assert read(tmp_path / "X.CSV.GZ").num_rows == 5


@pytest.mark.parametrize(("suffix", "kind"), [("arrow", "ipc"), ("parquet", "parquet")])
def test_a_time_zone_that_is_no_text_gets_a_sentence(tmp_path, suffix, kind):
    """In a Parquet file the zone is in a schema that Arrow writes in base 64."""
    path = tmp_path / f"times.{suffix}"
    table = pa.table({"when": pa.array([0, 1, 2], pa.timestamp("s", "Zone/Z")), "x": [1, 2, 3]})
    if suffix == "arrow":
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
        content = path.read_bytes().replace(b"Zone/Z", b"Zone/\xa3")
    else:
        pyarrow.parquet.write_table(table, path)
        content = damaged_zone(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        Dataset.open(path).to_table()
    assert str(error.value) == (
        f"{str(path)!r} cannot be read as {kind}: the name or the time zone of a column is not "
        "UTF-8 text."
    )


def damaged_zone(content: bytes) -> bytes:
    """A Parquet file whose stored Arrow schema has a time zone that is not UTF-8."""
    start = content.index(b"ARROW:schema")
    encoded = re.search(rb"[A-Za-z0-9+/=]{100,}", content[start + len("ARROW:schema") :])
    assert encoded is not None
    schema = base64.b64decode(encoded[0]).replace(b"Zone/Z", b"Zone/\xa3")
    return content.replace(encoded[0], base64.b64encode(schema))
