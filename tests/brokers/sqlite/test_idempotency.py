"""Idempotency keys in a file: what time does to them, and how they are counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.idempotency_store import (
    RESERVED_SECONDS,
    TOKEN_BYTES,
    ClaimResult,
    ExistingKey,
    KeyClaim,
    KeySettlement,
    Terms,
)
from babelgate.brokers.sqlite.binding import SqliteBinding
from babelgate.brokers.sqlite.file import APPLICATION_ID, SCHEMA, steps
from babelgate.errors import BrokerRejected, KeyShareFull
from tests.brokers.sqlite.support import BODY, Hands, opened

QUEUE = NativeQueue("q")
TERMS = Terms(retention_seconds=100, max_keys=2000)
TOKEN = b"t" * TOKEN_BYTES
DONE = b'{"id":"1"}'


def claim(key: str, queue: str = "q", caller: str = "shop") -> KeyClaim:
    return KeyClaim(queue, key, b"f" * 32, DONE, caller)


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
        await binding.keys.settle([*fates, *fates, KeySettlement(reserved[5], b"x" * TOKEN_BYTES, "free")], TERMS)
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
        assert [type(verdict) for verdict in verdicts] == [type(None)] * 27 + [KeyShareFull] * 33
        clock.forward(101)
        assert list(await publish(binding, [f"n{n}" for n in range(27)], few)) == [None] * 27
    assert counted(tmp_path / "a.db") == (27, 27, 54)


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


def shares(path: Path) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """The keys of each caller and queue, and of each caller, as they are and as they are counted."""
    with closing(sqlite3.connect(path)) as reader:
        rows = reader.execute(
            "SELECT caller, queue, count(*) FROM keys WHERE caller <> '' GROUP BY 1, 2 "
            "UNION ALL SELECT caller, '', count(*) FROM keys WHERE caller <> '' GROUP BY 1"
        ).fetchall()
        said = reader.execute("SELECT caller, queue, n FROM key_shares").fetchall()
    return {(caller, queue): n for caller, queue, n in rows}, {(caller, queue): n for caller, queue, n in said}


async def test_the_shares_follow_all_that_happens_to_keys(tmp_path: Path) -> None:
    clock = Hands()
    path = tmp_path / "a.db"
    async with opened(path, clock) as binding:
        keys = binding.keys
        taken = [claim(f"k{n}", queue, caller) for queue in "ab" for caller in ("shop", "blog") for n in range(40)]
        # Of equal keys the first caller's counts.
        assert [each for each in await keys.reserve(taken[:80], TOKEN, TERMS) if each is None] == [None] * 40
        assert [each for each in await keys.reserve(taken[80:], TOKEN, TERMS) if each is None] == [None] * 40
        mixed = [claim(f"m{n}", "a", ("shop", "blog")[n % 2]) for n in range(10)]
        await keys.reserve(mixed, TOKEN, TERMS)
        actual, said = shares(path)
        assert actual == said == {
            ("shop", ""): 85, ("shop", "a"): 45, ("shop", "b"): 40, ("blog", ""): 5, ("blog", "a"): 5
        }  # fmt: skip
        fates = [KeySettlement(each, TOKEN, "free") for each in mixed[:4]]
        await keys.settle([*fates, *fates, *(KeySettlement(each, TOKEN, "done") for each in mixed[4:])], TERMS)
        actual, said = shares(path)
        assert actual == said
        assert said["blog", ""] == 3
        clock.forward(200)
        # An expired key that another caller claims counts for this one.
        assert list(await keys.reserve([claim("k39", "b", "crm")], TOKEN, TERMS)) == [None]
        actual, said = shares(path)
        assert actual == said
        assert said["crm", "b"] == 1
        while await keys.sweep():
            pass
        assert shares(path) == ({("crm", ""): 1, ("crm", "b"): 1},) * 2
        clock.forward(200)
        while await keys.sweep():
            pass
        assert shares(path) == ({}, {}), "a flood of queue names leaves nothing"


async def test_a_file_of_the_version_before(tmp_path: Path) -> None:
    """Its keys belong to no caller and take their place; an older process that has the file open goes on writing."""
    path = tmp_path / "a.db"
    clock = Hands()
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        for statement in (*steps("schema_1"), *steps("schema_2")):
            older.execute(statement)
        older.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        older.execute("PRAGMA user_version = 2")
        add = (
            "INSERT OR REPLACE INTO keys (queue, key, fingerprint, token, until, expires_at, answer) "
            "VALUES ('q', ?, zeroblob(32), NULL, 0, ?, '{}')"
        )
        for n in range(8):
            older.execute(add, (f"old{n}", clock.now + 100_000))
        older.execute("UPDATE key_count SET n = 8")
        async with opened(path, clock) as binding:
            terms = Terms(retention_seconds=50, max_keys=16)
            assert [type(each) for each in await publish(binding, ["old0"], terms)] == [ExistingKey]
            # Three quarters of the 8 that are left, and of that three quarters for one queue.
            results = await publish(binding, [f"k{n}" for n in range(6)], terms)
            assert [type(each) for each in results] == [type(None)] * 4 + [KeyShareFull] * 2
            clock.forward(60)
            older.execute(add, ("k0", clock.now + 100_000))
            older.execute("DELETE FROM keys WHERE key = 'k1'")
            older.execute("UPDATE key_count SET n = n - 1")
            actual, said = shares(path)
            assert actual == said == {("shop", ""): 2, ("shop", "q"): 2}
            while await binding.keys.sweep():
                pass
            assert shares(path) == ({}, {})
            assert counted(path)[:2] == (9, 9)
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("PRAGMA user_version").fetchone() == (len(SCHEMA),)
