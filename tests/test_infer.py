import datetime as dt
import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from tabmt import TabMT
from tabmt.cli import main
from tabmt.config import CodecConfig
from tabmt.data import infer
from tabmt.data.dataset import Dataset, InMemory
from tabmt.data.infer import Inference, infer_schema
from tabmt.data.schema import Schema, Source
from tabmt.data.typed_columns import parse_column
from tabmt.errors import UserError
from tests.conftest import TINY
from tests.tables import every_type, mixed_frame

THIRTY = list(range(30))
KINDS = [
    ("age", [*THIRTY[::-1], 5, 5], "numeric", "whole numbers with 30 distinct values"),
    ("price", [i / 8 for i in THIRTY], "numeric", "numbers with 30 distinct values"),
    ("grade", [1, 2, 3] * 10, "categorical", "3 distinct whole numbers: treated as categories"),
    ("grade", [1.0, 2.0, None] * 10, "categorical",
     "2 distinct whole numbers: treated as categories"),
    ("tiny", [3, 1, 4, 1, 5], "numeric", "whole numbers with 4 distinct values"),
    ("flag", [True, False] * 5, "categorical", "booleans"),
    ("city", ["Oslo", "Bergen"] * 5, "categorical", "text with 2 distinct values"),
    ("name", [f"person {i}!" * (i + 1) for i in THIRTY], "id", "text that is unique in every row"),
    ("words", [f"w{i}" for i in THIRTY] + ["w1", "w2"], "categorical",
     "text with 30 distinct values; almost all are unique: with kind id, new ones would be "
     "generated"),
    ("number", list(range(100, 130)), "id", "consecutive whole numbers"),
    ("customer_id", [i * i for i in THIRTY], "id",
     "unique whole numbers in a column named like a key"),
    ("CustomerId", [i * i for i in THIRTY], "id",
     "unique whole numbers in a column named like a key"),
    ("", [i * i for i in THIRTY], "id", "unique whole numbers in a column without a name"),
    ("__index_level_0__", [i * i for i in THIRTY], "id",
     "unique whole numbers in a column named like a key"),
    ("paid", [i * i for i in THIRTY], "numeric", "whole numbers with 30 distinct values"),
    ("day", [dt.date(2020, 1, 1 + i % 28) for i in THIRTY], "datetime",
     "values of type date32[day]"),
    ("same", [7] * 5, "constant", "the same value in every row"),
    ("same", [7, None] * 5, "categorical", "1 distinct whole numbers: treated as categories"),
    ("nothing", [None] * 5, "constant", "every value is missing"),
    ("00", ["00123", "00124"] * 5, "categorical", "text with 2 distinct values"),
    ("text", [str(i / 8) for i in THIRTY], "numeric",
     "text read as numbers; numbers with 30 distinct values"),
    ("wide", [2**62 * (-1) ** i for i in THIRTY], "categorical",
     "numbers with more digits than float64 has"),
    ("inf", [math.inf, *[i / 8 for i in THIRTY]], "numeric",
     "numbers with 31 distinct values; infinite values have bins of their own"),
    ("infs", [math.inf, -math.inf], "categorical", "only infinite values"),
    ("nan", [math.nan, *[i / 8 for i in THIRTY]], "numeric",
     "numbers with 30 distinct values; 1 NaN are read as missing"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "kind", "reason"), KINDS)
def test_kind_and_reason(name, values, kind, reason):
    config = CodecConfig(protect=0)  # test_protection.py has what changes with it
    (column,) = infer_schema(pa.table({name: values}), config=config).columns
    assert (column.kind, column.reason) == (kind, reason)


def test_missing_values_are_learned_unless_set_otherwise():
    table = pa.table({"a": [1, None, 2], "b": [1, 2, 3]})
    assert modes(infer_schema(table)) == ["learned", "none"]
    assert modes(infer_schema(table, config=CodecConfig(missing="masked"))) == ["masked", "none"]


def modes(schema) -> list[str]:
    return [column.missing for column in schema.columns]


