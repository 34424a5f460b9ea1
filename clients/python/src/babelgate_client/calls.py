"""Requests to a gateway: how they are written, read and repeated. Both clients are built on this."""

from __future__ import annotations

import json
import random
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import quote

import httpx

from babelgate_client.errors import BabelgateError, LeaseLostError, ProblemError, UnreachableError
from babelgate_client.generated.models.entry_result import EntryResult
from babelgate_client.messages import Delivery, Message

VERSION = "0.2.0"
USER_AGENT = f"babelgate-python/{VERSION}"
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
ENTRIES_PER_REQUEST = 1_000
BYTES_PER_REQUEST = 4_194_304
"""A gateway takes 10,000 entries and 16 MiB by default. Smaller requests are repeated in smaller parts."""
FOREVER = float("inf")
NEEDS_NO_KEY = "idempotency_unsupported"
JSON_LINES = "application/x-ndjson"
_VISIBLE = re.compile(r"[!-~]+")
_GATEWAY_URL = re.compile(r"https?://[^\x00-\x20\x7f/?#:][^\x00-\x20\x7f/?#]*(/[^\x00-\x20\x7f?#]*)?", re.IGNORECASE)


class Repeat(Enum):
    """When the same request may be sent again."""

    ALWAYS = "always"
    """It has the same effect twice as once."""
    UNLESS_WRITTEN = "unless written"
    """Only if the gateway said, or it is certain, that nothing was written."""


@dataclass(frozen=True)
class Call:
    """One request. ``body``: JSON; the same bytes are sent each time, as an idempotency key requires."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: float = 0
    """How long the gateway may wait before it answers, beyond the usual time-out."""
    repeat: Repeat = Repeat.ALWAYS


class Attempts:
    """The pauses between the attempts of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says.

    They end ``retry_seconds`` after the first attempt.
    """

    def __init__(self, repeat: Repeat, retry_seconds: float) -> None:
        self._repeat = repeat
        self._deadline = time.monotonic() + retry_seconds
        self._pause = FIRST_PAUSE_SECONDS

    def pause_after(self, error: BabelgateError) -> float:
        """Seconds until the next attempt. Raises ``error`` if there is none."""
        if not _repeats(error, self._repeat):
            raise error
        pause = self._pause * random.uniform(0.5, 1)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        if isinstance(error, ProblemError) and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        if time.monotonic() + pause > self._deadline:
            raise error
        return pause


def _repeats(error: BabelgateError, repeat: Repeat) -> bool:
    if isinstance(error, UnreachableError):
        return repeat is Repeat.ALWAYS or not error.outcome_unknown
    assert isinstance(error, ProblemError)
    if repeat is Repeat.UNLESS_WRITTEN:
        return error.retryable and error.status in (429, 503)
    return error.retryable or (error.is_of_proxy and error.status in (408, 429, 502, 503, 504))


def publish(queue: str, message: Message, key: str | None, traceparent: str | None) -> Call:
    """Publish one message."""
    headers = traced(traceparent)
    if key is not None:
        headers["Idempotency-Key"] = quoted(key)
    repeat = Repeat.UNLESS_WRITTEN if key is None else Repeat.ALWAYS
    return Call("POST", path(queue, "messages"), message.draft(None), headers, repeat=repeat)


def receive(queue: str, max_messages: int, wait_seconds: float, lease_seconds: float | None) -> Call:
    """Receive messages."""
    parameters: dict[str, Any] = {"max_messages": max_messages, "wait_seconds": wait_seconds}
    if lease_seconds is not None:
        parameters["lease_seconds"] = lease_seconds
    return Call("POST", path(queue, "messages:receive"), encoded(parameters), wait_seconds=wait_seconds)


def stream(queue: str, max_in_flight: int, lease_seconds: float) -> Call:
    """Receive messages as they come. Proxies that compress an answer hold parts of it back."""
    headers = {"Accept": JSON_LINES, "Accept-Encoding": "identity"}
    parameters = f"max_in_flight={max_in_flight}&lease_seconds={lease_seconds}"
    return Call("GET", path(queue, f"messages:stream?{parameters}"), headers=headers)


def settle(queue: str, action: str, tokens: Sequence[str], **parameters: Any) -> Call:
    """``ack``, ``nack``, ``reject`` or ``extend``."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return Call("POST", path(queue, f"messages:{action}"), encoded({"ack_tokens": [*tokens], **given}))


def deliveries(queue: str, answer: dict[str, Any]) -> list[Delivery]:
    """The messages of the answer of a receive."""
    return [
        Delivery(
            queue,
            each["ack_token"],
            each["lease_expires_at"],
            each["attempts"],
            each["redelivered"],
            each["headers"],
            each["envelope"],
            each.get("broker_properties", {}),
        )
        for each in answer["messages"]
    ]


