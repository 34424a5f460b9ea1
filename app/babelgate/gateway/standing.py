"""Where a message is, by the events that are known of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import UNSET, Struct

from babelgate.clock import utc_text
from babelgate.observe.journal.record import Record

Status = Literal["accepted", "delivered", "acked", "waiting", "dead_lettered", "redriven", "dropped"]

_BEGINNINGS = frozenset({"accepted", "redriven"})
_ANSWERS = frozenset({"nacked", "rejected"})
_DEAD = frozenset({"dead_lettered", "rejected", "poison"})


class Standing(Struct, frozen=True):
    """The ``status`` of a message, its ``queue`` and broker there, since when (``at``, Unix ms), and a sentence.

    ``broker`` is None where a message was redriven to another queue and nothing has happened since.
    """

    status: Status
    queue: str | None
    broker: str | None
    at: int
    detail: str


def moment(at: int) -> str:
    """``2026-01-31 23:59:59 UTC``; the number itself for a time that no calendar has."""
    text = utc_text(at)
    return f"{at} ms" if text is None else f"{text} UTC"


def in_order(records: Sequence[Record]) -> list[Record]:
    """``records`` of one message by time, with a consumer's answer before the dead-lettering that it caused, which the
    gateway records first."""
    ordered = list(records)
    for at, (one, other) in enumerate(pairwise(records)):
        same = (one.queue, one.node, one.epoch) == (other.queue, other.node, other.epoch)
        if same and one.event == "dead_lettered" and other.event in _ANSWERS:
            ordered[at : at + 2] = other, one
    return ordered


def standing(records: Sequence[Record]) -> Standing:
    """Where the message is after ``records``: at least one, all of this message, in order.

    Only the records from the last ``accepted`` or ``redriven`` on count. Among them an ack ends everything, wherever it
    stands: clocks of two gateways may place it before its delivery. Otherwise a dead-lettering counts if it comes after
    the last delivery, and else the last record does.
    """
    began = max((at for at, each in enumerate(records) if each.event in _BEGINNINGS), default=0)
    since = records[began:]
    acked = next((each for each in reversed(since) if each.event == "acked"), None)
    if acked is not None:
        return _standing("acked", acked, f"A consumer of {acked.queue} has finished it.")
    tried = max((at for at, each in enumerate(since) if each.event == "delivered"), default=0)
    dead = [each for each in since[tried:] if each.event in _DEAD]
    if dead:
        return _standing("dead_lettered", dead[0], f"It is in the dead letters of {dead[0].queue}{_reason(dead)}.")
    last = since[-1]
    match last.event:
        case "accepted":
            return _standing("accepted", last, f"It was accepted to {last.queue} and not delivered since.")
        case "redriven":
            queue = last.queue if last.to_queue is UNSET else last.to_queue
            broker = last.broker if queue == last.queue else None
            sentence = f"It was sent back from the dead letters of {last.queue} to {queue} and not delivered since."
            return Standing("redriven", queue, broker, last.at, sentence)
        case "delivered":
            return _standing("delivered", last, f"A consumer of {last.queue} has it{_lease(last)}.")
        case "dropped":
            return _standing("dropped", last, f"It had expired, and {last.queue} drops expired messages.")
        case "lease_expired":
            return _standing("waiting", last, f"It waits in {last.queue} again: the lease of its consumer expired.")
        case _:
            return _standing("waiting", last, f"It waits in {last.queue} again: its consumer asked for that.")


def _standing(status: Status, record: Record, detail: str) -> Standing:
    return Standing(status, record.queue, record.broker, record.at, detail)


def _reason(dead: Sequence[Record]) -> str:
    given = next((each.outcome for each in dead if each.event != "rejected" and each.outcome), None)
    rejected = any(each.event == "rejected" for each in dead)
    reasons = [*(["its consumer rejected it"] if rejected else []), *([f"reason {given}"] if given else [])]
    return f": {', '.join(reasons)}" if reasons else ""


def _lease(record: Record) -> str:
    if record.lease_seconds is None:
        return ""
    until = record.at + round(record.lease_seconds * 1000)
    return f", with a lease until {moment(until)} or, if it was extended, later"
