"""A short run of the fault campaign (benchmarks/faults.py), and hostile inputs by name."""

import json
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.faults import mutate
from tabmt import TabMT, UserError
from tabmt.conditions.condition import parse_sentence
from tabmt.data.files import read_file, write_file
from tabmt.data.infer import infer_schema
from tabmt.data.schema import Schema
from tabmt.json_files import json_text
from tabmt.method.train import training_bytes
from tabmt.model.model_file import read_file as read_model
from tabmt.model.model_file import write_file as write_model
from tabmt.printable import printable
from tabmt.rules.rule import Rule
from tests.conftest import TINY
from tests.tables import mixed_frame
from tests.test_cli import run

SETTINGS = {**TINY, "steps": 3, "threads": 1}


def test_damaged_and_hostile_files_are_refused_or_work():
    result = mutate(280, seed=11)
    assert result["faults"] == []
    assert result["outcomes"]["damaged model"] == {"refused": 20}
    assert result["outcomes"]["damaged checkpoint"] == {"refused": 20}


# --- model files ---------------------------------------------------------------------------


def test_every_flipped_byte_of_a_model_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "m.tabmt")
    content = (tmp_path / "m.tabmt").read_bytes()
    for position in range(0, len(content), 997):
        changed = bytearray(content)
        changed[position] ^= 1
        (tmp_path / "changed.tabmt").write_bytes(changed)
        with pytest.raises(UserError):
            TabMT.load(tmp_path / "changed.tabmt")


def hostile(fitted, tmp_path, change) -> str:
    """What is said about a model with other content and a right checksum."""
    fitted.save(tmp_path / "m.tabmt")
    metadata, tensors = read_model(tmp_path / "m.tabmt", "model")
    metadata = {k: v for k, v in metadata.items() if k not in ("format", "kind")}
    change(metadata, tensors)
    write_model(tmp_path / "hostile.tabmt", "model", metadata, tensors)
    with pytest.raises(UserError) as error:
        TabMT.load(tmp_path / "hostile.tabmt").sample(2, seed=1)
    return str(error.value)


def test_weights_that_are_no_numbers_are_refused_at_load(fitted, tmp_path):
    def change(metadata, tensors):
        tensors["net/norm.bias"][0] = torch.nan

    assert "the weight norm.bias holds NaN or infinity" in hostile(fitted, tmp_path, change)


def test_weights_that_lead_to_infinity_are_refused_when_rows_are_drawn(fitted, tmp_path):
    def change(metadata, tensors):
        tensors["net/output.bias"][:] = 3e38
        tensors["net/norm.weight"][:] = 3e38

    assert "The network returned NaN or infinite probabilities" in hostile(fitted, tmp_path, change)


def test_a_format_of_many_digits_does_not_fill_the_memory(fitted, tmp_path):
    def change(metadata, tensors):
        metadata["schema"]["columns"][2]["format"] = "fixed:999999999"

    assert "is not a format of text" in hostile(fitted, tmp_path, change)


def test_a_file_of_an_older_format_is_named_as_such(fitted, tmp_path):
    fitted.save(tmp_path / "m.tabmt")
    content = (tmp_path / "m.tabmt").read_bytes()
    old = content.replace(b'\\"format\\": 5', b'\\"format\\": 3')
    assert old != content
    (tmp_path / "old.tabmt").write_bytes(old)
    with pytest.raises(UserError) as error:
        TabMT.load(tmp_path / "old.tabmt")
    assert str(error.value) == (
        f"{str(tmp_path / 'old.tabmt')!r} has format 3, but this version of TabMT reads format 5. "
        "Load it with the version that wrote it, or fit again."
    )


# --- JSON, TOML, rules, conditions ---------------------------------------------------------


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_deep_and_large_json_is_one_sentence(tmp_path, content):
    mixed_frame().to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.json").write_text(content)
    result = run("schema", tmp_path / "t.csv", "--schema", tmp_path / "s.json")
    assert result.exit_code == 2 and "is not valid JSON: " in result.stderr


