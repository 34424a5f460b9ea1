"""Schemas of jobs by HTTP: publishes that are refused or warned of, on both ways, and the schemas themselves."""

from __future__ import annotations

import hashlib
import json

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.server.checks import check_settings
from babelgate.server.server import uvicorn_config
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served

JOB = "urn:babel:shop:order.placed"
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": JOB,
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"type": "integer"}, "note": {"type": "string"}},
    "additionalProperties": False,
}
GOOD = {"job": JOB, "data": {"total": 1}}
BAD = {"job": JOB, "data": {"total": "x", "more": 1}}
FAULTS = [
    ("/data/total", "schema_violation", 'data.total is not of type "integer".'),
    ("/data/more", "schema_violation", "data.more is not allowed."),
]
TEXT = json.dumps(SCHEMA, indent=2)
CORRECT = "urn:babel:shop:path/and space"


@pytest.fixture(scope="module", params=["direct", "application"])
def gateway(request, tmp_path_factory):
    """A client of a server of each way, with tokens."""
    state = tmp_path_factory.mktemp("state")
    (state / "schemas").mkdir()
    (state / "schemas" / "order.json").write_text(TEXT)
    (state / "schemas" / "odd.json").write_text(json.dumps({"$id": CORRECT}))
    rights = {"all": {"*": ["send", "listen", "manage"]}, "one": {"other": ["listen"]}, "none": {"other": []}}
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": given}
        for name, given in rights.items()
    ]
    queues: dict[str, dict[str, object]] = {
        mode: {"broker": "local", "schema": mode} for mode in ("enforce", "warn", "off")
    }
    for mode in ("enforce", "warn"):
        # The second is another name of the first: what is published there is not checked.
        queues[f"of-{mode}-1"] = {"broker": "local", "schema": mode, "schema_on_receive": True}
        queues[f"{mode}-*"] = {"broker": "local", "native_name": "of-{queue}"}
    file = {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}
    config = {"state_dir": str(state), "auth": {"tokens": tokens}, "brokers": {"local": file}, "queues": queues}
    path = state / "babelgate.yaml"
    path.write_text(yaml.safe_dump(config | {"schemas": {"directory": str(state / "schemas")}}))
    loaded = settings.load(path, {})
    served = Served(loaded, direct=request.param == "direct")
    headers = {"authorization": "Bearer all"}
    with (
        serving(uvicorn_config(served.build, loaded)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", headers=headers, timeout=60, verify=authorities()) as client,
    ):
        yield client


def faults(errors, at=""):
    return [(each["pointer"].removeprefix(at), each["code"], each["detail"]) for each in errors]


def violations(gateway, queue):
    metrics = gateway.get("/metrics").text
    name = "babelgate_schema_violations_total"
    lines = [line for line in metrics.splitlines() if line.startswith(name) and f'queue="{queue}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def received(gateway, queue):
    return len(gateway.post(f"/queues/{queue}/messages:receive", json={"max_messages": 100}).json()["messages"])


def test_enforce_refuses_with_pointers(gateway):
    before = violations(gateway, "enforce")
    for body, at in ((BAD, ""), ({"envelope": BAD, "ordering_key": None}, "/envelope")):
        answer = problem(gateway.post("/queues/enforce/messages", json=body), 422, "schema_violation")
        assert answer["retryable"] is False
        assert faults(answer["errors"], at) == FAULTS
    assert received(gateway, "enforce") == 0
    assert violations(gateway, "enforce") == before + 2
    assert gateway.post("/queues/enforce/messages", json=GOOD).status_code == 201
    assert received(gateway, "enforce") == 1


def test_a_job_without_a_schema_is_refused(gateway):
    answer = problem(gateway.post("/queues/enforce/messages", json={"job": "x", "data": {}}), 422, "schema_missing")
    assert answer["errors"][0]["pointer"] == "/job"


def test_a_large_body_is_checked(gateway):
    for total, status in ((1, 201), ("x", 422)):
        body = {"job": JOB, "data": {"total": total, "note": "n" * 100_000}}
        assert gateway.post("/queues/enforce/messages", json=body).status_code == status
    assert received(gateway, "enforce") == 1


def test_each_entry_of_a_batch_has_its_faults(gateway):
    answer = gateway.post("/queues/enforce/messages:batch", json=[GOOD, BAD, {"envelope": BAD}, {"job": 1}])
    assert answer.status_code == 207
    first, second, third, fourth = answer.json()["results"]
    assert first["status"] == 201
    assert faults(second["errors"]) == FAULTS
    assert faults(third["errors"], "/envelope") == FAULTS
    assert fourth["code"] == "missing_urn"
    assert received(gateway, "enforce") == 1


def test_warn_publishes_and_counts(gateway):
    before = violations(gateway, "warn")
    assert gateway.post("/queues/warn/messages", json=BAD).status_code == 201
    assert gateway.post("/queues/warn/messages:batch", json=[BAD, GOOD]).status_code == 201
    assert violations(gateway, "warn") == before + 2
    assert received(gateway, "warn") == 3


def test_off_does_not_look(gateway):
    assert gateway.post("/queues/off/messages", json=BAD).status_code == 201
    assert (violations(gateway, "off"), received(gateway, "off")) == (0, 1)


def test_a_received_message_is_checked(gateway):
    for queue in ("enforce", "warn"):
        for body in (BAD, GOOD, {"job": "x", "data": {}}):
            assert gateway.post(f"/queues/{queue}-1/messages", json=body).status_code == 201
    assert (received(gateway, "of-warn-1"), violations(gateway, "of-warn-1")) == (3, 2)
    assert (received(gateway, "of-enforce-1"), violations(gateway, "of-enforce-1")) == (1, 2)
    first, second = gateway.get("/queues/of-enforce-1/dead-letters").json()["dead_letters"]
    assert {first["error"], second["error"]} == {
        'schema_violation: data.total is not of type "integer".',
        "schema_missing: There is no schema of the job 'x'.",
    }
    assert {first["reason"], second["reason"]} == {"poison"}


def test_validate_says_what_a_publish_would(gateway):
    before = violations(gateway, "enforce"), violations(gateway, "warn")
    answer = problem(gateway.post("/queues/enforce/messages:validate", json=BAD), 422, "schema_violation")
    assert faults(answer["errors"]) == FAULTS
    warned = gateway.post("/queues/warn/messages:validate", json=BAD).json()
    assert faults(warned["warnings"]) == FAULTS
    assert gateway.post("/queues/enforce/messages:validate", json=GOOD).json()["warnings"] == []
    assert (violations(gateway, "enforce"), violations(gateway, "warn")) == before


def test_validate_says_what_a_receive_would(gateway):
    def answer(queue, data, job=JOB):
        stored = gateway.post("/queues/off/messages:validate", json={"job": job, "data": data}).json()["envelope"]
        return gateway.post(f"/queues/{queue}/messages:validate?mode=consume", json=stored)

    refused = problem(answer("of-enforce-1", BAD["data"]), 422, "schema_violation")
    assert faults(refused["errors"]) == FAULTS
    assert faults(problem(answer("of-enforce-1", {}, "x"), 422, "schema_missing")["errors"])[0][0] == "/job"
    assert faults(answer("of-warn-1", BAD["data"]).json()["warnings"]) == FAULTS
    assert answer("of-enforce-1", GOOD["data"]).json()["warnings"] == []
    # This route checks nothing on receive.
    assert answer("enforce", BAD["data"]).json()["warnings"] == []


def test_faults_of_an_event_point_into_the_event(gateway):
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": JOB, "data": BAD["data"]}
    answer = gateway.post(
        "/queues/enforce/messages", content=json.dumps(event), headers={"content-type": "application/cloudevents+json"}
    )
    assert faults(problem(answer, 422, "schema_violation")["errors"]) == FAULTS


def test_schemas_are_served_as_they_are(gateway):
    order, odd = gateway.get("/schemas").json()["schemas"]
    assert order == {"job": JOB, "path": "order.json", "sha256": hashlib.sha256(TEXT.encode()).hexdigest()}
    for path in (JOB, JOB.replace(":", "%3A")):
        answer = gateway.get(f"/schemas/{path}")
        assert (answer.status_code, answer.text) == (200, TEXT)
        unchanged = gateway.get(f"/schemas/{path}", headers={"if-none-match": answer.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["etag"] == answer.headers["etag"]
    assert gateway.get("/schemas/urn:babel:shop:path%2Fand%20space").json() == {"$id": odd["job"]}
    problem(gateway.get("/schemas/nope"), 404, "schema_not_found")
    problem(gateway.get("/schemas/%FF"), 400, "invalid_parameter")


def test_any_right_shows_schemas(gateway):
    for path in ("/schemas", f"/schemas/{JOB}", "/schemas/nope"):
        allowed = gateway.get(path, headers={"authorization": "Bearer one"})
        assert allowed.status_code == (404 if path.endswith("nope") else 200)
        problem(gateway.get(path, headers={"authorization": "Bearer none"}), 403, "forbidden")
        problem(gateway.get(path, headers={"authorization": "Bearer bad"}), 401, "unauthenticated")


def test_a_route_needs_a_directory(tmp_path):
    path = tmp_path / "babelgate.yaml"
    path.write_text("queues: {a: {broker: local, schema: enforce}}")
    with pytest.raises(ConfigError) as refused:
        settings.load(path, {})
    assert refused.value.key == "queues.a.schema"


def test_a_bad_directory_is_refused_at_the_start(tmp_path):
    (tmp_path / "a.json").write_text('{"$id": "a", "properties": {"n": {"type": "nope"}}}')
    with pytest.raises(ConfigError, match=r"a\.json at /properties/n/type"):
        check_settings(settings.load(None, {}, {"state_dir": str(tmp_path), "schemas": {"directory": str(tmp_path)}}))
