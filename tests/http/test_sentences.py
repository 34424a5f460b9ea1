"""No sentence of a library reaches a client: every refusal names the member, and its bound or the valid names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from babelgate.errors import MAX_DETAIL
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from tests.harness.memory import MemoryBinding
from tests.harness.problems import PLACED, problem

DRAFT: dict[str, Any] = {"job": "urn:babel:test:made", "data": {"n": 1}}
FULL: dict[str, Any] = {
    **DRAFT,
    "trace_id": "t",
    "meta": {"id": "m", "queue": "q", "lang": "go", "schema_version": 1, "created_at": 1},
    "attempts": 0,
}
OJS = {"content-type": "application/openjobspec+json"}
NDJSON = {"content-type": "application/x-ndjson"}

FOREIGN = re.compile(
    r"Expected `|Expected '|expecting|unknown field|required field|Extra inputs|Input should|Field required|extra data|"
    r"Invalid enum|String should|should match|should have|valid integer|valid number|valid dictionary|not permitted|"
    r"unable to (parse|interpret)|malformed:|truncated|decompressing|incorrect header|delimiter|unterminated|"
    r"Peeks|Purges|DeadStore|DeadLetters|has no '|Traceback|Error\\b.*:|ValidationError|DecodeError|"
    r"<class|NoneType|`(int|float|str|array|object|bool|null)`",
    re.IGNORECASE,
)
"""Phrases of msgspec, pydantic, starlette, json, zlib and Python."""


NO_HEADERS: Mapping[str, str] = {}


class Case(NamedTuple):
    """A bad request, and what its answer must have: a text of ``detail``, and the pointer of the first error."""

    path: str
    body: Any = None
    says: str = ""
    pointer: str | None = None
    status: int = 400
    headers: Mapping[str, str] = NO_HEADERS
    method: str = "POST"


PUBLISH = [
    Case("messages?delay_seconds=-1", DRAFT, "delay_seconds: must be a number from 0 to 31536000"),
    Case("messages?delay_seconds=x", DRAFT, "delay_seconds: must be a number from 0 to 31536000"),
    Case("messages?delay_seconds=nan", DRAFT, "delay_seconds: must be a number from 0 to 31536000"),
    Case("messages?delay=1", DRAFT, "delay: unknown name; the valid names are delay_seconds, ordering_key"),
    Case("messages?ordering_key=", DRAFT, "ordering_key: must be a text of 1 to 1024 characters"),
    Case("messages?a`b=1", DRAFT, "a`b: unknown name"),
    Case("messages", b"", "it is empty", ""),
    Case("messages", b"[]", "it is not an object", ""),
    Case("messages", b"{", "a name in double quotes is missing, at character 1", ""),
    Case("messages", b'{"job":"a",}', "a name in double quotes is missing, at character 11", ""),
    Case("messages", b'{"job" 1}', "a colon is missing after a name, at character 7", ""),
    Case("messages", b'{"job":}', "a value is missing or malformed, at character 7", ""),
    Case("messages", b'{"job":"a","data":{"n":01}}', "a comma, or the end of the object or list, is missing", ""),
    Case("messages", b'{"job":"a"} x', "text follows the end of the JSON value, at character 11", ""),
    Case("messages", b'{"job":"a', "a string has no closing quote", ""),
    Case("messages", b'{"job":"a\x01"}', "a control character in a string is not escaped", ""),
    Case("messages", b'{"job":"\\x"}', "an escape in a string is invalid", ""),
    Case("messages", b'{"job":"\\u12"}', "an escape in a string is invalid", ""),
    Case("messages", b"\xff", "it is not valid UTF-8 at byte 0", ""),
    Case("messages", b"x" * 20, "not valid gzip", None, 400, {"content-encoding": "gzip"}),
    Case("messages", {**DRAFT, "x": 1}, "may have only the members job, urn, trace_id, data, meta", "/x", 422),
    Case("messages", {**DRAFT, "meta": {"x": 1}}, "may have only the members lang, queue, ext", "/meta/x", 422),
    Case("messages", {**FULL, "delay_seconds": 60}, '{"envelope": {…}, "delay_seconds": 60}', "/delay_seconds", 422),
    Case("messages", {**DRAFT, "delay_seconds": -1}, "0 or more", "/delay_seconds", 422),
    Case("messages", {**DRAFT, "broker_properties": 5}, "must be an object", "/broker_properties", 422),
    Case(
        "messages",
        {**DRAFT, "broker_properties": {"sessionId": "a"}},
        "have no broker property sessionId on the broker 'local'",
        "/broker_properties/sessionId",
        422,
    ),
    Case("messages", DRAFT, "it is not an object", None, 400, {"BrokerProperties": "[]"}),
    Case("messages", {**DRAFT, "trace_id": " "}, "Leave it out of a draft", "/trace_id", 422),
    Case("messages", {"specversion": "1.0", "type": "a", "args": []}, "application/openjobspec+json", "", 422),
    Case("messages", {"type": "a", "args": {}}, "args must be an array", "/args", 422),
    Case("messages", {"type": "a", "args": {}}, "args must be an array", "/args", 422, OJS),
    Case("messages", DRAFT, "type names the job", "/type", 422, OJS),
    Case("messages", b"[", "it is not an object", "", 400, OJS),
    Case("messages:batch", b"[1", "it ends too early", ""),
    Case("messages:batch", b"[1,]", "not valid JSON at byte 3", ""),
    Case("messages:batch", b"{}", "Put the entries between [ and ]", ""),
    Case("messages:batch", b"", "it ends too early", ""),
    Case("messages:batch?x=1", b"[]", "x: unknown name; none is valid here"),
    Case("messages:validate?mode=x", DRAFT, "mode: must be consume or publish"),
    Case("messages:validate?x=1", DRAFT, "the valid names are delay_seconds, ordering_key, deliver_at"),
    Case("messages:validate", b"{", "a name in double quotes is missing", ""),
    Case("messages:validate?mode=consume", b"{", "a name in double quotes is missing", ""),
    Case(
        "messages:validate?mode=consume", {"specversion": "1.0", "type": "a", "args": 1}, "args must be", "/args", 422
    ),
]
CONSUME = [
    Case("messages:receive?max_messages=0", None, "max_messages: must be a whole number from 1 to 100"),
    Case("messages:receive?max_messages=1.5", None, "max_messages: must be a whole number from 1 to 100"),
    Case("messages:receive?wait=1", None, "wait: unknown name; the valid names are max_messages, wait_seconds, lease"),
    Case(
        "messages:receive",
        {"lease_seconds": 0},
        "lease_seconds: must be a number above 0 and at most 31536000",
        "/lease_seconds",
    ),
    Case("messages:receive", {"wait": 1}, "wait: unknown name; the valid names are", "/wait"),
    Case("messages:receive", {"a/b": 1}, "a/b: unknown name", "/a~1b"),
    Case("messages:receive", [], "body: must be an object with the members max_messages", ""),
    Case("messages:receive", b"{", "it ends too early", ""),
    Case("messages:receive", b'{"max_messages":01}', "not valid JSON at byte", ""),
    Case("messages:ack", b'{"ack_tokens":["\xff"]}', "it is not valid UTF-8 at byte", ""),
    Case("messages:ack", {}, "ack_tokens: is required; it must be a list of 1 to 1000 items", "/ack_tokens"),
    Case("messages:ack", {"ack_tokens": "x"}, "ack_tokens: must be a list of 1 to 1000 items", "/ack_tokens"),
    Case("messages:ack", {"ack_tokens": [1]}, "ack_tokens.0: must be a text of 1 to", "/ack_tokens/0"),
    Case("messages:nack", {"ack_tokens": ["x"], "delay_seconds": -1}, "must be a number from 0", "/delay_seconds"),
    Case("messages:nack", {"ack_tokens": ["x"], "error": {"text": 1}}, "names are message, exception", "/error/text"),
    Case(
        "messages:nack",
        {"ack_tokens": ["x"], "error": 1},
        "error: must be an object with the members message",
        "/error",
    ),
    Case("messages:reject", {"ack_tokens": ["x"], "delay_seconds": 1}, "delay_seconds: unknown name", "/delay_seconds"),
    Case("messages:extend", {"ack_tokens": ["x"], "lease_seconds": "1"}, "must be a number above 0", "/lease_seconds"),
    Case("messages:settle", {}, "body: must have 1 to 1000 ack tokens in total", ""),
    Case(
        "messages:settle",
        {"nacks": [{"ack_tokens": []}]},
        "nacks.0.ack_tokens: must be a list of 1 to 1000 items",
        "/nacks/0/ack_tokens",
    ),
    Case("messages:settle", {"nacks": [{}]}, "nacks.0.ack_tokens: is required", "/nacks/0/ack_tokens"),
    Case("messages:settle?x=1", {}, "x: unknown name; none is valid here"),
]
OPERATE = [
    Case("messages:peek?limit=0", says="limit: must be a whole number from 1 to 100", method="GET"),
    Case("messages:peek?limit=x", says="limit: must be a whole number from 1 to 100", method="GET"),
    Case("messages:peek?limits=1", says="limits: unknown name; the valid name is limit", method="GET"),
    Case("dead-letters?reason=foo", says="reason: must be failed, unknown_urn or poison", status=422, method="GET"),
    Case("dead-letters?before=x", says="before: must be a whole number from 0", method="GET"),
    Case("dead-letters?job=", says="job: must be a text of 1 to 1024 characters", method="GET"),
    Case(
        "dead-letters?jobs=a",
        says="the valid names are job, reason, before, after, trace_id, error, limit",
        method="GET",
    ),
    Case(
        "dead-letters:redrive",
        {"filter": {"reason": "foo"}},
        "must be failed, unknown_urn or poison",
        "/filter/reason",
        422,
    ),
    Case(
        "dead-letters:redrive",
        {"filter": {"jobs": "a"}},
        "filter.jobs: unknown name; the valid names are job",
        "/filter/jobs",
    ),
    Case("dead-letters:redrive", {"limit": "1"}, "limit: must be a whole number from 1 to 1000000", "/limit"),
    Case("dead-letters:redrive", {"dry_run": 1}, "dry_run: must be true or false", "/dry_run"),
    Case(
        "dead-letters:redrive",
        {"to_queue": "a/b"},
        "to_queue: must be a text that matches [A-Za-z0-9._-]{1,120}",
        "/to_queue",
    ),
    Case("dead-letters:redrive", {"a/b": 1}, "a/b: unknown name", "/a~1b"),
    Case("dead-letters:redrive", b"[]", "body: must be an object with the members limit", ""),
    Case("dead-letters:redrive", b"{x", "a name in double quotes is missing, at character 1", ""),
    Case("dead-letters:redrive?x=1", {}, "x: unknown name; none is valid here"),
    Case("dead-letters:purge?x=1", says="x: unknown name; none is valid here"),
]


CASES = [*PUBLISH, *CONSUME, *OPERATE]


@pytest.mark.parametrize("case", CASES, ids=[f"{number} {case.path}" for number, case in enumerate(CASES)])
async def test_a_refusal_is_in_our_own_words_and_names_its_member(client, case):
    content = case.body if isinstance(case.body, bytes | None) else json.dumps(case.body)
    answer = await client.request(case.method, f"/queues/q/{case.path}", content=content, headers=case.headers)
    found = problem(answer, case.status, answer.json()["code"])
    sentences = [found["detail"], *(each["detail"] for each in found["errors"])]
    assert not [sentence for sentence in sentences if FOREIGN.search(sentence)]
    assert case.says in found["detail"]
    places = [each.get("parameter", each.get("header", each["pointer"])) for each in found["errors"]]
    named = [found["detail"].partition(": ")[0]] if found["code"] in PLACED else []
    assert places[:1] == (named if case.pointer is None else [case.pointer])
    assert len(found["detail"]) <= MAX_DETAIL + 1


@pytest.mark.parametrize("path", ["/queues?x=1", "/queues/q?x=1", "/brokers?x=1", "/livez?x=1", "/readyz?verbose=x"])
async def test_a_parameter_of_an_operators_path(client, path):
    found = problem(await client.get(path), 400, "invalid_parameter")
    assert not FOREIGN.search(found["detail"])
    assert found["detail"].startswith(("x: ", "verbose: must be true or false"))


BODIES = [b"[]", b"{", b"7", b'{"x":1}', b'{"a":01}', b"\xff", b'{"limit":"x","job":5,"filter":7,"ack_tokens":{}}']


async def test_no_operation_answers_in_the_words_of_a_library(client):
    """Also operations without a case of their own above."""
    document = (await client.get("/openapi.json")).json()
    refused = 0
    for template, operations in document["paths"].items():
        path = re.sub(r"\{[a-z_]+\}", "q", template)
        long = re.sub(r"\{[a-z_]+\}", "0" * 2000, template.replace("{queue}", "q"))
        for method in operations.keys() & {"get", "post", "put", "patch", "delete"}:
            answers = [await client.request(method, path, params=query) for query in ({"x": "1"}, {"limit": "x"})]
            # A stream that is served has no end.
            if not template.endswith(":stream"):
                answers.append(await client.request(method, long))
            if "requestBody" in operations[method]:
                answers += [await client.request(method, path, content=body) for body in BODIES]
            for answer in answers:
                assert answer.status_code < 500, (method, path, answer.text)
                if answer.headers["content-type"] == "application/problem+json":
                    refused += 1
                    assert not FOREIGN.search(answer.text), (method, path, answer.text)
    assert refused > 60


async def test_a_failed_entry_of_a_batch_says_the_same(client):
    lines = [b"{", b'{"job":"a","data":{},"x":1}', b"7", json.dumps({**FULL, "delay_seconds": 1}).encode()]
    for content, headers in ((b"\n".join(lines), NDJSON), (b"[" + b",".join(lines[1:]) + b"]", {})):
        answer = await client.post("/queues/q/messages:batch", content=content, headers=headers)
        results = answer.json()["results"]
        assert not FOREIGN.search(" ".join(result["detail"] for result in results))
        assert [result["code"] for result in results[-3:]] == ["unknown_member", "invalid_json", "misplaced_option"]


TYPES = {
    "messages": [
        "application/json",
        "application/openjobspec+json",
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "+json",
    ],
    "messages:validate": [
        "application/json",
        "application/openjobspec+json",
        "application/cloudevents+json",
        "+json",
    ],
    "messages:batch": [
        "application/json",
        "application/openjobspec+json",
        "application/cloudevents-batch+json",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
    ],
    "messages:receive": ["application/json"],
    "messages:ack": ["application/json"],
    "dead-letters:redrive": ["application/json"],
}


@pytest.mark.parametrize("path", TYPES)
async def test_another_type_of_body_names_those_that_are_accepted(client, path):
    answer = await client.post(f"/queues/q/{path}", content="a=b", headers={"content-type": "text/plain"})
    detail = problem(answer, 415, "unsupported_media_type")["detail"]
    assert detail.endswith("not text/plain.")
    named = set(re.findall(r"application/[a-z+-]+", detail))
    assert named == {name for name in TYPES[path] if name != "+json"}
    for name in named:
        taken = await client.post(f"/queues/q/{path}", content="", headers={"content-type": name})
        assert taken.status_code != 415


@pytest.fixture
async def bare(connect):
    """A client of a gateway whose broker offers none of the optional protocols."""
    binding = MemoryBinding()
    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), TokenSealer([TokenKey("k", bytes(32))]))
    await gateway.start()
    yield await connect(create_api(gateway, auth=Auth(), limits=RequestLimits()))
    await gateway.close()


async def test_what_a_broker_cannot_do_is_said_in_words(bare):
    for method, path in (("GET", "messages:peek"), ("GET", "dead-letters"), ("POST", "dead-letters:redrive")):
        answer = await bare.request(method, f"/queues/q/{path}")
        detail = problem(answer, 422, "unsupported_by_broker")["detail"]
        assert detail.startswith("The broker 'memory' cannot ") and not FOREIGN.search(detail)


async def test_ids_that_are_no_uuids_are_warned_of(client):
    for query, body in (("", FULL), ("?mode=consume", FULL)):
        shown = (await client.post(f"/queues/q/messages:validate{query}", json=body)).json()
        assert [(each["pointer"], each["code"]) for each in shown["warnings"]] == [
            ("/meta/id", "id_not_uuid"),
            ("/trace_id", "trace_id_not_uuid"),
        ]
    assert (await client.post("/queues/q/messages:validate", json=DRAFT)).json()["warnings"] == []
