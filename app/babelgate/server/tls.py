"""The TLS of new connections: certificate, key, authorities of clients and what they revoked, read again when the files
change.

Each reading makes a context of its own, and new handshakes use the newest. Connections keep theirs. A reading that
fails changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from babelgate.clock import Clock, now_ms
from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from babelgate.identities.certificates import Certificates, ClientCertificate, Trust
from babelgate.observe.logs import get_logger
from babelgate.server.certificate import date_warnings

TLS = "babelgate.tls"
"""The key of the process's ServerTls in the lifespan's state, which the server passes to its connections."""
LOOK_SECONDS = 5.0
"""How often the files are looked at."""
_SETTLED_SECONDS = 0.5
"""How long the files must stay the same before they are read: a certificate and its key are often two writes."""
_CIPHERS = "TLSv1"
"""OpenSSL's name of all ciphers of TLS 1.0 and later; Python allows TLS 1.2 and later only. Also uvicorn's default."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files, and whether clients must have a certificate. Without ``client_ca`` they are not asked for one."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_crl: Path | None = None
    required: bool = False

    def digests(self) -> tuple[bytes | None, ...]:
        """What is in the files; None for one that cannot be read."""
        return tuple(map(_digest, filter(None, (self.cert, self.key, self.client_ca, self.client_crl))))


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one reading of the files gave. ``ends_at``: when the certificate ends, Unix seconds, if that can be read."""

    context: ssl.SSLContext
    ends_at: float | None
    trust: Trust


def tls_files(settings: Settings) -> TlsFiles | None:
    """The files of a configuration; None without TLS."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    required = settings.tls_client_auth == "required"
    return TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_client_crl, required)


