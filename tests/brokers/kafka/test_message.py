"""Keys, native headers and dates of records: what a retry, a dead letter and a redrive keep byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.brokers.kafka.message import CarriedRecord, record_of
from tests.brokers.kafka.harness import STANDARD, KafkaBroker, read, write
from tests.brokers.kafka.server import KafkaServer
from tests.harness.world import Process, World, data, until

pytestmark = pytest.mark.kafka

BODY = b'{"job":"urn:a","trace_id":"t","data":{"n":1},"meta":{"id":"i","schema_version":1},"attempts":0}'
KEY = b"\x00\xffkey"
NATIVE: list[tuple[str, bytes | None]] = [
    ("text", "größe".encode()),
    ("bytes", b"\xff\xfe\x00"),
    ("null", None),
    ("empty", b""),
    ("repeated", b"first"),
    ("repeated", b"\xff"),
    ("repeated", b"last"),
]
TEXTS = {"text": "größe", "empty": "", "repeated": "last"}


@pytest.fixture
async def process(server: KafkaServer, queue: str) -> AsyncIterator[Process]:
    world = World(KafkaBroker(server, STANDARD), queue)
    yield await world.process()
    await world.close()


async def sent(server: KafkaServer, queue: str, body: bytes = BODY) -> None:
    await asyncio.to_thread(write, server.port, queue, {"value": body, "key": KEY, "headers": NATIVE})


async def last(server: KafkaServer, topic: str) -> Any:
    return (await asyncio.to_thread(read, server.port, topic))[-1]


async def is_dead(process: Process) -> None:
    """Receive until the poison record is dead-lettered."""

    async def has_letter() -> bool:
        assert await process.receive() == []
        return bool(await process.dead())

    await until(has_letter)


def native(record: Any) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in record.headers() if not name.startswith("bq-")]


async def test_headers_are_handed_out_as_texts_where_they_are_texts(
    server: KafkaServer, process: Process, queue: str
) -> None:
    await sent(server, queue)
    message = await process.one()
    assert {name: value for name, value in message.headers.items() if name != "traceparent"} == TEXTS


async def test_a_retry_keeps_key_and_headers(server: KafkaServer, process: Process, queue: str) -> None:
    await sent(server, queue)
    assert await process.nack(await process.one()) == [None]
    again = await last(server, queue)
    assert (native(again), again.key()) == (NATIVE, KEY)
    assert dict(again.headers())["bq-attempts"] == b"1"


async def test_a_delayed_retry_keeps_key_and_headers(server: KafkaServer, process: Process, queue: str) -> None:
    """Through a retry tier and the re-injector."""
    await sent(server, queue)
    assert await process.nack(await process.one(), delay=0.1) == [None]
    assert data(await process.one()) == {"n": 1}
    again = await last(server, queue)
    assert (again.offset(), native(again), again.key()) == (1, NATIVE, KEY)
    assert {"bq-delay", "bq-original-topic"}.isdisjoint(dict(again.headers()))


@pytest.mark.parametrize("body", [BODY, b"no json", b"\xff"], ids=["envelope", "poison", "bytes"])
async def test_a_dead_letter_and_a_redrive_keep_key_and_headers(
    server: KafkaServer, process: Process, queue: str, body: bytes
) -> None:
    await sent(server, queue, body)
    if body is BODY:
        await process.reject(await process.one())
    else:
        await is_dead(process)
    assert len(await process.dead()) == 1
    dead = await last(server, f"{queue}.dlq")
    assert (native(dead), dead.key()) == (NATIVE, KEY)
    if body is BODY:
        assert (await process.redrive()).redriven == 1
        again = await last(server, queue)
        assert (again.offset(), native(again), again.key()) == (1, NATIVE, KEY)


async def test_a_tombstone_is_poison(server: KafkaServer, process: Process, queue: str) -> None:
    await asyncio.to_thread(write, server.port, queue, {"value": None, "key": KEY, "headers": NATIVE})
    await is_dead(process)
    dead = await last(server, f"{queue}.dlq")
    assert (native(dead), dead.key()) == (NATIVE, KEY)
    assert json.loads(dead.value())["dead_letter"]["reason"] == "poison"


def test_a_header_that_a_client_changes_replaces_the_carried_one() -> None:
    carried = CarriedRecord(KEY, NATIVE)
    headers = {"text": "other", "empty": "", "new": "1"}
    written = record_of(Outgoing(BODY, headers, carried=carried, failure=LastFailure(1)), "t", 0)
    kept = [each for each in NATIVE if each[0] in ("bytes", "null", "empty")]
    assert [each for each in written.headers if not each[0].startswith("bq-")] == [
        *kept,
        ("text", b"other"),
        ("new", b"1"),
    ]


@pytest.mark.parametrize(
    ("created", "dated"),
    [(1_700_000_000_000, 1_700_000_000_000), (-1, 0), (2**62, 0), (1_700_003_600_001, 0), (True, 0)],
)
def test_a_new_message_has_the_date_of_its_creation_unless_a_broker_refuses_that(created: Any, dated: int) -> None:
    body = json.dumps({"job": "a", "meta": {"created_at": created}}).encode()
    assert record_of(Outgoing(body, dedup_id="i"), "t", 1_700_000_000_000).timestamp == dated


def test_a_copy_has_the_date_of_its_write() -> None:
    body = b'{"job":"a","meta":{"created_at":1700000000000}}'
    late = Outgoing(body, dedup_id="i", is_late=True)
    for copy in (Outgoing(body), Outgoing(body, dedup_id="i", failure=LastFailure(1)), late):
        assert record_of(copy, "t", 1_700_000_000_000).timestamp == 0


def test_a_client_cannot_set_the_headers_of_the_contract() -> None:
    written = record_of(Outgoing(BODY, {"bq-attempts": "9", "bq-delay": "1"}, dedup_id="i"), "t", 0)
    assert [value for name, value in written.headers if name == "bq-attempts"] == [b"0"]
    assert "bq-delay" not in dict(written.headers)
