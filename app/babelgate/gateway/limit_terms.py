"""What is configured about limits of identities and queues, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RateTerms:
    """Rates; None: no limit. After a pause, what ``burst_seconds`` bring may come at once."""

    requests_per_second: float | None = None
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: int = 1

    @property
    def has_rates(self) -> bool:
        """Whether any rate is limited."""
        rates = self.requests_per_second, self.messages_per_second, self.bytes_per_second
        return any(rate is not None for rate in rates)


@dataclass(frozen=True, slots=True)
class QueueTerms(RateTerms):
    """The limits of one queue: of all callers together, and of each identity on it."""

    per_identity: RateTerms | None = None
    counted_in: Literal["process", "replicas"] = "process"
    """Whether each process counts for itself, or all replicas together."""
