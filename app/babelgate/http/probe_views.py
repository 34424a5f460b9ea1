"""The answers of probes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from babelgate.http.views import BrokerStateView, View


class IssuerStateView(View):
    """The keys of an issuer of tokens, as this process knows them."""

    issuer: str
    """As it is configured."""
    keys: int = Field(description="How many keys verify tokens; 0: its tokens are refused.")
    read_at: int | None = Field(
        default=None, description="When the keys were read last, Unix milliseconds UTC; left out: never."
    )
    error: str | None = Field(
        default=None,
        description="Why the last try to read them failed; left out: it did not. Earlier keys stay in use.",
    )


class SchemasStateView(View):
    """The schemas of jobs that are read from a URL, as this process knows them."""

    schemas: int = Field(description="How many are in use.")
    error: str | None = Field(
        default=None,
        description="Why the last try to read them failed, or what was read cannot be used; left out: neither. Earlier "
        "schemas stay in use, and readiness does not depend on it.",
    )


class ProbeView(View):
    """The answer of a successful probe."""

    status: Literal["ok"]
    """Always `ok`; any other state is a problem."""
    brokers: list[BrokerStateView] | None = Field(
        default=None, description="Only with `verbose`, and for callers that may manage queues on these brokers."
    )
    schemas: SchemasStateView | None = Field(
        default=None, description="Only with `verbose`, where they are from a URL, and for callers that see brokers."
    )
    issuers: list[IssuerStateView] | None = Field(
        default=None, description="Only with `verbose`, where some are configured, and for callers that see brokers."
    )
