"""CloudEvents between the official SDKs for Python, JavaScript and Go, through a real gateway: each with each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.harness.gateway import gateway
from tests.official.events import COUNTS, LANGUAGES, MODES, Event, data_of, receive, send

_HEAD: dict[str, Any] = {
    "specversion": "1.0",
    "source": "https://example.com/shop",
    "type": "com.example.order.created",
    "time": "2026-04-05T17:31:00.123Z",
}
EVENTS: list[dict[str, Any]] = [
    {
        **_HEAD,
        "id": "A234-1234-1234",
        "subject": 'order 4711, 5% "off" €😀',
        "dataschema": "https://example.com/schemas/order.json",
        "datacontenttype": "application/json",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "comexampleextension": "värde",
        "amount": 5,
        "urgent": True,
        "data": {"sum": 12.5, "items": [{"sku": "ä"}]},
    },
    {**_HEAD, "id": "2", "datacontenttype": "text/plain", "data": "grüße"},
    {**_HEAD, "id": "3", "datacontenttype": "image/png", "data_base64": "iVBORw0KGgr/"},
    {**_HEAD, "id": "4", "datacontenttype": "text/json", "data": {"list": [1, None, "x"]}},
    {**_HEAD, "id": "5"},
]
_OF_DELIVERY = {"bqacktoken", "bqleaseexpiresat", "bqattempts", "bqredelivered", "bqtraceid"}
_CASES = [*product(LANGUAGES, MODES)]


def queue(*names: str) -> str:
    return "-".join(names)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway to which every SDK has sent the events in each mode, to a queue for each SDK that receives them."""
    folder: Path = tmp_path_factory.mktemp("gateway")
    with gateway(folder) as served:
        for language, mode in _CASES:
            urls = [
                f"{served.url}/queues/{queue(language, mode, reader, count)}/messages"
                for reader, count in product(LANGUAGES, COUNTS)
            ]
            send(language, mode, urls, EVENTS)
        yield served.url


def same(event: Event, sent: Event, mode: str) -> None:
    """Fail unless ``event``, as an SDK has received it, is ``sent``."""
    assert event.keys() >= _OF_DELIVERY and event["bqacktoken"]
    own = {name for name in event.keys() - _OF_DELIVERY if event[name] is not None}
    # The gateway adds the one, and the SDK for JavaScript the other in the binary mode.
    own -= {"traceparent", "datacontenttype"} - sent.keys()
    assert own - {"data", "data_base64"} == sent.keys() - {"data", "data_base64"}
    for name in own - {"data", "data_base64", "time"}:
        value = sent[name]
        if mode == "binary" and not isinstance(value, str):
            # Headers have no types.
            assert str(event[name]).lower() == str(value).lower()
        else:
            assert event[name] == value, name
    assert datetime.fromisoformat(event["time"]) == datetime.fromisoformat(sent["time"])
    assert data_of(event) == data_of(sent)


@pytest.mark.parametrize("reader", LANGUAGES)
def test_every_event_of_every_sdk_is_received_in_a_batch(address: str, reader: str) -> None:
    urls = {
        f"{address}/queues/{queue(*case, reader, 'many')}/messages:receive?max_messages=10": case for case in _CASES
    }
    received = receive(reader, "many", [*urls])
    assert received.keys() == urls.keys()
    for url, events in received.items():
        assert len(events) == len(EVENTS)
        for event, sent in zip(events, EVENTS, strict=True):
            same(event, sent, urls[url][1])


@pytest.mark.parametrize("reader", LANGUAGES)
def test_every_event_of_every_sdk_is_received_alone(address: str, reader: str) -> None:
    urls = {f"{address}/queues/{queue(*case, reader, 'one')}/messages:receive": case for case in _CASES}
    for sent in EVENTS:
        for url, (event,) in receive(reader, "one", [*urls]).items():
            same(event, sent, urls[url][1])
