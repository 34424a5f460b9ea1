"""What is published and what is received."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LANG = "python"
"""What an envelope calls the language of this client."""


@dataclass(frozen=True)
class Message:
    """A message to publish.

    ``job``: its kind, by convention a URN. ``data``: its payload, a JSON object. ``trace_id``: by convention a UUID;
    the gateway makes one. ``ordering_key`` and ``headers``: where the broker supports them. ``broker_properties``: by
    their names in the API, such as ``TimeToLive``, where the broker supports them. ``idempotency_key``: 1 to 255
    printable ASCII characters; the client makes one. ``lang``: the language of the producer, one of those of the
    envelope. ``ext``: extensions by vendor, which become ``meta.ext`` of the envelope. ``deliver_at``: deliver the
    message at this time (Unix milliseconds) and not before, instead of ``delay_seconds``. ``ttl_seconds``: dead-letter
    it if it is not delivered in this time. ``priority``: 0 to 9, where the broker has priorities; higher is sooner.
    """

    job: str
    data: Mapping[str, Any]
    trace_id: str | None = None
    delay_seconds: float | None = None
    ordering_key: str | None = None
    headers: Mapping[str, str] | None = None
    broker_properties: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    lang: str = LANG
    ext: Mapping[str, Any] | None = None
    deliver_at: int | None = None
    ttl_seconds: float | None = None
    priority: int | None = None

    def draft(self, key: str | None) -> bytes:
        """The body, with the idempotency ``key`` if there is one. Raises TypeError or ValueError if it is no JSON."""
        members = {
            "job": self.job,
            "data": self.data,
            "trace_id": self.trace_id,
            "meta": {"lang": self.lang} | ({} if self.ext is None else {"ext": self.ext}),
            "delay_seconds": self.delay_seconds,
            "deliver_at": self.deliver_at,
            "ttl_seconds": self.ttl_seconds,
            "priority": self.priority,
            "ordering_key": self.ordering_key,
            "headers": self.headers,
            "broker_properties": self.broker_properties,
            "idempotency_key": key,
        }
        sent = {name: value for name, value in members.items() if value is not None}
        return json.dumps(sent, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Delivery:
    """A received message, leased until ``lease_expires_at`` (Unix milliseconds).

    ``attempts``: earlier deliveries that ended without an ack. ``envelope``: the whole message, of which ``job``,
    ``trace_id``, ``data`` and ``id`` are parts. ``broker_properties``: by their names in the API, such as
    ``SequenceNumber``; empty if the broker has none.
    """

    queue: str
    ack_token: str
    lease_expires_at: int
    attempts: int
    redelivered: bool
    headers: Mapping[str, str]
    envelope: Mapping[str, Any]
    broker_properties: Mapping[str, Any] = field(default_factory=dict)
    _lost: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def id(self) -> str | None:
        """``meta.id``: use it to detect duplicates."""
        id_: str | None = self.envelope.get("meta", {}).get("id")
        return id_

    @property
    def job(self) -> str | None:
        """The kind of the message."""
        return self.envelope.get("job") or self.envelope.get("urn")

    @property
    def data(self) -> Mapping[str, Any]:
        """The payload."""
        data: Mapping[str, Any] = self.envelope["data"]
        return data

    @property
    def trace_id(self) -> str:
        """The id that all messages of one story share."""
        return str(self.envelope["trace_id"])

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that travelled with the message."""
        return self.headers.get("traceparent")

    @property
    def lease_lost(self) -> bool:
        """Whether the consumer knows that the lease is over; then somebody else may handle the message."""
        return bool(self._lost)
