"""When a client counts as a member of its group, and when it is replaced: with a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from babelgate.brokers.kafka.membership import ABSENT_SECONDS, PROOF_SECONDS, Membership, failure_of, guard
from tests.unit.brokers.kafka.test_close import JumpingLoop


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Consumer:
    """Shows a generation as librdkafka does."""

    def __init__(self, generation: int) -> None:
        self._generation = generation

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + self._generation.to_bytes(4, "little", signed=True) + b"rest"


@pytest.mark.parametrize(
    ("state", "generation", "is_member"),
    [("up", 3, True), ("up", 0, False), ("up", -1, False), ("query-coord", 3, False), ("wait-broker", 3, False)],
)
def test_a_report_proves_membership(state: str, generation: int, is_member: bool) -> None:
    clock = Clock()
    membership = Membership(clock, classic=False)
    assert not membership.is_proven()
    consumer: Any = Consumer(generation)
    membership.look(consumer)
    assert not membership.is_proven(), "nothing was reported"
    membership.measured(json.dumps({"cgrp": {"state": state}}))
    membership.look(consumer)
    assert membership.is_proven() == is_member
    clock.now += PROOF_SECONDS + 0.1
    membership.look(consumer)
    assert not membership.is_proven(), "a report counts once"


@pytest.mark.parametrize("classic", [True, False])
def test_a_member_may_wait_for_others_of_a_classic_group(classic: bool) -> None:
    """It has reached the group, which answers when all have come: no client would be faster."""
    clock = Clock()
    membership = Membership(clock, classic=classic)
    consumer: Any = Consumer(-1)
    membership.measured(json.dumps({"cgrp": {"state": "up"}}))
    membership.look(consumer)
    assert membership.is_healthy() == classic
    assert not membership.is_proven()
    clock.now += PROOF_SECONDS + 0.1
    assert not membership.is_healthy()


def replaced(seconds: float, *, healthy: Iterable[int] = (), answered: Iterable[int] = range(1_000)) -> list[int]:
    """The looks after a client at which it is replaced: one a second, for ``seconds``. ``healthy``: the looks at which
    it has its group; ``answered``: those at which the group answers another client."""

    async def looks() -> list[int]:
        loop = asyncio.get_running_loop()
        found: list[int] = []

        async def is_answered() -> bool:
            return round(loop.time()) in answered

        guarding = asyncio.create_task(
            guard(lambda: round(loop.time()) in healthy, is_answered, lambda: found.append(round(loop.time())))
        )
        await asyncio.sleep(seconds)
        guarding.cancel()
        return found

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(looks())


def test_a_client_is_replaced_after_ten_seconds_without_its_group() -> None:
    assert replaced(25.5) == [1 + ABSENT_SECONDS, 2 + 2 * ABSENT_SECONDS], "the next one has as long"


def test_a_client_is_not_replaced_while_the_group_answers_no_client() -> None:
    """Its leases may outlive a restart of the cluster."""
    assert replaced(100.5, answered=()) == []
    # Nine seconds are not enough, and after a missed answer the time begins again.
    assert replaced(121.5, answered={*range(101, 111), *range(112, 122)}) == []
    assert replaced(122.5, answered={*range(101, 111), *range(112, 123)}) == [122]


def test_the_time_of_a_member_begins_again_when_it_has_its_group() -> None:
    assert replaced(16.5, healthy={6}) == []
    assert replaced(17.5, healthy={6}) == [17]


def test_a_client_that_gets_its_group_during_the_question_is_not_replaced() -> None:
    looks = iter([False, False] * 10 + [False, True])
    found: list[None] = []

    async def is_answered() -> bool:
        return True

    async def guarded() -> None:
        guarding = asyncio.create_task(guard(lambda: next(looks), is_answered, lambda: found.append(None)))
        await asyncio.sleep(11.5)
        guarding.cancel()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(guarded())
    assert found == []


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        (
            KafkaError._FATAL,
            f"Fatal error: {KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()}",
            "set group of the broker",
        ),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup failed", "Set group_protocol of the broker to consumer"),
        (KafkaError._FATAL, "Fatal error: fenced", None),
    ],
)
def test_a_group_that_takes_no_member_says_what_to_set_and_is_asked_again_later(
    code: int, text: str, advice: str | None
) -> None:
    failure = failure_of(KafkaException(KafkaError(code, text)), "babelqueue", 10)
    error = failure.error("kafka")
    assert text in str(error)
    assert (error.answered, failure.until) == ((True, 15) if advice else (False, 10))
    assert advice is None or (advice in str(error) and "'babelqueue'" in str(error))
