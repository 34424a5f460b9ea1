"""Reads a bundle of schemas from a URL, bounded in time and size, and keeps the last one that could be used."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpcore
import msgspec

from babelgate.errors import StateUnavailable
from babelgate.runtime.files import StateFile
from babelgate.schemas.files import MAX_BYTES

FETCH_SECONDS = 10.0
"""Time for one bundle with the connection, without the resolution of the name."""


_TOKEN = re.compile(rb"[!-~]+")


class BundleNotRead(Exception):
    """The bundle was not read. The text says why."""


class _Kept(msgspec.Struct, frozen=True):
    url: str = ""
    etag: str | None = None
    bundle: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class BundleSource:
    """Where a bundle of schemas is. ``ca_file``: certificates that verify the server's; None: those of this machine.
    ``bearer_file``: a token that is sent, read again each time. ``folder``: where the last usable bundle is kept.
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
        body = bytearray()
        ends = time.monotonic() + FETCH_SECONDS
        try:
            if self.etag is not None:
                headers["if-none-match"] = self.etag.encode("latin-1")
            if self.bearer_file is not None:
                headers["authorization"] = b"Bearer " + _token(self.bearer_file)
            tls = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            network = _BoundedNetwork(ends)
            with (
                httpcore.ConnectionPool(ssl_context=tls, max_connections=1, network_backend=network) as pool,
                pool.stream("GET", self.url, headers=headers) as answer,
            ):
                if answer.status == 304 and self.etag is not None:
                    return None
                if answer.status != 200:
                    raise BundleNotRead(f"the status is {answer.status}")
                for part in answer.iter_stream():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise BundleNotRead(f"it has more than {MAX_BYTES} bytes")
                tags = [value.decode("latin-1") for name, value in answer.headers if name.lower() == b"etag"]
        except httpcore.TimeoutException:
            raise BundleNotRead(f"it was not read within {FETCH_SECONDS:g} s") from None
        except httpcore.LocalProtocolError:
            # Its text quotes the request, which has the token.
            raise BundleNotRead("the request cannot be sent") from None
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


def _token(file: Path) -> bytes:
    """The token in ``file``. Blocks. Raises BundleNotRead, which does not quote it."""
    token = file.read_bytes().strip()
    if not _TOKEN.fullmatch(token):
        raise BundleNotRead("bearer_file has no token of one line")
    return token


class _BoundedNetwork(httpcore.NetworkBackend):
    """Connections on which all reads and writes together end at ``ends``, by the monotonic clock: the library bounds
    each one by itself, and a slow server can answer with any number of them."""

    def __init__(self, ends: float) -> None:
        self._ends = ends

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(self._ends)
        made = httpcore.SyncBackend().connect_tcp(host, port, left, local_address, socket_options)
        return _BoundedStream(made, self._ends)


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, ends: float) -> None:
        self._stream = stream
        self._ends = ends

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._ends))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._ends))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, _left(self._ends)), self._ends)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(ends: float) -> float:
    """Seconds until ``ends``. Raises ReadTimeout if it has passed."""
    left = ends - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout
    return left
