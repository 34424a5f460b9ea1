"""The list layout of the SDKs: an element is an envelope, or a frame with headers around it.

A frame is ``{"__bq_frame":1,"headers":{…},"body":"<envelope>"}``; no envelope has the key ``__bq_frame``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from babelgate import envelope
from babelgate.brokers.binding import NO_HEADERS, DeadLetterRequest, Delivery, Outgoing
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.redis.layouts.layout import (
    CAPABILITIES,
    DUE_PER_RESERVE,
    NO_LIMITS,
    LateHandles,
    RedisQueue,
    Reserved,
    Stored,
)
from babelgate.brokers.redis.server import Server
from babelgate.envelope import Poison
from babelgate.runtime import turns

_KEY = "__bq_frame"
MARK = b'"__bq_frame"'
"""Every frame contains this text."""


class ListLayout:
    """``<q>``, ``<q>:processing``, ``<q>:processing:deadlines``, ``<q>.dlq``; ours are ``<q>:babelgate:*``."""

    name = "list"
    leased = (b"LLEN", b":processing")
    delayed_suffix = b":babelgate:delayed"
    leases_as_queued = True

    def capabilities(self, queue: RedisQueue) -> BrokerCapabilities:
        """Expiries are counted beside the queue. The route's ``frames`` decides whether clients may give headers."""
        return replace(CAPABILITIES, delivery_count="added", headers=queue.frames)

    async def push(self, server: Server, queue: RedisQueue, messages: Sequence[Outgoing]) -> None:
        """One variadic RPUSH."""
        await server.call(b"RPUSH", queue.key, *map(self.element, messages))

    def pushed(self, queue: RedisQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The element."""
        return [NativeWrite("RPUSH", {"key": queue.key.decode()}, body=self.element(message))]

    def element(self, message: Outgoing) -> bytes:
        """The body, or a frame around it. Foreign bytes have none, because their readers know no frames."""
        return frame(message.body, message.headers) if message.headers and message.is_envelope else message.body

    def delayed(self, queue: RedisQueue, message: Outgoing) -> bytes:
        """The element with a random prefix, so that equal bodies do not become one member."""
        return os.urandom(16).hex().encode("ascii") + b":" + self.element(message)

    async def reserve(
        self, server: Server, queue: RedisQueue, limit: int, lease_seconds: float, late: LateHandles = lambda _: None
    ) -> Reserved:
        """One script call."""
        tokens = os.urandom(16 * limit).hex()

        def handles(reply: Any) -> list[str]:
            if isinstance(reply, Exception) or not reply:
                return []
            deadline = int(reply[0])
            return [f"{tokens[32 * i : 32 * i + 32]}:{deadline + i}" for i in range(len(reply[1]))]

        arguments = limit, repr(lease_seconds), DUE_PER_RESERVE, tokens.encode("ascii")
        reply = await server.run("list_reserve", queue.key, *arguments, late=lambda reply: late(handles(reply)))
        if not reply:
            return Reserved(())
        deadline, elements, counts = int(reply[0]), reply[1], reply[2]
        deliveries = []
        for i, (element, handle) in enumerate(zip(elements, handles(reply), strict=True)):
            body, headers = element, NO_HEADERS
            if MARK in element:
                body, headers = await turns.run(unframe, element, size=len(element))
            # Negative where the last expiry has been reported before.
            count = counts[i] if counts else 0
            deliveries.append(
                Delivery(
                    body,
                    handle,
                    (deadline + i) // 1000,
                    headers,
                    abs(count),
                    count != 0,
                    expired=count > 0,
                    expired_before=count < 0,
                )
            )
        return Reserved(deliveries)

    def retried(self, stored: Stored) -> bytes:
        """The body with the expiries counted beside the queue; a body that is not an envelope stays as it is.

        A negative ``attempts`` counts as 0; otherwise it would postpone the last attempt.
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
        """The record, in a frame with the message's headers; the record of a poison message has no frame."""
        body, headers = unframe(stored.value)
        record = envelope.dead_letter_record(body, letter.block)
        return record if letter.block["reason"] == "poison" else frame(record, headers)

    def read(self, value: bytes) -> tuple[bytes, Mapping[str, str]]:
        """The body and headers of a frame, or the element."""
        return unframe(value)


def frame(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The element for ``body`` with ``headers``: a frame, or the body itself when no header has a name and a value."""
    kept = {name: value for name, value in headers.items() if name and value}
    if not kept:
        return body
    whole = {_KEY: 1, "headers": kept, "body": body.decode("utf-8")}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def unframe(element: bytes) -> tuple[bytes, Mapping[str, str]]:
    """Body and headers of a stored element. An element that is no frame is a body."""
    if MARK not in element or not element.startswith(b"{"):
        return element, NO_HEADERS
    try:
        whole = json.loads(element)
        if not whole.get(_KEY) or not isinstance(whole.get("body"), str):
            return element, NO_HEADERS
        body = whole["body"].encode("utf-8")
    except (ValueError, RecursionError):
        return element, NO_HEADERS
    headers = whole.get("headers")
    if not isinstance(headers, dict):
        return body, NO_HEADERS
    return body, {name: text for name, value in headers.items() if name and (text := _text(value))}


def _text(value: object) -> str:
    return "" if value is None else str(value)