def test_text_of_a_csv_file_gets_a_type_and_text_of_a_frame_keeps_its_own():
    table = pa.table({"a": ["1.5", "2.0"]})
    assert infer_schema(InMemory(table, Source("csv")))["a"].dtype == "double"
    assert infer_schema(InMemory(table, Source("pandas")))["a"].dtype == "string"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (pa.table({}), "The table has no columns."),
        (pa.table({"a": []}), "The table has no rows, so there is nothing to learn."),
        (
            pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
            "Column names must be unique, but these are repeated: 'a'.",
        ),
        (
            pa.table({"a": [[1], [2]]}),
            "Column 'a' has type list<item: int64>, but TabMT learns numbers, text, booleans, "
            "dates and times. Convert the column to text, or remove it.",
        ),
        (
            pa.table({"a": pa.array(range(30), pa.timestamp("s", tz="Europe/Nowhere"))}),
            "Column 'a' has the time zone 'Europe/Nowhere', which is unknown here; convert its "
            "times to UTC or to a zone of the IANA time zone database.",
        ),
    ],
)
def test_a_table_that_cannot_be_learned_gets_a_sentence(table, sentence):
    with pytest.raises(UserError) as error:
        infer_schema(table)
    assert str(error.value) == sentence


# --- text that stands for a missing value --------------------------------------------------

WITH_MISSING_TEXTS = {
    "sex": ["m", "f", "NA"] * 10,
    "income": ["unknown", *map(str, range(100, 187, 3))],
    "age": ["-9", *map(str, range(20, 78, 2))],
    "code": ["0", "1", "NA"] * 10,
    "grade": ["A", "NA", None] * 10,
    "nothing": ["NA"] * 30,
}
OWN_TEXTS = {"income": "unknown", "age": "-9"}


@pytest.fixture(params=["csv", "arrow"])
def dataset(request) -> Dataset:
    return InMemory(pa.table(WITH_MISSING_TEXTS), Source(request.param))


def set_by_user() -> dict:
    own = [{"name": name, "missing_text": text} for name, text in OWN_TEXTS.items()]
    return {"missing_text": "NA", "columns": own}


def test_a_user_can_set_the_text_of_missing_values(dataset):
    before = infer_schema(dataset)
    assert before["sex"].missing == "none"
    assert before["sex"].reason == (
        "text with 3 distinct values; 'NA' is a word here, unless missing_text says that it is "
        "missing"
    )
    schema = infer_schema(dataset, overrides=set_by_user())
    texts = {column.name: column.missing_text for column in schema.columns}
    assert texts == dict.fromkeys(WITH_MISSING_TEXTS, "NA") | OWN_TEXTS
    kinds = [column.kind for column in schema.columns]
    assert kinds == ["categorical", "numeric", "numeric", "categorical", "categorical", "constant"]
    assert set(modes(schema)[:5]) == {"learned"}
    assert schema["grade"].reason == (
        "'NA' is missing, set in the schema; empty cells too, and they are returned as 'NA'; "
        "text with 1 distinct values"
    )
    assert infer_schema(dataset, overrides=schema.to_json()) == schema


def test_a_missing_text_added_to_a_written_schema_makes_its_other_entries_outdated(dataset):
    """`tabmt schema` writes every entry: income was an id without its missing_text."""
    written = infer_schema(dataset).to_json()
    assert written["columns"][1]["kind"] == "id"
    for entry in written["columns"]:
        if entry["name"] in OWN_TEXTS:
            entry["missing_text"] = OWN_TEXTS[entry["name"]]
    schema = infer_schema(dataset, overrides=set_by_user())
    assert infer_schema(dataset, overrides={**written, "missing_text": "NA"}) == schema


