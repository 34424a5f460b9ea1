"""Apache ActiveMQ Artemis as the tests have it, and as a foreign program or an operator uses its queues."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from proton import Message
from proton.reactor import Copy
from proton.utils import BlockingConnection, SyncRequestResponse

from babelgate.brokers.artemis.binding import ArtemisBinding, connect
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.clock import now_ms
from tests.brokers.artemis.server import ArtemisServer, artemis_server
from tests.harness.broker import ServerBroker, Variant, opened

_SECONDS = 120
_MANY = 10_000


def binding(url: str, options: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[ArtemisBinding]:
    """An open binding, as one process has it."""
    return opened(connect("artemis", url, {"timeout_seconds": 30} | dict(options or {}), now_ms))


@contextmanager
def client(port: int) -> Iterator[BlockingConnection]:
    """A connection of another client library, as a foreign program or an operator would use."""
    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def send(port: int, queue: str, *messages: Message) -> None:
    """Send messages as they are."""
    with client(port) as connection:
        sender = connection.create_sender(queue)
        for message in messages:
            sender.send(message)


def browse(port: int, queue: str) -> list[Message]:
    """All that is ready on ``queue``, oldest first."""
    with client(port) as connection:
        receiver = connection.create_receiver(queue, credit=0, options=Copy())
        arrived = receiver.fetcher.incoming  # type: ignore[union-attr]
        receiver.link.drain(_MANY)
        connection.wait(lambda: receiver.link.credit == 0)
        return [message for message, _ in arrived]


def attribute(connection: BlockingConnection, resource: str, name: str) -> int:
    """An attribute of ``resource`` that is a number; 0 if the resource is missing."""
    question = Message(properties={"_AMQ_ResourceName": resource, "_AMQ_Attribute": name}, body="[]")
    answer: Any = SyncRequestResponse(connection, "activemq.management").call(question)
    return int(json.loads(answer.body)[0]) if answer.properties["_AMQ_OperationSucceeded"] else 0


def count(port: int, queue: str) -> int:
    """The number of all messages of ``queue``, also of those that are delayed; 0 if it is missing."""
    with client(port) as connection:
        return attribute(connection, f"queue.{queue}", "messageCount")


def senders(port: int) -> list[str]:
    """The queue of each sender that clients have attached."""
    return _links(port, "listProducersInfoAsJSON", "destination")


def receivers(port: int) -> list[str]:
    """The queue of each receiver that clients have attached."""
    return _links(port, "listAllConsumersAsJSON", "queueName")


def destroy(port: int, queue: str) -> None:
    """Destroy a queue with its receivers."""
    properties: Any = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "destroyQueue"}
    with client(port) as connection:
        question = Message(properties=properties, body=json.dumps([queue, True]))
        SyncRequestResponse(connection, "activemq.management").call(question)


def _links(port: int, operation: str, queue: str) -> list[str]:
    properties: Any = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}
    with client(port) as connection:
        question = Message(properties=properties, body="[]")
        answer: Any = SyncRequestResponse(connection, "activemq.management").call(question)
    return [each[queue] for each in json.loads(json.loads(answer.body)[0])]


class ArtemisBroker(ServerBroker):
    """A server."""

    kind = "artemis"
    sample = "artemis://127.0.0.1"
    name = "artemis"
    far_delay = 1.5
    server: ArtemisServer

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Any]:
        return artemis_server()

    async def inject(self, queue: str, *bodies: bytes) -> None:
        messages = [Message(body=body, durable=True, inferred=True) for body in bodies]
        await asyncio.to_thread(send, self.server.port, queue, *messages)

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        return await asyncio.to_thread(self._stored, queue, delayed)

    async def dead(self, queue: str) -> Sequence[bytes]:
        found = await asyncio.to_thread(browse, self.server.port, f"{queue}.dlq")
        return [_body(each) for each in found]

    def _stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        found = browse(self.server.port, queue)
        deadline = time.monotonic() + _SECONDS
        # No client sees a delayed message.
        while delayed and len(found) < count(self.server.port, queue) and time.monotonic() < deadline:
            time.sleep(0.05)
            found = browse(self.server.port, queue)
        return [_write(queue, each) for each in found]


def _body(message: Message) -> bytes:
    body: Any = message.body
    return body.encode() if isinstance(body, str) else bytes(body)


def _write(queue: str, message: Message) -> NativeWrite:
    fields: dict[str, Any] = {"body": "data" if message.inferred else "amqp-value", "durable": message.durable}
    annotations: Mapping[Any, Any] = message.annotations or {}
    properties: Mapping[Any, Any] = message.properties or {}
    fields |= {str(name): value for name, value in annotations.items()}
    if message.correlation_id is not None:
        fields["correlation-id"] = message.correlation_id
    if message.creation_time:
        fields["creation-time"] = round(message.creation_time * 1000)
    headers = {str(name): NativeHeader("string", value) for name, value in properties.items()}
    return NativeWrite("transfer", {"target": queue}, fields, headers, _body(message))


VARIANTS = (Variant("artemis", ArtemisBroker, {}, "ActiveMQ Artemis"),)
