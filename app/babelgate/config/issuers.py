"""The section about issuers of signed tokens (JWT), as of OpenID Connect."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from babelgate.config.section import QueuePattern, Section, commas
from babelgate.gateway.authorization import Right
from babelgate.urls import refusal_of

RESERVED = ("anyone", "nobody", "push", "sender of ")
"""How callers that the gateway makes itself are called."""
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def _url(value: str) -> str:
    if (refused := refusal_of(value)) is not None:
        raise ValueError(refused)
    return value


def _keys_url(value: str) -> str:
    if (refused := refusal_of(value, may_have_query=True)) is not None:
        raise ValueError(refused)
    return value


def _claim(value: object) -> object:
    """Split a text at its dots. A list names each member as it is, so that a name may have dots."""
    return value.split(".") if isinstance(value, str) else value


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Url = Annotated[str, Field(max_length=2_000), AfterValidator(_url)]
KeysUrl = Annotated[str, Field(max_length=2_000), AfterValidator(_keys_url)]
Claim = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
    BeforeValidator(_claim),
    Field(min_length=1, max_length=10),
]
Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1_000)], ...],
    BeforeValidator(_several),
    Field(min_length=1, max_length=1_000),
]


class GrantSettings(Section):
    """What a token is granted whose claim has a value."""

    claim: Claim = Field(
        description="The claim, such as `groups` or `realm_access.roles`. Names in a list, such as `[kubernetes.io, "
        "pod]`, may have dots."
    )
    value: Texts = Field(
        description="The value, or several: one of them must be the claim, or a member of its list. `scope` and `scp` "
        "are lists with spaces."
    )
    grant: dict[QueuePattern, tuple[Right, ...]] = Field(
        min_length=1, description="For each queue pattern: `send`, `listen`, `manage`, `observe`."
    )


class IssuerSettings(Section):
    """An issuer of signed tokens (JWT), and what they grant; see docs/identities.md."""

    issuer: Url = Field(
        description="The issuer, exactly as in the claim `iss`, such as `https://sso.example/realms/shop`."
    )
    audience: Texts = Field(description="What the claim `aud` must have: one of these.")
    jwks_url: KeysUrl | None = Field(
        default=None, description="The address of the keys. None: the one that the issuer's OpenID configuration names."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates, PEM, that verify the issuer's. None: those of this machine."
    )
    bearer_file: Path | None = Field(
        default=None, description="A file with a token that is sent to `jwks_url`, as Kubernetes needs it."
    )
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(commas)] = Field(
        default=("RS256", "PS256", "ES256", "EdDSA"), min_length=1, description="The signatures that are accepted."
    )
    leeway_seconds: float = Field(default=30, ge=0, le=300, description="By how much the clocks may differ.")
    refresh_seconds: float = Field(
        default=300,
        ge=10,
        le=86_400,
        description="Time between two reads of the keys. A new key is read when a token names it.",
    )
    name_claim: Claim = Field(default=("sub",), description="The claim that names the caller, in logs and limits.")
    name_prefix: str | None = Field(
        default=None,
        # Names of tokens that the gateway makes have none of the last characters.
        pattern="^[!-~]{0,119}[/:@|#+~!]$",
        description="What precedes this name, so that it is no name of another; ends with one of `/ : @ | # + ~ !`. "
        "None: the host of the issuer and `/`.",
    )
    rights: tuple[GrantSettings, ...] = Field(
        min_length=1,
        max_length=1_000,
        description="What tokens are granted: all that matches. A token that matches none has no right.",
    )

    @model_validator(mode="after")
    def _has_place(self) -> Self:
        if self.bearer_file is not None and self.jwks_url is None:
            raise ValueError("bearer_file needs jwks_url, because the token is sent to no address that others state")
        return self

    @property
    def prefix(self) -> str:
        """What precedes the names of callers."""
        return self.name_prefix or f"{urlsplit(self.issuer).netloc}/"


def check_issuers(issuers: Iterable[IssuerSettings], names: Iterable[str]) -> None:
    """Raise ValueError for two equal issuers, and for names that two callers could have. ``names``: of others."""
    known = list(issuers)
    if len({each.issuer for each in known}) < len(known):
        raise ValueError("two issuers are the same")
    taken = [*RESERVED, *names]
    for index, each in enumerate(known):
        if any(name.startswith(each.prefix) for name in taken):
            raise ValueError(
                f"issuers.{index}: a token, a sender, or a caller of the gateway itself, "
                "has a name that begins with name_prefix"
            )
        others = [other.prefix for place, other in enumerate(known) if place != index]
        if any(other.startswith(each.prefix) for other in others):
            raise ValueError(f"issuers.{index}: its name_prefix begins that of another issuer, so set other ones")
