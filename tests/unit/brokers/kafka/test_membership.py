"""When a client counts as a member of its group, and when it is replaced: with a clock that the test moves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from babelgate.brokers.kafka.membership import ABSENT_SECONDS, PROOF_SECONDS, Membership, Watchdog, failure_of


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


def test_a_client_is_replaced_after_ten_seconds_without_its_group() -> None:
    clock = Clock()
    watchdog = Watchdog(clock)
    for _ in range(10):
        assert not watchdog.is_absent(healthy=False, answered=True)
        clock.now += ABSENT_SECONDS / 10
    assert watchdog.is_absent(healthy=False, answered=True)


def test_a_client_is_not_replaced_while_the_group_answers_nobody() -> None:
    """Its leases may outlive a restart of the cluster."""
    clock = Clock()
    watchdog = Watchdog(clock)
    for _ in range(100):
        assert not watchdog.is_absent(healthy=False, answered=False)
        clock.now += 1
    assert not watchdog.is_absent(healthy=False, answered=True)
    clock.now += ABSENT_SECONDS - 1
    assert not watchdog.is_absent(healthy=False, answered=True)
    assert not watchdog.is_absent(healthy=False, answered=False)
    clock.now += 2
    assert not watchdog.is_absent(healthy=False, answered=True), "the time begins again"


def test_a_member_begins_anew() -> None:
    clock = Clock()
    watchdog = Watchdog(clock)
    assert not watchdog.is_absent(healthy=False, answered=True)
    clock.now += ABSENT_SECONDS
    assert not watchdog.is_absent(healthy=True, answered=True)
    assert not watchdog.is_absent(healthy=False, answered=True)


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
