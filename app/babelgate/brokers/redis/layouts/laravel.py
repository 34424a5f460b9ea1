"""Laravel's layout: bare envelopes, delays in Laravel's own set, attempts counted when a job is reserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from babelgate import envelope
from babelgate.brokers.binding import NO_HEADERS, DeadLetterRequest, Delivery, Outgoing
from babelgate.brokers.capabilities import REPORTS, BrokerCapabilities
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

_REWRITTEN = -1
_RAW = 0


class LaravelLayout:
    """``queues:<name>`` with ``:delayed``, ``:reserved`` and ``:notify``.

    A handle ends with the position of the digits of ``attempts`` in the reserved member. There the number is decreased
    again, which restores the queued job byte for byte. Where ``attempts`` is no plain integer literal, the server's
    JSON library has written the whole member; its changes stay, as with Laravel itself.
    """

    name = "laravel"
    leased = (b"ZCARD", b":reserved")
    delayed_suffix = b":delayed"
    leases_as_queued = False

    def capabilities(self, queue: RedisQueue) -> BrokerCapabilities:
        """The reserve counts attempts in the body, whatever ended the last one; there is no place for headers."""
        return replace(CAPABILITIES, reports=REPORTS - {"expiries"})

    async def push(self, server: Server, queue: RedisQueue, messages: Sequence[Outgoing]) -> None:
        """One script call, which appends the jobs and their wake-up tokens."""
        await server.run("laravel_push", queue.key, *map(self.element, messages))

    def pushed(self, queue: RedisQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The job, and the token that wakes a worker of Laravel."""
        key = queue.key.decode()
        return [
            NativeWrite("RPUSH", {"key": key}, body=self.element(message)),
            NativeWrite("RPUSH", {"key": f"{key}:notify"}, body=b"1"),
        ]

    def element(self, message: Outgoing) -> bytes:
        """The job itself."""
        return message.body

    def delayed(self, queue: RedisQueue, message: Outgoing) -> bytes:
        """The job itself."""
        return message.body

    async def reserve(
        self, server: Server, queue: RedisQueue, limit: int, lease_seconds: float, late: LateHandles = lambda _: None
    ) -> Reserved:
        """One script call. Jobs of Laravel itself are left, if the route says so."""

        def reserved(reply: Any) -> list[Delivery]:
            if isinstance(reply, Exception):
                return []
            deadline, jobs, ids, places = int(reply[0]), reply[1], reply[2], reply[3]
            return [
                Delivery(job, f"{ids[i].decode('ascii')}:{deadline + i}:{places[i]}", (deadline + i) // 1000)
                for i, job in enumerate(jobs)
            ]

        arguments = limit, repr(lease_seconds), DUE_PER_RESERVE, b"1" if queue.leaves_foreign else b"0"
        reply = await server.run(
            "laravel_reserve",
            queue.key,
            *arguments,
            late=lambda reply: late([each.handle for each in reserved(reply)]),
        )
        return Reserved(reserved(reply), reply[4])

    def retried(self, stored: Stored) -> bytes:
        """The reserved member, which counts this attempt already."""
        return stored.value

    def returned(self, handle: str, stored: Stored) -> bytes:
        """The job as it was queued."""
        place = int(handle.rpartition(":")[2])
        member = stored.value
        if place == _RAW:
            return member
        if place == _REWRITTEN:
            try:
                return envelope.with_attempts(member, envelope.inspect(member, NO_LIMITS).attempts - 1)
            except Poison:
                return member
        start = end = place - 1
        while member[end : end + 1].isdigit():
            end += 1
        return member[:start] + b"%d" % (int(member[start:end]) - 1) + member[end:]

    def record(self, letter: DeadLetterRequest, stored: Stored) -> bytes:
        """The record of the job as it was queued."""
        return envelope.dead_letter_record(self.returned(letter.handle, stored), letter.block)

    def read(self, value: bytes) -> tuple[bytes, Mapping[str, str]]:
        """The job."""
        return value, NO_HEADERS
