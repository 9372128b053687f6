import datetime as dt
import json
import math

import pyarrow as pa
import pytest

from tabmt.data.schema import Schema, Source, infer, parse_type
from tabmt.errors import UserError
from tests.tables import every_type

THIRTY = list(range(30))
KINDS = [
    ("age", [*THIRTY[::-1], 5, 5], "numeric", "whole numbers with 30 distinct values"),
    ("price", [i / 8 for i in THIRTY], "numeric", "numbers with 30 distinct values"),
    ("grade", [1, 2, 3] * 10, "categorical", "3 distinct whole numbers: taken for codes"),
    ("grade", [1.0, 2.0, None] * 10, "categorical", "2 distinct whole numbers: taken for codes"),
    ("tiny", [3, 1, 4, 1, 5], "numeric", "whole numbers with 4 distinct values"),
    ("flag", [True, False] * 5, "categorical", "booleans"),
    ("city", ["Oslo", "Bergen"] * 5, "categorical", "text with 2 distinct values"),
    ("name", [f"person {i}!" * (i + 1) for i in THIRTY], "id", "text that differs in every row"),
    ("words", [f"w{i}" for i in THIRTY] + ["w1", "w2"], "categorical",
     "text with 30 distinct values; nearly all differ: kind id would regenerate them"),
    ("number", list(range(100, 130)), "id", "consecutive whole numbers, one to a row"),
    (
        "customer_id",
        [i * i for i in THIRTY],
        "id",
        "whole numbers that differ in every row, under the name of a key",
    ),
    (
        "CustomerId",
        [i * i for i in THIRTY],
        "id",
        "whole numbers that differ in every row, under the name of a key",
    ),
    ("", [i * i for i in THIRTY], "id",
     "whole numbers that differ in every row, without a name, as an index"),
    ("__index_level_0__", [i * i for i in THIRTY], "id",
     "whole numbers that differ in every row, under the name of a key"),
    ("paid", [i * i for i in THIRTY], "numeric", "whole numbers with 30 distinct values"),
    ("day", [dt.date(2020, 1, 1 + i % 28) for i in THIRTY], "datetime",
     "values of type date32[day]"),
    ("same", [7] * 5, "constant", "one value in every row"),
    ("same", [7, None] * 5, "categorical", "1 distinct whole numbers: taken for codes"),
    ("nothing", [None] * 5, "constant", "nothing but gaps"),
    ("00", ["00123", "00124"] * 5, "categorical", "text with 2 distinct values"),
    ("text", [str(i / 8) for i in THIRTY], "numeric",
     "every text is a number; numbers with 30 distinct values"),
    ("wide", [2**62 * (-1) ** i for i in THIRTY], "categorical",
     "numbers with more digits than float64 can tell apart"),
    ("inf", [math.inf, *[i / 8 for i in THIRTY]], "numeric",
     "numbers with 31 distinct values; 1 infinities keep codes of their own"),
    ("infs", [math.inf, -math.inf], "categorical", "nothing but infinities"),
    ("nan", [math.nan, *[i / 8 for i in THIRTY]], "numeric",
     "numbers with 30 distinct values; 1 NaN are read as gaps"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "kind", "reason"), KINDS)
def test_kind_and_reason(name, values, kind, reason):
    column = infer(pa.table({name: values})).columns[0]
    assert (column.kind, column.reason) == (kind, reason)


def test_gaps_are_learned_unless_asked_otherwise():
    table = pa.table({"a": [1, None, 2], "b": [1, 2, 3]})
    assert [c.gaps for c in infer(table).columns] == ["learned", "none"]
    assert [c.gaps for c in infer(table, gaps="masked").columns] == ["masked", "none"]


def test_text_of_a_csv_file_gets_a_type_and_text_of_a_frame_keeps_its_own():
    table = pa.table({"a": ["1.5", "2.0"]})
    assert infer(table, Source("csv")).columns[0].dtype == "double"
    assert infer(table, Source("pandas")).columns[0].dtype == "string"


def test_schema_survives_json():
    schema = infer(every_type(), Source("pandas", "{}"))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_every_type_survives_its_name():
    for field in every_type().schema:
        assert parse_type(str(field.type)) == field.type
    for dtype in (pa.decimal256(50, -3), pa.dictionary(pa.int8(), pa.int64(), ordered=True)):
        assert parse_type(str(dtype)) == dtype


def test_a_persons_edits_win_and_are_told():
    table = pa.table({"zip": [98000 + i % 20 for i in range(40)], "x": [i / 3 for i in range(40)]})
    edits = {"columns": [{"name": "zip", "kind": "categorical"}, {"name": "x", "decimals": 2}]}
    zip_, x = infer(table, overrides=edits).columns
    assert (zip_.kind, x.decimals) == ("categorical", 2)
    assert zip_.reason == (
        "set in the schema (inferred: numeric, whole numbers with 20 distinct values)"
    )
    assert x.reason.endswith("decimals set in the schema (inferred: None)")


