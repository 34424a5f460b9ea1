"""Dead letters for tests of the console, made and read by the API."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from babelgate.brokers.batching import batches
from tests.harness.broker import Broker

JOB = "urn:babel:test:made"
_PATIENCE_SECONDS = 60.0


def bury(
    client: httpx.Client,
    queue: str,
    *errors: str,
    exception: str = "LookupError",
    job: str = JOB,
    data: Any = None,
    trace_id: str | None = None,
) -> None:
    """Publish a message for each of ``errors``, and reject it with that error."""
    for error in errors:
        draft = {"job": job, "data": data or {}, **({} if trace_id is None else {"trace_id": trace_id})}
        client.post(f"queues/{queue}/messages", json=draft).raise_for_status()
        (message,) = _received(client, queue, 1)
        rejected = {"ack_tokens": [message["ack_token"]], "error": {"message": error, "exception": exception}}
        client.post(f"queues/{queue}/messages:reject", json=rejected).raise_for_status()


def dead(client: httpx.Client, queue: str) -> list[dict[str, Any]]:
    """The dead letters of ``queue``, oldest first."""
    answer = client.get(f"queues/{queue}/dead-letters", params={"limit": 1000}).raise_for_status().json()
    found: list[dict[str, Any]] = answer["dead_letters"]
    return found


def ready(client: httpx.Client, queue: str, count: int) -> list[dict[str, Any]]:
    """The envelopes of ``count`` messages, which are received and acked."""
    messages = _received(client, queue, count)
    tokens = [each["ack_token"] for each in messages]
    client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": tokens}).raise_for_status()
    return [each["envelope"] for each in messages]


def bury_many(client: httpx.Client, queue: str, count: int) -> None:
    """Make ``count`` dead letters, whose data are numbered, in calls of a hundred."""
    for numbers in batches(range(count), 100):
        drafts = [{"job": JOB, "data": {"n": number}} for number in numbers]
        client.post(f"queues/{queue}/messages:batch", json=drafts).raise_for_status()
        tokens = [each["ack_token"] for each in _received(client, queue, len(drafts))]
        client.post(f"queues/{queue}/messages:reject", json={"ack_tokens": tokens}).raise_for_status()


def inject(broker: Broker, queue: str, *bodies: bytes) -> None:
    """Put ``bodies`` on a queue unchecked."""

    async def write() -> None:
        await broker.inject(queue, *bodies)

    # A browser of Playwright keeps an event loop in the thread of the test.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, write()).result()


def eventually_found(client: httpx.Client, message_id: str, event: str) -> None:
    """Wait until the journal has ``event`` of a message: it may be a moment late."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        answer = client.get(f"messages/{message_id}")
        found = [each["event"] for each in answer.json().get("events", [])]
        if event in found:
            return
        assert time.monotonic() < until, (answer.status_code, found)
        time.sleep(0.05)


def _received(client: httpx.Client, queue: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    until = time.monotonic() + _PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < until, found
        wanted = {"max_messages": count - len(found), "wait_seconds": 5, "lease_seconds": 60}
        answer = client.post(f"queues/{queue}/messages:receive", params=wanted).raise_for_status()
        found += answer.json()["messages"]
    return found
