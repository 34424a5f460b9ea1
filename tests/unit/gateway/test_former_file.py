"""Former routes of queues that have moved, as a process finds them when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.former_file import KEPT_MS, FormerFile, FormerRoute, restore
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from tests.harness.memory import CAPABLE, MovingMemory
from tests.harness.world import KEYS


def former(queue: str, broker: str, moved_at: int = 0) -> FormerRoute:
    return FormerRoute(queue, broker, "{queue}", {}, moved_at)


def test_the_file_keeps_the_last_move_of_each_queue_for_a_while(tmp_path: Path) -> None:
    file = FormerFile(tmp_path)
    assert file.read() == []
    file.add([former("a", "one"), former("b", "one")], 0)
    file.add([former("b", "one", 5), former("b", "two", 5)], 5)
    assert file.read() == [former("a", "one"), former("b", "one", 5), former("b", "two", 5)]
    file.add([former("c", "one", KEPT_MS)], KEPT_MS)
    assert file.read() == [former("b", "one", 5), former("b", "two", 5), former("c", "one", KEPT_MS)]


async def test_each_queue_that_lives_elsewhere_is_emptied(caplog: pytest.LogCaptureFixture) -> None:
    one, two, now = (MovingMemory(name, CAPABLE) for name in ("one", "two", "now"))
    bindings = {each.name: each for each in (one, two, now)}
    gateway = Gateway(bindings, Router([Rule("q", now), Rule("stays", one)]), TokenSealer(KEYS))
    await gateway.start()
    try:
        left = [former("q", "one"), former("q", "two")]
        back = [former("q", "now"), former("stays", "one")]
        others = [former("gone", "one"), former("q", "removed"), former("q", "old", -KEPT_MS)]
        restore(gateway, [*left, *back, *others], 1)
        assert set(gateway.former.drains._tasks) == {("q", "one"), ("q", "two")}
        found = [gateway.former._route("q", broker) for broker in ("one", "two", "removed")]
        assert [None if each is None else each.broker for each in found] == ["one", "two", None]
        (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
        assert "'removed'" in str(warning.msg) and "'old'" not in str(warning.msg)
    finally:
        await gateway.close()
