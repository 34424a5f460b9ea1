"""Priorities: the order of ready messages, and files of versions without them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from babelgate.brokers.binding import DeadLetterRequest, Delivery, Outgoing
from babelgate.brokers.sqlite.file import APPLICATION_ID, SCHEMA, SQL, create_schema, prove_writable, steps
from tests.brokers.sqlite.support import BODY, Hands, Line, opened

BLOCK = {"reason": "failed", "error": "no", "failed_at": 1, "original_queue": "q", "attempts": 3, "lang": "python"}


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


async def publish(line: Line, *given: tuple[bytes, int | None], delay: float = 0) -> None:
    messages = [Outgoing(body, priority=priority, delay_seconds=delay) for body, priority in given]
    assert list(await line.binding.publish(line.queue, messages)) == [None] * len(messages)


async def test_ready_messages_are_in_order_wherever_they_come_from(line: Line, clock: Hands) -> None:
    await publish(line, (b"due", 5), delay=5)
    await publish(line, (b"ordinary", None), (b"last", 0), (b"first", 9))
    clock.forward(1)
    await publish(line, (b"four", 4), (b"second", 9))
    clock.forward(4)
    expected = [b"first", b"second", b"due", b"ordinary", b"four", b"last"]
    assert [each.body for each in await line.binding.peek(line.queue, 10)] == expected
    assert (await line.binding.stats(line.queue)).oldest_age_seconds == 5
    taken = await line.reserve(4, lease=10)
    assert bodies(taken) == expected[:4]
    await line.binding.release(line.queue, [taken[1].handle], 0, failed=True)
    await line.binding.release(line.queue, [taken[0].handle], 3, failed=True)
    clock.forward(3)
    assert bodies(await line.reserve(1, lease=10)) == expected[:1]
    clock.forward(10)
    assert bodies(await line.reserve(6)) == expected
    # The lease of each is over, and a purge leaves none of any rank.
    clock.forward(100)
    assert await line.binding.purge(line.queue) == 6
    assert await line.reserve(6) == []


async def test_a_dead_letter_keeps_its_priority(line: Line) -> None:
    await publish(line, (BODY, 9), (BODY.replace(b"{}", b'{"n":2}'), None))
    letters = [DeadLetterRequest(each.handle, BLOCK) for each in await line.reserve(2)]
    assert list(await line.binding.dead_letter(line.queue, letters)) == [None, None]
    records, _ = await line.binding.read_dead(line.queue, None, 10)
    await publish(line, (b"five", 5))
    back = [Outgoing(b"%d" % at, carried=record.carried) for at, record in enumerate(records)]
    await line.binding.publish(line.queue, back)
    assert bodies(await line.reserve(9)) == [b"0", b"five", b"1"]


async def test_a_file_of_the_version_before(tmp_path: Path, clock: Hands) -> None:
    """Its messages are ordinary ones; an older process that has the file open goes on writing and reserving."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        for step in SCHEMA[:3]:
            for statement in steps(step):
                older.execute(statement)
        older.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        older.execute("PRAGMA user_version = 3")
        older.execute("INSERT INTO queues (id, name) VALUES (1, 'q')")
        add_message = "INSERT INTO messages (id, published_at, body) VALUES (?, 1, ?)"
        add_ready = "INSERT INTO ready (queue_id, id, failures, redelivered) VALUES (1, ?, 0, 0)"
        add_held = "INSERT INTO held (id, queue_id, until, nonce, failures, redelivered) VALUES (?, 1, ?, NULL, 0, 0)"
        for id, body in enumerate((b"a", b"b", b"c"), 1):
            older.execute(add_message, (id, body))
        older.execute(add_ready, (1,))
        older.execute(add_ready, (2,))
        older.execute(add_held, (3, clock.now))
        older.execute("INSERT INTO dead (queue_id, dead_at, body) VALUES (1, 1, ?)", (BODY,))
        async with opened(path, clock) as binding:
            line = Line(binding, "q")
            await publish(line, (b"low", 3), (b"high", 5))
            older.execute(add_message, (9, b"d"))
            older.execute(add_ready, (9,))
            rows = older.execute("SELECT id FROM ready WHERE queue_id = 1 ORDER BY id LIMIT 1").fetchall()
            assert rows == [(1,)]
            assert bodies(await line.reserve(9)) == [b"high", b"a", b"b", b"c", b"d", b"low"]
            ((record,), _) = await binding.read_dead(line.queue, None, 9)
            assert (record.body, record.carried) == (BODY, None)
        # What the older process writes to see whether it can still write.
        older.execute("PRAGMA user_version = 3")
        async with opened(path, clock) as binding:
            await publish(Line(binding, "q"), (b"later", 9))
            assert [each.body for each in await binding.peek(Line(binding, "q").queue, 1)] == [b"later"]
            older.execute(f"PRAGMA user_version = {len(SCHEMA) + 1}")
            prove_writable(older)
            assert older.execute("PRAGMA user_version").fetchone() == (len(SCHEMA) + 1,)
            older.execute("PRAGMA user_version = 3")
            prove_writable(older)
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("PRAGMA user_version").fetchone() == (len(SCHEMA),)


@pytest.mark.parametrize("name", ["next_ready", "lease_ready", "remove_ready", "stats", "peek"])
def test_no_statement_reads_a_whole_queue(name: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        create_schema(connection)
        count = SQL[name].count("?")
        given = [1] * count if count else {"queue_id": 1, "now": 1, "limit": 1}
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", given)]
    of_ready = [step for step in plan if step.split()[1] in ("ready", "r")]
    assert of_ready and all(step.startswith("SEARCH") for step in of_ready), plan
