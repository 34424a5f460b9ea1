"""Tracing over HTTP: contexts of requests, messages and answers, and the spans."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import uuid
from collections import Counter
from typing import Any

import httpx
import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.traced import RequestTrace
from babelgate.observe.tracing.context import of_trace_id
from babelgate.observe.tracing.sampling import Sampling
from babelgate.observe.tracing.span_recorder import RecordedSpan, SpanRecorder
from babelgate.observe.tracing.trace import Tracing
from tests.brokers.sqlite.harness import SqliteBroker
from tests.harness.asgi import Call, part
from tests.harness.memory import CAPABLE, MemoryBinding, lacking
from tests.harness.traced import Spans, header, links, parent, told
from tests.harness.world import KEYS

TRACE = "7b3f9c2ae41d4f889b2a1c0d5e6f7a8b"
UUID = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
SAMPLED, UNSAMPLED = f"00-{TRACE}-00f067aa0ba902b7-01", f"00-{TRACE}-00f067aa0ba902b7-00"
OWN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "11111111-2222-4333-8444-555555555555"
BARE = {"accept": "application/vnd.babelqueue.envelope+json"}
DRAFT = {"job": "urn:babel:test:made", "data": {}}


def given_by(trace_id: str) -> str:
    """The context that a ``trace_id`` gives."""
    context = of_trace_id(trace_id)
    assert context is not None
    return context.traceparent


class World:
    """A gateway, over a broker in memory as a rule, and a client of it."""

    def __init__(self, tracing: Tracing | None, binding: Any, queue: str) -> None:
        self.binding = binding
        router = Router([], Rule("*", binding, Policy(max_attempts=2)))
        self.gateway = Gateway({binding.name: binding}, router, TokenSealer(KEYS), tracing=tracing)
        limits = RequestLimits(1_000_000, 1_000_000, 1_000_000)
        self.api = create_api(self.gateway, auth=Auth(hosts=frozenset({"localhost"})), limits=limits)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.api), base_url="http://localhost")
        self.queue = queue

    async def post(self, verb: str = "", body: Any = None, **headers: str) -> httpx.Response:
        return await self.client.post(f"/queues/{self.queue}/messages{verb}", json=body, headers=headers)

    async def publish(self, body: Any = None, **headers: str) -> httpx.Response:
        answer = await self.post("", DRAFT if body is None else body, **headers)
        assert answer.status_code == 201, answer.text
        return answer

    async def receive(self, most: int = 1, **headers: str) -> list[dict[str, Any]]:
        answer = await self.post(":receive", {"max_messages": most}, **headers)
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages


@pytest.fixture
async def make(queue):
    """A function of a tracing that makes a world."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(tracing=None, capabilities=CAPABLE, binding=None):
            world = World(tracing, binding or MemoryBinding("memory", capabilities), queue)
            await world.gateway.start()
            stack.push_async_callback(world.gateway.close)
            await stack.enter_async_context(world.client)
            return world

        yield start


@pytest.fixture
def spans():
    """Everything is sampled, unless its parent is not."""
    return Spans()


@pytest.mark.parametrize("traceparent", [SAMPLED, UNSAMPLED])
async def test_a_context_travels_where_tracing_is_off(make, traceparent):
    world = await make()
    answer = await world.publish(traceparent=traceparent, tracestate="a=1", baggage="k=v")
    assert answer.headers["traceparent"] == traceparent
    # A draft without a trace_id is of the request's trace, also where no header can say so.
    assert answer.json()["trace_id"] == UUID
    (message,) = await world.receive()
    assert message["headers"] == {"traceparent": traceparent, "tracestate": "a=1", "baggage": "k=v"}
    assert "traceparent" not in message["envelope"] and message["envelope"]["trace_id"] == UUID


def derived(message):
    """The headers of a message with which no context travelled."""
    context = of_trace_id(message["envelope"]["trace_id"])
    assert context is not None
    return {"traceparent": context.traceparent}


