"""The descriptions of queues over HTTP: Atom entries and feeds, as ServiceBusAdministrationClient reads them.

https://learn.microsoft.com/rest/api/servicebus/queues
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from tools.servicebus_emulator.broker import Broker
from tools.servicebus_emulator.entity import Queue
from tools.servicebus_emulator.message import SCHEDULED
from tools.servicebus_emulator.web import Call, Failure

_ATOM = "application/atom+xml;type=entry;charset=utf-8"
_FEED = "application/atom+xml;type=feed;charset=utf-8"
_BASE = "https://emulator.servicebus.windows.net"
_NAMESPACES = (
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
)
_COUNTS = 'xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus"'
_FOREVER = "P10675199DT2H48M5.4775807S"
_MISSING = '<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">Publicly Listed Services</title></feed>'


def describe(broker: Broker, call: Call) -> tuple[str, bytes]:
    """Answer a request for a queue or for all queues."""
    path = call.path.strip("/")
    if broker.faults.hit("unauthorized_http", path.lower()):
        raise Failure(401, "<Error><Code>401</Code><Detail>The token is refused.</Detail></Error>")
    if call.method != "GET":
        raise Failure(405, "Only GET is answered here.")
    broker.counts["descriptions"] += 1
    if path.lower() == "$resources/queues":
        skip, top = int(call.query.get("$skip", 0)), int(call.query.get("$top", 100))
        queues = sorted(broker.queues.values(), key=lambda queue: queue.name)
        return _FEED, _feed(queues, skip, top).encode()
    queue = broker.queues.get(path.lower())
    if queue is None:
        return _FEED, _MISSING.encode()
    return _ATOM, _entry(queue).encode()


def counts(queue: Queue) -> dict[str, int]:
    """The counts of a queue. Locked and deferred messages count as active."""
    scheduled = sum(message.state == SCHEDULED for message in queue.main.messages.values())
    dead = len(queue.dead.messages)
    return {
        "active": len(queue.main.messages) - scheduled,
        "scheduled": scheduled,
        "dead_letter": dead,
        "total": len(queue.main.messages) + dead,
    }


def _feed(queues: Iterable[Queue], skip: int, top: int) -> str:
    every = list(queues)
    page = every[skip : skip + top]
    more = ""
    if skip + top < len(every):
        rest = f"$Resources/queues?api-version=2021-05&amp;$skip={skip + top}&amp;$top={top}"
        more = f'<link rel="next" href="{_BASE}/{rest}"/>'
    return (
        '<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">Queues</title>'
        f"<id>{_BASE}/$Resources/queues</id><updated>{_time(0)}</updated>"
        f'<link rel="self" href="{_BASE}/$Resources/queues"/>{more}{"".join(map(_entry, page))}</feed>'
    )


def _entry(queue: Queue) -> str:
    name = escape(queue.name)
    return (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><id>{_BASE}/{name}</id><title type="text">{name}</title>'
        f"<published>{_time(queue.created)}</published><updated>{_time(queue.updated)}</updated>"
        f'<author><name>emulator</name></author><link rel="self" href="{_BASE}/{name}"/>'
        f'<content type="application/xml">{_description(queue)}</content></entry>'
    )


def _description(queue: Queue) -> str:
    settings, told = queue.settings, counts(queue)
    window = settings.duplicate_detection_seconds
    ttl, idle = settings.default_ttl_seconds, settings.auto_delete_seconds
    values = {
        "LockDuration": f"PT{settings.lock_seconds:g}S",
        "MaxSizeInMegabytes": max(1, settings.max_size // 1048576) if settings.max_size else 1024,
        "RequiresDuplicateDetection": _truth(window > 0),
        "RequiresSession": _truth(settings.requires_session),
        "DefaultMessageTimeToLive": f"PT{ttl:g}S" if ttl else _FOREVER,
        "DeadLetteringOnMessageExpiration": _truth(settings.dead_letter_on_expiration),
        "DuplicateDetectionHistoryTimeWindow": f"PT{window:g}S" if window else "PT10M",
        "MaxDeliveryCount": settings.max_delivery_count,
        "EnableBatchedOperations": "true",
        "SizeInBytes": queue.bytes,
        "MessageCount": told["total"],
        "IsAnonymousAccessible": "false",
        "AuthorizationRules": "",
        "Status": "Disabled" if settings.disabled else "Active",
        "CreatedAt": _time(queue.created),
        "UpdatedAt": _time(queue.updated),
        "AccessedAt": _time(queue.updated),
        "SupportOrdering": "true",
    }
    details = {
        "ActiveMessageCount": told["active"],
        "DeadLetterMessageCount": told["dead_letter"],
        "ScheduledMessageCount": told["scheduled"],
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 0,
    }
    inner = "".join(f"<d2p1:{name}>{value}</d2p1:{name}>" for name, value in details.items())
    last = {
        "AutoDeleteOnIdle": f"PT{idle:g}S" if idle else _FOREVER,
        "EnablePartitioning": "false",
        "EntityAvailabilityStatus": "Available",
        "EnableExpress": "false",
        "MaxMessageSizeInKilobytes": max(1, settings.max_message_size // 1024),
    }
    return (
        f"<QueueDescription {_NAMESPACES}>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
        + f"<CountDetails {_COUNTS}>{inner}</CountDetails>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in last.items())
        + "</QueueDescription>"
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
