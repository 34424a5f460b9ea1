"""The AsyncAPI document by HTTP: what it says to whom, and that validators accept it."""

from __future__ import annotations

import json

import httpx
import jsonschema
import pytest

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from tests.harness.asyncapi import ORDER, SCHEMAS, SECRET, configured
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served


@pytest.fixture(scope="module", params=["direct", "application"])
def gateway(request, tmp_path_factory):
    """A client of a server of each way, with tokens. One of its brokers is down."""
    state = tmp_path_factory.mktemp("state")
    path = configured(state)
    loaded = settings.load(path, {})
    served = Served(loaded, direct=request.param == "direct")
    headers = {"authorization": "Bearer all"}
    with (
        serving(uvicorn_config(served.build, loaded)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", headers=headers, timeout=60, verify=authorities()) as client,
    ):
        yield client


def document(gateway, token="all"):
    answer = gateway.get("/asyncapi.json", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_manager_sees_every_route(gateway):
    made = document(gateway)
    assert {name: each["address"] for name, each in made["channels"].items()} == {
        "checked": "/queues/checked/messages",
        "checked:receive": "/queues/checked/messages:receive",
        "checked:native": "checked",
        "orders.*.in-*": "/queues/orders.{part}.in-{part_2}/messages",
        "orders.*.in-*:receive": "/queues/orders.{part}.in-{part_2}/messages:receive",
        "orders.*.in-*:native": "shop.orders.{part}.in-{part_2}",
        "orders.*": "/queues/orders.{part}/messages",
        "orders.*:receive": "/queues/orders.{part}/messages:receive",
        "*": "/queues/{queue}/messages",
        "*:receive": "/queues/{queue}/messages:receive",
    }
    assert made["operations"]["receive:checked"]["channel"] == {"$ref": "#/channels/checked:receive"}
    assert {each["action"] for each in made["operations"].values()} == {"send", "receive"}
    assert list(made["channels"]["orders.*.in-*:native"]["parameters"]) == ["part", "part_2"]
    host = f"127.0.0.1:{gateway.base_url.port}"
    security = [{"$ref": "#/components/securitySchemes/bearer"}]
    assert made["servers"]["gateway"] == {
        "host": host, "protocol": "http", "title": "The gateway", "security": security
    }  # fmt: skip
    assert made["servers"]["cache"] == {"host": "127.0.0.1:1", "protocol": "redis", "title": "The broker cache"}
    assert SECRET not in json.dumps(made)


def test_others_see_what_they_may_use(gateway):
    made = document(gateway, "shop")
    assert list(made["channels"]) == ["checked:receive", "orders.eu"]
    assert list(made["operations"]) == ["receive:checked", "send:orders.eu"]
    assert list(made["servers"]) == ["gateway"]
    problem(gateway.get("/asyncapi.json", headers={"authorization": "Bearer none"}), 403, "forbidden")
    problem(gateway.get("/asyncapi.json", headers={"authorization": "Bearer bad"}), 401, "unauthenticated")


def test_a_channel_has_the_jobs_that_its_route_looks_at(gateway):
    channels = document(gateway)["channels"]
    jobs = set(channels["checked"]["messages"])
    assert {"urn_babel_shop_order.placed", "urn_babel_shop_money"} < jobs
    assert len(jobs) == len(SCHEMAS)
    assert set(channels["orders.*.in-*"]["messages"]) == jobs | {"AnyJob"}
    assert set(channels["orders.*"]["messages"]) == {"AnyJob"}


def test_a_payload_is_an_envelope_with_the_data_of_its_job(gateway):
    components = document(gateway)["components"]
    schema = components["messages"]["urn_babel_shop_order.placed"]["payload"] | {"components": components}
    meta = {"id": "1", "queue": "checked", "lang": "go", "schema_version": 1, "created_at": 1}
    envelope = {"job": ORDER, "trace_id": "t", "data": {"total": 1}, "meta": meta, "attempts": 0}
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(envelope)
    for data in ({}, {"total": -1}, {"total": 1, "lines": [1], "pair": [1]}, {"total": 1, "lines": ["x"]},
                 {"total": 1, "pair": ["x"]}, {"total": 1, "pair": [1, 2]}):  # fmt: skip
        assert not validator.is_valid(envelope | {"data": data}), data
    assert not validator.is_valid(envelope | {"job": "other"})


def test_an_unchanged_document_is_304(gateway):
    answer = gateway.get("/asyncapi.json")
    unchanged = gateway.get("/asyncapi.json", headers={"if-none-match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    other = gateway.get("/asyncapi.json", headers={"authorization": "Bearer shop"})
    assert other.headers["etag"] != answer.headers["etag"]


def test_a_broker_with_the_name_of_the_server_of_the_gateway_is_not_taken_for_it(tmp_path):
    path = configured(tmp_path)
    path.write_text(path.read_text().replace("cache", "gateway"))
    loaded = settings.load(path, {})
    headers = {"authorization": "Bearer all"}
    with (
        serving(uvicorn_config(Served(loaded).build, loaded)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", headers=headers, timeout=60, verify=authorities()) as client,
    ):
        made = document(client)
    assert made["servers"]["gateway"]["title"] == "The gateway"
    assert "checked" in made["channels"]
    assert not [name for name in made["channels"] if name.endswith(":native")]
