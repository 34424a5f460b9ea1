"""Endpoints for the schemas of jobs: list them, get one. Any right on any queue suffices."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated
from urllib.parse import unquote

import msgspec
from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from babelgate.errors import InvalidParameter, shortened
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf, GatewayOf
from babelgate.http.views import View
from babelgate.schemas.errors import SchemaNotFound

_CACHING = "no-cache"
"""A client may keep a schema, and asks each time whether it has changed."""

Job = Annotated[
    str,
    Path(description="The job, with its characters escaped as in any path.", examples=["urn:babel:shop:order.placed"]),
]


class JobSchemaView(View):
    """The schema of a job, without its text."""

    job: str
    """The job, which is the `$id` of the schema."""
    path: str
    """The file in the directory of schemas."""
    sha256: str = Field(description="SHA-256 of the file in hexadecimal; it changes with any byte.")


class JobSchemaListView(View):
    """The schemas of jobs."""

    schemas: list[JobSchemaView]
    """The schemas, by job."""


@cache
def routes() -> APIRouter:
    """The routes of every application in this process."""
    router = APIRouter(dependencies=NO_PARAMETERS)

    @router.get("/schemas", response_model=JobSchemaListView)
    async def list_schemas(gateway: GatewayOf, caller: CallerOf, request: Request) -> Response:
        caller.require_some()
        found = [{"job": each.job, "path": each.path, "sha256": each.sha256} for each in gateway.schema_checks.schemas]
        return tagged(request, msgspec.json.encode({"schemas": found}))

    @router.get("/schemas/{job}", response_model=dict[str, object])
    async def get_schema(gateway: GatewayOf, caller: CallerOf, job: Job, request: Request) -> Response:
        caller.require_some()
        try:
            named = unquote(job, errors="strict")
        except UnicodeDecodeError:
            raise InvalidParameter(name="job", reason="its escapes are not UTF-8") from None
        file = gateway.schema_checks.schemas.get(named)
        if file is None:
            raise SchemaNotFound(job=shortened(named))
        return tagged(request, file.text)

    return router


def tagged(request: Request, body: bytes) -> Response:
    """``body`` with its entity tag; 304 if the client has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": _CACHING}
    known = request.headers.get("if-none-match", "")
    if tag in known or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
