"""Keeps idempotency keys in Redis, claimed in the script that publishes the message or in a script of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from babelgate.brokers.batching import batches, send_batches
from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.idempotency_store import (
    RESERVED_SECONDS,
    ClaimResult,
    ExistingKey,
    KeyClaim,
    KeySettlement,
    Terms,
    share_error,
)
from babelgate.brokers.redis.layouts.layout import MAX_COMMAND_BYTES, MAX_COMMAND_MESSAGES, RedisQueue
from babelgate.brokers.redis.server import Server
from babelgate.errors import KeysFull

SWEPT_AT_ONCE = 500
_KEYS_PER_CALL = 1000
_NO_QUEUE = b"babelgate:once"
_NO_LAYOUT = b"-"


class RedisKeys:
    """The keys of one database. ``due_in`` is called with the seconds after which a message is due, and ``used`` with
    each queue that messages were written to."""

    def __init__(
        self, broker: str, server: Server, due_in: Callable[[float], None], used: Callable[[RedisQueue], None]
    ) -> None:
        self._broker = broker
        self._server = server
        self._due_in = due_in
        self._used = used

    async def publish(
        self, queue: NativeQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        """One script call; more only past MAX_COMMAND_BYTES."""
        target = queue.options_as(RedisQueue)
        cut = batches(messages, MAX_COMMAND_MESSAGES, MAX_COMMAND_BYTES, [len(message.body) for message, _ in messages])
        return await send_batches(list(cut), lambda batch: self._publish(target, batch, terms))

    async def _publish(
        self, queue: RedisQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        layout = queue.layout
        arguments: list[Any] = []
        for message, claim in messages:
            delayed = message.delay_seconds > 0
            arguments += (*_claimed(claim), claim.answer) if claim is not None else (b"", b"", b"", b"")
            arguments.append(repr(message.delay_seconds))
            arguments.append(layout.delayed(queue, message) if delayed else layout.element(message))
        reply = await self._run(queue.key, b"publish", layout.name, terms, *arguments)
        results = [self._result(each, claim, terms) for each, (_, claim) in zip(reply, messages, strict=True)]
        self._used(queue)
        delays = [message.delay_seconds for message, _ in messages if message.delay_seconds > 0]
        if delays:
            self._due_in(min(delays))
        return results

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        """One script call per _KEYS_PER_CALL keys."""
        under_way = ceil(RESERVED_SECONDS * 1000)
        results: list[ClaimResult] = []
        for some in batches(claims, _KEYS_PER_CALL):
            claimed = [part for claim in some for part in _claimed(claim)]
            reply = await self._run(_NO_QUEUE, b"reserve", _NO_LAYOUT, terms, under_way, token, *claimed)
            results += [self._result(each, claim, terms) for each, claim in zip(reply, some, strict=True)]
        return results

    async def settle(self, settlings: Sequence[KeySettlement], terms: Terms) -> None:
        """As :meth:`reserve`."""
        for some in batches(settlings, _KEYS_PER_CALL):
            arguments: list[Any] = []
            for each in some:
                arguments += (_field(each.claim), each.token, each.resolution, each.claim.answer)
            await self._run(_NO_QUEUE, b"settle", _NO_LAYOUT, terms, *arguments)

    async def sweep(self) -> int:
        """At most SWEPT_AT_ONCE."""
        return int(await self._run(_NO_QUEUE, b"sweep", _NO_LAYOUT, Terms(), SWEPT_AT_ONCE))

    async def _run(self, queue: bytes, verb: bytes, layout: object, terms: Terms, *arguments: Any) -> Any:
        retention = ceil(terms.retention_seconds * 1000)
        return await self._server.run("claim", queue, verb, layout, retention, terms.max_keys, *arguments)

    def _result(self, reply: Any, claim: KeyClaim | None, terms: Terms) -> ClaimResult:
        if reply == 1 or claim is None:
            return None
        if reply == 0:
            return KeysFull(broker=self._broker, limit=terms.max_keys)
        fingerprint, left, answer = reply
        if isinstance(fingerprint, int):
            return share_error(self._broker, claim, held=fingerprint, limit=left, of_queue=answer == 1)
        return ExistingKey(fingerprint, answer or None, left / 1000)


def _field(claim: KeyClaim) -> bytes:
    """The field of a claim; a queue's name has no colon."""
    return f"{claim.queue}:{claim.key}".encode("ascii")


def _claimed(claim: KeyClaim) -> tuple[bytes, bytes, bytes]:
    return _field(claim), claim.caller.encode(), claim.fingerprint
