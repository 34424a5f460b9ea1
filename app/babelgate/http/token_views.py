"""Requests and answers about tokens, as FastAPI validates and documents them."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from babelgate.config.pages import page_origin
from babelgate.gateway.authorization import Right
from babelgate.http.views import StrictBody, View
from babelgate.tokens.file import MadeToken, PageBounds
from babelgate.tokens.making import NAME, PATTERN
from babelgate.tokens.tokens import TokenChange

MAX_SECONDS = 315_360_000
"""Ten years."""
MAX_OVERLAP_SECONDS = 2_592_000
MAX_PATTERNS = 50
_Ttl = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
_End = Annotated[int, Field(ge=0, le=253_402_300_799_999)]


class PageRequest(StrictBody):
    """The bounds of a token that is part of a web page, where anyone can read it."""

    origins: list[Annotated[str, AfterValidator(page_origin)]] = Field(
        min_length=1,
        max_length=100,
        examples=[["https://shop.example"]],
        description="The origins of the pages, such as `https://shop.example`; `cors` of the configuration must allow "
        "each, or browsers do not let the page use the token.",
    )
    per_minute: int = Field(
        default=60,
        ge=1,
        le=1_000_000,
        description="Messages a minute that each process accepts with this token. After a pause as many may come at "
        "once.",
    )
    max_message_bytes: int = Field(
        default=16_384, ge=64, le=2_147_483_647, description="Size of one message as it is sent, in bytes."
    )


class TokenRequest(StrictBody):
    """A token to be made. It needs one of `ttl_seconds` and `ends_at`."""

    # Right is a text in JSON.
    model_config = ConfigDict(strict=True)

    name: str = Field(
        pattern=NAME,
        description="The name of the holder, for logs: 1 to 120 of `A-Z a-z 0-9 . _ -`. No other valid token has it.",
    )
    rights: dict[str, list[Annotated[Right, Field(strict=False)]]] = Field(
        min_length=1,
        max_length=MAX_PATTERNS,
        description="For each name or pattern of queues: `send`, `listen`, `manage`, `observe`. You need `manage` and "
        "each of these rights on all these queues.",
    )
    ttl_seconds: _Ttl | None = Field(
        default=None,
        description="Seconds from now to its end, at most `auth.made_tokens.max_ttl_seconds`; may be decimal. "
        "Without it: `ends_at` counts.",
    )
    ends_at: _End | None = Field(default=None, description="Its end, Unix milliseconds UTC.")
    page: PageRequest | None = Field(
        default=None,
        description="The token is part of a web page, and can only publish, within these bounds; `rights` must be "
        "`send` alone. Without it: an ordinary token.",
    )

    @field_validator("rights")
    @classmethod
    def _legal(cls, rights: dict[str, list[Right]]) -> dict[str, list[Right]]:
        illegal = next((queue for queue in rights if not re.fullmatch(PATTERN, queue)), None)
        if illegal is not None:
            raise ValueError(f"a name or pattern of queues must match {PATTERN}")
        empty = next((queue for queue, granted in rights.items() if not granted), None)
        if empty is not None:
            raise ValueError(f"{empty} has no right")
        return rights

    @property
    def granted(self) -> dict[str, tuple[Right, ...]]:
        """The rights, each once."""
        return {queue: tuple(dict.fromkeys(granted)) for queue, granted in self.rights.items()}


class RotationRequest(StrictBody):
    """How to rotate. Without a body: the old secret is valid for an hour, and the end stays."""

    overlap_seconds: float = Field(
        default=3_600,
        ge=0,
        le=MAX_OVERLAP_SECONDS,
        allow_inf_nan=False,
        description="Seconds for which the old secret stays valid: 0 to 2592000; 0: it is invalid at once.",
    )
    ttl_seconds: _Ttl | None = Field(
        default=None,
        description="Seconds from now to the new end, at most `auth.made_tokens.max_ttl_seconds`; may be decimal. "
        "Without it and `ends_at` the end stays.",
    )
    ends_at: _End | None = Field(default=None, description="The new end, Unix milliseconds UTC.")


ROTATION = RotationRequest()


class PageView(View):
    """The bounds of a token that is part of a web page."""

    origins: list[str]
    """The origins of the pages."""
    per_minute: int
    """Messages a minute that each process accepts with it."""
    max_message_bytes: int
    """Size of one message as it is sent, in bytes."""

    @classmethod
    def of(cls, page: PageBounds) -> Self:
        """The view of ``page``."""
        return cls(origins=list(page.origins), per_minute=page.per_minute, max_message_bytes=page.max_message_bytes)


class TokenView(View):
    """A token, without its secret."""

    id: str
    """Its id in paths."""
    name: str
    """The name of its holder in logs."""
    rights: dict[str, list[Right]]
    """For each name or pattern of queues: `send`, `listen`, `manage`, `observe`."""
    created_at: int = Field(description="When it was made, Unix milliseconds UTC.")
    created_by: str
    """The name of the caller that made it."""
    ends_at: int = Field(description="When it ends, Unix milliseconds UTC.")
    old_ends_at: int | None = Field(
        description="When its old secret ends, Unix milliseconds UTC; `null`: it has one secret."
    )
    page: PageView | None = Field(description="The bounds of a token that is part of a web page; `null`: of none.")

    @classmethod
    def of(cls, token: MadeToken) -> Self:
        """The view of ``token``."""
        return cls(
            id=token.id,
            name=token.name,
            rights={queue: list(granted) for queue, granted in token.granted.items()},
            created_at=token.created_at,
            created_by=token.created_by,
            ends_at=token.ends_at,
            old_ends_at=token.old_ends_at or None,
            page=None if token.page is None else PageView.of(token.page),
        )


class TokenListView(View):
    """The valid tokens that the caller may revoke."""

    tokens: list[TokenView]
    """By name."""


class _Spread(View):
    kept: bool
    """Whether `state_dir` has it. `false`: it is in memory, and ends with the process that answers."""
    told: int
    """How many other processes have confirmed that they know it."""
    silent: list[str]
    """Peers that gave no answer, by address or socket. They learn it when they answer again."""
    detail: str
    """The same in sentences for people."""


class IssuedTokenView(_Spread):
    """A token with its secret, and which processes know it."""

    secret: str
    """What its holder sends: `Authorization: Bearer …`. It is shown once, and not kept."""
    token: TokenView

    @classmethod
    def of(cls, change: TokenChange) -> Self:
        """The view of a token that was made or rotated."""
        return cls(
            secret=change.secret,
            token=TokenView.of(change.token),
            kept=change.kept,
            told=change.told,
            silent=list(change.silent),
            detail=change.detail,
        )


class RevokedTokenView(_Spread):
    """A token that was revoked, and which processes know it."""

    id: str
    """Its id."""
    name: str
    """The name of its holder in logs."""
    revoked: bool = True
    """Always `true`."""

    @classmethod
    def of(cls, change: TokenChange) -> Self:
        """The view of a token that was revoked."""
        return cls(
            id=change.token.id,
            name=change.token.name,
            kept=change.kept,
            told=change.told,
            silent=list(change.silent),
            detail=change.detail,
        )
