"""The sections about limits of identities and queues; see docs/limits.md."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field

from babelgate.config.section import Section
from babelgate.gateway.limit_terms import QueueTerms, RateTerms

Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class RateSettings(Section):
    """Rates and other limits of one identity, or of one queue."""

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
        default=1,
        ge=1,
        le=86_400,
        description="After a pause, as much may come at once as the limits allow in this number of seconds.",
    )
    max_message_bytes: int | None = Field(
        default=None, ge=64, description="Size of one message, as it is sent; `limits.max_message_bytes` holds as well."
    )
    max_receives: int | None = Field(
        default=None,
        ge=1,
        description="Receives at a time, including waiting ones: of one process, or of all that share.",
    )
    max_streams: int | None = Field(
        default=None, ge=1, description="Streams at a time: of one process, or of all that share."
    )
    max_leases: int | None = Field(
        default=None,
        ge=1,
        description="Messages handed out and not settled, at a time: by one process, or by all that share.",
    )

    @property
    def terms(self) -> RateTerms:
        """The same for the gateway."""
        return RateTerms(**self._values)

    @property
    def limits_leases(self) -> bool:
        """Whether a number of leases is limited."""
        return self.max_leases is not None

    @property
    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(RateTerms) if field.init}


class QueueLimitSettings(RateSettings):
    """The limits of one queue; of a pattern, each queue has its own."""

    per_identity: RateSettings | None = Field(
        default=None, description="The limits of each identity on this queue. None: no limits."
    )
    max_depth: int | None = Field(
        default=None,
        ge=1,
        description="Messages on the queue, ready and delayed, beyond which publishes are 429 `queue_full`. None: any.",
    )

    @property
    def limits_leases(self) -> bool:
        """Whether a number of leases is limited."""
        return super().limits_leases or (self.per_identity is not None and self.per_identity.limits_leases)

    def counted(self, together: bool) -> QueueTerms:
        """The same for the gateway. ``together``: all replicas count rates together."""
        return QueueTerms(
            **self._values,
            per_identity=None if self.per_identity is None else self.per_identity.terms,
            max_depth=self.max_depth,
            counted_in="replicas" if together else "process",
        )


class RateLimitSettings(Section):
    """Limits of all identities."""

    store: str | None = Field(
        default=None,
        min_length=1,
        description="The name of a broker in which all replicas count [together](limits.md#replicas). None: each "
        "process for itself.",
    )
    identity: RateSettings | None = Field(
        default=None, description="The limits of each identity that has no `limits` of its own. None: no limits."
    )
