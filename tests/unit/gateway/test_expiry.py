"""The time to live of a single message, over a broker in memory."""

from __future__ import annotations

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.envelope.options import EXPIRES_AT_HEADER
from babelgate.gateway import expiry
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.routing import Policy
from tests.harness.memory import MovingMemory
from tests.harness.setting import Setting
from tests.harness.world import data, draft


def sent(setting: Setting) -> list[Outgoing]:
    return list(setting.binding.ready(setting.queue))


def at(setting: Setting, seconds: float) -> str:
    return str(setting.now + round(seconds * 1000))


async def test_it_counts_from_when_the_message_is_due(queue: str) -> None:
    setting = Setting(queue)
    publish = setting.process.publish_body
    await publish(draft({}, ttl_seconds=10))
    (message,) = sent(setting)
    assert message.headers == {EXPIRES_AT_HEADER: at(setting, 10)}
    shown = await setting.process.gateway.validate(
        ANYONE, queue, draft({}, ttl_seconds=10, deliver_at=setting.now + 60_000)
    )
    assert shown.headers == {EXPIRES_AT_HEADER: at(setting, 70)}
    shown = await setting.process.gateway.validate(
        ANYONE, queue, draft({}, ttl_seconds=0.0005, delay_seconds=60, headers={"a": "1", EXPIRES_AT_HEADER: "1"})
    )
    assert list(shown.headers.items()) == [(EXPIRES_AT_HEADER, str(setting.now + 60_001)), ("a", "1")]


@pytest.mark.parametrize("value", ["", "never", "-1", "1e3", "1.5", "\u0663", "9" * 30])
def test_a_value_that_is_no_time_is_ignored(value: str) -> None:
    assert not expiry.has_expired({EXPIRES_AT_HEADER: value}, 2**62)


async def test_the_header_of_another_program_counts_and_the_earlier_time_wins(queue: str) -> None:
    setting = Setting(queue, kind=MovingMemory, policy=Policy(ttl_seconds=100))
    for n, headers in enumerate([{EXPIRES_AT_HEADER: at(setting, 10)}, {EXPIRES_AT_HEADER: at(setting, 1000)}, {}]):
        await setting.process.publish_body(draft({"n": n}, **({"headers": headers} if headers else {})))
    setting.now += 9_999
    messages = await setting.process.receive(10)
    assert [data(each)["n"] for each in messages] == [0, 1, 2]
    # Who has it may settle it later; given back it is too late.
    setting.now += 1
    assert await setting.process.nack(*messages) == [None] * 3
    messages = await setting.process.receive(10)
    assert [data(each)["n"] for each in messages] == [1, 2]
    await setting.process.nack(*messages)
    setting.now += 100_000
    assert await setting.process.receive(10) == []
    ended = [event.reason for event in setting.process.events if event.kind == "dead_lettered" for _ in event.messages]
    assert ended == ["failed"] * 3
