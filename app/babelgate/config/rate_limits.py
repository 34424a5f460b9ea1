"""The sections about limits of identities and queues; see docs/limits.md."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from babelgate.config.section import Section
from babelgate.gateway.limit_terms import QueueTerms, RateTerms

Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class RateSettings(Section):
    """Rates of one identity, or of one queue."""

    requests_per_second: Rate | None = Field(
        default=None, description="Requests a second, whatever they ask for. None: no limit."
    )
    messages_per_second: Rate | None = Field(
        default=None, description="Published messages a second; those of a batch count each. None: no limit."
    )
    bytes_per_second: Rate | None = Field(
        default=None, description="Bytes of published messages a second, as they are sent. None: no limit."
    )
    burst_seconds: int = Field(
        default=1, ge=1, le=86_400, description="After a pause, what so many seconds bring may come at once."
    )

    @property
    def terms(self) -> RateTerms:
        """The same for the gateway."""
        return RateTerms(self.requests_per_second, self.messages_per_second, self.bytes_per_second, self.burst_seconds)


class QueueLimitSettings(RateSettings):
    """The limits of one queue; of a pattern, each queue has its own."""

    per_identity: RateSettings | None = Field(
        default=None, description="The rates of each identity on this queue. None: no limits."
    )

    @property
    def terms(self) -> QueueTerms:
        return QueueTerms(
            self.requests_per_second,
            self.messages_per_second,
            self.bytes_per_second,
            self.burst_seconds,
            None if self.per_identity is None else self.per_identity.terms,
        )


class RateLimitSettings(Section):
    """Limits of all identities."""

    identity: RateSettings | None = Field(
        default=None, description="The rates of each identity that has no `limits` of its own. None: no limits."
    )