SPELLED = {
    "sex": ["m", "f", "NA"] * 10,
    "income": ["unknown", *map(str, range(100, 187, 3))],
    "age": ["-9", *map(str, range(20, 78, 2))],
    "code": ["0", "1", "NA"] * 10,
    "grade": ["A", "NA", None] * 10,
    "nothing": ["NA"] * 30,
}


@pytest.mark.parametrize("kind", ["csv", "arrow"])
def test_a_person_can_say_how_a_gap_is_spelled(kind):
    table, source = pa.table(SPELLED), Source(kind)
    before = {column.name: column for column in infer(table, source).columns}
    assert before["sex"].gaps == "none"
    assert before["sex"].reason == (
        "text with 3 distinct values; 'NA' is a word here, unless gap_text says that it is a gap"
    )
    spelled = {"income": "unknown", "age": "-9"}
    edits = {
        "gap_text": "NA",
        "columns": [{"name": name, "gap_text": words} for name, words in spelled.items()],
    }
    schema = infer(table, source, overrides=edits)
    after = {column.name: column for column in schema.columns}
    told = {name: column.gap_text for name, column in after.items()}
    assert told == dict.fromkeys(SPELLED, "NA") | spelled
    kinds = [column.kind for column in schema.columns]
    assert kinds == ["categorical", "numeric", "numeric", "categorical", "categorical", "constant"]
    assert {column.gaps for column in schema.columns[:5]} == {"learned"}
    assert after["grade"].reason == (
        "'NA' is a gap, set in the schema, and so are empty cells, which come back as it; "
        "text with 1 distinct values"
    )
    assert infer(table, source, overrides=schema.to_json()) == schema
    # What was taken down before says what held then: income was an id.
    taken = infer(table, source).to_json()
    for entry in taken["columns"]:
        if entry["name"] in spelled:
            entry["gap_text"] = spelled[entry["name"]]
    assert infer(table, source, overrides={**taken, "gap_text": "NA"}) == schema
    # What a person set stays, also where it is what held before.
    for place, name in ((1, "income"), (2, "age")):
        for kind in {"categorical", before[name].kind} - {"id"}:
            entry = schema.to_json()["columns"][place] | {"kind": kind}
            assert infer(table, source, overrides={"columns": [entry]}).columns[place].kind == kind


@pytest.mark.parametrize("dtype", ["int8", "float", "categories"])
def test_a_spelled_gap_that_stands_elsewhere_is_told(dtype):
    numbers = pa.array([1, 2, -9] * 10)
    numbers = numbers.dictionary_encode() if dtype == "categories" else numbers.cast(dtype)
    table = pa.table({"x": numbers, "y": ["a", "b", None] * 10})
    edits = {"gap_text": "-9", "columns": [{"name": "y", "gap_text": "zz"}]}
    x, y = infer(table, overrides=edits).columns
    assert x.reason.endswith("; '-9' is a value here: only gaps of text are spelled")
    assert y.reason.endswith("; no row holds 'zz', the gap_text of the schema")


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_spelled_gap_in_every_type_of_text(dtype):
    """Also beside a schema that was taken down when it was a word."""
    words = pa.array(["0", "1", "NA"] * 10)
    table = pa.table({"code": words.cast(dtype), "word": pa.array(["a", "b", "NA"] * 10, dtype)})
    before = infer(table)
    assert [column.gaps for column in before.columns] == ["none", "none"]
    after = infer(table, overrides={**before.to_json(), "gap_text": "NA"})
    assert [column.gaps for column in after.columns] == ["learned", "learned"]
    one = {"columns": [{"name": "code", "gap_text": None}], "gap_text": "NA"}
    assert [column.gaps for column in infer(table, overrides=one).columns] == ["none", "learned"]


def test_the_written_schema_can_be_passed_back_unchanged():
    table = every_type()
    schema = infer(table)
    assert infer(table, overrides=schema.to_json()) == schema


@pytest.mark.parametrize("name", ["day", "number"])
def test_a_kind_in_the_written_schema_can_be_edited(name):
    days = [f"2020-01-{i % 28 + 1:02}" for i in range(60)]
    table = pa.table({"day": pa.array(days).cast(pa.date32()), "number": list(map(str, range(60)))})
    schema = infer(table).to_json()
    (entry,) = (one for one in schema["columns"] if one["name"] == name)
    entry["kind"] = "categorical"
    found = {column.name: column.kind for column in infer(table, overrides=schema).columns}
    assert found[name] == "categorical"


