"""The examples of the specification's JSON format and HTTP binding, each as structured, binary and batched event.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md#32-examples
"""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from babelgate.cloudevents import binary_entry, event_of, structured_entry
from babelgate.envelope import inspect, read_publication
from tests.unit.envelope.support import LIMITS, NOW

BYTES = b"\x00\x01thrift\xff"
HEAD = {
    "specversion": "1.0",
    "type": "com.example.someevent",
    "source": "/mycontext",
    "time": "2018-04-05T17:31:00Z",
    "comexampleextension1": "value",
    "comexampleothervalue": 5,
}


class Example(NamedTuple):
    """An example: in the JSON format, and in the binary mode its body and Content-Type."""

    structured: dict[str, Any]
    body: bytes
    content_type: str


EXAMPLES = {
    "binary data": Example(
        {
            **HEAD,
            "id": "A234-1234-1234",
            "datacontenttype": "application/vnd.apache.thrift.binary",
            "data_base64": base64.b64encode(BYTES).decode(),
        },
        BYTES,
        "application/vnd.apache.thrift.binary",
    ),
    "an XML document": Example(
        {
            **HEAD,
            "id": "B234-1234-1234",
            "unsetextension": None,
            "datacontenttype": "application/xml",
            "data": '<much wow="xml"/>',
        },
        b'<much wow="xml"/>',
        "application/xml",
    ),
    "a JSON object": Example(
        {
            **HEAD,
            "subject": None,
            "id": "C234-1234-1234",
            "datacontenttype": "application/json",
            "data": {"appinfoA": "abc", "appinfoB": 123, "appinfoC": True},
        },
        b'{\n  "appinfoA" : "abc",\n  "appinfoB" : 123,\n  "appinfoC" : true\n}',
        "application/json",
    ),
    "a JSON string": Example(
        {**HEAD, "subject": None, "id": "D234-1234-1234", "data": "I'm just a string"},
        b'"I\'m just a string"',
        "application/json",
    ),
    "a pull request": Example(
        {
            **HEAD,
            "type": "com.github.pull_request.opened",
            "source": "https://github.com/cloudevents/spec/pull",
            "subject": "123",
            "id": "A234-1234-1234",
            "datacontenttype": "text/xml",
            "data": '<much wow="xml"/>',
        },
        b'<much wow="xml"/>',
        "text/xml",
    ),
}


def received(entry: bytes) -> dict[str, Any]:
    """The event that a consumer gets of what was published as ``entry``."""
    body = read_publication(entry, "orders", LIMITS, lambda: NOW).envelope.body
    message: Any = SimpleNamespace(
        ack_token="token",
        lease_expires_at=NOW,
        attempts=0,
        redelivered=False,
        headers={},
        body=body,
        trace_id=inspect(body, LIMITS).trace_id,
    )
    made = json.loads(event_of(message, "orders"))
    return {name: value for name, value in made.items() if not name.startswith("bq") and name != "traceparent"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_in_the_json_format(name: str) -> None:
    event = EXAMPLES[name].structured
    made = received(structured_entry(json.dumps(event).encode(), "orders", lambda: NOW))
    # A null stands for no attribute.
    assert made == {name: value for name, value in event.items() if value is not None}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_in_the_binary_mode_is_the_same_event(name: str) -> None:
    event, body, content_type = EXAMPLES[name]
    of_body = ("data", "data_base64", "datacontenttype")
    fields = {
        f"ce-{name}".encode(): str(value).encode()
        for name, value in event.items()
        if name not in of_body and value is not None
    }
    made = received(binary_entry(fields | {b"content-type": content_type.encode()}, body, "orders", lambda: NOW))
    expected = {name: value for name, value in event.items() if value is not None}
    assert made == expected | {"comexampleothervalue": "5", "datacontenttype": content_type}
