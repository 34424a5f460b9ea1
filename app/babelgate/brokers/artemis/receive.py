"""Receives the messages of queues, and settles the deliveries: credit is given only for what somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from babelgate.brokers.artemis import engine
from babelgate.brokers.artemis.client import ArtemisClient
from babelgate.brokers.artemis.connection import ArtemisConnection
from babelgate.brokers.artemis.errors import translate
from babelgate.brokers.artemis.links import LARGE_BYTES, Arrived
from babelgate.brokers.artemis.message import ArtemisMessage, read
from babelgate.brokers.artemis.values import Malformed
from babelgate.brokers.binding import Delivery, Outcome
from babelgate.brokers.bounded import GRACE_SECONDS
from babelgate.errors import BabelgateError, BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.runtime import turns


class ArtemisReceiver:
    """Receives and settles for one broker. A handle is the generation of a connection and the number of a delivery."""

    def __init__(self, client: ArtemisClient) -> None:
        self._client = client

    async def reserve(self, queue: str, limit: int, wait_seconds: float) -> Sequence[Delivery]:
        """See :meth:`babelgate.brokers.binding.Binding.reserve`.

        Each call has a link of its own. It drains it: the broker sends what there is, and gives back the rest of the
        credit. Without a message it gives credit for one, which it takes back at the end of the wait.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + wait_seconds
        patience = self._client.timeout_seconds - GRACE_SECONDS
        try:
            async with asyncio.timeout(patience) as bound:
                async with self._client.receiver(queue) as receiver:
                    # A link that has to be attached first takes round trips of its own.
                    bound.reschedule(max(until, clock()) + patience)
                    await receiver.drained(limit, enough_at=until)
                    if not receiver.arrived and wait_seconds > 0:
                        await receiver.one(until)
                    generation, arrived = receiver.connection.generation, receiver.take()
        except TimeoutError:
            raise BrokerUnavailable(self._client.broker, "no answer in time") from None
        except BabelgateError:
            raise
        except Exception as error:
            raise translate(error, self._client.broker, written=False) from error
        # From here on the deliveries can be settled, even if this call is cancelled.
        found = await turns.mapped(_read, arrived, size=lambda each: len(each.raw))
        return [_delivery(generation, *each) for each in zip(arrived, found, strict=True)]

    def outstanding(self, handles: Sequence[str]) -> list[bool]:
        """Whether each can still be settled."""
        return [
            connection is not None and connection.state(number) == "held"
            for connection, number in map(self._located, handles)
        ]

    async def prove(self, handles: Sequence[str]) -> list[Outcome]:
        """None for each that can still be settled after an answer of the broker, LeaseLost for the others;
        BrokerUnavailable without an answer."""
        reason = await self._client.barrier() if any(self.outstanding(handles)) else None
        if reason is not None:
            return [BrokerUnavailable(self._client.broker, reason)] * len(handles)
        return [None if is_out else LeaseLost() for is_out in self.outstanding(handles)]

    async def settle(
        self, handles: Sequence[str], outcome: int = engine.ACCEPTED, *, failed: bool = False
    ) -> list[Outcome]:
        """Settle each delivery by itself; returns when the broker has stored it.

        A repeated ack is done. LeaseLost where the connection has ended; OutcomeUnknown where it ends before the
        answer, and after ``timeout_seconds``.
        """
        outcomes: list[Outcome] = [None] * len(handles)
        waiting: list[int] = []
        fresh: dict[int, None] = {}
        connection = None
        for position, (found, number) in enumerate(map(self._located, handles)):
            state = "lost" if found is None else found.state(number)
            # A repeated ack waits, too: the first one may not have reached the broker yet.
            if state == "held" or (state == "acked" and outcome == engine.ACCEPTED):
                connection = found
                waiting.append(position)
                if state == "held":
                    fresh[number] = None
            else:
                outcomes[position] = LeaseLost()
        if connection is not None:
            connection.settle(list(fresh), outcome, failed=failed)
            reason = await self._client.barrier()
            if reason is not None:
                for position in waiting:
                    outcomes[position] = OutcomeUnknown(self._client.broker, reason)
        return outcomes

    def _located(self, handle: str) -> tuple[ArtemisConnection | None, int]:
        generation, _, number = handle.partition(".")
        known = number.isascii() and number.isdigit()
        return (self._client.of_generation(generation), int(number)) if known else (None, 0)


def _read(arrived: Arrived) -> ArtemisMessage | None:
    try:
        return read(arrived.raw)
    except Malformed:
        return None


def _delivery(generation: str, arrived: Arrived, found: ArtemisMessage | None) -> Delivery:
    handle = f"{generation}.{arrived.number}"
    if found is None:
        # No broker forwards such bytes; they are poison in any case.
        return Delivery(arrived.raw, handle, 0)
    return Delivery(
        found.body,
        handle,
        0,
        found.headers,
        found.count,
        found.count > 0,
        found.carried,
        unsupported_version=found.version,
        is_uncounted=len(arrived.raw) >= LARGE_BYTES,
    )
