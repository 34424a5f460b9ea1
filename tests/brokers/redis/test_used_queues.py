"""The record of the queues that gateways have used, in a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.idempotency_store import KeyClaim, Terms
from babelgate.brokers.redis.binding import RedisBinding, connect
from babelgate.brokers.redis.used_queues import RECORDED_SECONDS, USED, UsedQueues
from babelgate.clock import now_ms
from tests.brokers.redis.harness import RedisServer, binding, client
from tests.harness.world import until

pytestmark = pytest.mark.redis
DATABASE = 9


@pytest.fixture
async def alone(server: RedisServer) -> AsyncIterator[RedisBinding]:
    """A binding of an empty database."""
    with client(server, DATABASE) as plain:
        plain.flushdb()
    async with binding(server.url(DATABASE)) as opened:
        yield opened


async def listed(one: RedisBinding, *names: str) -> None:
    """Wait until exactly these are listed."""

    async def are() -> bool:
        return sorted(await one.queues()) == sorted(names)

    await until(are)


async def test_a_queue_is_listed_once_it_was_written_or_received_from(alone: RedisBinding, server: RedisServer) -> None:
    assert await alone.queues() == []
    now, later, keyed = (alone.native_queue(name, {}) for name in ("now", "later", "keyed"))
    laravel = alone.native_queue("v", {"layout": "laravel", "prefix": "lv:"})
    await alone.publish(now, [Outgoing(b"{}")])
    await alone.publish(later, [Outgoing(b"{}", delay_seconds=60)])
    await alone.publish(laravel, [Outgoing(b"{}")])
    claim = KeyClaim("keyed", "k", bytes(32), b"{}", "shop")
    await alone.keys.publish(keyed, [(Outgoing(b"{}"), claim)], Terms())
    await listed(alone, "now", "later", "lv:v", "keyed")
    # Reads do not count, and a queue of another program does once a message was received.
    foreign = alone.native_queue("foreign", {})
    await alone.stats(foreign)
    assert await alone.reserve(foreign, 1, 0, 60) == ()
    with client(server, DATABASE) as plain:
        plain.rpush("foreign", b"{}")
    await listed(alone, "now", "later", "lv:v", "keyed")
    assert len(await alone.reserve(foreign, 1, 0, 60)) == 1
    await listed(alone, "now", "later", "lv:v", "keyed", "foreign")


class Recording:
    """A record whose clock and work a test controls."""

    def __init__(self, opened: RedisBinding) -> None:
        self.now = now_ms()
        self.work: list[Coroutine[Any, Any, None]] = []
        self.used = UsedQueues(opened.server, lambda: self.now, self.work.append)

    async def run(self) -> int:
        work, self.work[:] = [*self.work], []
        for each in work:
            await each
        return len(work)


async def test_a_known_queue_costs_nothing_until_its_record_is_old(alone: RedisBinding, server: RedisServer) -> None:
    recording = Recording(alone)
    queue = alone.native_queue("q", {}).options
    for _ in range(3):
        recording.used.used(queue)
    assert await recording.run() == 1
    with client(server, DATABASE) as plain:
        plain.delete(USED)
    recording.now += RECORDED_SECONDS * 1000 - 1
    recording.used.used(queue)
    assert await recording.run() == 0
    recording.now += 1
    recording.used.used(queue)
    assert await recording.run() == 1
    assert await recording.used.queues() == ["q"]


async def test_the_record_is_bounded_and_keeps_the_newest(alone: RedisBinding, server: RedisServer) -> None:
    recording = Recording(alone)
    with client(server, DATABASE) as plain:
        plain.zadd(USED, {f"old.{number}": number for number in range(10_000)})
        recording.used.used(alone.native_queue("new", {}).options)
        await recording.run()
        assert plain.zcard(USED) == 10_000
        assert plain.zscore(USED, "old.0") is None
        assert (await recording.used.queues())[0] == "new"


async def test_an_access_list_without_the_record_does_not_hinder_a_publish(server: RedisServer) -> None:
    with client(server) as plain:
        plain.execute_command("ACL", "SETUSER", "narrow", "on", ">secret", "+@all", "~q*", "~babelgate:timed")
    try:
        opened = connect("cache", server.url().replace("//", "//narrow:secret@"), {}, now_ms)
        try:
            native = opened.native_queue("q.narrow", {})
            for _ in range(2):
                assert await opened.publish(native, [Outgoing(b"{}")]) == [None]
        finally:
            await opened.close()
    finally:
        with client(server) as plain:
            plain.execute_command("ACL", "DELUSER", "narrow")