class Batch:
    """A batch on its way: the bytes of each entry, and its last result."""

    def __init__(self, queue: str, messages: Sequence[Message], keyed: bool, traceparent: str | None) -> None:
        self._queue = queue
        self._messages = messages
        self._own = [message.idempotency_key is None for message in messages]
        self._keys = [message.idempotency_key or (new_key() if keyed else None) for message in messages]
        self._drafts = [message.draft(key) for message, key in zip(messages, self._keys, strict=True)]
        self._headers = traced(traceparent)
        self._results: list[dict[str, Any]] = [{} for _ in messages]
        self._pending = [*range(len(messages))]
        self.keys_unsupported = False

    def calls(self) -> Iterator[tuple[Sequence[int], Call]]:
        """A call for each part of the entries that are not done, with their positions."""
        part: list[int] = []
        size = 0
        for index in self._pending:
            if part and (len(part) == ENTRIES_PER_REQUEST or size + len(self._drafts[index]) > BYTES_PER_REQUEST):
                yield part, self._call(part)
                part, size = [], 0
            part.append(index)
            size += len(self._drafts[index]) + 1
        if part:
            yield part, self._call(part)

    def _call(self, part: Sequence[int]) -> Call:
        keyed = all(self._keys[index] is not None for index in part)
        body = b"[" + b",".join(self._drafts[index] for index in part) + b"]"
        repeat = Repeat.ALWAYS if keyed else Repeat.UNLESS_WRITTEN
        return Call("POST", path(self._queue, "messages:batch"), body, self._headers, repeat=repeat)

    def record(self, part: Sequence[int], answer: dict[str, Any]) -> None:
        """Note the results of a part."""
        for result in answer["results"]:
            index = part[result["index"]]
            self._results[index] = result | {"index": index}

    def failure(self) -> ProblemError | None:
        """An error for which entries are to be sent again; None when all are done. What needs no pause is prepared."""
        self._pending, failure = [], None
        for index, result in enumerate(self._results):
            if result["status"] < 300:
                continue
            error = ProblemError(result["status"], result)
            if error.code == NEEDS_NO_KEY and self._own[index] and self._keys[index] is not None:
                self.keys_unsupported = True
                self._keys[index] = None
                self._drafts[index] = self._messages[index].draft(None)
            elif not _repeats(error, Repeat.UNLESS_WRITTEN if self._keys[index] is None else Repeat.ALWAYS):
                continue
            self._pending.append(index)
            failure = ProblemError(503, result | {"retryable": True})
        return failure

    def results(self) -> list[EntryResult]:
        """One result per message, in order."""
        return [EntryResult.from_dict(result) for result in self._results]


def request(client: httpx.Client | httpx.AsyncClient, call: Call, timeout_seconds: float) -> httpx.Request:
    """The HTTP request of ``call``."""
    headers = {"Content-Type": "application/json", **call.headers} if call.body is not None else call.headers
    total = timeout_seconds + call.wait_seconds
    timeout = httpx.Timeout(total, connect=min(timeout_seconds, 10), pool=total)
    return client.build_request(call.method, call.path, content=call.body, headers=headers, timeout=timeout)


def unreachable(error: httpx.TransportError) -> UnreachableError:
    """``error`` in the terms of this package."""
    sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return UnreachableError(f"No gateway answered: {str(error) or type(error).__name__}.", outcome_unknown=sent)


def answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer. Raises ProblemError."""
    try:
        read = response.json() if response.content else {}
    except ValueError:
        read = {}
    if response.is_success:
        return read
    after = response.headers.get("retry-after", "")
    kind = LeaseLostError if isinstance(read, dict) and read.get("code") == "lease_lost" else ProblemError
    raise kind(response.status_code, read if isinstance(read, dict) else {}, float(after) if after.isdigit() else None)


def path(queue: str, action: str) -> str:
    """The path of ``action`` on ``queue``, relative to the gateway's URL."""
    return f"queues/{quote(queue, safe='')}/{action}"


def new_key() -> str:
    """A new idempotency key."""
    return str(uuid.uuid4())


def quoted(key: str) -> str:
    """``key`` as a structured string of HTTP. Raises ValueError unless it has 1 to 255 printable ASCII characters."""
    if not (key.isascii() and key.isprintable() and 1 <= len(key) <= 255):
        raise ValueError("an idempotency key has 1 to 255 printable ASCII characters")
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def traced(traceparent: str | None) -> dict[str, str]:
    """The header of a trace context, if there is one. Raises ValueError unless it is visible ASCII."""
    if traceparent is None:
        return {}
    if not _VISIBLE.fullmatch(traceparent):
        raise ValueError("a traceparent is visible ASCII, without spaces and line ends")
    return {"traceparent": traceparent}


def gateway_url(url: str) -> str:
    """``url`` without slashes at its end. Raises ValueError unless it can be the URL of a gateway."""
    if not _GATEWAY_URL.fullmatch(url):
        raise ValueError(
            "the URL of the gateway begins with http:// or https:// and names a host, such as http://127.0.0.1:8080,"
            " without spaces, line ends, query and fragment"
        )
    return url.rstrip("/")


def bearer(token: str) -> str:
    """The value of the header ``Authorization``. Raises ValueError, without the token, if no header can carry it."""
    if not _VISIBLE.fullmatch(token):
        raise ValueError(
            "the token is visible ASCII, without spaces and line ends; one that was read from a file often ends in a"
            " line feed"
        )
    return f"Bearer {token}"


def encoded(value: Any) -> bytes:
    """``value`` as JSON. Raises TypeError or ValueError if it is none."""
    return json.dumps(value, allow_nan=False).encode()
