"""The list layout, which all the SDKs share: an element is the envelope itself, or a frame around it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app import envelope
from app.brokers.binding import NO_HEADERS, BrokerCapabilities, DeadLetterRequest, Delivery, Outgoing
from app.brokers.redis.layouts.frame import MARK, frame, unframe
from app.brokers.redis.layouts.layout import CAPABILITIES, DUE_PER_RESERVE, NO_LIMITS, RedisQueue, Stored
from app.brokers.redis.server import Server
from app.envelope import Poison
from app.runtime import turns


class ListLayout:
    """``<q>``, ``<q>:processing``, ``<q>:processing:deadlines``, ``<q>.dlq``; ours are ``<q>:babelgate:*``."""

    name = "list"
    leased = (b"LLEN", b":processing")
    delayed_suffix = b":babelgate:delayed"
    leases_as_queued = True

    def capabilities(self, queue: RedisQueue) -> BrokerCapabilities:
        """Expiries are counted beside the queue; the route says whether headers are let in. Given, they travel."""
        return replace(CAPABILITIES, delivery_count="added", headers=queue.frames)

    async def push(self, server: Server, queue: RedisQueue, messages: Sequence[Outgoing]) -> None:
        """One variadic RPUSH."""
        await server.call(b"RPUSH", queue.key, *map(self.element, messages))

    def element(self, message: Outgoing) -> bytes:
        """The body, or a frame around it."""
        return frame(message.body, message.headers)

    def delayed(self, queue: RedisQueue, message: Outgoing) -> bytes:
        """Prefixed, so that equal bodies do not become one member."""
        return os.urandom(16).hex().encode("ascii") + b":" + self.element(message)

    async def reserve(self, server: Server, queue: RedisQueue, limit: int, lease_seconds: float) -> Sequence[Delivery]:
        """One script call."""
        tokens = os.urandom(16 * limit).hex()
        reply = await server.run(
            "list_reserve", queue.key, limit, repr(lease_seconds), DUE_PER_RESERVE, tokens.encode("ascii")
        )
        if not reply:
            return ()
        deadline, elements, counts = int(reply[0]), reply[1], reply[2]
        deliveries = []
        for i, element in enumerate(elements):
            body, headers = element, NO_HEADERS
            if MARK in element:
                body, headers = await turns.run(unframe, element, size=len(element))
            handle = f"{tokens[32 * i : 32 * i + 32]}:{deadline + i}"
            # Negative where the last expiry has been reported.
            count = counts[i] if counts else 0
            deliveries.append(
                Delivery(body, handle, (deadline + i) // 1000, headers, abs(count), count != 0, expired=count > 0)
            )
        return deliveries

    def retried(self, stored: Stored) -> bytes:
        """The expiries counted beside the queue move into the body; a body that counts nothing stays as it is.

        A negative count is none, as where it is read: else it would put off the last attempt for as long as it likes.
        """
        body, headers = unframe(stored.value)
        try:
            attempts = envelope.inspect(body, NO_LIMITS).attempts
        except Poison:
            return stored.value
        return frame(envelope.with_attempts(body, max(attempts, 0) + stored.expired + 1), headers)

    def returned(self, handle: str, stored: Stored) -> bytes:
        """The element itself."""
        return stored.value

    def record(self, letter: DeadLetterRequest, stored: Stored) -> bytes:
        """Headers stay with a record, in a frame; that of a poison message is bare."""
        body, headers = unframe(stored.value)
        record = envelope.dead_letter_record(body, letter.block)
        return record if letter.block["reason"] == "poison" else frame(record, headers)

    def read(self, value: bytes) -> tuple[bytes, Mapping[str, str]]:
        """The body and headers of a frame, or the element."""
        return unframe(value)
