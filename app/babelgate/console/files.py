"""The files that pages refer to: styles, scripts and pictures, all of them in this package."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from babelgate.console.answers import PageAnswer
from babelgate.http.docs import takes_gzip
from babelgate.http.problems import NotFound, RawHeaders

_TYPES = {
    "charts.js": b"text/javascript; charset=utf-8",
    "console.css": b"text/css; charset=utf-8",
    "console.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
    "queue.css": b"text/css; charset=utf-8",
    "queue.js": b"text/javascript; charset=utf-8",
    "vendor/htmx.min.js": b"text/javascript; charset=utf-8",
    "vendor/uPlot.iife.min.js": b"text/javascript; charset=utf-8",
    "vendor/uPlot.min.css": b"text/css; charset=utf-8",
}
_A_YEAR = b"public, max-age=31536000, immutable"
"""The address of a file has its hash, so that its content never changes."""
_ASK = b"no-cache"


class _File(NamedTuple):
    body: bytes
    packed: bytes
    tag: str


class Assets:
    """The files. All together have some 100 KiB."""

    def __init__(self) -> None:
        self._files = {name: _file(name) for name in _TYPES}

    def address(self, name: str) -> str:
        """The address of a file, relative to ``/console/``. Raises KeyError for an unknown file."""
        return f"assets/{name}?v={self._files[name].tag}"

    def answer(self, name: str, query: bytes, headers: Mapping[bytes, bytes]) -> PageAnswer:
        """The file, compressed if the client takes that; 304 if the client has it. Raises NotFound."""
        if name not in self._files:
            raise NotFound(path=f"/console/assets/{name}")
        body, packed, tag = self._files[name]
        takes = takes_gzip(headers.get(b"accept-encoding", b"").decode("latin-1"))
        etag = f'"{tag}{"-gzip" if takes else ""}"'.encode()
        caching = _A_YEAR if query == f"v={tag}".encode() else _ASK
        fields: RawHeaders = [(b"cache-control", caching), (b"vary", b"accept-encoding"), (b"etag", etag)]
        if etag in headers.get(b"if-none-match", b""):
            return PageAnswer(304, b"", _TYPES[name], fields)
        if takes:
            fields.append((b"content-encoding", b"gzip"))
        return PageAnswer(200, packed if takes else body, _TYPES[name], fields)


@cache
def _file(name: str) -> _File:
    """A file of the package, which a process reads and compresses once."""
    body = files("babelgate.console").joinpath("assets", name).read_bytes()
    return _File(body, gzip.compress(body, mtime=0), hashlib.sha256(body).hexdigest()[:16])
