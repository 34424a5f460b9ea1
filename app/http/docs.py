"""Endpoints of the OpenAPI document and of Swagger UI, whose files this service provides itself."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from app.http.problems import NotFound

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
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});\n'
_POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}

PATHS = frozenset({"/", "/openapi.json", "/docs", "/docs/start.js", *(f"/docs/{name}" for name in _ASSETS)})


def routes(document: Callable[[], dict[str, Any]]) -> APIRouter:
    """The routes. ``document`` makes the OpenAPI document; it is called once, at the first request for it."""
    router = APIRouter(include_in_schema=False)
    made: list[bytes] = []

    @router.get("/openapi.json")
    async def openapi() -> Response:
        if not made:
            made.append(msgspec.json.encode(document()))
        return Response(made[0], media_type="application/json")

    @router.get("/")
    async def start_page() -> Response:
        # A relative address works behind any path prefix.
        return RedirectResponse("docs", 307)

    @router.get("/docs")
    async def docs() -> Response:
        return Response(_PAGE, media_type="text/html", headers={"content-security-policy": _POLICY})

    @router.get("/docs/start.js")
    async def start() -> Response:
        return Response(_START, media_type="text/javascript")

    @router.get("/docs/{name}")
    async def asset(name: str) -> Response:
        if name not in _ASSETS:
            raise NotFound(path=f"/docs/{name}")
        content = (files("fastapi_swagger") / "resources" / name).read_bytes()
        return Response(content, media_type=_ASSETS[name], headers={"cache-control": "max-age=86400"})

    return router
