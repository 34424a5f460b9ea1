"""Produces, consumes and checks with the client. Prints one JSON object per line.

Usage: conformance.py produce QUEUE PRODUCER COUNT | consume QUEUE LEASE_SECONDS CONCURRENCY [stream]
       | checks QUEUE | properties QUEUE REFUSING | options QUEUE JSON | letters QUEUE | redrive QUEUE | refusals JSON
"""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from babelgate_client import (
    AsyncClient,
    Client,
    Delivery,
    LeaseLostError,
    Message,
    ProblemError,
    Reject,
    UnreachableError,
)

JOB = "urn:babel:conformance:made"
TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
TRACEPARENT = "00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01"


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def produce(queue: str, producer: str, count: int) -> None:
    def made(n: int) -> dict[str, Any]:
        return {"producer": producer, "n": n}

    with Client() as client:
        for n in range(0, count, 2):
            say(id=client.publish(queue, JOB, made(n)).id, **made(n))
        odd = range(1, count, 2)
        for start in range(0, len(odd), 10):
            part = odd[start : start + 10]
            results = client.publish_batch(queue, [Message(JOB, made(n)) for n in part])
            for n, result in zip(part, results, strict=True):
                assert result.status == 201, result
                say(id=result.id, **made(n))


def consume(queue: str, lease_seconds: float, concurrency: int, stream: bool) -> None:
    async def handle(delivery: Delivery) -> None:
        data = delivery.data
        await asyncio.sleep(data.get("sleep_seconds", 0))
        if data.get("reject"):
            raise Reject("as the message says")
        if delivery.attempts < data.get("fail_times", 0):
            raise RuntimeError("as the message says")
        facts = {"producer": data["producer"], "n": data["n"], "attempts": delivery.attempts}
        say(event="handled", id=delivery.id, **facts)

    async def run() -> None:
        async with AsyncClient() as client:
            options: dict[str, Any] = {"lease_seconds": lease_seconds, "concurrency": concurrency}
            consumer = client.consumer(queue, handle, grace_seconds=5, stream=stream, **options)
            await consumer.run(signals=[signal.SIGTERM])

    asyncio.run(run())
    say(event="stopped")


def checks(queue: str) -> None:
    facts: dict[str, Any] = {}
    with Client() as client:
        receipt = client.publish(queue, JOB, {"n": 1}, trace_id=TRACE_ID, traceparent=TRACEPARENT)
        facts["published"] = receipt.to_dict()
        twice = [client.publish(queue, JOB, {"n": 2}, idempotency_key=f"once-{receipt.id}").id for _ in range(2)]
        facts["replayed"] = twice[0] == twice[1]
        batch = [Message(JOB, {"n": 3}), Message("", {"n": 4}), Message(JOB, {"n": 5})]
        facts["batch"] = [result.status for result in client.publish_batch(queue, batch)]
        first, *rest = client.receive(queue, max_messages=10, wait_seconds=10, lease_seconds=30)
        facts["received"] = {
            "id": first.id,
            "job": first.job,
            "trace_id": first.trace_id,
            "data": first.data,
            "attempts": first.attempts,
            "redelivered": first.redelivered,
            "traceparent": first.traceparent,
        }
        until = client.extend(first, lease_seconds=300).results[0].lease_expires_at
        facts["extended"] = isinstance(until, int) and until > first.lease_expires_at
        client.nack(first, delay_seconds=0, error="no", exception="NoError")
        (again,) = client.receive(queue, wait_seconds=10, lease_seconds=30)
        facts["nacked_attempts"] = again.attempts
        facts["acked"] = client.ack(again, *rest).settled
        nonsense = Delivery(queue, "nonsense", 0, 0, False, {}, {})
        try:
            client.ack(nonsense)
        except ProblemError as problem:
            facts["problem"] = {"status": problem.status, "code": problem.code, "retryable": problem.retryable}
        client.publish(queue, JOB, {"n": 6})
        (late,) = client.receive(queue, wait_seconds=10, lease_seconds=1)
        time.sleep(1.2)
        (taken,) = client.receive(queue, wait_seconds=20, lease_seconds=30)
        try:
            client.ack(late)
        except LeaseLostError as lost:
            facts["lease_lost"] = lost.code
        client.ack(taken)
    try:
        Client("http://127.0.0.1:9", retry_seconds=0).publish(queue, JOB, {})
    except UnreachableError as error:
        facts["not_found_or_unreachable"] = type(error).__name__
    say(**facts)


