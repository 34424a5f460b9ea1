"""Endpoints of the OpenAPI document and of Swagger UI, whose files this service provides itself."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from babelgate.errors import Overloaded
from babelgate.http.dependencies import PartsResponse
from babelgate.http.parts import Parts, cut
from babelgate.http.problems import NotFound

# Addresses are relative, so that they work behind any path prefix. The script is a separate file, so that the policy
# below can forbid inline scripts.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>babelgate</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
{link}<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_LINK = '<p style="font: 16px sans-serif; margin: 0; padding: 12px 20px"><a href="docs/site">Documentation</a></p>\n'
_START = """document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, filter: true});
"""
_POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_A_DAY = "max-age=86400"
"""The assets change only with a release of Swagger UI."""
_ASK = "no-cache"
"""The document changes with the gateway, so browsers ask whether they have its latest version."""
_PART_BYTES = 65_536
"""Size of the parts of an answer here: a client that reads slowly keeps at most two of them in memory."""
MAX_READERS = 256
"""Maximum number of these answers that are being sent: at most 32 MiB, if none of their clients reads."""
_MAX_ACCEPT = 1_000
"""A longer field is not parsed, and its client gets the uncompressed form. Browsers send some 30 bytes."""

PATHS = frozenset({"/", "/openapi.json", "/docs", "/docs/start.js", *(f"/docs/{name}" for name in _ASSETS)})


class Variant(NamedTuple):
    """One form of a content: its bytes, and its entity tag, which is strong."""

    body: bytes
    etag: str


class Content:
    """A content without credential that is read, compressed and hashed once, at the first request for it."""

    def __init__(self, read: Callable[[], bytes], media_type: str, caching: str) -> None:
        """``read`` is called in a thread; ``caching``: the value of Cache-Control."""
        self._read = read
        self._type = media_type
        self._caching = caching
        self._variants: dict[bool, Variant] = {}
        self._making = asyncio.Lock()

    async def answer(self, request: Request, readers: Readers) -> Response:
        """The content, compressed if the client takes that; 304 if the client has it. Raises Overloaded."""
        packed = takes_gzip(request.headers.get("accept-encoding", ""))
        async with self._making:
            if not self._variants:
                # To make the document takes a tenth of a second.
                self._variants = await asyncio.to_thread(lambda: _variants(self._read()))
        body, etag = self._variants[packed]
        headers = {"cache-control": self._caching, "vary": "accept-encoding", "etag": etag}
        known = request.headers.get("if-none-match", "")
        if etag in known or known.strip() == "*":
            return Response(status_code=304, headers=headers)
        headers["content-type"] = self._type
        if packed:
            headers["content-encoding"] = "gzip"
        return readers.answer(body, headers)


class Readers:
    """The answers that are being sent, which are bounded in number."""

    def __init__(self) -> None:
        self.count = 0

    def answer(self, body: bytes, headers: dict[str, str]) -> Response:
        """An answer that is sent in parts, as fast as its client reads. Raises Overloaded."""
        if self.count >= MAX_READERS:
            raise Overloaded(reason=f"{self.count} clients are reading the documentation")
        return _Counted(self, Parts(len(body), cut(body, _PART_BYTES)), headers)


class _Counted(PartsResponse):
    def __init__(self, readers: Readers, parts: Parts, headers: dict[str, str]) -> None:
        super().__init__(parts, headers)
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._readers.count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._readers.count -= 1


def takes_gzip(accepted: str) -> bool:
    """Whether a client with this Accept-Encoding takes gzip (RFC 9110, section 12.5.3)."""
    if len(accepted) > _MAX_ACCEPT:
        return False
    weights: dict[str, bool] = {}
    for entry in accepted.lower().split(","):
        coding, _, weight = entry.partition(";")
        # A weight of zero, in whatever spelling, has no other digit.
        weights[coding.strip()] = not weight or any(digit in weight for digit in "123456789")
    return weights.get("gzip", weights.get("*", False))


def _variants(body: bytes) -> dict[bool, Variant]:
    """The content as it is, and with gzip."""
    packed = gzip.compress(body, mtime=0)
    return {is_packed: Variant(form, f'"{_hash(form)}"') for is_packed, form in ((False, body), (True, packed))}


def _hash(form: bytes) -> str:
    return hashlib.sha256(form).hexdigest()[:32]


def routes(document: Callable[[], dict[str, Any]], readers: Readers, *, has_site: bool = False) -> APIRouter:
    """The routes. ``document`` makes the OpenAPI document; a thread calls it once, at the first request for it.

    ``readers``: bounds the answers that are being sent. ``has_site``: whether the page links to the documentation site.
    """
    router = APIRouter(include_in_schema=False)
    page = _PAGE.replace("{link}", _LINK if has_site else "")
    described = Content(lambda: msgspec.json.encode(document()), "application/json", _ASK)
    assets = {name: Content(_file(name), media_type, _A_DAY) for name, media_type in _ASSETS.items()}

    @router.get("/openapi.json")
    async def openapi(request: Request) -> Response:
        return await described.answer(request, readers)

    @router.get("/")
    async def start_page() -> Response:
        # A relative address works behind any path prefix.
        return RedirectResponse("docs", 307)

    @router.get("/docs")
    async def docs() -> Response:
        return Response(page, media_type="text/html", headers={"content-security-policy": _POLICY})

    @router.get("/docs/start.js")
    async def start() -> Response:
        return Response(_START, media_type="text/javascript")

    @router.get("/docs/{name}")
    async def asset(name: str, request: Request) -> Response:
        if name not in assets:
            raise NotFound(path=f"/docs/{name}")
        return await assets[name].answer(request, readers)

    return router


def _file(name: str) -> Callable[[], bytes]:
    return (files("fastapi_swagger") / "resources" / name).read_bytes