def test_deep_toml_is_one_sentence(tmp_path):
    mixed_frame().to_csv(tmp_path / "t.csv", index=False)
    for text in ("a = " + "[" * 50_000, ".".join("a" * 5000) + " = 1"):
        (tmp_path / "s.toml").write_text(text)
        result = run("fit", tmp_path / "t.csv", "-o", tmp_path / "m.tabmt", "--config",
                     tmp_path / "s.toml")  # fmt: skip
        assert result.exit_code == 2 and "is not valid TOML" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "'a' * 99999999999 == t", "[1] * 99999999999 == x", "(" * 9000, "-" * 9000 + "1 > x",
        "if" + " " * 9000, "x > 1" + " and x > 1" * 900, "9" * 9000 + " > x", "x" * 20_000,
        "matches(t, '((a{0,1000}){0,1000}){0,1000}')",
    ],
)  # fmt: skip
def test_rules_neither_hang_nor_fill_the_memory(text):
    started = time.monotonic()
    with pytest.raises(UserError):
        rule = Rule.parse("r", text)
        columns = {"x": np.ones(3), "t": np.array(["a" * 50 + "!"] * 3)}
        rule.violations(columns, dict.fromkeys(columns, np.zeros(3, bool)))
        raise UserError("it holds, or not")
    assert time.monotonic() - started < 2


def test_patterns_are_matched_in_linear_time():
    rule = Rule.parse("r", "matches(t, '(a+)+$')")
    started = time.monotonic()
    violated = rule.violations({"t": np.array(["a" * 5000 + "!", "aa"])}, {"t": np.zeros(2, bool)})
    assert violated.tolist() == [True, False] and time.monotonic() - started < 1


def test_conditions_do_not_hang():
    started = time.monotonic()
    for sentence in (
        "a in " + " " * 9000,
        "a in 1" + " ." * 4000,
        "a " * 4900 + "in",
        "a" * 20_000,
    ):
        with pytest.raises(UserError):
            parse_sentence(sentence)
    assert time.monotonic() - started < 2


# --- tables --------------------------------------------------------------------------------


def test_csv_of_spreadsheets_is_read(tmp_path):
    text = "sep=;\nname;size\nÅse;1,5\nBo;2,5\n"
    (tmp_path / "hint.csv").write_text(text)
    (tmp_path / "utf16.csv").write_bytes(text.encode("utf-16"))
    for name in ("hint.csv", "utf16.csv"):
        table, _ = read_file(tmp_path / name)
        assert table.to_pydict() == {"name": ["Åse", "Bo"], "size": ["1,5", "2,5"]}
    (tmp_path / "unmarked.csv").write_bytes(text.encode("utf-16-le"))
    with pytest.raises(UserError, match="UTF-16 without a byte order mark"):
        read_file(tmp_path / "unmarked.csv")


def test_cells_of_many_megabytes_are_one_sentence(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "x" * 5_000_000 + ",1\n")
    with pytest.raises(UserError, match=r"has a row of more than 1,048,576 bytes"):
        infer_schema(tmp_path / "t.csv")
    with pytest.raises(UserError) as error:
        infer_schema(pd.DataFrame({"a": ["x" * 5_000_000, "y"]}))
    assert str(error.value) == (
        "Column 'a' has a cell of 5,000,000 bytes; TabMT learns text of up to 65,536. Shorten the "
        "cells, or remove the column."
    )


@pytest.mark.parametrize("metadata", [b"{", b"[]", b'{"columns": 3}', b"\xff\xfe", b"[" * 5000])
def test_malformed_metadata_of_pandas_is_left_out_with_a_message(tmp_path, metadata, caplog):
    table = pa.table({"a": [1, 2] * 20, "b": ["x", "y"] * 20})
    pq.write_table(table.replace_schema_metadata({"pandas": metadata}), tmp_path / "t.parquet")
    rows = TabMT(**SETTINGS).fit(tmp_path / "t.parquet").sample(3, seed=1)
    assert list(rows.columns) == ["a", "b"]
    assert "The pandas metadata of this table is malformed" in caplog.text


def test_types_that_change_are_said(caplog):
    frame = pl.DataFrame(
        {
            "wide": pl.Series([1, 2] * 20, dtype=pl.Int128),
            "enum": pl.Series(["x", "y"] * 20, dtype=pl.Enum(["x", "y"])),
        }
    )
    rows = TabMT(**SETTINGS).fit(frame).sample(3, seed=1)
    assert [str(dtype) for dtype in rows.dtypes] == ["Int64", "Categorical"]
    assert "Column 'wide' is Int128; it is returned as Int64." in caplog.text
    assert "Column 'enum' is an Enum; it is returned as a Categorical." in caplog.text
    huge = pl.DataFrame({"wide": pl.Series([2**100, 1] * 20, dtype=pl.Int128)})
    with pytest.raises(UserError, match="numbers that do not fit in 64 bits"):
        TabMT(**SETTINGS).fit(huge)


