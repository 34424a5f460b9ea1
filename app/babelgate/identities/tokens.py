"""Reads a token before its signature is verified: strictly, and bounded in size and depth."""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from babelgate.identities.errors import InvalidToken

MAX_TOKEN_BYTES = 32_768
"""Longest token. A head of a request has at most 64 KiB."""
MAX_KID = 256
"""Longest name of a key."""
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""RFC 7519, section 5.1, and RFC 9068, section 2.1. Other tokens of an issuer, such as those of a logout, have other
types."""
_SEGMENT = re.compile(rb"[A-Za-z0-9_-]+")


class ParsedToken(NamedTuple):
    """A token whose signature has not been verified."""

    text: bytes
    header: Mapping[str, Any]
    claims: Mapping[str, Any]


def is_signed_token(token: bytes) -> bool:
    """Whether a bearer token has the form of a JWT: three parts, or five if it is encrypted."""
    return token.count(b".") in (2, 4)


def parse(token: bytes) -> ParsedToken:
    """Read a token with :func:`is_signed_token`. Raises InvalidToken."""
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"The token has more than {MAX_TOKEN_BYTES} bytes.")
    parts = token.split(b".")
    if len(parts) != 3:
        raise InvalidToken("The token is encrypted, which is not supported.")
    if not all(map(_SEGMENT.fullmatch, parts)):
        raise InvalidToken("The token is not three parts in base64url with a signature.")
    return ParsedToken(token, _object(parts[0], "header"), _object(parts[1], "body"))


def check_header(header: Mapping[str, Any], algorithms: Sequence[str]) -> tuple[str, str | None]:
    """The algorithm and the name of the key of a token. Raises InvalidToken.

    Keys and addresses in a header (``jwk``, ``jku``, ``x5c``, ``x5u``) are ignored: who made the token chose them.
    """
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise InvalidToken("The algorithm of the token is not one that is configured for its issuer.")
    if "crit" in header or "b64" in header:
        raise InvalidToken("The token has critical extensions, and this gateway knows none.")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise InvalidToken("The type of the token is neither JWT nor at+jwt.")
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID):
        raise InvalidToken("The name of the key of the token is not usable.")
    return algorithm, kid


def check_claims(claims: Mapping[str, Any], audience: frozenset[str], leeway_seconds: float, now: float) -> float:
    """When the token ends, Unix seconds, with the leeway. ``now``: Unix seconds. Raises InvalidToken."""
    ends_at = _time(claims, "exp")
    if ends_at is None:
        raise InvalidToken("The token has no end: the claim exp is missing.")
    if ends_at + leeway_seconds <= now:
        raise InvalidToken("The token has expired.")
    begins_at, issued_at = _time(claims, "nbf"), _time(claims, "iat")
    if max(begins_at or 0.0, issued_at or 0.0) > now + leeway_seconds:
        raise InvalidToken("The token is not valid yet.", is_final=False)
    given = claims.get("aud")
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise InvalidToken("The token has no usable audience: the claim aud.")
    if audience.isdisjoint(several):
        raise InvalidToken("The token is for another audience.")
    if "cnf" in claims:
        # https://www.rfc-editor.org/rfc/rfc9449#section-7.1
        raise InvalidToken("The token is bound to a key of its holder, which this gateway cannot check.")
    return ends_at + leeway_seconds


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    given = claims.get(name)
    if given is None:
        return None
    try:
        found = float(given) if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
    except OverflowError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidToken(f"The claim {name} of the token is not a number of seconds.")
    return found


def _object(segment: bytes, what: str) -> Mapping[str, Any]:
    try:
        text = urlsafe_b64decode(segment + b"=" * (-len(segment) % 4)).decode()
        found = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError, binascii.Error):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken(f"The {what} of the token is not a JSON object with distinct members, in base64url.")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("two members have the same name")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(constant)
