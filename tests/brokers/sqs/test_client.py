"""The calls are those of the SDK, though their bodies and answers are encoded and read here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aioboto3
import pytest
from aiobotocore.config import AioConfig

from babelgate.brokers.sqs.binding import SqsBinding
from babelgate.brokers.sqs.client import SqsClient
from tests.harness.broker import Server

pytestmark = pytest.mark.sqs

_CHANGING = {"MessageId", "ReceiptHandle", "SentTimestamp", "ApproximateFirstReceiveTimestamp"}
_OF_ONE_REQUEST = {"authorization", "x-amz-date", "amz-sdk-invocation-id", "content-length", "user-agent"}
_ENTRIES: list[dict[str, Any]] = [
    {
        "Id": "0",
        "MessageBody": '{"é":"€ 😀 \\u0001 <&>"}',
        "DelaySeconds": 0,
        "MessageAttributes": {
            "text": {"DataType": "String", "StringValue": "ü 😀"},
            "number": {"DataType": "Number", "StringValue": "1"},
            "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff\x80"},
        },
    },
    {"Id": "1", "MessageBody": "plain"},
]
_ALL = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "AttributeNames": ["All"], "WaitTimeSeconds": 1}

Call = Callable[..., Any]


@pytest.fixture
async def ours(one: SqsBinding) -> AsyncIterator[tuple[Call, Any]]:
    """A caller of operations, and botocore's client behind it."""
    client = SqsClient(one.name, one._settings, one.timeout_seconds)
    await client.open()
    yield client.call, client._client
    await client.close()


@pytest.fixture
async def sdk(either: Server) -> AsyncIterator[tuple[Call, Any]]:
    """The same of the plain SDK."""
    config = AioConfig(retries={"total_max_attempts": 1, "mode": "standard"})
    endpoint = f"http://127.0.0.1:{either.port}/"
    async with aioboto3.Session().client("sqs", "us-east-1", endpoint_url=endpoint, config=config) as client:

        async def call(operation: str, **parameters: Any) -> Any:
            return await client._make_api_call(operation, parameters)

        yield call, client


async def test_requests_and_answers_equal_those_of_the_sdk(ours: tuple[Call, Any], sdk: tuple[Call, Any]) -> None:
    assert await _calls(*ours) == await _calls(*sdk)


async def _calls(call: Call, client: Any) -> list[Any]:
    """What one of each operation sends, and what is made of its answer; without what differs from call to call."""
    seen: list[Any] = []

    def sent(request: Any, **_: object) -> None:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        seen.append({name: value for name, value in headers.items() if name not in _OF_ONE_REQUEST})
        assert headers["content-length"] == str(len(request.body))
        seen.append(_steady(json.loads(request.body)))

    client.meta.events.register("before-send.sqs", sent)

    async def answer(operation: str, **parameters: Any) -> Any:
        answered = dict(await call(operation, **parameters))
        assert answered.pop("ResponseMetadata")["HTTPStatusCode"] == 200
        seen.append(_steady(answered))
        return answered

    url = (await answer("CreateQueue", QueueName="calls", Attributes={"VisibilityTimeout": "60"}))["QueueUrl"]
    await answer("GetQueueUrl", QueueName="calls")
    await answer("SendMessageBatch", QueueUrl=url, Entries=_ENTRIES)
    received: list[Any] = []
    before = len(seen)
    while len(received) < len(_ENTRIES):
        received += (await call("ReceiveMessage", QueueUrl=url, **_ALL)).get("Messages", [])
    # The first request: how many a server takes is its own affair.
    del seen[before + 2 :]
    received.sort(key=lambda each: str(each["Body"]), reverse=True)
    assert [each["Body"] for each in received] == [each["MessageBody"] for each in _ENTRIES]
    seen.append(_steady(received))
    handles = [{"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]} for number, each in enumerate(received)]
    hidden = [{**each, "VisibilityTimeout": 90} for each in handles]
    await answer("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=hidden)
    await answer("DeleteMessageBatch", QueueUrl=url, Entries=[*handles, {"Id": "wrong", "ReceiptHandle": "none"}])
    await answer("ReceiveMessage", QueueUrl=url, **_ALL | {"WaitTimeSeconds": 0})
    await answer("GetQueueAttributes", QueueUrl=url, AttributeNames=["VisibilityTimeout"])
    await answer("DeleteQueue", QueueUrl=url)
    return seen


def _steady(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: "…" if name in _CHANGING else _steady(each) for name, each in value.items()}
    return [_steady(each) for each in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def test_clients_of_a_process_read_the_models_once(one: SqsBinding) -> None:
    """They are megabytes of JSON. ``ours`` of another test has read them as well."""
    clients = [SqsClient(one.name, one._settings, one.timeout_seconds) for _ in range(2)]
    for client in clients:
        await client.open()
    first, second = (client._client.meta.service_model.metadata for client in clients)
    assert first is second
    for client in clients:
        await client.close()
