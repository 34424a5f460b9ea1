"""All errors are problems of one shape."""

from __future__ import annotations

import inspect
import json
import logging

import httpx
import pytest

from babelgate import errors
from babelgate.clock import now_ms
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.http import problems
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.observe.rates import RateCounters
from tests.harness.memory import CAPABLE, OWNED, ConnectedMemory, MemoryBinding
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}


ERRORS = {
    name: cls
    for module in (errors, problems)
    for name, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, errors.BabelgateError)
}


@pytest.mark.parametrize("cls", ERRORS.values(), ids=ERRORS)
def test_every_error_has_a_meaning_of_its_own(cls):
    assert cls in problems.MEANINGS
    assert 400 <= problems.MEANINGS[cls].status <= 599


def test_a_new_error_means_what_its_parent_does():
    class Newer(errors.BrokerUnavailable):
        """{broker} {reason}"""

    assert problems.status_of(Newer(broker="b", reason="r")) == 503


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "allow"),
    [
        ("GET", "/nowhere", 404, "not_found", None),
        ("GET", "/livez/", 404, "not_found", None),
        ("POST", "/queues/a/messages:nothing", 404, "not_found", None),
        ("POST", "/queues/a/b/c", 404, "not_found", None),
        ("POST", "/queues//messages", 400, "invalid_parameter", None),
        ("GET", "/queues/a/messages", 405, "method_not_allowed", "POST"),
        ("DELETE", "/queues/a/messages:receive", 405, "method_not_allowed", "POST, GET"),
        ("PUT", "/queues/a", 405, "method_not_allowed", "GET, HEAD"),
        ("GET", "/queues/a:purge", 405, "method_not_allowed", "POST"),
        ("DELETE", "/queues/a/dead-letters/b:redrive", 405, "method_not_allowed", "POST"),
        ("PUT", "/queues/a/redrives/b:cancel", 405, "method_not_allowed", "POST"),
        ("OPTIONS", "/queues", 405, "method_not_allowed", "GET, HEAD"),
        ("POST", "/livez", 405, "method_not_allowed", "GET, HEAD"),
        ("POST", "/queues/a%2Fb/messages", 400, "invalid_parameter", None),
        ("POST", "/queues/a%2fmessages", 400, "invalid_parameter", None),
        ("GET", "/queues/a%2Fb", 400, "invalid_parameter", None),
        ("POST", "/queues/%FF/messages", 400, "invalid_parameter", None),
        ("GET", "/livez?x=1", 400, "invalid_parameter", None),
        ("GET", "/queues?x", 400, "invalid_parameter", None),
        ("POST", "/queues/a:purge?x=", 400, "invalid_parameter", None),
    ],
)
async def test_what_no_endpoint_serves(client, method, path, status, code, allow):
    answer = await client.request(method, path)
    problem(answer, status, code)
    assert answer.headers.get("allow") == allow


async def test_a_head_receives_nothing(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    answer = await client.head(f"/queues/{queue}/messages:receive")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, GET")
    assert (await client.get(f"/queues/{queue}")).json()["stats"]["in_flight"] == 0


async def test_an_escaped_colon_separates_no_verb(client, queue):
    """A proxy compares paths without decoding it: it is no unreserved character."""
    problem(await client.post(f"/queues/{queue}/messages%3Areceive"), 404, "not_found")


@pytest.mark.parametrize("given", ["mine", "x" * 128, "a/b;c=d"])
async def test_a_sane_request_id_is_echoed(client, given):
    for path in ("/livez", "/nowhere", "/queues/q/messages:peek"):
        assert (await client.get(path, headers={"x-request-id": given})).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "é".encode()])
async def test_another_one_is_replaced(client, given):
    seen = {(await client.get("/livez", headers={"x-request-id": given})).headers["x-request-id"] for _ in range(2)}
    assert len(seen) == 2
    assert given not in seen


class Faulty(MemoryBinding):
    """Raises ``fault``, where there is one."""

    fault: Exception | None = None
    good_calls = 0
    """Publishes that succeed before the first that fails."""
    broken_handle: str | None = None
    """Acks of batches with this handle raise an unexpected error."""

    async def publish(self, queue, messages):
        if self.fault and self.good_calls == 0:
            raise self.fault
        self.good_calls -= 1
        return await super().publish(queue, messages)

    async def ack(self, queue, handles):
        if self.broken_handle in handles:
            raise RuntimeError("hunter2")
        return await super().ack(queue, handles)

    async def stats(self, queue):
        if self.fault:
            raise self.fault
        return await super().stats(queue)


