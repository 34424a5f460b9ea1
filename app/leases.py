"""Ack tokens: signed, opaque, self-routing proofs of a lease.

A token is base64url without padding of ``version key_id payload mac``: one byte of version, one byte of key-id length,
the key id, the payload fields joined by line feeds, and the first 16 bytes of HMAC-SHA256 over all that stands before.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import InvalidAckToken

MAX_TOKEN_LENGTH = 1024
_VERSION = 1
_MAC_BYTES = 16


@dataclass(frozen=True, slots=True)
class Lease:
    """What an ack token says: the delivery's ``handle`` at its ``broker``, the ``receiver`` that handed it out, the
    deadline it had then (Unix ms, a hint: the broker's is the truth), and the attempts it was handed out with."""

    queue: str
    broker: str
    handle: str
    receiver: str
    deadline: int
    attempts: int


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A signing key: ``id`` (1..32 ASCII characters) names it in tokens; ``secret`` has at least 32 bytes."""

    id: str
    secret: bytes


class TokenSealer:
    """Seals and opens tokens. The first key signs, all verify."""

    def __init__(self, keys: Sequence[TokenKey]) -> None:
        if not keys:
            raise ValueError("a token sealer needs a key")
        self._secrets = {key.id.encode("ascii"): key.secret for key in keys}
        first = keys[0].id.encode("ascii")
        self._secret = keys[0].secret
        self._head = bytes([_VERSION, len(first)]) + first

    def seal(self, lease: Lease) -> str:
        """The token of ``lease``."""
        signed = self._head + (
            f"{lease.queue}\n{lease.broker}\n{lease.handle}\n{lease.receiver}\n{lease.deadline}\n{lease.attempts}"
        ).encode("ascii")
        mac = hmac.digest(self._secret, signed, hashlib.sha256)[:_MAC_BYTES]
        return urlsafe_b64encode(signed + mac).rstrip(b"=").decode("ascii")

    def open(self, token: str, queue: str) -> Lease:
        """The lease of ``token``. Raises InvalidAckToken when it is malformed, forged, or of another queue."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise InvalidAckToken
        try:
            raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except ValueError:
            raise InvalidAckToken from None
        # The decoder skips foreign characters and spare bits; only the one spelling that was issued is good.
        if urlsafe_b64encode(raw).rstrip(b"=") != token.encode("ascii"):
            raise InvalidAckToken
        if len(raw) < 2 + _MAC_BYTES or raw[0] != _VERSION:
            raise InvalidAckToken
        signed, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        start = 2 + raw[1]
        secret = self._secrets.get(signed[2:start])
        if secret is None or not hmac.compare_digest(hmac.digest(secret, signed, hashlib.sha256)[:_MAC_BYTES], mac):
            raise InvalidAckToken
        of_queue, broker, handle, receiver, deadline, attempts = signed[start:].decode("ascii").split("\n")
        if of_queue != queue:
            raise InvalidAckToken
        return Lease(of_queue, broker, handle, receiver, int(deadline), int(attempts))
