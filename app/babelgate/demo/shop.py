"""The made-up shop: its producers, consumers and failures. All randomness comes from a seed."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

Action = Literal["ack", "nack", "reject", "lose"]
"""What a consumer does with a message. ``lose``: it is killed, and the lease expires."""

QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"lease_seconds": 300, "max_attempts": 5, "backoff_seconds": [60, 300]},
    "payments": {"lease_seconds": 300, "max_attempts": 4, "backoff_seconds": [60, 300, 900]},
    "stock": {"lease_seconds": 300, "max_attempts": 5, "backoff_seconds": [60]},
    "emails": {"lease_seconds": 600, "max_attempts": 6, "backoff_seconds": [120, 600, 1800]},
    "reports": {"lease_seconds": 1800, "max_attempts": 3, "backoff_seconds": [600]},
}
"""The routes of the gateway's configuration."""


@dataclass(frozen=True)
class Kind:
    """A kind of message: its queue, job, and the language of the program that sends it."""

    queue: str
    job: str
    lang: str


ORDER = Kind("orders", "urn:babel:orders:placed", "php")
PAYMENT = Kind("payments", "urn:babel:payments:capture", "java")
STOCK = Kind("stock", "urn:babel:stock:reserve", "go")
RECEIPT = Kind("emails", "urn:babel:emails:receipt", "node")
WELCOME = Kind("emails", "urn:babel:emails:welcome", "python")
REPORT = Kind("reports", "urn:babel:reports:render", "python")
FOLLOWERS = {ORDER.job: (PAYMENT,), PAYMENT.job: (STOCK, RECEIPT)}
"""The messages sent in the same trace after a message was acked."""


@dataclass(frozen=True)
class Consumer:
    """Takes up to ``takes`` messages every ``every`` seconds, and is done with them ``works`` seconds later."""

    queue: str
    every: int
    takes: int
    works: int


CONSUMERS = (
    Consumer("orders", 60, 12, 8),
    Consumer("payments", 60, 5, 20),
    Consumer("stock", 120, 30, 15),
    Consumer("emails", 240, 60, 40),
    Consumer("reports", 600, 20, 300),
)


def arrivals(chance: Random) -> Iterator[tuple[float, Kind]]:
    """Yields the first messages of all traces as (hour of the day from 0 to 24, kind), in order."""
    found = [(hour, ORDER) for hour in _hours(chance, 2600, (10.5, 2.0), (19.5, 2.2))]
    found += [(hour, WELCOME) for hour in _hours(chance, 450, (12.0, 3.5))]
    found += [(min(23.99, hour + chance.random() * 0.4), REPORT) for hour in range(24) for _ in range(4)]
    found += [(min(23.99, 2 + chance.random() * 0.5), REPORT) for _ in range(90)]
    return iter(sorted(found, key=lambda each: each[0]))


def _hours(chance: Random, count: int, *peaks: tuple[float, float]) -> Iterator[float]:
    for _ in range(count):
        mean, spread = chance.choice(peaks)
        # A tenth is spread evenly over the day.
        yield chance.random() * 24 if chance.random() < 0.1 else chance.gauss(mean, spread) % 24


def consumer_action(job: str, hour: float, chance: Random) -> Action:
    """The action of the consumer for one message at that hour."""
    if job == PAYMENT.job:
        # The payment provider is down for half an hour.
        failing = 0.97 if 10.6 <= hour < 11.1 else 0.012
        return "nack" if chance.random() < failing else "ack"
    if job == STOCK.job:
        # A rollout kills the consumers of the stock.
        if 9.5 <= hour < 9.54:
            return "lose"
        return "reject" if chance.random() < 0.014 else "ack"
    if job == RECEIPT.job:
        return "nack" if chance.random() < 0.07 else "ack"
    if job == REPORT.job:
        return "nack" if chance.random() < 0.18 else "ack"
    return "reject" if chance.random() < 0.003 else "ack"


def is_at_work(queue: str, hour: float) -> bool:
    """Whether the consumers of a queue work at that hour. Those of ``reports`` stop at 21:00."""
    return queue != "reports" or hour < 21


def reason(job: str) -> dict[str, str]:
    """The error that the consumer reports."""
    return {
        PAYMENT.job: {"message": "provider answers 503", "exception": "ProviderUnavailable"},
        STOCK.job: {"message": "no such article", "exception": "UnknownArticle"},
        RECEIPT.job: {"message": "451 greylisted", "exception": "SMTPResponseError"},
        REPORT.job: {"message": "out of memory", "exception": "MemoryError"},
    }.get(job, {"message": "cannot be handled", "exception": "ValueError"})


def envelope(kind: Kind, created_at: int, trace_id: str, chance: Random) -> dict[str, Any]:
    """A message as its producer makes it. ``created_at``: Unix ms."""
    number = chance.randrange(10_000, 99_999)
    return {
        "job": kind.job,
        "trace_id": trace_id,
        "data": {
            "order_id": number,
            "customer": chance.choice(("Zoë Müller", "J. O'Neil <vip>", "Ana Conceição", "Li Wei", "Ada Lovelace")),
            "total": round(math.exp(chance.gauss(3.5, 0.8)), 2),
            "page": f"https://shop.example/orders/{number}",
            "note": "gift " * chance.randrange(0, 40),
        },
        "meta": {
            "id": new_id(chance),
            "queue": kind.queue,
            "lang": kind.lang,
            "schema_version": 1,
            "created_at": created_at,
        },
        "attempts": 0,
    }


def new_id(chance: Random) -> str:
    """A UUID."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def encoded(message: dict[str, Any]) -> bytes:
    """The body as the standard JSON encoder of the producer's language writes it."""
    lang = message["meta"]["lang"]
    compact = json.dumps(message, ensure_ascii=lang == "php", separators=(",", ":"))
    if lang == "python":
        return json.dumps(message).encode()
    if lang == "php":
        compact = compact.replace("/", "\\/")
    if lang == "go":
        compact = compact.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return compact.encode()


def broken(message: dict[str, Any], chance: Random) -> bytes:
    """A body that breaks the contract in a way typical of that language."""
    lang = message["meta"]["lang"]
    if lang == "php":
        # An old library without trace ids, or a PHP warning printed into the body.
        if chance.random() < 0.7:
            del message["trace_id"]
            return encoded(message)
        return b"Warning: Undefined index in worker.php on line 12" + encoded(message)
    if lang == "go":
        message["attempts"] = "0"
    elif lang == "java":
        message["meta"]["schema_version"] = 2
    elif lang == "node":
        message["data"] = "[object Object]"
    else:
        message["data"]["total"] = math.nan
    return encoded(message)
