"""What records keep of a message beside its body, so that it can be sent again: native headers and ordering key."""

from __future__ import annotations

from base64 import b64encode

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from babelgate.envelope.contract import is_text
from babelgate.envelope.options import EXPIRES_AT_HEADER
from babelgate.observe.events import Carrier
from babelgate.observe.journal.record import Record
from babelgate.observe.tracing.context import TRACEPARENT, TRACESTATE
from babelgate.privacy.ciphers import journal_context
from babelgate.privacy.protection import HIDDEN, Protection

_NOT_KEPT = frozenset({TRACEPARENT, TRACESTATE, EXPIRES_AT_HEADER})
"""The gateway sets these for each sending: a message that is sent again has a trace and a time to live of its own."""


class KeptCarrier(Struct, frozen=True, gc=False):
    """What ``headers_encrypted`` of a record has, as JSON."""

    headers: dict[str, str] | UnsetType = UNSET
    ordering_key: str | UnsetType = UNSET


def with_carrier(record: Record, carrier: Carrier, protection: Protection | None) -> Record:
    """``record``, with the headers and the ordering key of its message: encrypted where its body is. Never raises.

    Of a queue about which nothing is known they are not kept. Nor is what no publish accepts, which messages of other
    producers may have: headers without a name or a value, and blank keys.
    """
    headers = {
        name: value for name, value in carrier.headers.items() if value and name not in _NOT_KEPT and is_text(name)
    }
    key = carrier.ordering_key if carrier.ordering_key is not None and is_text(carrier.ordering_key) else UNSET
    if protection is HIDDEN or not (headers or key is not UNSET):
        return record
    found = KeptCarrier(headers or UNSET, key)
    if protection is None or protection.cipher is None:
        return structs.replace(record, headers=found.headers, ordering_key=found.ordering_key)
    try:
        text = msgspec.json.encode(found)
    except ValueError:
        text = msgspec.json.encode(
            KeptCarrier(
                {legible(name): legible(value) for name, value in headers.items()} or UNSET,
                key if key is UNSET else legible(key),
            )
        )
    encrypted = protection.cipher.encrypted(text, journal_context(record.queue or ""))
    return structs.replace(record, headers_encrypted=b64encode(encrypted).decode("ascii"))


def legible(text: str) -> str:
    """``text`` with ``?`` for unpaired surrogates, which JSON can escape and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
