"""Routes that ask for more than their broker can do are refused at start-up, by key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import Struct

from babelgate.brokers.binding import NativeQueue
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS
from babelgate.errors import ConfigError
from babelgate.gateway.route_checks import SAMPLE, check
from babelgate.gateway.routing import Policy, Router, Rule
from tests.harness.memory import (
    CAPABLE,
    OWNED,
    ConnectedMemory,
    DeadLetterPublishingMemory,
    MemoryBinding,
    MovingMemory,
    lacking,
)
from tests.harness.passing import Passing

LIMITED = MovingMemory("limited", replace(CAPABLE, max_retry_delay_seconds=900, max_lease_seconds=300))
NO_DELAY = MovingMemory("none", replace(CAPABLE, max_retry_delay_seconds=0))
ABLE = MovingMemory("able")
HEADLESS = MovingMemory("headless", replace(CAPABLE, headers=False))


def refusal(*rules: Rule, default: Rule | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(Router(rules, default))
    return caught.value


class Parking(MovingMemory):
    """Lists its queues and purges them, as a parking broker has to."""

    lists_foreign = False

    async def queues(self) -> list[str]:
        return []

    async def purge(self, queue: NativeQueue) -> int:
        return 0


class Foreign(Parking):
    lists_foreign = True


@pytest.mark.parametrize(
    ("parking", "reason"),
    [
        (
            Parking("short", replace(CAPABLE, max_delay_seconds=3_600)),
            "the broker 'short' itself delays by at most 3600 s",
        ),
        (Parking("bound", replace(CAPABLE, lease_bound_to="lock")), "keeps no leases of its own"),
        (ABLE, "does not list its queues"),
        (Foreign("foreign"), "does not list its queues alone"),
    ],
)
def test_a_parking_broker_needs_long_delays_and_leases(parking: MovingMemory, reason: str) -> None:
    error = refusal(Rule("a", LIMITED, parking=parking))
    assert (error.key, reason in error.reason) == ("queues.a.parking", True), error.reason
    check(Router([Rule("a", LIMITED, parking=Parking("good"))]))


def test_a_parked_back_off_is_as_long_as_the_parking_brokers() -> None:
    class Restoring(MovingMemory):
        carried_type = Struct

    capped = Restoring("capped", replace(CAPABLE, max_retry_delay_seconds=900))
    rule = Rule("a", capped, Policy(backoff_seconds=(86_400,)))
    assert refusal(rule).key == "queues.a.backoff_seconds"
    parking = Parking("good", replace(CAPABLE, max_delay_seconds=MAX_DELAY_SECONDS))
    check(Router([replace(rule, parking=parking)]))


def test_routes_come_in_the_order_of_lookup():
    rules = [Rule("b.*", ABLE, native_name="x.{queue}"), Rule("a", ABLE), Rule("c", ABLE)]
    found = check(Router(rules, Rule("*", ABLE)))
    assert [(key, route.native.name) for key, route in found] == [
        ("queues.a", "a"),
        ("queues.c", "c"),
        ("queues.b.*", f"x.b.{SAMPLE}"),
        ("default", SAMPLE),
    ]


def test_many_routes_are_checked_one_by_one():
    """A start with ten thousand took half a minute of CPU time when each was compared with all others."""

    class Name(str):
        compared = 0

        def __eq__(self, other):
            Name.compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    count = 1_000
    assert len(check(Router([Rule(Name(f"queue-{number}"), ABLE) for number in range(count)]))) == count
    assert Name.compared < 10 * count


@pytest.mark.parametrize(
    ("binding", "policy", "key", "limit"),
    [
        (LIMITED, Policy(lease_seconds=301), "lease_seconds", "300"),
        (LIMITED, Policy(backoff_seconds=(1, 901, 2)), "backoff_seconds", "900"),
        (NO_DELAY, Policy(backoff_seconds=(0.5,)), "backoff_seconds", "0 seconds"),
        (
            ABLE,
            Policy(dead_letter_retention_seconds=60),
            "dead_letter_retention_seconds",
            "does not let its dead letters be read",
        ),
        (HEADLESS, Policy(expired="drop"), "expired", "no ttl_seconds"),
    ],
)
def test_a_lacking_capability_is_refused_everywhere(binding, policy, key, limit):
    for match, place in (("a", "queues.a"), ("a.*", "queues.a.*")):
        error = refusal(Rule(match, binding, policy))
        assert (error.key, limit in error.reason) == (f"{place}.{key}", True)
    assert refusal(default=Rule("*", binding, policy)).key == f"default.{key}"


def test_what_just_fits_is_served():
    policy = Policy(lease_seconds=300, backoff_seconds=(1, 900))
    assert len(check(Router([Rule("a", LIMITED, policy), Rule("b", NO_DELAY, Policy(backoff_seconds=(0,)))]))) == 2
    dropping = [Rule("a", ABLE, Policy(expired="drop")), Rule("b", HEADLESS, Policy(ttl_seconds=1, expired="drop"))]
    assert len(check(Router(dropping))) == 2


def test_an_unknown_option_names_its_place():
    assert refusal(Rule("a", ABLE, options={"frames": True})).key == "queues.a.frames"


def test_two_ways_to_one_native_queue_are_refused():
    error = refusal(Rule("a", ABLE, native_name="x"), Rule("b", ABLE, native_name="x"))
    assert (error.key, "queues.a" in error.reason) == ("queues.b.native_name", True)
    assert len(check(Router([Rule("a", ABLE, native_name="x"), Rule("b", LIMITED, native_name="x")]))) == 2


def test_a_pattern_needs_a_native_name_per_queue():
    assert refusal(Rule("a.*", ABLE, native_name="x")).key == "queues.a.*.native_name"
    assert refusal(default=Rule("*", ABLE, native_name="x")).key == "default.native_name"


def without(binding: MemoryBinding, verb: str) -> Passing:
    """``binding`` as one that lacks the verb of an optional protocol."""
    passing = Passing(binding)
    del vars(passing)[verb]
    return passing


@pytest.mark.parametrize(
    ("binding", "lack"),
    [
        (MovingMemory("m", lacking(native_release=False)), "does not count failed deliveries"),
        (without(MovingMemory("m"), "extend"), "does not extend them"),
        (without(ConnectedMemory("m", OWNED), "prove"), "does not report which deliveries are outstanding"),
        (MemoryBinding("m"), "no dead-letter queue"),
        (MemoryBinding("m", OWNED), "does not report which deliveries are outstanding"),
        (ConnectedMemory("m", OWNED), "no dead-letter queue"),
    ],
)
def test_what_no_fallback_serves_is_refused(binding, lack):
    error = refusal(Rule("a", binding))
    assert (error.key, lack in error.reason) == ("queues.a.broker", True)
    assert refusal(default=Rule("*", binding)).key == "default.broker"


@pytest.mark.parametrize("capabilities", [OWNED, CAPABLE], ids=["leases of the gateway", "leases of the broker"])
def test_a_broker_whose_dead_letters_are_published_needs_no_more(capabilities):
    assert len(check(Router([Rule("a", DeadLetterPublishingMemory("m", capabilities))]))) == 1
