"""The time to live of a single message, which travels in a native header beside its envelope.

The header has the time at which the message expires, not a duration: copies, dead letters and messages that another
gateway publishes with the same headers keep it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from babelgate.envelope.options import EXPIRES_AT_HEADER, NEVER_EXPIRES
from babelgate.jsontext import digits

EXPIRED = "message expired"
"""The error of a dead letter whose message was past its time to live."""


def with_expiry(headers: Mapping[str, str], now: int, seconds: float) -> dict[str, str]:
    """``headers`` with the expiry ``seconds`` after ``now`` (Unix ms). It comes first: some brokers carry few."""
    own = {EXPIRES_AT_HEADER: str(now + math.ceil(seconds * 1000))}
    return {**own, **headers, **own}


def has_expired(headers: Mapping[str, str], now: int) -> bool:
    """Whether a message with ``headers`` has expired at ``now`` (Unix ms). A value that is no time is ignored."""
    text = headers.get(EXPIRES_AT_HEADER)
    at = None if text is None else digits(text)
    return at is not None and at <= now


def without_expiry(headers: Mapping[str, str]) -> dict[str, str]:
    """``headers`` of a message that no longer expires."""
    return {**headers, EXPIRES_AT_HEADER: NEVER_EXPIRES} if EXPIRES_AT_HEADER in headers else dict(headers)
