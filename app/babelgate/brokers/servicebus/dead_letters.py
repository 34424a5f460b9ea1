"""Reads, removes and purges dead letters: in a queue of their own, and in the ``$DeadLetterQueue`` of their queue.

They are listed by a peek, which locks nothing. To remove a message Service Bus must lock it, and it locks only the
next ones: those before it are given back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from babelgate import envelope
from babelgate.brokers import cursor as cursors
from babelgate.brokers.binding import DeadRecord
from babelgate.brokers.servicebus import sdk_internals
from babelgate.brokers.servicebus.client import ServiceBusConnections
from babelgate.brokers.servicebus.locks import QueueLocks
from babelgate.brokers.servicebus.message import AmqpMessage, read
from babelgate.brokers.servicebus.queue import NATIVE_DEAD, ServiceBusQueue
from babelgate.brokers.servicebus.sdk_internals import LockedMessage, ReceiveLink
from babelgate.errors import InvalidParameter
from babelgate.runtime import turns
from babelgate.runtime.cache import Cache

MAX_PEEKED = 250
"""Messages of one peek."""

_MAX_SEARCHED = 10_000
"""Messages locked while records are searched for, in one call."""

_RECEIVED = 100
_MAX_DESCRIPTION = 4_096
"""Characters of the description of a native dead letter:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues"""

_REASONS = frozenset({"failed", "unknown_urn", "poison"})
_BLOCK = ("reason", "error", "exception", "failed_at", "original_queue", "attempts", "lang")


class ServiceBusDeadLetters:
    """The dead letters of one broker."""

    def __init__(self, connections: ServiceBusConnections, unconfirmed: Cache[bytes, None]) -> None:
        """``unconfirmed``: see :class:`babelgate.brokers.servicebus.locks.QueueLocks`."""
        self._connections = connections
        self._unconfirmed = unconfirmed
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, queue: ServiceBusQueue, cursor: str | None, limit: int) -> tuple[list[DeadRecord], str | None]:
        """A page of records and the next cursor. Raises InvalidParameter for a bad cursor."""
        place, sequence = _position(cursor, len(queue.dead_queues))
        records: list[DeadRecord] = []
        for index, entity in enumerate(queue.dead_queues):
            if index < place:
                continue
            start = sequence if index == place else 0
            while len(records) < limit:
                found = await self.peek(entity, min(limit - len(records), MAX_PEEKED), start + 1)
                if not found:
                    break
                start = found[-1].sequence
                records += await turns.mapped(partial(_record, queue, entity), found, _size)
            if len(records) >= limit:
                return records, _cursor(index, start)
        return records, None

    async def peek(self, entity: str, limit: int, sequence: int) -> list[AmqpMessage]:
        """At most ``limit`` messages of ``entity`` from the sequence number ``sequence`` on, in their order."""

        async def peek(receiver: Any) -> list[bytes]:
            return await sdk_internals.peek(receiver, sequence, limit, self._connections.timeout_seconds)

        found = await self._connections.call("manage", entity, peek, writes=False)
        return await turns.mapped(read, found, len)

    async def remove(self, records: Sequence[DeadRecord]) -> list[bool]:
        """Remove ``records``; whether this call has removed each."""
        removed = [False] * len(records)
        by_entity: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for position, record in enumerate(records):
            entity, sequence = record.key
            by_entity[entity][sequence] = position
        for entity, wanted in by_entity.items():
            for sequence in await self._remove(entity, wanted.keys()):
                removed[wanted[sequence]] = True
        return removed

    async def purge(self, entity: str) -> int:
        """Remove all messages of ``entity`` that are ready; the number removed."""
        count = 0

        async def take(receiver: Any) -> int:
            loop = asyncio.get_running_loop()
            taken = 0
            link = ReceiveLink(receiver)
            # Several calls, each within the time-out, so that one call cannot take for ever.
            until = loop.time() + self._connections.timeout_seconds
            while several := await link.receive(_RECEIVED, 0, until):
                taken += len(several)
                if loop.time() > until - self._connections.timeout_seconds / 2:
                    break
            return taken

        while found := await self._connections.call("delete", entity, take, writes=True):
            count += found
        return count

    async def _remove(self, entity: str, wanted: Any) -> list[int]:
        """Lock the next messages until all ``wanted`` sequence numbers are found, remove those, give back the rest."""
        left = set(wanted)
        done: list[int] = []

        async def search(receiver: Any) -> None:
            loop = asyncio.get_running_loop()
            until = loop.time() + self._connections.timeout_seconds
            link = ReceiveLink(receiver)
            kept: list[LockedMessage] = []
            try:
                while left and len(kept) < _MAX_SEARCHED:
                    several = await link.receive(min(_RECEIVED, len(left) + len(kept)), 0, until)
                    if not several:
                        break
                    found = [each for each in several if each.message.sequence in left]
                    kept += [each for each in several if each.message.sequence not in left]
                    left.difference_update(each.message.sequence for each in found)
                    tokens = [each.token.hex for each in found]
                    outcomes = await locks.settle(tokens, "completed") if found else ()
                    done.extend(
                        each.message.sequence for each, outcome in zip(found, outcomes, strict=True) if outcome is None
                    )
            finally:
                for each in kept:
                    await link.give_back(each, self._connections.timeout_seconds)

        locks = QueueLocks(self._connections, entity, lambda: 0, self._unconfirmed)
        async with self._turns.setdefault(entity, asyncio.Lock()):
            await self._connections.call("receive", entity, search, writes=True)
        return done


def details_of(block: Mapping[str, Any]) -> dict[str, str]:
    """The details of a native dead letter: the reason, and as description the rest of ``block`` as JSON.

    A long error is cut, so that the description fits.
    """
    rest = {name: value for name, value in block.items() if name != "reason"}
    made = msgspec.json.encode(rest).decode()
    while len(made) > _MAX_DESCRIPTION:
        error = str(rest.get("error") or "")
        exception = str(rest.get("exception") or "")
        longer = "error" if len(error) >= len(exception) else "exception"
        text = error if longer == "error" else exception
        rest[longer] = text[: max(len(text) - (len(made) - _MAX_DESCRIPTION) - 1, 0)] + "…"
        made = msgspec.json.encode(rest).decode()
    return sdk_internals.dead_letter_details(str(block["reason"]), made)


def _record(queue: ServiceBusQueue, entity: str, found: AmqpMessage) -> DeadRecord:
    """A dead letter as it was read. One that Service Bus moved itself has no ``dead_letter``: it gets one from the
    reason and the description."""
    body = found.body
    if entity.endswith(NATIVE_DEAD):
        body = envelope.dead_letter_record(body, _block(queue, found))
    return DeadRecord((entity, found.sequence), body, found.headers, found.carried)


def _block(queue: ServiceBusQueue, found: AmqpMessage) -> Mapping[str, Any]:
    description = found.dead_description or ""
    if found.dead_reason in _REASONS:
        try:
            rest = msgspec.json.decode(description, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            rest = {}
        if isinstance(rest.get("failed_at"), int) and isinstance(rest.get("attempts"), int):
            block = {"reason": found.dead_reason} | rest
            return {name: block.get(name) for name in _BLOCK}
    reason = found.dead_reason if found.dead_reason in _REASONS else "failed"
    error = ": ".join(part for part in (found.dead_reason, description) if part) or None
    return envelope.dead_letter_block(str(reason), queue.name, found.count, found.enqueued_at, error=error)


def _position(cursor: str | None, places: int) -> tuple[int, int]:
    """The place of the queue, and the sequence number after which the page begins."""
    if cursor is None:
        return 0, 0
    place = "qn".find(cursor[:1]) if cursor else -1
    if not 0 <= place < places:
        raise InvalidParameter(name="cursor", reason="it is not one that this queue has given")
    return place, cursors.decode(cursor[1:])


def _cursor(place: int, sequence: int) -> str:
    return "qn"[place] + cursors.encode(sequence)


def _size(found: AmqpMessage) -> int:
    return len(found.body)
