"""Idempotency keys in Redis: what time does to them, what is stored, and what stands in the way of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.idempotency_store import (
    RESERVED_SECONDS,
    TOKEN_BYTES,
    ClaimResult,
    ExistingKey,
    KeyClaim,
    KeySettlement,
    Terms,
)
from babelgate.brokers.redis.binding import RedisBinding
from babelgate.brokers.redis.layouts.layout import MAX_COMMAND_BYTES
from babelgate.errors import BrokerRejected, KeyShareFull, StorageFull
from tests.brokers.redis.harness import RedisServer, binding, client

pytestmark = pytest.mark.redis

TERMS = Terms(retention_seconds=100, max_keys=2000)
TOKEN = b"t" * TOKEN_BYTES
DONE = b'{"id":"1"}'
BODY = b'{"job":"urn:babel:test:made"}'
RECORDS, ENDS, SHARES = "babelgate:once", "babelgate:once:ends", "babelgate:once:shares"


@pytest.fixture
async def opened(server: RedisServer) -> AsyncIterator[RedisBinding]:
    """A binding on an empty database, whose clock stands."""
    with client(server) as plain:
        plain.flushdb()
    async with binding(server.url()) as running:
        running.server.now = b"1000"
        yield running


def claim(key: str, queue: str = "q", caller: str = "shop") -> KeyClaim:
    return KeyClaim(queue, key, b"f" * 32, DONE, caller)


async def publish(
    opened: RedisBinding, keys: Sequence[str], terms: Terms = TERMS, body: bytes = BODY, **options: Any
) -> Sequence[ClaimResult]:
    queue = opened.native_queue("q", options)
    return await opened.keys.publish(queue, [(Outgoing(body), claim(key)) for key in keys], terms)


async def test_a_reservation_is_under_way_for_a_while_and_then_cut_off(opened: RedisBinding) -> None:
    assert list(await opened.keys.reserve([claim("k")], TOKEN, TERMS)) == [None]
    opened.server.now = b"1020"
    assert list(await publish(opened, ["k"])) == [ExistingKey(b"f" * 32, None, RESERVED_SECONDS - 20)]
    opened.server.now = b"1080"
    assert list(await publish(opened, ["k"])) == [ExistingKey(b"f" * 32, None, 0)]
    await opened.keys.settle([KeySettlement(claim("k"), TOKEN, "done")], TERMS)
    opened.server.now = b"1179"
    assert list(await publish(opened, ["k"])) == [ExistingKey(b"f" * 32, DONE, 0)]
    opened.server.now = b"1180"
    assert list(await publish(opened, ["k"])) == [None]


async def test_what_is_under_way_outlives_a_short_retention(opened: RedisBinding) -> None:
    short = Terms(retention_seconds=1, max_keys=10)
    await opened.keys.reserve([claim("k")], TOKEN, short)
    opened.server.now = b"1059"
    assert list(await publish(opened, ["k"], short)) == [ExistingKey(b"f" * 32, None, 1)]


async def test_both_keys_hold_the_same_fields(opened: RedisBinding, server: RedisServer) -> None:
    await publish(opened, [f"k{n}" for n in range(700)])
    reserved = [claim(f"r{n}") for n in range(10)]
    await opened.keys.reserve(reserved, TOKEN, TERMS)
    await opened.keys.settle([KeySettlement(each, TOKEN, "free") for each in reserved[:4]], TERMS)
    with client(server) as plain:
        assert plain.hlen(RECORDS) == 706
        assert set(plain.hkeys(RECORDS)) == set(plain.zrange(ENDS, 0, -1))
        assert plain.llen("q") == 700
        opened.server.now = b"2000"
        assert list(await publish(opened, ["k0", "k1"])) == [None, None]
        while await opened.keys.sweep():
            pass
        assert set(plain.hkeys(RECORDS)) == set(plain.zrange(ENDS, 0, -1)) == {b"q:k0", b"q:k1"}


async def test_a_full_store_makes_room_of_what_has_expired(opened: RedisBinding) -> None:
    few = Terms(retention_seconds=100, max_keys=50)
    verdicts = await publish(opened, [f"k{n}" for n in range(60)], few)
    assert [type(verdict) for verdict in verdicts] == [type(None)] * 27 + [KeyShareFull] * 33
    opened.server.now = b"1100"
    assert list(await publish(opened, [f"n{n}" for n in range(27)], few)) == [None] * 27


@pytest.mark.parametrize("options", [{}, {"layout": "laravel"}], ids=["list", "laravel"])
async def test_more_than_one_command_takes(opened: RedisBinding, server: RedisServer, options: Any) -> None:
    body = b"x" * (MAX_COMMAND_BYTES // 3)
    keys = [f"k{n}" for n in range(7)]
    assert list(await publish(opened, keys, body=body, **options)) == [None] * 7
    assert [type(verdict) for verdict in await publish(opened, keys, body=body, **options)] == [ExistingKey] * 7
    name = "queues:q" if options else "q"
    with client(server) as plain:
        assert plain.llen(name) == 7
        assert plain.llen(f"{name}:notify") == (7 if options else 0)


@pytest.mark.parametrize("wrong", ["q", RECORDS, ENDS, SHARES])
async def test_a_key_of_another_type_leaves_nothing_half_done(
    opened: RedisBinding, server: RedisServer, wrong: str
) -> None:
    with client(server) as plain:
        plain.set(wrong, "a string")
        (refused,) = await publish(opened, ["k"])
        assert isinstance(refused, BrokerRejected)
        assert plain.keys() == [wrong.encode()]


@pytest.mark.parametrize("denied", ["-rpush", "-zadd", "-hset", "-hincrby"])
async def test_a_user_who_may_not_write_the_message_leaves_no_key(
    opened: RedisBinding, server: RedisServer, denied: str
) -> None:
    message = Outgoing(BODY), claim("k")
    with client(server) as plain:
        try:
            plain.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", denied)
            async with binding(f"redis://limited:secret@127.0.0.1:{server.port}/0") as limited:
                queue = limited.native_queue("q", {})
                (refused,) = await limited.keys.publish(queue, [message], TERMS)
                assert isinstance(refused, BrokerRejected), refused
                assert (plain.llen("q"), plain.hlen(RECORDS), plain.zcard(ENDS)) == (0, 0, 0)
                assert counts(plain) == []
                plain.execute_command("ACL", "SETUSER", "limited", "+@all")
                assert list(await limited.keys.publish(queue, [message], TERMS)) == [None]
        finally:
            plain.execute_command("ACL", "DELUSER", "limited")
        assert (plain.llen("q"), plain.hlen(RECORDS), plain.zcard(ENDS)) == (1, 1, 1)


async def test_a_server_without_memory_writes_neither_key_nor_message(
    opened: RedisBinding, server: RedisServer
) -> None:
    with client(server) as plain:
        plain.config_set("maxmemory", 1)
        try:
            (refused,) = await publish(opened, ["k"])
            assert isinstance(refused, StorageFull)
            assert plain.keys() == []
        finally:
            plain.config_set("maxmemory", 0)
        assert list(await publish(opened, ["k"])) == [None]
        # Keys of the version before are answered, too.
        plain.delete(SHARES)
        plain.config_set("maxmemory", 1)
        try:
            assert list(await publish(opened, ["k"])) == [ExistingKey(b"f" * 32, DONE, 0)]
        finally:
            plain.config_set("maxmemory", 0)


def counts(plain: Any) -> list[int]:
    """What is counted: of each caller, of each of its queues, and of all."""
    return sorted(int(n) for field, n in plain.hgetall(SHARES).items() if field != b"since")


async def test_the_shares_follow_all_that_happens_to_keys(opened: RedisBinding, server: RedisServer) -> None:
    keys = opened.keys
    with client(server) as plain:
        taken = [claim(f"k{n}", queue, caller) for queue in "ab" for caller in ("shop", "blog") for n in range(40)]
        # Of equal keys the first caller's counts.
        assert [each for each in await keys.reserve(taken, TOKEN, TERMS) if each is None] == [None] * 80
        mixed = [claim(f"m{n}", "a", ("shop", "blog")[n % 2]) for n in range(10)]
        await keys.reserve(mixed, TOKEN, TERMS)
        assert counts(plain) == [5, 5, 40, 45, 85, 90]
        fates = [KeySettlement(each, TOKEN, "free") for each in mixed[:4]]
        await keys.settle([*fates, *fates, *(KeySettlement(each, TOKEN, "done") for each in mixed[4:])], TERMS)
        assert counts(plain) == [3, 3, 40, 43, 83, 86]
        opened.server.now = b"1200"
        # An expired key that another caller claims counts for this one.
        assert list(await keys.reserve([claim("k39", "b", "crm")], TOKEN, TERMS)) == [None]
        assert plain.hlen(RECORDS) == max(counts(plain))
        while await keys.sweep():
            pass
        assert counts(plain) == [1, 1, 1]
        opened.server.now = b"1400"
        while await keys.sweep():
            pass
        assert counts(plain) == [], "a flood of queue names leaves nothing"


async def test_records_of_the_version_before(opened: RedisBinding, server: RedisServer) -> None:
    """They belong to no caller and take their place. An older gateway may write and remove records at the same time."""
    terms = Terms(retention_seconds=50, max_keys=16)
    with client(server) as plain:

        def older(key: str, token: bytes, answer: bytes, until: int = 0) -> None:
            record = b"%013d%013d" % (1100_000, until) + b"f" * 32 + token + answer
            plain.hset(RECORDS, f"q:{key}", record)
            plain.zadd(ENDS, {f"q:{key}": 1100_000})

        older("done", b"\0" * 16, DONE)
        older("reserved", b"0123456789abcdef", b"", 1060_000)
        for n in range(6):
            older(f"old{n}", b"\0" * 16, DONE)
        results = await publish(opened, ["done", "reserved"], terms)
        assert results == [ExistingKey(b"f" * 32, DONE, 0), ExistingKey(b"f" * 32, None, 60)]
        # Three quarters of the 8 that are left, and of that three quarters for one queue.
        results = await publish(opened, [f"k{n}" for n in range(6)], terms)
        assert [type(each) for each in results] == [type(None)] * 4 + [KeyShareFull] * 2
        # What the older gateway answers for a record of this version: it reads the rest after 74 bytes.
        record = plain.hget(RECORDS, "q:k0")
        assert isinstance(record, bytes) and record[74:] == DONE
        opened.server.now = b"1070"
        # Its sweep removes records that are counted.
        plain.hdel(RECORDS, *(f"q:k{n}" for n in range(4)))
        plain.zrem(ENDS, *(f"q:k{n}" for n in range(4)))
        assert counts(plain) == [4, 4, 4]
        opened.server.now = b"1200"
        while await opened.keys.sweep():
            pass
        assert plain.hlen(RECORDS) == 0
        results = await publish(opened, [f"n{n}" for n in range(10)], terms)
        assert [type(each) for each in results] == [type(None)] * 9 + [KeyShareFull], "the count is right again"
        assert counts(plain) == [9, 9, 9]


@pytest.mark.parametrize("lost", [RECORDS, SHARES])
async def test_a_server_that_evicts_a_key_makes_no_share_smaller(
    opened: RedisBinding, server: RedisServer, lost: str
) -> None:
    terms = Terms(retention_seconds=50, max_keys=16)
    with client(server) as plain:
        assert list(await publish(opened, [f"k{n}" for n in range(9)], terms)) == [None] * 9
        plain.delete(lost)
        opened.server.now = b"1100"
        results = await publish(opened, [f"n{n}" for n in range(10)], terms)
        assert [type(each) for each in results] == [type(None)] * 9 + [KeyShareFull]
        while await opened.keys.sweep():
            pass
        assert counts(plain) == [9, 9, 9]
