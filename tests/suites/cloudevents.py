"""CloudEvents: an event that is published on any broker is received as the same event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from babelgate.clock import now_ms
from babelgate.cloudevents import event_of, structured_entry
from babelgate.errors import UnsupportedByBroker
from tests.harness.world import World

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/shop/ümlaut☕",
    "type": "com.example.order.created",
    "subject": "order 4711",
    "time": "2026-04-05T17:31:00.123456789+02:00",
    "datacontenttype": "application/json; charset=utf-8",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
    "amount": 5,
    "urgent": True,
    "data": {"sum": 12345678901234567890, "text": "Café ☕"},
}
ADDED = {"bqtraceid", "bqacktoken", "bqleaseexpiresat", "bqattempts", "bqredelivered"}


class TestCloudEvents:
    async def test_an_event_comes_back_as_it_was_also_from_the_dead_letters(self, world: World) -> None:
        process = await world.process()
        text = {**EVENT, "id": "ö", "datacontenttype": "text/plain"}
        events = [EVENT, {**text, "data": "a text"}, {**text, "data_base64": "AAEC/w=="}]
        del events[2]["data"]
        for event in events:
            entry = structured_entry(json.dumps(event).encode(), world.queue, now_ms)
            await process.publish_body(entry)
            message = await process.one()
            given = json.loads(event_of(message, world.queue))
            assert {name: value for name, value in given.items() if name not in ADDED} == event
            assert given["bqacktoken"] == message.ack_token
            await process.reject(message)
            assert (await process.redrive()).redriven == 1
            message = await process.one()
            again = json.loads(event_of(message, world.queue))
            assert {name: value for name, value in again.items() if name not in ADDED} == event
            await process.ack(message)

    async def test_a_partition_key_orders_where_the_broker_can(self, world: World) -> None:
        process = await world.process()
        event = {**EVENT, "partitionkey": "customer-42"}
        entry = structured_entry(json.dumps(event).encode(), world.queue, now_ms)
        if process.capabilities.ordering == "none":
            with pytest.raises(UnsupportedByBroker) as refusal:
                await process.publish_body(entry)
            assert (refusal.value.problem_code, refusal.value.pointer) == ("ordering_unsupported", "/ordering_key")
            return
        await process.publish_body(entry)
        given = json.loads(event_of(await process.one(), world.queue))
        assert {name: value for name, value in given.items() if name not in ADDED} == event
