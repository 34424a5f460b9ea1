"""Numbers of callers: none of any length or spelling makes an error of the server."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pytest

from tests.harness.operations import MARK, Operation, numeric_bodies, operations
from tests.harness.sockets import Connection

# The largest double has 309 digits; Python converts no text of more than 4,300 digits to an integer.
LENGTHS = (308, 309, 310, 400, 4_299, 4_300, 4_301, 5_000)
WHOLE = [sign + "9" * length for length in LENGTHS for sign in ("", "-")]
NUMBERS = [
    *WHOLE,
    *(f"{sign}1e{exponent}" for sign in ("", "-") for exponent in ("308", "309", "400", "99999", "9" * 400)),
    f"{'9' * 400}.5",
    f"1{'0' * 400}e-400",
    "1e-400",
    f"0.{'0' * 5_000}1",
    "-0",
    "-0.0",
    "-1",
    "1.5",
]
SPELLINGS = [
    "NaN",
    "nan",
    "-nan",
    "Infinity",
    "-Infinity",
    "inf",
    "+inf",
    "1_0",
    "+1",
    "0x10",
    "\N{FULLWIDTH DIGIT ONE}",
    " 1",
    "1e",
    "",
]
REFUSED = {"NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "+inf", "1e", *(each for each in WHOLE)}
"""No parameter has such a value."""


def refused(answer: httpx.Response, sent: str, pointer: str | None = None) -> None:
    """``answer`` is no error of the server, and a problem unless ``sent`` may be right."""
    assert answer.status_code < 500, (answer.request.url, sent[:40], len(sent), answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        found = answer.json()
        assert found["code"] not in ("internal_error", "error")
        if pointer is not None and found["code"] == "invalid_parameter":
            assert [each["pointer"] for each in found["errors"]] == [pointer], found
    status = answer.status_code
    if status == 207:
        (result,) = answer.json()["results"]
        status = result["status"]
        assert [each["pointer"] for each in result["errors"]] == [(pointer or "").removeprefix("/0")]
    assert sent not in REFUSED or status in (400, 422), (sent[:40], len(sent), answer.text[:200])


QUERIES = [
    pytest.param(operation, name, id=f"{operation.name}-{name}")
    for operation in operations()
    for name, schema in operation.query.items()
    if schema.get("type") in ("integer", "number")
]
BODIES = [
    pytest.param(operation, at, body, id=f"{operation.name}{at}")
    for operation in operations()
    if operation.body is not None
    for at, body in numeric_bodies(operation.body)
]
_END = {"ttl_seconds": 60}
"""A token has one of two ends, which the document says in words."""


def test_the_document_has_them():
    assert {each.values[1] for each in QUERIES} >= {"delay_seconds", "max_messages", "lease_seconds", "limit", "before"}
    assert {each.values[1] for each in BODIES} >= {
        "/delay_seconds",
        "/nacks/0/delay_seconds",
        "/per_second",
        "/filter/before",
    }


@pytest.mark.parametrize(("operation", "name"), QUERIES)
def test_of_a_query(caller, operation: Operation, name: str):
    body = json.dumps({"job": "a", "data": {}}) if operation.path.endswith("messages") else None
    for sent in (*NUMBERS, *SPELLINGS):
        url = f"{operation.url}?{name}={quote(sent)}"
        refused(caller.request(operation.method, url, content=body), sent)


@pytest.mark.parametrize(("operation", "at", "body"), BODIES)
def test_of_a_body(caller, operation: Operation, at: str, body: str):
    if operation.name == "create_token" and at.startswith("/page/"):
        body = json.dumps(json.loads(body) | _END, ensure_ascii=False)
    for sent in (*NUMBERS, *SPELLINGS):
        content = body.replace(f'"{MARK}"', sent).encode()
        refused(caller.request(operation.method, operation.url, content=content), sent, at)


def test_one_bad_line_costs_the_others_nothing(caller):
    """Also one in the chunk after those that are stored already."""
    line = b'{"job":"a","data":{}}\n'
    bad = b'{"job":"a","data":{},"delay_seconds":%b}\n'
    before = caller.get("/queues/numbers").json()["stats"]["depth"]
    lines = line * 1_000 + b"".join(bad % (b"9" * length) for length in LENGTHS) + line
    headers = {"content-type": "application/x-ndjson"}
    answer = caller.post("/queues/numbers/messages:batch", content=lines, headers=headers)
    assert answer.status_code == 207, answer.text[:300]
    found = answer.json()
    assert (found["accepted"], found["failed"]) == (1_001, len(LENGTHS))
    failed = [each for each in found["results"] if each["status"] != 201]
    assert {each["errors"][0]["pointer"] for each in failed} == {"/delay_seconds"}
    assert {each["code"] for each in failed} == {"invalid_delay", "delay_too_long"}
    assert caller.get("/queues/numbers").json()["stats"]["depth"] == before + 1_001


def test_of_broker_properties(caller):
    for sent in (*NUMBERS, *filter(str.isascii, SPELLINGS)):
        headers = {"brokerproperties": f'{{"TimeToLive":{sent}}}'}
        refused(caller.post("/queues/q/messages", json={"job": "a", "data": {}}, headers=headers), sent)


@pytest.mark.parametrize("length", LENGTHS)
def test_of_a_content_length(request, length):
    for way in ("direct", "application"):
        with Connection(*request.getfixturevalue(way).address) as connection:
            head = f"POST /queues/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {'9' * length}\r\n\r\n"
            connection.send(head.encode())
            assert connection.reply().status == 400
            assert connection.ended()
