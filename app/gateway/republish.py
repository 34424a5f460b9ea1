"""Copy, confirm, ack: how a delivery is moved where the broker cannot do it in one step.

Stopped between the last two the message is there twice, and never not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from app import envelope
from app.brokers.binding import DeadLetterRequest, LastFailure, Outcome, Outgoing, Outstanding, PublishesDeadLetters
from app.errors import BabelgateError, LeaseLost
from app.gateway.lease_table import HeldLease
from app.gateway.routing import Route, chunks, offering
from app.runtime import turns

Why = TypeVar("Why", LastFailure, DeadLetterRequest)
"""What a copy is made for: a failure, or a dead-letter block."""


async def publish_again(
    route: Route, failed: Sequence[tuple[HeldLease, LastFailure]], delay_seconds: float
) -> Sequence[Outcome]:
    """Put counted copies of ``failed`` on their queue, due after ``delay_seconds``, in place of the originals.

    One outcome each: LeaseLost where the broker has the original back, else the error of the publish or of the ack.
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

    return await _replaced(route, failed, copy, to_dead=False)


async def publish_dead_letters(
    route: Route, letters: Sequence[tuple[HeldLease, DeadLetterRequest]]
) -> Sequence[Outcome]:
    """Put dead-letter records in the dead-letter queue in place of the originals; outcomes as of a retry.

    Raises UnsupportedByBroker where the broker has no such queue.
    """

    def record(each: tuple[HeldLease, DeadLetterRequest]) -> Outgoing:
        held, letter = each
        return Outgoing(
            envelope.dead_letter_record(held.delivery.body, letter.block),
            held.delivery.headers,
            failure=LastFailure(letter.block["attempts"], letter.block["error"], letter.block["exception"]),
            carried=held.delivery.carried,
        )

    return await _replaced(route, letters, record, to_dead=True)


async def _replaced(
    route: Route,
    originals: Sequence[tuple[HeldLease, Why]],
    copy: Callable[[tuple[HeldLease, Why]], Outgoing],
    *,
    to_dead: bool,
) -> Sequence[Outcome]:
    """Put a ``copy`` of each in its place, as many at a time as the broker takes."""
    outcomes: list[Outcome] = []
    for chunk in chunks(originals, route.capabilities.max_batch, _size):
        copies = await turns.mapped(copy, chunk, size=_size)
        try:
            outcomes += await _replace(route, [held for held, _ in chunk], copies, to_dead=to_dead)
        except BabelgateError as error:
            outcomes += [error.without_frames()] * len(chunk)
    return outcomes


def _size(each: tuple[HeldLease, LastFailure | DeadLetterRequest]) -> int:
    held, why = each
    error = why.error if isinstance(why, LastFailure) else why.block["error"]
    return len(held.delivery.body) + len(error or "")


async def _replace(
    route: Route, originals: Sequence[HeldLease], copies: Sequence[Outgoing], *, to_dead: bool
) -> Sequence[Outcome]:
    write = offering(route, PublishesDeadLetters).publish_dead_letters if to_dead else route.binding.publish
    outcomes: list[Outcome] = [LeaseLost()] * len(originals)
    # What the broker has back already is somebody else's: a copy would be a second message.
    outstanding = offering(route, Outstanding).outstanding(route.native, [held.handle for held in originals])
    written = [position for position, is_out in enumerate(outstanding) if is_out]
    if not written:
        return outcomes
    confirmed: list[int] = []
    for position, outcome in zip(
        written, await write(route.native, [copies[position] for position in written]), strict=True
    ):
        outcomes[position] = outcome
        if outcome is None:
            originals[position].copied = True
            confirmed.append(position)
    if confirmed:
        acked: Sequence[Outcome]
        try:
            acked = await route.binding.ack(route.native, [originals[position].handle for position in confirmed])
        except BabelgateError as error:
            acked = [error.without_frames()] * len(confirmed)
        for position, outcome in zip(confirmed, acked, strict=True):
            outcomes[position] = outcome
    return outcomes
