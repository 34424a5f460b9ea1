"""A binding that passes everything on to another: the base of those that put a fault in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.brokers.binding import (
    Capabilities,
    DeadLetter,
    DeadRecord,
    Delivery,
    NativeQueue,
    Outcome,
    Outgoing,
    Stats,
)
from app.errors import BabelgateError


class Passing:
    """Binding and DeadLetters, as ``inner`` does them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name: str = inner.name

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        return self.inner.native_queue(name, options)

    def capabilities(self, queue: NativeQueue) -> Capabilities:
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

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        return await self.inner.extend(queue, handles, lease_seconds)

    async def stats(self, queue: NativeQueue) -> Stats:
        return await self.inner.stats(queue)

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetter]) -> Sequence[Outcome]:
        return await self.inner.dead_letter(queue, letters)

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        return await self.inner.read_dead(queue, cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        return await self.inner.remove_dead(queue, records, cursor)

    async def purge_dead(self, queue: NativeQueue, before_ms: int | None = None) -> int:
        return await self.inner.purge_dead(queue, before_ms)
