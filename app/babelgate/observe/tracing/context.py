"""W3C trace context of requests and messages, and the context that an envelope's ``trace_id`` gives. Pure.

Malformed or overlong headers are ignored, never an error (https://www.w3.org/TR/trace-context/,
https://www.w3.org/TR/baggage/). Ids derived from a ``trace_id`` follow the formula that every SDK of the contract uses:
big-endian integers, never zero.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from msgspec import Struct

TRACEPARENT, TRACESTATE, BAGGAGE = "traceparent", "tracestate", "baggage"

MAX_TRACESTATE_CHARACTERS = 512
"""The length that every program must propagate (Trace Context, 3.3.1.5). A longer value is dropped."""
_MAX_MEMBERS = 32
"""Maximum members of a ``tracestate`` (Trace Context, 3.3.1.3)."""
MAX_BAGGAGE_CHARACTERS = 8192
"""The length that every program must propagate (Baggage, 3.3.2). A longer value is dropped."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_is_member = re.compile(
    r"(?P<key>[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
).fullmatch
"""A member of a ``tracestate``: key and value (Trace Context, 3.3.1.3)."""
_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch
_TEXT = re.compile(r"[\t\x20-\x7e]+")
_SPAN = hashlib.sha256(b"babelqueue-span:")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
SAMPLED = 0x01
_FLAGS = 0x03
"""The flags of this version: sampled, and random trace id."""


class Context(Struct, frozen=True, gc=False):
    """The context of a parent span: its ids, as 32 and 16 hexadecimal digits, and the ``traceparent`` header for it.

    ``flags`` is None if the ids were derived from a ``trace_id``, so that sampling is not decided yet.
    """

    trace_id: str
    span_id: str
    flags: int | None
    traceparent: str
    tracestate: str = ""

    @property
    def sampled(self) -> bool | None:
        """Whether the span is sampled; None if not decided yet."""
        return None if self.flags is None else bool(self.flags & SAMPLED)


def context_of(trace_id: str, span_id: str, flags: int | None, tracestate: str = "") -> Context:
    """Return the context of a span. Without a decision (``flags`` None) the header says sampled, as in the SDKs."""
    sent = SAMPLED if flags is None else flags & _FLAGS
    return Context(trace_id, span_id, flags, f"00-{trace_id}-{span_id}-{sent:02x}", tracestate)


def parse(traceparent: str | None, tracestate: str = "") -> Context | None:
    """Parse ``traceparent``; None if it is missing or malformed."""
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    # A later version is read as version 00; its additional fields are ignored.
    if version == "ff" or (version == "00" and more is not None):
        return None
    return context_of(trace_id, span_id, int(flags, 16), tracestate)


def of_trace_id(trace_id: str | None) -> Context | None:
    """Return the context derived from an envelope's ``trace_id``; None if that is missing."""
    if not trace_id:
        return None
    if _is_uuid(trace_id):
        # As below, without integers: most trace ids are such UUIDs.
        digits = trace_id.replace("-", "")
        hashed = _SPAN.copy()
        hashed.update(trace_id.encode())
        span_id = hashed.hexdigest()[:16]
        if digits != _NO_TRACE and span_id != _NO_SPAN:
            return Context(digits, span_id, None, f"00-{digits}-{span_id}-01")
    return context_of(f"{trace_id_of(trace_id):032x}", f"{parent_id_of(trace_id):016x}", None)


def of_message(traceparent: str | None, trace_id: str | None) -> Context | None:
    """Return the context that travelled with a message, else the one derived from its ``trace_id``."""
    return parse(traceparent) or of_trace_id(trace_id)


def plain(text: str, most: int) -> str:
    """Return a header value, stripped; empty if it is not printable ASCII or is longer than ``most`` characters."""
    text = text.strip()
    return text if len(text) <= most and _TEXT.fullmatch(text) else ""


def state_of(text: str) -> str:
    """Return a ``tracestate`` without blanks and empty members around its own; empty if anything in it is illegal.

    That is a member of another form, a key that occurs twice, more than 32 members, or more than 512 characters.
    """
    if len(text) > MAX_TRACESTATE_CHARACTERS:
        return ""
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    keys = {found["key"] for member in members if (found := _is_member(member))}
    return ",".join(members) if len(keys) == len(members) <= _MAX_MEMBERS else ""


def handed_out(headers: Mapping[str, str], trace_id: str | None) -> dict[str, str]:
    """Return the native ``headers`` of a message as its consumer gets them.

    Without a valid ``traceparent`` they have the one that ``trace_id`` gives. An illegal ``tracestate``, or one without
    a ``traceparent``, is left out.
    """
    made = dict(headers)
    if TRACEPARENT in made and parse(made[TRACEPARENT]) is not None:
        if TRACESTATE in made and not state_of(made[TRACESTATE]):
            del made[TRACESTATE]
        return made
    made.pop(TRACEPARENT, None)
    made.pop(TRACESTATE, None)
    if (derived := of_trace_id(trace_id)) is not None:
        made[TRACEPARENT] = derived.traceparent
    return made


def trace_headers(headers: Mapping[str, str], trace_id: str | None) -> Mapping[str, str]:
    """Return the trace headers that a consumer continues with, for a message with ``headers`` and ``trace_id``."""
    travelled = parse(headers.get(TRACEPARENT))
    context = travelled or of_trace_id(trace_id)
    if context is None:
        return {}
    sent = {
        TRACEPARENT: context.traceparent,
        TRACESTATE: state_of(headers.get(TRACESTATE, "")) if travelled else "",
        BAGGAGE: plain(headers.get(BAGGAGE, ""), MAX_BAGGAGE_CHARACTERS),
    }
    return {name: value for name, value in sent.items() if value}


def with_context(own: Mapping[str, str], context: Context | None, baggage: str) -> Mapping[str, str]:
    """Add ``context`` and ``baggage`` to the ``own`` headers of a message, which take precedence.

    If the message has its own ``traceparent``, no ``tracestate`` of ``context`` is added.
    """
    headers: dict[str, str] = {}
    if context is not None and TRACEPARENT not in own:
        headers[TRACEPARENT] = context.traceparent
        if context.tracestate:
            headers[TRACESTATE] = context.tracestate
    if baggage:
        headers[BAGGAGE] = baggage
    return {**headers, **own} if headers else own


def trace_id_of(trace_id: str) -> int:
    """Return the 128-bit trace id: the 16 bytes of a UUID with or without hyphens, else the first 16 of a SHA-256."""
    digits = trace_id.replace("-", "")
    if len(digits) == 32:
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        # bytes.fromhex accepts blanks between the bytes; the contract does not.
        if len(raw) == 16 and (number := int.from_bytes(raw, "big")):
            return number
    return int.from_bytes(_digest(trace_id)[:16], "big") or 1


def parent_id_of(trace_id: str) -> int:
    """Return the 64-bit id of the assumed root span, for a trace without a travelled context."""
    return int.from_bytes(_digest(f"babelqueue-span:{trace_id}")[:8], "big") or 1


def uuid_of(digits: str) -> str:
    """Format a trace id of 32 hexadecimal digits as a UUID, for an envelope's ``trace_id`` in an existing trace."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _digest(text: str) -> bytes:
    # A foreign body may contain an unpaired surrogate.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
