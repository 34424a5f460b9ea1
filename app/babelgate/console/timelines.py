"""Events of messages, as pages show them: in rows, and as a picture with a lane for each queue."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct

from babelgate.console.frame import ConsoleFrame
from babelgate.gateway.history import MessageHistory
from babelgate.observe.journal.record import Record
from babelgate.observe.tracing.context import of_message

MAX_DRAWN = 60
"""Events of a picture. The table beside it has all."""
_STEP, _LANE, _MARGIN = 44, 46, 16
"""Pixels between two events, between two lanes, and around all."""
_MIN_WIDTH = 480
"""Pixels for the names of queues."""


class EventRow(Struct, frozen=True):
    """An event, and the ``seconds`` since the one before it in the table; None: there is none."""

    record: Record
    seconds: float | None

    @property
    def to_queue(self) -> str | None:
        """The other queue that the message was sent to."""
        queue = self.record.to_queue
        return None if queue is UNSET or queue == self.record.queue else queue


class Dot(Struct, frozen=True):
    """An event in a picture, on the line of ``queue``."""

    x: int
    y: int
    record: Record
    queue: str


class Lane(Struct, frozen=True):
    """A queue in a picture: ``y`` is the place of its line."""

    name: str
    y: int


class Picture(Struct, frozen=True):
    """``ways``: the points of each message's line. ``left``: how many events it does not show."""

    width: int
    height: int
    lanes: Sequence[Lane]
    dots: Sequence[Dot]
    ways: Sequence[str]
    left: int


def rows_of(records: Sequence[Record]) -> list[EventRow]:
    """The rows of a table, in the order of ``records``."""
    befores = [None, *(each.at for each in records)]
    return [
        EventRow(each, None if before is None else (each.at - before) / 1_000)
        for before, each in zip(befores, records, strict=False)
    ]


def picture_of(messages: Sequence[MessageHistory]) -> Picture:
    """The events of all ``messages`` from left to right in the order of their times."""
    events = [(each.at, number, each) for number, message in enumerate(messages) for each in message.events]
    # Stable, so that the events of one message keep their order.
    events.sort(key=lambda event: event[0])
    drawn = events[:MAX_DRAWN]
    stops = [(number, each, queue) for _, number, each in drawn for queue in _queues_of(each)]
    brokers = {each.queue: each.broker for _, _, each in drawn}
    places = {queue: _MARGIN + row * _LANE + 24 for row, queue in enumerate(dict.fromkeys(stop[2] for stop in stops))}
    ways: dict[int, list[str]] = {}
    dots: list[Dot] = []
    for column, (number, each, queue) in enumerate(stops):
        dot = Dot(_MARGIN + column * _STEP, places[queue], each, queue)
        dots.append(dot)
        ways.setdefault(number, []).append(f"{dot.x},{dot.y}")
    return Picture(
        max(2 * _MARGIN + (len(stops) - 1) * _STEP, _MIN_WIDTH),
        len(places) * _LANE + _MARGIN,
        [Lane(f"{queue} ({brokers[queue]})" if queue in brokers else queue, y) for queue, y in places.items()],
        dots,
        [" ".join(points) for points in ways.values()],
        len(events) - len(drawn),
    )


def _queues_of(record: Record) -> list[str]:
    """The queue of an event, and the one to which it has brought the message."""
    other = EventRow(record, None).to_queue
    return [record.queue or "", *([other] if other is not None else [])]


def trace_address(frame: ConsoleFrame, trace_id: str | None, traceparent: str | None = None) -> str | None:
    """The address of a message's trace in the configured program; None without one."""
    if frame.trace_url is None or (context := of_message(traceparent, trace_id)) is None:
        return None
    return frame.trace_url.replace("{trace_id}", context.trace_id)
