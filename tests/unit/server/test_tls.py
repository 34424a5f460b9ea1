"""The watch of the TLS files, and files that cannot be read."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from babelgate.errors import ConfigError
from babelgate.server.tls import ServerTls, TlsFiles, load_tls
from tests.harness.authority import SERVER, Authority
from tests.harness.world import LIMIT_SECONDS, until

LOCAL = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


@pytest.fixture
def authority() -> Authority:
    return Authority("root")


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> TlsFiles:
    path = tmp_path / "server.pem"
    authority.issue(path, LOCAL, usage=SERVER)
    return TlsFiles(path, path)


class Failing(TlsFiles):
    """Files whose first look fails as nobody has foreseen."""

    looks = -1

    def digests(self) -> tuple[bytes | None, ...]:
        Failing.looks += 1
        if Failing.looks == 1:
            raise RuntimeError("unforeseen")
        return super().digests()


async def test_the_watch_goes_on_after_what_nobody_has_foreseen(
    files: TlsFiles, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Failing, "looks", -1)
    tls = ServerTls(Failing(files.cert, files.key), look_seconds=0.01)
    await tls.start()
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            before = tls.ends_at()
            authority.issue(files.cert, LOCAL, usage=SERVER, days=(-1, 9))

            async def has_changed() -> bool:
                return tls.ends_at() != before

            await until(has_changed)
    finally:
        await tls.close()


class Slow(TlsFiles):
    """Files that are read as slowly as the test wants, by at most one thread at a time."""

    held = threading.Event()
    at_a_time = most = 0

    def digests(self) -> tuple[bytes | None, ...]:
        Slow.at_a_time += 1
        Slow.most = max(Slow.most, Slow.at_a_time)
        Slow.held.wait(LIMIT_SECONDS)
        Slow.at_a_time -= 1
        return super().digests()


async def test_an_older_reading_never_ends_last(files: TlsFiles) -> None:
    Slow.held.set()
    tls = ServerTls(Slow(files.cert, files.key))
    Slow.held.clear()
    readings = [asyncio.create_task(tls.reload_certificates()) for _ in range(2)]

    async def has_begun() -> bool:
        return Slow.at_a_time > 0

    await until(has_begun)
    # The second thread would have begun by then.
    await asyncio.to_thread(lambda: None)
    Slow.held.set()
    assert await asyncio.gather(*readings) == [True, True]
    assert Slow.most == 1


def test_a_directory_that_cannot_be_read(files: TlsFiles) -> None:
    class Unreadable(type(files.cert)):  # type: ignore[misc]
        def stat(self, **_: Any) -> Any:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(ConfigError, match="tls_client_ca"):
        load_tls(TlsFiles(files.cert, files.key, Unreadable("/nowhere/ca.pem")))


def of_version_2(certificate: x509.Certificate) -> bytes:
    """The same certificate with another version, which cryptography does not read."""
    der = certificate.public_bytes(Encoding.DER)
    changed = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01", 1)
    return ssl.DER_cert_to_PEM_cert(changed).encode()


def test_a_version_that_cannot_be_read(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    text = files.cert.read_bytes()
    (first, *_) = x509.load_pem_x509_certificates(text)
    own = tmp_path / "old.pem"
    own.write_bytes(of_version_2(first) + text[text.index(b"-----BEGIN PRIVATE") :])
    assert load_tls(TlsFiles(own, own)).ends_at is None
    authorities = tmp_path / "ca.pem"
    authorities.write_bytes(of_version_2(authority.certificate))
    with pytest.raises(ConfigError, match="tls_client_ca"):
        load_tls(TlsFiles(files.cert, files.key, authorities))
