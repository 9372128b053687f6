import pyarrow as pa
import pytest

from tabmt.data.infer import recognise
from tabmt.data.missing import read_text
from tabmt.data.text_formats import write

RECOGNISED = [
    (["1", "25", "-3"], "integer", "int64", None),
    (["1.50", "2.25"], "fixed:2", "double", None),
    (["1.5", "22.25", "3.0"], "shortest", "double", None),
    (["1.5", "2"], "plain", "double", None),
    (["1e-05", "3.5"], "shortest", "double", None),
    (["inf", "1.5"], "shortest", "double", None),
    (["NA", "3", "4"], "integer", "int64", "NA"),
    (["", "3", "4"], "integer", "int64", ""),
    (["3", None, "4"], "integer", "int64", None),
    (["2014-05-02", "1066-10-14"], "s:%Y-%m-%d", "date32[day]", None),
    (["2014-05-02 10:00:00"], "s:%Y-%m-%d %H:%M:%S", "timestamp[s]", None),
    (["2014-05-02 10:00:00.120"], "ms:%Y-%m-%d %H:%M:%S", "timestamp[ms]", None),
    (["2014-05-02T10:00:00Z"], "s:%Y-%m-%dT%H:%M:%SZ", "timestamp[s, tz=UTC]", None),
    (["31/12/2020", "01/02/2020"], "s:%d/%m/%Y", "date32[day]", None),
    (["12/31/2020", "01/02/2020"], "s:%m/%d/%Y", "date32[day]", None),
    (["31.12.2020"], "s:%d.%m.%Y", "date32[day]", None),
    (["$12.34", "$1,234.50", "-$7.00"], "styled:$|,|2|", "double", None),
    (["$12.34", "$1234.50"], "styled:$||2|", "double", None),
    (["1,234", "5"], "styled:|,|0|", "int64", None),
    (["12%", "7%", "NA"], "styled:||0|%", "int64", "NA"),
    (["12.5 €", "7.0 €"], "styled:||1| €", "double", None),
    (["2020-01-31T10:00:00+01:00", "2020-07-31T10:00:00+02:00"],
     "zone:Europe/Berlin:%Y-%m-%dT%H:%M:%S", "timestamp[s, tz=Europe/Berlin]", None),
    (["2020-10-25T02:30:00+02:00", "2020-10-25T02:30:00+01:00"],
     "zone:Europe/Berlin:%Y-%m-%dT%H:%M:%S", "timestamp[s, tz=Europe/Berlin]", None),
    (["2020-01-31 10:00:00-03:30", "2020-07-31 10:00:00-03:30"],
     "s:%Y-%m-%d %H:%M:%S-03:30", "timestamp[s]", None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fmt", "dtype", "missing_text"), RECOGNISED)
def test_text_that_round_trips_is_recognised_and_written_back(words, fmt, dtype, missing_text):
    column = pa.chunked_array([pa.array(words, pa.string())])
    found = recognise(column)
    assert (found.format, str(found.dtype), found.missing_text) == (fmt, dtype, missing_text)
    values = read_text(column.combine_chunks(), fmt, found.dtype, missing_text)
    assert values.type == found.dtype
    assert write(values, fmt, missing_text).to_pylist() == words


@pytest.mark.parametrize(
    "words",
    [
        ["00123", "4"],
        ["12345678901234567890", "1"],
        ["1,5", "2,5"],
        ["+5", "3"],
        [" 5", "3"],
        ["1_000", "3"],
        ["nan", "NA"],
        ["NA", None, "3"],  # two texts for missing values could not both be written back
        ["", "NA", "3"],
        ["0.10", "0.1"],
        ["-0", "0", "1"],
        ["2014-13-02"],
        ["2014-5-2"],
        ["10.1.1.5", "10.1.1.6"],
        ["a"],
        [None],
    ],
)
def test_text_that_does_not_round_trip_stays_text(words):
    assert recognise(pa.chunked_array([pa.array(words, pa.string())])) is None


@pytest.mark.parametrize(
    ("words", "fmt"),
    [(["-0.0", "1.5", "-2.5"], "fixed:1"), (["-0.0", "1.25", "1e-05"], "shortest")],
)
def test_minus_zero_is_read_as_zero_and_the_reason_says_so(words, fmt):
    column = pa.chunked_array([pa.array(words, pa.string())])
    found = recognise(column)
    assert found.format == fmt
    assert found.reason.endswith(", '-0.0' as zero; ")
    values = read_text(column.combine_chunks(), fmt, found.dtype)
    assert values.to_pylist() == [float(word) for word in words]
