"""A network that is slow, half open or resets connections: what clients are told is true, and calls work again."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Container
from typing import Any, Literal

import pytest

from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Policy
from tests.harness.broker import Broker, ServerBroker
from tests.harness.proxy import Proxy
from tests.harness.world import Process, World, data, until
from tests.suites.life import came_back, each_ends_once

NO_ANSWER = (BrokerUnavailable, OutcomeUnknown)
LEASE = 3.0
"""The lease of a message that nobody settles, in seconds."""

LEFT = (0, 1, 2)
"""How often a message may come whose ack has an unknown outcome. Where a retry is a copy, that may be there twice."""


class Ledger:
    """What ``process`` was told of its publishes. Each has a mark in its body."""

    def __init__(self, process: Process, world: World) -> None:
        self._process = process
        self._broker = world.broker
        self._marks: list[str] = []
        self.accepted: set[str] = set()
        self.refused: set[str] = set()
        """503: nothing was written."""

    async def publish(self) -> bool:
        """Publish one message, once; whether it was accepted."""
        mark = f"<{uuid.uuid4().hex}>"
        self._marks.append(mark)
        try:
            await self._process.publish({"mark": mark})
        except BrokerUnavailable as error:
            assert error.retryable and error.reason
            self.refused.add(mark)
        except OutcomeUnknown as error:
            assert error.retryable and error.reason
        else:
            self.accepted.add(mark)
        return mark in self.accepted

    async def check(self, between: Proxy, others: Container[int] = (0,)) -> None:
        """Ack all that is there: all accepted messages, none that was refused, none twice, and so many ``others``."""
        sent = bytes(between.sent)
        repeated = [mark for mark in self._marks if sent.count(mark.encode()) > 1]
        assert not repeated or self._broker.repeats_writes, "a publish was repeated"
        received: list[str] = []
        unsure: list[str] = []

        async def all_came() -> bool:
            await drain(self._process, received, unsure)
            found = {*received, *unsure}
            return found >= self.accepted and (0 in others or "" in found)

        await until(lambda: told(all_came))
        await until(lambda: told(lambda: drain(self._process, received, unsure)))
        assert len(set(received) - {""}) == len(received) - received.count(""), "a message was stored twice"
        assert not self.refused & {*received, *unsure}, "what was refused was stored"
        # Each of those that are unsure was acked, or has come again.
        certain = received.count("")
        assert any(count in others for count in range(certain, certain + unsure.count("") + 1))


async def drain(process: Process, received: list[str], unsure: list[str]) -> bool:
    """Ack what comes; whether nothing is ready, leased or delayed any more. A mark is added to ``received``, or to
    ``unsure`` where the ack has no answer."""
    for message in await process.receive(10, lease=LEASE):
        (outcome,) = await process.ack(message)
        mark = data(message).get("mark", "")
        if outcome is None:
            received.append(mark)
        elif isinstance(outcome, NO_ANSWER):
            unsure.append(mark)
    stats = await process.stats()
    return not (stats.depth or stats.in_flight)


async def told(call: Callable[[], Awaitable[bool]]) -> bool:
    """The result of ``call``; False where it has no answer."""
    try:
        return await call()
    except NO_ANSWER:
        return False


async def warm(world: World, seconds: float) -> Process:
    """A process that has used the queue, and whose calls take ``seconds`` at most.

    On a busy machine a broker may take longer: what was not answered is done again.
    """
    options = {**world.broker.impatient, "timeout_seconds": seconds}
    process = await world.process(broker_options=options, policy=Policy(lease_seconds=LEASE))
    received: list[str] = []
    unsure: list[str] = []
    await until(Ledger(process, world).publish)
    await until(lambda: told(lambda: drain(process, received, unsure)))
    assert received or unsure
    await came_back(process)
    return process


async def elsewhere(direct: ServerBroker, queue: str, *values: Any) -> None:
    """Publish ``values`` from another process, which the proxy does not see."""
    world = World(direct, queue)
    try:
        await (await world.process()).publish_all(values)
    finally:
        await world.close()


async def one_leased(process: Process) -> Message:
    """A message without a mark, leased."""

    async def is_accepted() -> bool:
        await process.publish({})
        return True

    await until(lambda: told(is_accepted))
    return await taken(process)


async def taken(process: Process) -> Message:
    """One message; what was not answered is tried again."""
    found: list[Message] = []

    async def came() -> bool:
        found.extend(await process.receive(wait=1, lease=LEASE))
        return bool(found)

    await until(lambda: told(came))
    (message,) = found
    return message


class TestSlow:
    async def test_a_slow_answer_is_an_answer(self, distant: World, between: Proxy) -> None:
        """Each answer takes more than a second, which is less than a call may take."""
        process = await warm(distant, 5)
        between.latency_seconds = 1.2
        # A word could be in a comment of a script of Redis, too.
        mark = uuid.uuid4().hex
        await process.publish({"mark": mark})
        message = await process.one(30)
        assert data(message) == {"mark": mark}
        assert await process.ack(message) == [None]
        await process.publish_all([{"n": n} for n in range(10)])
        messages = await process.take(10, 30)
        assert sorted(data(each)["n"] for each in messages) == list(range(10))
        assert await process.ack(*messages) == [None] * 10
        assert await process.ready(1) == []
        assert between.sent.count(mark.encode()) == 1
        assert not process.gateway.outages.circuits[distant.broker.name].is_open

    async def test_slower_than_a_call_may_be(self, distant: World, between: Proxy, neighbour: Broker) -> None:
        """The circuit opens, and closes when the broker is as fast as before. Another broker notices nothing."""
        process = await warm(distant, 1)
        near = World(neighbour, distant.queue)
        other = await near.process()
        ledger, leased = Ledger(process, distant), await one_leased(process)
        outages, broker = process.gateway.outages, distant.broker.name
        between.latency_seconds = 1.6

        async def is_open() -> bool:
            await ledger.publish()
            return outages.circuits[broker].is_open

        await until(is_open)
        results = await asyncio.gather(process.receive(), process.receive(wait=1), return_exceptions=True)
        assert [each for each in results if not isinstance(each, NO_ANSWER)] == []
        (outcome,) = await process.ack(leased)
        assert isinstance(outcome, NO_ANSWER)
        await other.publish({"n": 1})
        assert await other.ack(await other.one()) == [None]
        assert outages.circuits[broker].is_open, "no ping is answered in the time of a call"
        between.latency_seconds = 0
        await came_back(process)
        await until(ledger.publish)
        await ledger.check(between, LEFT)
        await near.close()


@pytest.fixture(params=[True, False], ids=["ended-at-broker", "silent"])
def end_at_broker(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


class TestHalfOpen:
    async def test_calls_find_a_new_connection(self, distant: World, between: Proxy, end_at_broker: bool) -> None:
        process = await warm(distant, 1)
        ledger = Ledger(process, distant)
        await until(ledger.publish)
        between.vanish(end_at_broker=end_at_broker)
        await until(ledger.publish)
        await ledger.check(between)

    async def test_what_was_leased_comes_again(self, distant: World, between: Proxy, end_at_broker: bool) -> None:
        process = await warm(distant, 1)
        if distant.broker.binds_leases and not end_at_broker:
            pytest.skip("the broker keeps it for the old connection until a time-out of its own")
        ledger, leased = Ledger(process, distant), await one_leased(process)
        between.vanish(end_at_broker=end_at_broker)
        (outcome,) = await process.ack(leased)
        assert outcome is None or isinstance(outcome, (LeaseLost, *NO_ANSWER))
        await until(ledger.publish)
        left = (0,) if outcome is None else LEFT if distant.broker.repeats_writes else (1, 2)
        await ledger.check(between, left)

    async def test_leases_that_end_meanwhile_come_again_once(
        self, distant: World, direct: ServerBroker, between: Proxy, end_at_broker: bool
    ) -> None:
        """Another process has acked some of the messages, where it can."""
        process = await warm(distant, 1)
        if distant.broker.binds_leases and not end_at_broker:
            pytest.skip("the broker keeps it for the old connection until a time-out of its own")
        near = World(direct, distant.queue)
        other = await near.process()
        await other.publish_all([{"n": n} for n in range(6)])
        messages = await process.take(6, LEASE)
        outcomes = await other.ack(*messages[:3])
        between.vanish(end_at_broker=end_at_broker)
        last = max(message.lease_expires_at for message in messages)
        await asyncio.sleep(max(last - now_ms(), 0) / 1000)
        found: list[Message] = []

        async def is_answered() -> bool:
            found.extend(await process.receive())
            return True

        await until(lambda: told(is_answered))
        ends = [*zip(messages, outcomes, strict=False)]
        for message in found:
            ends += zip([message], await process.ack(message), strict=True)
        acked = [data(message)["n"] for message, outcome in ends if outcome is None]
        unsure = [data(message)["n"] for message, outcome in ends if isinstance(outcome, NO_ANSWER)]
        await each_ends_once(other, 6, acked, unsure)
        await near.close()

    async def test_who_waits_is_served(
        self, distant: World, direct: ServerBroker, between: Proxy, end_at_broker: bool
    ) -> None:
        process = await warm(distant, 1)
        waiting = asyncio.create_task(process.receive(wait=30, lease=LEASE))
        await asyncio.sleep(0)
        between.vanish(end_at_broker=end_at_broker)
        await elsewhere(direct, distant.queue, {"n": 1})
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(result, (list, *NO_ANSWER)), result
        message = result[0] if isinstance(result, list) and result else await taken(process)
        assert data(message) == {"n": 1}


Place = Literal["request", "reply"]


@pytest.fixture(params=["request", "reply"])
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    return chosen


class TestReset:
    async def test_of_a_publish(self, distant: World, between: Proxy, place: Place) -> None:
        process = await warm(distant, 5)
        ledger = Ledger(process, distant)
        between.reset_on = place
        await ledger.publish()
        between.reset_on = None
        await until(ledger.publish)
        await ledger.check(between)

    async def test_of_a_receive(self, distant: World, direct: ServerBroker, between: Proxy, place: Place) -> None:
        process = await warm(distant, 5)
        ledger = Ledger(process, distant)
        between.reset_on = place
        await elsewhere(direct, distant.queue, {"n": 1})
        # A consumer that fetches ahead may have the message already; what it must not give is an empty answer.
        with contextlib.suppress(*NO_ANSWER):
            assert len(await process.receive(lease=LEASE)) == 1
        between.reset_on = None
        await until(ledger.publish)
        await ledger.check(between, (1,))

    async def test_of_an_ack(self, distant: World, between: Proxy, place: Place) -> None:
        process = await warm(distant, 5)
        ledger, leased = Ledger(process, distant), await one_leased(process)
        between.reset_on = place
        (outcome,) = await process.ack(leased)
        between.reset_on = None
        assert isinstance(outcome, (LeaseLost, *NO_ANSWER)), "nothing was answered"
        await came_back(process)
        (repeated,) = await process.ack(leased)
        assert repeated is None or isinstance(repeated, (LeaseLost, *NO_ANSWER))
        await until(ledger.publish)
        lost = place == "request" and not distant.broker.repeats_writes
        left = (0,) if repeated is None else (1, 2) if lost else LEFT
        await ledger.check(between, left)
