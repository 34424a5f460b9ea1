"""Amazon SQS as the tests have it: ElasticMQ and moto, two servers of its protocol."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.sqs.binding import SqsBinding, connect
from babelgate.brokers.sqs.message import forbidden
from babelgate.brokers.sqs.queue import SqsQueue, queue_of
from babelgate.clock import now_ms
from tests.brokers.sqs.elasticmq import ElasticMq, elasticmq
from tests.brokers.sqs.moto_server import MotoServer, moto_server
from tests.harness.broker import ServerBroker, Variant, opened

# The credentials that every client of a local server finds in its environment.
os.environ.setdefault("AWS_ACCESS_KEY_ID", "id")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "a secret key")
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")

STANDARD = {"create": "missing"}


def binding(url: str, options: Mapping[str, Any] | None = None) -> AbstractAsyncContextManager[SqsBinding]:
    """An open binding, as one process has it."""
    return opened(connect("aws", url, {"timeout_seconds": 30} | dict(options or {}), now_ms))


def client(port: int) -> Any:
    """A plain client, as a foreign program or an operator would use."""
    config = Config(retries={"total_max_attempts": 1}, read_timeout=60)
    return boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", config=config)


def url_of(sqs: Any, queue: SqsQueue) -> str:
    """The URL of a queue, which is created if it is missing."""
    try:
        return str(sqs.get_queue_url(QueueName=queue.name)["QueueUrl"])
    except ClientError:
        attributes = {"FifoQueue": "true"} if queue.fifo else {}
        return str(sqs.create_queue(QueueName=queue.name, Attributes=attributes)["QueueUrl"])


def take_all(sqs: Any, url: str) -> list[dict[str, Any]]:
    """All visible messages of a queue, oldest first; they are visible again afterwards."""
    taken: dict[str, dict[str, Any]] = {}
    while found := sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        VisibilityTimeout=60,
        WaitTimeSeconds=0,
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
    ).get("Messages"):
        taken |= {each["MessageId"]: each for each in found}
    for each in taken.values():
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0)
    return sorted(taken.values(), key=lambda each: int(each["Attributes"]["SentTimestamp"]))


class SqsBroker(ServerBroker):
    """Standard queues on ElasticMQ."""

    kind = "sqs"
    sample = "sqs://us-east-1"
    name = "aws"
    costs_durability = True
    spare_seconds = 3
    far_delay = 1.5
    impatient: Mapping[str, Any] = {"long_poll_seconds": 1}
    server: ElasticMq

    @staticmethod
    def serve(directory: Path, *, durable: bool = True) -> AbstractContextManager[Any]:
        return elasticmq(durable)

    def carries(self, body: bytes) -> bool:
        """A body is a text of at least one character, without most control characters."""
        with contextlib.suppress(UnicodeDecodeError):
            return bool(body) and not forbidden(body.decode())
        return False

    async def inject(self, queue: str, *bodies: bytes) -> None:
        await asyncio.to_thread(self._inject, queue, bodies)

    async def stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        return await asyncio.to_thread(self._stored, queue, delayed)

    async def dead(self, queue: str) -> Sequence[bytes]:
        return await asyncio.to_thread(self._dead, queue)

    def _queue(self, queue: str) -> SqsQueue:
        return queue_of(queue, self.queue_options)

    def _inject(self, queue: str, bodies: Sequence[bytes]) -> None:
        sqs = client(self.server.port)
        url = url_of(sqs, self._queue(queue))
        for body in bodies:
            sqs.send_message(QueueUrl=url, MessageBody=body.decode())

    def _stored(self, queue: str, delayed: bool) -> Sequence[NativeWrite]:
        target = self._queue(queue)
        sqs = client(self.server.port)
        url = url_of(sqs, target)
        fields: dict[str, Any] = {}
        if delayed:
            # SQS shows no delayed message.
            fields["DelaySeconds"] = math.ceil(self.far_delay)
            count = "ApproximateNumberOfMessagesDelayed"
            while int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[count])["Attributes"][count]):
                time.sleep(0.05)
        return [_write(target.name, fields, each) for each in take_all(sqs, url)]

    def _dead(self, queue: str) -> Sequence[bytes]:
        sqs = client(self.server.port)
        return [each["Body"].encode() for each in take_all(sqs, url_of(sqs, self._queue(queue).dead))]


def _write(queue: str, fields: Mapping[str, Any], message: Mapping[str, Any]) -> NativeWrite:
    headers = {
        name: NativeHeader(each["DataType"], each.get("StringValue"))
        for name, each in message.get("MessageAttributes", {}).items()
    }
    return NativeWrite("SendMessageBatch", {"queue": queue}, fields, headers, message["Body"].encode())


class MotoBroker(SqsBroker):
    """Standard queues on moto. It counts all messages of a queue several times for each that it hands out."""

    costs_durability = False
    crowd = 190
    server: MotoServer  # type: ignore[assignment]

    @staticmethod
    def serve(directory: Path, *, durable: bool = False) -> AbstractContextManager[Any]:
        return moto_server()


VARIANTS = (
    Variant("sqs", SqsBroker, STANDARD, "Amazon SQS"),
    # Its server settles by the receipt of an earlier delivery, too, so that a ledger would prove little.
    Variant("sqs-moto", MotoBroker, STANDARD, replicas=False),
)
