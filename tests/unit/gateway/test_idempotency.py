"""What stands above the stores: fingerprints, and what a store has yet to be told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from babelgate.brokers import registry
from babelgate.brokers.binding import Binding, NativeQueue, Outcome, Outgoing
from babelgate.brokers.idempotency_store import ClaimResult, KeepsKeys, KeyClaim, KeySettlement, KeyStore, Terms
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable, IdempotencyUnsupported, OutcomeUnknown
from babelgate.gateway.idempotency import (
    MAX_PENDING_RETRIES,
    NONE,
    OWN,
    IdempotentPublisher,
    KeyPolicy,
    KeyStores,
    MaybeKeyed,
    SettlementRetries,
    fingerprint,
)
from babelgate.gateway.routing import Rule
from tests.harness.passing import Passing
from tests.harness.world import until

TERMS = Terms()


class Deaf:
    """A store that hears nothing while it is ``down``."""

    def __init__(self) -> None:
        self.down = True
        self.heard: list[KeySettlement] = []
        self.swept = 0

    async def publish(
        self, queue: NativeQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        raise NotImplementedError

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        raise NotImplementedError

    async def settle(self, settlings: Sequence[KeySettlement], terms: Terms) -> None:
        if self.down:
            raise BrokerUnavailable("deaf", "it is down")
        self.heard += settlings

    async def sweep(self) -> int:
        self.swept += 1
        if self.down:
            raise BrokerUnavailable("deaf", "it is down")
        return 0


class KeptBy(Passing):
    """A binding whose keys are kept by ``keys``."""

    def __init__(self, inner: Binding, keys: Deaf) -> None:
        super().__init__(inner)
        self.keys = keys


def settlings(count: int) -> list[KeySettlement]:
    return [KeySettlement(KeyClaim("q", f"k{n}", b"f" * 32, b"{}", "shop"), b"t" * 8, "done") for n in range(count)]


def test_the_fingerprint_is_of_what_was_sent_and_of_what_decides() -> None:
    plain = fingerprint(b'{"a":1}', None, None)
    assert plain == fingerprint(b' \r\n\t{"a":1}\n', None, None)
    others = [
        fingerprint(b'{"a": 1}', None, None),
        fingerprint(b'{"a":1}', 0, None),
        fingerprint(b'{"a":1}', 1, None),
        fingerprint(b'{"a":1}', None, "1"),
        fingerprint(b'{"a":1}', 1, "1"),
        fingerprint(b'{"a":1}', None, None, {}),
        fingerprint(b'{"a":1}', None, None, {"To": "a", "SessionId": "1"}),
        fingerprint(b'{"a":1}', None, "1", {"To": "a", "SessionId": "1"}),
    ]
    assert len({plain, *others}) == 9
    assert fingerprint(b"", 5, None) == fingerprint(b"", 5.0, None)
    assert fingerprint(b"", None, None, {"SessionId": "1", "To": "a"}) == fingerprint(
        b"", None, None, {"To": "a", "SessionId": "1"}
    )


def test_the_fingerprints_of_stored_keys_stay() -> None:
    assert fingerprint(b"{}", None, None) == sha256(b"{}").digest()
    assert fingerprint(b"{}", 5, "a") == sha256(b'{}\0[5.0,"a"]').digest()


async def test_a_store_is_told_again_until_it_hears() -> None:
    store = Deaf()
    retries = SettlementRetries("deaf", store, TERMS)
    await retries.settle(settlings(3))
    store.down = False
    await retries.settle(settlings(1))

    async def all_heard() -> bool:
        return len(store.heard) == 4

    await until(all_heard)
    await retries.close()
    assert len(store.heard) == 4, "told twice what it had heard"


async def test_the_end_is_the_last_try() -> None:
    store = Deaf()
    retries = SettlementRetries("deaf", store, TERMS)
    await retries.settle(settlings(3))
    store.down = False
    await retries.close()
    assert store.heard == settlings(3)
    deaf = SettlementRetries("deaf", Deaf(), TERMS)
    await deaf.settle(settlings(1))
    await deaf.close()


async def test_what_is_owed_is_bounded() -> None:
    store = Deaf()
    retries = SettlementRetries("deaf", store, TERMS)
    retries.retry_later(settlings(MAX_PENDING_RETRIES - 1))
    retries.retry_later(settlings(5))
    store.down = False
    await retries.close()
    assert len(store.heard) == MAX_PENDING_RETRIES


class Forgetful(Deaf):
    """A store that reserves, and cannot say whether it did: as a file does whose commit failed half way."""

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        return [OutcomeUnknown("forgetful", "disk I/O error")] * len(claims)


async def test_a_reservation_that_may_have_been_made_is_given_back_and_nothing_is_published(tmp_path: Path) -> None:
    store = Forgetful()
    store.down = False
    keeper = KeptBy(registry.connect("a", f"sqlite:///{tmp_path}/a.db", {}, now_ms), store)
    binding = registry.connect("b", f"sqlite:///{tmp_path}/b.db", {}, now_ms)
    keys = KeyStores({"a": keeper, "b": binding}, KeyPolicy("a"))
    sent: list[bytes] = []

    async def send(messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        sent.extend(message.body for message in messages)
        return [None] * len(messages)

    async def send_once(store: KeyStore, messages: Sequence[MaybeKeyed], terms: Terms) -> Sequence[ClaimResult]:
        raise AssertionError("the queue is on another broker")

    once = IdempotentPublisher(Rule("*", binding).route("q"), keys, send, send_once)
    claims = [settling.claim for settling in settlings(2)]
    outcomes = await once.publish([(Outgoing(b"0"), claims[0]), (Outgoing(b"1"), None), (Outgoing(b"2"), claims[1])])
    assert [type(outcome) for outcome in outcomes] == [BrokerUnavailable, type(None), BrokerUnavailable]
    assert sent == [b"1"], "what has no key goes its way"
    await keys.close()
    assert [(each.claim.key, each.resolution) for each in store.heard] == [("k0", "free"), ("k1", "free")]


async def test_a_store_is_swept_of_the_keys_of_a_process_before(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    binding = registry.connect("a", f"sqlite:///{path}", {}, now_ms)
    assert isinstance(binding, KeepsKeys)
    try:
        taken = [settling.claim for settling in settlings(3)]
        await binding.keys.reserve(taken, b"t" * 8, TERMS)
        await binding.keys.settle(settlings(3), Terms(retention_seconds=0.001))
        await asyncio.sleep(0.005)
        await KeyStores({"a": binding}, KeyPolicy(OWN)).sweep()
    finally:
        await binding.close()
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*) FROM keys").fetchone() == (0,)


async def test_a_store_that_fails_keeps_no_other_from_being_swept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = registry.connect("a", f"sqlite:///{tmp_path}/a.db", {}, now_ms)
    one, other = KeptBy(inner, Deaf()), KeptBy(inner, Deaf())
    other.keys.down = False
    keys = KeyStores({"a": one, "b": other}, KeyPolicy(OWN))
    await keys.sweep()
    assert caplog.records == [], "nobody uses keys there"
    keys.store(Rule("*", one).route("q"))
    await keys.sweep()
    assert len(caplog.records) == 1
    assert (one.keys.swept, other.keys.swept) == (2, 2)


async def test_a_store_that_is_replaced_is_swept_no_more(tmp_path: Path) -> None:
    inner = registry.connect("a", f"sqlite:///{tmp_path}/a.db", {}, now_ms)
    replacing, added = Deaf(), Deaf()

    class Endless(Deaf):
        """It always has more to sweep. A load replaces it meanwhile, and adds another one."""

        async def sweep(self) -> int:
            self.swept += 1
            assert self.swept == 1
            keys.add("a", replacing)
            keys.add("b", added)
            return 1

    keys = KeyStores({"a": KeptBy(inner, Endless())}, KeyPolicy(OWN))
    await keys.sweep()
    assert (replacing.swept, added.swept) == (0, 0), "they have their turn the next time"
    await keys.sweep()
    assert (replacing.swept, added.swept) == (1, 1)


def test_nobody_keeps_keys(tmp_path: Path) -> None:
    binding = registry.connect("a", f"sqlite:///{tmp_path}/a.db", {}, now_ms)
    with pytest.raises(IdempotencyUnsupported, match="is none"):
        KeyStores({"a": binding}, KeyPolicy(NONE)).store(Rule("*", binding).route("q"))
