"""Reads a bundle of schemas from a URL, bounded in time and size, and keeps the last one that could be used."""

from __future__ import annotations

import hashlib
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path

import httpcore
import msgspec

from babelgate.errors import StateUnavailable
from babelgate.runtime.files import StateFile
from babelgate.schemas.files import MAX_BYTES

FETCH_SECONDS = 10.0
"""Time for one bundle with the connection, without the resolution of the name."""


class BundleNotRead(Exception):
    """The bundle was not read. The text says why."""


class _Kept(msgspec.Struct, frozen=True):
    url: str = ""
    etag: str | None = None
    bundle: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class BundleSource:
    """Where a bundle of schemas is. ``ca_file``: certificates that verify the server's; None: those of this machine.
    ``bearer_file``: a token that is sent, read anew each time. ``folder``: where the last usable bundle is kept.
    ``etag`` and ``digest``: of the bundle that was read last."""

    url: str
    folder: Path
    refresh_seconds: float = 60
    ca_file: Path | None = None
    bearer_file: Path | None = None
    etag: str | None = None
    digest: bytes = b""

    def at(self, bundle: bytes, etag: str | None) -> BundleSource:
        """The same source after ``bundle`` with this ETag."""
        return replace(self, etag=etag, digest=hashlib.sha256(bundle).digest())

    def is_place_of(self, other: BundleSource) -> bool:
        """Whether both read in the same way from the same place."""
        return replace(self, etag=None, digest=b"") == replace(other, etag=None, digest=b"")

    def fetch(self) -> tuple[bytes, str | None] | None:
        """The bundle and its ETag; None if it is the one that was read last.

        Redirects are not followed. Blocks for some FETCH_SECONDS. Raises BundleNotRead.
        """
        headers: dict[bytes | str, bytes | str] = {"accept": "application/json"}
        if self.etag is not None:
            headers["if-none-match"] = self.etag
        body = bytearray()
        ends = time.monotonic() + FETCH_SECONDS
        times = dict.fromkeys(("connect", "read", "write", "pool"), FETCH_SECONDS)
        try:
            if self.bearer_file is not None:
                headers["authorization"] = f"Bearer {self.bearer_file.read_text().strip()}"
            tls = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            with (
                httpcore.ConnectionPool(ssl_context=tls, max_connections=1) as pool,
                pool.stream("GET", self.url, headers=headers, extensions={"timeout": times}) as answer,
            ):
                if answer.status == 304 and self.etag is not None:
                    return None
                if answer.status != 200:
                    raise BundleNotRead(f"the status is {answer.status}")
                for part in answer.iter_stream():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise BundleNotRead(f"it has more than {MAX_BYTES} bytes")
                    if time.monotonic() > ends:
                        raise BundleNotRead(f"it was not read within {FETCH_SECONDS:g} s")
                tags = [value.decode("latin-1") for name, value in answer.headers if name.lower() == b"etag"]
        except httpcore.TimeoutException:
            raise BundleNotRead(f"no answer within {FETCH_SECONDS:g} s") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError, ValueError) as error:
            raise BundleNotRead(str(error) or type(error).__name__) from error
        if hashlib.sha256(body).digest() == self.digest:
            return None
        return bytes(body), next(iter(tags), None)

    def keep(self, bundle: bytes) -> None:
        """Keep ``bundle``, with :attr:`etag`, for a start without the network. Blocks. Raises StateUnavailable."""
        kept = _Kept(self.url, self.etag, msgspec.Raw(bundle))
        self._file().change(lambda _: kept)

    def kept(self) -> tuple[bytes, str | None] | None:
        """The bundle that :meth:`keep` has kept of this URL, with its ETag. Blocks for the disk."""
        try:
            found = self._file().read()
        except StateUnavailable:
            return None
        return (bytes(found.bundle), found.etag) if found.url == self.url else None

    def _file(self) -> StateFile[_Kept]:
        return StateFile(self.folder / "bundle.json", msgspec.json.Decoder(_Kept), _Kept)