def test_what_a_user_sets_beside_a_missing_text_stays_even_if_it_is_what_was_inferred_before():
    words = pa.table({"income": ["unknown", *map(str, range(100, 187, 3))] * 2})
    for dataset in (InMemory(words, Source("csv")), InMemory(words)):
        assert infer_schema(dataset)["income"].kind == "id"
        schema = infer_schema(dataset, overrides={"missing_text": "unknown"})
        assert schema["income"].kind == "numeric"
        (entry,) = schema.to_json()["columns"]
        overrides = {"columns": [entry | {"kind": "categorical"}]}
        again = infer_schema(dataset, overrides=overrides)
        assert (again["income"].kind, again["income"].missing_text) == ("categorical", "unknown")
        assert again["income"].set_by_user == ("kind", "missing_text")
        assert infer_schema(dataset, overrides=again.to_json()) == again


def test_a_kind_that_a_user_sets_beside_a_missing_text_stays(dataset):
    before = infer_schema(dataset)
    schema = infer_schema(dataset, overrides=set_by_user())
    for name in OWN_TEXTS:
        entry = next(one for one in schema.to_json()["columns"] if one["name"] == name)
        for kind in {"categorical", before[name].kind} - {"id"}:
            overrides = {"columns": [entry | {"kind": kind}]}
            assert infer_schema(dataset, overrides=overrides)[name].kind == kind


@pytest.mark.parametrize("dtype", ["int8", "float", "categories"])
def test_the_reason_says_if_a_missing_text_is_a_value_or_occurs_nowhere(dtype):
    numbers = pa.array([1, 2, -9] * 10)
    numbers = numbers.dictionary_encode() if dtype == "categories" else numbers.cast(dtype)
    table = pa.table({"x": numbers, "y": ["a", "b", None] * 10})
    overrides = {"missing_text": "-9", "columns": [{"name": "y", "missing_text": "zz"}]}
    x, y = infer_schema(table, overrides=overrides).columns
    assert x.reason.endswith("; '-9' is a value here: missing_text is for text")
    assert y.reason.endswith("; no row contains 'zz', the missing_text of the schema")


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_missing_text_in_every_type_of_text(dtype):
    """Also beside a schema that was written when it was a word."""
    words = pa.array(["0", "1", "NA"] * 10)
    table = pa.table({"code": words.cast(dtype), "word": pa.array(["a", "b", "NA"] * 10, dtype)})
    before = infer_schema(table)
    assert modes(before) == ["none", "none"]
    after = infer_schema(table, overrides={**before.to_json(), "missing_text": "NA"})
    assert modes(after) == ["learned", "learned"]
    one = {"columns": [{"name": "code", "missing_text": None}], "missing_text": "NA"}
    assert modes(infer_schema(table, overrides=one)) == ["none", "learned"]


def run_schema(table: Path, output: Path, *options: str) -> dict:
    result = CliRunner().invoke(main, ["schema", str(table), "-o", str(output), *options])
    assert result.exit_code == 0, result.output
    return json.loads(output.read_text())


