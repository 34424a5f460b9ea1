"""Former routes of queues that have moved, as a process finds them when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from babelgate.gateway.ack_tokens import Lease, TokenSealer
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
        # Of a version that knew no places, and of this one.
        moved = replace(former("q", "two"), place=Rule("q", two).route("q").place)
        elsewhere = replace(former("q", "one"), place=Rule("q", one, address="redis://other").route("q").place)
        restore(gateway, [left[0], moved, elsewhere, *back, *others], 1, {})
        assert set(gateway.former.drains._tasks) == {("q", id(one), "q"), ("q", id(two), "q")}
        leases = [Lease("q", broker, "1", "me", 0, 0) for broker in ("one", "two", "removed")]
        found = [gateway.former._route("q", each) for each in leases]
        assert [None if each is None else each.broker for each in found] == ["one", "two", None]
        warnings = [each for each in caplog.records if each.levelname == "WARNING"]
        assert ["'one'" in str(each.msg) for each in warnings] == [True, False], "one has another URL"
        assert "'removed'" in str(warnings[1].msg) and "'old'" not in str(warnings[1].msg)
    finally:
        await gateway.close()