def properties(queue: str, refusing: str) -> None:
    """``queue`` takes broker properties, and ``refusing`` takes none."""
    facts: dict[str, Any] = {}
    single, entry = {"TimeToLive": 3600, "ReplyTo": "replies"}, {"TimeToLive": 86400.5, "To": "warehouse"}
    with Client() as client:

        def received(name: str) -> dict[str, Any]:
            (delivery,) = client.receive(name, wait_seconds=20, lease_seconds=30)
            client.ack(delivery)
            return dict(delivery.broker_properties)

        client.publish(queue, JOB, {"n": 1}, broker_properties=single)
        facts["published"] = received(queue)
        (result,) = client.publish_batch(queue, [Message(JOB, {"n": 2}, broker_properties=entry)])
        assert result.status == 201, result
        facts["batch"] = received(queue)
        try:
            client.publish(refusing, JOB, {"n": 3}, broker_properties=single)
        except ProblemError as problem:
            facts["refused"] = {"status": problem.status, "code": problem.code}
        (result,) = client.publish_batch(refusing, [Message(JOB, {"n": 4}, broker_properties=entry)])
        facts["refused_in_batch"] = {"status": result.status, "code": result.code}
        client.publish(refusing, JOB, {"n": 5})
        facts["without"] = received(refusing)
    say(**facts)


def options(queue: str, given: dict[str, Any]) -> None:
    """Publish without options, then with all that are ``given``, alone and in a batch."""
    in_time = given | {"idempotency_key": given["idempotency_key"] + "-batch"}
    traceparent = in_time.pop("traceparent")
    with Client() as client:
        client.publish(queue, JOB, {"n": 0})
        client.publish(queue, JOB, {"n": 1}, **given)
        results = client.publish_batch(queue, [Message(JOB, {"n": 2}, **in_time)], traceparent=traceparent)
    say(batch=[result.status for result in results])


async def ask_for_letters(queue: str) -> None:
    """The client for asyncio asks the same, and changes nothing. ``queue`` has five dead letters."""
    async with AsyncClient() as client:
        dead = client.dead_letters(queue)
        first = (await dead.list(limit=1)).dead_letters[0]
        assert (await dead.show(first.letter_id)).record == first.record
        assert (await dead.redrive(dry_run=True)).matched == (await dead.purge(dry_run=True)).matched == 5
        assert (await dead.delete("nonsense")).failed == 1
        try:
            await dead.redrive_one("nonsense")
        except ProblemError as problem:
            assert problem.code == "unknown_dead_letter"


def letters(queue: str) -> None:
    """``queue`` has five dead letters."""
    asyncio.run(ask_for_letters(queue))
    facts: dict[str, Any] = {}
    with Client() as client:
        dead = client.dead_letters(queue)
        page = dead.list(limit=2)
        rest = dead.list(limit=10, cursor=page.next_cursor or "")
        facts["pages"] = [len(page.dead_letters), len(rest.dead_letters), rest.next_cursor]
        facts["of_job"] = [len(dead.list(job=job, reason="failed").dead_letters) for job in (JOB, "urn:another")]
        ids = [letter.letter_id for letter in page.dead_letters + rest.dead_letters]
        shown = dead.show(ids[0])
        facts["shown"] = {"letter_id": shown.letter_id == ids[0], "error": shown.error}
        dry = dead.redrive(job=JOB, limit=4, dry_run=True)
        facts["dry"] = [dry.matched, dry.redriven]
        facts["redriven"] = dead.redrive(ids=ids[:1]).redriven
        one = dead.redrive_one(ids[1], data={"n": 100})
        facts["one"] = {"to_queue": one.to_queue == queue, "edited": one.edited}
        removal = dead.delete(ids[2], "nonsense")
        facts["deleted"] = [removal.removed, removal.failed]
        counted = dead.purge(dry_run=True)
        facts["counted"] = [counted.matched, counted.removed]
        facts["purged"] = dead.purge().removed
        try:
            dead.show(ids[0])
        except ProblemError as problem:
            facts["gone"] = problem.code
    say(**facts)


def redrive(queue: str) -> None:
    """The gateway breaks the connection."""
    try:
        Client().dead_letters(queue).redrive()
    except UnreachableError as error:
        say(outcome_unknown=error.outcome_unknown)


def refusals(given: dict[str, list[str]]) -> None:
    """What is said of each URL, token and traceparent that is ``given``; null if nothing is."""

    def said(attempt: Callable[[], object]) -> str | None:
        try:
            attempt()
        except ValueError as error:
            return "".join(traceback.format_exception_only(error))
        return None

    client = Client()
    traced = [functools.partial(client.publish, "q", JOB, {}, traceparent=each) for each in given["traceparents"]]
    say(
        urls=[said(functools.partial(Client, each)) for each in given["urls"]],
        tokens=[said(functools.partial(Client, token=each)) for each in given["tokens"]],
        traceparents=[said(each) for each in traced],
    )


if __name__ == "__main__":
    command, *more = sys.argv[1:]
    if command == "produce":
        produce(more[0], more[1], int(more[2]))
    elif command == "consume":
        consume(more[0], float(more[1]), int(more[2]), "stream" in more[3:])
    elif command == "properties":
        properties(*more)
    elif command == "options":
        options(more[0], json.loads(more[1]))
    elif command == "letters":
        letters(*more)
    elif command == "redrive":
        redrive(*more)
    elif command == "refusals":
        refusals(json.loads(more[0]))
    else:
        checks(*more)
