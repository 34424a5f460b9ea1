"""Forwards settlements to the gateways that own the leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from babelgate.brokers.batcher import Batcher
from babelgate.brokers.errors import failure_for_each
from babelgate.cluster.client import (
    ANSWER_SECONDS,
    Address,
    NotAPeer,
    PeerClient,
    PeerGone,
    PeerRefuses,
    PeerSilent,
    PeerUnreachable,
)
from babelgate.cluster.discovery import Addresses
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import MAX_CALL_BYTES, SETTLE_PATH, Answer, decode_answers, encode_call
from babelgate.errors import BabelgateError, BodyTooLarge, LeaseLost, OutcomeUnknown, OwnerUnreachable
from babelgate.gateway.model import Extend, Nack, Reject, Settlement, SettleResult
from babelgate.gateway.routing import Route
from babelgate.runtime.cache import Recent

_MAX_CALLS = 500
_KEPT_BATCHERS = 1_000
_WAIT_SECONDS = 5
"""Longest expected wait of a settle for its call; a settle that would wait longer is refused."""


class Peers:
    """Settles at the owners of leases. Concurrent settles for one queue and owner are batched into one call.

    Settles with acks only have a batcher of their own, so that they never wait for copies written to a slow broker.
    """

    def __init__(
        self,
        signer: Signer,
        directory: SocketDirectory,
        addresses: Sequence[Address] = (),
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """``addresses``: the peers on other hosts; a host name stands for all its IP addresses. ``answer_seconds``: the
        time-out of a call to an owner.
        """
        self._directory = directory
        self._client = PeerClient(signer, answer_seconds)
        self._addresses = Addresses(self._client, directory, addresses)
        self._batchers: Recent[tuple[str, str, bool], Batcher[bytes, Answer]] = Recent(
            _KEPT_BATCHERS, lambda each: each.busy
        )

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        """Have the gateway of incarnation ``owner`` settle; one result per token.

        Raises LeaseLost when that gateway does not exist (any more), OwnerUnreachable when no connection was made,
        OutcomeUnknown when it was called and did not answer in time, Overloaded when too many settles wait for it, and
        the error that it raised for the whole call.
        """
        entry = encode_call(route.queue, settlement, traceparent)
        if len(entry) + 2 > MAX_CALL_BYTES:
            raise BodyTooLarge(actual=len(entry), limit=MAX_CALL_BYTES)
        answer = await self._batcher(owner, route, only_acks=_only_acks(settlement)).submit(entry)
        if isinstance(answer, BabelgateError):
            raise answer
        if len(answer) != _count(settlement):
            raise OutcomeUnknown(route.broker, f"the replica answered {len(answer)} results")
        return answer

    async def close(self) -> None:
        """Finish the calls in flight, then close the connections; idempotent."""
        await asyncio.gather(*(batcher.idle() for batcher in self._batchers.values()))
        await self._client.close()
        self._directory.close()

    def _batcher(self, owner: str, route: Route, only_acks: bool) -> Batcher[bytes, Answer]:
        async def flush(entries: list[bytes]) -> Sequence[Answer]:
            answers: list[Answer] = []
            for body, count in bodies(entries):
                try:
                    answers += await self._call(owner, route.broker, body, count)
                except BabelgateError as error:
                    answers += failure_for_each(error, count)
            return answers

        key = (owner, route.queue, only_acks)
        return self._batchers.obtain(key, lambda: Batcher(flush, _MAX_CALLS, _WAIT_SECONDS))

    async def _call(self, owner: str, broker: str, body: bytes, count: int) -> Sequence[Answer]:
        try:
            address = await self._addresses.find(owner)
            if address is None:
                raise LeaseLost
            answers = decode_answers(await self._client.call(address, "POST", SETTLE_PATH, owner, body))
        except (PeerGone, NotAPeer):
            self._addresses.forget(owner)
            raise LeaseLost from None
        except PeerUnreachable as error:
            # Another gateway may listen at the address by now: look the owner up again next time.
            self._addresses.forget(owner)
            raise OwnerUnreachable(reason=str(error), is_refusal=isinstance(error, PeerRefuses)) from error
        except (PeerSilent, msgspec.MsgspecError) as error:
            raise OutcomeUnknown(broker, f"the replica that holds the lease did not answer: {error}") from error
        if len(answers) != count:
            raise OutcomeUnknown(broker, f"the replica answered {len(answers)} of {count} settlements")
        return answers


def bodies(entries: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Join ``entries`` into as few request bodies as possible; yields each body and its number of entries."""
    batch: list[bytes] = []
    size = 2
    for entry in entries:
        if batch and size + len(entry) > MAX_CALL_BYTES:
            yield b"[%b]" % b",".join(batch), len(batch)
            batch, size = [], 2
        batch.append(entry)
        size += len(entry) + 1
    yield b"[%b]" % b",".join(batch), len(batch)


def _only_acks(settlement: Settlement) -> bool:
    return not (settlement.nacks or settlement.rejects or settlement.extends)


def _count(settlement: Settlement) -> int:
    requests: tuple[Sequence[Nack | Reject | Extend], ...] = (settlement.nacks, settlement.rejects, settlement.extends)
    return len(settlement.acks) + sum(len(request.ack_tokens) for several in requests for request in several)
