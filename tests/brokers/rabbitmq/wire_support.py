"""Helpers for the tests of the RabbitMQ binding."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from babelgate.brokers.binding import Delivery, NativeQueue, Outcome, Outgoing
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.errors import BrokerRejected, BrokerUnavailable, OutcomeUnknown
from tests.harness.world import until

BODY = b'{"job":"urn:a","trace_id":"t","data":{"mark":"%s"},"meta":{"id":"i"},"attempts":0}'


def message(mark: str = "x") -> Outgoing:
    """A message with ``mark`` in its data."""
    return Outgoing(BODY % mark.encode())


async def reserved(one: RabbitBinding, native: NativeQueue, limit: int = 1) -> Delivery:
    """The one delivery that must come."""
    (delivery,) = await one.reserve(native, limit, 10, 30)
    return delivery


async def answers(one: RabbitBinding) -> None:
    """Wait until the broker answers."""

    async def is_up() -> bool:
        try:
            await one.ping()
        except BrokerUnavailable:
            return False
        return True

    await until(is_up)


def kinds(outcomes: Sequence[Outcome]) -> list[type]:
    """Their classes."""
    return [type(outcome) for outcome in outcomes]


async def outcomes(call: Awaitable[Sequence[Outcome]]) -> Sequence[Outcome]:
    """The outcomes; an error of the whole call as the only one."""
    try:
        return await call
    except OutcomeUnknown as unknown:
        return [unknown]


async def accepted(one: RabbitBinding, native: NativeQueue, wanted: Outgoing) -> bool:
    """Whether it was published at the first or, where a connection was just lost, at a later attempt."""
    for _ in range(50):
        with contextlib.suppress(BrokerUnavailable):
            return await one.publish(native, [wanted]) == [None]
        await asyncio.sleep(0.1)
    return False


async def refusal(call: Callable[[], Awaitable[Sequence[Any]]]) -> Any:
    """The error of a call or of its only message."""
    try:
        (outcome,) = await call()
    except BrokerRejected as error:
        return error
    return outcome
