"""One reserve at a time serves all the waiters of a queue, in the order of their arrival."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from babelgate.brokers.binding import Delivery
from babelgate.errors import BrokerUnavailable
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.inspection import ReadyDelivery
from babelgate.gateway.model import Message
from babelgate.gateway.receive import MAX_RESERVED, Receiver
from babelgate.observe.events import Facts

LEASE = 30.0
SOON = 60.0
"""A bound on what must happen at once, for the case that it never does."""


class Source:
    """Deliveries to reserve, one number each. Those in ``unfit`` are not admitted."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.reserves: list[tuple[int, float, float]] = []
        self.given_back: list[int] = []
        self.unfit: set[int] = set()
        self.error: Exception | None = None
        self.blocking = 0
        self.running = self.most_at_once = 0
        self.hangs = False
        self._arrived = asyncio.Event()
        self.handed_out: list[int] = []
        self.broken: Exception | None = None
        self.receiver = Receiver(self.reserve, self.admit, self.hand_out, self.give_back)
        # A busy machine may take longer than usual for the turns in which receives come back.
        self.receiver.return_seconds = 60

    def put(self, *numbers: int) -> None:
        self.ready += numbers
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._arrived.set()

    async def reserve(self, limit: int, wait_seconds: float, lease_seconds: float) -> Sequence[Delivery]:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            return await self._reserve(limit, wait_seconds, lease_seconds)
        finally:
            self.running -= 1

    async def _reserve(self, limit: int, wait_seconds: float, lease_seconds: float) -> Sequence[Delivery]:
        self.reserves.append((limit, wait_seconds, lease_seconds))
        if self.hangs:
            await asyncio.sleep(wait_seconds + 0.2)
            raise BrokerUnavailable("memory", "no answer in time")
        if not self.ready and wait_seconds:
            self._arrived.clear()
            self.blocking += 1
            assert self.blocking == 1, "one blocking reserve at a time"
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._arrived.wait()
            except TimeoutError:
                return []
            finally:
                self.blocking -= 1
        else:
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        taken, self.ready = self.ready[:limit], self.ready[limit:]
        return [Delivery(b"", str(number), 0) for number in taken]

    async def admit(self, deliveries: Sequence[Delivery]) -> list[ReadyDelivery]:
        return [ReadyDelivery(each, 0, Facts()) for each in deliveries if int(each.handle) not in self.unfit]

    def hand_out(self, admitted: Sequence[ReadyDelivery], lease_seconds: float) -> list[Message]:
        if self.broken is not None:
            raise self.broken
        assert admitted
        handles = [each.delivery.handle for each in admitted]
        self.handed_out += map(int, handles)
        leases = [Lease("q", "memory", handle, "me", 0, 0) for handle in handles]
        return [Message(lease, "", 0, 0, False, {}, b"") for lease in leases]

    async def give_back(self, handles: Sequence[str]) -> None:
        self.given_back += map(int, handles)

    def start(self, limit: int = 1, wait_seconds: float = SOON, lease_seconds: float = LEASE) -> asyncio.Task:
        return asyncio.create_task(self.receiver.receive(limit, wait_seconds, lease_seconds))


async def received(task: asyncio.Task[list[Message]]) -> list[int]:
    return [int(each.lease.handle) for each in await asyncio.wait_for(task, SOON)]


