"""The RabbitMQ section of the official conformance suite, on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing
from tests.brokers.rabbitmq.harness import binding, browse
from tests.brokers.rabbitmq.server import RabbitServer
from tests.harness import conformance as suite
from tests.harness.world import PATIENCE
from tests.suites.life import outcomes_of

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
def projection() -> dict[str, Any]:
    """The one block of the section."""
    suite.folder()
    section = suite.section("rabbitmq")
    assert section.keys() == {"description", "property_projection"}
    found: dict[str, Any] = section["property_projection"]
    return found


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize("delay", [0, 0.1], ids=["now", "delayed"])
async def test_property_projection(
    projection: dict[str, Any], rabbit: RabbitServer, queue: str, queue_type: str, delay: float
) -> None:
    with suite.judged("rabbitmq", f"property_projection {queue_type}{' delayed' if delay else ''}"):
        body = (suite.folder() / projection["envelope_file"]).read_bytes()
        async with binding(rabbit.url(), {"timeout_seconds": 30}) as one:
            native = one.native_queue(queue, {"queue_type": queue_type})
            message = Outgoing(body, {"traceparent": "00-aa-bb-01"}, delay_seconds=delay)
            # The first delayed message creates the delay queues, which a busy server may not do in the time of a call.
            assert await outcomes_of(lambda: one.publish(native, [message])) == [None]
            (delivery,) = await one.reserve(native, 1, PATIENCE, 30)
            assert (delivery.body, delivery.headers) == (body, {"traceparent": "00-aa-bb-01"})
            assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
        ((properties, found),) = browse(rabbit.url(), queue)
        assert found == body
        assert {name: getattr(properties, name) for name in projection["properties"]} == projection["properties"]
        assert properties.delivery_mode == 2
        headers = {name: properties.headers[name] for name in projection["headers"]}
        assert suite.same(headers, projection["headers"]), "native types: numbers are no texts"
        envelope = json.loads(body)
        assert (headers["x-attempts"], properties.type) == (envelope["attempts"], envelope["job"])