def test_broken_text_and_single_columns_are_one_sentence():
    named = pd.DataFrame([[1]], columns=pd.Index(["a\udc80"], dtype=object))
    for frame in (pd.DataFrame({"a": ["x\ud800"]}, dtype=object), named):
        with pytest.raises(UserError, match="half of a surrogate pair"):
            infer_schema(frame)
    with pytest.raises(UserError, match="is a column, not a table"):
        infer_schema(pa.chunked_array([[1, 2]]))


def test_dates_outside_every_calendar_are_one_sentence():
    table = pa.table({"day": pa.array([1, 2**30], pa.int32()).cast(pa.date32())})
    with pytest.raises(UserError) as error:
        infer_schema(table)
    assert str(error.value) == (
        "Column 'day' has date32[day] values that are not in the years 1 to 9999; remove or repair "
        "them."
    )


def test_a_table_too_wide_for_the_memory_is_refused_before_training(monkeypatch):
    frame = pd.DataFrame(np.random.default_rng(0).integers(0, 3, (40, 60)))
    monkeypatch.setattr("tabmt.model.fit.available_memory", lambda: 10**6)
    with pytest.raises(UserError, match=r"Training 60 columns would need about 0.0 GB of memory"):
        TabMT(**SETTINGS).fit(frame)


def test_the_predicted_memory_grows_with_the_columns_but_is_bounded(fitted):
    narrow = training_bytes(fitted.model_.net, 64)
    wide = pd.DataFrame(np.random.default_rng(0).integers(0, 3, (40, 400)))
    net = TabMT(**{**SETTINGS, "steps": 0}).fit(wide).model_.net
    assert narrow < training_bytes(net, 64) < 2**31


# --- what is shown and written -------------------------------------------------------------


def test_formulas_in_csv_raise_a_warning_and_can_be_escaped(tmp_path, caplog):
    table = pa.table({"a": ["=1+2", "-5", "x", "@y", None, "+1,5", "-"], "b": [-1] * 7})
    schema = Schema.of_table(table.schema)
    write_file(tmp_path / "t.csv", schema, [table])
    assert "Text in column 'a' begins with = + - or @" in caplog.text
    assert (tmp_path / "t.csv").read_text().splitlines()[1] == "=1+2,-1"
    caplog.clear()
    write_file(tmp_path / "t.csv", schema, [table], escape_formulas=True)
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines[1:] == ["'=1+2,-1", "-5,-1", "x,-1", "'@y,-1", ",-1", '"+1,5",-1', "-,-1"]
    assert caplog.text == ""


def test_control_characters_of_a_table_never_reach_the_terminal(tmp_path):
    name = "a\x1b[2J\u202eb"
    frame = pd.DataFrame({name: ["x\x1b]0;title\x07", "y"] * 20, "c": [1, 2] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = tmp_path / "m.tabmt"
    runs = [
        run("schema", tmp_path / "t.csv"),
        run("fit", tmp_path / "t.csv", "-o", model, "--steps", 2, "--width", 16, "--threads", 1),
        run("info", model),
        run("info", model, "--json"),
        run("sample", model, "-n", 2, "--where", f"{name} = \x1bz", "-o", tmp_path / "o.csv"),
        run("sample", model, "-n", 2, "--where", "\x1b = 1", "-o", tmp_path / "o.csv"),
    ]
    assert [r.exit_code for r in runs] == [0, 0, 0, 0, 2, 2]
    for result in runs:
        shown = result.output.replace("\n", "")
        assert shown == printable(shown)
    assert json.loads(runs[0].stdout)["columns"][0]["name"] == name  # escaped, not changed


def test_json_escapes_what_a_terminal_would_obey():
    assert json_text({"a": "\x1b\x9b\u202e\ud800é"}) == '{"a": "\\u001b\\u009b\\u202e\\ud800é"}'
