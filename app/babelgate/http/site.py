"""Endpoints of the documentation site, which the package contains where ``make docs-site`` ran before it was built."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from zipfile import ZipFile

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from babelgate.http.docs import Content, Readers
from babelgate.http.problems import NotFound

ARCHIVE: Traversable = files("babelgate.http") / "site.zip"
"""The site as ``tools/docs_site.py`` packs it: files by their paths, and as its comment the sources of inline scripts
that the content security policy allows."""
SITE = "/docs/site"
_HOME = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ipynb": "application/json",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    "": "text/plain; charset=utf-8",
}
_OTHER = "application/octet-stream"
_ASK = "no-cache"
"""The pages change with the gateway, so browsers ask whether they have the latest version."""
_POLICY = (
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>babelgate: {title}</title>
<link rel="icon" href="data:,">
<style>body {{font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem}}</style>
</head>
<body>
<h1>{title}</h1>
<p>{reason}</p>
<p><a href="{up}">{target}</a></p>
</body>
</html>
"""
_ABSENT = (
    "This gateway was built without the documentation site. Run `make docs-site` in a clone of the repository: it "
    "writes the site to build/site, and every gateway that runs from this clone or is built from it serves the site."
)


def is_of_site(path: str) -> bool:
    """Whether ``path`` is one of the site. Each of them is open to everybody, as ``/docs`` is."""
    return path.startswith(SITE) and path[len(SITE) : len(SITE) + 1] in ("", "/")


class Site:
    """The files of an archive. Each is read, compressed and hashed once, at the first request for it.

    All of them together take some 18 MB of memory.
    """

    def __init__(self, archive: Traversable, readers: Readers) -> None:
        """``readers``: bounds the answers that are being sent."""
        self._archive = archive
        self._readers = readers
        self._contents: dict[str, Content] = {}
        self._headers: dict[str, str] = {}
        self._opening = asyncio.Lock()

    async def answer(self, path: str, request: Request) -> Response:
        """The file with this path. Raises NotFound, Overloaded."""
        async with self._opening:
            if not self._contents:
                scripts = await asyncio.to_thread(self._open)
                self._headers = {
                    "content-security-policy": _POLICY.format(scripts=scripts),
                    "x-content-type-options": "nosniff",
                }
        content = self._contents.get(path)
        if content is None:
            raise NotFound(path=f"{SITE}/{path}", hint=f"The documentation begins at {SITE}/{_HOME}.")
        answer = await content.answer(request, self._readers)
        answer.headers.update(self._headers)
        return answer

    def _open(self) -> str:
        """Find the files; return the allowed sources of scripts. The archive stays open: it may be replaced later, and
        its entries are read one by one by any thread."""
        # Names are looked up and never joined to a path, so that nothing outside of the archive is reached.
        archive = ZipFile(self._archive.open("rb"))
        for name in archive.namelist():
            kind = _TYPES.get(PurePosixPath(name).suffix, _OTHER)
            self._contents[name] = Content(partial(archive.read, name), kind, _ASK)
        return archive.comment.decode()


def routes(readers: Readers, archive: Traversable = ARCHIVE) -> APIRouter:
    """The routes. They have to come before those of ``docs``."""
    router = APIRouter(include_in_schema=False)
    site = Site(archive, readers) if archive.is_file() else None

    @router.get(SITE)
    async def start(request: Request) -> Response:
        # Relative addresses work behind any path prefix.
        return RedirectResponse(f"site/{_HOME}", 307) if site is not None else _absent(request)

    @router.get(SITE + "/{path:path}")
    async def file(path: str, request: Request) -> Response:
        if site is None:
            return _absent(request)
        if not path:
            return RedirectResponse(_HOME, 307)
        try:
            return await site.answer(path, request)
        except NotFound as error:
            if not _is_browser(request.headers):
                raise
            up = "../" * path.count("/") + _HOME
            return _page("No such page", str(error), up, "Home of the documentation, with a search")

    return router


def _absent(request: Request) -> Response:
    path = request.scope["path"]
    if not _is_browser(request.headers):
        raise NotFound(path=path, hint=_ABSENT)
    up = "../" * (path.count("/") - 1) + "docs"
    return _page("No documentation site", _ABSENT, up, "The API of this gateway")


def _is_browser(headers: Mapping[str, str]) -> bool:
    """Whether the client asks for a page to read. Browsers name the type, other programs do not."""
    return "text/html" in headers.get("accept", "")


def _page(title: str, reason: str, up: str, target: str) -> Response:
    text = _PAGE.format(title=title, reason=html.escape(reason), up=up, target=target)
    headers = {"content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'"}
    return Response(text, 404, headers, "text/html; charset=utf-8")
