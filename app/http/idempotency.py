"""The header Idempotency-Key, as draft-ietf-httpapi-idempotency-key-header has it.

A string of a structured field (RFC 9651, section 3.3.3): ``"…"`` with ``\\"`` and ``\\\\``. A bare text without spaces
and quotes is taken for the same, because that is what clients write.
"""

from __future__ import annotations

import re

from app.envelope.publication import IDEMPOTENCY_KEY
from app.errors import InvalidIdempotencyKey
from app.http.exchange import Exchange
from app.http.problems import RawHeaders

REPLAYED: RawHeaders = [(b"idempotency-replayed", b"true")]

_NAME = b"idempotency-key"
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-~]+")
_ESCAPED = re.compile(r'\\(["\\])')


def idempotency_key(exchange: Exchange) -> str | None:
    """The key of a request; None without one. Raises InvalidIdempotencyKey."""
    given = exchange.headers.get(_NAME)
    if given is None:
        return None
    if sum(name == _NAME for name, _ in exchange.scope["headers"]) > 1:
        raise InvalidIdempotencyKey(reason="it is given more than once")
    text = given.decode("latin-1").strip(" \t")
    quoted = _STRING.fullmatch(text)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text
    if not IDEMPOTENCY_KEY.fullmatch(key) or not (quoted or _BARE.fullmatch(text)):
        raise InvalidIdempotencyKey(reason="a string of 1 to 255 printable ASCII characters is expected")
    return key


def no_idempotency_key(exchange: Exchange) -> None:
    """Raise InvalidIdempotencyKey where one was given for a batch: it cannot stand for many messages."""
    if _NAME in exchange.headers:
        reason = "each entry of a batch has a key of its own, its member idempotency_key"
        raise InvalidIdempotencyKey(reason=reason)
