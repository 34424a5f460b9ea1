"""Sessions of the console: what a browser keeps in its cookies, encrypted.

A cookie is base64url, without padding, of a version byte, four bytes that identify the key, and the content. AES-SIV
(RFC 5297) encrypts and authenticates the content with keys derived from those of ack tokens, so that any replica opens
a session. It contains the SHA-256 of the user's bearer token, never the token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.gateway.ack_tokens import TokenKey

SESSION_SECONDS = 8 * 3_600
"""A working day: after it a user signs in again."""
SESSION_COOKIE = "babelgate_session"
NOTICE_COOKIE = "babelgate_notice"
_NOTICE_MS = 60_000
"""How long a browser may take to show the page after the one that an action was taken on."""
_MAX_NOTICE = 1_000
_MAX_COOKIE = 4_096
"""Browsers keep cookies up to this size: https://www.rfc-editor.org/rfc/rfc6265#section-6.1"""
_VERSION = b"\x01"
_HEAD_BYTES = 5
_CONTEXT = b"babelgate console session 1"
"""Makes the cipher's key another one than that of ack tokens."""
_CSRF_BYTES = 24


class Session(Struct, frozen=True, array_like=True):
    """``credential``: the SHA-256 of the user's token in lower-case hexadecimal, empty before the sign-in and without
    configured credentials. ``csrf``: the text that each form of the session contains. ``ends_at`` in Unix ms.
    ``ticket``: by which other processes know the holder of a token of an issuer."""

    credential: str
    csrf: str
    ends_at: int
    ticket: bytes = b""


class _Notice(Struct, frozen=True, array_like=True, tag="notice"):
    text: str
    ends_at: int


class Sessions:
    """Seals and opens the cookies. The first key seals, all open."""

    def __init__(self, keys: Sequence[TokenKey], clock: Clock) -> None:
        self._clock = clock
        self._head = _head(keys[0])
        self._ciphers = {_head(key): AESSIV(hmac.digest(key.secret, _CONTEXT, "sha512")) for key in keys}

    def begin(self, credential: str = "", ends_at: float | None = None, ticket: bytes = b"") -> Session:
        """A new session with a new CSRF token. ``ends_at``: of the credential, Unix seconds; None: it does not end."""
        ends_ms = self._clock() + SESSION_SECONDS * 1_000
        if ends_at is not None:
            ends_ms = min(ends_ms, int(ends_at * 1_000))
        return Session(credential, secrets.token_urlsafe(_CSRF_BYTES), ends_ms, ticket)

    def seal(self, session: Session) -> str:
        """The value of the cookie of ``session``."""
        return self._sealed(SESSION_COOKIE, msgspec.msgpack.encode(session))

    def open(self, cookie: str | None) -> Session | None:
        """The session of a cookie's value; None if it was not sealed here, or has ended."""
        try:
            found = msgspec.msgpack.decode(self._opened(SESSION_COOKIE, cookie), type=Session)
        except (ValueError, KeyError, InvalidTag, msgspec.MsgspecError):
            return None
        return found if self._clock() < found.ends_at else None

    def seal_notice(self, text: str) -> str:
        """The value of a cookie with a sentence for the next page, shortened."""
        notice = _Notice(text[:_MAX_NOTICE], self._clock() + _NOTICE_MS)
        return self._sealed(NOTICE_COOKIE, msgspec.msgpack.encode(notice))

    def open_notice(self, cookie: str | None) -> str | None:
        """The sentence of a cookie's value; None if it was not sealed here, or is more than a minute old."""
        try:
            found = msgspec.msgpack.decode(self._opened(NOTICE_COOKIE, cookie), type=_Notice)
        except (ValueError, KeyError, InvalidTag, msgspec.MsgspecError):
            return None
        return found.text if self._clock() < found.ends_at else None

    def _sealed(self, name: str, content: bytes) -> str:
        cipher = self._ciphers[self._head]
        sealed = self._head + cipher.encrypt(content, [self._head, name.encode()])
        return urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")

    def _opened(self, name: str, cookie: str | None) -> bytes:
        """The content of a cookie. Raises ValueError, KeyError or InvalidTag for one that was not sealed here."""
        if not cookie or len(cookie) > _MAX_COOKIE:
            raise ValueError(name)
        text = cookie.encode("ascii")
        sealed = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
        head = sealed[:_HEAD_BYTES]
        return self._ciphers[head].decrypt(sealed[_HEAD_BYTES:], [head, name.encode()])


def _head(key: TokenKey) -> bytes:
    return _VERSION + hashlib.sha256(key.id.encode()).digest()[: _HEAD_BYTES - 1]
