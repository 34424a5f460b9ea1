"""Endpoints for tokens: make, list, rotate, revoke."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from babelgate.gateway.authorization import Caller
from babelgate.http.dependencies import NO_PARAMETERS, CallerOf
from babelgate.http.problems import MethodNotAllowed
from babelgate.http.token_views import (
    ROTATION,
    IssuedTokenView,
    RevokedTokenView,
    RotationRequest,
    TokenListView,
    TokenRequest,
    TokenView,
)
from babelgate.observe.audit.notes import note
from babelgate.tokens.errors import TokensDisabled
from babelgate.tokens.making import page_bounds
from babelgate.tokens.tokens import TokenChange, Tokens

NO_CREDENTIALS = "no credentials are configured, so anyone may call"


def _tokens(request: Request) -> Tokens:
    """Raises TokensDisabled."""
    tokens: Tokens | str = request.app.state.tokens
    if isinstance(tokens, str):
        raise TokensDisabled(reason=tokens)
    return tokens


def _not_stored(response: Response) -> None:
    """Keep an answer with a secret out of caches."""
    response.headers["cache-control"] = "no-store"


def noted(change: TokenChange) -> TokenChange:
    """``change``, noted for the audit trail without its secret."""
    token = change.token
    rights = "; ".join(f"{queue}: {' '.join(sorted(given))}" for queue, given in token.granted.items())
    note(token=token.id, name=token.name, rights=rights or None, ends_at=token.ends_at)
    return change


async def make(tokens: Tokens, caller: Caller, asked: TokenRequest) -> TokenChange:
    """The token that ``asked`` describes, made and noted for the audit trail. Raises like :meth:`Tokens.create`."""
    rights, page = asked.granted, None
    if asked.page is not None:
        page = page_bounds(rights, asked.page.origins, asked.page.per_minute, asked.page.max_message_bytes)
    return noted(
        await tokens.create(caller, asked.name, rights, ttl_seconds=asked.ttl_seconds, ends_at=asked.ends_at, page=page)
    )


TokensOf = Annotated[Tokens, Depends(_tokens)]
TokenId = Annotated[
    str, Path(pattern="^[0-9a-f]{16}$", description="The id of the token.", examples=["5f0c7a1be24d9863"])
]
_NOT_STORED = [Depends(_not_stored)]


@cache
def routes() -> APIRouter:
    """The routes of every application in this process. ``app.state`` of a call has its ``tokens``, or why there are
    none."""
    router = APIRouter(prefix="/tokens", dependencies=NO_PARAMETERS)

    @router.post("", status_code=201, dependencies=_NOT_STORED)
    async def create_token(tokens: TokensOf, caller: CallerOf, parameters: TokenRequest) -> IssuedTokenView:
        return IssuedTokenView.of(await make(tokens, caller, parameters))

    @router.get("")
    async def list_tokens(tokens: TokensOf, caller: CallerOf) -> TokenListView:
        return TokenListView(tokens=[TokenView.of(each) for each in tokens.listed(caller)])

    @router.post("/{id}:rotate", dependencies=_NOT_STORED)
    async def rotate_token(
        tokens: TokensOf, caller: CallerOf, id: TokenId, parameters: RotationRequest = ROTATION
    ) -> IssuedTokenView:
        overlap, ttl_seconds = parameters.overlap_seconds, parameters.ttl_seconds
        ends_at = parameters.ends_at
        return IssuedTokenView.of(
            noted(await tokens.rotate(caller, id, overlap, ttl_seconds=ttl_seconds, ends_at=ends_at))
        )

    @router.delete("/{id}")
    async def revoke_token(tokens: TokensOf, caller: CallerOf, id: TokenId) -> RevokedTokenView:
        return RevokedTokenView.of(noted(await tokens.revoke(caller, id)))

    @router.api_route("", methods=["PUT", "PATCH", "DELETE", "OPTIONS"], include_in_schema=False)
    async def refuse_method() -> None:
        """Name all methods of the path; the framework would name only the first."""
        raise MethodNotAllowed(allow="GET, HEAD, POST")

    return router
