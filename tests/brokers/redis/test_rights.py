"""The rights that docs/redis.md gives a user are enough for every operation, and none is too much."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from babelgate.brokers.binding import DeadLetterRequest, NativeQueue, Outgoing
from babelgate.brokers.idempotency_store import TOKEN_BYTES, KeyClaim, KeySettlement, Terms
from babelgate.brokers.redis.binding import RedisBinding, connect
from babelgate.clock import now_ms
from babelgate.errors import BrokerRejected
from tests.brokers.redis.harness import RedisServer
from tests.brokers.redis.rights import KEYS, QUEUES, commands
from tests.brokers.redis.test_binding import body

pytestmark = pytest.mark.redis

USER, PASSWORD = "gateway", "secret"
ALL_KEYS = [key for keys in KEYS.values() for key in keys]
ALWAYS = {"auth", "hello"}
"""Every user may send these."""
OF_THE_ADMIN = {
    "acl|log",
    "script|flush",
    "acl|setuser",
    "acl|deluser",
    "config|resetstat",
    "flushall",
    "client|setinfo",
    "flushdb",
    "select",
}
TERMS = Terms(retention_seconds=0.2, max_keys=100)


@pytest.fixture
def admin(server: RedisServer, plain: redis.Redis) -> Iterator[redis.Redis]:
    plain.flushall()
    yield plain
    plain.acl_deluser(USER)


def permit(admin: redis.Redis, *, allowed: Sequence[str] | None = None, keys: Sequence[str] = ALL_KEYS) -> None:
    """Give the user exactly these rights, and begin to count."""
    chosen = commands() if allowed is None else allowed
    rules = ["reset", "on", f">{PASSWORD}", *(f"~{key}" for key in keys), *(f"+{each}" for each in chosen)]
    admin.execute_command("ACL", "SETUSER", USER, *rules)
    admin.script_flush()
    admin.execute_command("ACL", "LOG", "RESET")
    admin.execute_command("CONFIG", "RESETSTAT")


def denials(admin: redis.Redis) -> list[str]:
    """What the server has refused to the user: a ``key`` or a ``command`` each."""
    return [str(entry["reason"]) for entry in admin.acl_log()]


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncIterator[RedisBinding]:
    url = server.url().replace("://", f"://{USER}:{PASSWORD}@")
    binding = connect("cache", url, {"timeout_seconds": 30}, now_ms)
    try:
        await binding.open()
        yield binding
    finally:
        await binding.close()


def claim(key: str) -> KeyClaim:
    return KeyClaim("emails", key, b"f" * 32, b"{}", "shop")


async def every_operation(server: RedisServer, plain: redis.Redis) -> None:
    """All methods of the binding, in both layouts, with what other programs and expired leases leave behind."""
    async with opened(server) as one:
        await one.ping()
        await one.warnings()
        for layout, name in QUEUES.items():
            options = {"layout": layout} | ({"reclaim_unleased_seconds": 0.1} if layout == "list" else {})
            native = one.native_queue(name, options)
            await _messages(one, native)
            if layout == "list":
                await _unleased(plain, one, native)
        await _keys(
            one, one.native_queue(QUEUES["list"], {}), one.native_queue(QUEUES["laravel"], {"layout": "laravel"})
        )
        assert set(await one.queues()) >= {"emails"}


async def _messages(one: RedisBinding, queue: NativeQueue) -> None:
    await one.publish(queue, [Outgoing(body(n)) for n in range(9)])
    await one.publish(queue, [Outgoing(body(9), delay_seconds=0.2), Outgoing(body(10), delay_seconds=900)])
    await one.peek(queue, 5)
    await one.stats(queue)
    acked, retried, later, back, rejected, purged, extended = await one.reserve(queue, 7, 0, 60)
    assert await one.ack(queue, [acked.handle]) == [None]
    assert await one.release(queue, [retried.handle], 0, True) == [None]
    assert await one.release(queue, [later.handle], 0.1, True) == [None]
    assert await one.release(queue, [back.handle], 0, False) == [None]
    (deadline,) = await one.extend(queue, [extended.handle], 0.2)
    assert isinstance(deadline, int)
    block = {"reason": "failed", "attempts": 1, "failed_at": 1}
    letters = [DeadLetterRequest(each.handle, block) for each in (rejected, purged)]
    assert await one.dead_letter(queue, letters) == [None, None]
    # The message of the extended lease, which expires, and what is due are ready again: seven of eleven.
    expired, found = 0, 0
    while found < 7:
        deliveries = await one.reserve(queue, 20, 10, 60)
        found += len(deliveries)
        for each in deliveries:
            expired += each.expired
            # A message that has expired before is given back with its count, then ends.
            assert await one.release(queue, [each.handle], 0, False) == [None]
            (again,) = await one.reserve(queue, 1, 0, 60)
            assert await one.ack(queue, [again.handle]) == [None]
    assert expired == (queue.stored_as["layout"] == "list")
    records, _ = await one.read_dead(queue, None, 10)
    assert (await one.remove_dead(queue, records[:1], None))[0] == [True]
    assert await one.purge_dead(queue) == 1
    assert await one.purge(queue) == 1


async def _unleased(plain: redis.Redis, one: RedisBinding, queue: NativeQueue) -> None:
    """An element that a client without leases has moved goes back to the queue."""
    plain.rpush(f"{queue.name}:processing", body(1))
    (delivery,) = await one.reserve(queue, 1, 30, 60)
    assert await one.ack(queue, [delivery.handle]) == [None]


async def _keys(one: RedisBinding, *queues: NativeQueue) -> None:
    for number, queue in enumerate(queues):
        message = (Outgoing(body(1)), claim(f"now{number}"))
        delayed = (Outgoing(body(2), delay_seconds=900), claim(f"later{number}"))
        await one.keys.publish(queue, [message, delayed], TERMS)
    token = b"t" * TOKEN_BYTES
    await one.keys.reserve([claim(each) for each in ("done", "free", "unknown")], token, TERMS)
    settlings = [KeySettlement(claim(each), token, each) for each in ("done", "free", "unknown")]
    await one.keys.settle(settlings, TERMS)
    await asyncio.sleep(0.3)
    await one.keys.reserve([claim("next")], token, TERMS)
    await one.keys.sweep()


def test_the_page_has_the_patterns_of_the_keys() -> None:
    page = (Path(__file__).parents[3] / "docs" / "redis.md").read_text("utf-8")
    assert set(re.findall(r"`~(\S+?)`", page)) == set(ALL_KEYS)


async def test_the_documented_rights_suffice_and_none_is_too_much(server: RedisServer, admin: redis.Redis) -> None:
    permit(admin)
    await every_operation(server, admin)
    assert denials(admin) == []
    used = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    assert used - ALWAYS - OF_THE_ADMIN == set(commands()), "each was called, and no other"


@pytest.mark.parametrize("left_out", ALL_KEYS)
async def test_each_documented_key_is_needed(server: RedisServer, admin: redis.Redis, left_out: str) -> None:
    permit(admin, keys=[key for key in ALL_KEYS if key != left_out])
    with pytest.raises(BrokerRejected, match="the access list of the Redis user forbids"):
        await every_operation(server, admin)
    assert set(denials(admin)) == {"key"}


async def publish(one: RedisBinding, queue: NativeQueue) -> object:
    return await one.publish(queue, [Outgoing(body())])


async def reserve(one: RedisBinding, queue: NativeQueue) -> object:
    await one.publish(queue, [Outgoing(body())])
    return await one.reserve(queue, 1, 0, 60)


async def wait(one: RedisBinding, queue: NativeQueue) -> object:
    return await one.reserve(queue, 1, 0.1, 60)


async def delay(one: RedisBinding, queue: NativeQueue) -> object:
    return await one.publish(queue, [Outgoing(body(), delay_seconds=60)])


@pytest.mark.parametrize(
    ("call", "missing", "named"),
    [
        (publish, "rpush", "RPUSH with the key emails"),
        (publish, "emails", "RPUSH with the key emails"),
        (wait, "blmove", "BLMOVE with the key emails"),
        (reserve, "evalsha", "EVALSHA with the key emails and babelgate:timed"),
        (reserve, "eval", "EVAL with the key emails and babelgate:timed"),
        (reserve, "babelgate:*", "EVALSHA with the key emails and babelgate:timed"),
        (reserve, "lpop", "LPOP with the key emails"),
        (reserve, "emails:*", "LLEN with the key emails:processing"),
        (reserve, "emails.dlq", "LLEN with the key emails.dlq"),
        (reserve, "zcard", "ZCARD with the key emails:processing:deadlines"),
        (delay, "zadd", "RPUSH or ZADD or ZREM with the key emails or one that begins with it"),
    ],
)
async def test_a_refusal_names_command_and_key(
    server: RedisServer, admin: redis.Redis, call: Any, missing: str, named: str
) -> None:
    permit(admin)
    async with opened(server) as one:
        queue = one.native_queue("emails", {})
        permit(
            admin, allowed=[each for each in commands() if each != missing], keys=[k for k in ALL_KEYS if k != missing]
        )
        with pytest.raises(BrokerRejected) as refusal:
            await call(one, queue)
    assert f"forbids {named}. " in str(refusal.value)
    assert refusal.value.problem_code == "broker_rejected"
