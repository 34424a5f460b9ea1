"""The errors of a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class BabelgateError(Exception):
    """Base of all errors of this package, but for those that a handler raises to end its delivery."""


class ProblemError(BabelgateError):
    """The gateway answered with a problem (RFC 9457).

    ``code`` is stable: use it, and not the text, to tell problems apart. ``retryable``: the same request may succeed
    later, after ``retry_after`` seconds if that is given. ``errors``: each has ``pointer``, ``code`` and ``detail``.
    """

    def __init__(self, status: int, problem: dict[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        code = problem.get("code")
        self.is_of_proxy = not (isinstance(code, str) and code)
        """Whether a proxy in front of the gateway says this: ``code`` is ``http_`` and the status then."""
        self.code: str = f"http_{status}" if self.is_of_proxy else str(code)
        self.title: str = problem.get("title") or ""
        self.detail: str = problem.get("detail") or "the answer has no details"
        self.retryable: bool = bool(problem.get("retryable"))
        self.trace_id: str | None = problem.get("trace_id")
        self.errors: Sequence[dict[str, str]] = problem.get("errors") or ()
        self.retry_after = retry_after
        super().__init__(f"{self.code}: {self.detail}")


class LeaseLostError(ProblemError):
    """The lease is over: the message was settled, or is delivered again."""


class UnreachableError(BabelgateError):
    """No gateway answered. ``outcome_unknown``: the request may have been carried out all the same."""

    def __init__(self, reason: str, outcome_unknown: bool) -> None:
        self.outcome_unknown = outcome_unknown
        super().__init__(reason + (" The request may have been carried out." if outcome_unknown else ""))


class Reject(Exception):
    """Raised by a handler: dead-letter the message now."""


class Retry(Exception):
    """Raised by a handler: deliver the message again after ``delay_seconds``. It counts as a failed attempt."""

    def __init__(self, delay_seconds: float, message: str = "the handler requested another delivery") -> None:
        self.delay_seconds = delay_seconds
        super().__init__(message)
