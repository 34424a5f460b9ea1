"""confluent-kafka, the client of the SDK for Python, with its default settings."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer

from tests.official.python.official import ENDED, run, show


def produce(url: str, queue: str, lines: list[Any]) -> None:
    """Publish and wait for all confirms."""
    producer = Producer({"bootstrap.servers": url, "acks": "all"})
    for line in lines:
        producer.produce(queue, line["payload"], headers=line["headers"])
    assert producer.flush(60) == 0


def consume(url: str, queue: str, verb: str) -> None:
    """Consume until it ends."""
    settings = {"group.id": "babelqueue", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": url, **settings})
    consumer.subscribe([queue])
    while not ENDED.is_set():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            consumer.commit(message=message, asynchronous=False)
            given: Any = message.headers() or ()
            value: Any = message.value()
            show(value, {name: text.decode() for name, text in given}, {"partition": message.partition()})
    consumer.close()


if __name__ == "__main__":
    run(produce, consume)
