"""pika, the client for Python that RabbitMQ's tutorials use."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika

from tests.official.python.official import ENDED, run, show, with_odd

ODD = {
    "odd-bool": True,
    "odd-int": -7,
    "odd-long": 2**53,
    "odd-bytes": b"\x00\xff",
    "odd-decimal": Decimal("123.45"),
    "odd-time": datetime.fromtimestamp(1_700_000_000, UTC),
    "odd-nothing": None,
    "odd-list": [1, "b", {"c": True}],
    "odd-table": {"d": {"e": 1}},
}
SHOWN = (
    *("content_type", "content_encoding", "delivery_mode", "correlation_id", "message_id", "timestamp", "type"),
    "app_id",
)


def produce(url: str, queue: str, lines: list[Any]) -> None:
    """Publish with confirms."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for line in lines:
            properties = pika.BasicProperties(headers=with_odd(line, ODD), delivery_mode=2, **line["properties"])
            channel.basic_publish("", queue, line["payload"], properties, mandatory=True)


def consume(url: str, queue: str, verb: str) -> None:
    """Consume until it ends, or settle one message."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20 if verb == "consume" else 1)
        for method, properties, body in channel.consume(queue, inactivity_timeout=0.05):
            if method is not None:
                if verb == "consume":
                    channel.basic_ack(method.delivery_tag)
                else:
                    channel.basic_nack(method.delivery_tag, requeue=verb == "return")
                show(body, properties.headers, {name: getattr(properties, name) for name in SHOWN})
                if verb != "consume":
                    return
            if ENDED.is_set():
                return


if __name__ == "__main__":
    run(produce, consume)