async def test_without_a_context_the_trace_id_gives_it(make):
    for tracing in (None, Spans("always_off").tracing):
        world = await make(tracing)
        answer = await world.publish()
        assert "traceparent" not in answer.headers
        (message,) = await world.receive()
        assert message["headers"] == derived(message)


@pytest.mark.parametrize("sampler", ["always_off", "always_on"])
async def test_a_broker_without_headers_gets_none(make, sampler):
    world = await make(Spans(sampler).tracing, lacking(headers=False))
    await world.publish(traceparent=SAMPLED, baggage="k=v")
    (message,) = await world.receive()
    assert message["headers"] == derived(message) and message["envelope"]["trace_id"] == UUID


async def test_a_trace_id_that_is_given_stays(make, spans):
    world = await make(spans.tracing)
    for body in (DRAFT | {"trace_id": OTHER}, {"envelope": DRAFT | {"trace_id": OTHER}}):
        answer = await world.publish(body, traceparent=SAMPLED)
        assert answer.json()["trace_id"] == OTHER
        (message,) = await world.receive(traceparent=SAMPLED)
        assert message["envelope"]["trace_id"] == OTHER
        sent = spans.named(f"send {world.queue}")
        # The parent is the request's; the trace that the trace_id gives is linked.
        assert f"{sent.get_span_context().trace_id:032x}" == TRACE
        assert links(sent) == [given_by(OTHER)]
        spans.clear()


async def test_what_an_entry_has_of_its_own_wins_and_is_linked(make, spans):
    world = await make(spans.tracing)
    entry = {"envelope": DRAFT, "headers": {"traceparent": OWN, "x": "1"}}
    await world.publish(entry, traceparent=SAMPLED, tracestate="a=1", baggage="k=v")
    (message,) = await world.receive()
    assert message["headers"] == {"traceparent": OWN, "x": "1", "baggage": "k=v"}
    assert links(spans.named(f"send {world.queue}")) == [OWN]


async def test_the_spans_of_one_message_are_one_trace(make, spans):
    world = await make(spans.tracing)
    answer = await world.publish(traceparent=SAMPLED)
    server, sent = spans.named("POST /queues/{queue}/messages"), spans.named(f"send {world.queue}")
    assert (parent(server), parent(sent)) == (SAMPLED, header(server))
    assert answer.headers["traceparent"] == header(server)
    assert (server.kind.name, sent.kind.name) == ("SERVER", "PRODUCER")
    id_ = answer.json()["id"]
    assert told(sent) == {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": world.queue,
        "messaging.message.id": id_,
        "messaging.message.conversation_id": UUID,
        "messaging.message.body.size": told(sent)["messaging.message.body.size"],
        "messaging.babelqueue.attempts": 0,
    }
    assert (
        told(server).items()
        >= {
            "http.request.method": "POST",
            "http.route": "/queues/{queue}/messages",
            "http.response.status_code": 201,
            "url.path": f"/queues/{world.queue}/messages",
            "url.scheme": "http",
            "server.address": "localhost",
        }.items()
    )
    spans.clear()
    (message,) = await world.receive()
    received = spans.named(f"receive {world.queue}")
    assert message["headers"]["traceparent"] == header(sent)
    assert parent(spans.named("POST /queues/{queue}/messages:receive")) == header(sent)
    assert parent(received) == header(spans.named("POST /queues/{queue}/messages:receive"))
    assert received.kind.name == "CLIENT" and links(received) == [header(sent)]
    assert received.start_time <= received.end_time
    spans.clear()
    assert (await world.post(":ack", {"ack_tokens": [message["ack_token"]]})).status_code == 200
    acked = spans.named(f"ack {world.queue}")
    assert parent(spans.named("POST /queues/{queue}/messages:ack")) == header(sent)
    assert acked.kind.name == "CLIENT" and told(acked)["messaging.operation.type"] == "settle"
    assert told(acked)["messaging.message.id"] == id_


