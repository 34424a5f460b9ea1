"""Idempotent publishes: a repeated request with the same idempotency key gets the first answer and writes nothing.

If one broker keeps both key and queue, both are written in one transaction. Otherwise the key is reserved, the message
is published, and the key is settled. A call that is interrupted in between leaves the key reserved, which shows that
the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from babelgate.brokers.binding import Binding, Outcome, Outgoing
from babelgate.brokers.errors import failure_for_each
from babelgate.brokers.idempotency_store import (
    MAX_ANSWER_BYTES,
    TOKEN_BYTES,
    ClaimResult,
    KeepsKeys,
    KeyClaim,
    KeySettlement,
    KeyStore,
    Resolution,
    Terms,
)
from babelgate.errors import (
    BabelgateError,
    BrokerUnavailable,
    EnvelopeError,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    IdempotencyUnresolved,
    IdempotencyUnsupported,
    OutcomeUnknown,
    Problem,
)
from babelgate.gateway.model import KeysInfo, Receipt, Replay
from babelgate.gateway.routing import Route
from babelgate.observe.logs import get_logger
from babelgate.runtime.backoff import Backoff

OWN = "own"
NONE = "none"

MaybeKeyed = tuple[Outgoing, KeyClaim | None]
KeyedResult = Outcome | Replay
"""``None``: published now. A Replay: the answer of the first call; nothing was written. An error: not published."""

Send = Callable[[Sequence[Outgoing]], Awaitable[Sequence[Outcome]]]
SendOnce = Callable[[KeyStore, Sequence[MaybeKeyed], Terms], Awaitable[Sequence[ClaimResult]]]

MAX_PENDING_RETRIES = 10_000
"""Maximum number of settlements waiting for a retry. A key past that stays reserved until its reservation expires."""

_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0

log = get_logger(__name__)

_receipt_of = msgspec.json.Decoder(Replay).decode


class KeyPolicy(Struct, frozen=True):
    """``store``: the broker that keeps the keys of all queues. OWN: each queue's own broker. NONE: no store."""

    store: str = OWN
    terms: Terms = Terms()


