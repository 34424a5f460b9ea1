"""Broker properties of Azure Service Bus, by Microsoft's names: which a publish may set, their types and rules.

https://learn.microsoft.com/rest/api/servicebus/message-headers-and-properties
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, Final, NamedTuple

from babelgate.brokers.property_rules import PropertyRules
from babelgate.clock import milliseconds
from babelgate.envelope.contract import is_text
from babelgate.errors import Problem
from babelgate.jsontext import is_encodable, is_number, pointer
from babelgate.schematext import did_you_mean

MAX_TIME_TO_LIVE: Final = 922_337_203_685
"""Maximum seconds of TimeToLive, from the maximum of a TimeSpan, its type:
https://learn.microsoft.com/dotnet/api/system.timespan.maxvalue"""
MAX_KEY: Final = 128
"""Maximum characters of PartitionKey, SessionId and ReplyToSessionId:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-messages-payloads"""

_MEMBER = "broker_properties"


class _Rule(NamedTuple):
    """``read`` converts a JSON value to its Python type, or to None if it is none of those that ``must`` names."""

    read: Callable[[Any], Any]
    must: str


def _seconds(value: Any) -> float | None:
    return float(value) if is_number(value, 0, MAX_TIME_TO_LIVE) and value else None


def _text(value: Any) -> str | None:
    return value if is_text(value) and is_encodable(value) else None


def _key(value: Any) -> str | None:
    text = _text(value)
    return text if text is not None and len(text) <= MAX_KEY else None


def _time(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    text = value.strip()
    try:
        at = round(parsedate_to_datetime(text).timestamp() * 1000)
        # The parser also accepts texts that are no HTTP-date, such as one with another day of the week.
        return at if http_date(at) == text else milliseconds(text)
    except (ValueError, OverflowError):
        return milliseconds(text)


_IS_TEXT = _Rule(_text, "a string that is not blank")
_IS_KEY = _Rule(_key, f"a string of 1 to {MAX_KEY} characters that is not blank")

WRITABLE: Final[Mapping[str, _Rule]] = {
    "TimeToLive": _Rule(_seconds, f"a number of seconds above 0 and at most {MAX_TIME_TO_LIVE}"),
    "ReplyTo": _IS_TEXT,
    "To": _IS_TEXT,
    "ReplyToSessionId": _IS_KEY,
    "PartitionKey": _IS_KEY,
    "SessionId": _IS_KEY,
    "ScheduledEnqueueTimeUtc": _Rule(_time, "a time such as 'Tue, 24 Nov 2026 10:00:00 GMT' or '2026-11-24T10:00:00Z'"),
}
"""The properties that a publish may set."""

_OF_A_DELIVERY = "Service Bus itself, on a received message"
READ_ONLY: Final[Mapping[str, str]] = {
    "Label": "the job of the envelope",
    "Subject": "the job of the envelope",
    "CorrelationId": "the trace_id of the envelope",
    "MessageId": "meta.id of the envelope",
    "ContentType": "the gateway, always to application/json",
    "DeliveryCount": _OF_A_DELIVERY,
    "EnqueuedTimeUtc": _OF_A_DELIVERY,
    "EnqueuedSequenceNumber": _OF_A_DELIVERY,
    "SequenceNumber": _OF_A_DELIVERY,
    "LockedUntilUtc": _OF_A_DELIVERY,
    "LockToken": _OF_A_DELIVERY,
    "DeadLetterSource": _OF_A_DELIVERY,
    "State": _OF_A_DELIVERY,
}
"""The properties that a publish cannot set, and what sets them instead."""


_WRITABLE = ", ".join(WRITABLE)


def http_date(ms: int) -> str:
    """Format Unix milliseconds as Microsoft does in broker properties: ``Tue, 24 Nov 2026 10:00:00 GMT``."""
    return formatdate(ms // 1000, usegmt=True)


class ServiceBusProperties(PropertyRules):
    """The rules of all queues.

    :meth:`read` returns ``TimeToLive`` as a float, in seconds; ``ScheduledEnqueueTimeUtc`` as an int, in Unix
    milliseconds; the others as strings.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(WRITABLE)

    def problems(
        self, given: Mapping[str, Any], delay_seconds: float | None, ordering_key: str | None
    ) -> Iterator[Problem]:
        wrong = False
        for problem in _problems(given):
            wrong = True
            yield problem
        if not wrong:
            yield from _contradictions(given, delay_seconds, ordering_key)

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: WRITABLE[name].read(value) for name, value in given.items() if value is not None}


PROPERTIES: Final = ServiceBusProperties()


def _problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    meant: str | None = None
    for name, value in given.items():
        at = pointer(_MEMBER, name) if is_encodable(name) else pointer(_MEMBER)
        if name not in WRITABLE and name not in READ_ONLY:
            # Only for the first: to find it takes longer than to read a member.
            meant = did_you_mean(name, WRITABLE) if meant is None else ""
            yield Problem(at, "unknown_member", f"broker_properties may have only the members {_WRITABLE}.{meant}")
        elif value is None:
            continue
        elif name in READ_ONLY:
            yield Problem(at, "read_only_property", f"{name} cannot be given: it is set by {READ_ONLY[name]}.")
        elif WRITABLE[name].read(value) is None:
            yield Problem(at, "invalid_broker_properties", f"{name} must be {WRITABLE[name].must}.")
    partition, session = given.get("PartitionKey"), given.get("SessionId")
    if isinstance(partition, str) and isinstance(session, str) and partition != session:
        detail = "PartitionKey differs from SessionId: send one of them, or the same value in both."
        yield Problem(pointer(_MEMBER, "PartitionKey"), "broker_properties_mismatch", detail)


def _contradictions(
    properties: Mapping[str, Any], delay_seconds: float | None, ordering_key: str | None
) -> Iterator[Problem]:
    for name in ("SessionId", "PartitionKey"):
        if ordering_key is not None and properties.get(name) not in (None, ordering_key):
            detail = f"{name} differs from ordering_key: send one of them, or the same value in both."
            yield Problem(pointer(_MEMBER, name), "broker_properties_mismatch", detail)
    if delay_seconds is not None and properties.get("ScheduledEnqueueTimeUtc") is not None:
        detail = "ScheduledEnqueueTimeUtc and delay_seconds or deliver_at both delay the message: send one of them."
        yield Problem(pointer(_MEMBER, "ScheduledEnqueueTimeUtc"), "broker_properties_mismatch", detail)
