"""Microsoft's client of Service Bus for Python. The URL is a connection string."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.official.python.official import ENDED, run, show, with_odd

ODD = {
    "odd-bool": True,
    "odd-int": -7,
    "odd-double": 1.25,
    "odd-time": datetime.fromtimestamp(1_700_000_000, UTC),
    "odd-uuid": UUID(int=7),
}
SHOWN = {
    "Subject": "subject",
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "ContentType": "content_type",
}


def produce(url: str, queue: str, lines: list[Any]) -> None:
    """Send one by one."""
    with ServiceBusClient.from_connection_string(url) as client, client.get_queue_sender(queue) as sender:
        for line in lines:
            given = {member: line["properties"].get(name) for name, member in SHOWN.items()}
            headers: Any = with_odd(line, ODD)
            sender.send_messages(ServiceBusMessage(line["payload"], application_properties=headers, **given))


def consume(url: str, queue: str, verb: str) -> None:
    """Consume until it ends, or settle one message."""
    with ServiceBusClient.from_connection_string(url) as client, client.get_queue_receiver(queue) as receiver:
        settle = {
            "consume": receiver.complete_message,
            "return": receiver.abandon_message,
            "reject": receiver.dead_letter_message,
        }[verb]
        while not ENDED.is_set():
            for message in receiver.receive_messages(20 if verb == "consume" else 1, max_wait_time=0.5):
                settle(message)
                headers = {_text(name): _text(value) for name, value in (message.application_properties or {}).items()}
                properties = {name: getattr(message, member) for name, member in SHOWN.items()}
                show(b"".join(message.body), headers, properties)
                if verb != "consume":
                    return


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    run(produce, consume)
