import datetime as dt
import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabmt.codec.large_tables import fit_table_codec
from tabmt.codec.table import TableCodec
from tabmt.config import CodecConfig
from tabmt.data.arrow_types import is_text, plain_array
from tabmt.data.dataset import InMemory
from tabmt.data.infer import Inference
from tabmt.data.schema import Source
from tabmt.data.typed_columns import parse_column
from tabmt.errors import UserError
from tabmt.tokens import MASK
from tests.tables import every_type

TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(allow_nan=False, width=32),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=8),
    pa.large_string(): st.sampled_from(["a", "b", "1", "2", "NA", ""]),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("s", "Europe/Oslo"): st.integers(-(10**10), 10**10),
    pa.time32("s"): st.integers(0, 86399),
    pa.duration("ms"): st.integers(0, 10**9),
    pa.decimal128(12, 3): st.decimals(-1000, 1000, places=3),
}


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 40))
    columns = {}
    for index in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(list(TYPES)))
        cells = st.none() | TYPES[dtype] if draw(st.booleans()) else TYPES[dtype]
        values = draw(st.lists(cells, min_size=rows, max_size=rows))
        array = pa.array(values, dtype)
        if pa.types.is_string(dtype) and draw(st.booleans()):
            array = array.dictionary_encode()
        columns[f"column {index}"] = array
    return pa.table(columns)


def missing(table):
    columns = [plain_array(column) for column in table.columns]
    return [pc.is_null(column, nan_is_null=True).to_pylist() for column in columns]


def fit(table, overrides=None, **config) -> TableCodec:
    config = CodecConfig(**{"protect": 0, **config})  # test_protection.py is about the rest
    return fit_table_codec(InMemory(table), config, overrides, seed=0)


def tokens_of(codec, table) -> np.ndarray:
    return codec.encode(codec.parse(table))[np.arange(table.num_rows)]


@settings(max_examples=200, deadline=None)
@given(tables())
def test_without_quantisation_every_table_comes_back_exactly(table):
    codec = fit(table, quantizer="none")
    back = codec.decode(tokens_of(codec, table), seed=0)
    assert back.schema.equals(table.schema)
    for column in codec.schema.columns:
        if column.kind != "id":
            real, made = plain_array(table[column.name]), plain_array(back[column.name])
            assert made.to_pylist() == real.to_pylist()


@settings(max_examples=200, deadline=None)
@given(tables(), st.integers(2, 12))
def test_quantised_tables_keep_types_missing_values_and_ranges(table, max_bins):
    codec = fit(table, max_bins=max_bins, quantizer="quantile")
    back = codec.decode(tokens_of(codec, table), seed=1)
    assert back.schema.equals(table.schema)
    assert missing(back) == missing(table)
    for column in codec.schema.columns:
        real, made = plain_array(table[column.name]), plain_array(back[column.name])
        if column.kind in ("numeric", "datetime") and column.format is None:
            known, drawn = real.drop_null().to_pylist(), made.drop_null().to_pylist()
            assert min(known) <= min(drawn) and max(drawn) <= max(known)
        elif column.kind == "categorical":
            assert made.to_pylist() == real.to_pylist()


@settings(max_examples=100, deadline=None)
@given(tables())
def test_a_codec_survives_its_parts(table):
    codec = fit(table, max_bins=5, quantizer="quantile")
    arrays, entries = codec.to_parts()
    again = TableCodec.from_parts(codec.schema, arrays, json.loads(json.dumps(entries)))
    tokens = tokens_of(codec, table)
    assert np.array_equal(tokens_of(again, table), tokens)
    assert again.decode(tokens, seed=3).equals(codec.decode(tokens, seed=3))


@settings(max_examples=200, deadline=None)
@given(tables(), st.sampled_from(["csv", "arrow"]), st.sampled_from([None, "NA", "1"]))
def test_an_inferred_column_holds_the_values_that_parsing_it_gives(table, source, missing_text):
    texts = [name for name in table.column_names if is_text(table[name].type)]
    table = table.select(texts) if source == "csv" and texts else table
    overrides = None if missing_text is None else {"missing_text": missing_text}
    dataset = InMemory(table, Source(source))
    for name in table.column_names:
        inference = Inference.of(dataset, CodecConfig(), overrides)
        try:
            typed = inference.column(name, table.column(name))
        except UserError:  # a missing_text that the column cannot have
            assert missing_text is not None
            continue
        parsed = parse_column(table.column(name), typed.column)
        assert typed.values.equals(parsed.values)
        assert (typed.dictionary is None) == (parsed.dictionary is None)
        assert typed.dictionary is None or typed.dictionary.equals(parsed.dictionary)


