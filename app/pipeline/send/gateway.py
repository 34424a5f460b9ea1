"""A gateway's batch endpoint, as a task sees it: what became of each message, or why nothing came of the request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from app.errors import IdempotencyUnresolved

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_NDJSON = {"content-type": "application/x-ndjson"}
_AGAIN = frozenset({408, 409, 425, 429})
"""Of a whole request: it may fare better later, as it may after all from 500 on, of which proxies have their own."""
TOO_LARGE = 413
_UNRESOLVED = IdempotencyUnresolved()

Status = Literal["accepted", "replayed", "rejected", "unknown", "left"]


class Outcome(NamedTuple):
    """Of one message. ``left``: it is worth another try; ``unknown``: it may have been published, or not."""

    status: Status
    http_status: int | None
    code: str | None = None


class Busy(NamedTuple):
    """The request may be sent again after ``retry_after`` seconds, None where nobody told."""

    code: str
    http_status: int | None
    retry_after: float | None


class GatewayRefusal(NamedTuple):
    """No request like this one will be taken: no credential, no right, no such queue, nobody keeps keys."""

    http_status: int
    code: str
    detail: str


class Target(NamedTuple):
    """Where messages go. ``token``: bearer token."""

    url: str
    token: str | None


class GatewayClient:
    """One connection to a gateway; every call blocks for at most 130 s."""

    def __init__(self, target: Target) -> None:
        headers = {"authorization": f"Bearer {target.token}"} if target.token else {}
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        self._http = httpx.Client(base_url=target.url, headers=headers, timeout=timeout)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def check(self, queue: str) -> Busy | GatewayRefusal | None:
        """Whether the queue is there and may be sent to: an upload of nothing."""
        answer = self._post(queue, b"")
        return None if isinstance(answer, list) else answer

    def retention_seconds(self, queue: str) -> float | None:
        """For how long the queue's idempotency keys are kept; None: it does not tell."""
        try:
            told = _object(self._http.get(f"queues/{quote(queue, safe='')}").content).get("idempotency")
        except httpx.RequestError:
            return None
        seconds = told.get("retention_seconds") if isinstance(told, dict) else None
        return float(seconds) if isinstance(seconds, int | float) else None

    def send(self, queue: str, entries: Sequence[bytes]) -> list[Outcome] | Busy | GatewayRefusal:
        """Publish a batch; an outcome per entry, in order."""
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
        told = _object(response.content)
        if response.status_code in (201, 207):
            results = told.get("results")
            return results if isinstance(results, list) else Busy("no_answer", response.status_code, None)
        code = str(told.get("code") or f"http_{response.status_code}")
        if response.status_code in _AGAIN or response.status_code >= 500:
            return Busy(code, response.status_code, _seconds(response.headers))
        return GatewayRefusal(response.status_code, code, str(told.get("detail") or "it gave no reason"))


def _outcome(result: Mapping[str, Any]) -> Outcome:
    status, code = int(result["status"]), result.get("code")
    if status == 201:
        return Outcome("replayed" if result.get("replayed") else "accepted", status)
    # A gateway that does not tell what is worth another try says it in words.
    if code == _UNRESOLVED.code and (result.get("retryable") is False or result.get("detail") == _UNRESOLVED.detail):
        return Outcome("unknown", status, code)
    # 504 otherwise: a broker did not answer. The same key tells what became of the message, or that nobody knows.
    again = status in (429, 500, 503, 504) or code == "idempotency_in_progress"
    return Outcome("left" if again else "rejected", status, code)


def _object(content: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return told if isinstance(told, dict) else {}


def _seconds(headers: httpx.Headers) -> float | None:
    """Of Retry-After, which is a number or a date (RFC 9110, section 10.2.3)."""
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def url_fault(url: str) -> str | None:
    """Why ``url`` is no gateway's, in words that do not quote it where it may hold a password; None: nothing is."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_whole = False
    if "@" in url:
        return "a URL with a user or a password would be written down: give a token"
    return None if is_whole else f"{url!r} is no http URL"
