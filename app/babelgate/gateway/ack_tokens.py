"""Ack tokens: encrypted, opaque, self-routing proofs of a lease.

A token is base64url, without padding, of a version byte, four bytes that identify the key, and the content. AES-SIV
(RFC 5297) encrypts the content and authenticates it together with the queue's name. The content is a MessagePack array:
what a settle needs, and the facts of the message, so that a settle can report which message it was. AES-SIV needs no
nonce, so no number of tokens wears a key out.

The leases of the latest tokens are kept until they are settled, so that the process that sealed a token need not
decrypt it.

Tokens of version 1 were signed and readable. They are still opened, so that their leases outlive an upgrade.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from msgspec import Struct
from msgspec.structs import replace

from babelgate.brokers.route import BrokerRoute
from babelgate.errors import InvalidAckToken
from babelgate.observe.events import Facts
from babelgate.runtime.cache import Cache

MAX_TOKEN_LENGTH = 4608
"""In characters: enough for a handle of :data:`babelgate.brokers.binding.MAX_HANDLE_LENGTH`, the facts and the
names."""

_LEASES_BYTES = 32 * 1024 * 1024
_LEASE_BYTES = 8_000
"""Most bytes of a remembered lease: a handle and facts of the greatest length. About 4,000 leases are remembered."""
_USUAL_BYTES = 204
"""The content of a token of 300 characters. Facts of the message are left out where they do not fit."""
_LEAST_FACTS_BYTES = 48
"""Enough to identify and measure a message whose id is a UUID."""
_MAX_FACTS_BYTES = 1024
"""Most bytes of the facts beside a handle that is too long for a token of 300 characters."""
_MALFORMED = "is malformed: send it as the receive returned it"
_UNKNOWN_KEY = "was not issued by this gateway, or with a token key that it no longer has"
_OTHER_QUEUE = "does not belong to the queue {}, or was altered"
"""The causes of an invalid token, as clauses."""
_VERSION = b"\x02"
_STICKY = "~"
_HEAD_BYTES = 5
_CONTEXT = b"babelgate ack token 2"
"""Makes the cipher's key another one than those that sign calls between gateways and tokens of version 1."""
_SIGNED_START = "MQ"
"""The first bits of a token of version 1; one of version 2 starts with ``A``."""
_MAC_BYTES = 18
_MAC_LENGTH = 24
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch
_hex_start = re.compile(r"[0-9a-f]*").match
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16}-[0-9a-f]{2})")

_Packable = Any
"""None, a string, or its bytes; msgspec has no type for this union."""

NO_FACTS = Facts()


class Lease(Struct, frozen=True, gc=False):
    """The content of an ack token.

    The delivery's ``handle`` at its ``broker``, the ``receiver`` that handed it out, its deadline at that time (Unix
    ms; a hint, as the broker's deadline decides), its attempts, and the facts of its message if they are not too long.
    ``sticky``: the receiver has to see the settle, also where any process could do it. ``place``: of the route
    (:attr:`babelgate.brokers.route.BrokerRoute.place`); 0 in tokens of versions that did not have it.
    """

    queue: str
    broker: str
    handle: str
    receiver: str
    deadline: int
    attempts: int
    facts: Facts = NO_FACTS
    sticky: bool = False
    place: int = 0

    def is_at(self, route: BrokerRoute) -> bool:
        """Whether the lease is one of the native queue of ``route``."""
        return self.place == route.place if self.place else self.broker == route.broker