def load_tls(files: TlsFiles) -> Loaded:
    """Read the files. Raises ConfigError naming the key of one that cannot be used."""
    for key, path in (
        ("tls_cert", files.cert),
        ("tls_key", files.key),
        ("tls_client_ca", files.client_ca),
        ("tls_client_crl", files.client_crl),
    ):
        # Path.is_file raises for a directory that may not be read, and for a stale handle.
        if path is not None and not os.path.isfile(path):
            raise ConfigError(key=key, reason=f"{path} is not a file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(_CIPHERS)
    try:
        # The empty password keeps OpenSSL from asking the terminal for one.
        context.load_cert_chain(files.cert, files.key, password="")
    except ssl.SSLError as error:
        why = error.reason.replace("_", " ").lower() if error.reason else "not PEM, or the key is encrypted"
        raise ConfigError(key="tls_cert", reason=f"cannot be used with tls_key: {why}") from None
    except OSError as error:
        raise ConfigError(key="tls_cert", reason=f"cannot be read with tls_key: {error.strerror}") from None
    ends_at = _ends_at(files.cert)
    if files.client_ca is None:
        return Loaded(context, ends_at, Trust(frozenset()))
    _ask_for_certificates(context, files, files.client_ca)
    return Loaded(context, ends_at, Trust(_anchors(files.client_ca), _revoked(files.client_crl)))


def _ends_at(path: Path) -> float | None:
    """When the first certificate of a file ends; None for one that OpenSSL can read and this cannot."""
    with contextlib.suppress(OSError, ValueError, IndexError, x509.InvalidVersion):
        return x509.load_pem_x509_certificates(path.read_bytes())[0].not_valid_after_utc.timestamp()
    return None


def _anchors(path: Path) -> frozenset[bytes]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
        return frozenset(each.fingerprint(hashes.SHA256()) for each in found)
    except (OSError, ValueError, x509.InvalidVersion):
        raise ConfigError(key="tls_client_ca", reason=f"{path} has a certificate that cannot be read") from None


def _ask_for_certificates(context: ssl.SSLContext, files: TlsFiles, authorities: Path) -> None:
    context.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
    # A resumed session would bring a certificate that was not verified again: one whose authority or rights are
    # gone. TLS 1.3 resumes by tickets only, and no ticket is given out.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    for key, path in (("tls_client_ca", authorities), ("tls_client_crl", files.client_crl)):
        try:
            if path is not None:
                context.load_verify_locations(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else "not PEM"
            raise ConfigError(key=key, reason=f"{path} cannot be read: {why}") from None
    # Who names an authority below another trusts that one alone.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if files.client_crl is not None:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


_CRL_END = b"-----END X509 CRL-----"


def _revoked(path: Path | None) -> frozenset[tuple[bytes, int]]:
    if path is None:
        return frozenset()
    found: set[tuple[bytes, int]] = set()
    try:
        lists = [part + _CRL_END for part in path.read_bytes().split(_CRL_END)[:-1]]
        if not lists:
            raise ValueError("no list")
        for each in map(x509.load_pem_x509_crl, lists):
            issuer = each.issuer.public_bytes()
            found.update((issuer, revoked.serial_number) for revoked in each)
    except (OSError, ValueError, x509.InvalidVersion):
        raise ConfigError(key="tls_client_crl", reason=f"{path} has no revocation list in PEM") from None
    return frozenset(found)


class ServerTls:
    """The TLS of one process. ``certificates``: gets what is trusted; None where no rules name client certificates."""

    def __init__(
        self,
        files: TlsFiles,
        certificates: Certificates | None = None,
        clock: Clock = now_ms,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._files = files
        self._certificates = certificates
        self._clock = clock
        self._look_seconds = look_seconds
        self._seen = files.digests()
        self._loaded = load_tls(files)
        self._reading = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        if certificates is not None:
            certificates.trust(self._loaded.trust)

    @property
    def context(self) -> ssl.SSLContext:
        """That of the next handshake."""
        return self._loaded.context

    def ends_at(self) -> float | None:
        """When the certificate of the next handshake ends, Unix seconds, if that can be read."""
        return self._loaded.ends_at

    async def start(self) -> None:
        """Begin to watch the files."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Stop watching; idempotent."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def of(self, connection: asyncio.BaseTransport) -> ClientCertificate | None:
        """The certificate that the client of a connection has shown; None without one, or where none has a caller."""
        shown = None if self._certificates is None else connection.get_extra_info("ssl_object")
        return None if shown is None or self._certificates is None else self._certificates.of(shown)

    async def reload_certificates(self) -> bool:
        """Read the files again, in a thread. False, with a line in the log: they cannot be used, and nothing changed.

        Connections stay. New ones have the new certificate. The callers of client certificates whose authority is gone,
        or that were revoked, end. One reading runs at a time, so that the last one to begin is the last one to be used.
        """
        async with self._reading:
            return await self._reload()

    async def _reload(self) -> bool:
        seen = await asyncio.to_thread(self._files.digests)
        try:
            loaded = await asyncio.to_thread(load_tls, self._files)
        except ConfigError as error:
            self._seen = seen
            log.error("certificates not read again: the old ones stay", key=error.facts["key"], reason=error.detail)
            return False
        self._seen, self._loaded = seen, loaded
        if self._certificates is not None:
            self._certificates.trust(loaded.trust)
        log.info("certificates read again", ends_at=loaded.ends_at)
        for warning in date_warnings(self._files.cert, self._files.key, self._clock()):
            log.warning(warning)
        return True

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                # A watch of the directory would miss what other machines write to a shared disk.
                found = await asyncio.to_thread(self._files.digests)
                if found == self._seen:
                    continue
                await asyncio.sleep(min(_SETTLED_SECONDS, self._look_seconds))
                if found == await asyncio.to_thread(self._files.digests):
                    await self.reload_certificates()
            except Exception:
                log.exception("certificates not looked at; tried again later")


def make_tls(settings: Settings, certificates: Certificates | None, clock: Clock) -> ServerTls | None:
    """The TLS of a configuration; None without one. Raises ConfigError."""
    files = tls_files(settings)
    return None if files is None else ServerTls(files, certificates, clock)


def context_of(state: Mapping[str, Any], otherwise: ssl.SSLContext) -> ssl.SSLContext:
    """The context of the next handshake. ``state``: of the lifespan."""
    tls: ServerTls | None = state.get(TLS)
    return otherwise if tls is None else tls.context


def certificate_of(state: Mapping[str, Any], connection: asyncio.BaseTransport) -> ClientCertificate | None:
    """The certificate of a connection's client. ``state``: of the lifespan."""
    tls: ServerTls | None = state.get(TLS)
    return None if tls is None else tls.of(connection)


def _digest(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).digest()
    return None
