"""Rates that processes share: what each takes is told, and without the store each counts for itself."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from babelgate.gateway.shared_rates import SharedRates
from tests.harness.local import eventually


class Store:
    """What Redis does, in memory. ``error``: raised instead."""

    def __init__(self):
        self.empty_at = {}
        self.error = None
        self.calls = 0
        self.now = 50.0

    async def take(self, rates):
        self.calls += 1
        if self.error is not None:
            raise self.error
        found = []
        for each in rates:
            empty_at = max(self.empty_at.get(each.name, 0.0), self.now - each.span) + each.taken
            self.empty_at[each.name] = empty_at
            found.append(empty_at - self.now)
        return found

    async def share(self, process, patience, counts):
        raise NotImplementedError


@pytest.fixture
async def two():
    """Two processes that share a rate of ten a second, and their store. No time passes."""
    store = Store()
    shared = [SharedRates(store, lambda: 1_000.0) for _ in range(2)]
    yield store, shared, [each.bucket("identity-messages", ("shop", ""), 10, 10) for each in shared]
    for each in shared:
        await each.close()


async def test_what_one_takes_the_others_have_not(two):
    store, _, (first, second) = two
    first.take(1_000, 6)
    assert second.left(1_000) == 10
    await eventually(lambda: store.calls == 1)
    second.take(1_000, 1)
    await eventually(lambda: second.left(1_000) == pytest.approx(3))
    first.take(1_000, 1)
    await eventually(lambda: first.left(1_000) == pytest.approx(2))
    # What was too much is a debt of both.
    second.take(1_000, 10)
    await eventually(lambda: second.wait(1_000, 1) == pytest.approx(0.9))
    first.take(1_000, 1)
    await eventually(lambda: first.wait(1_000, 1) == pytest.approx(1.0))


async def test_another_identity_has_another_rate(two):
    store, (shared, _), _ = two
    shared.bucket("identity-messages", ("a", "b"), 10, 10).take(1_000, 1)
    shared.bucket("identity-messages", ("ab", ""), 10, 10).take(1_000, 1)
    shared.bucket("queue-messages", ("ab", ""), 10, 10).take(1_000, 1)
    await eventually(lambda: len(store.empty_at) == 3)
    assert all(len(name) <= 100 and name.isascii() for name in store.empty_at)


@pytest.mark.parametrize("error", [BrokerUnavailable("cache", "a test"), OutcomeUnknown("cache", "a test"), KeyError()])
async def test_without_the_store_each_counts_for_itself(two, error, caplog):
    store, (shared, _), (first, second) = two
    store.error = error
    first.take(1_000, 6)
    await eventually(lambda: shared.is_alone)
    first.take(1_000, 3)
    assert (first.left(1_000), second.left(1_000)) == (pytest.approx(1), 10)
    store.error = None
    await eventually(lambda: not shared.is_alone)
    # What the store may have counted is not told again.
    told = 3 if isinstance(error, OutcomeUnknown) else 9
    await eventually(lambda: sum(store.empty_at.values()) == pytest.approx(50 - 1 + told / 10))


async def test_nothing_is_exchanged_while_nothing_is_taken(two):
    store, _, (first, _) = two
    first.take(1_000, 1)
    await eventually(lambda: store.calls == 1)
    await asyncio.sleep(0.3)
    assert store.calls == 1
