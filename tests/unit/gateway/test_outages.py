"""An outage is a few lines, however many calls fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from babelgate.errors import BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown, StorageFull, StorageReadOnly
from babelgate.gateway.outages import REFUSED_SECONDS, REMIND_EVERY_SECONDS, Outages
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding

DOWN = BrokerUnavailable("memory", "connection refused")
UNKNOWN = OutcomeUnknown("memory", "no reply within 5 s")


class Bench:
    """Outages of one broker, looked at when the test says so, by a clock that it moves."""

    def __init__(self, caplog: pytest.LogCaptureFixture, refused_seconds: float = REFUSED_SECONDS) -> None:
        caplog.set_level("INFO")
        self._caplog = caplog
        self.now = 1000.0
        self.binding = MemoryBinding()
        self.outages = Outages({"memory": self.binding}, lambda: self.now, refused_seconds)

    def lines(self) -> list[dict[str, Any]]:
        """What was logged since the last call."""
        found = [
            {**record.msg, "level": record.levelname} for record in self._caplog.records if isinstance(record.msg, dict)
        ]
        self._caplog.clear()
        kept = ("event", "level", "broker", "reason", "seconds", "failed_calls", "is_replaced")
        return [{key: line[key] for key in kept if key in line} for line in found]

    async def pings(self, answered: bool) -> bool:
        """Look once, at a broker that answers a ping or does not; whether it is back."""
        self.binding.faults.clear()
        if not answered:
            self.binding.faults["ping"] = 0
            self.binding.errors["ping"] = DOWN
        return await self.outages.check("memory")


@pytest.fixture
async def bench(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Bench]:
    bench = Bench(caplog)
    yield bench
    await bench.outages.close()


LOST = {"event": "broker lost", "level": "WARNING", "broker": "memory", "reason": "connection refused"}


async def test_one_line_when_it_is_lost_and_one_when_it_is_back(bench: Bench) -> None:
    for _ in range(500):
        bench.outages.call_ended("memory", DOWN)
    assert bench.lines() == [LOST]
    bench.now += 29
    assert not await bench.pings(answered=False)
    bench.now += 1
    assert not await bench.pings(answered=True)
    bench.now += bench.binding.timeout_seconds
    assert await bench.pings(answered=True)
    back = {"event": "broker back", "level": "INFO", "broker": "memory", "seconds": 30.0, "failed_calls": 500}
    assert bench.lines() == [back], "it answered after 30 s"
    bench.outages.call_ended("memory", DOWN)
    assert bench.lines() == [LOST]


async def test_a_reminder_once_a_minute(bench: Bench) -> None:
    bench.outages.call_ended("memory", DOWN)
    bench.outages.call_ended("memory", UNKNOWN)
    bench.lines()
    for _ in range(3 * int(REMIND_EVERY_SECONDS)):
        bench.now += 1
        await bench.pings(answered=False)
    reminders = bench.lines()
    assert [line["event"] for line in reminders] == ["broker still lost"] * 3
    assert [line["seconds"] for line in reminders] == [60.0, 120.0, 180.0]
    assert {line["failed_calls"] for line in reminders} == {2}


async def test_a_connection_that_was_replaced_is_said_to_be_one_and_is_not_reminded_of(bench: Bench) -> None:
    """It may lead to a server that was never there."""
    bench.outages.lost("memory", DOWN)
    bench.outages.replace(MemoryBinding())
    left = bench.outages.of(bench.binding)
    assert bench.lines() == [LOST, {**LOST, "is_replaced": True}]
    bench.binding.fail_after("ping", 0, DOWN)
    bench.now += 2 * REMIND_EVERY_SECONDS
    assert not await left.check("memory")
    assert bench.lines() == []
    bench.binding.faults.clear()
    assert not await left.check("memory")
    bench.now += bench.binding.timeout_seconds
    assert await left.check("memory")
    (back,) = bench.lines()
    assert (back["event"], back["is_replaced"]) == ("broker back", True)


async def test_a_parking_broker_is_lost_to_all_whoever_called_it(caplog: pytest.LogCaptureFixture) -> None:
    binding = MemoryBinding()
    outages = Outages({"memory": binding, "parking": MemoryBinding("parking")})
    try:
        outages.replace(MemoryBinding())
        outages.of(binding).call_ended("memory", BrokerUnavailable("parking", "connection refused"))
        lost = [each.msg for each in caplog.records if isinstance(each.msg, dict)]
        assert [(each["broker"], "is_replaced" in each) for each in lost] == [("parking", False)]
    finally:
        await outages.close()


async def test_it_is_not_back_while_calls_fail(bench: Bench) -> None:
    """A broker may answer pings and take no messages."""
    bench.outages.call_ended("memory", DOWN)
    for _ in range(20):
        bench.now += 1
        assert not await bench.pings(answered=True)
        bench.outages.call_ended("memory", DOWN)
    assert [line["event"] for line in bench.lines()] == ["broker lost"]


@pytest.mark.parametrize("kind", [StorageFull, StorageReadOnly])
async def test_a_storage_that_refuses_is_one_line(bench: Bench, kind: type[StorageFull | StorageReadOnly]) -> None:
    error = kind("memory", "no room")
    for _ in range(500):
        bench.outages.refused(error)
    refuses = {"event": "storage refuses", "level": "WARNING", "broker": "memory", "reason": "no room"}
    assert bench.lines() == [refuses]
    assert bench.outages.storage("memory") == error.detail
    assert await bench.outages.check("memory"), "it is not lost"


async def test_a_storage_that_goes_on_refusing_is_logged_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, refused_seconds=0.05)
    full = StorageFull("memory", "no room")
    bench.outages.refused(full)
    await eventually(lambda: "storage still refuses" in {line["event"] for line in bench.lines()})
    bench.now += 1
    await eventually(lambda: bench.outages.storage("memory") is None)
    assert bench.lines()[-1] == {
        "event": "storage refuses no more",
        "level": "INFO",
        "broker": "memory",
        "seconds": 0.0,
    }
    await bench.outages.close()


async def test_what_a_broker_answers_is_no_outage(bench: Bench) -> None:
    for outcome in (None, 5, LeaseLost(), BrokerRejected("memory", "no"), asyncio.CancelledError()):
        bench.outages.call_ended("memory", outcome)
    assert bench.lines() == []


async def test_a_broker_that_cannot_say_what_one_queue_has_is_not_lost(bench: Bench) -> None:
    error = BrokerUnavailable("memory", "another consumer has the messages")
    error.answered = True
    bench.outages.call_ended("memory", error)
    assert bench.lines() == []
    assert await bench.outages.check("memory")


async def test_one_that_was_found_down_has_failed_no_call(bench: Bench) -> None:
    bench.outages.lost("memory", DOWN)
    bench.outages.lost("memory", DOWN)
    await bench.pings(answered=True)
    bench.now += bench.binding.timeout_seconds
    assert await bench.pings(answered=True)
    lost, back = bench.lines()
    assert (lost, back["failed_calls"], back["seconds"]) == (LOST, 0, 0.0)


async def test_it_looks_by_itself(bench: Bench) -> None:
    bench.outages.call_ended("memory", DOWN)
    await eventually(lambda: bool(bench.binding.calls["ping"]))


async def test_the_circuit_opens_when_a_ping_fails_too(bench: Bench) -> None:
    circuit = bench.outages.circuits["memory"]
    opened = []
    bench.outages.call_ended("memory", DOWN)
    opened.append(circuit.is_open)
    await bench.pings(answered=False)
    opened.append(circuit.is_open)
    refusal = circuit.refusal()
    assert "connection refused; the circuit is open" in str(refusal) and refusal.retryable
    assert refusal.broker == "memory"
    await bench.pings(answered=True)
    opened.append(circuit.is_open)
    assert opened == [False, True, False], "not for one call that failed, and until the first answer"


async def test_errors_of_one_queue_do_not_open_the_circuit(bench: Bench) -> None:
    for _ in range(20):
        bench.outages.call_ended("memory", DOWN)
        await bench.pings(answered=True)
        assert not bench.outages.circuits["memory"].is_open


async def test_a_ping_without_an_answer_in_the_time_of_a_call_opens_the_circuit(bench: Bench) -> None:
    """Its late answer does not close it: calls would be late, too."""
    bench.binding.timeout_seconds = 0.01
    answer = bench.binding.gates["ping"] = asyncio.Event()
    bench.outages.lost("memory", UNKNOWN)
    looking = asyncio.create_task(bench.outages.check("memory"))
    await eventually(lambda: bench.outages.circuits["memory"].is_open)
    answer.set()
    assert not await looking
    assert bench.outages.circuits["memory"].is_open
    bench.binding.timeout_seconds = 60
    assert not await bench.pings(answered=True)
    assert not bench.outages.circuits["memory"].is_open, "this one was answered in time"


async def test_a_ping_ends_with_the_watch(bench: Bench) -> None:
    before = asyncio.all_tasks()
    bench.binding.gates["ping"] = asyncio.Event()
    bench.outages.call_ended("memory", DOWN)
    await eventually(lambda: bool(bench.binding.calls["ping"]))
    assert asyncio.all_tasks() > before
    await bench.outages.close()
    await eventually(lambda: asyncio.all_tasks() <= before)
