"""Which requests the server answers: each rule of access and each limit, against a real one."""

import contextlib
import logging
import os
import stat
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tabmt.cli import main
from tabmt.serve import access, jobs, models, sampling, service, workspace
from tests.serving import running

LOGGED_OUT = (
    "This needs the token in the address that `tabmt serve` has printed; open that address."
)
OTHER_PAGE = "This request comes from another page."
NO_CSRF = "This request lacks the page's own token; reload the page."
CSV = b"a,b\n" + b"".join(b"%d,x%d\n" % (i, i % 3) for i in range(60))


@pytest.fixture(scope="module")
def served(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    fitted.save(folder / "people.tabmt")
    with running(folder / "work", [folder / "people.tabmt"]) as server:
        yield server


def csrf_of(page):
    return page.get("/").text.partition('name="csrf" content="')[2].partition('"')[0]


def error_of(response):
    assert response.headers["content-type"] == "application/json"
    return response.json()["error"]


# --- the token -----------------------------------------------------------------------------


def test_without_the_token_nothing_is_answered(served):
    for path in ("/api/models", "/api/jobs", "/api/openapi.json", "/api/limits", "/api/nothing"):
        response = httpx.get(f"{served.address}{path[1:]}")
        assert response.status_code == 401 and error_of(response) == LOGGED_OUT
        assert response.headers["www-authenticate"] == "Bearer"
    page = httpx.get(served.address)
    assert page.status_code == 401 and "Please open the printed address" in page.text
    assert httpx.post(f"{served.address}api/tables?name=a.csv", content=CSV).status_code == 401


@pytest.mark.parametrize("header", ["Bearer wrong", "Basic {}", "Bearer", "Bearer {}x", "{}"])
def test_a_wrong_token_is_refused(served, header):
    headers = {"authorization": header.format(served.token)}
    response = httpx.get(f"{served.address}api/models", headers=headers)
    assert response.status_code == 401 and error_of(response) == LOGGED_OUT


def test_the_token_in_the_address_is_exchanged_for_a_cookie(served):
    response = httpx.get(served.address, params={"token": served.token})
    assert response.status_code == 303 and response.headers["location"] == "/"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and served.token not in cookie
    assert httpx.get(served.address, params={"token": "wrong"}).status_code == 401


def test_the_api_takes_the_token_in_a_header_only(served):
    response = httpx.get(f"{served.address}api/models", params={"token": served.token})
    assert response.status_code == 401
    with served.client() as program:
        assert program.get("/api/models").status_code == 200


def test_a_login_ends(served, monkeypatch):
    monkeypatch.setattr(access, "SESSION_SECONDS", -1)
    with served.page() as page:
        assert page.get("/api/models").status_code == 401


def test_the_oldest_login_makes_room_for_the_newest(served, monkeypatch):
    with served.page() as first:
        monkeypatch.setattr(access, "MOST_SESSIONS", 1)
        with served.page() as second:
            assert second.get("/api/models").status_code == 200
        assert first.get("/api/models").status_code == 401


# --- other pages ---------------------------------------------------------------------------


def test_a_page_changes_things_only_with_its_own_token(served):
    with served.page() as page:
        body = {"rows": 1}
        model = page.get("/api/models").json()[0]["id"]
        refused = page.post(f"/api/models/{model}/sample", json=body)
        assert refused.status_code == 403 and error_of(refused) == NO_CSRF
        wrong = page.delete("/api/jobs/0123456789abcdef", headers={"x-tabmt-csrf": "0" * 64})
        assert wrong.status_code == 403 and error_of(wrong) == NO_CSRF
        headers = {"x-tabmt-csrf": csrf_of(page)}
        assert page.post(f"/api/models/{model}/sample", json=body, headers=headers).is_success
    with served.page() as other:  # the token of another login
        refused = other.post(f"/api/models/{model}/sample", json=body, headers=headers)
        assert refused.status_code == 403


@pytest.mark.parametrize("host", ["example.org", "example.org:{}", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_host_name_is_refused(served, host):
    with served.client(headers={"host": host.format(served.opened.access.port)}) as program:
        response = program.get("/api/models")
    assert response.status_code == 400


@pytest.mark.parametrize("origin", ["https://example.org", "http://127.0.0.1:1", "null"])
def test_requests_of_other_pages_are_refused(served, origin):
    with served.client(headers={"origin": origin}) as program:
        response = program.get("/api/models")
    assert response.status_code == 403 and error_of(response) == OTHER_PAGE


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_cookie_counts_only_for_the_page_itself(served, site):
    with served.page() as page:
        response = page.get("/api/models", headers={"sec-fetch-site": site})
        assert response.status_code == 403 and error_of(response) == OTHER_PAGE
        assert page.get("/api/models", headers={"sec-fetch-site": "same-origin"}).is_success


def test_every_answer_forbids_what_the_page_does_not_need(served):
    with served.page() as page:
        for path in ("/", "/static/style.css", "/api/models", "/nothing", "/api/nothing"):
            headers = page.get(path).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers and "access-control-allow-origin" not in headers
    refused = httpx.get(served.address)
    assert refused.headers["content-security-policy"] == policy


def test_only_the_loopback_address_is_bound(served):
    assert served.opened.socket.getsockname()[0] == "127.0.0.1"


# --- paths and limits ----------------------------------------------------------------------


def test_no_path_is_taken(served):
    with served.client() as program:
        for name in ("../a.csv", "/tmp/a.csv", "b\\a.csv", ".a.csv", "a\0.csv", "", "a" * 300):
            response = program.post("/api/tables", params={"name": name}, content=CSV)
            assert response.status_code == 422
        for path in ("/api/models/..%2f..%2fx", "/api/tables/../../etc", "/static/../app.py",
                     "/static/..%2fapp.py", "/api/jobs/0123456789abcdef/files/..%2fjob.json",
                     "/api/jobs/0123456789abcdef/files/train"):  # fmt: skip
            assert program.get(path).status_code in (404, 422)
    assert not list((served.opened.service.workspace.path / "tables").iterdir())


def test_bodies_have_a_limit_whether_or_not_they_say_their_length(served, monkeypatch):
    monkeypatch.setattr(access, "MOST_UPLOAD", 100)
    monkeypatch.setattr(access, "MOST_BODY", 50)

    def pieces():
        for _ in range(20):
            yield b"x" * 10

    with served.client() as program:
        for content in (CSV, pieces()):
            response = program.post("/api/tables", params={"name": "a.csv"}, content=content)
            assert response.status_code == 413
            assert error_of(response) == "The body of this request may have at most 100 bytes."
        response = program.post("/api/jobs", content=pieces())
        assert response.status_code == 413
    assert not list((served.opened.service.workspace.path / "tables").iterdir())


def test_a_request_has_a_limit_of_rows(served):
    with served.client() as program:
        model = program.get("/api/models").json()[0]["id"]
        response = program.post(f"/api/models/{model}/sample", json={"rows": 10**8 + 1})
        assert response.status_code == 422
        assert error_of(response) == (
            "The request is not valid: rows: Input should be less than or equal to 100000000."
        )
        many = {"rows": [{}] * 10_001}
        assert program.post(f"/api/models/{model}/complete", json=many).status_code == 422


def test_what_is_too_much_at_a_time_is_refused(served, monkeypatch):
    monkeypatch.setattr(sampling, "MOST_STREAMS", 0)
    monkeypatch.setattr(sampling, "MOST_WAITING", 0)
    monkeypatch.setattr(workspace, "MOST_TABLES", 0)
    monkeypatch.setattr(jobs, "MOST_QUEUED", 0)
    with served.client() as program:
        model = program.get("/api/models").json()[0]["id"]
        for count in (10, 10**6):
            response = program.post(f"/api/models/{model}/sample", json={"rows": count})
            assert response.status_code == 429 and response.headers["retry-after"] == "5"
        response = program.post("/api/tables", params={"name": "a.csv"}, content=CSV)
        assert error_of(response) == "There are 0 tables already; delete one first."


def test_a_file_has_a_limit_of_columns_and_of_its_name(served, monkeypatch):
    monkeypatch.setattr(service, "MOST_COLUMNS", 2)
    with served.client() as program:
        wide = program.post("/api/tables", params={"name": "a.csv"}, content=b"a,b,c\n1,2,3\n")
        assert error_of(wide) == (
            "'a.csv' has 3 columns; the page accepts at most 2. Use `tabmt synthesize`."
        )
        long = program.post("/api/tables", params={"name": f"{'a' * 200}.csv"}, content=CSV)
        assert error_of(long) == "A file name must have 1 to 200 printable characters."
        assert program.get("/api/tables").json() == []


def test_conditions_have_limits(served):
    with served.client() as program:
        model = program.get("/api/models").json()[0]["id"]

        def status(path, **body):
            return program.post(f"/api/models/{model}/{path}", json=body).status_code

        many = {f"column {number}": {"equals": 1} for number in range(501)}
        assert status("sample", rows=1, where=many) == 422
        assert status("sample", rows=1, where=["group = a"] * 501) == 422
        assert status("sample", rows=1, where={"group": {"one_of": ["a"] * 1001}}) == 422
        assert status("distributions", rows=5_001) == 422
        assert status("distributions", rows=5) == 200


def test_a_request_has_a_limit_of_time(served, monkeypatch):
    monkeypatch.setattr(service, "REQUEST_SECONDS", 1e-6)
    with served.client() as program:
        model = program.get("/api/models").json()[0]["id"]
        response = program.post(f"/api/models/{model}/sample", json={"rows": 500})
        assert response.status_code == 503 and response.headers["retry-after"] == "5"
        assert error_of(response) == (
            "This took longer than 0 seconds; ask for fewer rows, or relax a condition."
        )
        monkeypatch.undo()
        assert program.post(f"/api/models/{model}/sample", json={"rows": 5}).status_code == 200


def test_a_stream_that_takes_too_long_is_cut(served, monkeypatch):
    monkeypatch.setattr(sampling, "STREAM_SECONDS", 0.0)
    with served.client() as program:
        model = program.get("/api/models").json()[0]["id"]
        with pytest.raises(httpx.RemoteProtocolError):  # the client sees that rows are missing
            program.post(f"/api/models/{model}/sample", json={"rows": 20_001, "format": "csv"})
    assert served.opened.service.streams.number == 0


def test_only_the_last_used_models_stay_in_memory(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "MOST_LOADED", 2)
    files = [tmp_path / f"{name}.tabmt" for name in "abc"]
    for path in files:
        fitted.save(path)
    known = models.Models(workspace.Workspace(tmp_path / "work"), [str(path) for path in files])
    first, second, third = (entry.id for entry in known.entries())
    for model in (first, second, first, third):
        known.load(model)
    assert known.in_memory(second) is None
    assert known.in_memory(first) is not None and known.in_memory(third) is not None


# --- what is said and kept -----------------------------------------------------------------


def test_a_bug_is_one_sentence_and_the_log_has_no_cell(served, monkeypatch, caplog):
    cell = "Wilhelmina " + "Quist"

    def fail(*_):
        raise ValueError(cell)

    monkeypatch.setattr(served.opened.service.models, "load", fail)
    with served.client() as program, caplog.at_level(logging.DEBUG):
        model = program.get("/api/models").json()[0]["id"]
        response = program.get(f"/api/models/{model}")
    assert response.status_code == 500
    assert (
        error_of(response) == "An internal error occurred; the messages of `tabmt serve` say where."
    )
    assert "ValueError in /api/models" in caplog.text and "Quist" not in caplog.text


def test_no_cell_is_logged(served, caplog):
    with served.client() as program, caplog.at_level(logging.DEBUG, logger="tabmt"):
        model = program.get("/api/models").json()[0]["id"]
        for where in ({"city": {"equals": "Oslo"}}, {"city": {"equals": "Wilhelmina"}}):
            program.post(f"/api/models/{model}/sample", json={"rows": 3, "where": where})
        program.post(f"/api/models/{model}/complete", json={"rows": [{"city": "Oslo"}]})
    assert "Oslo" not in caplog.text and "Wilhelmina" not in caplog.text


def test_errors_name_files_as_people_do(served):
    with served.client() as program:
        response = program.post("/api/tables", params={"name": "bad.parquet"}, content=b"no")
    assert response.status_code == 422
    assert error_of(response).startswith("'bad.parquet' cannot be read as parquet: ")
    assert str(served.opened.service.workspace.path) not in response.text


def test_the_work_folder_is_for_its_owner_only(served):
    with served.client() as program:
        made = program.post("/api/tables", params={"name": "a.csv"}, content=CSV).json()
    folder = served.opened.service.workspace.path
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
        if path.name != ".lock"
    }
    expected = {path: 0o700 if path.is_dir() else 0o600 for path in modes}
    assert modes == expected
    with served.client() as program:
        assert program.delete(f"/api/tables/{made['id']}").status_code == 204


def test_a_second_server_on_the_same_folder_is_refused(served):
    folder = str(served.opened.service.workspace.path)
    result = CliRunner().invoke(main, ["serve", "--folder", folder, "--port", "0", "--no-browser"])
    assert result.exit_code == 2 and "is in use by another run" in result.stderr


def test_a_port_in_use_and_a_file_that_is_no_model_are_one_sentence(served, tmp_path):
    port = str(served.opened.access.port)
    command = ["serve", "--folder", str(tmp_path / "work"), "--no-browser"]
    result = CliRunner().invoke(main, [*command, "--port", port])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: Port {port} cannot be used: ")
    (tmp_path / "a.csv").write_bytes(CSV)
    result = CliRunner().invoke(main, [*command, "--port", "0", str(tmp_path / "a.csv")])
    assert result.exit_code == 2 and "is not a TabMT model" in result.stderr


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    import sys

    for name in [n for n in sys.modules if n.startswith("tabmt.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with contextlib.chdir(tmp_path):
        result = CliRunner().invoke(main, ["serve", "--no-browser"])
    assert result.exit_code == 2
    assert "pip install 'tabmt[serve]'" in result.stderr
    assert not os.listdir(tmp_path) and Path(tmp_path).exists()
