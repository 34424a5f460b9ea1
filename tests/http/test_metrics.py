"""``/metrics`` over HTTP, and the labels of requests."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from babelgate.http.heads import target_of
from babelgate.server.overload import Shedder
from tests.harness.asgi import Call
from tests.harness.problems import problem
from tests.harness.prometheus import promtool

DRAFT = {"job": "urn:babel:test:x", "data": {}}
DURATION = "http_server_request_duration_seconds"


async def samples(client, name, **wanted):
    """The numbers of ``name`` by their labels, as far as these are ``wanted``."""
    text = (await client.get("/metrics")).text
    found = [sample for family in plain(text) for sample in family.samples if sample.name == name]
    return [sample for sample in found if all(sample.labels[label] == value for label, value in wanted.items())]


async def requests(client, **wanted):
    """How often each combination of method, route, status and error was counted."""
    found = await samples(client, f"{DURATION}_count", **wanted)
    labels = ("http_request_method", "http_route", "http_response_status_code", "error_type")
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in found}


async def test_what_a_consumer_does_is_counted(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    answer = await client.post(f"/queues/{queue}/messages:receive")
    (message,) = answer.json()["messages"]
    await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]})
    for name in ("babelgate_published_total", "babelgate_delivered_total", "babelgate_end_to_end_seconds_count"):
        assert [sample.value for sample in await samples(client, name, queue=queue, broker="local")] == [1], name
    (acked,) = await samples(client, "babelgate_settled_total", queue=queue, outcome="acked")
    assert acked.value == 1
    calls = await samples(client, "messaging_client_operation_duration_seconds_count", messaging_system="sqlite")
    assert {call.labels["messaging_operation_name"] for call in calls} == {"send", "receive", "ack"}


async def test_depth_and_leases_are_those_of_the_broker(client, queue):
    for _ in range(3):
        await client.post(f"/queues/{queue}/messages", json=DRAFT)
    await client.post(f"/queues/{queue}/messages:receive")
    for name, value in (
        ("babelgate_queue_depth", 2),
        ("babelgate_leases_in_flight", 1),
        ("babelgate_dead_letters", 0),
        ("babelgate_queue_delayed", 0),
    ):
        assert [sample.value for sample in await samples(client, name, queue=queue)] == [value], name
    assert [sample.value for sample in await samples(client, "babelgate_broker_up")] == [1]
    (age,) = await samples(client, "babelgate_oldest_message_age_seconds")
    assert 0 <= age.value < 60


async def test_requests_by_their_route_and_never_by_their_path(client, queue):
    publish = "/queues/{queue}/messages"
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    await client.post(f"/queues/{queue}/messages", content=b"{")
    await client.put(f"/queues/{queue}/messages", json=DRAFT)
    await client.request("BREW", f"/queues/{queue}/messages")
    await client.get(f"/queues/{queue}")
    await client.head(f"/queues/{queue}")
    await client.get("/nowhere/at/all")
    await client.get("/livez")
    assert await requests(client) == {
        ("POST", publish, "201", ""): 1,
        ("POST", publish, "400", ""): 1,
        ("PUT", publish, "405", ""): 1,
        ("_OTHER", publish, "405", ""): 1,
        ("GET", "/queues/{queue}", "200", ""): 1,
        ("HEAD", "/queues/{queue}", "200", ""): 1,
        ("GET", "", "404", ""): 1,
        ("GET", "/livez", "200", ""): 1,
    }
    assert (await requests(client))["GET", "/metrics", "200", ""] == 1


async def test_what_the_server_could_not_do_is_an_error(serve, connect, tmp_path):
    client = await connect(await serve(brokers={"broken": f"sqlite:///{tmp_path}/missing/x.db"}))
    await client.post("/queues/q/messages", json=DRAFT)
    assert await requests(client) == {("POST", "/queues/{queue}/messages", "503", "broker_unavailable"): 1}
    assert [sample.value for sample in await samples(client, "babelgate_broker_up")] == [0]
    assert await samples(client, "babelgate_queue_depth") == []
    (failed,) = await samples(client, "messaging_client_sent_messages_total")
    assert failed.labels["error_type"] == "broker_unavailable"


async def test_a_client_that_hangs_up_got_no_status(app, client, queue):
    call = Call("POST", f"/queues/{queue}/messages:receive?wait_seconds=20")
    call.hang_up()
    await call.run(app)
    assert call.status == 0
    assert await requests(client) == {("POST", "/queues/{queue}/messages:receive", "", "client_gone"): 1}


async def test_a_refusal_at_the_head_is_counted(app, client):
    scope: dict[str, Any] = {"type": "lifespan"}
    seen: list[str] = []

    async def receive():
        return {"type": "lifespan.startup"} if not seen else {"type": "lifespan.shutdown"}

    async def send(message):
        seen.append(message["type"])

    await app(scope, receive, send)
    (shedder,) = (part for part in scope["state"].values() if isinstance(part, Shedder))
    assert b" 429 " in shedder.answer(True, b"GET", target_of(b"/queues/q/messages:receive"), {}, "https")
    found = await samples(client, f"{DURATION}_count", url_scheme="https")
    assert [(s.labels["http_route"], s.labels["http_response_status_code"], s.value) for s in found] == [
        ("/queues/{queue}/messages:receive", "429", 1)
    ]


@pytest.mark.prometheus
async def test_prometheus_can_read_all_of_it(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    assert promtool("check", "metrics", stdin=answer.content) == ""
    answer = await client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    names = {family.name for family in openmetrics(answer.text)}
    assert "babelgate_published" in names
    # https://prometheus.io/docs/instrumenting/writing_clientlibs/#standard-and-runtime-collectors
    memory = {f"process_{kind}_memory_bytes" for kind in ("resident", "virtual")}
    assert (
        names >= {"process_cpu_seconds", "process_open_fds", "process_max_fds", "process_start_time_seconds"} | memory
    )


async def test_switched_off_there_is_nothing(serve, connect):
    client = await connect(await serve(metrics=False))
    assert (await client.post("/queues/q/messages", json=DRAFT)).status_code == 201
    problem(await client.get("/metrics"), 404, "not_found")
    assert "/metrics" not in (await client.get("/openapi.json")).json()["paths"]


@pytest.mark.parametrize(("rights", "status"), [({"a": ["manage"]}, 200), ({"*": ["send", "listen"]}, 403)])
async def test_who_manages_some_queue_may_read_them(serve, connect, token_config, rights, status):
    app = await serve(auth=token_config(key=rights))
    client = await connect(app, "key")
    assert (await client.get("/metrics")).status_code == status
