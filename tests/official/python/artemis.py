"""Apache Qpid Proton, the client for Python that speaks AMQP 1.0."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from proton import Delivery, Message, Timeout, byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong
from proton.utils import BlockingConnection

from tests.official.python.official import ENDED, run, show, with_odd

JOB = "x-opt-jms-type"
ODD = {
    "odd-bool": True,
    "odd-byte": byte(-7),
    "odd-ubyte": ubyte(200),
    "odd-short": short(-7),
    "odd-int": int32(-7),
    "odd-uint": uint(7),
    "odd-long": 2**53,
    "odd-ulong": ulong(2**63 + 7),
    "odd-float": float32(1.5),
    "odd-double": 1.25,
    "odd-bytes": b"\x00\xff",
    "odd-time": timestamp(1_700_000_000_123),
    "odd-uuid": UUID(int=7),
    "odd-symbol": symbol("red"),
    "odd-char": char("ü"),
    "odd-nothing": None,
}


def produce(url: str, queue: str, lines: list[Any]) -> None:
    """Send, and wait for each outcome."""
    connection = BlockingConnection(url, timeout=60)
    sender = connection.create_sender(queue)
    for line in lines:
        is_text = line["properties"].get("body") == "amqp-value"
        body = line["payload"].decode() if is_text else line["payload"]
        message = Message(body=body, inferred=not is_text, durable=True, properties=with_odd(line, ODD))
        message.correlation_id = line["properties"].get("correlation-id")
        if JOB in line["properties"]:
            message.annotations = {symbol(JOB): line["properties"][JOB]}
        sender.send(message)
    connection.close()


def consume(url: str, queue: str, verb: str) -> None:
    """Consume until it ends, or settle one message."""
    connection = BlockingConnection(url, timeout=60)
    receiver = connection.create_receiver(queue, credit=20 if verb == "consume" else 0)
    while not ENDED.is_set():
        try:
            message = receiver.receive(0.05)
        except Timeout:
            continue
        if verb == "return":
            assert receiver.fetcher is not None
            receiver.fetcher.unsettled[0].local.failed = True
        receiver.settle({"consume": Delivery.ACCEPTED, "return": Delivery.MODIFIED, "reject": Delivery.REJECTED}[verb])
        body: Any = message.body
        annotations: Any = message.annotations or {}
        is_text = isinstance(body, str)
        properties = {
            "body": "amqp-value" if is_text else "data",
            "durable": "true" if message.durable else "false",
            "correlation-id": message.correlation_id,
            "creation-time": round(message.creation_time * 1000),
            JOB: annotations.get(JOB),
        }
        show(body.encode() if is_text else bytes(body), message.properties, properties)
        if verb != "consume":
            break
    connection.close()


if __name__ == "__main__":
    run(produce, consume)
