"""Answers the preflights of browsers: may a page of this origin send this request?"""

from __future__ import annotations

from babelgate.errors import Forbidden
from babelgate.http.cors import REQUEST_METHOD
from babelgate.http.exchange import Exchange


def is_preflight(exchange: Exchange) -> bool:
    """Whether a browser asks before it sends a request: https://fetch.spec.whatwg.org/#cors-preflight-request"""
    headers = exchange.headers
    return exchange.scope["method"] == "OPTIONS" and b"origin" in headers and REQUEST_METHOD in headers


async def answer_preflight(exchange: Exchange) -> None:
    """Answer 204. No credential is needed, because a browser sends none, and nothing is looked up but the policy.

    Raises Forbidden for a page of an origin that the policy does not have.
    """
    crossing = exchange.crossing
    if crossing is None or not crossing.allowed:
        raise Forbidden(reason="Web pages of this Origin cannot use this path: it is not in `cors.origins`.")
    asked = exchange.headers.get(b"access-control-request-headers", b"")
    await exchange.answer_nothing(crossing.policy.preflight(asked))
