"""Encrypts bodies that the gateway itself keeps on a disk, by AES-256-GCM.

An encrypted body is MARK, 1, the length of the key's id and the id, a nonce of 12 random bytes, and what AES-GCM makes
of the body and the context. A plain body that begins with MARK is stored as MARK, 0 and the body, so that no plain body
can be taken for an encrypted one.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from babelgate.errors import BrokerError

MARK = b"\x00bg\xf5\x9c\xd1\x07\xe2"
"""How stored bodies begin that are not the body itself. No UTF-8 text contains it."""

_PLAIN, _ENCRYPTED = 0, 1
_KEY = b"babelgate bodies 1"
"""Makes the keys of bodies others than those that the same secret may have elsewhere."""
_NONCE_BYTES = 12


class BodyUnreadable(BrokerError):
    """A message on the broker {broker} cannot be decrypted: {reason}. It stays where it is."""

    code = "body_unreadable"
    retryable = True


class BodyKey(Struct, frozen=True):
    """A key of bodies: its ``id``, at most 32 ASCII characters, and a secret of at least 32 bytes."""

    id: str
    secret: bytes


class BodyCipher:
    """Encrypts with the first of ``keys``, and decrypts with all. Without keys it only reads plain bodies. Immutable,
    and usable by several threads at once."""

    def __init__(self, keys: Sequence[BodyKey] = ()) -> None:
        self._ciphers = {key.id.encode(): AESGCM(hmac.digest(key.secret, _KEY, "sha256")) for key in keys}
        self._head = b""
        if keys:
            id = keys[0].id.encode()
            self._first = self._ciphers[id]
            self._head = MARK + bytes((_ENCRYPTED, len(id))) + id

    @property
    def has_keys(self) -> bool:
        """Whether it can encrypt."""
        return bool(self._ciphers)

    def encrypted(self, body: bytes, context: str) -> bytes:
        """``body``, encrypted; it is decrypted with the same ``context`` only. Needs a key."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._head + nonce + self._first.encrypt(nonce, body, context.encode())

    def decrypted(self, stored: bytes, context: str, broker: str) -> bytes:
        """The body that was stored, plain or encrypted. Raises BodyUnreadable."""
        if not stored.startswith(MARK):
            return stored
        start = len(MARK) + 1
        if stored[start - 1 : start] == bytes((_PLAIN,)):
            return stored[start:]
        end = start + 1 + int.from_bytes(stored[start : start + 1], "big")
        id = stored[start + 1 : end]
        cipher = self._ciphers.get(id)
        if cipher is None:
            reason = f"body_keys has no key with the id {id.decode('ascii', 'backslashreplace')!r}"
            raise BodyUnreadable(broker, reason)
        nonce, data = stored[end : end + _NONCE_BYTES], stored[end + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, data, context.encode())
        except (InvalidTag, ValueError):
            reason = f"it was altered, or the key {id.decode()!r} has another secret than when it was stored"
            raise BodyUnreadable(broker, reason) from None


def journal_context(queue: str) -> str:
    """The context of the bodies of ``queue`` in the journal: another one than in the file of a broker, because no name
    of a queue has a colon."""
    return f"journal:{queue}"


def is_encrypted(stored: bytes) -> bool:
    """Whether ``stored`` is an encrypted body."""
    return stored.startswith(MARK + bytes((_ENCRYPTED,)))


def plain(body: bytes) -> bytes:
    """``body`` as it is stored without encryption."""
    return MARK + bytes((_PLAIN,)) + body if body.startswith(MARK) else body
