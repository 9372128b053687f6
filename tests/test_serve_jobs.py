"""Jobs over HTTP: they run in their own processes, end when they are told, and survive restarts."""

import ast
import inspect
import shlex
import subprocess
import time

import pytest

import tabmt
from tabmt import TabMT
from tabmt.cli import main
from tabmt.serve.equivalents import job_code, job_command
from tabmt.serve.requests import JobRequest
from tests.serving import finished, running
from tests.tables import mixed_frame

CSV = mixed_frame(150).to_csv(index=False).encode()
LONG = {"minutes": 30}


def start(program, **request):
    (table, *_) = program.get("/api/tables").json() or [
        program.post("/api/tables", params={"name": "people.csv"}, content=CSV).json()
    ]
    made = program.post("/api/jobs", json={"table": table["id"], **request})
    assert made.status_code == 202, made.text
    return made.json()["id"]


def wait_for(program, job, stage, after=0, seconds=300):
    """Wait until a job is in a stage, by its events from a number on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        current = program.get(f"/api/jobs/{job}?after={after}").json()
        assert current["state"] in ("queued", "running"), current
        if any(event.get("stage") == stage and "step" in event for event in current["events"]):
            return
        time.sleep(0.1)
    raise AssertionError(f"no {stage} after {seconds} seconds")


@pytest.mark.slow
def test_a_fit_leaves_a_model_that_survives_a_restart(tmp_path):
    with running(tmp_path / "work") as served, served.client() as program:
        job = start(program, kind="fit", steps=20)
        ended = finished(program, job, 600)
        assert ended["state"] == "finished" and ended["files"] == ["model"]
        stages = [event["stage"] for event in ended["events"] if "stage" in event]
        assert stages[0] == "reading" and stages[-1] == "done" and "fitting" in stages
        assert ended["command"] == "tabmt fit people.csv --steps 20"
        (model,) = program.get("/api/models").json()
        assert model["id"] == job and model["name"] == "people.csv"
    with running(tmp_path / "work") as served, served.client() as program:
        assert program.get(f"/api/jobs/{job}").json()["state"] == "finished"
        rows = program.post(f"/api/models/{job}/sample", json={"rows": 5, "seed": 1})
        assert len(rows.text.splitlines()) == 5
        assert program.delete(f"/api/jobs/{job}").status_code == 204
        assert program.get("/api/models").json() == []


@pytest.mark.slow
def test_a_table_comes_to_a_verdict(tmp_path):
    with running(tmp_path / "work") as served, served.client() as program:
        job = start(program, kind="synthesize", steps=20, rows=100, target="group")
        ended = finished(program, job, 1200)
        assert ended["state"] == "finished", ended["error"]
        assert ended["verdict"]["outcome"] in ("safe", "unsafe", "undecided")
        assert ended["verdict"]["attacks"] and ended["verdict"]["rows"]["synthetic"] == 100
        assert set(ended["files"]) == {"model", "synthetic", "report", "scores", "readme"}
        report = program.get(f"/api/jobs/{job}/files/report")
        assert "sandbox" in report.headers["content-security-policy"]
        assert report.headers["x-frame-options"] == "SAMEORIGIN" and "<svg" in report.text
        synthetic = program.get(f"/api/jobs/{job}/files/synthetic")
        assert len(synthetic.text.splitlines()) == 101
        assert 'filename="people-synthetic.csv"' in synthetic.headers["content-disposition"]
        assert any("too few" in event.get("message", "") for event in ended["events"])


@pytest.mark.slow
def test_a_job_is_cancelled_resumed_and_stopped_with_what_it_has_learned(tmp_path):
    with running(tmp_path / "work") as served, served.client() as program:
        job = start(program, kind="fit", **LONG)
        second = start(program, kind="fit", **LONG)
        assert program.get(f"/api/jobs/{second}").json()["state"] == "queued"
        assert program.post(f"/api/jobs/{second}/cancel").json()["state"] == "cancelled"
        wait_for(program, job, "fitting")
        table = program.get("/api/tables").json()[0]["id"]
        assert program.delete(f"/api/tables/{table}").status_code == 422
        assert program.delete(f"/api/jobs/{job}").status_code == 422
        program.post(f"/api/jobs/{job}/cancel")
        cancelled = finished(program, job, 300)
        assert cancelled["state"] == "cancelled"
        program.post(f"/api/jobs/{job}/resume")
        wait_for(program, job, "fitting", len(cancelled["events"]))
        assert program.post(f"/api/jobs/{job}/stop").json()["is_stopping"]
        ended = finished(program, job, 600)
        assert ended["state"] == "finished" and ended["files"] == ["model"]


@pytest.mark.slow
def test_a_job_that_ran_when_the_server_ended_is_interrupted_and_continues(tmp_path):
    with running(tmp_path / "work") as served, served.client() as program:
        job = start(program, kind="fit", steps=3000)
        wait_for(program, job, "fitting")
    with running(tmp_path / "work") as served, served.client() as program:
        stopped = program.get(f"/api/jobs/{job}").json()
        assert stopped["state"] == "interrupted" and stopped["can_resume"]
        before = max(event.get("step", 0) for event in stopped["events"])
        program.post(f"/api/jobs/{job}/resume")
        wait_for(program, job, "fitting", len(stopped["events"]))
        events = program.get(f"/api/jobs/{job}?after={len(stopped['events'])}").json()["events"]
        assert min(event["step"] for event in events if "step" in event) >= before
        program.post(f"/api/jobs/{job}/stop")
        assert finished(program, job, 600)["state"] == "finished"


@pytest.mark.slow
def test_a_mistake_ends_a_job_with_a_sentence(tmp_path):
    few = mixed_frame(20).to_csv(index=False).encode()
    with running(tmp_path / "work") as served, served.client() as program:
        program.post("/api/tables", params={"name": "few.csv"}, content=few)
        job = start(program, kind="synthesize", steps=5)
        ended = finished(program, job, 300)
        assert ended["state"] == "failed" and ended["can_resume"]
        assert ended["error"] == (
            "The table has 20 rows, too few to train on some and test on others; it needs "
            "at least 40."
        )


def test_a_job_needs_what_it_reads(tmp_path, fitted):
    fitted.save(tmp_path / "people.tabmt")
    with (
        running(tmp_path / "work", [tmp_path / "people.tabmt"]) as served,
        served.client() as program,
    ):
        model = program.get("/api/models").json()[0]["id"]

        def error(request, status=422):
            response = program.post("/api/jobs", json=request)
            assert response.status_code == status
            return response.json()["error"]

        assert error({"kind": "fit"}) == (
            "The request is not valid: a job of kind fit needs table."
        )
        assert error({"kind": "fit", "table": "0123456789abcdef"}, 404) == (
            "There is no table with the id '0123456789abcdef'."
        )
        assert error({"kind": "pareto", "model": model}) == (
            "No real rows are stored with this model. Upload the training rows as `train` and "
            "other real rows as `test`."
        )
        assert program.post("/api/jobs/0123456789abcdef/stop").status_code == 404
        assert program.get("/api/jobs").json() == []


@pytest.mark.slow
def test_uploaded_rows_are_evaluated(tmp_path):
    tables = {f"{name}.csv": mixed_frame(120, seed).to_csv(index=False)
              for seed, name in enumerate(("synthetic", "train", "test"))}  # fmt: skip
    with running(tmp_path / "work") as served, served.client() as program:
        ids = {
            name: program.post("/api/tables", params={"name": name}, content=text).json()["id"]
            for name, text in tables.items()
        }
        request = {name.removesuffix(".csv"): table for name, table in ids.items()}
        job = program.post("/api/jobs", json={"kind": "evaluate", **request}).json()["id"]
        ended = finished(program, job, 1200)
        assert ended["state"] == "finished", ended["error"]
        assert set(ended["files"]) == {"report", "scores"} and ended["verdict"]["attacks"]
        assert ended["name"] == "synthetic.csv"


@pytest.mark.slow
def test_a_search_puts_a_front_beside_its_model(tmp_path, fitted):
    fitted.save(tmp_path / "people.tabmt")
    with (
        running(tmp_path / "work", [tmp_path / "people.tabmt"]) as served,
        served.client() as program,
    ):
        model = program.get("/api/models").json()[0]["id"]
        ids = [
            program.post(
                "/api/tables",
                params={"name": name},
                content=mixed_frame(150, seed).to_csv(index=False),
            ).json()["id"]
            for seed, name in enumerate(("train.csv", "test.csv"))
        ]
        request = {"kind": "pareto", "model": model, "train": ids[0], "test": ids[1], "trials": 2}
        job = program.post("/api/jobs", json=request).json()["id"]
        ended = finished(program, job, 1200)
        assert ended["state"] == "finished", ended["error"]
        front = program.get(f"/api/models/{model}").json()["front"]
        assert len(front["points"]) >= 1
        sampled = program.post(f"/api/models/{model}/sample", json={"rows": 5, "point": 1})
        assert len(sampled.text.splitlines()) == 5


# --- equivalents ---------------------------------------------------------------------------

TABLE = "0123456789abcdef"
REQUESTS = {
    "fit": {"table": TABLE, "minutes": 2, "target": "sex", "protect": 3, "seed": 4},
    "synthesize": {"table": TABLE, "minutes": 2, "rows": 50, "max_risk": 0.1},
    "evaluate": {"synthetic": TABLE, "train": TABLE, "target": "sex", "max_risk": 0.1},
    "pareto": {"model": TABLE, "target": "sex", "trials": 5, "minutes": 2, "seed": 4},
}
PATHS = {
    "fit": {"table": "it's.csv"},
    "synthesize": {"table": "people.csv"},
    "evaluate": {"synthetic": "synthetic.csv", "train": "train.csv"},
    "pareto": {"model": "m.tabmt", "train": "train.csv", "test": "test.csv"},
}
SCHEMA = {"columns": [{"name": "it's", "kind": "numeric"}]}


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["inferred", "kinds"])
def test_the_command_and_the_code_of_a_job_ask_for_the_same(kind, schema, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in PATHS[kind].values():
        (tmp_path / path).touch()
    given = {"kind": kind, **REQUESTS[kind]}
    request = JobRequest.model_validate(given).model_dump(exclude_none=True)
    *written, command = job_command(request, PATHS[kind], schema).splitlines()
    for line in written:
        subprocess.run(["sh", "-c", line], check=True)
    name, *words = shlex.split(command)[1:]
    click = main.commands[name]
    if kind == "pareto":
        click = click.commands[words.pop(0)]
    asked = click.make_context(name, words).params
    call = next(node for node in ast.walk(ast.parse(job_code(request, PATHS[kind], schema)))
                if isinstance(node, ast.Call) and node.keywords)  # fmt: skip
    in_python = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    if kind == "fit":
        fitted = ast.parse(job_code(request, PATHS[kind], schema)).body[1].value
        assert [ast.literal_eval(word.value) for word in fitted.keywords] == [schema] * bool(schema)
        in_python = {w.arg: ast.literal_eval(w.value) for w in fitted.func.value.keywords}
        inspect.signature(TabMT).bind(**in_python)
    elif kind != "evaluate":
        inspect.signature(getattr(tabmt, kind)).bind(*call.args, **in_python)
        in_python.pop("schema", None)
    for option, value in in_python.items():
        assert asked[option] == value, option
    set_here = set(REQUESTS[kind]) - set(PATHS[kind])
    assert set(in_python) >= set_here
    if written:
        assert tabmt.data.overrides.read_overrides("schema.json") == schema
        assert "--schema schema.json" in command
