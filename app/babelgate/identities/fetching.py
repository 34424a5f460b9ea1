"""Reads the documents of an issuer: bounded in time and size, without redirects, over HTTPS."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import httpcore

from babelgate.urls import refusal_of

FETCH_SECONDS = 5.0
"""Time for one document, with the name's resolution and the connection."""
MAX_DOCUMENT_BYTES = 524_288
DISCOVERY = "/.well-known/openid-configuration"
"""Below the issuer: https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderConfigurationRequest"""


class FetchFailed(Exception):
    """The document was not read. The text says why."""


class Documents:
    """The documents of one issuer. ``bearer_file``: a token that is sent with the request for its keys, read again each
    time, because Kubernetes replaces it."""

    def __init__(
        self, issuer: str, jwks_url: str | None, ca_file: Path | None = None, bearer_file: Path | None = None
    ) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._ca_file = ca_file
        self._bearer_file = bearer_file

    async def keys(self) -> bytes:
        """The JWK Set of the issuer. Takes 10 s at most. Raises FetchFailed."""
        url = self._jwks_url or await self._discovered()
        headers: dict[bytes | str, bytes | str] = {}
        try:
            if self._bearer_file is not None:
                headers["authorization"] = f"Bearer {self._bearer_file.read_text().strip()}"
            return await self._get(url, headers)
        except (OSError, ValueError) as error:
            raise FetchFailed(f"{url}: {type(error).__name__}") from error

    async def _discovered(self) -> str:
        """The address of the keys, which the issuer states."""
        url = self._issuer.rstrip("/") + DISCOVERY
        try:
            found: Any = json.loads(await self._get(url, {}))
        except (ValueError, RecursionError, OSError) as error:
            raise FetchFailed(f"{url}: {type(error).__name__}") from error
        if not isinstance(found, dict) or found.get("issuer") != self._issuer:
            # https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderConfigurationValidation
            raise FetchFailed(f"{url}: it is the document of another issuer")
        place = found.get("jwks_uri")
        refused = refusal_of(place, may_have_query=True) if isinstance(place, str) else "is missing"
        if refused is not None:
            raise FetchFailed(f"{url}: jwks_uri {refused}")
        return str(place)

    async def _get(self, url: str, headers: dict[bytes | str, bytes | str]) -> bytes:
        tls = ssl.create_default_context(cafile=None if self._ca_file is None else str(self._ca_file))
        body = bytearray()
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                httpcore.AsyncConnectionPool(ssl_context=tls, max_connections=1) as pool,
                pool.stream("GET", url, headers={"accept": "application/json", **headers}) as answer,
            ):
                if answer.status != 200:
                    raise FetchFailed(f"{url}: the status is {answer.status}")
                async for part in answer.aiter_stream():
                    body += part
                    if len(body) > MAX_DOCUMENT_BYTES:
                        raise FetchFailed(f"{url}: it has more than {MAX_DOCUMENT_BYTES} bytes")
        except TimeoutError:
            raise FetchFailed(f"{url}: no answer within {FETCH_SECONDS:g} s") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.ProxyError) as error:
            raise FetchFailed(f"{url}: {error or type(error).__name__}") from error
        return bytes(body)
