"""What became of the pushes of one queue in this process."""

from __future__ import annotations

from collections import Counter, deque

from msgspec import Struct

MAX_FAILURES = 10
"""The latest failures that are kept."""


class PushFailure(Struct, frozen=True):
    """A post that was no success. ``at``: Unix ms; ``webhook_id``: of its message; ``status``: None without an answer.

    ``code``: ``unreachable``, ``no_answer``, ``status`` or ``internal_error``.
    """

    at: int
    webhook_id: str
    status: int | None
    code: str
    detail: str


class PushState:
    """The outcomes since the start, and the latest failures."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures: deque[PushFailure] = deque(maxlen=MAX_FAILURES)

    def ended(self, outcome: str, failure: PushFailure | None, count: int) -> None:
        """Count the messages of a post."""
        self.outcomes[outcome] += count
        if failure is not None:
            self.failures.append(failure)
