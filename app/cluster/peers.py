"""The other gateways: settlements of their deliveries are sent to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from app.brokers.errors import failure_for_each
from app.cluster.client import ANSWER_SECONDS, Address, NotAPeer, PeerClient, PeerGone, PeerSilent, PeerUnreachable
from app.cluster.discovery import Addresses
from app.cluster.signing import Signer
from app.cluster.sockets import SocketDirectory
from app.cluster.wire import MAX_CALL_BYTES, SETTLE_PATH, Answer, decode_answers, encode_call
from app.errors import BabelgateError, BodyTooLarge, LeaseLost, OutcomeUnknown, OwnerUnreachable
from app.gateway.batcher import Batcher
from app.gateway.model import Extend, Nack, Reject, Settlement, SettleResult
from app.gateway.routing import Route

_MAX_CALLS = 500
_KEPT_LINES = 1_000
_WAIT_SECONDS = 5
"""Settles that would wait longer for their call are refused: their owner is too slow."""


class Peers:
    """Settles at the owners. Concurrent settles on a queue of one owner become one call.

    What only acks goes in a line of its own: it never waits for a broker that is slow to take a copy.
    """

    def __init__(
        self,
        signer: Signer,
        directory: SocketDirectory,
        places: Sequence[Address] = (),
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """``places``: where peers on other hosts are, at all addresses of a name. ``answer_seconds``: how long an owner
        may take.
        """
        self._directory = directory
        self._client = PeerClient(signer, answer_seconds)
        self._addresses = Addresses(self._client, directory, places)
        self._lines: dict[tuple[str, str, bool], Batcher[bytes, Answer]] = {}

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        """Have the gateway of incarnation ``owner`` settle; one result per token.

        Raises LeaseLost when there is no such gateway (any more), OwnerUnreachable when no connection came about,
        OutcomeUnknown when it was asked and did not answer in time, Overloaded when too many wait for it, and what it
        raised for the whole call.
        """
        entry = encode_call(route.queue, settlement, traceparent)
        if len(entry) + 2 > MAX_CALL_BYTES:
            raise BodyTooLarge(actual=len(entry), limit=MAX_CALL_BYTES)
        answer = await self._line(owner, route, only_acks=_only_acks(settlement)).submit(entry)
        if isinstance(answer, BabelgateError):
            raise answer
        if len(answer) != _count(settlement):
            raise OutcomeUnknown(route.broker, f"the replica answered {len(answer)} results")
        return answer

    async def close(self) -> None:
        """Finish what is in flight, then close the connections; idempotent."""
        await asyncio.gather(*(line.idle() for line in self._lines.values()))
        await self._client.close()
        self._directory.close()

    def _line(self, owner: str, route: Route, only_acks: bool) -> Batcher[bytes, Answer]:
        key = (owner, route.queue, only_acks)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= _KEPT_LINES:
                self._lines = {key: line for key, line in self._lines.items() if line.busy}

            async def flush(entries: list[bytes]) -> Sequence[Answer]:
                answers: list[Answer] = []
                for body, count in bodies(entries):
                    try:
                        answers += await self._call(owner, route.broker, body, count)
                    except BabelgateError as error:
                        answers += failure_for_each(error, count)
                return answers

            line = self._lines[key] = Batcher(flush, _MAX_CALLS, _WAIT_SECONDS)
        return line

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
            # Whoever takes its place will say so; without being asked again the owner would be there for ever.
            self._addresses.forget(owner)
            raise OwnerUnreachable(reason=str(error)) from error
        except (PeerSilent, msgspec.MsgspecError) as error:
            raise OutcomeUnknown(broker, f"the replica that holds the lease gave no answer: {error}") from error
        if len(answers) != count:
            raise OutcomeUnknown(broker, f"the replica answered {len(answers)} of {count} settlements")
        return answers


def bodies(entries: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """The entries as the bodies of as few calls as hold them, each with how many are in it."""
    held: list[bytes] = []
    size = 2
    for entry in entries:
        if held and size + len(entry) > MAX_CALL_BYTES:
            yield b"[%b]" % b",".join(held), len(held)
            held, size = [], 2
        held.append(entry)
        size += len(entry) + 1
    yield b"[%b]" % b",".join(held), len(held)


def _only_acks(settlement: Settlement) -> bool:
    return not (settlement.nacks or settlement.rejects or settlement.extends)


def _count(settlement: Settlement) -> int:
    asks: tuple[Sequence[Nack | Reject | Extend], ...] = (settlement.nacks, settlement.rejects, settlement.extends)
    return len(settlement.acks) + sum(len(ask.ack_tokens) for several in asks for ask in several)