TABLE = {"age": [1, 2, 3, 4], "city": ["a", "b", "a", None]}
WRONG_EDITS = [
    (
        {"columns": [{"name": "aeg", "kind": "numeric"}]},
        "The schema has a column 'aeg', but the table has: age, city. Did you mean 'age'?",
    ),
    (
        {"columns": [{"name": "age", "kind": "number"}]},
        "The schema sets kind of column 'age' to 'number'; it must be one of: numeric, datetime, "
        "categorical, constant, id.",
    ),
    (
        {"columns": [{"name": "city", "kind": "numeric"}]},
        "The schema calls column 'city' numeric, but its values are string with gaps; "
        "it can be: categorical, id.",
    ),
    (
        {"columns": [{"name": "city", "gaps": "none"}]},
        "The schema says column 'city' has no gaps, but it has 1. Set gaps to learned or masked.",
    ),
    (
        {"columns": [{"name": "age", "max_bins": 1}]},
        "The schema sets max_bins of column 'age' to 1; "
        "it must be a whole number from 2 to 2147483648.",
    ),
    (
        {"columns": [{"name": "age", "colour": "red"}]},
        "The schema of column 'age' has an entry 'colour'; "
        "you can set: kind, gaps, gap_text, decimals, quantizer, max_bins.",
    ),
    (
        {"columns": [{"name": "age", "dtype": "double"}]},
        "The schema sets dtype of column 'age' to 'double', but the table has 'int64'; "
        "you can set: kind, gaps, gap_text, decimals, quantizer, max_bins.",
    ),
    (
        {"columns": [{"name": "age", "decimals": 2}]},
        "The schema sets decimals of column 'age' to 2, but its values are int64; "
        "only floats can be rounded.",
    ),
    (
        {"columns": [{"name": "age", "gap_text": "4"}]},
        "The schema sets gap_text of column 'age' to '4', but its values are int64; "
        "only gaps of text are spelled. Leave these cells empty in the table.",
    ),
    (
        {"gap_text": -9},
        'The schema sets gap_text of the table to -9; it must be a text, such as "NA".',
    ),
    (
        {"gaptext": "NA"},
        "The schema has an entry 'gaptext'; it can have: columns, rules, gap_text.",
    ),
    (
        ["age"],
        'A schema is JSON of the form {"columns": [{"name": ..., "kind": ...}, ...]}; '
        "`tabmt schema TABLE` writes one to start from.",
    ),
]


WRONG_SPELLINGS = [
    (
        pa.array(["1", "99", "150", "7"]),
        "99",
        "The schema sets gap_text of column 'x' to '99', which lies among its values (1 to 150): "
        "drawn, it would be a gap. Leave these cells empty, or set its kind to categorical.",
    ),
    (
        pa.array(["1", "NA", "150", "-9"]),
        "-9",
        "Column 'x' spells gaps as 'NA', but the schema sets gap_text to '-9'. Spell them alike, "
        "or set gap_text of this column to null.",
    ),
    (
        pa.array(["1", "2", "150", "NA", "unknown", None]),
        "unknown",
        "Column 'x' spells gaps as 'NA', but the schema sets gap_text to 'unknown'. Spell them "
        "alike, or set gap_text of this column to null.",
    ),
    (
        pa.array(["a", "NA", "a"]).dictionary_encode(),
        "NA",
        "The schema makes 'NA' a gap, but column 'x' is not text: it is declared as categories. "
        "Turn it into text, or set its gap_text to null.",
    ),
]


@pytest.mark.parametrize(("values", "gap_text", "sentence"), WRONG_SPELLINGS)
def test_a_spelling_that_cannot_be_kept_gets_a_sentence(values, gap_text, sentence):
    with pytest.raises(UserError) as error:
        infer(pa.table({"x": values}), overrides={"gap_text": gap_text})
    assert str(error.value) == sentence


def test_a_gap_that_rounding_would_make_gets_a_sentence():
    table = pa.table({"x": ["0.00", *(f"0.{i:02}" for i in range(2, 60))]})
    edit = {"name": "x", "gap_text": "0.00"}
    assert infer(table, overrides={"columns": [edit]}).columns[0].gap_text == "0.00"
    with pytest.raises(UserError, match=r"which lies among its values \(0.0 to 1.0\)"):
        infer(table, overrides={"columns": [{**edit, "decimals": 0}]})


@pytest.mark.parametrize(("edits", "sentence"), WRONG_EDITS)
def test_a_wrong_edit_gets_a_sentence(edits, sentence):
    with pytest.raises(UserError) as error:
        infer(pa.table(TABLE), overrides=edits)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (pa.table({}), "The table has no columns."),
        (pa.table({"a": []}), "The table has no rows, so there is nothing to learn."),
        (
            pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
            "Column names must differ, but these stand twice: 'a'. Rename them.",
        ),
        (
            pa.table({"a": [[1], [2]]}),
            "Column 'a' has type list<item: int64>, but TabMT learns numbers, text, booleans, "
            "dates and times. Turn it into text, or leave the column out.",
        ),
    ],
)
def test_a_table_that_cannot_be_learned_gets_a_sentence(table, sentence):
    with pytest.raises(UserError) as error:
        infer(table)
    assert str(error.value) == sentence