@pytest.fixture
async def faulty(connect):
    """A client of a gateway, and the gateway's broker, which fails as the test sets it."""
    binding = Faulty()
    sealer = TokenSealer([TokenKey("k", bytes(32))])
    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), sealer)
    await gateway.start()
    yield await connect(create_api(gateway, auth=Auth(), limits=RequestLimits())), binding
    await gateway.close()


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (errors.BrokerUnavailable(broker="b", reason="down"), 503, True),
        (errors.OutcomeUnknown(broker="b", reason="silent"), 504, False),
        (errors.BrokerRejected(broker="b", reason="no"), 502, False),
        (errors.StorageFull(broker="b", reason="full"), 503, True),
        (errors.StorageReadOnly(broker="b", reason="ro"), 503, False),
        (errors.Overloaded(reason="too much"), 429, True),
    ],
)
async def test_faults_of_a_broker_are_told_apart(faulty, fault, status, retry_after):
    client, binding = faulty
    binding.fault = fault
    answer = await client.post("/queues/q/messages", json=DRAFT)
    assert problem(answer, status, fault.code)["retryable"] is fault.retryable
    assert ("retry-after" in answer.headers) is retry_after
    problem(await client.get("/queues/q"), status, fault.code)
    entry = (await client.post("/queues/q/messages:batch", json=[DRAFT])).json()["results"][0]
    assert (entry["status"], entry["code"], entry["retryable"]) == (status, fault.code, fault.retryable)


@pytest.mark.parametrize(("method", "path"), [("POST", "/queues/q/messages"), ("GET", "/queues/q")])
async def test_what_nobody_expected_is_logged_and_not_told(faulty, caplog, method, path):
    client, binding = faulty
    binding.fault = ZeroDivisionError("a secret")
    with caplog.at_level(logging.ERROR, "babelgate.http"):
        answer = await client.request(method, path, json=DRAFT if method == "POST" else None)
    problem(answer, 500, "internal_error")
    assert "secret" not in answer.text
    [record] = caplog.records
    told = record.msg
    assert told["request_id"] == answer.headers["x-request-id"]
    assert [error["type"] for error in told["exception"]] == ["builtins.ZeroDivisionError"]
    assert "secret" not in str(told)


async def test_what_a_broker_lacks_is_told(faulty):
    client, _ = faulty
    for method, path in (("GET", "messages:peek"), ("GET", "dead-letters"), ("POST", "dead-letters:redrive")):
        answer = await client.request(method, f"/queues/q/{path}")
        assert answer.status_code == 422
        problem(answer, 422, answer.json()["code"])


@pytest.mark.parametrize("how", ["prefix", "root_path", "stripped"])
async def test_a_path_prefix(serve, how):
    app = await serve(prefix="" if how == "root_path" else "/mq")
    transport = httpx.ASGITransport(app, root_path="/mq" if how == "root_path" else "")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        base = "" if how == "stripped" else "/mq"
        assert (await client.post(f"{base}/queues/q/messages", json=DRAFT)).status_code == 201
        assert (await client.get(f"{base}/queues/q")).status_code == 200
        assert (await client.get(f"{base}/livez")).status_code == 200
        problem(await client.get(f"{base}/nowhere"), 404, "not_found")
        if how != "root_path":
            assert (await client.get(f"{base}/openapi.json")).json()["servers"] == [{"url": "/mq"}]


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_a_broker_that_took_none_is_not_asked_again_in_the_same_upload(faulty, kind):
    client, binding = faulty
    binding.fault = errors.OutcomeUnknown(broker="b", reason="silent")
    line = json.dumps({"job": "urn:babel:test:made", "data": {}})
    body = "[" + ",".join([line] * 1200) + "]" if kind == "application/json" else "\n".join([line] * 1200)
    answer = await client.post("/queues/q/messages:batch", content=body, headers={"content-type": kind})
    assert answer.status_code == 207
    statuses = [result["status"] for result in answer.json()["results"]]
    asked = statuses.count(504)
    assert 0 < asked <= 500 and statuses == [504] * asked + [503] * (1200 - asked)
    assert answer.json()["accepted"] == 0


LINE = b'{"job":"a","data":{}}\n'
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.mark.parametrize("kind", ["x-ndjson", "json"])
async def test_an_unexpected_error_costs_a_batch_only_its_own_entries(faulty, queue, kind, caplog):
    client, binding = faulty
    content = LINE * 1_200 if kind == "x-ndjson" else b"[%b]" % b",".join([LINE] * 1_200)
    binding.fault, binding.good_calls = RuntimeError("hunter2"), 1
    answer = await client.post(
        f"/queues/{queue}/messages:batch", content=content, headers={"content-type": f"application/{kind}"}
    )
    found = answer.json()
    accepted = found["accepted"]
    assert (answer.status_code, found["failed"]) == (207, 1_200 - accepted) and 0 < accepted < 1_200
    results = found["results"]
    assert [each["status"] for each in results] == [201] * accepted + [500] * (1_200 - accepted)
    assert {each.get("code") for each in results[accepted:]} == {"internal_error"}
    assert "hunter2" not in answer.text
    assert "entry failed" in caplog.text
    assert len(binding.ready(queue)) == accepted


