"""Azure Service Bus as the tests have it: an emulator of its protocol."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.servicebus.binding import ServiceBusBinding, connect
from babelgate.brokers.servicebus.queue import ServiceBusQueue, queue_of
from babelgate.clock import now_ms
from tests.brokers.servicebus.server import ServiceBusEmulator, emulator
from tests.harness.broker import ServerBroker, Variant, opened

_LOCK_SECONDS = 15
"""How long the messages of a process that has ended stay locked, and how late a renewal may be on a busy machine."""

_SHOWN = {
    "subject": "Subject",
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "content_type": "ContentType",
    "group_id": "SessionId",
}


def binding(url: str, options: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[ServiceBusBinding]:
    """An open binding, as one process has it."""
    return opened(connect("azure", url, {"timeout_seconds": 30} | dict(options or {}), now_ms))


class ServiceBusBroker(ServerBroker):
    """Queues without sessions."""

    kind = "servicebus"
    sample = "servicebus://sample.servicebus.windows.net"
    name = "azure"
    spare_seconds = _LOCK_SECONDS
    unrenewed_seconds = _LOCK_SECONDS / 2
    server: ServiceBusEmulator

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Any]:
        return _configured(directory)

    @property
    def url(self) -> str:
        return self.server.url(self._port)

    async def inject(self, queue: str, *bodies: bytes) -> None:
        await asyncio.to_thread(self.server.inject, queue, *bodies)

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        found = await asyncio.to_thread(self.server.messages, queue)
        return [_write(self._queue(queue), each) for each in found]

    async def dead(self, queue: str) -> Sequence[bytes]:
        found = await asyncio.to_thread(self.server.messages, self._queue(queue).dead)
        return [base64.b64decode(each["body"]) for each in found]

    def _queue(self, queue: str) -> ServiceBusQueue:
        return queue_of(queue, self.queue_options)


@contextmanager
def _configured(directory: Path) -> Iterator[ServiceBusEmulator]:
    """An emulator whose queues give no message up by themselves, and soon show those of a process that has ended."""
    with emulator(directory) as server:
        server.defaults(lock_seconds=_LOCK_SECONDS, max_delivery_count=1000, max_message_size=104_857_600)
        yield server


def _write(queue: ServiceBusQueue, message: Mapping[str, Any]) -> NativeWrite:
    properties = message["properties"]
    fields = {shown: properties[name]["value"] for name, shown in _SHOWN.items() if name in properties}
    due = message["annotations"].get("x-opt-scheduled-enqueue-time")
    if due is not None:
        fields["ScheduledEnqueueTimeUtc"] = due["value"]
    headers = {
        name: NativeHeader(each["type"], each["value"]) for name, each in message["application_properties"].items()
    }
    return NativeWrite("send", {"queue": queue.name}, fields, headers, base64.b64decode(message["body"]))


VARIANTS = (Variant("servicebus", ServiceBusBroker, {}, "Azure Service Bus"),)
