"""What users set in a schema: it wins, and what cannot be is refused with one sentence."""

import pyarrow as pa
import pytest

from tabmt.data.infer import infer_schema
from tabmt.data.overrides import as_overrides
from tabmt.errors import UserError
from tests.tables import every_type


def test_what_a_user_sets_wins_and_the_reason_says_so():
    rows = range(400)
    table = pa.table({"zip": [98000 + i % 20 for i in rows], "x": [i / 3 for i in rows]})
    overrides = {"columns": [{"name": "zip", "kind": "categorical"}, {"name": "x", "decimals": 2}]}
    zip_, x = infer_schema(table, overrides=overrides).columns
    assert (zip_.kind, x.decimals) == ("categorical", 2)
    assert zip_.reason == (
        "set in the schema (inferred: numeric, whole numbers with 20 distinct values)"
    )
    assert "; decimals set in the schema (inferred: None)" in x.reason
    assert (zip_.set_by_user, x.set_by_user) == (("kind",), ("decimals",))


def test_the_written_schema_can_be_passed_back_unchanged():
    table = every_type()
    schema = infer_schema(table)
    assert infer_schema(table, overrides=schema.to_json()) == schema


def test_a_schema_as_overrides_gives_the_same_schema_again():
    table = every_type()
    schema = infer_schema(table)
    assert infer_schema(table, overrides=as_overrides(schema)) == schema


@pytest.mark.parametrize("name", ["day", "number"])
def test_a_kind_in_the_written_schema_can_be_changed(name):
    days = [f"2020-01-{i % 28 + 1:02}" for i in range(60)]
    table = pa.table({"day": pa.array(days).cast(pa.date32()), "number": list(map(str, range(60)))})
    schema = infer_schema(table).to_json()
    (entry,) = (one for one in schema["columns"] if one["name"] == name)
    entry["kind"] = "categorical"
    found = infer_schema(table, overrides=schema)
    assert (found[name].kind, found[name].set_by_user) == ("categorical", ("kind",))


TABLE = {"age": [1, 2, 3, 4], "city": ["a", "b", "a", None]}
WRONG_ENTRIES = [
    (
        {"columns": [{"name": "aeg", "kind": "numeric"}]},
        "The schema names column 'aeg', which does not exist; the columns are: age, city. Did "
        "you mean 'age'?",
    ),
    (
        {"columns": [{"name": "age", "kind": "number"}]},
        "The schema sets kind of column 'age' to 'number'; it must be one of: numeric, datetime, "
        "categorical, constant, id.",
    ),
    (
        {"columns": [{"name": "city", "kind": "numeric"}]},
        "The schema sets kind of column 'city' to 'numeric', but its values are string with "
        "missing values; it can be: categorical, id.",
    ),
    (
        {"columns": [{"name": "city", "missing": "none"}]},
        "The schema says that column 'city' has no missing values, but it has 1. "
        "Set missing to learned or masked.",
    ),
    (
        {"columns": [{"name": "age", "max_bins": 1}]},
        "The schema sets max_bins of column 'age' to 1; "
        "it must be a whole number from 2 to 2147483648.",
    ),
    (
        {"columns": [{"name": "age", "colour": "red"}]},
        "The schema of column 'age' has an unknown entry 'colour'; "
        "you can set: kind, missing, missing_text, decimals, quantizer, max_bins.",
    ),
    (
        {"columns": [{"name": "age", "dtype": "double"}]},
        "The dtype of column 'age' cannot be changed (schema: 'double', table: 'int64'). Editable "
        "entries: kind, missing, missing_text, decimals, quantizer, max_bins.",
    ),
    (
        {"columns": [{"name": "age", "decimals": 2}]},
        "The schema sets decimals of column 'age' to 2, but its values are int64; "
        "only floats can be rounded.",
    ),
    (
        {"columns": [{"name": "age", "missing_text": "4"}]},
        "The schema sets missing_text of column 'age' to '4', but its values are int64; "
        "missing_text is for text. Leave these cells empty in the table.",
    ),
    (
        {"missing_text": -9},
        'The schema sets missing_text of the table to -9; it must be text, such as "NA".',
    ),
    (
        {"missingtext": "NA"},
        "The schema has an unknown entry 'missingtext'; it can have: columns, rules, missing_text.",
    ),
    (
        ["age"],
        'A schema is JSON of the form {"columns": [{"name": ..., "kind": ...}, ...]}; '
        "`tabmt schema TABLE` writes one to start from.",
    ),
]


@pytest.mark.parametrize(("overrides", "sentence"), WRONG_ENTRIES)
def test_a_wrong_entry_gets_a_sentence(overrides, sentence):
    with pytest.raises(UserError) as error:
        infer_schema(pa.table(TABLE), overrides=overrides)
    assert str(error.value) == sentence


WRONG_MISSING_TEXTS = [
    (
        pa.array(["1", "99", "150", "7"]),
        "99",
        "The schema sets missing_text of column 'x' to '99', which lies within the range of the "
        "column, so a generated value could be mistaken for a missing one. Leave these cells "
        "empty, or set its kind to categorical.",
    ),
    (
        pa.array(["1", "NA", "150", "-9"]),
        "-9",
        "Column 'x' contains 'NA' for missing values, but the schema sets missing_text to '-9'. "
        "Use one spelling in the table, or set missing_text of this column to null.",
    ),
    (
        pa.array(["1", "2", "150", "NA", "unknown", None]),
        "unknown",
        "Column 'x' contains 'NA' for missing values, but the schema sets missing_text to "
        "'unknown'. "
        "Use one spelling in the table, or set missing_text of this column to null.",
    ),
    (
        pa.array(["a", "NA", "a"]).dictionary_encode(),
        "NA",
        "missing_text ('NA') is for text columns, but column 'x' has a categorical type. Convert "
        "it to text, or set its missing_text to null.",
    ),
]


@pytest.mark.parametrize(("values", "missing_text", "sentence"), WRONG_MISSING_TEXTS)
def test_a_missing_text_that_cannot_be_used_gets_a_sentence(values, missing_text, sentence):
    with pytest.raises(UserError) as error:
        infer_schema(pa.table({"x": values}), overrides={"missing_text": missing_text})
    assert str(error.value) == sentence


def test_a_missing_text_to_which_values_could_be_rounded_gets_a_sentence():
    table = pa.table({"x": ["0.00", *(f"0.{i:02}" for i in range(2, 60))]})
    entry = {"name": "x", "missing_text": "0.00"}
    (column,) = infer_schema(table, overrides={"columns": [entry]}).columns
    assert column.missing_text == "0.00"
    with pytest.raises(UserError, match="a generated value could be mistaken for a"):
        infer_schema(table, overrides={"columns": [{**entry, "decimals": 0}]})
