"""Idempotency keys in a file: what time does to them, and how they are counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from app.brokers.binding import NativeQueue, Outgoing
from app.brokers.idempotency_store import RESERVED_SECONDS, ClaimResult, ExistingKey, KeyClaim, KeySettlement, Terms
from app.brokers.sqlite.binding import SqliteBinding
from app.errors import BrokerRejected, KeysFull
from tests.brokers.sqlite.support import BODY, Hands, opened

QUEUE = NativeQueue("q")
TERMS = Terms(retention_seconds=100, max_keys=1000)
TOKEN = b"t" * 16
DONE = b'{"id":"1"}'


def claim(key: str, of: bytes = b"f") -> KeyClaim:
    return KeyClaim("q", key, of * 32, DONE)


async def publish(binding: SqliteBinding, keys: Sequence[str], terms: Terms = TERMS) -> Sequence[ClaimResult]:
    return await binding.keys.publish(QUEUE, [(Outgoing(BODY), claim(key)) for key in keys], terms)


def counted(path: Path) -> tuple[int, int, int]:
    """The keys there are, how many are said to be there, and the messages."""
    with closing(sqlite3.connect(path)) as reader:
        statement = "SELECT (SELECT count(*) FROM keys), (SELECT n FROM key_count), (SELECT count(*) FROM messages)"
        keys, said, messages = reader.execute(statement).fetchone()
        return keys, said, messages


async def test_a_reservation_is_under_way_for_a_while_and_then_cut_off(tmp_path: Path) -> None:
    clock = Hands()
    async with opened(tmp_path / "a.db", clock) as binding:
        assert list(await binding.keys.reserve([claim("k")], TOKEN, TERMS)) == [None]
        clock.forward(20)
        (found,) = await publish(binding, ["k"])
        assert found == ExistingKey(b"f" * 32, None, RESERVED_SECONDS - 20)
        clock.forward(RESERVED_SECONDS)
        assert list(await publish(binding, ["k"])) == [ExistingKey(b"f" * 32, None, 0)]
        await binding.keys.settle([KeySettlement(claim("k"), TOKEN, "done")], TERMS)
        assert list(await publish(binding, ["k"])) == [ExistingKey(b"f" * 32, DONE, 0)]
        # The retention counts from the answer.
        clock.forward(99)
        assert list(await publish(binding, ["k"])) == [ExistingKey(b"f" * 32, DONE, 0)]
        clock.forward(1)
        assert list(await publish(binding, ["k"])) == [None]
    assert counted(tmp_path / "a.db") == (1, 1, 1)


async def test_what_is_under_way_outlives_a_short_retention(tmp_path: Path) -> None:
    clock = Hands()
    async with opened(tmp_path / "a.db", clock) as binding:
        short = Terms(retention_seconds=1, max_keys=10)
        await binding.keys.reserve([claim("k")], TOKEN, short)
        clock.forward(RESERVED_SECONDS - 1)
        assert list(await publish(binding, ["k"], short)) == [ExistingKey(b"f" * 32, None, 1)]


async def test_the_count_follows_all_that_happens_to_keys(tmp_path: Path) -> None:
    clock = Hands()
    path = tmp_path / "a.db"
    async with opened(path, clock) as binding:
        keys = [f"k{n}" for n in range(700)]
        assert list(await publish(binding, keys)) == [None] * 700
        assert counted(path) == (700, 700, 700)
        found = await publish(binding, [*keys[:3], "new", "new"])
        assert [type(verdict) for verdict in found] == [ExistingKey, ExistingKey, ExistingKey, type(None), ExistingKey]
        assert counted(path) == (701, 701, 701)
        reserved = [claim(f"r{n}") for n in range(10)]
        await binding.keys.reserve(reserved, TOKEN, TERMS)
        fates = [KeySettlement(each, TOKEN, "free") for each in reserved[:4]]
        await binding.keys.settle([*fates, *fates, KeySettlement(reserved[5], b"x" * 16, "free")], TERMS)
        assert counted(path) == (707, 707, 701)
        clock.forward(200)
        # Each publish of a key makes room for two, so that expired ones go even without a sweep.
        assert list(await publish(binding, keys[:100])) == [None] * 100
        left, said, messages = counted(path)
        assert left == said <= 607
        assert messages == 801
        while await binding.keys.sweep():
            pass
        assert counted(path) == (100, 100, 801)


async def test_a_full_file_makes_room_of_what_has_expired(tmp_path: Path) -> None:
    clock = Hands()
    async with opened(tmp_path / "a.db", clock) as binding:
        few = Terms(retention_seconds=100, max_keys=50)
        verdicts = await publish(binding, [f"k{n}" for n in range(60)], few)
        assert [type(verdict) for verdict in verdicts] == [type(None)] * 50 + [KeysFull] * 10
        clock.forward(101)
        assert list(await publish(binding, [f"n{n}" for n in range(50)], few)) == [None] * 50
    assert counted(tmp_path / "a.db") == (50, 50, 100)


async def test_a_message_that_cannot_be_stored_fails_alone_and_leaves_its_key_free(tmp_path: Path) -> None:
    limit = 100_000

    def prepare(connection: sqlite3.Connection) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)

    async with opened(tmp_path / "a.db", prepared=prepare) as binding:
        bodies = [BODY, b"x" * (limit + 1), BODY]
        messages = [(Outgoing(body), claim(f"k{n}")) for n, body in enumerate(bodies)]
        verdicts = await binding.keys.publish(QUEUE, messages, TERMS)
        assert [type(verdict) for verdict in verdicts] == [type(None), BrokerRejected, type(None)]
        assert list(await publish(binding, ["k1"])) == [None]
    assert counted(tmp_path / "a.db") == (3, 3, 3)


@pytest.mark.parametrize("key", ["it's", 'say "k"', "a\\b", " ", "%", "\x7e" * 255])
async def test_any_printable_key(tmp_path: Path, key: str) -> None:
    async with opened(tmp_path / "a.db") as binding:
        assert list(await publish(binding, [key, key])) == [None, ExistingKey(b"f" * 32, DONE, 60)]
        assert list(await publish(binding, [key])) == [ExistingKey(b"f" * 32, DONE, 0)]