class SettlementRetries:
    """Settles keys at one store, and retries failed settlements in the background; no publish waits for a retry."""

    def __init__(self, broker: str, store: KeyStore, terms: Terms) -> None:
        self._broker = broker
        self._store = store
        self._terms = terms
        self._pending: list[KeySettlement] = []
        self._task: asyncio.Task[None] | None = None
        self.under_way = 0
        """Publishes that have still to settle their keys."""

    async def settle(self, settlements: Sequence[KeySettlement]) -> None:
        """Settle the keys now; on failure, retry later."""
        try:
            if settlements:
                await self._store.settle(settlements, self._terms)
        except BabelgateError as error:
            log.warning("idempotency keys not settled", broker=self._broker, count=len(settlements), error=error)
            self.retry_later(settlements)

    def retry_later(self, settlements: Sequence[KeySettlement]) -> None:
        """Settle the keys in the background."""
        left = max(MAX_PENDING_RETRIES - len(self._pending), 0)
        if len(settlements) > left:
            log.error("idempotency keys left reserved", broker=self._broker, count=len(settlements) - left)
        self._pending += settlements[:left]
        if self._pending and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._retry())

    @property
    def busy(self) -> bool:
        """Whether a settlement is owed, or will be."""
        return self._task is not None or bool(self._pending) or self.under_way > 0

    async def close(self) -> None:
        """Make one last attempt of at most two seconds; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._pending:
            attempt = asyncio.ensure_future(self._store.settle(self._pending, self._terms))
            await asyncio.wait((attempt,), timeout=_CLOSE_SECONDS)
            if attempt.done() and attempt.exception() is None:
                self._pending = []
            else:
                log.error("idempotency keys left reserved", broker=self._broker, count=len(self._pending))
                attempt.cancel()

    async def _retry(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
        try:
            while self._pending:
                await asyncio.sleep(backoff.failed())
                pending = self._pending[:]
                try:
                    await self._store.settle(pending, self._terms)
                except BabelgateError:
                    continue
                del self._pending[: len(pending)]
        finally:
            self._task = None


class KeyStores:
    """The stores of idempotency keys of one gateway."""

    def __init__(self, bindings: Mapping[str, Binding], policy: KeyPolicy) -> None:
        self.policy = policy
        self._stores = {name: binding.keys for name, binding in bindings.items() if isinstance(binding, KeepsKeys)}
        self._used: set[str] = set()
        self._retries = {name: SettlementRetries(name, store, policy.terms) for name, store in self._stores.items()}
        self._replaced: dict[int, SettlementRetries] = {}
        """Of connections whose broker has another one now, by the store's id."""

    def add(self, name: str, store: KeyStore) -> None:
        """Keep keys also at the store of a broker that a reload of the configuration has added, or connected again."""
        before = self._stores.get(name)
        if before is store:
            return
        if before is not None:
            self._replaced[id(before)] = self._retries[name]
        self._stores[name] = store
        returned = self._replaced.pop(id(store)) if id(store) in self._replaced else None
        self._retries[name] = returned or SettlementRetries(name, store, self.policy.terms)

    def owes(self, binding: Binding) -> bool:
        """Whether keys have to be settled over a connection that was replaced."""
        retries = self._replaced.get(id(binding.keys)) if isinstance(binding, KeepsKeys) else None
        return retries is not None and retries.busy

    def forget(self, binding: Binding) -> None:
        """A connection that was replaced is closed."""
        if isinstance(binding, KeepsKeys):
            self._replaced.pop(id(binding.keys), None)

    def store(self, route: Route) -> tuple[KeyStore, SettlementRetries]:
        """The store of the keys of a queue, and its retries. Raises IdempotencyUnsupported."""
        name = self._name(route)
        if name in self._stores:
            self._used.add(name)
            return self._stores[name], self._retries[name]
        reason = "idempotency.store is none"
        if name != NONE:
            reason = f"the broker {name!r} keeps none, and idempotency.store names no other"
        raise IdempotencyUnsupported(queue=route.queue, reason=reason, pointer="/idempotency_key")

    def info(self, route: Route) -> KeysInfo | None:
        """How the keys of a queue are kept; None: no store keeps them."""
        name, terms = self._name(route), self.policy.terms
        if name not in self._stores:
            return None
        return KeysInfo(name, name == route.broker, terms.retention_seconds, terms.max_keys)

    async def sweep(self) -> None:
        """Remove the keys past their retention, of all processes."""
        # A reload of the configuration may add stores meanwhile, or replace one, whose connection is closed later.
        for name, store in list(self._stores.items()):
            try:
                while self._stores[name] is store and await store.sweep():
                    pass
            except BabelgateError as error:
                # A broker without keys may deny access to them; that is no problem while no queue uses them.
                if name in self._used:
                    log.warning("idempotency keys not swept", broker=name, error=error)

    async def close(self) -> None:
        """Make a last attempt to settle the remaining keys; idempotent."""
        await asyncio.gather(*(each.close() for each in (*self._retries.values(), *self._replaced.values())))

    def _name(self, route: Route) -> str:
        return route.broker if self.policy.store == OWN else self.policy.store