async def turn() -> None:
    """Let everything run that can run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_poll_takes_what_is_there() -> None:
    source = Source()
    source.put(1, 2, 3)
    assert await received(source.start(2, 0)) == [1, 2]
    assert await received(source.start(2, 0)) == [3]
    assert await received(source.start(2, 0)) == []
    assert {wait for _, wait, _ in source.reserves} == {0}


async def test_at_most_two_reserves_of_a_queue_run_at_a_time() -> None:
    """One that waits and one that does not, whatever the receives ask for."""
    source = Source()
    waiting = [source.start(1, SOON, LEASE + each % 3) for each in range(20)]
    await turn()
    polling = [source.start(1, 0, LEASE + each % 3) for each in range(20)]
    await asyncio.wait(polling)
    while not all(each.done() for each in waiting):
        source.put(1)
        polling.append(source.start(1, 0))
        await turn()
    await asyncio.wait(polling)
    assert source.most_at_once == 2


async def test_concurrent_polls_share_their_reserves_and_leave_no_one_out() -> None:
    source = Source()
    pollers = MAX_RESERVED + 50
    source.put(*range(pollers))
    tasks = [source.start(1, 0) for _ in range(pollers)]
    assert [await received(task) for task in tasks] == [[n] for n in range(pollers)]
    assert len(source.reserves) < 5


@pytest.mark.parametrize("wait_seconds", [0, SOON])
async def test_receives_that_come_back_one_by_one_share_the_next_reserve(wait_seconds: float) -> None:
    source = Source()
    source.put(*range(12))

    async def consumer(number: int) -> list[int]:
        taken = []
        for _ in range(3):
            taken += await received(source.start(1, wait_seconds))
            for _ in range(number):
                await asyncio.sleep(0)
        return taken

    taken = await asyncio.gather(*map(consumer, range(4)))
    assert sorted(chain.from_iterable(taken)) == list(range(12))
    assert [limit for limit, _, _ in source.reserves] == [4, 4, 4]


@pytest.mark.parametrize("wait_seconds", [0, SOON])
async def test_who_leaves_while_others_come_back_asks_for_nothing(wait_seconds: float) -> None:
    source = Source()
    unforeseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unforeseen.append(context))
    source.put(1, 2, 3)
    await asyncio.gather(*(received(source.start(1, wait_seconds)) for _ in range(3)))
    source.reserves.clear()
    leaving = source.start(1, wait_seconds)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await source.receiver.idle()
    assert source.reserves == []
    gc.collect()
    assert unforeseen == []
    source.put(4)
    assert await received(source.start(1, wait_seconds)) == [4]


async def test_polls_end_when_nothing_is_there() -> None:
    source = Source()
    source.put(1)
    tasks = [source.start(1, 0) for _ in range(3)]
    assert [await received(task) for task in tasks] == [[1], [], []]
    assert not source.receiver.busy


async def test_a_poll_looks_behind_what_was_dead_lettered() -> None:
    source = Source()
    source.put(1, 2, 3)
    source.unfit = {1, 2}
    assert await received(source.start(1, 0)) == [3]


async def test_a_poll_does_not_wait_for_those_that_wait() -> None:
    source = Source()
    waiting = source.start()
    await turn()
    assert await received(source.start(1, 0)) == []
    source.put(1)
    assert await received(waiting) == [1]


async def test_waiters_are_served_in_the_order_of_their_arrival() -> None:
    source = Source()
    tasks = [source.start() for _ in range(1000)]
    await turn()
    assert source.receiver.waiters == 1000
    source.put(0, 1, 2)
    await asyncio.wait(tasks[:3])
    await turn()
    assert [task.done() for task in tasks] == [True] * 3 + [False] * 997
    source.put(*range(3, 1000))
    assert [await received(task) for task in tasks] == [[n] for n in range(1000)]
    assert not source.given_back


async def test_a_waiter_takes_up_to_its_limit() -> None:
    source = Source()
    first, second = source.start(3), source.start(3)
    await turn()
    source.put(1, 2, 3, 4)
    assert (await received(first), await received(second)) == ([1, 2, 3], [4])


async def test_one_reserve_asks_for_no_more_than_its_bound() -> None:
    source = Source()
    tasks = [source.start(100) for _ in range(10)]
    await turn()
    source.put(*range(1000))
    dealt = [await received(task) for task in tasks]
    # Whole shares only: nobody gets less because others asked as well.
    assert [n for each in dealt for n in each] == list(range(1000))
    assert all(len(each) == 100 for each in dealt)
    assert max(limit for limit, _, _ in source.reserves) == MAX_RESERVED // 100 * 100


async def test_a_waiter_without_a_message_leaves_after_its_wait() -> None:
    source = Source()
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await received(source.start(1, 0.05)) == []
    assert loop.time() - started >= 0.05 - 0.001
    assert source.receiver.waiters == 0


async def test_a_waiter_of_a_broker_that_hangs_fails() -> None:
    source = Source()
    waiting = source.start(1, 0.3)
    await turn()
    source.hangs = True
    with pytest.raises(BrokerUnavailable):
        await received(waiting)
    with pytest.raises(BrokerUnavailable):
        await received(source.start(1, 0.05))
    source.hangs = False
    assert await received(source.start(1, 0.05)) == []


async def test_all_that_end_while_the_broker_hangs_fail_together() -> None:
    source = Source()
    source.hangs = True
    loop = asyncio.get_running_loop()
    started = loop.time()
    tasks = [source.start(1, 0.05, lease) for lease in (LEASE, 60) for _ in range(5 * MAX_RESERVED)]
    done, _ = await asyncio.wait(tasks, timeout=SOON)
    assert all(isinstance(task.exception(), BrokerUnavailable) for task in done)
    assert len(done) == len(tasks)
    polls = [wait for _, wait, _ in source.reserves if wait == 0]
    assert len(polls) <= 2, "nobody stands behind another's call that hangs"
    assert loop.time() - started < SOON


async def test_a_waiter_that_ends_takes_what_has_come_just_then() -> None:
    source = Source()
    waiting = source.start(1, 0.05)
    await turn()
    source.ready.append(1)  # without waking the reserve that waits
    assert await received(waiting) == [1]


async def test_many_that_end_share_their_questions() -> None:
    source = Source()
    tasks = [source.start(1, 0.2 + n / 10_000) for n in range(2000)]
    assert [await received(task) for task in tasks] == [[]] * 2000
    polls = [wait for _, wait, _ in source.reserves if wait == 0]
    assert 1 <= len(polls) <= 50


async def test_an_answer_from_before_a_receive_is_not_its_answer() -> None:
    source = Source()
    assert await received(source.start(1, 0)) == []
    source.hangs = True
    with pytest.raises(BrokerUnavailable):
        await received(source.start(1, 0.01))


async def test_each_gets_the_lease_it_asked_for() -> None:
    source = Source()
    long, short, long_again = source.start(1, SOON, 60), source.start(1, SOON, 5), source.start(1, SOON, 60)
    await turn()
    assert source.reserves == [(2, source.reserves[0][1], 60)]
    source.put(1, 2, 3)
    assert (await received(long), await received(long_again), await received(short)) == ([1], [2], [3])
    assert source.reserves[-1][2] == 5


async def test_who_hangs_up_while_waiting_holds_nothing() -> None:
    source = Source()
    gone = source.start()
    await turn()
    gone.cancel()
    await turn()
    assert source.receiver.waiters == 0
    source.put(1)
    await asyncio.wait_for(source.receiver.idle(), SOON)
    assert source.given_back == [1] or source.ready == [1]


async def test_what_was_reserved_for_one_that_hung_up_goes_to_the_next_in_line() -> None:
    source = Source()
    gone, next_one = source.start(), source.start()
    await turn()
    gone.cancel()
    source.put(1)
    assert await received(next_one) == [1]
    assert not source.given_back


async def test_who_hangs_up_as_the_message_arrives_gives_it_back() -> None:
    source = Source()
    gone = source.start(2)
    await turn()
    source.put(1, 2)
    while source.receiver.waiters:
        assert not gone.done()
        await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert source.given_back == [1, 2]


async def test_what_cannot_be_handed_out_fails_those_that_wait_and_not_the_next() -> None:
    source = Source()
    source.put(1, 2)
    source.broken = RuntimeError("unforeseen")
    with pytest.raises(RuntimeError, match="unforeseen"):
        await received(source.start())
    source.broken = None
    assert await received(source.start()) == [2]
    assert not source.receiver.busy


async def test_a_broker_that_fails_fails_those_that_wait_and_not_the_next() -> None:
    source = Source()
    waiting = [source.start(), source.start()]
    await turn()
    error = BrokerUnavailable("memory", "it is down")
    source.fail(error)
    for task in waiting:
        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(task, SOON)
    with pytest.raises(BrokerUnavailable):
        await source.receiver.receive(1, 0, LEASE)
    source.error = None
    source.put(1)
    assert await received(source.start()) == [1]


async def test_an_unforeseen_error_reaches_the_callers_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    waiting = source.start()
    await turn()
    source.fail(RuntimeError("unforeseen"))
    with pytest.raises(RuntimeError, match="unforeseen"):
        await asyncio.wait_for(waiting, SOON)
    (record,) = caplog.records
    assert "builtins.RuntimeError" in str(record.msg)


async def test_a_stop_ends_the_waiting_at_once_and_later_receives_do_not_wait() -> None:
    source = Source()
    tasks = [source.start() for _ in range(3)]
    await turn()
    source.receiver.stop()
    assert [await received(task) for task in tasks] == [[], [], []]
    assert await received(source.start()) == []
    await asyncio.wait_for(source.receiver.idle(), SOON)
    source.put(1)
    assert await received(source.start()) == [1], "what is there is still handed out"


async def test_what_a_stopped_receiver_reserves_for_nobody_is_given_back() -> None:
    source = Source()
    waiting = source.start()
    await turn()
    source.receiver.stop()
    source.put(1)
    assert await received(waiting) == []
    await asyncio.wait_for(source.receiver.idle(), SOON)
    assert (source.given_back, source.handed_out) == ([1], [])