def test_a_missing_text_added_to_a_schema_file_is_inferred_anew_and_the_rest_stays(tmp_path):
    """As a user works: `tabmt schema` writes a file, which is edited and passed back twice."""
    incomes = ["unknown", *map(str, range(100, 187, 3))]
    columns = {"income": incomes, "age": incomes, "zip": incomes, "city": ["a", "b"] * 15}
    pd.DataFrame({name: values * 2 for name, values in columns.items()}).to_csv(
        tmp_path / "t.csv", index=False
    )
    table, path = tmp_path / "t.csv", tmp_path / "schema.json"
    written = run_schema(table, path)
    income, age, zip_, _ = written["columns"]
    assert {entry["kind"] for entry in (income, age, zip_)} == {"id"}
    assert {entry["dtype"] for entry in (income, age, zip_)} == {"string"}
    assert not any("set_by_user" in entry for entry in written["columns"])

    age["max_bins"], age["quantizer"], zip_["kind"] = 7, "uniform", "categorical"
    path.write_text(json.dumps(written))
    edited, path = path, tmp_path / "edited.json"
    written = run_schema(table, path, "--schema", str(edited))
    income, age, zip_, city = written["columns"]
    assert (age["set_by_user"], zip_["set_by_user"]) == (["quantizer", "max_bins"], ["kind"])

    for entry in (income, age, zip_):
        entry["missing_text"] = "unknown"
    path.write_text(json.dumps(written))
    schema = Schema.from_json(run_schema(table, tmp_path / "again.json", "--schema", str(path)))
    for name in ("income", "age"):
        column = schema[name]
        assert (column.kind, column.dtype, column.missing) == ("numeric", "int64", "learned")
        assert (column.format, column.missing_text) == ("integer", "unknown")
        assert column.reason.startswith(
            "text read as whole numbers; 'unknown' is missing, set in the schema; "
        )
    assert schema["income"].set_by_user == ("missing_text",)
    assert schema["age"].set_by_user == ("missing_text", "quantizer", "max_bins")
    assert (schema["age"].quantizer, schema["age"].max_bins) == ("uniform", 7)
    assert (schema["zip"].kind, schema["zip"].missing) == ("categorical", "learned")
    assert schema["zip"].set_by_user == ("kind", "missing_text")
    assert schema.to_json()["columns"][3] == city
    fitted = TabMT(steps=2, **TINY).fit(table, schema=tmp_path / "again.json")
    assert fitted.schema_ == schema


# --- parsed once ---------------------------------------------------------------------------

ODD_COLUMNS = {
    "padded": ["00123", "00124", "7"] * 10,
    "number": [str(i / 4) for i in THIRTY],
    "rounded": ["-0.0", *(f"{i / 10:.1f}" for i in range(29))],
    "with NA": ["NA", *map(str, range(100, 129))],
    "code": ["0", "1", "NA"] * 10,
    "both": ["NA", "", None] * 10,
    "quoted": ["", "a", None] * 10,
    "question": ["?", *(f"{i}.50" for i in range(29))],
    "day": [f"2020-01-{i % 28 + 1:02}" for i in THIRTY],
    "moment": ["-", *(f"2020-01-01 10:00:{i:02}.120" for i in range(29))],
    "zoned": [f"2020-01-01T10:00:{i:02}Z" for i in THIRTY],
    "key": [f"AB-{i:05}" for i in THIRTY],
    "number key": [str(i * i) for i in THIRTY],
    "same": ["7"] * 30,
    "empty": [None] * 30,
    "infinite": ["inf", "nan", *(str(i / 8) for i in range(28))],
    "unknown": ["unknown", *map(str, range(100, 129))],
    "": ["x", "y,z", 'say "hi"'] * 10,
}


def odd_frame() -> pd.DataFrame:
    return pd.DataFrame(ODD_COLUMNS, dtype=object)


def odd_csv(path: Path) -> Path:
    """Missing cells are empty, empty texts are quoted."""
    lines = [",".join(_cell(name) for name in ODD_COLUMNS)]
    for row in zip(*ODD_COLUMNS.values(), strict=True):
        lines.append(",".join("" if value is None else _cell(value) for value in row))
    path.write_text("\n".join(lines) + "\n")
    return path


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def frame_csv(path: Path) -> Path:
    mixed_frame().to_csv(path, index=False)
    return path


UNKNOWN = {"columns": [{"name": "unknown", "missing_text": "unknown"}], "missing_text": "NA"}
TABLES = {  # a table, or how its file is written; its columns; what a user sets
    "pandas": (mixed_frame(), mixed_frame().columns, None),
    "csv": (frame_csv, mixed_frame().columns, None),
    "every type": (every_type(), every_type().column_names, None),
    "odd csv": (odd_csv, ODD_COLUMNS, None),
    "odd text": (odd_frame(), ODD_COLUMNS, None),
    "odd csv, missing_text": (odd_csv, set(ODD_COLUMNS) - {"both"}, UNKNOWN),
    "odd text, missing_text": (odd_frame(), set(ODD_COLUMNS) - {"both"}, UNKNOWN),
}


