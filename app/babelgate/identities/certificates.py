"""Callers by the client certificates of their connections, which the server has verified."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from cryptography import x509

from babelgate.clock import Clock
from babelgate.errors import Forbidden, Unauthenticated
from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.limit_terms import RateTerms
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

MAX_NAMES = 100
"""A certificate with more alternative names matches no entry. OpenSSL refuses chains of more than 100 KiB."""
MAX_NAME = 300
"""Longest name that is compared, with its kind: more than a name of DNS has."""
SOON_SECONDS = 60.0
"""How long before the end of its certificate a connection closes after an answer: clients have renewed it by then."""
KINDS = ("DNS", "URI", "email")
"""The kinds of alternative names that are compared, as OpenSSL writes them:
https://docs.openssl.org/3.0/man5/x509v3_config/#subject-alternative-name"""

_NAME = re.compile(r"[!-)+-~]+")
"""Visible ASCII characters without ``*``: a certificate for many names is of none of them."""
_WILDCARDS = {"DNS": "[^.]+", "URI": "[^/?#]+", "email": "[^@]+"}
"""What ``*`` of a pattern stands for: a label, a segment of the path, the part before or after the ``@``."""
_throttled = LogThrottle(get_logger(__name__))


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """Whom a certificate with one alternative name is of. ``san``: see :func:`pattern_of`. ``name``: None for the
    alternative name that matches. ``limits``: None for those of all identities."""

    san: str
    name: str | None
    rights: Mapping[str, frozenset[Right]]
    limits: RateTerms | None = None


def pattern_of(san: str) -> re.Pattern[str]:
    """What ``KIND:name`` matches; ``*`` stands for one label or segment. Raises ValueError."""
    kind, _, name = san.partition(":")
    if kind not in KINDS or not name:
        raise ValueError("must begin with DNS:, URI: or email:, and have a name after it")
    if not _NAME.fullmatch(name.replace("*", "")) and name.strip("*"):
        raise ValueError("must have visible ASCII characters only")
    if kind == "email" and name.count("@") != 1:
        raise ValueError("must have one @ after email:, such as email:*@shop.example")
    return re.compile(_WILDCARDS[kind].join(map(re.escape, _comparable(kind, name).split("*"))))


def _comparable(kind: str, name: str) -> str:
    """``KIND:name`` in the form that is compared: the case of a name of DNS, or of a host of mail, means nothing."""
    if kind == "DNS":
        name = name.lower()
    elif kind == "email":
        local, at, host = name.rpartition("@")
        name = local + at + host.lower()
    return f"{kind}:{name}"


class ClientCertificate:
    """A verified certificate, and its caller: None for one that no rule names.

    ``anchor``: the SHA-256 of the certificate of the authority that its chain ends with. ``serial``: with its issuer.
    ``ends_at``: when the first certificate of the chain ends, Unix seconds.
    """

    __slots__ = ("__weakref__", "anchor", "caller", "ends_at", "names", "refused", "serial")

    def __init__(self, names: tuple[str, ...], ends_at: float, anchor: bytes, serial: tuple[bytes, int]) -> None:
        self.names = names
        self.ends_at = ends_at
        self.anchor = anchor
        self.serial = serial
        self.caller: Caller | None = None
        self.refused = False
        """Whether its authority is not trusted any more, or it was revoked."""

    def is_kept(self, now_ms: int) -> bool:
        """Whether its connection goes on after an answer. When it is over, or soon will be, the client has to connect
        again, with the certificate that it then has."""
        return not self.refused and now_ms < (self.ends_at - SOON_SECONDS) * 1000

    def admit(self, now_ms: int) -> Caller:
        """Its caller. Raises Unauthenticated if the certificate has ended, Forbidden if it matches no entry."""
        caller = self.caller
        if self.refused or self.ends_at * 1000 <= now_ms:
            raise Unauthenticated
        if caller is None:
            raise Forbidden(reason="No entry of `auth.certificates` matches a name of the client certificate.")
        return caller


@dataclass(frozen=True, slots=True)
class Trust:
    """Which certificates are trusted: the SHA-256 of those of the authorities, and what they have revoked: the issuer
    and the serial number of each."""

    anchors: frozenset[bytes]
    revoked: frozenset[tuple[bytes, int]] = frozenset()

    def covers(self, certificate: ClientCertificate) -> bool:
        """Whether a certificate that was verified once is still trusted."""
        return certificate.anchor in self.anchors and certificate.serial not in self.revoked


