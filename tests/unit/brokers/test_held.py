"""Deliveries of a connection are settled once, and what is not known of them is not called done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from babelgate.brokers.held import HandleSettler, Held, HolderEnded, State
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown
from tests.harness.world import kinds


class Channel:
    """A holder of deliveries. ``writes``: what was written, in order."""

    def __init__(self, *numbers: int) -> None:
        self.held: Held[str] = Held()
        self.writes: list[tuple[str, list[int]]] = []
        self.ended = False
        self.silent = False
        self.error: Exception | None = None
        for number in numbers:
            self.held.hold(number, f"delivery {number}")

    def state(self, number: int) -> State:
        return self.held.state(number)

    def accept(self, numbers: Sequence[int]) -> None:
        self._write("accept", numbers)
        self.held.acked(numbers)

    def give_back(self, numbers: Sequence[int], *, failed: bool = False) -> None:
        self._write("fail" if failed else "give back", numbers)
        self.held.returned(numbers)

    async def barrier(self) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    def _write(self, verb: str, numbers: Sequence[int]) -> None:
        if self.ended:
            raise HolderEnded("closed")
        self.writes.append((verb, list(numbers)))


def settler_of(timeout_seconds: float = 30, **channels: Channel) -> HandleSettler:
    return HandleSettler("broker", timeout_seconds, channels.get)


async def test_each_delivery_is_settled_on_its_own_channel_once() -> None:
    a, b = Channel(1, 2, 3), Channel(1)
    settler = settler_of(a=a, b=b)
    assert kinds(await settler.ack(["a.1", "b.1", "a.1", "c.1"])) == [None, None, None, LeaseLost]
    assert await settler.give_back(["a.2"], failed=True) == [None]
    assert await settler.give_back(["a.3"]) == [None]
    assert (a.writes, b.writes) == ([("accept", [1]), ("fail", [2]), ("give back", [3])], [("accept", [1])])


async def test_a_repeated_ack_is_done_and_any_other_repetition_is_lost() -> None:
    channel = Channel(1, 2)
    settler = settler_of(a=channel)
    assert await settler.ack(["a.1"]) == await settler.ack(["a.1"]) == [None]
    assert await settler.give_back(["a.2"]) == [None]
    assert kinds(await settler.give_back(["a.1", "a.2"])) == kinds(await settler.ack(["a.2", "a.3"])) == [LeaseLost] * 2
    assert len(channel.writes) == 2


@pytest.mark.parametrize("handle", ["", "a", "a.", "a.x", "a.-1", "a.1.2", "a.²", "b.1"])
async def test_what_names_no_delivery_is_lost(handle: str) -> None:
    settler = settler_of(a=Channel(1))
    for outcomes in (await settler.ack([handle]), await settler.give_back([handle]), await settler.prove([handle])):
        assert kinds(outcomes) == [LeaseLost]
    assert settler.outstanding([handle]) == [False]


async def test_without_an_answer_a_settle_is_unknown_and_a_proof_unavailable() -> None:
    lost, silent = Channel(1, 2, 3), Channel(1, 2, 3)
    lost.error, silent.silent = ConnectionError("reset"), True
    for channel in (lost, silent):
        settler = settler_of(0.01, a=channel)
        assert kinds(await settler.prove(["a.1"])) == [BrokerUnavailable]
        assert kinds(await settler.ack(["a.1", "b.1"])) == [OutcomeUnknown, LeaseLost]
        # The first one may not have reached the broker.
        assert kinds(await settler.ack(["a.1"])) == [OutcomeUnknown]
        assert kinds(await settler.give_back(["a.2"])) == [OutcomeUnknown]


async def test_on_a_channel_that_has_ended_all_is_lost() -> None:
    channel = Channel(1, 2)
    settler = settler_of(a=channel)
    assert await settler.ack(["a.1"]) == [None]
    channel.ended = True
    assert kinds(await settler.ack(["a.1", "a.2"])) == [LeaseLost] * 2
    assert len(channel.writes) == 1


async def test_a_proof_is_what_stands_after_the_answer() -> None:
    class Loses(Channel):
        async def barrier(self) -> None:
            self.held.clear()

    channel = Loses(1)
    assert settler_of(a=channel).outstanding(["a.1"]) == [True]
    assert kinds(await settler_of(a=channel).prove(["a.1"])) == [LeaseLost]
    assert await settler_of(a=Channel(1)).prove(["a.1"]) == [None]


def test_deliveries_that_were_given_back_are_lost_however_many_there_were() -> None:
    held: Held[None] = Held()
    for number in range(1, 30_001):
        held.hold(number, None)
        if number % 2:
            held.returned([number])
        else:
            held.acked([number])
    assert not held
    assert {held.state(number) for number in range(1, 30_001, 2)} == {"lost"}
    assert held.state(30_000) == "acked"
    assert held.state(30_001) == "lost"