def test_every_arrow_type_comes_back_as_it_was():
    table = every_type()
    codec = fit(table)
    back = codec.decode(tokens_of(codec, table), seed=0)
    assert back.schema.equals(table.schema)
    assert missing(back) == missing(table)


def test_unused_categories_of_a_dictionary_are_kept():
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int8()), ["a", "b", "c"])
    table = pa.table({"x": column})
    codec = fit(table)
    assert codec.coded[0].size == 2
    back = codec.decode(tokens_of(codec, table), seed=0)
    assert back.column("x").chunk(0).dictionary.to_pylist() == ["a", "b", "c"]
    assert back.equals(table)


def test_missing_values_are_the_last_code_if_learned_and_mask_if_masked():
    table = pa.table({"x": [5.5, None, 7.25], "y": ["a", None, "b"]})
    codes = []
    for mode in ("learned", "masked"):
        codes.append(tokens_of(fit(table, missing=mode), table)[1].tolist())
    assert codes == [[2, 2], [MASK, MASK]]


def test_constants_and_ids_have_no_tokens():
    table = pa.table({"id": range(30), "same": [1] * 30, "empty": pa.nulls(30), "x": [1, 2] * 15})
    codec = fit(table)
    assert tokens_of(codec, table).shape == (30, 1)
    back = codec.decode(tokens_of(codec, table), seed=0)
    assert back.column_names == table.column_names


def test_of_an_id_only_what_is_missing_is_learned():
    words = [None if i % 5 == 0 else f"person {i}" for i in range(100)]
    table = pa.table({"who": words})
    codec = fit(table)
    assert codec.schema.columns[0].kind == "id"
    back = codec.decode(tokens_of(codec, table), seed=0)
    assert missing(back) == missing(table)
    assert not set(back["who"].to_pylist()) - {None} & set(words)


def test_different_rows_are_drawn_for_different_seeds_and_positions():
    table = pa.table({"x": np.random.default_rng(0).normal(size=1000)})
    codec = fit(table, max_bins=5)
    tokens = tokens_of(codec, table)[:50]
    draws = [codec.decode(tokens, seed=s, first_row=f)["x"].to_pylist() for s, f in
             [(0, 0), (0, 0), (1, 0), (0, 50)]]  # fmt: skip
    assert draws[0] == draws[1]
    assert draws[0] != draws[2] and draws[0] != draws[3]


def test_new_rows_are_encoded_with_the_codes_of_the_fit(caplog):
    table = pa.table({"age": list(range(20, 60)), "city": ["Oslo", "Bergen"] * 20})
    overrides = {"columns": [{"name": "age", "kind": "numeric"}]}
    codec = fit(table, overrides, max_bins=10)
    with caplog.at_level(logging.WARNING):
        tokens_of(codec, pa.table({"age": [70, None], "city": ["Oslo", "Oslo"]}))
    assert caplog.messages == [
        "Column 'age' has 1 missing values, but had none when the model was fitted; they are "
        "masked, as if they were not given.",
        "Column 'age' has values outside the range of the model; each is replaced by "
        "the nearest value in range (1 of the first 1 values).",
    ]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"age": [1], "city": ["Olso"]},
            "Column 'city' has 1 cell with 1 value that the model does not know; it knows 2. "
            "Remove these rows, or leave the cells empty.",
        ),
        (
            {"age": [1]},
            "The table has no column 'city', which the model was fitted with; it has: age.",
        ),
        (
            {"age": [1], "city": ["Oslo"], "x": [1]},
            "The table has a column 'x', which the model was not fitted with; remove it.",
        ),
    ],
)
def test_rows_that_cannot_be_encoded_get_a_sentence(columns, sentence):
    codec = fit(pa.table({"age": [1, 2, 3, 4], "city": ["Oslo", "Bergen"] * 2}))
    with pytest.raises(UserError) as error:
        tokens_of(codec, pa.table(columns))
    assert str(error.value) == sentence


def test_dates_before_1677_come_back():
    table = pa.table({"day": [dt.date(1066, 10, 14) + dt.timedelta(9 * i) for i in range(300)]})
    codec = fit(table, max_bins=20)
    back = codec.decode(tokens_of(codec, table), seed=0)["day"]
    assert back.type == pa.date32()
    assert min(back.to_pylist()) >= dt.date(1066, 10, 14)