async def test_without_a_context_the_trace_is_the_trace_ids(make, spans):
    world = await make(spans.tracing, lacking(headers=False))
    for trace_id in (UUID, "not-a-uuid"):
        await world.publish(DRAFT | {"trace_id": trace_id})
        (message,) = await world.receive()
        await world.post(":ack", {"ack_tokens": [message["ack_token"]]})
        expected = given_by(trace_id)
        servers = [span for span in spans.all if span.kind.name == "SERVER"]
        assert [parent(server) for server in servers] == [expected] * 3
        assert not any(span.links for span in spans.all)
        spans.clear()


async def test_a_batch_is_one_span_with_a_link_to_each_message(make, spans):
    world = await make(spans.tracing)
    bodies = [DRAFT | {"trace_id": OTHER}, {"envelope": DRAFT, "headers": {"traceparent": OWN}}, DRAFT, {"no": 1}]
    answer = await world.post(":batch", bodies)
    assert answer.json()["accepted"] == 3
    sent = spans.named(f"send {world.queue}")
    assert told(sent)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in told(sent)
    results = answer.json()["results"]
    assert links(sent) == [given_by(OTHER), OWN, given_by(results[2]["trace_id"])]
    ids = [link.attributes["messaging.message.id"] for link in sent.links]
    assert ids == [result["id"] for result in results[:3]]
    spans.clear()
    messages = await world.receive(10)
    received = spans.named(f"receive {world.queue}")
    assert parent(spans.named("POST /queues/{queue}/messages:receive")) == ""
    assert told(received)["messaging.batch.message_count"] == 3
    assert links(received) == [header(sent), OWN, header(sent)]
    spans.clear()
    settlement = {"acks": [messages[0]["ack_token"]], "rejects": [{"ack_tokens": [messages[1]["ack_token"]]}]}
    await world.post(":settle", settlement)
    assert links(spans.named(f"settle {world.queue}")) == [header(sent), OWN]


async def test_a_receive_that_brings_a_context_links_to_the_message(make, spans):
    world = await make(spans.tracing)
    await world.publish()
    sent = header(spans.named(f"send {world.queue}"))
    spans.clear()
    await world.receive(traceparent=SAMPLED)
    received = spans.named(f"receive {world.queue}")
    assert links(received) == [sent]
    assert f"{received.get_span_context().trace_id:032x}" == TRACE


async def test_polls_that_find_nothing_make_no_span(make, spans):
    world = await make(spans.tracing)
    assert await world.receive() == []
    assert not spans.all
    await world.receive(traceparent=SAMPLED)
    assert told(spans.named(f"receive {world.queue}"))["messaging.batch.message_count"] == 0


async def test_probes_make_no_span_unless_they_are_traced(make, spans):
    world = await make(spans.tracing)
    await world.client.get("/livez")
    assert not spans.all
    await world.client.get("/livez", headers={"traceparent": SAMPLED})
    assert spans.named("GET /livez").kind.name == "SERVER"


class _Refusing(SpanRecorder):
    """A recorder that fails when a span is started."""

    def __init__(self) -> None:
        return

    def start(self, *what: Any, **how: Any) -> RecordedSpan:
        raise AssertionError(f"a span was made: {what}")

    async def close(self, seconds: float = 3) -> None:
        return


@pytest.mark.parametrize("sampling", [Sampling(0, parent_based=True), Sampling(0, parent_based=False)])
async def test_what_is_not_sampled_makes_no_span(make, sampling):
    world = await make(Tracing(_Refusing(), sampling))
    for traceparent in [{}, {"traceparent": UNSAMPLED}] + [{"traceparent": SAMPLED}] * (not sampling.parent_based):
        await world.publish(**traceparent)
        await world.post(":batch", [DRAFT], **traceparent)
        messages = await world.receive(10, **traceparent)
        assert [message["headers"] for message in messages] == [traceparent or derived(each) for each in messages]
        await world.post(":settle", {"acks": [message["ack_token"] for message in messages]}, **traceparent)
        await world.post(":validate", DRAFT, **traceparent)
        await world.post("", {"no": "job"}, **traceparent)


