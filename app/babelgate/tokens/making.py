"""A new token: its name, its end, its secret, and how many there may be."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from babelgate.errors import InvalidParameter
from babelgate.gateway.authorization import Caller, Right
from babelgate.tokens.errors import TokenNameTaken, TooManyTokens
from babelgate.tokens.file import MadeToken, PageBounds, Rights, Stored, merged
from babelgate.tokens.secret import digest, new_secret

NAME = "^[A-Za-z0-9._-]{1,120}$"
"""Of a token. Names of callers of an issuer have another character, so none can be mistaken for them; those of the
configuration and of the gateway itself are refused one by one."""
PATTERN = r"^[A-Za-z0-9._*-]{1,120}$"
"""Of queues."""
MAX_TOKENS = 1_000
"""Tokens that may be valid at a time."""
MAX_REMEMBERED = 10_000
"""Tokens that may be remembered, with those that were revoked before their end."""
MAX_OF_ACCOUNT = 1_000
"""As many of these may count for one caller that does not manage all queues, so that it cannot use up the bound of
all."""


def end_of(now: int, max_ttl_seconds: float, ttl_seconds: float | None, ends_at: int | None) -> int | None:
    """The end that a call asks for, in Unix ms; None: for none. Raises InvalidParameter."""
    if ttl_seconds is not None and ends_at is not None:
        raise InvalidParameter(name="ends_at", reason="is not allowed with ttl_seconds", pointer="/ends_at")
    name = "ttl_seconds" if ttl_seconds is not None else "ends_at"
    end = now + int(ttl_seconds * 1_000) if ttl_seconds is not None else ends_at
    if end is not None and not now < end <= now + int(max_ttl_seconds * 1_000):
        days = f"{max_ttl_seconds / 86_400:g}"
        reason = f"the end must be in the future, and at most {max_ttl_seconds:.0f} s ({days} days) away"
        raise InvalidParameter(name=name, reason=reason, pointer=f"/{name}")
    return end


def account_of(caller: Caller, stored: Stored, now: int) -> str:
    """The caller whose bound a token of ``caller`` counts for: the first one in the line of its makers that does not
    manage all queues; empty if each does."""
    if Right.MANAGE in caller.rights("*"):
        return ""
    made = (each.account for each in stored.values() if each.name == caller.name and each.is_valid(now))
    return next(made, "") or caller.name


def page_bounds(rights: Rights, origins: Sequence[str], per_minute: int, max_message_bytes: int) -> PageBounds:
    """The bounds of a token in a web page. Raises InvalidParameter for other rights than to publish."""
    if any(set(granted) != {Right.SEND} for granted in rights.values()):
        reason = "anyone can read the token of a page, so it can have no other right than send"
        raise InvalidParameter(name="rights", reason=reason, pointer="/rights")
    return PageBounds(tuple(rights), tuple(origins), per_minute, max_message_bytes)


def new_token(
    name: str, rights: Rights, by: str, now: int, ends_at: int, account: str = "", page: PageBounds | None = None
) -> tuple[MadeToken, str]:
    """A token that the caller ``by`` makes at ``now``, and its secret. ``page``: the bounds of one in a web page, from
    :func:`page_bounds`. Raises InvalidParameter for an illegal name."""
    for member, text, legal in (("name", name, NAME), *(("rights", queue, PATTERN) for queue in rights)):
        if not re.fullmatch(legal, text):
            raise InvalidParameter(name=member, reason=f"must match {legal}", pointer=f"/{member}")
    secret = new_secret()
    made = MadeToken(
        id=secrets.token_hex(8),
        name=name,
        rights=rights if page is None else {},
        page=page,
        created_at=now,
        created_by=by,
        ends_at=ends_at,
        known_until=ends_at,
        sha256=digest(secret),
        at=now,
        change=secrets.token_hex(4),
        by=by,
        account=account,
    )
    return made, secret


def with_new(stored: Stored, token: MadeToken, now: int) -> Stored:
    """``stored`` with a token that was just made. Raises TokenNameTaken, TooManyTokens."""
    valid = [each for each in stored.values() if each.is_valid(now)]
    if any(each.name == token.name for each in valid):
        raise TokenNameTaken(name=token.name)
    if len(valid) >= MAX_TOKENS:
        raise TooManyTokens(limit=MAX_TOKENS, kind="valid tokens", advice="Revoke one of them first.")
    if len(stored) >= MAX_REMEMBERED:
        kind, advice = "tokens that are valid or revoked", "A revoked one is forgotten a day after its end."
        raise TooManyTokens(limit=MAX_REMEMBERED, kind=kind, advice=advice)
    if token.account and sum(each.account == token.account for each in stored.values()) >= MAX_OF_ACCOUNT:
        kind = f"tokens of {token.account!r} that are valid or revoked"
        advice = "A revoked one is forgotten a day after its end: make tokens that end sooner."
        raise TooManyTokens(limit=MAX_OF_ACCOUNT, kind=kind, advice=advice)
    return merged(stored, [token], now)
