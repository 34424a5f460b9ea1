"""Bodies in the file, encrypted: nothing readable on the disk, the same bytes for consumers, and keys that change."""

from __future__ import annotations

import os
import sqlite3
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from babelgate.brokers.binding import DeadLetterRequest, NativeQueue, Outgoing
from babelgate.brokers.idempotency_store import KeyClaim, Terms
from babelgate.brokers.sqlite.file import ENCRYPTED, SCHEMA
from babelgate.privacy.ciphers import MARK, BodyCipher, BodyKey, BodyUnreadable
from tests.brokers.sqlite.support import BODY, Hands, Line, opened

SECRET = b"4111-1111-1111-1111"
SENT = BODY.replace(b"{}", b'{"card":"' + SECRET + b'"}')
BLOCK = {"reason": "failed", "error": "no", "failed_at": 1, "original_queue": "q", "attempts": 3, "lang": "python"}
OLD, NEW = BodyKey("2025", b"o" * 32), BodyKey("2026", b"n" * 32)


@asynccontextmanager
async def line_of(
    path: Path, *keys: BodyKey, encrypted: bool = True, clock: Hands | None = None
) -> AsyncIterator[Line]:
    async with opened(path, clock or Hands()) as binding:
        binding.use_body_keys(BodyCipher(keys))
        line = Line(binding, "q")
        line.queue = NativeQueue("q", encrypted=encrypted)
        yield line


def assert_hidden(directory: Path) -> None:
    """Nothing of the secret is in any file, as it is or in base64 with any of its three beginnings."""
    forms = [SECRET, *(b64encode(b" " * at + SECRET)[4:-4] for at in range(3))]
    for path in directory.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not any(form in content for form in forms), path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as reader:
        found: int = reader.execute("PRAGMA user_version").fetchone()[0]
        return found


@pytest.mark.parametrize("encrypted", [True, False])
async def test_bodies_come_back_byte_for_byte(tmp_path: Path, encrypted: bool) -> None:
    bodies = [b"", b"\x00\xff", SENT, MARK, MARK + b"\x00x", MARK + b"\x01" + SENT, os.urandom(1_000_000)]
    async with line_of(tmp_path / "q.db", NEW, encrypted=encrypted) as line:
        await line.publish(*bodies)
        assert [each.body for each in await line.binding.peek(line.queue, 10)] == bodies
        assert await line.bodies() == bodies
    assert version(tmp_path / "q.db") == (ENCRYPTED if encrypted else len(SCHEMA))


async def test_nothing_can_be_read_on_the_disk(tmp_path: Path) -> None:
    """Each way into the file: alone, in a batch, delayed, with a priority, with a key, and as a dead letter."""
    clock = Hands()
    async with line_of(tmp_path / "q.db", NEW, clock=clock) as line:
        await line.publish(SENT)
        await line.publish(*[SENT] * 3)
        await line.publish(SENT, delay=5)
        await line.binding.publish(line.queue, [Outgoing(SENT, priority=9)])
        claims = [(Outgoing(SENT), KeyClaim("q", "k", b"f" * 32, b"{}", "shop"))]
        assert list(await line.binding.keys.publish(line.queue, claims, Terms(100, 100))) == [None]
        clock.forward(6)
        taken = await line.reserve()
        assert [each.body for each in taken] == [SENT] * 7
        letters = [DeadLetterRequest(each.handle, BLOCK) for each in taken[:3]]
        assert list(await line.binding.dead_letter(line.queue, letters)) == [None] * 3
        records, _ = await line.binding.read_dead(line.queue, None, 10)
        assert [SECRET in record.body and b'"dead_letter"' in record.body for record in records] == [True] * 3
        await line.release(taken[3], failed=True)
        assert_hidden(tmp_path)
    assert_hidden(tmp_path)


