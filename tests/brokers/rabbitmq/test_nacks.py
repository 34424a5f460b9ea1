"""The errors of negative confirms, by the type and state of the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from pamqp.commands import Basic

from babelgate.brokers.rabbitmq.management import ManagementClient
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.profile import AddressedMessage, Topology
from babelgate.brokers.rabbitmq.publish import NackErrors
from babelgate.brokers.rabbitmq.topology import Declare
from babelgate.brokers.rabbitmq.url import parameters_of
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown, StorageFull

QUEUE = "orders"
TO_QUEUE = AddressedMessage("", QUEUE, Basic.Properties(), b"")
TO_EXCHANGE = AddressedMessage("jobs", QUEUE, Basic.Properties(), b"")
CLASSIC = queue_of(QUEUE, {}).profile.topology
QUORUM = queue_of(QUEUE, {"queue_type": "quorum"}).profile.topology

REJECTS = {"x-overflow": "reject-publish"}
FULL = {"arguments": {"x-max-length": 1, **REJECTS}}
BY_POLICY = {"effective_policy_definition": {"max-length-bytes": 1, "overflow": "reject-publish-dlx"}}


class Api:
    """A management API that gives ``answer`` for every queue; None: it knows no queue."""

    def __init__(self, answer: Mapping[str, Any] | None) -> None:
        self.asked = 0
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.asked += 1
                self.send_response(404 if answer is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps({"name": QUEUE, **(answer or {})}).encode())

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()


@asynccontextmanager
async def nacks(api: Api) -> AsyncIterator[NackErrors]:
    where = parameters_of("amqp://h/", {"management": f"http://127.0.0.1:{api.server.server_port}"}).management
    assert where is not None
    management = ManagementClient("rabbit", where, "/")
    try:
        yield NackErrors("rabbit", management)
    finally:
        await management.close()
        api.server.shutdown()
        api.server.server_close()


@pytest.mark.parametrize(
    ("message", "topology", "mode", "expected"),
    [
        (TO_QUEUE, QUORUM, "active", BrokerUnavailable),
        # Nobody compared the queue with the options of the route.
        (TO_QUEUE, QUORUM, "passive", OutcomeUnknown),
        (TO_QUEUE, QUORUM, "none", OutcomeUnknown),
        (TO_QUEUE, CLASSIC, "active", OutcomeUnknown),
        # Of several queues behind it one may have taken the message.
        (TO_EXCHANGE, QUORUM, "active", OutcomeUnknown),
    ],
)
async def test_without_the_management_api(
    message: AddressedMessage, topology: Topology, mode: Declare, expected: type[BabelgateError]
) -> None:
    error = await NackErrors("rabbit").error(message, topology, mode)
    assert type(error) is expected
    assert error.retryable and "basic.nack" in error.reason
    assert ("Nothing was written" in error.detail) == (expected is BrokerUnavailable)


@pytest.mark.parametrize(
    ("answer", "topology", "expected"),
    [
        (FULL, CLASSIC, StorageFull),
        (FULL | {"type": "quorum"}, QUORUM, StorageFull),
        (BY_POLICY, CLASSIC, StorageFull),
        # The gateway's own quorum queues reject, and have no limit.
        ({"type": "quorum", "arguments": REJECTS}, QUORUM, BrokerUnavailable),
        ({"type": "quorum"}, CLASSIC, BrokerUnavailable),
        ({"arguments": {"x-max-length": 1}}, CLASSIC, OutcomeUnknown),
        (FULL | {"state": "down"}, CLASSIC, OutcomeUnknown),
        ({"effective_policy_definition": []}, CLASSIC, OutcomeUnknown),
        (None, CLASSIC, OutcomeUnknown),
        (None, QUORUM, BrokerUnavailable),
    ],
)
async def test_with_the_management_api(
    answer: Mapping[str, Any] | None, topology: Topology, expected: type[BabelgateError]
) -> None:
    async with nacks(Api(answer)) as known:
        error = await known.error(TO_QUEUE, topology, "active")
    assert type(error) is expected and error.retryable


async def test_a_queue_that_refuses_all_is_asked_about_once() -> None:
    api = Api(FULL)
    async with nacks(api) as known:
        errors = await asyncio.gather(*(known.error(TO_QUEUE, CLASSIC, "active") for _ in range(100)))
        errors.append(await known.error(TO_QUEUE, CLASSIC, "active"))
        # Of an exchange it could say nothing.
        await known.error(TO_EXCHANGE, CLASSIC, "active")
    assert {type(error) for error in errors} == {StorageFull}
    assert api.asked == 1
