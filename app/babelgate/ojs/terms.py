"""Converts types, ids and times between OJS and the envelope."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Final

MEDIA_TYPE: Final = "application/openjobspec+json"
SPEC_VERSION: Final = "1.0"
MAX_TYPE: Final = 255
"""Maximum characters of a job type (OJS core, attribute ``type``)."""
MAX_QUEUE: Final = 128
"""Maximum characters of a queue name (OJS core, attribute ``queue``)."""

SERVER: Final = frozenset(
    {
        "state",
        "attempt",
        "enqueued_at",
        "started_at",
        "completed_at",
        "cancelled_at",
        "discarded_at",
        "error",
        "errors",
        "result",
    }
)
"""Attributes that the server sets; a client's values are ignored (OJS core, system-managed attributes)."""

is_queue = re.compile(r"[a-z0-9][a-z0-9.-]*").fullmatch
is_uuid7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch
_is_type = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*(?:\.[a-zA-Z][a-zA-Z0-9_]*)*").fullmatch
_traceparent = re.compile(
    r"(?!ff|00-.{52}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
).fullmatch
"""A later version may have more fields; ids of zeros and the version ff are invalid (Trace Context, 3.2.2)."""

_NAMES: Final = uuid.UUID("b5f3a7a4-6a5e-5d0f-9d0c-4f1a2c7e8b90")


def urn_of(type_: str) -> str:
    """Return the URN of a job type: ``email.send`` is ``urn:babel:email:send``."""
    context, dot, event = type_.partition(".")
    return f"urn:babel:{context}:{event}" if dot else f"urn:babel:ojs:{type_}"


def type_of(urn: str) -> str:
    """Return a valid job type for a URN; not every URN can be restored from it."""
    name = urn.removeprefix("urn:babel:").removeprefix("urn:").replace(":", ".")
    if not _is_type(name):
        parts = re.sub(r"[^a-z0-9_.]", "_", name.lower()).split(".")
        name = ".".join(part if part[0].isalpha() else f"x{part}" for part in parts if part) or "x"
    return name[:MAX_TYPE].rstrip(".")


def uuid7(ms: int, entropy: bytes) -> str:
    """Return a UUID of version 7 at ``ms`` (Unix milliseconds), from ten bytes of ``entropy``."""
    bits = int.from_bytes(entropy[:10], "big")
    value = (ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (bits >> 62 & 0xFFF) << 64 | 0b10 << 62 | bits & (1 << 62) - 1
    return str(uuid.UUID(int=value))


def derived_uuid7(ms: int, id_: str) -> str:
    """Return the UUID of version 7 for ``id_``, an id of another kind; always the same."""
    return uuid7(max(ms, 0), hashlib.sha256(id_.encode()).digest())


def uuid7_ms(id_: str) -> int:
    """Return the time of a UUID of version 7, in Unix milliseconds."""
    return int(id_[:8] + id_[9:13], 16)


def derived_uuid(text: str) -> str:
    """Return the UUID for ``text``; always the same."""
    return str(uuid.uuid5(_NAMES, text))


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace id of a W3C ``traceparent`` as a UUID; None if it is malformed."""
    found = _traceparent(traceparent or "")
    return str(uuid.UUID(found[1])) if found else None
