"""Moves deliveries where the broker cannot: publish a copy, wait for the confirm, ack the original.

A process that stops between confirm and ack leaves the message twice; it is never lost. Before it publishes a copy the
broker has to say that the delivery is still this process's: another consumer may have the message, or have acked it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from babelgate import envelope
from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import (
    DeadLetterRequest,
    Delivery,
    LastFailure,
    Outcome,
    Outgoing,
    PublishesDeadLetters,
)
from babelgate.brokers.errors import for_each
from babelgate.brokers.ports import ConnectionBroker, LeasingBroker
from babelgate.brokers.route import BrokerRoute
from babelgate.errors import BabelgateError, BodyTooLarge, LeaseLost, OutcomeUnknown
from babelgate.leases.table import HeldLease
from babelgate.runtime import turns

Reason = TypeVar("Reason", LastFailure, DeadLetterRequest)
"""The reason for a copy: a failed attempt, or a request to dead-letter."""


async def unproven(
    route: BrokerRoute, originals: Sequence[HeldLease], *, expired: bool = False
) -> dict[str, BabelgateError]:
    """The deliveries of which the broker has not just said that they are this process's: the reason, by handle.

    LeaseLost where the broker has taken it back; another error where it has not answered. ``expired``: no consumer has
    just asked for an end of the lease here. One may have acked at another process then, where any can.

    A broker that keeps the leases answers by an extend, which lasts for the time of a copy.
    """
    native, capabilities = route.native, route.capabilities
    handles = [held.handle for held in originals]
    call: Awaitable[Sequence[int | Outcome]]
    if capabilities.lease_bound_to is None or (expired and capabilities.ack_scope == "anywhere"):
        call = route.offering(LeasingBroker).extend(native, handles, route.binding.timeout_seconds * 2)
    else:
        call = route.offering(ConnectionBroker).prove(native, handles)
    proofs = zip(handles, await for_each(call, len(handles)), strict=True)
    return {handle: proof for handle, proof in proofs if isinstance(proof, BabelgateError)}


def unconfirmed(route: BrokerRoute) -> OutcomeUnknown:
    """The outcome for a delivery of which a copy is still being written."""
    return OutcomeUnknown(route.broker, "a copy of the message is not confirmed yet")


async def publish_again(
    route: BrokerRoute, failed: Sequence[tuple[HeldLease, LastFailure]], delay_seconds: float, *, proven: bool
) -> Sequence[Outcome]:
    """Replace the ``failed`` deliveries with counted copies on their queue, due after ``delay_seconds``.

    One outcome each: LeaseLost if the broker has taken the original back, else the outcome of the proof, the publish or
    the ack. ``proven``: :func:`unproven` was called before.
    """

    def copy(each: tuple[HeldLease, LastFailure]) -> Outgoing:
        held, failure = each
        return Outgoing(
            envelope.with_attempts(held.delivery.body, failure.attempts),
            held.delivery.headers,
            delay_seconds=delay_seconds,
            failure=failure,
            carried=held.delivery.carried,
        )

    return await _replace_all(route, failed, copy, proven=proven, to_dead=False)


async def publish_dead_letters(
    route: BrokerRoute, letters: Sequence[tuple[HeldLease, DeadLetterRequest]], *, proven: bool
) -> Sequence[Outcome]:
    """Replace deliveries with records in the dead-letter queue; outcomes as of :func:`publish_again`.

    A record that is too large for the broker has less of the error's text, else neither error nor exception, else the
    body as it was received. Raises UnsupportedByBroker if the broker has no dead-letter queue.
    """
    outcomes = list(await _publish_records(route, letters, _recorded, proven=proven))
    attempts: Sequence[tuple[_Shortened, _Record]] = ((_cut, _recorded), (_bare, _recorded), (_bare, _as_received))
    for shortened, record in attempts:
        if not (large := {at: each for at, each in enumerate(outcomes) if isinstance(each, BodyTooLarge)}):
            break
        shorter = []
        for at, error in large.items():
            held, letter = letters[at]
            block = shortened(letter.block, error.actual - error.limit)
            shorter.append((held, DeadLetterRequest(letter.handle, block, letter.deliveries)))
        # The first time has proven them.
        again = await _publish_records(route, shorter, record, proven=True)
        for at, outcome in zip(large, again, strict=True):
            outcomes[at] = outcome
    return outcomes


_Record = Callable[[Delivery, DeadLetterRequest], bytes]
_Shortened = Callable[[Mapping[str, Any], int], Mapping[str, Any]]
"""``(block, excess)``: a smaller block of a record that had ``excess`` bytes too many."""


def _cut(block: Mapping[str, Any], excess: int) -> Mapping[str, Any]:
    text = block["error"] or ""
    room = _encoded(text) - excess
    end = bisect_right(range(len(text) + 1), room, key=lambda length: _encoded(text[:length])) - 1
    return {**block, "error": text[: max(end, 0)] or None}


def _bare(block: Mapping[str, Any], excess: int) -> Mapping[str, Any]:
    return {**block, "error": None, "exception": None}


def _encoded(text: str) -> int:
    return len(msgspec.json.encode(text))


async def _publish_records(
    route: BrokerRoute, letters: Sequence[tuple[HeldLease, DeadLetterRequest]], recorded: _Record, *, proven: bool
) -> Sequence[Outcome]:
    def record(each: tuple[HeldLease, DeadLetterRequest]) -> Outgoing:
        held, letter = each
        return Outgoing(
            recorded(held.delivery, letter),
            held.delivery.headers,
            failure=LastFailure(
                letter.block["attempts"],
                letter.block["error"],
                letter.block["exception"],
                deliveries=letter.deliveries,
            ),
            carried=held.delivery.carried,
        )

    return await _replace_all(route, letters, record, proven=proven, to_dead=True)


def _recorded(delivery: Delivery, letter: DeadLetterRequest) -> bytes:
    if delivery.unsupported_version is not None:
        return delivery.body
    return envelope.dead_letter_record(delivery.body, letter.block)


def _as_received(delivery: Delivery, letter: DeadLetterRequest) -> bytes:
    return delivery.body


async def _replace_all(
    route: BrokerRoute,
    originals: Sequence[tuple[HeldLease, Reason]],
    copy: Callable[[tuple[HeldLease, Reason]], Outgoing],
    *,
    proven: bool,
    to_dead: bool,
) -> Sequence[Outcome]:
    """Replace each of ``originals`` with its ``copy``, in native batches."""
    # The body of what another process received is not here.
    outcomes: dict[str, Outcome] = {held.handle: LeaseLost() for held, _ in originals if held.adopted}
    if not proven and (kept := [held for held, _ in originals if not held.adopted]):
        outcomes |= await unproven(route, kept)
    left = [each for each in originals if each[0].handle not in outcomes]
    for chunk in batches(left, route.capabilities.max_batch, BATCH_BYTES, [_size(each) for each in left]):
        copies = await turns.mapped(copy, chunk, size=_size)
        several = [held for held, _ in chunk]
        replaced = await _replace(route, several, copies, to_dead=to_dead)
        outcomes |= zip([held.handle for held in several], replaced, strict=True)
    return [outcomes[held.handle] for held, _ in originals]


def _size(each: tuple[HeldLease, LastFailure | DeadLetterRequest]) -> int:
    held, reason = each
    error = reason.error if isinstance(reason, LastFailure) else reason.block["error"]
    return len(held.delivery.body) + len(error or "")


async def _replace(
    route: BrokerRoute, originals: Sequence[HeldLease], copies: Sequence[Outgoing], *, to_dead: bool
) -> Sequence[Outcome]:
    write: Callable[[Sequence[Outgoing]], Awaitable[Sequence[Outcome]]]
    if to_dead:
        write = partial(route.offering(PublishesDeadLetters).publish_dead_letters, route.native)
    else:
        write = route.publish
    outcomes: list[Outcome] = [unconfirmed(route) if held.is_copying else LeaseLost() for held in originals]
    # A delivery that the broker has taken back will be delivered again: a copy would be a second message.
    outstanding = route.outstanding([held.handle for held in originals])
    free = [at for at, is_out in enumerate(outstanding) if is_out and not originals[at].is_copying]
    # While the broker proved them, earlier copies may have been confirmed.
    earlier = [at for at in free if originals[at].is_copied]
    written = [at for at in free if not originals[at].is_copied]
    confirmed: list[int] = []
    if written:
        answers = await for_each(write([copies[position] for position in written]), len(written))
        for position, outcome in zip(written, answers, strict=True):
            outcomes[position] = outcome
            if isinstance(outcome, OutcomeUnknown):
                originals[position].copy = outcome.later or "unsure"
            if outcome is None:
                originals[position].copy = "made"
                confirmed.append(position)
    if confirmed or earlier:
        handles = [originals[position].handle for position in (*confirmed, *earlier)]
        acked = await for_each(route.binding.ack(route.native, handles), len(handles))
        # A lease ends with its earlier copy: this settle is too late.
        for position, outcome in zip(confirmed, acked, strict=False):
            outcomes[position] = outcome
    return outcomes
