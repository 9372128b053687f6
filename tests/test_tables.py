import logging

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tabmt.codec.columns import TableCodec
from tabmt.config import CodecConfig
from tabmt.data import files as tables
from tabmt.data.schema import infer
from tabmt.errors import UserError
from tests.tables import every_type, mixed_frame


def through(source, kind=None):
    """A table through the rim and back, every value kept."""
    table, origin = tables.load(source)
    schema = infer(table, origin)
    codec = TableCodec.fit(table, schema, CodecConfig(quantizer="none"), seed=0)
    return tables.give_back(codec.decode(codec.encode(table), seed=0), schema, kind), schema, codec


def test_a_pandas_table_comes_back_with_its_dtypes():
    frame = mixed_frame()
    before = frame.copy(deep=True)
    back, _, _ = through(frame)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(back, frame, check_freq=False)


def test_pandas_dtypes_old_and_new_come_back():
    frame = pd.DataFrame(
        {
            "ordered": pd.Categorical(["low", "high", None], ["low", "mid", "high"], ordered=True),
            "numbers": pd.Categorical([3, 1, 3]),
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "boolean": pd.array([True, None, False], dtype="boolean"),
            "float": pd.array([1.5, None, 2.5], dtype="Float32"),
            "object": pd.Series(["x", None, "y"], dtype="object"),
            "string": pd.array(["x", None, "y"], dtype="string"),
            "arrow": pd.array([1, None, 3], dtype="int32[pyarrow]"),
            "nano": pd.to_datetime(["2020-01-01", None, "2020-01-03"]).astype("datetime64[ns]"),
        }
    )
    back, _, _ = through(frame)
    pd.testing.assert_frame_equal(back, frame)


def test_numbered_columns_come_back():
    frame = pd.DataFrame(np.arange(12).reshape(4, 3) % 5)
    pd.testing.assert_frame_equal(through(frame)[0], frame)


def test_a_polars_table_comes_back_with_its_types():
    frame = pl.DataFrame(
        {
            "i": pl.Series([1, None, 3], dtype=pl.Int16),
            "c": pl.Series(["a", "b", None], dtype=pl.Categorical),
            "s": ["x", None, "y"],
            "f": [1.5, 2.5, None],
            "d": pl.Series([18262, 18263, None]).cast(pl.Date),
        }
    )
    back, _, _ = through(frame)
    assert back.equals(frame) and back.schema == frame.schema


def test_an_arrow_table_comes_back_with_its_types():
    table = every_type()
    assert through(table)[0].equals(table)
    assert through(table.to_batches()[0])[0].equals(table)


def test_another_kind_can_be_asked_for(fitted):
    assert isinstance(fitted.sample(3, seed=0), pd.DataFrame)
    assert isinstance(fitted.sample(3, seed=0, kind="polars"), pl.DataFrame)
    assert isinstance(fitted.sample(3, seed=0, kind="arrow"), pa.Table)
    with pytest.raises(UserError) as error:
        fitted.sample(3, kind="numpy")
    assert str(error.value) == "kind is 'numpy', but must be one of: pandas, polars, arrow."


CSV = '''name,zip,price,when,gap,quoted,note
Ann,00123,1.50,2020-01-02,,"a,b",""
Bo,00124,2.25,2020-02-29,5,"say ""hi""",
"Cy
Lee",00123,10.00,1066-10-14,7,plain,x
Ann,00124,0.05,2020-01-02,,plain,x
'''


