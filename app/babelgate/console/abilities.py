"""What a broker can do, in words."""

from __future__ import annotations

from babelgate.brokers.capabilities import REPORTS, BrokerCapabilities
from babelgate.console.rendering import age, number, size
from babelgate.envelope.options import MAX_PRIORITY

_ORDERS = {
    "fifo": "Messages are delivered in the order in which they were published.",
    "key": "Messages with the same ordering key are delivered in the order in which they were published.",
    "none": "The broker keeps no order.",
}
_BOUND_TO = {
    None: "The broker keeps the leases.",
    "lock": "The gateway keeps the leases while the broker holds a lock on each message.",
    "connection": "The gateway keeps the leases. They end with its connection to the broker.",
    "partition": "The gateway keeps the leases. They end when it loses the partition of the message.",
}
_REPORTED = {
    "in_flight": "the number of leased messages",
    "delayed": "the number of delayed messages",
    "oldest_age_seconds": "the age of the oldest message",
    "queues": "its queues",
}
NO_DELAY = "A publish cannot be delayed."
NO_TTL = "A message has no time to live of its own, because that is a native header."
NO_PRIORITY = "Messages have no priorities."


def sentences(capabilities: BrokerCapabilities) -> list[str]:
    """One sentence for each thing that a broker can do, or cannot."""
    silent = [words for name, words in _REPORTED.items() if name in REPORTS - capabilities.reports]
    found = [
        _ORDERS[capabilities.ordering],
        NO_DELAY
        if capabilities.max_delay_seconds == 0
        else f"A publish can be delayed {_at_most(capabilities.max_delay_seconds)}",
        f"A nack can be delayed {_at_most(capabilities.max_retry_delay_seconds)}",
        f"A lease lasts at most {age(capabilities.max_lease_seconds)}. {_BOUND_TO[capabilities.lease_bound_to]}",
        "Any replica of the gateway settles a message."
        if capabilities.ack_scope == "anywhere"
        else "The replica that received a message settles it. The others forward to it.",
        "Messages carry native headers." if capabilities.headers else "Messages carry no native headers.",
        "A publish may set a time to live." if capabilities.headers else NO_TTL,
        f"A publish may set a priority of 0 to {MAX_PRIORITY}." if capabilities.priorities else NO_PRIORITY,
    ]
    if capabilities.max_headers is not None:
        found.append(f"A message has at most {number(capabilities.max_headers)} headers.")
    if capabilities.max_body_bytes is not None:
        found.append(f"A body has at most {size(capabilities.max_body_bytes)}.")
    if capabilities.broker_properties:
        found.append(f"A publish may set {', '.join(sorted(capabilities.broker_properties))}.")
    if silent:
        found.append(f"The broker does not report {' and '.join(silent)}.")
    return found


def refused_options(capabilities: BrokerCapabilities) -> list[str]:
    """One sentence for each option of a publish that the broker refuses."""
    found = {
        NO_DELAY: capabilities.max_delay_seconds == 0,
        NO_TTL: not capabilities.headers,
        NO_PRIORITY: not capabilities.priorities,
    }
    return [sentence for sentence, is_refused in found.items() if is_refused]


def _at_most(seconds: float | None) -> str:
    if seconds is None:
        return "by any time."
    return f"by at most {age(seconds)}." if seconds else "not at all."
