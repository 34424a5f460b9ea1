"""The sections about web pages: which may call the API, and which tokens are part of them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from babelgate.config.section import HOST, Section, commas
from babelgate.jsontext import digits

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_HAS_PORT = re.compile(r":[0-9]+$")
_PORTS = {"http": 80, "https": 443}
HeaderName = Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,100}$")]


def page_origin(value: str) -> str:
    """Validate the origin of a page: scheme, host and port. Return it in the form in which browsers send it."""
    scheme, colon, authority = value.lower().partition("://")
    host, _, port = authority.rpartition(":") if _HAS_PORT.search(authority) else (authority, "", "")
    if not colon or not _SCHEME.fullmatch(scheme) or not HOST.fullmatch(host):
        raise ValueError(
            "must be an origin, such as https://shop.example or http://localhost:3000: without path, and with a host "
            "in ASCII (xn--…)"
        )
    if port and not 0 < (digits(port) or 0) < 65_536:
        raise ValueError("the port of an origin must be 1 to 65535")
    # Browsers leave the port of the scheme out: https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin
    return f"{scheme}://{host}" if not port or int(port) == _PORTS.get(scheme) else f"{scheme}://{host}:{int(port)}"


def cors_origin(value: str) -> str:
    """Validate the origin of a page, or ``*``."""
    return value if value == "*" else page_origin(value)


class CorsSettings(Section):
    """The web pages that may call the API; see docs/browsers.md."""

    origins: Annotated[tuple[Annotated[str, AfterValidator(cors_origin)], ...], BeforeValidator(commas)] = Field(
        max_length=100,
        description="The origins of pages, such as `https://shop.example`; `*` alone: any, which needs tokens. None: "
        "no other origin.",
    )
    headers: Annotated[tuple[HeaderName, ...], BeforeValidator(commas)] = Field(
        default=(), max_length=100, description="Request headers that pages may send, besides those of the API."
    )
    max_age: int = Field(
        default=600, ge=0, le=86_400, description="Seconds for which a browser remembers the answer to a preflight."
    )

    @field_validator("origins")
    @classmethod
    def _all_alone(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if "*" in origins and len(origins) > 1:
            raise ValueError("* includes every other origin, so it must be alone")
        return origins


class PageSettings(Section):
    """The bounds of a token that is part of a web page, where anyone can read it; see docs/browsers.md."""

    origins: Annotated[tuple[Annotated[str, AfterValidator(page_origin)], ...], BeforeValidator(commas)] = Field(
        min_length=1, max_length=100, description="The origins of the pages; `cors` must allow each."
    )
    per_minute: int = Field(
        default=60,
        ge=1,
        le=1_000_000,
        description="Messages a minute that each process accepts with this token. After a pause as many may come at "
        "once.",
    )
    max_message_bytes: int = Field(default=16_384, ge=64, description="Size of one message as it is sent.")