def test_a_csv_file_comes_back_letter_for_letter(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(CSV)
    table, source = tables.load(path)
    schema = infer(table, source)
    codec = TableCodec.fit(table, schema, CodecConfig(quantizer="none"), seed=0)
    tables.write_file(tmp_path / "out.csv", schema, [codec.decode(codec.encode(table), seed=0)])
    assert (tmp_path / "out.csv").read_text() == CSV
    assert [c.dtype for c in schema.columns] == [
        "string", "string", "double", "date32[day]", "int64", "string", "string",
    ]  # fmt: skip


def test_an_empty_cell_is_a_gap_and_quotes_make_it_a_text(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(CSV)
    assert tables.load(path)[0]["note"].to_pylist() == ["", None, "x", "x"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    path = tmp_path / "in.csv"
    path.write_text(f"a{delimiter}b\n1,5{delimiter}x\n2,5{delimiter}y\n")
    assert tables.load(path)[0].to_pydict() == {"a": ["1,5", "2,5"], "b": ["x", "y"]}


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert tables.load(path)[0].column_names == ["a", "b"]


def test_an_empty_line_is_a_gap_where_there_is_one_column(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n\n3\n")
    assert tables.load(path)[0]["a"].to_pylist() == ["1", None, "3"]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".feather", ".csv", ".csv.gz", ".tsv"])
def test_every_file_kind_is_read_back_as_written(tmp_path, ending, fitted):
    rows = fitted.sample(50, seed=0, kind="arrow")
    path = tmp_path / f"out{ending}"
    tables.write_file(path, fitted.schema_, [rows.slice(0, 20), rows.slice(20)])
    back, source = tables.load(path)
    assert back.num_rows == 50 and back.column_names == rows.column_names
    if source.kind != "csv":
        pd.testing.assert_frame_equal(back.to_pandas(), rows.to_pandas())


def test_an_arrow_stream_is_read_too(tmp_path):
    table = every_type()
    with pa.ipc.new_stream(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert tables.load(tmp_path / "x.arrow")[0].equals(table)


def test_an_index_left_out_is_told(caplog):
    with caplog.at_level(logging.WARNING):
        tables.load(pd.DataFrame({"a": [1, 2]}, index=["x", "y"]))
    assert caplog.messages == [
        "The pandas index is not a column and is left out; reset_index() keeps it."
    ]


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_an_index_that_pandas_wrote_into_a_file_is_no_column(tmp_path, caplog, ending):
    frame = pd.DataFrame({"a": range(40), "b": list("xy") * 20}).sample(frac=1, random_state=0)
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(frame), path)
    caplog.set_level("INFO")
    assert tables.load(path)[0].column_names == ["a", "b"]
    assert "__index_level_0__ is not a column and is left out" in caplog.text
    parts, _ = tables.batches(path, 15)
    assert [part.column_names for part in parts] == [["a", "b"]] * 3
    assert tables.load(pa.Table.from_pandas(frame))[0].column_names == ["a", "b"]
    named = pa.Table.from_pandas(frame.rename_axis("person"))  # a name that somebody gave it
    assert tables.load(named)[0].column_names == ["a", "b", "person"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            pd.DataFrame({"a": [1, "x"]}, dtype=object),
            "Column 'a' mixes int and str values. Give it one type, for example text: "
            "df['a'].astype(str).",
        ),
        (
            pd.DataFrame({"a": [10**20, 1]}, dtype=object),
            "Column 'a' holds int values that no column type can hold (such as "
            "100000000000000000000). Turn it into text: df['a'].astype(str).",
        ),
        (
            pd.DataFrame(np.zeros((2, 2)), columns=pd.MultiIndex.from_product([["a"], [1, 2]])),
            "The table has several levels of column names. Join them into one first.",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "Column names must differ, but these stand twice: 'a'. Rename them.",
        ),
        (
            [1, 2],
            "A list is not a table. Give a pandas, polars or Arrow table, or the path of a file "
            "(.csv, .tsv, .csv.gz, .parquet, .pq, .arrow, .feather).",
        ),
        ("nowhere.csv", "There is no file 'nowhere.csv'."),
        (
            "table.xlsx",
            "'table.xlsx' has an ending that TabMT does not know; it can be: "
            ".csv, .tsv, .csv.gz, .parquet, .pq, .arrow, .feather.",
        ),
    ],
)
def test_what_is_no_table_gets_a_sentence(source, sentence):
    with pytest.raises(UserError) as error:
        tables.load(source)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("e.csv", b"", "{} is empty; a CSV file begins with a line of column names."),
        ("r.csv", b"a,b\n1,2\n3\n", "{} cannot be read as csv: CSV parse error: "
         "Expected 2 columns, got 1: 3"),
        ("l.csv", b"a\n\xe9t\xe9\n", "{} is not UTF-8 text; convert it, for example with "
         "`iconv -f latin1 -t utf-8`."),
        ("p.parquet", b"hello", "{} cannot be read as parquet: "),
        ("a.arrow", b"hello", "{} cannot be read as ipc: "),
    ],
)  # fmt: skip
def test_a_damaged_file_gets_a_sentence(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        tables.load(path)
    assert str(error.value).startswith(sentence.format(repr(str(path))))


def test_a_file_is_never_left_half_written(tmp_path, fitted):
    path = tmp_path / "out.csv"
    path.write_text("precious")

    def batches():
        yield fitted.sample(5, seed=0, kind="arrow")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tables.write_file(path, fitted.schema_, batches())
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
def test_a_delimiter_within_quotes_is_none(tmp_path, content, columns):
    path = tmp_path / "in.csv"
    path.write_text(content)
    assert tables.load(path)[0].to_pydict() == columns


def test_a_header_in_another_encoding_gets_the_sentence(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b"caf\xe9,b\n1,2\n")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        tables.load(path)


def test_a_packed_file_is_read_whatever_the_case_of_its_ending(tmp_path, fitted):
    tables.write_file(
        tmp_path / "x.csv.gz", fitted.schema_, [fitted.sample(5, seed=0, kind="arrow")]
    )
    (tmp_path / "x.csv.gz").rename(tmp_path / "X.CSV.GZ")
    assert tables.load(tmp_path / "X.CSV.GZ")[0].num_rows == 5


def test_a_series_is_a_table_of_one_column():
    assert tables.load(pd.Series([1, 2], name="a"))[0].to_pydict() == {"a": [1, 2]}


def test_a_frames_own_notes_stay_out_of_the_model():
    frame = mixed_frame(30)
    frame.attrs["secret"] = "patient 17"
    assert "patient 17" not in tables.load(frame)[1].pandas