def fingerprint(
    sent: bytes,
    delay_seconds: float | None,
    ordering_key: str | None,
    broker_properties: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    """SHA-256 of a request: the text as it was sent, and the parameters that change the stored message.

    White space around the text is ignored: it belongs to the array or the line.
    """
    digest = hashlib.sha256(sent.strip(b" \t\r\n"))
    if delay_seconds is not None or ordering_key is not None or broker_properties is not None or options:
        delay = None if delay_seconds is None else float(delay_seconds)
        parameters: list[Any] = [delay, ordering_key]
        # A request without broker properties and options keeps the fingerprint that it had before there were any.
        if broker_properties is not None or options:
            parameters.append(broker_properties)
        if options:
            parameters.append(options)
        digest.update(b"\0" + msgspec.json.encode(parameters, order="deterministic"))
    return digest.digest()


def claim(route: Route, caller: str, key: str, sent_as: bytes, receipt: Receipt) -> KeyClaim:
    """The claim of the caller named ``caller`` for a message with the fingerprint ``sent_as``.

    Raises EnvelopeError for too large an answer.
    """
    answer = msgspec.json.encode(receipt)
    if len(answer) > MAX_ANSWER_BYTES:
        detail = f"With an idempotency key, id and trace_id must fit an answer of {MAX_ANSWER_BYTES} bytes."
        raise EnvelopeError([Problem("", "answer_too_large", detail)])
    return KeyClaim(_scope(route), key, sent_as, answer, caller)


def _scope(route: Route) -> str:
    """Identifies the queue among all that share the store: its name, and its configured name if that differs."""
    name = route.configured_name
    return route.queue if name == route.queue else f"{route.queue}={quote(name, safe='')}"


class IdempotentPublisher:
    """The keyed publishes of one queue."""

    def __init__(self, route: Route, keys: KeyStores, send: Send, send_once: SendOnce) -> None:
        """``send`` publishes to the queue's broker without keys; ``send_once`` with keys, if that broker keeps them."""
        self._route = route
        self._keys = keys
        self._send = send
        self._send_once = send_once

    async def publish(self, messages: Sequence[MaybeKeyed]) -> list[KeyedResult]:
        """One result per message, in order; messages without a claim are only published. Must not be cancelled.

        A message that occurs several times in one call is published once, and all occurrences get its result.
        """
        first_of: dict[tuple[str, bytes], int] = {}
        firsts = [
            index if claim is None else first_of.setdefault((claim.key, claim.fingerprint), index)
            for index, (_, claim) in enumerate(messages)
        ]
        first_indexes = [index for index, first in enumerate(firsts) if index == first]
        store, retries = self._keys.store(self._route)
        pairs = [messages[index] for index in first_indexes]
        claimed: Sequence[ClaimResult]
        if isinstance(self._route.binding, KeepsKeys) and self._route.binding.keys is store:
            claimed = await self._send_once(store, pairs, self._keys.policy.terms)
        else:
            retries.under_way += 1
            try:
                claimed = await self._publish_reserved(pairs, store, retries)
            finally:
                retries.under_way -= 1
        results = {
            index: self._result(result, messages[index][1])
            for index, result in zip(first_indexes, claimed, strict=True)
        }
        return [
            results[first] if first == index else _followed(results[first], messages[first][1])
            for index, first in enumerate(firsts)
        ]

    async def _publish_reserved(
        self, messages: Sequence[MaybeKeyed], store: KeyStore, retries: SettlementRetries
    ) -> list[ClaimResult]:
        """Reserve the keys, publish the messages, settle the keys."""
        token = os.urandom(TOKEN_BYTES)
        answers = iter(
            await self._reserve([claim for _, claim in messages if claim is not None], token, store, retries)
        )
        claimed: list[ClaimResult] = [None if claim is None else next(answers) for _, claim in messages]
        granted = [index for index, result in enumerate(claimed) if result is None]
        outcomes: Sequence[Outcome] = []
        try:
            if granted:
                outcomes = await self._send([messages[index][0] for index in granted])
        except BabelgateError as error:
            outcomes = failure_for_each(error, len(granted))
        settlements = []
        for index, outcome in zip(granted, outcomes, strict=True):
            claim = messages[index][1]
            if claim is not None:
                settlements.append(KeySettlement(claim, token, _resolution(outcome)))
            claimed[index] = outcome
        await retries.settle(settlements)
        return claimed

    async def _reserve(
        self, claims: Sequence[KeyClaim], token: bytes, store: KeyStore, retries: SettlementRetries
    ) -> list[ClaimResult]:
        """One result per claim. An error of the store applies to all claims; messages without a key are published."""
        try:
            claimed = list(await store.reserve(claims, token, self._keys.policy.terms))
        except BabelgateError as error:
            claimed = failure_for_each(error, len(claims))
        unneeded: list[KeySettlement] = []
        for index, result in enumerate(claimed):
            if isinstance(result, OutcomeUnknown):
                # The key may be reserved although the message is not published: free it.
                unneeded.append(KeySettlement(claims[index], token, "free"))
                claimed[index] = BrokerUnavailable(result.broker, result.reason)
        retries.retry_later(unneeded)
        return claimed

    def _result(self, result: ClaimResult, claim: KeyClaim | None) -> KeyedResult:
        """The result for the client: an existing key becomes a Replay or an error."""
        if result is None or isinstance(result, BabelgateError):
            return result
        assert claim is not None
        if result.fingerprint != claim.fingerprint:
            return IdempotencyKeyReused(queue=self._route.queue, pointer="/idempotency_key")
        if result.answer is not None:
            return _receipt_of(result.answer)
        return IdempotencyInProgress() if result.seconds > 0 else IdempotencyUnresolved()


def _resolution(outcome: Outcome) -> Resolution:
    if outcome is None:
        return "done"
    return "unknown" if isinstance(outcome, OutcomeUnknown) else "free"


def _followed(result: KeyedResult, claim: KeyClaim | None) -> KeyedResult:
    """The result of a repeated message; ``result`` and ``claim`` are those of the first with its key in this call."""
    assert claim is not None
    return _receipt_of(claim.answer) if result is None else result
