"""Encrypts what only peers may read of what they send each other: calls between them are signed and not encrypted."""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from babelgate.gateway.ack_tokens import TokenKey

_CONTEXT = b"babelgate pushes 1"
"""Makes the cipher's key another one than those of ack tokens, sessions and signatures."""
_NONCE_BYTES = 16


class PeerCipher:
    """Seals with the first key and opens with all, by AES-SIV (RFC 5297) with a nonce, so that equal texts differ."""

    def __init__(self, keys: Sequence[TokenKey]) -> None:
        self._ciphers = {key.id: AESSIV(hmac.digest(key.secret, _CONTEXT, "sha512")) for key in keys}
        self._id = keys[0].id

    def seal(self, text: bytes) -> str:
        """``text``, encrypted: the id of the key, a colon and base64."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._id].encrypt(text, [_CONTEXT, nonce])
        return f"{self._id}:{b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str) -> bytes:
        """The text. Raises ValueError for what no holder of a known key has sealed."""
        key_id, _, text = sealed.rpartition(":")
        data = b64decode(text, validate=True)
        if key_id not in self._ciphers:
            raise ValueError("it is sealed with an unknown key")
        try:
            return self._ciphers[key_id].decrypt(data[_NONCE_BYTES:], [_CONTEXT, data[:_NONCE_BYTES]])
        except InvalidTag:
            raise ValueError("it was altered, or sealed with another key") from None
