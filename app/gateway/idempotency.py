"""Publish once: a message that is sent again under its idempotency key is answered again, and not written again.

Where one broker keeps key and queue, both are written in one transaction. Elsewhere the key is reserved, the message
published, the key settled; a call that is cut off in between leaves a reservation that says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct

from app.brokers.binding import Binding, Outcome, Outgoing
from app.brokers.idempotency_store import (
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
from app.errors import (
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
from app.gateway.model import KeysInfo, Receipt, Replay
from app.gateway.routing import Route
from app.observe.logs import get_logger
from app.runtime.backoff import Backoff

OWN = "own"
NONE = "none"

Pair = tuple[Outgoing, KeyClaim | None]
Result = Outcome | Replay
"""``None``: published now; a Replay: the answer of the first call, nothing was written."""

Send = Callable[[Sequence[Outgoing]], Awaitable[Sequence[Outcome]]]
SendOnce = Callable[[KeyStore, Sequence[Pair], Terms], Awaitable[Sequence[ClaimResult]]]

MAX_OWED = 10_000
"""Past so many a reservation is left as it is, and once its time is over its key is answered as cut off."""

_FIRST_PAUSE_SECONDS = 0.1
_LAST_PAUSE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0

log = get_logger("babelgate.idempotency")

_receipt_of = msgspec.json.Decoder(Replay).decode


class KeyPolicy(Struct, frozen=True):
    """``store``: the broker that keeps the keys of all queues; OWN: each queue's own, where it can; NONE: nobody."""

    store: str = OWN
    terms: Terms = Terms()