class TokenKey(Struct, frozen=True):
    """A signing key: ``id`` (1..32 ASCII characters) names it in tokens; ``secret`` has at least 32 bytes."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"TokenKey({self.id!r})"


class _PackedFacts(Struct, frozen=True, array_like=True, gc=False):
    """Facts of a message, with UUIDs and trace contexts as bytes. In a ``traceparent`` of 9 bytes the trace id is the
    ``trace_id``."""

    attempts: int | None = None
    message_id: _Packable = None
    trace_id: _Packable = None
    job: str | None = None
    created_at: int | None = None
    lang: str | None = None
    size: int | None = None
    traceparent: _Packable = None


class _Content(Struct, frozen=True, array_like=True, gc=False):
    """The encrypted part of a token. The pairs of hexadecimal digits that a handle starts with are bytes. The receiver
    of a sticky lease has the prefix _STICKY. Earlier versions have no ``place``, and ignore it."""

    broker: str
    handle_start: bytes
    handle_rest: str
    receiver: str
    deadline: int
    attempts: int
    facts: _PackedFacts
    place: int = 0


_NO_PACKED_FACTS = _PackedFacts()
_LEFT_OUT: Sequence[dict[str, None]] = [
    dict.fromkeys(("traceparent",)),
    dict.fromkeys(("traceparent", "job", "lang")),
    dict.fromkeys(("traceparent", "job", "lang", "trace_id")),
]
"""What a token leaves out, in steps, until its facts fit."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Content).decode
_decode_signed_facts = msgspec.json.Decoder(Facts).decode


class TokenSealer:
    """Seals and opens tokens. The first key seals, all open."""

    def __init__(self, keys: Sequence[TokenKey]) -> None:
        if not keys:
            raise ValueError("a token sealer needs a key")
        self._head = _head(keys[0])
        self._ciphers = {_head(key): AESSIV(hmac.digest(key.secret, _CONTEXT, "sha512")) for key in keys}
        self._cipher = self._ciphers[self._head]
        self._macs = {key.id: hmac.new(key.secret, digestmod="sha256") for key in keys}
        self._leases: Cache[str, Lease] = Cache(_LEASES_BYTES, _LEASE_BYTES)

    def seal(self, lease: Lease) -> str:
        """The token of ``lease``."""
        content, whole = _content(lease)
        # One associated value: each further one costs a third of the encryption.
        token = _text(self._head + self._cipher.encrypt(content, [self._head + lease.queue.encode()])).decode()
        if whole:
            self._leases.keep(token, lease)
        return token

    def open(self, token: str, queue: str, *, keep: bool = True) -> Lease:
        """The lease of ``token``. ``keep``: the token may be opened again.

        Raises InvalidAckToken when it is malformed, forged, or of another queue.
        """
        lease = self._leases.get(token)
        if lease is not None and lease.queue == queue:
            if not keep:
                self._leases.forget(token)
            return lease
        if len(token) > MAX_TOKEN_LENGTH:
            raise InvalidAckToken(_MALFORMED)
        try:
            lease = self._open_signed(token, queue) if token.startswith(_SIGNED_START) else self._open(token, queue)
        except ValueError:
            raise InvalidAckToken(_MALFORMED) from None
        except KeyError:
            raise InvalidAckToken(_UNKNOWN_KEY) from None
        except InvalidTag:
            # The queue is authenticated with the content, so the two causes look the same.
            raise InvalidAckToken(_OTHER_QUEUE.format(queue)) from None
        if keep:
            self._leases.keep(token, lease)
        return lease

    def _open(self, token: str, queue: str) -> Lease:
        text = token.encode("ascii")
        sealed = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
        # Decoding skips foreign characters and unused bits, but only the encoding that was issued is valid.
        if _text(sealed) != text or not sealed.startswith(_VERSION):
            raise InvalidAckToken(_MALFORMED)
        head = sealed[:_HEAD_BYTES]
        content = _decode(self._ciphers[head].decrypt(sealed[_HEAD_BYTES:], [head + queue.encode()]))
        return Lease(
            queue,
            content.broker,
            content.handle_start.hex() + content.handle_rest,
            content.receiver.removeprefix(_STICKY),
            content.deadline,
            content.attempts,
            _unpacked(content.facts),
            content.receiver.startswith(_STICKY),
            content.place,
        )

    def _open_signed(self, token: str, queue: str) -> Lease:
        """The lease of a token of version 1: fields joined by line feeds, and the start of their HMAC-SHA256."""
        text, mac = token[:-_MAC_LENGTH].encode("ascii"), token[-_MAC_LENGTH:].encode("ascii")
        version, key, of_queue, broker, handle, receiver, deadline, attempts, facts = (
            urlsafe_b64decode(text).decode().split("\n")
        )
        keyed = self._macs[key].copy()
        keyed.update(text)
        good = hmac.compare_digest(_text(keyed.digest()[:_MAC_BYTES]), mac)
        if version != "1":
            raise InvalidAckToken(_MALFORMED)
        if not good or of_queue != queue:
            raise InvalidAckToken(_OTHER_QUEUE.format(queue))
        return Lease(queue, broker, handle, receiver, int(deadline), int(attempts), _decode_signed_facts(facts))


