"""Signs calls between gateways that share a token key, and verifies them; no secret is sent.

A request carries ``key-id timestamp nonce target digest mac``: Unix milliseconds, a random word, the incarnation that
must answer (``-``: any), the SHA-256 of the body, and the HMAC over these fields, the method and the path. The MAC is
checked before the body is read. An answer carries the HMAC over the request's MAC, its status and its body. Signed
data is not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence

from babelgate.clock import Clock
from babelgate.errors import Unauthenticated
from babelgate.gateway.ack_tokens import TokenKey

HEADER = "babelgate-signature"
ANYBODY = "-"
MAX_AGE_MS = 60_000
"""Requests older or newer than this are refused. Repeating a settle within this time has no effect."""
_CONTEXT = b"babelgate peer"


class Proof:
    """The signature of a request, and the key that signs its answer."""

    __slots__ = ("_digest", "_key", "_mac", "header", "target")

    def __init__(self, key: hmac.HMAC, header: str, target: str, digest: str, mac: str) -> None:
        self._key = key
        self.header = header
        self.target = target
        self._digest = digest
        self._mac = mac

    def covers(self, body: bytes) -> bool:
        """Whether ``body`` is the body that was signed."""
        return hmac.compare_digest(hashlib.sha256(body).hexdigest(), self._digest)

    def of_answer(self, status: int, body: bytes) -> str:
        """The signature of an answer to this request."""
        return _mac(self._key, b"answer %s %d\n%b" % (self._mac.encode(), status, body))

    def is_answered_by(self, signature: str, status: int, body: bytes) -> bool:
        """Whether ``signature`` is that of this answer, made by a holder of the key."""
        return hmac.compare_digest(self.of_answer(status, body).encode(), signature.encode("utf-8", "replace"))


class Signer:
    """Signs with the first key and verifies with all. Each signing key is derived from the secret of a token key."""

    def __init__(self, keys: Sequence[TokenKey], clock: Clock) -> None:
        self._keys = {key.id: hmac.new(_derived(key), digestmod="sha256") for key in keys}
        self._id = keys[0].id
        self._clock = clock

    def sign(self, method: str, path: str, target: str, body: bytes) -> Proof:
        """The proof of a request to the incarnation ``target``; send its ``header`` as HEADER."""
        key = self._keys[self._id]
        digest = hashlib.sha256(body).hexdigest()
        text = f"{self._id} {self._clock()} {os.urandom(8).hex()} {target} {digest}"
        mac = _mac(key, f"{method} {path} {text}".encode("ascii"))
        return Proof(key, f"{text} {mac}", target, digest, mac)

    def verify(self, method: str, path: str, header: bytes) -> Proof:
        """The proof of a received request. Raises Unauthenticated for a bad, old or unknown signature."""
        try:
            text = header.decode("ascii")
            signed, _, mac = text.rpartition(" ")
            key_id, timestamp, _, target, digest = signed.split(" ")
            key, age = self._keys[key_id], abs(self._clock() - int(timestamp))
            good = hmac.compare_digest(_mac(key, f"{method} {path} {signed}".encode()), mac)
        except (ValueError, KeyError):
            raise Unauthenticated from None
        if not good or age > MAX_AGE_MS:
            raise Unauthenticated
        return Proof(key, text, target, digest, mac)


def _derived(key: TokenKey) -> bytes:
    return hmac.digest(key.secret, _CONTEXT, "sha256")


def _mac(key: hmac.HMAC, text: bytes) -> str:
    mac = key.copy()
    mac.update(text)
    return mac.hexdigest()
