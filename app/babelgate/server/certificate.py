"""Warns of a certificate that clients refuse, or will refuse soon, because of its dates."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from babelgate.clock import utc_text

SOON_SECONDS = 14 * 86_400
"""How long before its end a certificate is warned of: programs that renew certificates have done so by then."""

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which Python has no name for:
https://docs.openssl.org/3.0/man3/X509_VERIFY_PARAM_set_flags/"""

_MOST_STEPS = 10
"""A handshake takes three."""


def date_warnings(certificate: Path, key: Path, now_ms: int) -> list[str]:
    """A sentence about a certificate that is not valid at ``now_ms`` (Unix ms), or not for long; empty for a file that
    cannot be read, which the start-up checks refuse."""
    with contextlib.suppress(OSError, ValueError):
        begins, ends = _dates(certificate, key)
        now = now_ms / 1000
        if now < begins:
            return [f"tls_cert: the certificate in {certificate} is valid from {_day(begins)} on: clients refuse it"]
        if now >= ends:
            return [f"tls_cert: the certificate in {certificate} has expired on {_day(ends)}: clients refuse it"]
        if now >= ends - SOON_SECONDS:
            return [f"tls_cert: the certificate in {certificate} expires on {_day(ends)}"]
    return []


def _dates(certificate: Path, key: Path) -> tuple[float, float]:
    """When the first certificate of the file begins and ends, in Unix seconds: as a client reads it in a handshake.

    Raises OSError for one that cannot be loaded, and ValueError for one that is not for servers.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate, key, password="")
    client.load_verify_locations(certificate)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for step in range(_MOST_STEPS):
        with contextlib.suppress(ssl.SSLWantReadError):
            ends[step % 2].do_handshake()
    found = ends[0].getpeercert()
    if not found:
        raise ValueError(certificate)
    return ssl.cert_time_to_seconds(str(found["notBefore"])), ssl.cert_time_to_seconds(str(found["notAfter"]))


def _day(seconds: float) -> str:
    return f"{utc_text(round(seconds * 1_000), 'minutes')} UTC"
