"""What a batch and an NDJSON upload share: publishing chunk after chunk."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import BabelgateError, BodyTooLarge, BrokerUnavailable, EnvelopeError, OutcomeUnknown
from app.gateway.gateway import Access, Gateway
from app.gateway.model import Receipt
from app.http.exchange import Exchange

CHUNK_LINES = 500

Line = bytes | BodyTooLarge | EnvelopeError
"""The text of an entry, or why it was not kept."""


class Upload:
    """Publishes the chunks of one request in order.

    A broker that took nothing of a chunk is not asked about the rest: one that hangs costs seconds each time, and a
    long upload would ask it for hours.
    """

    def __init__(self, exchange: Exchange, access: Access, gateway: Gateway) -> None:
        self._exchange = exchange
        self._access = access
        self._gateway = gateway
        self._down: BabelgateError | None = None

    async def publish(self, chunk: Sequence[Line]) -> list[Receipt | BabelgateError]:
        """One outcome per line. Raises only Forbidden, QueueNotFound, InvalidParameter."""
        if self._down is not None:
            return [self._down if isinstance(line, bytes) else line for line in chunk]
        bodies = [line for line in chunk if isinstance(line, bytes)]
        published = await self._gateway.publish_many(self._exchange.caller, self._access, bodies, self._exchange.trace)
        self._down = _given_up(published)
        outcomes = iter(published)
        return [next(outcomes) if isinstance(line, bytes) else line for line in chunk]


def _given_up(outcomes: Sequence[Receipt | BabelgateError]) -> BabelgateError | None:
    """What the entries behind ``outcomes`` are told; None: go on."""
    accepted = any(isinstance(outcome, Receipt) for outcome in outcomes)
    lost = next((outcome for outcome in outcomes if isinstance(outcome, (BrokerUnavailable, OutcomeUnknown))), None)
    if accepted or lost is None:
        return None
    return BrokerUnavailable(lost.broker, "it took none of the entries before, and was not asked about this one")
