"""Models and tables over HTTP: what comes back is what the library gives."""

import asyncio
import io
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import serve as load_test
from tabmt.cli import main
from tabmt.conditions.condition import between, known, missing, one_of, parse_conditions
from tabmt.serve import equivalents, requests
from tabmt.serve.formats import plain_rows
from tabmt.serve.limits import ROWS_AT_ONCE
from tabmt.serve.sampling import Task
from tests.serving import running
from tests.tables import mixed_frame


@pytest.fixture(scope="module")
def served(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    fitted.save(folder / "people.tabmt")
    with running(folder / "work", [folder / "people.tabmt"]) as server:
        yield server


@pytest.fixture(scope="module")
def program(served):
    with served.client() as client:
        yield client


@pytest.fixture(scope="module")
def model(program):
    (entry,) = program.get("/api/models").json()
    assert entry["name"] == "people" and entry["is_given"]
    return f"/api/models/{entry['id']}"


def lines(response):
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def children():
    """The processes that this one has started."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(process) for task in tasks for process in task.read_text().split()]


def error_of(response, status=422):
    assert response.status_code == status, response.text
    return response.json()["error"]


# --- rows ----------------------------------------------------------------------------------


def test_a_seed_gives_the_rows_of_the_library_in_every_format(program, model, fitted):
    body = {"rows": 30, "seed": 5}
    expected = fitted.sample(30, seed=5, output="arrow")

    def sampled(kind):
        return program.post(f"{model}/sample", json={**body, "format": kind})

    plain = expected.cast(pa.schema([(f.name, f.type) for f in expected.schema]))
    assert lines(sampled("ndjson")) == plain_rows(expected)
    parquet = pyarrow.parquet.read_table(io.BytesIO(sampled("parquet").content))
    arrow = pyarrow.ipc.open_stream(sampled("arrow").content).read_all()
    csv = pd.read_csv(io.BytesIO(sampled("csv").content))
    assert plain_rows(parquet) == plain_rows(arrow) == plain_rows(plain)
    assert len(csv) == 30 and list(csv.columns) == fitted.schema_.names
    assert csv["height"].tolist() == pytest.approx(plain["height"].to_pylist())


def test_conditions_are_met_as_objects_and_as_sentences(program, model):
    objects = {
        "group": {"one_of": ["a", "b"]},
        "height": {"low": 150, "high": 158},
        "city": {"missing": False},
    }
    sentences = ["group in {a, b}", "height in 150..158", "city is not missing"]
    for where in (objects, sentences):
        rows = lines(program.post(f"{model}/sample", json={"rows": 50, "where": where}))
        assert len(rows) == 50
        assert {row["group"] for row in rows} <= {"a", "b"}
        assert all(150 <= row["height"] <= 158 and row["city"] for row in rows)
    gone = {"rows": 20, "where": {"city": {"missing": True}}}
    assert all(row["city"] is None for row in lines(program.post(f"{model}/sample", json=gone)))


def test_dates_are_chosen_as_the_columns_show_them(program, model):
    columns = {c["name"]: c for c in program.get(f"{model}/columns").json()["columns"]}
    low, high = (columns["since"]["values"][index] for index in (5, 8))
    where = {"since": {"low": low, "high": high}}
    rows = lines(program.post(f"{model}/sample", json={"rows": 20, "where": where}))
    assert all(low <= row["since"][:10] <= high for row in rows)


def test_a_mistake_is_one_sentence(program, model):
    def sentence(where, **more):
        body = {"rows": 1, "where": where, **more}
        return error_of(program.post(f"{model}/sample", json=body))

    assert "Did you mean 'city'?" in sentence({"cities": {"equals": "Oslo"}})
    assert sentence({"city": {"equals": "Olso"}}) == (
        "The condition on column 'city' asks for 'Olso', which is not a value of this model "
        "(unknown, or too rare to be stored). The closest are: 'Oslo'."
    )
    assert sentence({"city": {}}) == (
        "The request is not valid: where.city: give exactly one of: equals, one_of, "
        "low and high, missing (1 more)."
    )
    assert sentence({}, point=1) == "This model has no Pareto front; remove `point`."
    assert error_of(program.post(f"{model}/sample", json={"rows": 1, "file": "x"})) == (
        "The request is not valid: file: Extra inputs are not permitted."
    )
    assert error_of(program.get("/api/models/0123456789abcdef"), 404) == (
        "There is no model with the id '0123456789abcdef'."
    )


def test_small_requests_that_wait_are_drawn_together_and_divided(program, model):
    asked = [(count, group) for count in (1, 2, 3, 7) for group in ("a", "b", "c")] * 3

    def sample(one):
        count, group = one
        where = {"group": {"equals": group}}
        return lines(program.post(f"{model}/sample", json={"rows": count, "where": where}))

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(sample, asked))
    for (count, group), rows in zip(asked, answers, strict=True):
        assert len(rows) == count and {row["group"] for row in rows} == {group}


def test_requests_with_different_conditions_share_their_work(served, program, model):
    """They are drawn in one go: a network is prepared for each set of conditions, not for each
    request."""
    service = served.opened.service
    loaded = service.models.load(model.rpartition("/")[2])
    prepared, go = [], threading.Event()
    hook = loaded.model.model_.net.embedding.smoothing.register_forward_hook(
        lambda *_: prepared.append(1)
    )
    service._small.submit(Task(None, 0, None, lambda _: [go.wait(60)]))

    def sample(number):
        where = {"group": {"equals": "abc"[number % 3]}}
        return lines(program.post(f"{model}/sample", json={"rows": 2, "where": where}))

    try:
        with ThreadPoolExecutor(12) as pool:
            answers = pool.map(sample, range(12))
            until = time.monotonic() + 30
            while len(service._small._waiting) < 12 and time.monotonic() < until:
                time.sleep(0.01)
            go.set()
            for number, rows in enumerate(answers):
                assert [row["group"] for row in rows] == ["abc"[number % 3]] * 2
    finally:
        go.set()
        hook.remove()
    assert len(prepared) == 3


def test_a_mistake_in_one_waiting_request_is_not_that_of_the_others(program, model):
    def complete(city):
        return program.post(f"{model}/complete", json={"rows": [{"city": city}] * 2})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(complete, ["Oslo", "nowhere"] * 6))
    for index, answer in enumerate(answers):
        if index % 2:
            assert error_of(answer).startswith("Column 'city' has 2 cells with 1 value that the ")
        else:
            assert [row["city"] for row in lines(answer)] == ["Oslo", "Oslo"]


def test_known_cells_stay_and_the_others_are_drawn(program, model):
    given = [{"group": "a", "height": 155.5}, {"city": "Oslo", "visits": "3"}, {}]
    rows = lines(program.post(f"{model}/complete", json={"rows": given, "seed": 1}))
    assert (rows[0]["group"], rows[0]["height"]) == ("a", 155.5)
    assert (rows[1]["city"], rows[1]["visits"]) == ("Oslo", 3)
    assert len(rows) == 3 and all(row["height"] is not None for row in rows)


def test_missing_values_are_filled_and_rows_are_scored(program, model, fitted):
    row = plain_rows(fitted.sample(1, seed=1, output="arrow"))[0]
    filled = lines(program.post(f"{model}/impute", json={"rows": [{**row, "weight": None}]}))
    assert filled[0]["weight"] is not None and filled[0]["height"] == row["height"]
    (score,) = lines(program.post(f"{model}/score", json={"rows": [row]}))
    assert score["log_prob"] < 0 and score["least_likely"] in row


@pytest.mark.slow
def test_the_rows_of_an_uploaded_table_are_completed_filled_and_scored(
    program, model, fitted, tmp_path
):
    path = tmp_path / "given.csv"
    mixed_frame(60, seed=9).to_csv(path, index=False)
    upload = {"params": {"name": "given.csv"}, "content": path.read_bytes()}
    table = program.post("/api/tables", **upload).json()["id"]

    def answered(what):
        body = {"table": table, "seed": 2}
        return lines(program.post(f"{model}/{what}", json=body, timeout=300))

    for what in ("complete", "impute", "score"):
        expected = getattr(fitted, what)(path, seed=2, output="arrow")
        assert answered(what) == plain_rows(expected), what
    assert program.delete(f"/api/tables/{table}").status_code == 204
    gone = program.post(f"{model}/score", json={"table": table})
    assert error_of(gone, 404) == f"There is no table with the id '{table}'."


@pytest.mark.slow
def test_many_rows_are_streamed_and_none_is_lost_or_repeated(program, model, fitted):
    body = {"rows": 40_000, "seed": 3, "format": "arrow"}
    with program.stream("POST", f"{model}/sample", json=body, timeout=600) as response:
        assert response.status_code == 200
        table = pyarrow.ipc.open_stream(response.read()).read_all()
    expected = pa.concat_tables(fitted.sample_batches(40_000, seed=3))
    assert table.num_rows == 40_000
    assert plain_rows(table) == plain_rows(expected)
    wrong = {"rows": 40_000, "where": {"city": {"equals": "nowhere"}}}
    assert "nowhere" in error_of(program.post(f"{model}/sample", json=wrong, timeout=600))


@pytest.mark.slow
def test_a_stream_ends_with_its_client(served, program, model):
    streams = served.opened.service.streams
    body = {"rows": 10**7, "format": "csv"}
    with program.stream("POST", f"{model}/sample", json=body, timeout=600) as response:
        pieces = response.iter_bytes()  # the connection ends with it
        assert response.status_code == 200 and next(pieces)
        assert streams.number == 1
        if sys.platform == "linux":  # in another session its niceness would not count
            (process,) = children()
            assert os.getsid(process) == os.getsid(0) and os.getpgid(process) == process
            assert os.getpriority(os.PRIO_PROCESS, process) > os.getpriority(os.PRIO_PROCESS, 0)
        assert len(lines(program.post(f"{model}/sample", json={"rows": 10}))) == 10
    for _ in range(100):
        program.get("/api/limits")
        if streams.number == 0:
            break
    assert streams.number == 0


@pytest.mark.slow
def test_two_hundred_clients_at_once_get_their_rows(tmp_path, monkeypatch):
    """A short run of the benchmark, which counts the rows of every answer and fails at an error."""
    monkeypatch.setattr(load_test, "STREAM_ROWS", 2 * ROWS_AT_ONCE)
    server, address, token = load_test.start(tmp_path)
    with server:
        try:
            done = asyncio.run(load_test.load(address, token, 200, 10, server.pid))
        finally:
            server.terminate()
            server.wait()
    assert done["small_requests"] >= 200 and done["stream_rows"] >= 4 * ROWS_AT_ONCE
    assert done["memory_mb"]["highest"] < done["memory_mb"]["before"] + 300


# --- distributions -------------------------------------------------------------------------


def test_each_column_has_shares_that_add_up_and_conditions_change_them(program, model):
    known_columns = program.get(f"{model}/columns").json()["columns"]
    where = {"group": {"equals": "a"}}
    drawn = program.post(f"{model}/distributions", json={"where": where, "rows": 400}).json()
    for column, share in zip(known_columns, drawn["columns"], strict=True):
        assert column["name"] == share["name"]
        assert len(column["shares"]) == len(share["shares"])
        if column["form"] != "fixed":
            for one in (column, share):
                whole = sum(one["shares"]) + one["others"] + one["missing"]
                assert whole == pytest.approx(1, abs=0.01)
        if column["edges"]:
            assert len(column["edges"]) == len(column["values"]) == len(column["shares"]) + 1
    groups = dict(zip(known_columns[1]["values"], drawn["columns"][1]["shares"], strict=True))
    assert groups["a"] == 1.0
    assert all(row["group"] == "a" for row in drawn["rows"])


def test_the_shown_commands_give_the_same_rows(program, model, fitted, tmp_path, monkeypatch):
    body = {
        "where": {"group": {"equals": "a"}, "height": {"high": 155}},
        "temperature": 0.8, "seed": 4, "rows": 10, "download_rows": 12,
    }  # fmt: skip
    shown = program.post(f"{model}/distributions", json=body).json()
    words = shlex.split(shown["command"])
    assert words[:2] == ["tabmt", "sample"] and words[-2:] == ["-o", "rows.csv"]
    namespace = {}
    exec(shown["python"], namespace)
    asked = {key: body[key] for key in ("where", "temperature", "seed")}
    rows = lines(program.post(f"{model}/sample", json={**asked, "rows": 12}))
    assert namespace["rows"]["height"].tolist() == [row["height"] for row in rows]


@pytest.mark.parametrize(
    "cells", [{"group": "a", "height": "155.5"}, {"city": "Oslo", "weight": 80.0}]
)
def test_the_commands_of_completion_give_the_same_rows(
    program, model, tmp_path, monkeypatch, cells
):
    body = {"rows": [cells] * 3, "seed": 4, "temperature": 0.8}
    shown = program.post(f"{model}/complete/commands", json=body).json()
    rows = lines(program.post(f"{model}/complete", json=body))
    namespace = {}
    exec(shown["python"], namespace)
    assert namespace["rows"]["visits"].tolist() == [row["visits"] for row in rows]
    monkeypatch.chdir(tmp_path)
    written, command = shown["command"].splitlines()
    subprocess.run(["sh", "-c", written], check=True)
    done = CliRunner().invoke(main, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    assert pd.read_csv("rows.csv")["visits"].tolist() == [row["visits"] for row in rows]
    nothing = program.post(f"{model}/complete/commands", json={"rows": [{}]})
    assert error_of(nothing) == "Give at least one cell of each row."


VALUES = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1).filter(
    lambda text: text.strip() == text and not ("'" in text and '"' in text and "`" in text)
)


@given(VALUES, st.lists(VALUES, min_size=1, max_size=3), st.integers(-5, 5), st.integers(6, 9))
def test_conditions_as_sentences_mean_the_same(name, values, low, high):
    if any(mark in text for text in [name, *values] for mark in "'\"`"):
        return  # the language has no way to write a quote inside quotes in a set
    for condition in (
        one_of(*values), missing(), known(), between(low, high), between(low=low, closed="neither"),
    ):  # fmt: skip
        read = parse_conditions(equivalents.sentences(name, condition))
        assert list(read) == [name]
        assert repr(read[name]).replace("'", "") == repr(condition).replace("'", "")


# --- tables --------------------------------------------------------------------------------


def test_a_table_shows_its_columns_and_takes_other_kinds(program):
    content = mixed_frame().to_csv(index=False).encode()
    made = program.post("/api/tables", params={"name": "people.csv"}, content=content)
    assert made.status_code == 201
    table = made.json()
    assert (table["name"], table["rows"]) == ("people.csv", 200)
    kinds = {column["name"]: column["kind"] for column in table["schema"]["columns"]}
    assert kinds["visits"] == "categorical" and kinds["height"] == "numeric"
    address = f"/api/tables/{table['id']}"
    changed = program.put(f"{address}/kinds", json={"kinds": {"visits": "numeric"}}).json()
    column = next(c for c in changed["schema"]["columns"] if c["name"] == "visits")
    assert column["kind"] == "numeric" and column["reason"].startswith("text read as whole numbers")
    assert changed["overrides"] == {"visits": "numeric"}
    wrong = program.put(f"{address}/kinds", json={"kinds": {"city": "datetime"}})
    assert "city" in error_of(wrong)
    assert program.get(address).json()["overrides"] == {"visits": "numeric"}
    assert program.delete(address).status_code == 204
    assert program.get(address).status_code == 404


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"a\n1\n", "'a.txt' has an unknown file extension; it must be one of: "),
        ("a.csv", b"", "'a.csv' is empty; a CSV file begins with a line of column names."),
        ("a.csv", b"a,a\n1,2\n", "Column names must be unique, but these are repeated: 'a'."),
    ],
)
def test_a_file_that_is_no_table_leaves_nothing(program, name, content, sentence):
    response = program.post("/api/tables", params={"name": name}, content=content)
    assert error_of(response).startswith(sentence)
    assert program.get("/api/tables").json() == []


@pytest.mark.parametrize("table", [mixed_frame(), pd.DataFrame({"x": range(50), "y": [1] * 50})])
def test_every_page_is_shown(served, program, model, table):
    content = table.to_csv(index=False).encode()
    made = program.post("/api/tables", params={"name": "a<b>.csv"}, content=content).json()
    pages = ["/", f"/tables/{made['id']}", model.removeprefix("/api")]
    texts = [program.get(page).text for page in pages]
    assert all(text.endswith("</html>") and "</main>" in text for text in texts)
    assert all("a&lt;b&gt;.csv" in text and "a<b>" not in text for text in texts[:2])
    assert program.get("/tables/0123456789abcdef").status_code == 404
    program.delete(f"/api/tables/{made['id']}")


def test_every_example_of_the_api_is_valid(program):
    described = program.get("/api/openapi.json").json()["components"]["schemas"]
    checked = 0
    for name, schema in described.items():
        for example in schema.get("examples", []):
            getattr(requests, name).model_validate(example)
            checked += 1
    assert checked >= 7