async def test_a_request_that_is_over_waits_for_no_collector(make):
    """What refers to itself stays until the collector of cycles comes, which costs more than the request."""
    world = await make()
    await world.publish()
    gc.collect()
    gc.disable()
    try:
        await world.publish(traceparent=UNSAMPLED)
        assert not any(type(each) is RequestTrace for each in gc.get_objects())
    finally:
        gc.enable()


async def test_a_ratio_decides_by_the_trace_id_and_everybody_alike(make):
    spans = Spans("parentbased_traceidratio", "0.5")
    world = await make(spans.tracing, lacking(headers=False))
    low, high = "11111111-2222-4333-8444-555555555551", "11111111-2222-4333-8444-555555555550"
    for trace_id, sampled in ((low, True), (high, False)):
        await world.publish(DRAFT | {"trace_id": trace_id})
        (message,) = await world.receive()
        await world.post(":ack", {"ack_tokens": [message["ack_token"]]})
        assert len(spans.all) == (6 if sampled else 0)
        spans.clear()
        # The parent decides for its children, whatever the ratio.
        for parent_flag in "01":
            context = f"00-{trace_id.replace('-', '')}-00f067aa0ba902b7-0{parent_flag}"
            await world.publish(traceparent=context)
            assert len(spans.all) == 2 * int(parent_flag)
            spans.clear()
            await world.receive()
            spans.clear()


@pytest.mark.parametrize("with_hyphens", [True, False])
async def test_a_ratio_samples_its_share_of_messages_with_a_uuid(make, with_hyphens):
    spans = Spans("parentbased_traceidratio", "0.5")
    world = await make(spans.tracing, lacking(headers=False))
    source = random.Random(4)
    uuids = [uuid.UUID(int=source.getrandbits(128), version=4) for _ in range(400)]
    trace_ids = [str(each) if with_hyphens else each.hex for each in uuids]
    for trace_id in trace_ids:
        await world.publish(DRAFT | {"trace_id": trace_id})
    published = {header(span)[3:35] for span in spans.all}
    # Three standard deviations of 400 decisions at 0.5.
    assert abs(len(published) - 200) <= 30
    spans.clear()
    for _ in trace_ids:
        (message,) = await world.receive()
        await world.post(":ack", {"ack_tokens": [message["ack_token"]]})
    # The same traces at the other hops: of each a receive and an ack, two spans each.
    received = Counter(header(span)[3:35] for span in spans.all)
    assert received == dict.fromkeys(published, 4)


async def test_a_dry_run_shows_what_would_travel(make, spans):
    world = await make(spans.tracing)
    answer = await world.post(":validate", DRAFT, traceparent=SAMPLED, tracestate="a=1", baggage="k=v")
    assert answer.json()["headers"] == {"traceparent": SAMPLED, "tracestate": "a=1", "baggage": "k=v"}
    assert answer.json()["envelope"]["trace_id"] == UUID
    assert (await world.post(":validate", DRAFT)).json()["headers"] == {}


async def test_a_bare_envelope_tells_its_own_context(make, spans):
    world = await make(spans.tracing)
    await world.publish(tracestate="a=1", traceparent=SAMPLED, baggage="k=v")
    sent = header(spans.named(f"send {world.queue}"))
    url = f"/queues/{world.queue}/messages:receive"
    answer = await world.client.get(url, headers=BARE | {"traceparent": OWN})
    assert (answer.headers["traceparent"], answer.headers["tracestate"]) == (sent, "a=1")
    assert answer.headers["baggage"] == "k=v"
    assert answer.headers.get_list("traceparent") == [sent]