class Certificates:
    """The callers by client certificates of one process. The first rule that matches a name decides.

    A certificate is looked at once, when its first connection opens; all its connections share one caller.
    """

    def __init__(self, rules: Sequence[CertificateRule], clock: Clock) -> None:
        self._rules = self._compiled(rules)
        self._clock = clock
        self._trust: Trust | None = None
        self._known: WeakValueDictionary[bytes, ClientCertificate] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def use(self, rules: Sequence[CertificateRule]) -> None:
        """Replace the rules, for connections that are open as well. With fewer rights a caller's streams and long polls
        end."""
        self._rules = self._compiled(rules)
        for certificate in list(self._known.values()):
            before, after = certificate.caller, self._caller(certificate)
            if before is None or after is None:
                certificate.caller = after
                if before is not None:
                    before.revoke()
            elif not certificate.refused:
                before.become(after)

    def trust(self, trust: Trust) -> None:
        """Replace what is trusted. The callers of certificates that are not any more end."""
        self._trust = trust
        for certificate in list(self._known.values()):
            # What was refused stays so: its connection was made under other terms.
            if not certificate.refused and not trust.covers(certificate):
                self._refuse(certificate)

    def of(self, connection: ssl.SSLObject) -> ClientCertificate | None:
        """The certificate of a connection whose handshake is done; None if its client has shown none."""
        chain = _verified_chain(connection)
        if not chain:
            return None
        digest = hashlib.sha256(b"".join(chain)).digest()
        known = self._known.get(digest)
        # One that was refused may have been trusted again before this connection.
        if known is not None and not known.refused:
            return known
        certificate = _read(connection, chain)
        if self._trust is not None and not self._trust.covers(certificate):
            # It has changed during the handshake.
            certificate.refused = True
            return certificate
        certificate.caller = self._caller(certificate)
        if certificate.caller is None and self._rules:
            _throttled.warning("client certificate of nobody", names=list(certificate.names[:3]))
        self._known[digest] = certificate
        return certificate

    def _refuse(self, certificate: ClientCertificate) -> None:
        certificate.refused = True
        if certificate.caller is not None:
            certificate.caller.revoke()

    @staticmethod
    def _compiled(rules: Sequence[CertificateRule]) -> list[tuple[re.Pattern[str], CertificateRule]]:
        return [(pattern_of(rule.san), rule) for rule in rules]

    def _caller(self, certificate: ClientCertificate) -> Caller | None:
        for pattern, rule in self._rules:
            for name in certificate.names:
                if pattern.fullmatch(name):
                    ends_at = certificate.ends_at
                    return Caller(rule.name or name, rule.rights, ends_at=ends_at, limits=rule.limits)
        return None


def _read(connection: ssl.SSLObject, chain: Sequence[bytes]) -> ClientCertificate:
    shown: Mapping[str, Any] = connection.getpeercert() or {}
    alternatives: Sequence[tuple[str, str]] = shown.get("subjectAltName", ())
    names = [
        _comparable(kind, name)
        for kind, name in (alternatives if len(alternatives) <= MAX_NAMES else ())
        if kind in KINDS and len(name) <= MAX_NAME and _NAME.fullmatch(name)
    ]
    anchor = hashlib.sha256(chain[-1]).digest()
    try:
        parsed = [x509.load_der_x509_certificate(each) for each in chain]
        ends_at = min(each.not_valid_after_utc.timestamp() for each in parsed)
        serial = parsed[0].issuer.public_bytes(), parsed[0].serial_number
    except (ValueError, x509.InvalidVersion):
        # OpenSSL takes more than this. A certificate whose dates or serial number cannot be read names no one.
        return ClientCertificate((), 0.0, anchor, (b"", 0))
    return ClientCertificate(tuple(names), ends_at, anchor, serial)


def _verified_chain(connection: Any) -> list[bytes]:
    """The certificates, DER, by which OpenSSL has verified the client's, which is the first; empty without one."""
    if hasattr(connection, "get_verified_chain"):
        return list(connection.get_verified_chain() or ())
    # Python has had it since 3.10, and a public name for it since 3.13:
    # https://docs.python.org/3/library/ssl.html#ssl.SSLSocket.get_verified_chain
    return [each.public_bytes(_DER) for each in connection._sslobj.get_verified_chain() or ()]


_DER = 2
"""``_ssl.ENCODING_DER``."""
