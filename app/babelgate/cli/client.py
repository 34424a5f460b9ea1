"""The command line's client of the public HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies

import httpx
import msgspec

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
JSON = "application/json"
PAGE = 100
"""Dead letters per request."""


class RequestRefused(Exception):
    """The gateway answered with an error. ``status``: of HTTP; ``problem``: the document, {} without one."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """The code and the reason, then one line for each further error."""
        problem = self.problem
        lines = [f"{problem.get('code', 'http_' + str(self.status))}: {problem.get('detail') or 'no reason given'}"]
        for error in problem.get("errors") or ():
            if error.get("detail") != problem.get("detail"):
                lines.append(f"  {error.get('pointer', '')}: {error.get('code')}: {error.get('detail')}")
        return lines


class GatewayUnreachable(Exception):
    """No gateway answers at the URL, or the connection was lost before the answer."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A received or peeked message: its JSON ``text``, and the ``envelope`` in it, both as the answer's bytes.
    ``ack_token``: empty for a peeked message."""

    text: bytes
    envelope: bytes
    ack_token: str = ""
    attempts: int | None = None

    def row(self) -> tuple[str, str, str, str]:
        """Its id, attempts, job and data, for people."""
        try:
            found = msgspec.json.decode(self.envelope, type=_ShownEnvelope)
        except msgspec.MsgspecError:
            return "-", "-", "-", self.text.decode(errors="replace")
        attempts = self.attempts if self.attempts is not None else found.attempts
        id_, job = found.meta.get("id"), found.job or found.urn
        return str(id_ or "-"), str(attempts), str(job or "-"), bytes(found.data).decode(errors="replace")


class _ShownEnvelope(msgspec.Struct):
    meta: dict[str, Any] = {}
    attempts: Any = None
    job: Any = None
    urn: Any = None
    data: msgspec.Raw = msgspec.Raw(b"-")


class _Message(msgspec.Struct):
    envelope: msgspec.Raw
    ack_token: str = ""
    attempts: int | None = None


class _Messages(msgspec.Struct):
    messages: list[msgspec.Raw]


class _Letters(msgspec.Struct):
    dead_letters: list[msgspec.Raw]
    next_cursor: str | None = None


class Client:
    """Calls one gateway. Each method raises RequestRefused and GatewayUnreachable, and waits at most 60 s."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Raises ValueError for a text that cannot be a URL, without quoting it: it may contain a password."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        # To read the certificates of authorities takes longer than a call, which needs none without TLS. A proxy of the
        # environment may have TLS.
        verify = not url.lower().startswith("http://") or bool(getproxies())
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, verify=verify)
        except httpx.InvalidURL:
            raise ValueError("this cannot be a URL: check its host, its port and its characters") from None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def publish(
        self,
        queue: str,
        body: bytes,
        parameters: Mapping[str, Any],
        idempotency_key: str | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """Publish one message; return its receipt. Raises ValueError as :func:`quoted`."""
        headers = {} if idempotency_key is None else {"idempotency-key": quoted(idempotency_key)}
        return self._json(
            "POST", queue, "/messages", content=body, content_type=content_type, parameters=parameters, headers=headers
        )

    def publish_batch(self, queue: str, body: bytes, content_type: str = JSON) -> dict[str, Any]:
        """Publish a JSON array or NDJSON; return ``accepted``, ``failed`` and ``results`` of the API."""
        return self._json("POST", queue, "/messages:batch", content=body, content_type=content_type)

    def validate(
        self, queue: str, body: bytes, parameters: Mapping[str, Any], content_type: str = JSON
    ) -> dict[str, Any]:
        """What a publish of one message would write."""
        return self._json(
            "POST", queue, "/messages:validate", content=body, content_type=content_type, parameters=parameters
        )

    def receive(
        self, queue: str, max_messages: int, wait_seconds: float, lease_seconds: float | None
    ) -> list[ShownMessage]:
        """Receive up to ``max_messages``; empty when there are none."""
        parameters = {"max_messages": max_messages, "wait_seconds": wait_seconds, "lease_seconds": lease_seconds}
        return _messages(self._call("POST", queue, "/messages:receive", parameters=parameters))

    def peek(self, queue: str, limit: int) -> list[ShownMessage]:
        """The oldest ready messages."""
        return _messages(self._call("GET", queue, "/messages:peek", parameters={"limit": limit}))

    def settle(self, queue: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Settle the ``acks``, ``nacks``, ``rejects`` and ``extends`` of ``order``; return the result per token."""
        return self._json("POST", queue, "/messages:settle", content=msgspec.json.encode(order))

    def queues(self, paused: bool = False) -> list[dict[str, Any]]:
        """List the queues that the caller may see; with ``paused`` only those that are."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            chosen = {"cursor": cursor, "paused": "true" if paused else None}
            page = self._json("GET", None, "queues", parameters=chosen)
            found += page["queues"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return found

    def brokers(self) -> list[dict[str, Any]]:
        """List the brokers that the caller may see."""
        found: list[dict[str, Any]] = self._json("GET", None, "brokers")["brokers"]
        return found

    def configuration(self) -> dict[str, Any]:
        """The configuration that the gateway serves by, secrets masked."""
        found: dict[str, Any] = self._json("GET", None, "config")["settings"]
        return found

    def message(self, message_id: str) -> bytes:
        """What happened to a message: its first 1000 events, as the answer has them."""
        return self._call("GET", None, f"messages/{_segment(message_id)}").content

    def trace(self, trace_id: str) -> bytes:
        """What happened to the messages of a trace: their first 1000 events, as the answer has them."""
        return self._call("GET", None, f"traces/{_segment(trace_id)}").content

    def events(self, conditions: Mapping[str, str | int | None]) -> bytes:
        """A page of events, newest first, as the answer has it. ``conditions``: parameters of the query."""
        return self._call("GET", None, "messages", parameters=conditions).content

    def rates(self, limit: int) -> dict[str, Any]:
        """The last hour of all queues that the caller may see, with up to ``limit`` of the busiest."""
        return self._json("GET", None, "rates", parameters={"limit": limit})

    @property
    def address(self) -> str:
        """The URL of the gateway, without a user and a password, and without a slash at its end."""
        return str(self._http.base_url.copy_with(userinfo=b"")).rstrip("/")

    def purge(self, queue: str, dead_letters: bool, dry_run: bool) -> dict[str, Any]:
        """Remove the ready and delayed messages, or the dead letters, or only count them; return their number."""
        action = "/dead-letters:purge" if dead_letters else ":purge"
        return self._json("POST", queue, action, content=b'{"dry_run":true}' if dry_run else None)

    def pause(self, queue: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Pause the queue with the request body ``order``; return its state and who knows it."""
        return self._json("POST", queue, ":pause", content=msgspec.json.encode(order))

    def resume(self, queue: str) -> dict[str, Any]:
        """Resume the queue; return its state and who knows it."""
        return self._json("POST", queue, ":resume")

    def push(self, method: str, queue: str, verb: str = "", content: bytes | None = None) -> dict[str, Any]:
        """Call ``/push`` of the queue, or a verb of it; return the answer."""
        return self._json(method, queue, f"/push{verb}", content=content)

    def tokens(self) -> list[dict[str, Any]]:
        """The tokens that calls have made and the caller may revoke."""
        found: list[dict[str, Any]] = self._json("GET", None, "tokens")["tokens"]
        return found

    def create_token(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Make a token with the request body ``order``; return it, with its secret."""
        return self._json("POST", None, "tokens", content=msgspec.json.encode(order))

    def rotate_token(self, token_id: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Give the token a new secret; return it, with the secret."""
        return self._json("POST", None, f"tokens/{_segment(token_id)}:rotate", content=msgspec.json.encode(order))

    def revoke_token(self, token_id: str) -> dict[str, Any]:
        """Make the token invalid; return who knows it."""
        return self._json("DELETE", None, f"tokens/{_segment(token_id)}")

    def dead_letters(
        self, queue: str, conditions: Mapping[str, Any], limit: int
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The oldest dead letters that meet the conditions, up to ``limit``: decoded, and the bytes of the answer."""
        cursor: str | None = None
        while limit:
            asked = {**conditions, "limit": min(limit, PAGE), "cursor": cursor}
            page = msgspec.json.decode(
                self._call("GET", queue, "/dead-letters", parameters=asked).content, type=_Letters
            )
            for letter in page.dead_letters:
                yield msgspec.json.decode(letter), bytes(letter)
            limit -= len(page.dead_letters)
            cursor = page.next_cursor
            if cursor is None:
                return

    def dead_letter(self, queue: str, letter_id: str) -> bytes:
        """One dead letter, as the answer has it."""
        return self._search("GET", queue, _letter(letter_id)).content

    def delete_dead_letters(self, queue: str, ids: Sequence[str]) -> dict[str, Any]:
        """Remove the dead letters with these ids; return the result of each."""
        return self._json("POST", queue, "/dead-letters:delete", content=msgspec.json.encode({"ids": ids}))

    def redrive(self, queue: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Redrive dead letters with the request body ``order``; return the result, or the job in the background."""
        return self._json("POST", queue, "/dead-letters:redrive", content=msgspec.json.encode(order))

    def redrive_one(self, queue: str, letter_id: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Redrive one dead letter, edited as ``order`` says."""
        edited = self._search("POST", queue, f"{_letter(letter_id)}:redrive", msgspec.json.encode(order))
        sent: dict[str, Any] = msgspec.json.decode(edited.content)
        return sent

    def redrive_jobs(self, queue: str) -> list[dict[str, Any]]:
        """The redrive jobs of the queue on the host that answers, newest first."""
        found: list[dict[str, Any]] = self._json("GET", queue, "/redrives")["redrives"]
        return found

    def redrive_job(self, queue: str, job_id: str, action: str | None = None) -> dict[str, Any]:
        """One redrive job, after ``cancel`` or ``resume`` if that is asked for."""
        path = f"/redrives/{quote(job_id, safe='')}"
        return self._json("POST", queue, f"{path}:{action}") if action else self._json("GET", queue, path)

    def _search(self, method: str, queue: str, action: str, content: bytes | None = None) -> httpx.Response:
        """Call an operation of one dead letter, again and again while the search for it may go on."""
        cursor: str | None = None
        while True:
            try:
                return self._call(method, queue, action, content=content, parameters={"cursor": cursor})
            except RequestRefused as refused:
                if refused.problem.get("code") != "dead_letter_not_reached":
                    raise
                cursor = refused.problem["next_cursor"]

    def _json(self, method: str, queue: str | None, action: str, **request: Any) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self._call(method, queue, action, **request).content)
        return decoded

    def _call(
        self,
        method: str,
        queue: str | None,
        action: str,
        *,
        content: bytes | None = None,
        content_type: str = JSON,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        path = action if queue is None else f"queues/{quote(queue, safe='')}{action}"
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        sent = {"content-type": content_type} if content is not None else {}
        sent |= headers or {}
        try:
            response = self._http.request(method, path, content=content, headers=sent, params=given)
        except httpx.TransportError as error:
            raise GatewayUnreachable(f"{self._http.base_url}: {error or type(error).__name__}") from None
        if response.is_success:
            return response
        try:
            problem = response.json()
        except ValueError:
            problem = {}
        raise RequestRefused(response.status_code, problem if isinstance(problem, dict) else {})


def _messages(response: httpx.Response) -> list[ShownMessage]:
    texts = map(bytes, msgspec.json.decode(response.content, type=_Messages).messages)
    decoded = ((text, msgspec.json.decode(text, type=_Message)) for text in texts)
    return [ShownMessage(text, bytes(each.envelope), each.ack_token, each.attempts) for text, each in decoded]


def _letter(letter_id: str) -> str:
    return f"/dead-letters/{quote(letter_id, safe='')}"


def _segment(text: str) -> str:
    """``text`` as one segment of a path. A dot is escaped where HTTP clients would remove the segment."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def quoted(key: str) -> str:
    """Quote an idempotency key for its header. Raises ValueError unless it has 1 to 255 printable ASCII characters."""
    if not (key.isascii() and key.isprintable() and 1 <= len(key) <= 255):
        raise ValueError("must be 1 to 255 printable ASCII characters")
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