class SettlementRetries:
    """Of one store. A message that was published is, whatever becomes of its key: nobody waits for a debt."""

    def __init__(self, broker: str, store: KeyStore, terms: Terms) -> None:
        self._broker = broker
        self._store = store
        self._terms = terms
        self._owed: list[KeySettlement] = []
        self._task: asyncio.Task[None] | None = None

    async def settle(self, settlings: Sequence[KeySettlement]) -> None:
        """Tell the store now; what it does not hear is owed."""
        try:
            if settlings:
                await self._store.settle(settlings, self._terms)
        except BabelgateError as error:
            log.warning("idempotency keys not settled", broker=self._broker, count=len(settlings), error=error)
            self.owe(settlings)

    def owe(self, settlings: Sequence[KeySettlement]) -> None:
        """Tell the store later."""
        left = max(MAX_OWED - len(self._owed), 0)
        if len(settlings) > left:
            log.error("idempotency keys left reserved", broker=self._broker, count=len(settlings) - left)
        self._owed += settlings[:left]
        if self._owed and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._repay())

    async def close(self) -> None:
        """One more try, of at most two seconds; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._owed:
            attempt = asyncio.ensure_future(self._store.settle(self._owed, self._terms))
            await asyncio.wait((attempt,), timeout=_CLOSE_SECONDS)
            if attempt.done() and attempt.exception() is None:
                self._owed = []
            else:
                log.error("idempotency keys left reserved", broker=self._broker, count=len(self._owed))
                attempt.cancel()

    async def _repay(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
        try:
            while self._owed:
                await asyncio.sleep(backoff.failed())
                trying = self._owed[:]
                try:
                    await self._store.settle(trying, self._terms)
                except BabelgateError:
                    continue
                del self._owed[: len(trying)]
        finally:
            self._task = None


class Keys:
    """The stores of one gateway."""

    def __init__(self, bindings: Mapping[str, Binding], policy: KeyPolicy) -> None:
        self.policy = policy
        self._stores = {name: binding.keys for name, binding in bindings.items() if isinstance(binding, KeepsKeys)}
        self._used: set[str] = set()
        self._retries = {name: SettlementRetries(name, store, policy.terms) for name, store in self._stores.items()}

    def store(self, route: Route) -> tuple[KeyStore, SettlementRetries]:
        """Who keeps the keys of a queue. Raises IdempotencyUnsupported."""
        name = self._name(route)
        if name in self._stores:
            self._used.add(name)
            return self._stores[name], self._retries[name]
        reason = "idempotency.store is none"
        if name != NONE:
            reason = f"the broker {name!r} keeps none, and idempotency.store names no other"
        raise IdempotencyUnsupported(queue=route.queue, reason=reason)

    def info(self, route: Route) -> KeysInfo | None:
        """How the keys of a queue are kept; None: not at all."""
        name, terms = self._name(route), self.policy.terms
        if name not in self._stores:
            return None
        return KeysInfo(name, name == route.broker, terms.retention_seconds, terms.max_keys)

    async def sweep(self) -> None:
        """Remove the keys past their retention, whichever process took them."""
        for name, store in self._stores.items():
            try:
                while await store.sweep():
                    pass
            except BabelgateError as error:
                # Where nobody uses keys a broker need not let them be looked at.
                if name in self._used:
                    log.warning("idempotency keys not swept", broker=name, error=error)

    async def close(self) -> None:
        """Tell the stores what they have not been told; idempotent."""
        await asyncio.gather(*(retries.close() for retries in self._retries.values()))

    def _name(self, route: Route) -> str:
        return route.broker if self.policy.store == OWN else self.policy.store


def chosen_key(given: str | None, member: str | None) -> str:
    """The key of a message: the header's or the entry's own. Raises EnvelopeError when they differ."""
    if given is not None and member is not None and given != member:
        detail = "The entry's idempotency_key is another than that of the header Idempotency-Key."
        raise EnvelopeError([Problem("/idempotency_key", "idempotency_key_mismatch", detail)])
    key = given if member is None else member
    assert key is not None
    return key


def fingerprint(sent: bytes, delay_seconds: float | None, ordering_key: str | None) -> bytes:
    """What tells two requests apart: the text as it was sent, and the parameters beside it that decide what is written.

    White space around the text is no part of it: it is the array's or the line's.
    """
    digest = hashlib.sha256(sent.strip(b" \t\r\n"))
    if delay_seconds is not None or ordering_key is not None:
        delay = None if delay_seconds is None else float(delay_seconds)
        digest.update(b"\0" + msgspec.json.encode([delay, ordering_key]))
    return digest.digest()


def claim(route: Route, key: str, sent_as: bytes, receipt: Receipt) -> KeyClaim:
    """The claim of a message with the fingerprint ``sent_as``. Raises EnvelopeError for too large an answer."""
    answer = msgspec.json.encode(receipt)
    if len(answer) > MAX_ANSWER_BYTES:
        detail = f"With an idempotency key, id and trace_id must fit an answer of {MAX_ANSWER_BYTES} bytes."
        raise EnvelopeError([Problem("", "answer_too_large", detail)])
    return KeyClaim(_scope(route), key, sent_as, answer)


def _scope(route: Route) -> str:
    """What tells the queue from those of others who share the store: its name, and the one it has at its broker."""
    native = route.native.name
    return route.queue if native == route.queue else f"{route.queue}={quote(native, safe='')}"


class IdempotentPublisher:
    """The keyed publishes of one queue."""

    def __init__(self, route: Route, keys: Keys, send: Send, send_once: SendOnce) -> None:
        """``send`` publishes to the queue's broker without keys, ``send_once`` with them where it keeps them too."""
        self._route = route
        self._keys = keys
        self._send = send
        self._send_once = send_once

    async def publish(self, messages: Sequence[Pair]) -> list[Result]:
        """One result per message, in order; those without a claim are only published. Must not be cancelled.

        What is sent twice in one call is published by the first, and the others follow it.
        """
        first: dict[tuple[str, bytes], int] = {}
        leads = [
            index if claim is None else first.setdefault((claim.key, claim.fingerprint), index)
            for index, (_, claim) in enumerate(messages)
        ]
        asked = [index for index, lead in enumerate(leads) if index == lead]
        store, retries = self._keys.store(self._route)
        pairs = [messages[index] for index in asked]
        verdicts: Sequence[ClaimResult]
        if isinstance(self._route.binding, KeepsKeys) and self._route.binding.keys is store:
            verdicts = await self._send_once(store, pairs, self._keys.policy.terms)
        else:
            verdicts = await self._reserved(pairs, store, retries)
        results = {
            index: self._judged(verdict, messages[index][1]) for index, verdict in zip(asked, verdicts, strict=True)
        }
        return [
            results[lead] if lead == index else _followed(results[lead], messages[lead][1])
            for index, lead in enumerate(leads)
        ]

    async def _reserved(
        self, messages: Sequence[Pair], store: KeyStore, retries: SettlementRetries
    ) -> list[ClaimResult]:
        """Reserve, publish, settle."""
        token = os.urandom(TOKEN_BYTES)
        answers = iter(
            await self._reserve([claim for _, claim in messages if claim is not None], token, store, retries)
        )
        verdicts: list[ClaimResult] = [None if claim is None else next(answers) for _, claim in messages]
        granted = [index for index, verdict in enumerate(verdicts) if verdict is None]
        outcomes: Sequence[Outcome] = []
        try:
            if granted:
                outcomes = await self._send([messages[index][0] for index in granted])
        except BabelgateError as error:
            outcomes = [error.without_frames()] * len(granted)
        settlings = []
        for index, outcome in zip(granted, outcomes, strict=True):
            claim = messages[index][1]
            if claim is not None:
                settlings.append(KeySettlement(claim, token, _fate(outcome)))
            verdicts[index] = outcome
        await retries.settle(settlings)
        return verdicts

    async def _reserve(
        self, claims: Sequence[KeyClaim], token: bytes, store: KeyStore, retries: SettlementRetries
    ) -> list[ClaimResult]:
        """A verdict per claim. Where the store fails each has its error, and what came without a key goes its way."""
        try:
            verdicts = list(await store.reserve(claims, token, self._keys.policy.terms))
        except BabelgateError as error:
            verdicts = [error.without_frames()] * len(claims)
        lost: list[KeySettlement] = []
        for index, verdict in enumerate(verdicts):
            if isinstance(verdict, OutcomeUnknown):
                # The key may be reserved, the message is not published: so the key is to be free.
                lost.append(KeySettlement(claims[index], token, "free"))
                verdicts[index] = BrokerUnavailable(verdict.broker, verdict.reason)
        retries.owe(lost)
        return verdicts

    def _judged(self, verdict: ClaimResult, claim: KeyClaim | None) -> Result:
        """What a call is told that found its key taken."""
        if verdict is None or isinstance(verdict, BabelgateError):
            return verdict
        assert claim is not None
        if verdict.fingerprint != claim.fingerprint:
            return IdempotencyKeyReused(queue=self._route.queue)
        if verdict.answer is not None:
            return _receipt_of(verdict.answer)
        return IdempotencyInProgress() if verdict.seconds > 0 else IdempotencyUnresolved()


def _fate(outcome: Outcome) -> Resolution:
    if outcome is None:
        return "done"
    return "unknown" if isinstance(outcome, OutcomeUnknown) else "free"


def _followed(result: Result, claim: KeyClaim | None) -> Result:
    """What a message is told that came in the same call as the first with its key, whose ``claim`` and ``result``
    these are."""
    assert claim is not None
    return _receipt_of(claim.answer) if result is None else result
