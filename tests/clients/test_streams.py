"""Consumers that read a stream: when it is cut, when the gateway is killed, when they stop, and without streams."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.clients.languages import Language
from tests.clients.late_gateway import KEEP_ALIVE, late_gateway
from tests.clients.programs import PATIENCE_SECONDS, Consumer, each_language, until
from tests.harness.gateway import GatewayProcess
from tests.harness.local import free_port
from tests.harness.proxy import Relay

JOB = "urn:babel:conformance:made"
LEASE_SECONDS = 6
CALM_LEASE_SECONDS = 30
"""Longer than a busy machine holds a process up: such a lease does not end by itself."""
MESSAGES = 40
FALLBACK = "The gateway offers no streams: the consumer goes on with long polls."


def publish(gateway: GatewayProcess, queue: str, numbers: range, **data: Any) -> None:
    drafts = [{"job": JOB, "data": {"producer": "test", "n": n, **data}} for n in numbers]
    with gateway.client() as http:
        assert http.post(f"queues/{queue}/messages:batch", json=drafts).status_code == 201


def metric(http: Any, name: str, queue: str) -> float:
    families = text_string_to_metric_families(http.get("/metrics").text)
    samples = [each for family in families for each in family.samples if each.name == name]
    return sum(each.value for each in samples if each.labels["queue"] == queue)


def stats_of(http: Any, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"queues/{queue}").json()["stats"]
    return found


def are_done(gateway: GatewayProcess, queue: str, consumer: Consumer, count: int) -> bool:
    """Whether each of ``count`` messages was handled, and is settled."""
    with gateway.client() as http:
        stats = stats_of(http, queue)
    unsettled = stats["depth"] + stats["in_flight"] + stats["delayed"]
    return {event["n"] for event in consumer.handled()} == {*range(count)} and unsettled == 0


@each_language
def test_a_stream_delivers_each_message_once_and_gives_back_what_is_left_when_its_consumer_stops(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    consumer = Consumer(language, gateway.url, queue, tmp_path, CALM_LEASE_SECONDS, stream=True)

    def seen() -> tuple[Any, str]:
        return consumer.events(), consumer.errors()

    try:
        publish(gateway, queue, range(MESSAGES))
        until(lambda: are_done(gateway, queue, consumer, MESSAGES), seen)
        assert sorted(event["n"] for event in consumer.handled()) == [*range(MESSAGES)]
        assert {event["attempts"] for event in consumer.handled()} == {0}
        with gateway.client() as http:
            assert metric(http, "babelgate_open_streams", queue) == 1

        publish(gateway, queue, range(MESSAGES, MESSAGES + 9), sleep_seconds=60)
        with gateway.client() as http:
            until(lambda: stats_of(http, queue)["in_flight"] == 4, seen)
            consumer.stop()
            left: list[dict[str, Any]] = []

            def is_back() -> bool:
                answer = http.post(f"queues/{queue}/messages:receive", json={"max_messages": 9, "lease_seconds": 300})
                left.extend(answer.json()["messages"])
                return len(left) == 9

            until(is_back, lambda: left)
        # What is given back counts no attempt, and the end of a lease would.
        assert {message["attempts"] for message in left} == {0}
        assert FALLBACK not in consumer.errors()
    finally:
        consumer.process.kill()
        consumer.process.wait()


@each_language
def test_a_stream_loses_nothing_when_the_gateway_is_killed(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    consumer = Consumer(language, gateway.url, queue, tmp_path, LEASE_SECONDS, stream=True)

    def seen() -> tuple[Any, str]:
        return consumer.events(), consumer.errors()

    try:
        # One handler takes longer than a lease.
        publish(gateway, queue, range(1), sleep_seconds=LEASE_SECONDS + 1)
        publish(gateway, queue, range(1, MESSAGES), sleep_seconds=0.1)
        until(lambda: len(consumer.handled()) > 4, seen)
        gateway.kill()
        gateway.start()
        until(lambda: are_done(gateway, queue, consumer, MESSAGES), seen)
        consumer.stop()
        assert FALLBACK not in consumer.errors()
    finally:
        consumer.process.kill()
        consumer.process.wait()


@each_language
def test_a_handler_ends_whose_message_went_back_with_its_stream(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    relay = Relay(free_port(), int(gateway.url.rpartition(":")[2]))
    relay.start()
    consumer = Consumer(
        language, f"http://127.0.0.1:{relay.port}", queue, tmp_path, LEASE_SECONDS, concurrency=1, stream=True
    )
    try:
        with gateway.client() as http:
            stats = partial(stats_of, http, queue)
            publish(gateway, queue, range(1), sleep_seconds=2 * PATIENCE_SECONDS)
            # A stream prolongs leases without counting it. The consumer does for a handler that runs.
            until(lambda: metric(http, "babelgate_extended_total", queue) > 0, consumer.errors)
            relay.stop()
            until(lambda: stats()["depth"] == 1, stats)
            (message,) = http.post(f"queues/{queue}/messages:receive", json={}).json()["messages"]
            tokens = {"ack_tokens": [message["ack_token"]]}
            http.post(f"queues/{queue}/messages:ack", json=tokens).raise_for_status()
            publish(gateway, queue, range(1, 2))
            relay.start()
            # There is room for one handler.
            until(lambda: [event["n"] for event in consumer.handled()] == [1], consumer.errors)
            until(lambda: stats()["in_flight"] == 0, stats)
            consumer.stop()
    finally:
        consumer.process.kill()
        consumer.process.wait()
        relay.close()


@each_language
@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (405, "not_found"), (501, "not_found"), (504, None)])
def test_a_gateway_without_streams_is_polled(language: Language, status: int, code: str | None, tmp_path: Path) -> None:
    # Polls wait for a proxy that has no backend.
    with late_gateway(status, code, refusals=[503, 504, 429]) as gateway:
        consumer = Consumer(language, gateway.url, "late", tmp_path, lease_seconds=60, stream=True)
        try:
            gateway.answers.set()
            until(lambda: gateway.settled == ["late-token"], lambda: (consumer.events(), consumer.errors()))
            consumer.process.send_signal(signal.SIGTERM)
            assert consumer.process.wait(PATIENCE_SECONDS) == 0, consumer.errors()
        finally:
            consumer.process.kill()
            consumer.process.wait()
        assert gateway.streams == 1
        assert consumer.errors().count(FALLBACK) == 1


@each_language
def test_a_stream_that_worked_is_followed_by_another_whatever_a_proxy_answers_meanwhile(
    language: Language, tmp_path: Path
) -> None:
    with late_gateway(200, first_streams=[200, 404, 405, 503, 504], refusals=[503, 429]) as gateway:
        consumer = Consumer(language, gateway.url, "late", tmp_path, 60, stream=True)
        try:
            until(lambda: gateway.settled == ["late-token"], lambda: (consumer.events(), consumer.errors()))
            consumer.stop()
        finally:
            consumer.process.kill()
            consumer.process.wait()
        assert gateway.streams == 6
        assert not gateway.asked.is_set()
        assert FALLBACK not in consumer.errors()


@each_language
def test_a_stream_of_an_unknown_queue_is_refused(language: Language, tmp_path: Path) -> None:
    with late_gateway(404, "queue_not_found") as gateway:
        consumer = Consumer(language, gateway.url, "late", tmp_path, 60, stream=True)
        try:
            consumer.process.wait(PATIENCE_SECONDS)
        finally:
            consumer.process.kill()
            consumer.process.wait()
        assert not gateway.asked.is_set()
        assert "queue_not_found" in consumer.errors()


@each_language
def test_a_stream_that_cannot_be_read_ends_its_consumer(language: Language, tmp_path: Path) -> None:
    """The next stream would send the same."""
    with late_gateway(200, lines=[KEEP_ALIVE, b'{"event": "message", "data"', KEEP_ALIVE]) as gateway:
        consumer = Consumer(language, gateway.url, "late", tmp_path, 60, stream=True)
        try:
            consumer.process.wait(PATIENCE_SECONDS)
        finally:
            consumer.process.kill()
            consumer.process.wait()
        assert gateway.streams == 1
        assert not gateway.asked.is_set()
        assert "of the stream is no JSON object" in consumer.errors()


@each_language
def test_a_refusal_of_the_gateway_ends_a_consumer_whatever_its_status_means_of_a_proxy(
    language: Language, tmp_path: Path
) -> None:
    with late_gateway(refusals=[408, 502], problem=(502, "broker_rejected")) as gateway:
        consumer = Consumer(language, gateway.url, "late", tmp_path, 60)
        try:
            consumer.process.wait(PATIENCE_SECONDS)
        finally:
            consumer.process.kill()
            consumer.process.wait()
        assert not gateway.refusals
        assert "broker_rejected" in consumer.errors()
