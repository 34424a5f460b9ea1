"""A binding that delegates to another one: the base class of bindings with faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from babelgate.brokers.binding import Delivery, NativeQueue, Outcome, Outgoing, QueueStats
from babelgate.brokers.capabilities import BrokerCapabilities

_OPTIONAL = (
    "peek",
    "purge",
    "dead_letter",
    "publish_dead_letters",
    "extend",
    "outstanding",
    "prove",
    "acks_anywhere",
    "read_dead",
    "remove_dead",
    "purge_dead",
    "queues",
    "delivery_limit",
    "queue_warnings",
)


class Passing:
    """A binding, with the optional protocols that ``inner`` offers."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name: str = inner.name
        self.timeout_seconds: float = inner.timeout_seconds
        for verb in _OPTIONAL:
            if hasattr(inner, verb) and not hasattr(self, verb):
                setattr(self, verb, getattr(inner, verb))

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        return self.inner.native_queue(name, options)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        return self.inner.capabilities(queue)

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def ping(self) -> None:
        await self.inner.ping()

    async def warnings(self) -> Sequence[str]:
        return await self.inner.warnings()

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        return await self.inner.publish(queue, messages)

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        return await self.inner.reserve(queue, limit, wait_seconds, lease_seconds)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self.inner.ack(queue, handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        return await self.inner.release(queue, handles, delay_seconds, failed)

    async def stats(self, queue: NativeQueue) -> QueueStats:
        return await self.inner.stats(queue)