def _text(data: bytes) -> bytes:
    """``data`` in base64url without padding."""
    return b2a_base64(data, newline=False).translate(_URL_SAFE, b"=")


def _head(key: TokenKey) -> bytes:
    return _VERSION + hashlib.sha256(key.id.encode()).digest()[: _HEAD_BYTES - 1]


def _content(lease: Lease) -> tuple[bytes, bool]:
    """The content of the token of ``lease``, with those facts of its message that fit, and whether all do."""
    split = _hex_start(lease.handle).end() & ~1  # type: ignore[union-attr]  # it matches every text
    handle_start, handle_rest = bytes.fromhex(lease.handle[:split]), lease.handle[split:]
    facts = _packed(lease.facts)
    receiver = _STICKY + lease.receiver if lease.sticky else lease.receiver
    where = lease.broker, handle_start, handle_rest, receiver
    content = _Content(*where, lease.deadline, lease.attempts, facts, lease.place)
    encoded = _encoded(content)
    if encoded and len(encoded) <= _USUAL_BYTES:
        return encoded, True
    bare = _encode(replace(content, facts=_NO_PACKED_FACTS))
    fits = len(bare) + _LEAST_FACTS_BYTES <= _USUAL_BYTES
    most = _USUAL_BYTES if fits else len(bare) + _MAX_FACTS_BYTES
    for left_out in ({}, *_LEFT_OUT):
        encoded = _encoded(replace(content, facts=replace(facts, **left_out)))
        if encoded and len(encoded) <= most:
            return encoded, not left_out
    return bare, facts is _NO_PACKED_FACTS


def _encoded(content: _Content) -> bytes:
    """``content``; empty if a foreign id in it contains a lone surrogate."""
    try:
        return _encode(content)
    except UnicodeEncodeError:
        return b""


def _packed(facts: Facts) -> _PackedFacts:
    if facts is NO_FACTS:
        return _NO_PACKED_FACTS
    traceparent: _Packable = facts.traceparent
    trace_id = _packed_uuid(facts.trace_id)
    if traceparent is not None and (match := _TRACEPARENT.fullmatch(facts.traceparent or "")):
        trace, rest = match.groups()
        traceparent = bytes.fromhex(trace + rest.replace("-", ""))
        if traceparent[:16] == trace_id:
            traceparent = traceparent[16:]
    return _PackedFacts(
        facts.attempts,
        _packed_uuid(facts.message_id),
        trace_id,
        facts.job,
        facts.created_at,
        facts.lang,
        facts.size,
        traceparent,
    )


def _unpacked(facts: _PackedFacts) -> Facts:
    traceparent = facts.traceparent
    if isinstance(traceparent, bytes):
        shared = facts.trace_id if len(traceparent) == 9 and isinstance(facts.trace_id, bytes) else b""
        digits = (shared + traceparent).hex()
        traceparent = f"00-{digits[:32]}-{digits[32:48]}-{digits[48:]}"
    return Facts(
        facts.attempts,
        _unpacked_uuid(facts.message_id),
        _unpacked_uuid(facts.trace_id),
        facts.job,
        facts.created_at,
        facts.lang,
        facts.size,
        traceparent,
    )


def _packed_uuid(text: str | None) -> _Packable:
    return bytes.fromhex(text.replace("-", "")) if text is not None and _is_uuid(text) else text


def _unpacked_uuid(packed: _Packable) -> str | None:
    if packed is None or isinstance(packed, str):
        return packed
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
