"""The members of an envelope that brokers repeat in native fields."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class EnvelopeMeta(Struct):
    """Members of ``meta``, as they are in the body; None for one that is missing."""

    id: Any = None
    lang: Any = None
    schema_version: Any = None
    created_at: Any = None


class EnvelopeFields(Struct):
    """Members of the envelope."""

    job: Any = None
    trace_id: Any = None
    meta: EnvelopeMeta | None = None
    attempts: Any = 0


_BLANK = " \t\n\v\f\r"
_decode = msgspec.json.Decoder(EnvelopeFields).decode


def envelope_fields(body: bytes) -> tuple[EnvelopeFields, EnvelopeMeta] | None:
    """The fields of ``body``; None if it is no JSON object, or its ``meta`` is none."""
    try:
        fields = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return fields, fields.meta or EnvelopeMeta()


def unsupported_version(declared: Any) -> str | None:
    """The schema version that a native field declares, unless it is 1 or blank; see babelqueue's version gate."""
    if declared is None:
        return None
    text = declared.decode("utf-8", "replace") if isinstance(declared, bytes) else str(declared)
    return text if text != "1" and text.strip(_BLANK) else None