async def test_an_entry_that_cannot_be_read_is_one_that_fails(connect, queue, caplog):
    """The clock is asked for the creation date of a draft, and not for an envelope, which has one."""

    def clock():
        raise OverflowError("hunter2")

    envelope = (
        b'{"job":"j","trace_id":"t","data":{},'
        b'"meta":{"id":"i","queue":"%b","lang":"go","schema_version":1,"created_at":1},"attempts":0}\n'
    ) % queue.encode()
    binding = MemoryBinding()
    sealer = TokenSealer([TokenKey("k", bytes(32))])
    routes, counters = Router([], Rule("*", binding)), RateCounters(now_ms)
    gateway = Gateway({"memory": binding}, routes, sealer, clock=clock, counters=counters)
    client = await connect(create_api(gateway, auth=Auth(), limits=RequestLimits()))
    answer = await client.post(f"/queues/{queue}/messages:batch", content=envelope + LINE + envelope, headers=NDJSON)
    assert (answer.status_code, answer.json()["accepted"]) == (207, 2)
    assert [each["status"] for each in answer.json()["results"]] == [201, 500, 201]
    assert len(binding.ready(queue)) == 2
    assert "entry failed" in caplog.text and "OverflowError" in caplog.text and "hunter2" not in answer.text


async def _tokens(client, queue, count):
    await client.post(f"/queues/{queue}/messages:batch", content=LINE * count, headers=NDJSON)
    tokens: list[str] = []
    while len(tokens) < count:
        asked = f"/queues/{queue}/messages:receive?max_messages=100"
        tokens += [each["ack_token"] for each in (await client.post(asked)).json()["messages"]]
    return tokens


async def test_an_unexpected_error_costs_a_settle_only_the_tokens_of_its_batch(faulty, queue, caplog):
    client, binding = faulty
    tokens = await _tokens(client, queue, 2 * CAPABLE.max_batch + 2)
    binding.broken_handle = str(CAPABLE.max_batch + 1)
    settlement = {
        "acks": tokens[:-2],
        "nacks": [{"ack_tokens": tokens[-2:-1]}],
        "extends": [{"ack_tokens": tokens[-1:]}],
    }
    answer = await client.post(f"/queues/{queue}/messages:settle", json=settlement)
    assert answer.status_code == 207
    results = answer.json()["results"]
    good, bad = [200] * CAPABLE.max_batch, [500] * CAPABLE.max_batch
    assert [each["status"] for each in results] == [*good, *bad, 200, 200]
    assert {each.get("code") for each in results if each["status"] == 500} == {"internal_error"}
    assert caplog.text.count("RuntimeError") and "entry failed" in caplog.text and "hunter2" not in answer.text


async def test_an_unexpected_error_about_the_only_token_is_the_answer(faulty, queue, caplog):
    client, binding = faulty
    [token] = await _tokens(client, queue, 1)
    binding.broken_handle = "1"
    answer = await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [token]})
    problem(answer, 500, "internal_error")
    assert "RuntimeError" in caplog.text and "hunter2" not in answer.text


class BrokenSealer(TokenSealer):
    """Raises an unexpected error for one token."""

    broken = ""

    def open(self, token, queue, *, keep=True):
        if token == self.broken:
            raise RuntimeError("hunter2")
        return super().open(token, queue, keep=keep)


@pytest.mark.parametrize(
    "binding", [MemoryBinding(), ConnectedMemory(capabilities=OWNED)], ids=["LeasingBroker", "ConnectionBroker"]
)
async def test_a_token_that_cannot_be_opened_for_an_unknown_reason_fails_alone(connect, queue, caplog, binding):
    sealer = BrokenSealer([TokenKey("k", bytes(32))])
    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), sealer)
    await gateway.start()
    client = await connect(create_api(gateway, auth=Auth(), limits=RequestLimits()))
    tokens = await _tokens(client, queue, 3)
    sealer.broken = tokens[1]
    answer = await client.post(f"/queues/{queue}/messages:nack", json={"ack_tokens": tokens})
    assert [each["status"] for each in answer.json()["results"]] == [200, 500, 200]
    assert "RuntimeError" in caplog.text and "hunter2" not in answer.text
    await gateway.close()