async def test_a_bare_envelope_without_a_context_tells_what_its_trace_id_gives(make):
    world = await make()
    await world.publish(DRAFT | {"trace_id": UUID})
    answer = await world.client.get(f"/queues/{world.queue}/messages:receive", headers=BARE)
    assert answer.headers["traceparent"] == given_by(UUID)
    assert "tracestate" not in answer.headers


async def test_what_fails_is_an_error(make, spans):
    world = await make(spans.tracing)
    refused = await world.post("", {"no": "job"}, traceparent=SAMPLED)
    assert refused.status_code == 422
    server = spans.named("POST /queues/{queue}/messages")
    # What the client did wrong is no error of the server, and no broker was asked.
    assert server.status.status_code.name == "UNSET" and len(spans.all) == 1
    assert refused.headers["traceparent"] == header(server)
    spans.clear()
    world.binding.fail_after("publish", 0)
    lost = await world.post("", DRAFT)
    assert lost.status_code == 503
    server, sent = spans.named("POST /queues/{queue}/messages"), spans.named(f"send {world.queue}")
    assert [span.status.status_code.name for span in (server, sent)] == ["ERROR", "ERROR"]
    assert told(server)["error.type"] == told(sent)["error.type"] == "broker_unavailable"


async def test_a_lost_lease_is_an_error_of_its_span(make, spans):
    world = await make(spans.tracing)
    await world.publish()
    (message,) = await world.receive()
    await world.post(":nack", {"ack_tokens": [message["ack_token"]]})
    await world.receive()
    spans.clear()
    assert (await world.post(":ack", {"ack_tokens": [message["ack_token"]]})).status_code == 409
    assert told(spans.named(f"ack {world.queue}"))["error.type"] == "lease_lost"
    spans.clear()
    assert (await world.post(":ack", {"ack_tokens": ["forged"]})).status_code == 400
    assert spans.named(f"ack {world.queue}").status.status_code.name == "ERROR"


async def test_copies_and_dead_letters_keep_their_context(make, spans):
    world = await make(spans.tracing)
    await world.publish(traceparent=SAMPLED, tracestate="a=1", baggage="k=v")
    (first,) = await world.receive()
    await world.post(":nack", {"ack_tokens": [first["ack_token"]], "delay_seconds": 0})
    (second,) = await world.receive()
    assert second["attempts"] == 1 and second["headers"] == first["headers"]


async def test_a_redrive_is_a_span_and_its_messages_keep_their_context(make, spans, tmp_path):
    world = await make(spans.tracing, binding=SqliteBroker(tmp_path).connect())
    await world.publish(traceparent=SAMPLED, tracestate="a=1", baggage="k=v")
    (message,) = await world.receive()
    await world.post(":reject", {"ack_tokens": [message["ack_token"]]})
    spans.clear()
    url = f"/queues/{world.queue}/dead-letters"
    (letter,) = (await world.client.get(url)).json()["dead_letters"]
    assert letter["headers"] == message["headers"]
    answer = await world.client.post(f"{url}:redrive", json={}, headers={"traceparent": SAMPLED})
    assert answer.json()["redriven"] == 1
    server, redriven = spans.named("POST /queues/{queue}/dead-letters:redrive"), spans.named(f"redrive {world.queue}")
    assert parent(redriven) == header(server) == answer.headers["traceparent"]
    assert redriven.kind.name == "CLIENT"
    (again,) = await world.receive()
    assert again["headers"] == message["headers"]


async def test_a_client_that_hangs_up_is_told_of(make, spans):
    world = await make(spans.tracing)
    body = json.dumps({"wait_seconds": 20}).encode()
    path = f"/queues/{world.queue}/messages:receive"
    call = Call("POST", path, [part(body, more=False)], traceparent=SAMPLED, content_length=str(len(body)))
    call.hang_up()
    await call.run(world.api)
    server = spans.named("POST /queues/{queue}/messages:receive")
    assert told(server)["error.type"] == "client_gone" and "http.response.status_code" not in told(server)


