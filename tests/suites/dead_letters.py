"""Dead letters: a message that cannot be delivered is kept unchanged, with the reason."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import DeadLetterRequest, DeadLetters, Outgoing, PublishesDeadLetters
from babelgate.clock import Clock, now_ms
from babelgate.envelope import Limits, dead_letter_block, dead_letter_record
from babelgate.errors import PurgeInProgress
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.maintenance import Maintenance
from babelgate.gateway.model import DeadLetter, DeadLetterFilter
from babelgate.gateway.routing import Policy, Route
from tests.harness.world import JOB, PATIENCE, Process, World, data, draft, until
from tests.suites.publish import envelope_of

SHORT = 0.4
"""A lease that a test lets expire."""

GOOD = (
    b'{"job":"urn:babel:test:made","trace_id":"t","data":{"n":1},'
    b'"meta":{"id":"m","queue":"q","lang":"go","schema_version":1,"created_at":1700000000000},"attempts":0}'
)

CREATED_AT = 1_700_000_000_000

SPLICED = {
    "no identity": b'{"trace_id":"t","data":{}}',
    "attempts of a wrong type": GOOD.replace(b'"attempts":0', b'"attempts":"3"'),
    "attempts with a fraction": GOOD.replace(b'"attempts":0', b'"attempts":1.0'),
    "data is a list": GOOD.replace(b'{"n":1}', b"[1, 2]"),
    "another version": GOOD.replace(b'"schema_version":1', b'"schema_version":2'),
    "no trace": GOOD.replace(b'"trace_id":"t",', b""),
    "a blank trace": GOOD.replace(b'"trace_id":"t"', b'"trace_id":" "'),
    "no data": GOOD.replace(b'"data":{"n":1},', b""),
    "no meta": b'{"job":"urn:x:y","trace_id":"t","data":{},"attempts":0}',
    "odd but whole": b' {"z": 1.10,\t"a":  [ ], "u":"\\u00e9\\/", "n":12345678901234567890, "z":2 }\n',
    "an empty object": b"{}",
}
"""JSON objects that are no good envelope: the record is the same bytes with the block at their end."""

WRAPPED = {
    "not JSON": b"hello, world",
    "cut off": GOOD[:-1],
    "two objects": b"{}{}",
    "an array": b"[1,2]",
    "a scalar": b"null",
    "nothing at all": b"",
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "not a number": b'{"data":NaN}',
    "quotes and controls": b'say "hi"\\\r\n\t\x00\x1f',
    "not UTF-8": b'{"job":"\xff\xfe"}',
    "binary": bytes(range(256)),
}
"""Anything else: the record holds it as text, or in base64 where it is no text."""


async def block(process: Process) -> dict[str, Any]:
    (letter,) = await process.dead()
    return json.loads(letter.record)["dead_letter"]


async def is_dead(process: Process, count: int = 1) -> list[DeadLetter]:
    """Receive nothing until ``count`` dead letters are there."""

    async def moved() -> bool:
        assert await process.ready(1) == []
        return len(await process.dead()) == count

    await until(moved)
    return await process.dead()


def keeper(process: Process, world: World, clock: Clock = now_ms) -> Maintenance:
    """The maintenance of the queue under test."""

    async def routes() -> AsyncIterator[Route]:
        yield process.gateway.router.route(world.queue)

    async def no_keys() -> None:
        """There are none."""

    return Maintenance(routes, clock, no_keys)


async def bury(process: Process, world: World, *failed_at: int | None) -> None:
    """Dead letters with these times, in this order, their payloads numbered."""
    route = process.gateway.router.route(world.queue)
    for number, at in enumerate(failed_at):
        block = dead_letter_block("failed", world.queue, 1, at or 0)
        if at is None:
            block = {name: value for name, value in block.items() if name != "failed_at"}
        body = GOOD.replace(b'{"n":1}', b'{"n":%d}' % number)
        if isinstance(route.binding, DeadLetters) and route.capabilities.native_dead_letter:
            await world.broker.inject(world.queue, body)
            found = await route.binding.reserve(route.native, 1, PATIENCE, 60)
            letters = [DeadLetterRequest(each.handle, block) for each in found]
            assert await route.binding.dead_letter(route.native, letters) == [None]
        else:
            assert isinstance(route.binding, PublishesDeadLetters)
            record = Outgoing(dead_letter_record(body, block))
            assert await route.binding.publish_dead_letters(route.native, [record]) == [None]


def numbers_of(letters: Sequence[DeadLetter]) -> list[int]:
    return [json.loads(letter.record)["data"]["n"] for letter in letters]


class TestDeadLetters:
    async def test_a_reject_keeps_the_body_and_says_why(self, world: World) -> None:
        process = await world.process()
        receipt = await process.publish({"n": 1.10})
        message = await process.one()
        before = now_ms()
        await process.reject(message, error="no such customer", exception="LookupError")
        after = now_ms()
        (record,) = await world.broker.dead(world.queue)
        head, _, tail = record.partition(b',"dead_letter":')
        assert head + b"}" == message.body
        found = json.loads(tail[:-1])
        assert list(found) == ["reason", "error", "exception", "failed_at", "original_queue", "attempts", "lang"]
        assert before <= found.pop("failed_at") <= after
        assert found == {
            "reason": "failed",
            "error": "no such customer",
            "exception": "LookupError",
            "original_queue": world.queue,
            "attempts": 0,
            "lang": "python",
        }
        (letter,) = await process.dead()
        assert letter.record == record
        assert (letter.id, letter.job, letter.trace_id) == (receipt.id, JOB, receipt.trace_id)
        assert (letter.reason, letter.error, letter.attempts) == ("failed", "no such customer", 0)
        assert await process.is_empty()
        assert world.broker.tells(await process.stats(), dead=1)

    async def test_a_reject_without_a_reason(self, world: World) -> None:
        process = await world.process()
        await process.publish()
        await process.reject(await process.one())
        found = await block(process)
        assert (found["error"], found["exception"]) == (None, None)

    async def test_the_nth_nack_dead_letters(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=3))
        await process.publish({"n": 1})
        for attempts in range(3):
            message = await process.one()
            assert message.attempts == attempts
            await process.nack(message, error=f"failure {attempts + 1}", exception="Boom")
        assert await process.is_empty()
        found = await block(process)
        assert (found["reason"], found["attempts"]) == ("failed", 3)
        assert (found["error"], found["exception"]) == ("failure 3", "Boom")
        (record,) = await world.broker.dead(world.queue)
        assert json.loads(record)["attempts"] == 3
        assert json.loads(record)["data"] == {"n": 1}

    async def test_a_single_attempt(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=1))
        await process.publish()
        await process.nack(await process.one(), delay=3600)
        assert (await block(process))["attempts"] == 1

    async def test_the_nth_expiry_dead_letters(self, world: World) -> None:
        # The gateway has time to move it: its own lease would be one more that ran out.
        process = await world.process(policy=Policy(max_attempts=2))
        if process.capabilities.delivery_count == "none":
            pytest.skip("this broker counts no deliveries")
        await process.publish({"n": 1})
        assert [(await process.one(SHORT)).attempts for _ in range(2)] == [0, 1]
        await asyncio.sleep(SHORT)
        (letter,) = await is_dead(process)
        error = "lease expired" if "expiries" in world.broker.reports else "attempts exhausted"
        assert (letter.reason, letter.error, letter.attempts) == ("failed", error, 2)
        assert json.loads(letter.record)["attempts"] == 2
        assert await process.is_empty()

    @pytest.mark.parametrize("verb", ["reject", "nack"])
    async def test_a_message_of_the_largest_size_is_dead_lettered_whatever_its_error(
        self, world: World, verb: str
    ) -> None:
        process = await world.process(policy=Policy(max_attempts=1))
        largest = min(Limits().max_message_bytes, process.capabilities.max_body_bytes or math.inf)
        body = envelope_of(int(largest), world.queue)
        error = 'no "customer" ü ' * 1_000
        await process.publish_body(body)
        assert await getattr(process, verb)(await process.one(), error=error, exception="LookupError") == [None]
        (letter,) = await is_dead(process)
        record = json.loads(letter.record)
        assert error.startswith(letter.error or "") and record["data"] == json.loads(body)["data"]
        assert (record["dead_letter"]["exception"], record["attempts"]) == ("LookupError", int(verb == "nack"))
        assert await process.is_empty()

    async def test_a_message_that_came_with_its_attempts_spent(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=5))
        await world.broker.inject(world.queue, GOOD.replace(b'"attempts":0', b'"attempts":5'), GOOD)
        assert (await process.one()).body == GOOD
        (letter,) = await is_dead(process)
        assert (letter.reason, letter.error, letter.attempts) == ("failed", "attempts exhausted", 5)

    async def test_a_give_back_is_no_attempt(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=2))
        await process.publish()
        for _ in range(3):
            await process.gateway.give_back(world.queue, [await process.one()])
        assert (await process.one()).attempts == 0
        assert await process.dead() == []

    @pytest.mark.parametrize("body", SPLICED.values(), ids=SPLICED.keys())
    async def test_a_bad_object_is_kept_byte_for_byte_with_the_block_at_its_end(
        self, world: World, body: bytes
    ) -> None:
        if not world.broker.carries(body):
            pytest.skip("no client can put this body on a queue")
        process = await world.process()
        await world.broker.inject(world.queue, body, GOOD)
        assert [message.body for message in await process.take(1)] == [GOOD], "it stood in the way"
        (letter,) = await is_dead(process)
        (record,) = await world.broker.dead(world.queue)
        trimmed = body.strip(b" \t\r\n")[:-1]
        assert record.startswith(trimmed)
        found = json.loads(record[len(trimmed) :].lstrip(b",").join([b"{", b""]))["dead_letter"]
        assert (found["reason"], found["original_queue"]) == ("poison", world.queue)
        assert (letter.reason, letter.record) == ("poison", record)
        assert letter.error
        assert world.broker.tells(await process.stats(), in_flight=1), "only the good one is leased"

    @pytest.mark.parametrize("body", WRAPPED.values(), ids=WRAPPED.keys())
    async def test_what_is_no_object_is_kept_inside_the_record(self, world: World, body: bytes) -> None:
        if not world.broker.carries(body):
            pytest.skip("no client can put this body on a queue")
        process = await world.process()
        await world.broker.inject(world.queue, body, GOOD)
        assert [message.body for message in await process.take(1)] == [GOOD], "it stood in the way"
        (letter,) = await is_dead(process)
        (record,) = await world.broker.dead(world.queue)
        found = json.loads(record)
        try:
            assert found["raw"] == body.decode()
            assert "raw_encoding" not in found
        except UnicodeDecodeError:
            assert (base64.b64decode(found["raw"]), found["raw_encoding"]) == (body, "base64")
        assert found["dead_letter"]["reason"] == letter.reason == "poison"

    async def test_poison_alone_is_moved_by_a_poll_and_reported(self, world: World) -> None:
        process = await world.process()
        bodies = [body for body in WRAPPED.values() if world.broker.carries(body)]
        await world.broker.inject(world.queue, *bodies)
        await is_dead(process, len(bodies))
        assert sum(event.count for event in process.events if event.kind == "poison") == len(bodies)
        assert not any(event.kind == "delivered" for event in process.events)

    async def test_who_waits_gets_the_good_one_behind_the_poison(self, world: World) -> None:
        process = await world.process()
        waiting = process.waiting()
        await asyncio.sleep(0.05)
        await world.broker.inject(world.queue, b"poison")
        await process.publish({"n": 1})
        assert [data(message) for message in await waiting] == [{"n": 1}]
        await is_dead(process)

    async def test_a_second_death_replaces_the_first_block(self, world: World) -> None:
        process = await world.process()
        once_dead = GOOD[:-1] + (
            b',"dead_letter":{"reason":"unknown_urn","error":"old","exception":null,"failed_at":1,'
            b'"original_queue":"elsewhere","attempts":7,"lang":"go"}}'
        )
        await world.broker.inject(world.queue, once_dead)
        message = await process.one()
        assert message.body == once_dead
        await process.reject(message, error="new")
        (record,) = await world.broker.dead(world.queue)
        assert record.count(b'"dead_letter"') == 1
        assert (await block(process))["error"] == "new"
        assert record.startswith(GOOD[:-1])

    async def test_a_filter_finds_what_it_names(self, world: World) -> None:
        process = await world.process()
        for n, trace in enumerate(["a", "b", "a"]):
            await process.publish_body(draft({"n": n}, job=f"urn:job:{n}", trace_id=trace))
            await process.reject(await process.one(), error=str(n))
            await asyncio.sleep(0.002)
        await world.broker.inject(world.queue, b"poison")
        letters = await is_dead(process, 4)
        assert [letter.error for letter in letters[:3]] == ["0", "1", "2"], "oldest first"

        async def found(**where: Any) -> list[int]:
            return [letters.index(letter) for letter in await process.dead(**where)]

        assert await found(job="urn:job:1") == [1]
        assert await found(trace_id="a") == [0, 2]
        assert await found(trace_id="a", job="urn:job:2") == [2]
        assert await found(reason="poison") == [3]
        assert await found(error="1") == [1]
        assert await found(error="1", trace_id="a") == []
        assert await found(reason="failed") == [0, 1, 2]
        moment = letters[1].failed_at
        assert await found(before=moment) == [0]
        assert await found(after=moment) == [1, 2, 3]
        assert await found(before=moment, after=moment) == []
        assert await found(job="urn:job:none") == []

    async def test_pages_cover_all_in_order(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(25)])
        await process.reject(*await process.take(25))
        seen: list[int] = []
        cursor: str | None = None
        sizes = []
        while True:
            page, cursor = await process.gateway.letters.page(ANYONE, world.queue, DeadLetterFilter(), 10, cursor)
            sizes.append(len(page))
            seen += [json.loads(letter.record)["data"]["n"] for letter in page]
            if cursor is None:
                break
        assert process.in_order(seen) == list(range(25))
        assert max(sizes) == 10

    async def test_purging_dead_letters_leaves_the_queue(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(3)])
        rejected = await process.take(2)
        await process.reject(*rejected)
        assert await process.gateway.letters.purge(ANYONE, world.queue) == 2
        with contextlib.suppress(PurgeInProgress):
            assert await process.gateway.letters.purge(ANYONE, world.queue) == 0
        assert await process.dead() == []
        assert data(await process.one()) not in [data(message) for message in rejected]

    async def test_dead_letters_past_their_retention_go(self, world: World) -> None:
        process = await world.process(policy=Policy(dead_letter_retention_seconds=3600))
        await process.publish_all([{"n": n} for n in range(2)])
        await process.reject(*await process.take(1), error="old")
        assert await keeper(process, world).expire() == 0
        await asyncio.sleep(0.01)
        await process.reject(*await process.take(1), error="new")
        newest = max(letter.failed_at or 0 for letter in await process.dead())
        assert await keeper(process, world, lambda: newest + 3_600_000).expire() == 1
        assert [letter.error for letter in await process.dead()] == ["new"]

    async def test_the_retention_finds_them_wherever_they_stand(self, world: World) -> None:
        process = await world.process(policy=Policy(dead_letter_retention_seconds=3600))
        young, old = CREATED_AT + 50, CREATED_AT + 10
        await bury(process, world, None, young, old, young, young, old)
        assert await keeper(process, world, lambda: young + 3_600_000).expire() == 2
        assert numbers_of(await process.dead()) == [0, 1, 3, 4]
        assert await keeper(process, world, lambda: young + 3_600_000).expire() == 0
        assert await keeper(process, world, lambda: young + 3_600_001).expire() == 3
        assert numbers_of(await process.dead()) == [0], "the record of another program, without a time, stays"

    async def test_a_long_retention_is_applied_less_often(self, world: World) -> None:
        """After a hundredth of it: of 12,000 s, each second time."""
        process = await world.process(policy=Policy(dead_letter_retention_seconds=12_000))
        keeping = keeper(process, world, lambda: CREATED_AT + 12_000_001)
        removed = []
        for _ in range(4):
            await bury(process, world, CREATED_AT)
            removed.append(await keeping.expire())
        assert removed == [1, 0, 2, 0]

    async def test_without_a_retention_they_stay(self, world: World) -> None:
        process = await world.process()
        await process.publish()
        await process.reject(await process.one())
        assert await keeper(process, world).expire() == 0
        assert len(await process.dead()) == 1
