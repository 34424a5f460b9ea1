"""Every client against a real gateway: what each does alone, and each with each other.

The brokers are a real Redis, and an emulator of Azure Service Bus for broker properties.
"""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.brokers.redis.harness import RedisServer
from tests.clients.languages import LANGUAGES, ROOT, Language
from tests.clients.late_gateway import late_gateway
from tests.clients.programs import BY_NAME, PATIENCE_SECONDS, Consumer, each_language, run, until
from tests.harness.gateway import GatewayProcess

JOB = "urn:babel:conformance:made"
TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
TRACE = TRACE_ID.replace("-", "")
LEASE_SECONDS = 3
EXTENDED = "babelgate_extended_total"
MESSAGES = 40
"""Of each producer, for each consumer."""


def proves(request: pytest.FixtureRequest, language: Language, *columns: str) -> None:
    request.node.user_properties += [(language.name, column) for column in columns]


def test_what_is_generated_and_committed_is_up_to_date() -> None:
    done = subprocess.run(["git", "status", "--porcelain", "clients"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no checkout of git")
    made = ("/generated/", "clients/typescript/dist/")
    changed = [line for line in done.stdout.splitlines() if any(part in line for part in made)]
    assert changed == [], "run `make clients` and commit"


@each_language
def test_what_a_client_does(language: Language, gateway: GatewayProcess, queue: str, request: Any) -> None:
    (facts,) = run(language, gateway.url, "checks", queue)
    published = facts.pop("published")
    assert (published["queue"], published["trace_id"]) == (queue, TRACE_ID)
    received = facts.pop("received")
    traceparent = received.pop("traceparent")
    assert traceparent.split("-")[1] == TRACE
    assert received == {
        "id": published["id"],
        "job": JOB,
        "trace_id": TRACE_ID,
        "data": {"n": 1},
        "attempts": 0,
        "redelivered": False,
    }
    assert isinstance(facts.pop("not_found_or_unreachable"), str)
    assert facts == {
        "replayed": True,
        "batch": [201, 422, 201],
        "extended": True,
        "nacked_attempts": 1,
        "acked": 4,
        "problem": {"status": 400, "code": "invalid_ack_token", "retryable": False},
        "lease_lost": "lease_lost",
    }
    with gateway.client() as http:
        stats = http.get(f"queues/{queue}").json()["stats"]
    assert (stats["depth"], stats["in_flight"], stats["dead"]) == (0, 0, 0)
    proves(request, language, "generate", "compile", "publish", "receive", "ack", "nack", "extend", "problem")


@each_language
def test_broker_properties_reach_the_consumer(
    language: Language, gateway: GatewayProcess, queue: str, request: Any
) -> None:
    (facts,) = run(language, gateway.url, "properties", f"azure.{queue}", queue)
    published, batch = facts.pop("published"), facts.pop("batch")
    for name, value in {"TimeToLive": 3600, "ReplyTo": "replies", "Label": JOB, "SequenceNumber": 1}.items():
        assert published[name] == value
    for name, value in {"TimeToLive": 86400.5, "To": "warehouse", "Label": JOB, "SequenceNumber": 2}.items():
        assert batch[name] == value
    refused = {"status": 422, "code": "broker_property_unsupported"}
    assert facts == {"refused": refused, "refused_in_batch": refused, "without": {}}
    proves(request, language, "broker properties")


@each_language
def test_a_consumer_keeps_leases_repeats_rejects_and_stops(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    consumer = Consumer(language, gateway.url, queue, tmp_path, lease_seconds=7)
    try:
        with gateway.client() as http:
            made: list[dict[str, Any]] = [{"sleep_seconds": 11}, {"fail_times": 2}, {"reject": True}, {}]
            drafts = [{"job": JOB, "data": {"producer": "test", "n": n, **data}} for n, data in enumerate(made)]
            http.post(f"queues/{queue}/messages:batch", json=drafts).raise_for_status()

            def done() -> bool:
                stats = http.get(f"queues/{queue}").json()["stats"]
                return len(consumer.handled()) == 3 and (stats["in_flight"], stats["dead"]) == (0, 1)

            until(done, lambda: (consumer.events(), consumer.errors()))
            attempts = {event["n"]: event["attempts"] for event in consumer.handled()}
            # A lease that was not kept would have expired, which counts.
            assert attempts == {0: 0, 1: 2, 3: 0}
            (letter,) = http.get(f"queues/{queue}/dead-letters").json()["dead_letters"]
            assert letter["record"]["data"]["reject"] is True and letter["error"]
            long = {"job": JOB, "data": {"producer": "test", "n": 9, "sleep_seconds": 60}}

            def extended() -> float:
                families = text_string_to_metric_families(http.get("/metrics").text)
                samples = [each for family in families for each in family.samples if each.name == EXTENDED]
                return sum(each.value for each in samples if each.labels["queue"] == queue)

            before = extended()
            http.post(f"queues/{queue}/messages", json=long).raise_for_status()
            # Its handler runs, then. A stop before the answer arrives leaves the message to the end of its lease.
            until(lambda: extended() > before, lambda: (consumer.events(), consumer.errors()))
            consumer.stop()
            (message,) = http.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 0}).json()["messages"]
            assert (message["envelope"]["data"]["n"], message["attempts"]) == (9, 0)
            assert len(consumer.handled()) == 3
    finally:
        consumer.process.kill()
        consumer.process.wait()


@each_language
def test_a_stop_loses_no_answer_that_is_on_its_way(language: Language, tmp_path: Path) -> None:
    """A message of an answer that nobody reads would stay leased. No real gateway can be made to answer just then."""
    # A client that never waits fails each time; one that waits may have been suspended by a busy machine.
    assert any(settles_what_comes_late(language, tmp_path / str(attempt)) for attempt in range(3))


def settles_what_comes_late(language: Language, folder: Path) -> bool:
    folder.mkdir()
    with late_gateway() as gateway:
        consumer = Consumer(language, gateway.url, "late", folder, lease_seconds=60)
        try:
            assert gateway.asked.wait(PATIENCE_SECONDS), consumer.errors()
            consumer.process.send_signal(signal.SIGTERM)
            gateway.answers.set()
            assert consumer.process.wait(PATIENCE_SECONDS) == 0, consumer.errors()
        finally:
            consumer.process.kill()
            consumer.process.wait()
        return gateway.settled == ["late-token"]


def test_each_with_each_other_while_the_gateway_is_killed(
    redis: RedisServer, tmp_path: Path, queue: str, request: Any
) -> None:
    config = {"brokers": {"cache": redis.url()}, "default": {"broker": "cache", "max_attempts": 50}}
    gateway = GatewayProcess(tmp_path, config).start()
    queues = {language.name: f"{queue}.{language.name}" for language in LANGUAGES}
    consumers = {
        language.name: Consumer(language, gateway.url, queues[language.name], tmp_path, LEASE_SECONDS)
        for language in LANGUAGES
    }
    try:
        with ThreadPoolExecutor(max_workers=2 * len(LANGUAGES)) as pool:
            order = [(producer, to) for to in queues for producer in LANGUAGES]
            running = [
                pool.submit(run, producer, gateway.url, "produce", queues[to], producer.name, str(MESSAGES))
                for producer, to in order
            ]
            until(
                lambda: all(consumer.handled() for consumer in consumers.values()),
                lambda: {name: consumer.errors() for name, consumer in consumers.items()},
            )
            gateway.kill()
            gateway.start()
            accepted = [(producer.name, to, running[i].result()) for i, (producer, to) in enumerate(order)]

        def missed(to: str) -> set[str]:
            sent = {each["id"] for _, name, lines in accepted for each in lines if name == to}
            return sent - {event["id"] for event in consumers[to].handled()}

        for producer, to, lines in accepted:
            assert sorted(each["n"] for each in lines) == [*range(MESSAGES)], (producer, to)
        with gateway.client() as http:

            def is_empty() -> bool:
                stats = [http.get(f"queues/{name}").json()["stats"] for name in queues.values()]
                return all((each["depth"], each["in_flight"], each["delayed"]) == (0, 0, 0) for each in stats)

            until(
                lambda: is_empty() and not any(map(missed, queues)),
                lambda: {to: (missed(to), consumers[to].errors()) for to in queues},
            )
            for name in queues.values():
                assert http.get(f"queues/{name}").json()["stats"]["dead"] == 0
        for to, consumer in consumers.items():
            consumer.stop()
            made_by = {event["producer"] for event in consumer.handled()}
            assert made_by == set(BY_NAME), to
            proves(request, BY_NAME[to], "survives kill -9")
    finally:
        for consumer in consumers.values():
            consumer.process.kill()
            consumer.process.wait()
        gateway.close()
