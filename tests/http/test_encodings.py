"""Bytes that are no text: each body of each operation of the OpenAPI document, in each broken encoding, is refused or
read, and never a failure of the server. So is a signed call of a peer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.harness.encodings import EMPTY, Body, broken
from tests.harness.operations import DOCUMENT, NOTHING, is_endless
from tests.harness.sockets import Connection, Reply
from tests.harness.ways import Served

QUEUE = "emails"
"""The queue of the envelopes among the samples."""
TEXT = "größe"
"""A text with characters of two bytes, where a sample of the document has none."""


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """A schema, where ``node`` only refers to it."""
    if "$ref" not in node:
        return node
    found: Any = DOCUMENT
    for name in node["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return resolved(found)


def samples(node: dict[str, Any]) -> list[Any]:
    """Values of a schema: its example, one with all members, and one for each member that may be left out."""
    schema = resolved(node)
    own = schema.get("examples", [])[:1]
    if "properties" in schema:
        inner = {name: samples(each) for name, each in schema["properties"].items()}
        required = {name: inner[name][0] for name in schema.get("required", ())}
        own += [{name: values[0] for name, values in inner.items()}]
        own += [required | {name: value} for name, values in inner.items() if name not in required for value in values]
        return own
    for cases in ("anyOf", "oneOf", "allOf"):
        if cases in schema:
            return own + [value for each in schema[cases] if each != {"type": "null"} for value in samples(each)]
    kind = schema.get("type", "object")
    if "enum" in schema or "const" in schema:
        return own or [schema.get("const", schema.get("enum", [None])[0])]
    if kind == "array":
        return own + [[value] for value in samples(schema.get("items", {}))]
    if kind in ("integer", "number"):
        return own or [schema.get("minimum", 1)]
    if kind == "boolean":
        return [False, True]
    if kind == "object":
        return own or [{TEXT: {"deeper": [TEXT, {"deepest": TEXT}]}, "job": "count", "data": {TEXT: TEXT}}]
    return own or ["q" if "pattern" in schema else TEXT]


class Operation(NamedTuple):
    """An operation with a media type of its body, and the samples of the body."""

    method: str
    path: str
    kind: str
    bodies: list[bytes]


def operations() -> Iterator[Operation]:
    """All of the document that end. One without a body gets one nevertheless."""
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if method == "parameters" or is_endless(operation):
                continue
            body = operation.get("requestBody", {})
            content = [(kind, samples(each["schema"])) for kind, each in body.get("content", {}).items()]
            for also in body.get("x-also-accepts", []):
                kind, entries = also["mediaType"], [entry for each in also["itemSchemas"] for entry in samples(each)]
                content.append((kind, entries if kind == "application/x-ndjson" else [[entry] for entry in entries]))
            for kind, values in content or [("application/json", [{"a": TEXT}])]:
                texts = [json.dumps(value, ensure_ascii=False).encode() for value in values]
                yield Operation(method.upper(), path, kind, list(dict.fromkeys(texts)))


OPERATIONS = list(operations())


class Caller:
    """Sends requests on one connection as long as the server keeps it."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._connection: Connection | None = None

    def send(self, method: str, path: str, kind: str = "application/json", body: Body = EMPTY) -> Reply:
        """The reply to a request."""
        fields = {"Host": "localhost", "Authorization": "Bearer all", "Content-Type": kind, **body.fields}
        if "charset" in fields:
            fields["Content-Type"] += f"; charset={fields.pop('charset')}"
        fields["Content-Length"] = str(len(body.data))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._connection = self._connection or Connection(*self._served.address)
        self._connection.send(head.encode("latin-1") + b"\r\n" + body.data)
        reply = self._connection.reply()
        if reply.headers.get("connection") == "close":
            self.close()
        return reply

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.__exit__()
        self._connection = None

    def letter(self) -> str:
        """The id of a dead letter."""
        found = self._letters()
        if not found:
            drafts = json.dumps([{"job": "count", "data": {"n": n}} for n in range(20)]).encode()
            assert self.send("POST", f"/queues/{QUEUE}/messages:batch", body=Body(drafts)).status == 201
            wanted = Body(b'{"max_messages":100}')
            received = json.loads(self.send("POST", f"/queues/{QUEUE}/messages:receive", body=wanted).body)["messages"]
            tokens = json.dumps({"ack_tokens": [each["ack_token"] for each in received]}).encode()
            assert self.send("POST", f"/queues/{QUEUE}/messages:reject", body=Body(tokens)).status == 200
            found = self._letters()
        letter: str = found[0]["letter_id"]
        return letter

    def _letters(self) -> Any:
        return json.loads(self.send("GET", f"/queues/{QUEUE}/dead-letters?limit=1").body)["dead_letters"]


@pytest.fixture
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    made = Caller(request.getfixturevalue(request.param))
    yield made
    made.close()


DIRECT = re.compile(r"/queues/.*/messages(:receive|:ack)?")
"""The paths of operations with two ways to serve them."""
CALLS = [
    pytest.param(way, each, id=f"{each.method} {each.path} {each.kind} {number} {way}")
    for number, each in enumerate(OPERATIONS)
    for way in ("direct", "application")
    if way == "direct" or DIRECT.fullmatch(each.path)
]


@pytest.mark.parametrize(("caller", "operation"), CALLS, indirect=["caller"])
def test_no_encoding_of_a_body_is_a_failure(
    caller: Caller, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    letter = caller.letter() if "{letter_id}" in operation.path else ""
    statuses = set()
    for name, body in broken(operation.bodies):
        path = operation.path.format(**NOTHING | {"queue": QUEUE, "letter_id": letter, "id": "0123456789abcdef"})
        reply = caller.send(operation.method, path, operation.kind, body)
        # An entry of a batch has its own status.
        most = 499 if body.is_text or operation.path.endswith(":batch") else 0
        assert 200 <= reply.status <= most or 400 <= reply.status < 500, (name, reply)
        if reply.headers.get("content-type", "").endswith("json"):
            json.loads(reply.body.decode())
        statuses.add(reply.status)
        if letter and reply.status == 200:
            letter = caller.letter()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
    if not re.search(r"\{(id|message_id|trace_id)\}", operation.path):
        assert statuses - {404}, "the path leads nowhere"
    for look in ("messages:peek?limit=100", "dead-letters", "redrives"):
        assert caller.send("GET", f"/queues/{QUEUE}/{look}").status == 200
