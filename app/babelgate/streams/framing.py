"""The forms in which a stream sends its events: Server-Sent Events, and lines of JSON."""

from __future__ import annotations

from typing import Protocol

_SPACES = bytes.maketrans(b"\r\n", b"  ")


class Framing(Protocol):
    """A form. ``opening``: sent first; ``keep_alive``: sent while there is nothing to send."""

    content_type: bytes
    opening: bytes
    keep_alive: bytes

    def event(self, name: str, data: bytes) -> bytes:
        """The event ``name``; ``data``: a JSON document."""


class EventStream:
    """Server-Sent Events: https://html.spec.whatwg.org/multipage/server-sent-events.html

    Events have no ``id``, because a browser would send the last one as ``Last-Event-ID`` when it connects again, and a
    lease is no position in a queue.
    """

    content_type = b"text/event-stream"
    opening = b"retry: 1000\n\n"
    """A client connects again after a second."""
    keep_alive = b": keep-alive\n\n"

    def event(self, name: str, data: bytes) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), one_line(data))


class JsonLines:
    """One JSON object on each line: ``{"event": …, "data": …}``."""

    content_type = b"application/x-ndjson"
    opening = b""
    keep_alive = b'{"event":"keep_alive","data":{}}\n'

    def event(self, name: str, data: bytes) -> bytes:
        return b'{"event":"%b","data":%b}\n' % (name.encode("ascii"), one_line(data))


def one_line(document: bytes) -> bytes:
    """A JSON document with spaces for its line ends, which can only stand between its tokens."""
    return document.translate(_SPACES)


EVENT_STREAM, JSON_LINES = EventStream(), JsonLines()


def framing_of(accept: bytes) -> Framing:
    """Lines of JSON for a client that accepts them and does not name Server-Sent Events; else Server-Sent Events."""
    return JSON_LINES if b"ndjson" in accept and b"text/event-stream" not in accept else EVENT_STREAM