async def test_rows_of_before_stay_readable_and_new_ones_are_encrypted(tmp_path: Path) -> None:
    async with line_of(tmp_path / "q.db", encrypted=False) as line:
        await line.publish(b"plain")
    async with line_of(tmp_path / "q.db", OLD) as line:
        await line.publish(b"old")
    async with line_of(tmp_path / "q.db", NEW, OLD) as line:
        await line.publish(b"new")
    # Switched off again, with the keys that are left to read.
    async with line_of(tmp_path / "q.db", NEW, OLD, encrypted=False) as line:
        await line.publish(b"plain again")
        taken = await line.reserve()
        assert [each.body for each in taken] == [b"plain", b"old", b"new", b"plain again"]
        # A letter of an encrypted message stays encrypted.
        await line.binding.dead_letter(line.queue, [DeadLetterRequest(taken[1].handle, BLOCK)])
    with closing(sqlite3.connect(tmp_path / "q.db")) as reader:
        assert reader.execute("SELECT body FROM dead").fetchone()[0].startswith(MARK)


@pytest.mark.parametrize("keys", [(), (NEW,), (BodyKey("2025", b"x" * 32),)])
async def test_a_message_without_its_key_waits(tmp_path: Path, keys: Sequence[BodyKey]) -> None:
    """It is neither lost nor dead-lettered nor counted, and those before it are handed out."""
    async with line_of(tmp_path / "q.db", OLD) as line:
        await line.publish(b"secret", b"secret too")
        (dead,) = await line.reserve(1)
        await line.binding.dead_letter(line.queue, [DeadLetterRequest(dead.handle, BLOCK)])
    async with line_of(tmp_path / "q.db", *keys, encrypted=bool(keys)) as line:
        await line.binding.publish(line.queue, [Outgoing(b"urgent", priority=9)])
        assert await line.bodies() == [b"urgent"]
        for refused in (line.reserve(), line.binding.peek(line.queue, 1), line.binding.read_dead(line.queue, None, 1)):
            with pytest.raises(BodyUnreadable, match="2025"):
                await refused
        stats = await line.binding.stats(line.queue)
        assert (stats.depth, stats.in_flight, stats.dead) == (1, 1, 1)
        line.binding.use_body_keys(BodyCipher([NEW, OLD]))
        (back,) = await line.reserve()
        assert (back.body, back.delivery_count, back.redelivered) == (b"secret too", 0, False)


async def test_a_lease_whose_key_is_gone_is_not_dead_lettered(tmp_path: Path) -> None:
    async with line_of(tmp_path / "q.db", OLD) as line:
        await line.publish(b"one", b"two")
        one, two = await line.reserve()
        line.binding.use_body_keys(BodyCipher([NEW]))
        letters = [DeadLetterRequest(each.handle, BLOCK) for each in (one, two)]
        outcomes = await line.binding.dead_letter(line.queue, letters)
        assert [type(each) for each in outcomes] == [BodyUnreadable] * 2
        assert await line.ack(one, two) == [None, None]


async def test_a_changed_row_is_refused(tmp_path: Path) -> None:
    async with line_of(tmp_path / "q.db", OLD) as line:
        await line.publish(b"body")
        with closing(sqlite3.connect(tmp_path / "q.db", isolation_level=None)) as other:
            (stored,) = other.execute("SELECT body FROM messages").fetchone()
            for changed in (stored[:-1] + bytes([stored[-1] ^ 1]), stored[:20], stored[:-20]):
                other.execute("UPDATE messages SET body = ?", (changed,))
                with pytest.raises(BodyUnreadable):
                    await line.reserve()
            # A row of another queue does not pass for one of this.
            other.execute("UPDATE messages SET body = ?", (BodyCipher([OLD]).encrypted(b"body", "another"),))
            with pytest.raises(BodyUnreadable, match="altered"):
                await line.reserve()
            other.execute("UPDATE messages SET body = ?", (stored,))
        assert await line.bodies() == [b"body"]
