"""A load that also brings another connection is refused for the same changes of routes as one that does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from babelgate.errors import ConfigError
from babelgate.gateway.route_checks import check_moves
from babelgate.gateway.routing import Router, Rule
from tests.harness.memory import CAPABLE, MemoryBinding

HERE, THERE = "redis://here", "redis://there"


def one() -> MemoryBinding:
    """Another connection each time."""
    return MemoryBinding("one", CAPABLE)


def refused_key(before: Router, after: Router) -> Any:
    with pytest.raises(ConfigError) as refused:
        check_moves(before, after)
    return refused.value.facts["key"]


def test_a_native_queue_of_another_queue() -> None:
    old, new = one(), one()
    before = Router([Rule("a", old, native_name="x", address=HERE), Rule("b", old, native_name="y", address=HERE)])
    after = [Rule("a", new, native_name="y", address=HERE), Rule("b", new, native_name="x", address=HERE)]
    assert refused_key(before, Router(after)) == "queues.a.native_name"
    # At another server there is nothing of the other queue.
    check_moves(before, Router([replace(rule, address=THERE) for rule in after]))


def test_options_of_a_queue_that_stays() -> None:
    before = Router([], Rule("*", one(), options={"profile": "a"}, address=HERE))
    after = Rule("*", one(), options={"profile": "b"}, address=HERE)
    assert refused_key(before, Router([], after)) == "default.profile"
    check_moves(before, Router([], replace(after, address=THERE)))
    check_moves(before, Router([], replace(after, native_name="other.{queue}")))
    check_moves(before, Router([], replace(after, options={"profile": "a"})))