@pytest.mark.parametrize(
    ("table", "name"),
    [(table, name) for table, (_, names, _) in TABLES.items() for name in sorted(names)],
)
def test_an_inferred_column_holds_the_values_that_parsing_it_gives(tmp_path, table, name):
    """So a column has to be parsed only once."""
    source, _, overrides = TABLES[table]
    dataset = Dataset.open(source(tmp_path / "t.csv") if callable(source) else source)
    array = dataset.column(name)
    typed = Inference.of(dataset, CodecConfig(), overrides).column(name, array)
    parsed = parse_column(array, typed.column)
    assert typed.column == parsed.column
    assert typed.values.type == parsed.values.type
    assert typed.values.equals(parsed.values)
    if parsed.dictionary is None:
        assert typed.dictionary is None
    else:
        assert typed.dictionary.equals(parsed.dictionary)
    assert (typed.missing_count > 0) == (typed.column.missing == "learned" or len(typed.known) == 0)


# --- tables that are inferred from some of their rows --------------------------------------


def files_that_differ(folder: Path, suffix: str) -> Path:
    """Six files of 50 rows; the second, fourth and sixth hold what the others do not."""
    folder.mkdir()
    for number in range(6):
        rows, odd = range(50), number % 2 == 1
        frame = pd.DataFrame(
            {
                "number": [(number * 31 + i * 7) % 97 for i in rows],
                "word": [f"w{number}{i % 3}" for i in rows],
                "constant": ["lb" if odd else "kg"] * 50,
                "missing": [None if odd and i < 5 else i / 4 for i in rows],
                "format": [f"{i}.5" if odd else f"{i}.50" for i in rows],
                "padded": [f"{i:03}" if number == 5 else str(100 + i) for i in rows],
                "day": [f"{i % 28 + 1:02}.01.2020" for i in rows],
                "marked": ["NA" if odd and i == 7 else str(i) for i in rows],
                "named": ["none" if odd and i == 7 else str(i) for i in rows],
                "same": [1.5] * 50,
            }
        )
        path = folder / f"{number}.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    return folder


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_large_table_has_the_same_schema_whether_it_is_inferred_or_fitted(
    tmp_path, monkeypatch, caplog, suffix
):
    folder = files_that_differ(tmp_path / "parts", suffix)
    overrides = {"columns": [{"name": "named", "missing_text": "none"}]}
    whole = infer_schema(folder, overrides=overrides)
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    caplog.set_level("INFO", "tabmt")
    schema = infer_schema(folder, overrides=overrides)
    assert (
        "inferring kinds and bins from 150 of 300 rows, and categories from all rows"
        in caplog.messages
    )
    differing = ["constant", "missing", "format", "padded", "marked", "named"]
    assert [message for message in caplog.messages if message.startswith("column ")] == [
        f"column {name!r} differs outside the sampled rows; reading the whole column"
        for name in differing
    ]
    for name in schema.names:  # counts in a reason may be those of the sampled rows
        assert replace(schema[name], reason="") == replace(whole[name], reason="")
        assert name not in differing or schema[name].reason == whole[name].reason
    fitted = TabMT(steps=2, **TINY).fit(folder, schema=overrides)
    assert fitted.schema_ == schema


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_schema_file_of_a_large_table_can_be_passed_back(tmp_path, monkeypatch, suffix):
    folder = files_that_differ(tmp_path / "parts", suffix)
    overrides = {"columns": [{"name": "named", "missing_text": "none"}]}
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 150)
    written = json.loads(json.dumps(infer_schema(folder, overrides=overrides).to_json()))
    again = infer_schema(folder, overrides=written)
    for column, entries in zip(again.columns, written["columns"], strict=True):
        assert column.set_by_user == tuple(entries.get("set_by_user", ()))
        assert (column.kind, column.dtype) == (entries["kind"], entries["dtype"])
    written["columns"][0]["kind"] = "categorical"
    assert infer_schema(folder, overrides=written)["number"].set_by_user == ("kind",)
