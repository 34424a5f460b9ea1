"""A client of a gateway's batch endpoint: returns the outcome of each message, or why the whole request failed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from babelgate.errors import IdempotencyUnresolved

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_NDJSON = {"content-type": "application/x-ndjson"}
_AGAIN = frozenset({408, 409, 425, 429})
"""HTTP statuses of a request that is worth repeating, besides all from 500 on, which proxies also send."""
TOO_LARGE = 413
_UNRESOLVED_DETAIL = (
    "The first call with this idempotency key was cut off: its message may have been published. None was now."
)
"""The text of IdempotencyUnresolved in gateways whose results have no ``retryable``."""

Status = Literal["accepted", "replayed", "rejected", "unknown", "left"]


class Outcome(NamedTuple):
    """The outcome of one message. ``left``: worth another try; ``unknown``: it may have been published."""

    status: Status
    http_status: int | None
    code: str | None = None


class Busy(NamedTuple):
    """The request failed and may be repeated after ``retry_after`` seconds, None if the answer has no such time."""

    code: str
    http_status: int | None
    retry_after: float | None


class GatewayRefusal(NamedTuple):
    """The gateway accepts no such request: credential, right or queue is missing, or no store of idempotency keys."""

    http_status: int
    code: str
    detail: str


class Target(NamedTuple):
    """The gateway to send to. ``token``: bearer token."""

    url: str
    token: str | None


class GatewayClient:
    """One connection to a gateway. Every call blocks for at most 130 s. No call retries."""

    def __init__(self, target: Target) -> None:
        headers = {"authorization": f"Bearer {target.token}"} if target.token else {}
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        self._http = httpx.Client(base_url=target.url, headers=headers, timeout=timeout)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def check(self, queue: str) -> Busy | GatewayRefusal | None:
        """Check with an empty upload that the queue exists and may be sent to. None: it may."""
        answer = self._post(queue, b"")
        return None if isinstance(answer, list) else answer

    def retention_seconds(self, queue: str) -> float | None:
        """Seconds for which the queue's idempotency keys are kept; None if the gateway does not report it."""
        try:
            policy = _object(self._http.get(f"queues/{quote(queue, safe='')}").content).get("idempotency")
        except httpx.RequestError:
            return None
        seconds = policy.get("retention_seconds") if isinstance(policy, dict) else None
        return float(seconds) if isinstance(seconds, int | float) else None

    def send(self, queue: str, entries: Sequence[bytes]) -> list[Outcome] | Busy | GatewayRefusal:
        """Publish a batch. Returns one outcome per entry, in order, or why the request failed."""
        answer = self._post(queue, b"\n".join(entries) + b"\n")
        if not isinstance(answer, list):
            return answer
        if len(answer) != len(entries):
            return Busy("no_answer", None, None)
        for each in answer:
            if each.get("code") == "idempotency_unsupported":
                return GatewayRefusal(each["status"], each["code"], each.get("detail") or "")
        return [_outcome(each) for each in answer]

    def _post(self, queue: str, content: bytes) -> list[dict[str, Any]] | Busy | GatewayRefusal:
        path = f"queues/{quote(queue, safe='')}/messages:batch"
        try:
            response = self._http.post(path, content=content, headers=_NDJSON)
        except httpx.RequestError as error:
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            return Busy("unreachable" if unsent else "no_answer", None, None)
        answer = _object(response.content)
        if response.status_code in (201, 207):
            results = answer.get("results")
            return results if isinstance(results, list) else Busy("no_answer", response.status_code, None)
        code = str(answer.get("code") or f"http_{response.status_code}")
        if response.status_code in _AGAIN or response.status_code >= 500:
            return Busy(code, response.status_code, _seconds(response.headers))
        return GatewayRefusal(response.status_code, code, str(answer.get("detail") or "it gave no reason"))


def _outcome(result: Mapping[str, Any]) -> Outcome:
    status, code = int(result["status"]), result.get("code")
    if status == 201:
        return Outcome("replayed" if result.get("replayed") else "accepted", status)
    final = result.get("retryable") is False or result.get("detail") == _UNRESOLVED_DETAIL
    if code == IdempotencyUnresolved.code and final:
        return Outcome("unknown", status, code)
    # Any other 504: the broker did not answer. Repeating the same key returns the outcome, or that it is unknown.
    again = status in (429, 500, 503, 504) or code == "idempotency_in_progress"
    return Outcome("left" if again else "rejected", status, code)


def _object(content: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _seconds(headers: httpx.Headers) -> float | None:
    """Seconds of Retry-After, which is a number or a date (RFC 9110, section 10.2.3)."""
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def url_fault(url: str) -> str | None:
    """Why ``url`` is no valid gateway URL; None if it is valid. Does not quote a URL that may contain a password."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        # It refuses more, such as control characters, which urlsplit drops.
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        is_whole = False
    if "@" in url:
        return "a URL with a user or password would be stored: use a token instead"
    return None if is_whole else f"{url!r} is no http URL"
