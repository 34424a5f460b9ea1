"""Dead letters one by one: read, removed, edited, forced, and never lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

import pytest

from babelgate import envelope
from babelgate.brokers.binding import NativeQueue, Outcome, Outgoing
from babelgate.errors import (
    BrokerUnavailable,
    EnvelopeError,
    ForceNeedsOtherQueue,
    InvalidParameter,
    NotRedrivable,
    OutcomeUnknown,
    UnknownDeadLetter,
)
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import DeadLetter, DeadLetterFilter, LetterEdit
from babelgate.gateway.routing import Policy
from tests.harness.passing import Passing
from tests.harness.world import Process, World, data, until
from tests.suites.redrive import StopsBeforeRemoval, dead_numbers, number, numbers, publish_dead_letters

POISON = [b"poison", b"\xff\xfe", b"[1]", b'{"job":"App\\\\Jobs\\\\Mail","data":[1.10]}']
"""Bodies that are no envelopes: not JSON, not UTF-8, no object, and an object that another program understands."""


class TargetDown(Passing):
    """A broker that takes no message."""

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        raise BrokerUnavailable(self.name, "it is down")


async def letter_of(process: Process, index: int = 0) -> DeadLetter:
    return (await process.dead())[index]


async def poisoned(world: World, process: Process, *bodies: bytes) -> list[DeadLetter]:
    """The dead letters of bodies that were found on the queue, which had none."""
    await poisoned_beside(world, process, 0, *bodies)
    return await process.dead()


def redriven_as(process: Process) -> list[tuple[str | None, str | None]]:
    """How letters were redriven, and the id of each message, as it was reported."""
    events = [event for event in process.events if event.kind == "redriven"]
    return [(event.reason, facts.message_id) for event in events for facts in event.messages]


class TestLetters:
    async def test_each_has_an_id_of_its_own_and_is_read_by_it(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 3)
        poison = [body for body in POISON if world.broker.carries(body)]
        await poisoned_beside(world, process, 3, *poison)
        listed = await process.dead()
        assert len({letter.letter_id for letter in listed}) == len(listed) == 3 + len(poison)
        for letter in listed:
            assert letter.letter_id.isalnum()
            assert await process.gateway.letters.get(ANYONE, world.queue, letter.letter_id) == letter
        assert {letter.letter_id for letter in await process.dead()} == {letter.letter_id for letter in listed}
        with pytest.raises(UnknownDeadLetter):
            await process.gateway.letters.get(ANYONE, world.queue, "0" * 32)

    async def test_some_are_removed_by_their_ids(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 5)
        listed = await process.dead()
        ids = [listed[3].letter_id, "unknown", listed[1].letter_id, listed[3].letter_id]
        results = await process.gateway.letters.remove(ANYONE, world.queue, ids)
        assert [(each.letter_id, type(each.error)) for each in results] == [
            (ids[0], type(None)),
            ("unknown", UnknownDeadLetter),
            (ids[2], type(None)),
        ]
        assert set(await dead_numbers(process)) == {number(listed[n]) for n in (0, 2, 4)}
        assert await process.is_empty()

    async def test_one_beyond_the_first_page(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 130)
        page, _ = await process.gateway.letters.page(ANYONE, world.queue, DeadLetterFilter(), 130, None)
        last = page[-1].letter_id
        assert (await process.gateway.letters.get(ANYONE, world.queue, last)).record == page[-1].record
        assert (await process.redrive_one(last)).removed
        assert await numbers(process) == [number(page[-1])]

    async def test_reads_that_are_cancelled_hide_none(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 30)
        ids = {letter.letter_id for letter in await process.dead()}
        assert len(ids) == 30
        letters = process.gateway.letters
        for pause in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064):
            reads = [asyncio.ensure_future(each) for each in (process.dead(), letters.get(ANYONE, world.queue, "0"))]
            await asyncio.sleep(pause)
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

        async def all_are_shown() -> bool:
            return {letter.letter_id for letter in await process.dead()} == ids

        await until(all_are_shown)

    async def test_a_search_may_begin_after_a_page(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 12)
        letters = process.gateway.letters
        page, cursor = await letters.page(ANYONE, world.queue, DeadLetterFilter(), 5, None)
        rest, _ = await letters.page(ANYONE, world.queue, DeadLetterFilter(), 12, cursor)
        if process.capabilities.ordering == "none":
            # Its letters have no places, so only the whole of them can be searched.
            assert await letters.get(ANYONE, world.queue, rest[-1].letter_id) == rest[-1]
            return
        assert await letters.get(ANYONE, world.queue, rest[-1].letter_id, cursor) == rest[-1]
        with pytest.raises(UnknownDeadLetter):
            await letters.get(ANYONE, world.queue, page[0].letter_id, cursor)
        await letters.remove_one(ANYONE, world.queue, rest[0].letter_id, cursor)
        with pytest.raises(UnknownDeadLetter):
            await letters.remove_one(ANYONE, world.queue, rest[0].letter_id)
        assert set(await dead_numbers(process)) == {number(each) for each in (*page, *rest[1:])}

    async def test_one_goes_back_as_it_was(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=2))
        receipt = await process.publish({"n": 1})
        first = await process.one()
        await process.nack(first)
        await process.nack(await process.one())
        sent = await process.redrive_one((await letter_of(process)).letter_id)
        assert (sent.id, sent.to_queue, sent.edited, sent.forced, sent.removed) == (
            receipt.id,
            world.queue,
            False,
            False,
            True,
        )
        again = await process.one()
        assert (again.body, again.attempts) == (first.body, 0)
        assert await process.dead() == []
        assert redriven_as(process) == [(None, receipt.id)]

    async def test_one_goes_back_with_other_data(self, world: World) -> None:
        process = await world.process()
        receipt = await process.publish({"to": "nobody", "n": 1})
        first = await process.one()
        await process.reject(first, error="no such mailbox")
        sent = await process.redrive_one((await letter_of(process)).letter_id, data=b'{ "to": "ada", "n": 1.10 }')
        assert (sent.id, sent.edited) == (receipt.id, True)
        again = await process.one()
        before, after = json.loads(first.body), json.loads(again.body)
        assert after == before | {"data": {"to": "ada", "n": 1.1}}
        assert b'"n":1.10' in again.body, "literals stay as they are sent"
        assert await process.dead() == []
        assert redriven_as(process) == [("edited", receipt.id)]

    async def test_one_goes_back_with_another_body(self, world: World, queue: str) -> None:
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        await publish_dead_letters(process, 2)
        whole = json.loads(await record_of(process, 0))
        del whole["dead_letter"]
        whole |= {"data": {"n": 10}, "attempts": 7}
        body, letter_id = json.dumps(whole).encode(), (await letter_of(process)).letter_id
        letters, edit = process.gateway.letters, LetterEdit(None, body)
        previewed = await letters.preview(ANYONE, world.queue, letter_id, None, edit, None)
        assert await process.is_empty(), "a preview sends nothing"
        sent = await process.redrive_one(letter_id, body=body)
        assert sent.id == whole["meta"]["id"]
        message = await process.one()
        assert message.body == previewed
        assert (data(message), message.attempts) == ({"n": 10}, 0)
        draft = b'{"job":"urn:babel:test:other","data":{"n":11}}'
        sent = await process.redrive_one((await letter_of(process)).letter_id, elsewhere.queue, body=draft)
        message = await elsewhere.one()
        assert json.loads(message.body)["meta"]["queue"] == elsewhere.queue
        assert (data(message), json.loads(message.body)["meta"]["id"]) == ({"n": 11}, sent.id)
        assert await process.dead() == []

    @pytest.mark.parametrize(
        ("edit", "code", "pointer"),
        [
            ({"data": b"[]"}, "invalid_data", "/edit/data"),
            ({"data": b'{"n":1e400}'}, "number_out_of_range", "/edit/data/n"),
            ({"body": b'{"job":" ","data":{}}'}, "missing_urn", "/edit/body/job"),
            ({"body": b'{"job":"a","data":{},"dead_letter":{}}'}, "reserved_key", "/edit/body/dead_letter"),
            ({"body": b'{"job":"a","data":{},"meta":{"queue":"third"}}'}, "queue_mismatch", "/edit/body/meta/queue"),
            ({"body": b"[]"}, "invalid_json", "/edit/body"),
        ],
    )
    async def test_a_refused_edit_changes_nothing(
        self, world: World, edit: dict[str, bytes], code: str, pointer: str
    ) -> None:
        process = await world.process()
        await publish_dead_letters(process, 1)
        with pytest.raises(EnvelopeError) as refused:
            await process.redrive_one(
                (await letter_of(process)).letter_id, data=edit.get("data"), body=edit.get("body")
            )
        assert (refused.value.problems[0].code, refused.value.problems[0].pointer) == (code, pointer)
        assert await dead_numbers(process) == [0]
        assert await process.is_empty()

    @pytest.mark.parametrize("body", POISON)
    async def test_poison_goes_back_once_it_is_repaired(self, world: World, body: bytes) -> None:
        if not world.broker.carries(body):
            pytest.skip("no client can put this body on a queue")
        process = await world.process()
        (letter,) = await poisoned(world, process, body)
        with pytest.raises(NotRedrivable):
            await process.redrive_one(letter.letter_id)
        assert await process.dead() == [letter]
        sent = await process.redrive_one(letter.letter_id, body=b'{"job":"urn:babel:test:mended","data":{"n":1}}')
        message = await process.one()
        assert (data(message), json.loads(message.body)["meta"]["id"]) == ({"n": 1}, sent.id)
        assert await process.dead() == []
        assert redriven_as(process) == [("edited", sent.id)]

    @pytest.mark.parametrize("body", POISON)
    async def test_poison_goes_unchanged_to_another_queue_by_force(self, world: World, queue: str, body: bytes) -> None:
        if not world.broker.carries(body):
            pytest.skip("no client can put this body on a queue")
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        (letter,) = await poisoned(world, process, body)
        for to_queue in (None, world.queue):
            with pytest.raises(ForceNeedsOtherQueue):
                await process.redrive_one(letter.letter_id, to_queue, force=True)
        assert await process.dead() == [letter]
        sent = await process.redrive_one(letter.letter_id, elsewhere.queue, force=True)
        assert (sent.forced, sent.edited) == (True, False)
        assert await process.dead() == []
        assert await process.is_empty()
        # A gateway finds it there as another program would: with its own bytes.
        (found,) = await is_dead(elsewhere)
        assert envelope.original(found.record) == body
        assert redriven_as(process) == [("forced", None)]

    async def test_force_concerns_invalid_messages_only(self, world: World, queue: str) -> None:
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        await publish_dead_letters(process, 2)
        await poisoned_beside(world, process, 2, b"poison")
        result = await process.redrive(to_queue=elsewhere.queue, force=True)
        assert (result.matched, result.redriven, result.failed, result.complete) == (3, 3, 0, True)
        assert elsewhere.in_order(await numbers(elsewhere)) == [0, 1]
        assert [envelope.original(letter.record) for letter in await is_dead(elsewhere)] == [b"poison"]
        assert await process.dead() == []

    async def test_a_redrive_is_complete_only_when_nothing_is_left(self, world: World) -> None:
        process = await world.process()
        await poisoned(world, process, *(b"poison %d" % n for n in range(25)))
        result = await process.redrive()
        assert (result.matched, result.redriven, result.failed, result.complete) == (25, 0, 25, False)
        assert (len(result.errors), result.errors_omitted) == (20, 5)
        listed = [letter.letter_id for letter in await process.dead()]
        told = [error.letter_id for error in result.errors]
        # A queue without an order lists its letters in any.
        assert len({*told} & {*listed}) == 20 if process.capabilities.ordering == "none" else told == listed[:20]
        assert {(error.id, error.code) for error in result.errors} == {(None, "invalid_json")}

    async def test_a_redrive_by_ids(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 6)
        listed = await process.dead()
        result = await process.redrive(ids=[listed[4].letter_id, listed[1].letter_id])
        assert (result.matched, result.redriven, result.failed, result.complete) == (2, 2, 0, True)
        assert set(await numbers(process)) == {number(listed[1]), number(listed[4])}
        result = await process.redrive(ids=[listed[4].letter_id, listed[5].letter_id])
        assert (result.matched, result.redriven, result.failed, result.complete) == (1, 1, 1, False)
        assert [(error.letter_id, error.code) for error in result.errors] == [
            (listed[4].letter_id, "unknown_dead_letter")
        ]
        assert await numbers(process) == [number(listed[5])]
        assert set(await dead_numbers(process)) == {number(listed[n]) for n in (0, 2, 3)}

    async def test_a_redrive_keeps_to_its_rate(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 12)
        began = time.monotonic()
        result = await process.redrive(per_second=10, limit=12)
        assert time.monotonic() - began >= 1.0, "the last page goes out when the others' time is over"
        assert result.redriven == 12
        assert process.in_order(await numbers(process)) == list(range(12))

    async def test_a_slow_rate_skips_nothing(self, world: World) -> None:
        process = await world.process()
        for n in range(4):
            await process.publish({"n": n})
        await process.reject(*await process.take(4))
        skipped, *others = await process.dead()
        ids = [letter.letter_id for letter in others]
        result = await process.redrive(ids=ids, per_second=0.7)
        assert (result.redriven, result.complete) == (3, True)
        assert set(await numbers(process)) == set(map(number, others))
        assert await dead_numbers(process) == [number(skipped)]

    async def test_a_rate_that_takes_too_long_for_a_request_is_refused(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 1)
        with pytest.raises(InvalidParameter, match="background"):
            await process.redrive(per_second=1)
        with pytest.raises(InvalidParameter, match="background"):
            await process.redrive(per_second=1, limit=61)
        assert await dead_numbers(process) == [0]
        assert (await process.redrive(per_second=1, limit=60)).redriven == 1

    async def test_redrives_of_one_letter_at_the_same_time(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 1)
        letter = await letter_of(process)
        calls = [process.redrive_one(letter.letter_id) for _ in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert sorted(kinds) == ["RedrivenLetter", *["UnknownDeadLetter"] * 4]
        assert await numbers(process) == [0]

    async def test_redrives_of_one_letter_in_two_processes_lose_nothing(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        await publish_dead_letters(first, 1)
        letter = await letter_of(first)
        calls = [process.redrive_one(letter.letter_id) for process in (first, second)]
        await asyncio.gather(*calls, return_exceptions=True)

        async def is_gone() -> bool:
            return await first.dead() == []

        await until(is_gone)
        assert set(await numbers(first)) == {0}

    async def test_a_letter_stays_when_its_target_is_down(self, world: World) -> None:
        await publish_dead_letters(await world.process(), 2)
        process = await world.process(wrap=TargetDown)
        letter = await letter_of(process)
        with pytest.raises(BrokerUnavailable):
            await process.redrive_one(letter.letter_id, data=b'{"n":7}')
        result = await process.redrive()
        assert (result.redriven, result.complete) == (0, False)
        assert await dead_numbers(process) == [0, 1]
        assert redriven_as(process) == []

    async def test_a_letter_that_was_sent_and_not_removed_stays(self, world: World) -> None:
        process = await world.process(wrap=StopsBeforeRemoval)
        await publish_dead_letters(process, 1)
        letter = await letter_of(process)
        with pytest.raises(OutcomeUnknown):
            await process.redrive_one(letter.letter_id, data=b'{"n":7}')
        assert redriven_as(process) == [("edited", letter.id)]
        assert await dead_numbers(process) == [0]
        assert await numbers(await world.process()) == [7]


async def is_dead(process: Process) -> list[DeadLetter]:
    """The dead letters of a queue on which only invalid messages are."""

    async def is_found() -> bool:
        await process.receive()
        return await process.dead() != []

    await until(is_found)
    return await process.dead()


async def poisoned_beside(world: World, process: Process, others: int, *bodies: bytes) -> None:
    """Dead-letter ``bodies`` behind ``others`` dead letters."""
    await world.broker.inject(world.queue, *bodies)

    async def all_are_dead() -> bool:
        await process.receive()
        return len(await process.dead()) == others + len(bodies)

    await until(all_are_dead)


async def record_of(process: Process, index: int) -> bytes:
    return (await process.dead())[index].record
