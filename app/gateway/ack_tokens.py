"""Ack tokens: signed, opaque, self-routing proofs of a lease.

A token is base64url of the version, the key id and the fields, joined by line feeds and padded with spaces to whole
groups of three bytes, followed by base64url of the first 18 bytes of HMAC-SHA256 over the text before. The last field
holds the facts of the message as a JSON array, so that a settle can report which message it was.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from app.errors import InvalidAckToken
from app.observe.events import Facts

MAX_TOKEN_LENGTH = 4608
"""In characters: enough for a handle of :data:`app.brokers.binding.MAX_HANDLE_LENGTH`, the facts and the names."""

_MAX_FACTS_BYTES = 1024
"""Most bytes of the facts in a token: a job's name or a foreign id may have any length. Larger facts are reduced to the
ones that identify and measure the message."""
_VERSION = "1"
_MAC_BYTES = 18
_MAC_LENGTH = 24

NO_FACTS = Facts()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Facts).decode
_ENCODED_NO_FACTS = _encode(NO_FACTS)


class Lease(Struct, frozen=True, gc=False):
    """The content of an ack token.

    The delivery's ``handle`` at its ``broker``, the ``receiver`` that handed it out, its deadline at that time (Unix
    ms; a hint, as the broker's deadline decides), its attempts, and the facts of its message if they are not too long.
    """

    queue: str
    broker: str
    handle: str
    receiver: str
    deadline: int
    attempts: int
    facts: Facts = NO_FACTS


class TokenKey(Struct, frozen=True):
    """A signing key: ``id`` (1..32 ASCII characters) names it in tokens; ``secret`` has at least 32 bytes."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"TokenKey({self.id!r})"


class TokenSealer:
    """Seals and opens tokens. The first key signs, all verify."""

    def __init__(self, keys: Sequence[TokenKey]) -> None:
        if not keys:
            raise ValueError("a token sealer needs a key")
        self._macs = {key.id: hmac.new(key.secret, digestmod="sha256") for key in keys}
        self._mac = self._macs[keys[0].id]
        self._head = f"{_VERSION}\n{keys[0].id}\n"

    def seal(self, lease: Lease) -> str:
        """The token of ``lease``."""
        fields = (
            f"{self._head}{lease.queue}\n{lease.broker}\n{lease.handle}\n"
            f"{lease.receiver}\n{lease.deadline}\n{lease.attempts}\n"
        ).encode("ascii") + (_encoded_facts(lease.facts) or _encoded_facts(_essence(lease.facts)) or _ENCODED_NO_FACTS)
        text = urlsafe_b64encode(fields + b"  "[: -len(fields) % 3])
        return (text + _mac(self._mac, text)).decode("ascii")

    def open(self, token: str, queue: str) -> Lease:
        """The lease of ``token``. Raises InvalidAckToken when it is malformed, forged, or of another queue."""
        try:
            if len(token) > MAX_TOKEN_LENGTH:
                raise InvalidAckToken
            text, mac = token[:-_MAC_LENGTH].encode("ascii"), token[-_MAC_LENGTH:]
            # The MAC covers the encoded text, so that only the encoding that was issued is valid.
            fields = urlsafe_b64decode(text).decode()
            version, key, of_queue, broker, handle, receiver, deadline, attempts, facts = fields.split("\n")
            if (
                version != _VERSION
                or key not in self._macs
                or not hmac.compare_digest(_mac(self._macs[key], text), mac.encode("ascii"))
                or of_queue != queue
            ):
                raise InvalidAckToken
        except ValueError:
            raise InvalidAckToken from None
        return Lease(of_queue, broker, handle, receiver, int(deadline), int(attempts), _decode(facts))


def _encoded_facts(facts: Facts) -> bytes:
    """``facts`` as JSON; empty if it is too long, or if a foreign id contains a lone surrogate."""
    try:
        text = _encode(facts)
    except UnicodeEncodeError:
        return b""
    return text if len(text) <= _MAX_FACTS_BYTES else b""


def _essence(facts: Facts) -> Facts:
    """The facts that identify and measure the message."""
    return Facts(facts.attempts, facts.message_id, created_at=facts.created_at, size=facts.size)


def _mac(keyed: hmac.HMAC, text: bytes) -> bytes:
    mac = keyed.copy()
    mac.update(text)
    return urlsafe_b64encode(mac.digest()[:_MAC_BYTES])
