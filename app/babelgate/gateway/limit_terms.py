"""What is configured about limits of identities and queues, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class RateTerms:
    """Rates, and other limits; None: no limit. After a pause, what ``burst_seconds`` bring may come at once.

    ``max_message_bytes``: of one message as it is sent. ``max_receives``, ``max_streams``, ``max_leases``: at a time.
    """

    requests_per_second: float | None = None
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: int = 1
    max_message_bytes: int | None = None
    max_receives: int | None = None
    max_streams: int | None = None
    max_leases: int | None = None
    limits_anything: bool = field(init=False, repr=False, compare=False)
    """Whether anything is limited by them. A publish looks at it three times."""

    def __post_init__(self) -> None:
        rates = self.requests_per_second, self.messages_per_second, self.bytes_per_second
        others = self.max_message_bytes, self.max_receives, self.max_streams, self.max_leases
        object.__setattr__(self, "limits_anything", any(limit is not None for limit in (*rates, *others)))

    def most(self, kind: Literal["receives", "streams", "leases"]) -> int | None:
        """How many there may be at a time."""
        if kind == "leases":
            return self.max_leases
        return self.max_receives if kind == "receives" else self.max_streams


@dataclass(frozen=True, slots=True)
class QueueTerms(RateTerms):
    """The limits of one queue: of all callers together, and of each identity on it. ``max_depth``: None for any."""

    per_identity: RateTerms | None = None
    max_depth: int | None = None
    counted_in: Literal["process", "replicas"] = "process"
    """Whether each process counts for itself, or all replicas together."""
