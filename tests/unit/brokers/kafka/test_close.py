"""Once a binding is closed no call begins a client of Kafka, nor goes on with one that ends. No broker answers here."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from babelgate.brokers.binding import DeadRecord, LastFailure, NativeQueue, Outgoing
from babelgate.brokers.kafka.admin import Topic
from babelgate.brokers.kafka.binding import KafkaBinding, connect
from babelgate.brokers.kafka.reader import CommittedOffsets
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable

URL = "kafka://127.0.0.1:1"
POSITION = ("q", 0)
COPY = Outgoing(b"{}", failure=LastFailure(1))

CALLS: dict[str, Callable[[KafkaBinding, NativeQueue], Awaitable[Any]]] = {
    "reserve": lambda binding, queue: binding.reserve(queue, 1, 300, 30),
    "publish": lambda binding, queue: binding.publish(queue, [Outgoing(b"{}", dedup_id="i")]),
    "publish later": lambda binding, queue: binding.publish(queue, [Outgoing(b"{}", delay_seconds=5)]),
    "copy": lambda binding, queue: binding.publish_dead_letters(queue, [COPY]),
    "stats": lambda binding, queue: binding.stats(queue),
    "peek": lambda binding, queue: binding.peek(queue, 1),
    "purge": lambda binding, queue: binding.purge(queue),
    "read dead letters": lambda binding, queue: binding.read_dead(queue, None, 1),
    "remove dead letters": lambda binding, queue: binding.remove_dead(queue, [DeadRecord(POSITION, b"{}")], None),
    "purge dead letters": lambda binding, queue: binding.purge_dead(queue),
    "warnings": lambda binding, queue: binding.queue_warnings(queue, 60),
    "queues": lambda binding, queue: binding.queues(),
    "ping": lambda binding, queue: binding.ping(),
    # The next steps of a walk that began before.
    "read on": lambda binding, queue: binding._reader.read(POSITION, 0, 1),
    "commits": lambda binding, queue: binding._admin.commits.of("babelqueue", [POSITION]),
}


def clients(binding: KafkaBinding) -> list[Any]:
    """The clients of ``binding``, and the tasks that may begin one."""
    found = [
        binding._consumer._thread,
        binding._consumer._guarding,
        binding._reinjector._task,
        binding._reinjector._member,
        binding._producer._client,
        binding._copier._client,
        binding._reader._consumer,
        binding._admin._client,
        *binding._admin.commits._clients,
    ]
    return [each for each in found if each is not None]


class _Jumping(selectors.SelectSelector):
    """Takes no time to wait: its clock goes on by what is waited for."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(None if timeout is None else 0)
        if not found:
            self.now += timeout or 0
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers take no time."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class _Slow:
    """A part of a binding that needs ``seconds`` to close."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.ended = False

    async def close(self) -> None:
        await asyncio.sleep(self._seconds)
        self.ended = True


async def disconnects(call: Awaitable[Any]) -> None:
    """Assert that ``call`` fails soon, because the binding is closed."""
    with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
        async with asyncio.timeout(20):
            await call


async def test_no_client_begins_once_the_binding_is_closed() -> None:
    binding = connect("kafka", URL, {"timeout_seconds": 1}, now_ms)
    queue = binding.native_queue("q", {})
    # It is known to exist, so that the reserve needs no answer to have a member.
    binding._admin._topics.keep("q", Topic("q", 1, None, bytes(16)))
    waiting = asyncio.create_task(binding.reserve(queue, 1, 300, 30))
    await asyncio.sleep(0)
    assert binding._consumer._thread in clients(binding)
    await binding.close()
    await disconnects(waiting)
    assert clients(binding) == []
    for name, call in CALLS.items():
        await disconnects(call(binding, queue))
        assert clients(binding) == [], name
    await binding.close()


async def test_a_question_ends_although_its_client_was_replaced_meanwhile() -> None:
    offsets = CommittedOffsets("kafka", {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, 0.5, lambda: None)
    client = offsets._clients["g"] = Consumer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "group.id": "g"})
    client.close()
    with pytest.raises(BrokerUnavailable):
        await offsets.of("g", [POSITION])
    assert not await offsets.is_answered("g")
    offsets.close()


def test_what_ends_in_the_background_ends_before_the_binding_is_open_again() -> None:
    """It would take the clients that calls have begun meanwhile."""

    async def opens() -> None:
        binding: Any = connect("kafka", URL, {}, now_ms)
        binding._reinjector._member = _Slow(11)
        await binding.close()
        with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
            await binding.open()
        await disconnects(binding.ping())
        since = asyncio.get_running_loop().time()
        with pytest.raises(BrokerUnavailable):
            await binding.open()
        assert asyncio.get_running_loop().time() - since >= 1
        assert not binding._admin.closed
        await binding.close()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(opens())


async def test_a_part_that_fails_to_close_is_logged_and_the_others_end(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        async def close(self) -> None:
            raise RuntimeError("it broke")

    binding: Any = connect("kafka", URL, {}, now_ms)
    binding._reinjector._member = Failing()
    await binding.close()
    (record,) = caplog.records
    assert "a client of Kafka did not end" in record.getMessage()
    assert "it broke" in record.getMessage()
    assert clients(binding) == []


@pytest.mark.parametrize(("first", "second", "all_in"), [(1, 2, 3), (4, 2, 5), (7, 2, 5)])
def test_a_close_has_one_limit_for_all_its_steps(first: float, second: float, all_in: float) -> None:
    async def closes() -> None:
        binding: Any = connect("kafka", URL, {}, now_ms)
        member, client = _Slow(first), _Slow(second)
        binding._reinjector._member, binding._producer._client = member, client
        since = asyncio.get_running_loop().time()
        await binding.close()
        assert asyncio.get_running_loop().time() - since == pytest.approx(all_in)
        # In the background.
        await asyncio.sleep(10)
        assert member.ended and client.ended

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(closes())