async def test_half_a_character_in_a_message_spoils_no_span(make, spans):
    world = await make(spans.tracing)
    body = b'{"job":"x","trace_id":"a\\ud800","data":{},"meta":{"id":"b\\ud800","queue":"q","lang":"python",'
    body += b'"schema_version":1,"created_at":1},"attempts":0}'
    await world.binding.publish(NativeQueue(world.queue), [Outgoing(body)])
    await world.receive()
    for value in told(spans.named(f"receive {world.queue}")).values():
        if isinstance(value, str):
            value.encode()


@pytest.mark.parametrize("malformed", ["what a client gave", SAMPLED.upper(), f"{SAMPLED}-extra", SAMPLED[:-1]])
def test_a_consumer_gets_no_malformed_context(caller, queue, malformed):
    entry = {
        "envelope": DRAFT | {"trace_id": UUID},
        "headers": {"traceparent": malformed, "tracestate": "a=1", "x": "1"},
    }
    for _ in range(2):
        assert caller.post(f"/queues/{queue}/messages", json=entry).status_code == 201
    handed = {"traceparent": given_by(UUID), "x": "1"}
    (message,) = caller.post(f"/queues/{queue}/messages:receive").json()["messages"]
    assert message["headers"] == handed
    bare = caller.post(f"/queues/{queue}/messages:receive", headers=BARE)
    assert (bare.headers["traceparent"], "tracestate" in bare.headers) == (handed["traceparent"], False)
    assert json.loads(bare.headers["message-headers"]) == handed


@pytest.mark.parametrize("state", ["foo=1,foo=2", "FOO=1", "foo=", ",".join(f"k{n}=1" for n in range(33))])
def test_an_illegal_state_is_not_handed_on(caller, queue, state):
    headers = {"traceparent": SAMPLED, "tracestate": state}
    assert caller.post(f"/queues/{queue}/messages", json=DRAFT, headers=headers).status_code == 201
    (message,) = caller.post(f"/queues/{queue}/messages:receive").json()["messages"]
    assert message["headers"] == {"traceparent": SAMPLED}


JOB = {"type": "a.b", "args": []}


@pytest.mark.parametrize(
    ("meta", "trace_id"),
    [
        ({}, UUID),
        ({"trace_id": OTHER}, OTHER),
        ({"traceparent": OWN}, "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"),
        ({"traceparent": OWN.upper()}, UUID),
        ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, UUID),
        ({"traceparent": f"{OWN}-extra"}, UUID),
    ],
)
def test_a_job_is_of_the_requests_trace_unless_it_has_its_own(caller, queue, meta, trace_id):
    headers = {"traceparent": SAMPLED, "content-type": "application/openjobspec+json"}
    job = JOB | {"meta": meta}
    path = f"/queues/{queue}/messages"
    assert caller.post(path, json=job, headers=headers).json()["trace_id"] == trace_id
    assert caller.post(f"{path}:batch", json=[job], headers=headers).json()["results"][0]["trace_id"] == trace_id
    validated = caller.post(f"{path}:validate", json=job, headers=headers).json()
    assert validated["envelope"]["trace_id"] == trace_id


W3C_TRACE, W3C_SPAN = "12345678901234567890123456789012", "1234567890123456"
W3C_PARENT = f"00-{W3C_TRACE}-{W3C_SPAN}-00"


def _travelled(caller, queue, *headers):
    """The trace headers of a message that was published with these header lines."""
    lines = [("content-type", "application/json"), *headers]
    assert caller.post(f"/queues/{queue}/messages", content=json.dumps(DRAFT), headers=lines).status_code == 201
    (message,) = caller.post(f"/queues/{queue}/messages:receive").json()["messages"]
    return message["headers"]


