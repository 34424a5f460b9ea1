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


class ProbeView(View):
    """The answer of a successful probe."""

    status: Literal["ok"]
    """Always `ok`; any other state is a problem."""
    brokers: list[BrokerStateView] | None = Field(
        default=None, description="Only with `verbose`, and for callers that may manage queues on these brokers."
    )
    issuers: list[IssuerStateView] | None = Field(
        default=None, description="Only with `verbose`, where some are configured, and for callers that see brokers."
    )
