"""Every verb, fault and expiry in random order: what was neither acked nor buried is there, what was acked is not."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from babelgate.brokers.binding import Outgoing
from babelgate.errors import OutcomeUnknown
from tests.harness.kept import LEASE, Kept, body

MESSAGES = 30
STEPS = 300
VERBS = ("ack", "nack", "reject", "give back", "extend")


class Ledger:
    """What clients were told, and what the broker holds in the end."""

    def __init__(self, queue: str, chance: random.Random, faults: tuple[str, ...], unknown: bool) -> None:
        self.kept = Kept(queue)
        self.chance = chance
        self.faults = faults
        self.unknown = unknown
        self.acked: set[int] = set()
        self.handles: dict[str, int] = {}

    async def step(self) -> None:
        kept, chance = self.kept, self.chance
        match chance.randrange(10):
            case 0:
                kept.binding.disconnect(kept.queue)
            case 1:
                await kept.pass_seconds(chance.choice([1, LEASE]))
            case 2 | 3:
                lease = chance.choice([2.0, LEASE])
                for delivery in kept.lease_manager.keep(
                    await kept.binding.reserve(kept.route.native, 5, 0, lease), lease
                ):
                    self.handles[delivery.handle] = json.loads(delivery.body)["data"]["n"]
            case 4:
                kept.binding.faults.clear()
            case 5 if self.faults:
                error = OutcomeUnknown("memory", "no answer") if self.unknown and chance.random() < 0.5 else None
                kept.binding.fail_after(chance.choice(self.faults), chance.randrange(2), error)
            case _:
                settles = [self.settle(chance.choice(VERBS)) for _ in range(chance.randrange(1, 4))]
                await asyncio.gather(*settles)

    async def settle(self, verb: str) -> None:
        if not self.handles:
            return
        handles = self.chance.choices(list(self.handles)[-15:], k=self.chance.randrange(1, 4))
        outcomes = await self.kept.settle(verb, *handles)
        if verb == "ack":
            self.acked |= {
                self.handles[handle] for handle, outcome in zip(handles, outcomes, strict=True) if outcome is None
            }

    def left(self) -> list[int]:
        """What the broker has once everything is back."""
        kept = self.kept
        kept.binding.disconnect(kept.queue)
        rest = [*kept.binding.ready(kept.queue), *kept.binding.dead(kept.queue)]
        return [json.loads(message.body)["data"]["n"] for message in rest]


async def run(queue: str, seed: int, faults: tuple[str, ...], unknown: bool = False) -> Ledger:
    ledger = Ledger(queue, random.Random(seed), faults, unknown)
    await ledger.kept.put(*(Outgoing(body(n)) for n in range(MESSAGES)))
    for _ in range(STEPS):
        await ledger.step()
    ledger.kept.binding.faults.clear()
    await ledger.kept.lease_manager.idle()
    return ledger


@pytest.mark.parametrize("seed", range(30))
async def test_with_a_broker_that_answers_each_message_is_in_one_place(queue: str, seed: int) -> None:
    ledger = await run(queue, seed, ("publish", "publish_dead_letters", "release"))
    assert sorted([*ledger.acked, *ledger.left()]) == list(range(MESSAGES))


@pytest.mark.parametrize("seed", range(30))
async def test_with_one_that_does_not_none_is_lost(queue: str, seed: int) -> None:
    ledger = await run(queue, seed, ("publish", "publish_dead_letters", "release", "ack"))
    assert ledger.acked | set(ledger.left()) == set(range(MESSAGES))
    ledger = await run(f"{queue}.unknown", seed, ("publish", "publish_dead_letters"), unknown=True)
    assert ledger.acked | set(ledger.left()) == set(range(MESSAGES))


@pytest.mark.parametrize("seed", range(10))
async def test_in_the_end_nothing_is_held(queue: str, seed: int) -> None:
    ledger = await run(queue, seed, ("publish", "publish_dead_letters", "release", "ack"))
    ledger.kept.binding.disconnect(queue)
    await ledger.kept.pass_seconds(2 * LEASE)
    assert (ledger.kept.broker_usage.count, ledger.kept.broker_usage.size, ledger.kept.lease_manager.busy) == (
        0,
        0,
        False,
    )
