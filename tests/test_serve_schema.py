"""Random requests, made from the description of the API, never find a bug."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests.serving import running

STARTS_PROCESSES = ("/api/jobs", "/api/jobs/{job}/resume")
EXAMPLES = 15  # for each operation


@pytest.fixture(scope="module")
def served(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    fitted.save(folder / "people.tabmt")
    with running(folder / "work", [folder / "people.tabmt"]) as server:
        yield server


def ask(operation, served, model):
    """Send random requests of one operation; returns how many."""
    documented = operation.definition.raw["responses"]
    headers = {"authorization": f"Bearer {served.token}"}
    tried = 0

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def send(case):
        nonlocal tried
        tried += 1
        if "model" in (case.path_parameters or {}) and tried % 3:
            case.path_parameters["model"] = model  # otherwise most are 404
        if isinstance(case.body, dict) and isinstance(case.body.get("rows"), int | float):
            case.body["rows"] = min(case.body["rows"], 100)
        response = case.call(base_url=served.address.rstrip("/"), headers=headers, timeout=300)
        assert response.status_code < 500, (operation.path, case.body)
        assert str(response.status_code) in documented, (operation.path, response.status_code)
        if response.status_code >= 400:
            assert set(response.json()) == {"error"}

    send()
    return tried


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_random_requests_are_answered_as_described(served):
    with served.client() as program:
        described = program.get("/api/openapi.json").json()
        model = program.get("/api/models").json()[0]["id"]
    schema = schemathesis.openapi.from_dict(described)
    operations = [result.ok() for result in schema.get_all_operations()]
    asked = [
        ask(operation, served, model)
        for operation in operations
        if operation.method.upper() != "POST" or operation.path not in STARTS_PROCESSES
    ]
    assert len(asked) > 20 and sum(asked) > 100