@pytest.mark.parametrize(
    "lines",
    [
        [("traceparent", text)]
        for text in (
            f"{W3C_PARENT}.",
            f"{W3C_PARENT}-what-the-future-will-be-like",
            f"cc{W3C_PARENT[2:]}.what-the-future-will-be-like",
            f"ff{W3C_PARENT[2:]}",
            f".0{W3C_PARENT[2:]}",
            f"0.{W3C_PARENT[2:]}",
            f"000{W3C_PARENT[2:]}",
            f"0000{W3C_PARENT[2:]}",
            f"0{W3C_PARENT[2:]}",
            f"00-{'0' * 32}-{W3C_SPAN}-01",
            f"00-.{W3C_TRACE[1:]}-{W3C_SPAN}-01",
            f"00-{W3C_TRACE[:-1]}.-{W3C_SPAN}-01",
            f"00-{W3C_TRACE}3-{W3C_SPAN}-01",
            f"00-{W3C_TRACE[:-1]}-{W3C_SPAN}-01",
            f"00-{W3C_TRACE}-{'0' * 16}-01",
            f"00-{W3C_TRACE}-.{W3C_SPAN[1:]}-01",
            f"00-{W3C_TRACE}-{W3C_SPAN[:-1]}.-01",
            f"00-{W3C_TRACE}-{W3C_SPAN}7-01",
            f"00-{W3C_TRACE}-{W3C_SPAN[:-1]}-01",
            f"00-{W3C_TRACE}-{W3C_SPAN}-.0",
            f"00-{W3C_TRACE}-{W3C_SPAN}-0.",
            f"00-{W3C_TRACE}-{W3C_SPAN}-001",
            f"00-{W3C_TRACE}-{W3C_SPAN}-1",
        )
    ]
    + [
        [("traceparent", W3C_PARENT), ("traceparent", f"00-{W3C_TRACE[:-1]}1-{W3C_SPAN}-01")],
        [("trace-parent", W3C_PARENT)],
        [("trace.parent", W3C_PARENT)],
        [],
    ],
    ids=str,
)
def test_w3c_without_a_valid_traceparent_a_trace_begins(caller, queue, lines):
    found = _travelled(caller, queue, *lines, ("tracestate", "foo=1"))
    assert list(found) == ["traceparent"] and W3C_TRACE[:-1] not in found["traceparent"]


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([("TraceParent", W3C_PARENT)], None),
        ([("TRACEPARENT", W3C_PARENT), ("TrAcEsTaTe", "foo=1")], "foo=1"),
        ([("traceparent", f"cc{W3C_PARENT[2:]}")], None),
        ([("traceparent", f"cc{W3C_PARENT[2:]}-what-the-future-will-be-like")], None),
        ([("traceparent", W3C_PARENT), ("trace-state", "foo=1"), ("trace.state", "foo=1")], None),
        ([("traceparent", W3C_PARENT), ("tracestate", "")], None),
        ([("traceparent", W3C_PARENT), ("tracestate", "foo=1"), ("tracestate", "")], "foo=1"),
        ([("traceparent", W3C_PARENT), ("tracestate", ""), ("tracestate", "foo=1")], "foo=1"),
        (
            [
                ("traceparent", W3C_PARENT),
                *(("tracestate", each) for each in ("foo=1,bar=2", "rojo=1,congo=2", "baz=3")),
            ],
            "foo=1,bar=2,rojo=1,congo=2,baz=3",
        ),
        ([("traceparent", W3C_PARENT), ("tracestate", "foo=1"), ("tracestate", "foo=1")], None),
        ([("traceparent", W3C_PARENT), ("tracestate", "foo=1 \t , \t bar=2, \t baz=3")], "foo=1,bar=2,baz=3"),
    ],
    ids=str,
)
def test_w3c_a_valid_traceparent_travels_with_a_legal_state(caller, queue, lines, state):
    """The cases of ``tracestate`` that only its text decides are those of ``state_of``."""
    expected = {"traceparent": W3C_PARENT} | ({} if state is None else {"tracestate": state})
    assert _travelled(caller, queue, *lines) == expected
