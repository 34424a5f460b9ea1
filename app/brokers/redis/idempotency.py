"""Idempotency keys in Redis: claimed by the script that writes the message, or by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, cast

from app.brokers.binding import NativeQueue, Outgoing
from app.brokers.idempotency_store import RESERVED_SECONDS, ClaimResult, ExistingKey, KeyClaim, KeySettlement, Terms
from app.brokers.redis.layouts.layout import RedisQueue, bounded
from app.brokers.redis.server import Server
from app.errors import BabelgateError, KeysFull

SWEPT_AT_ONCE = 500
_KEYS_PER_CALL = 1000
_NO_QUEUE = b"babelgate:once"
_NO_LAYOUT = b"-"


class RedisKeys:
    """The keys of one database. ``due_in`` is told after how many seconds a message falls due."""

    def __init__(self, broker: str, server: Server, due_in: Callable[[float], None]) -> None:
        self._broker = broker
        self._server = server
        self._due_in = due_in

    async def publish(
        self, queue: NativeQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        """One script call; more only past MAX_COMMAND_BYTES."""
        target = cast(RedisQueue, queue.options)
        runs = list(bounded(range(len(messages)), [message for message, _ in messages]))
        calls = [self._publish(target, [messages[i] for i in run], terms) for run in runs]
        verdicts: list[ClaimResult] = []
        for run, answer in zip(runs, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, BabelgateError):
                verdicts += [answer] * len(run)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                verdicts += answer
        return verdicts

    async def _publish(
        self, queue: RedisQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        layout = queue.layout
        arguments: list[Any] = []
        for message, claim in messages:
            delayed = message.delay_seconds > 0
            arguments += (_field(claim), claim.fingerprint, claim.answer) if claim is not None else (b"", b"", b"")
            arguments.append(repr(message.delay_seconds))
            arguments.append(layout.delayed(queue, message) if delayed else layout.element(message))
        reply = await self._run(queue.key, b"publish", layout.name, terms, *arguments)
        verdicts = [self._verdict(each, terms) for each in reply]
        delays = [message.delay_seconds for message, _ in messages if message.delay_seconds > 0]
        if delays:
            self._due_in(min(delays))
        return verdicts

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        """One script call for each thousand."""
        under_way = ceil(RESERVED_SECONDS * 1000)
        verdicts: list[ClaimResult] = []
        for start in range(0, len(claims), _KEYS_PER_CALL):
            pairs = [part for claim in claims[start : start + _KEYS_PER_CALL] for part in _pair(claim)]
            reply = await self._run(_NO_QUEUE, b"reserve", _NO_LAYOUT, terms, under_way, token, *pairs)
            verdicts += [self._verdict(each, terms) for each in reply]
        return verdicts

    async def settle(self, settlings: Sequence[KeySettlement], terms: Terms) -> None:
        """As :meth:`reserve`."""
        for start in range(0, len(settlings), _KEYS_PER_CALL):
            fates: list[Any] = []
            for each in settlings[start : start + _KEYS_PER_CALL]:
                fates += (_field(each.claim), each.token, each.fate, each.claim.answer)
            await self._run(_NO_QUEUE, b"settle", _NO_LAYOUT, terms, *fates)

    async def sweep(self) -> int:
        """At most SWEPT_AT_ONCE."""
        return int(await self._run(_NO_QUEUE, b"sweep", _NO_LAYOUT, Terms(), SWEPT_AT_ONCE))

    async def _run(self, queue: bytes, verb: bytes, layout: object, terms: Terms, *arguments: Any) -> Any:
        retention = ceil(terms.retention_seconds * 1000)
        return await self._server.run("claim", queue, verb, layout, retention, terms.max_keys, *arguments)

    def _verdict(self, reply: Any, terms: Terms) -> ClaimResult:
        if reply == 1:
            return None
        if reply == 0:
            return KeysFull(broker=self._broker, limit=terms.max_keys)
        fingerprint, left, answer = reply
        return ExistingKey(fingerprint, answer or None, left / 1000)


def _field(claim: KeyClaim | None) -> bytes:
    """A name of a queue has no colon."""
    return b"" if claim is None else f"{claim.queue}:{claim.key}".encode("ascii")


def _pair(claim: KeyClaim) -> tuple[bytes, bytes]:
    return _field(claim), claim.fingerprint
