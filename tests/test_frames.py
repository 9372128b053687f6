"""Data frames: they become Arrow tables and come back as they were."""

import logging

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tabmt.codec.large_tables import fit_table_codec
from tabmt.config import CodecConfig
from tabmt.data import frames
from tabmt.data.dataset import Dataset
from tabmt.errors import UserError
from tests.tables import every_type, mixed_frame


def encoded_and_decoded(frame):
    """A table as codes and back, in its own kind; without quantisation every value is kept."""
    dataset = Dataset.open(frame)
    codec = fit_table_codec(dataset, CodecConfig(quantizer="none", protect=0), None, seed=0)
    store = codec.encode(codec.parse(dataset.to_table()))
    table = codec.decode(store[np.arange(len(store))], seed=0)
    return frames.from_arrow(table, codec.schema)


def test_a_pandas_table_comes_back_with_its_dtypes():
    frame = mixed_frame()
    before = frame.copy(deep=True)
    back = encoded_and_decoded(frame)
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
    pd.testing.assert_frame_equal(encoded_and_decoded(frame), frame)


def test_columns_named_by_numbers_come_back():
    frame = pd.DataFrame(np.arange(12).reshape(4, 3) % 5)
    pd.testing.assert_frame_equal(encoded_and_decoded(frame), frame)


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
    back = encoded_and_decoded(frame)
    assert back.equals(frame) and back.schema == frame.schema


def test_an_arrow_table_comes_back_with_its_types():
    table = every_type()
    assert encoded_and_decoded(table).equals(table)
    assert encoded_and_decoded(table.to_batches()[0]).equals(table)


def test_another_kind_of_table_can_be_requested(fitted):
    assert isinstance(fitted.sample(3, seed=0), pd.DataFrame)
    assert isinstance(fitted.sample(3, seed=0, output="polars"), pl.DataFrame)
    assert isinstance(fitted.sample(3, seed=0, output="arrow"), pa.Table)
    with pytest.raises(UserError) as error:
        fitted.sample(3, output="numpy")
    assert str(error.value) == "output is 'numpy', but must be one of: pandas, polars, arrow."


def test_an_index_that_is_left_out_is_logged(caplog):
    with caplog.at_level(logging.WARNING):
        Dataset.open(pd.DataFrame({"a": [1, 2]}, index=["x", "y"]))
    assert caplog.messages == [
        "The pandas index is not a column and is left out; reset_index() keeps it."
    ]


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
            "Column 'a' holds int values that no column type can hold. Convert it to text: "
            "df['a'].astype(str).",
        ),
        (
            pd.DataFrame(np.zeros((2, 2)), columns=pd.MultiIndex.from_product([["a"], [1, 2]])),
            "The table has several levels of column names. Join them into one first.",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "Column names must be unique, but these are repeated: 'a'.",
        ),
        (
            {1, 2},
            "An object of type set is not a table. Pass a pandas, polars or Arrow table, or the "
            "path of a CSV, Parquet or Arrow file.",
        ),
        ([1, 2], "Cannot read a list as a table; a list must contain file paths."),
    ],
)
def test_what_is_not_a_table_gets_a_sentence(source, sentence):
    with pytest.raises(UserError) as error:
        Dataset.open(source)
    assert str(error.value) == sentence


def test_a_series_is_a_table_of_one_column():
    for series in (pd.Series([1, 2], name="a"), pl.Series("a", [1, 2])):
        assert Dataset.open(series).to_table().to_pydict() == {"a": [1, 2]}


def test_the_attributes_of_a_frame_are_not_stored():
    frame = mixed_frame(30)
    frame.attrs["secret"] = "patient 17"
    assert "patient 17" not in Dataset.open(frame).source.pandas
