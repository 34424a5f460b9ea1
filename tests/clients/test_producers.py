"""What every client takes and refuses: its options, tokens and URLs; and what it does with dead letters."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.clients.languages import Language
from tests.clients.late_gateway import breaking_gateway
from tests.clients.programs import PATIENCE_SECONDS, Consumer, each_language, run, until
from tests.harness.gateway import GatewayProcess

JOB = "urn:babel:conformance:made"
LANG = {"typescript": "node", "csharp": "dotnet"}
"""What an envelope calls the language of a client, where that is not the client's own name."""
TRACE_ID = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
OPTIONS = {
    "trace_id": TRACE_ID,
    "delay_seconds": 0.25,
    "ordering_key": "customer-42",
    "headers": {"x-tenant": "north"},
    "idempotency_key": 'order "4711"',
    "traceparent": f"00-{TRACE_ID.replace('-', '')}-00f067aa0ba902b7-01",
    "ext": {"vendor": {"list": [1, "é"], "none": None}},
}
URLS = ["127.0.0.1:8080", "localhost", "ftp://localhost", "http://", "http:///queues", "http://:8080"]
URLS += ["http://host/a b", "http://localhost\n", "http://lo\rcalhost", "http://localhost?x=1", "/gateway"]
GOOD_URLS = ["http://127.0.0.1:8080/", "https://gateway.example.com/babel", "HTTP://[::1]:8080"]
TOKENS = ["hunter2\n", "hunter2\r\n", "hun\tter2", "hun\x01ter2", "hunter2\x7f", " hunter2", "hunter2é"]


@each_language
def test_a_draft_says_the_language_of_its_client_and_all_options(
    language: Language, gateway: GatewayProcess, queue: str
) -> None:
    own = LANG.get(language.name, language.name)
    other = "python" if own == "php" else "php"
    (facts,) = run(language, gateway.url, "options", queue, json.dumps(OPTIONS | {"lang": other}))
    assert facts == {"batch": [201]}
    found: dict[int, dict[str, Any]] = {}
    with gateway.client() as http:
        until(lambda: all_are_read(http, queue, found, 3), lambda: found)
    assert found[0]["envelope"]["meta"]["lang"] == own
    assert "ext" not in found[0]["envelope"]["meta"]
    for n in (1, 2):
        envelope = found[n]["envelope"]
        assert envelope["meta"]["lang"] == other
        assert envelope["meta"]["ext"] == OPTIONS["ext"]
        assert envelope["trace_id"] == TRACE_ID
        assert found[n]["headers"]["x-tenant"] == "north"
        assert found[n]["headers"]["traceparent"].split("-")[1] == TRACE_ID.replace("-", "")


@each_language
def test_a_message_has_its_time_its_time_to_live_and_its_priority(
    language: Language, gateway: GatewayProcess, queue: str
) -> None:
    queue = f"file.{queue}"
    at = int(time.time() * 1000) + 2_000
    given = {"deliver_at": at, "ttl_seconds": 3600, "priority": 9, "idempotency_key": queue, "lang": "go"}
    run(language, gateway.url, "options", queue, json.dumps(given | {"traceparent": OPTIONS["traceparent"]}))
    with gateway.client() as http:
        until(
            lambda: http.get(f"queues/{queue}").json()["stats"]["depth"] == 3, lambda: http.get(f"queues/{queue}").text
        )
        answer = http.post(f"queues/{queue}/messages:receive", json={"max_messages": 3})
    messages = answer.raise_for_status().json()["messages"]
    numbers = [message["envelope"]["data"]["n"] for message in messages]
    assert (sorted(numbers[:2]), numbers[2]) == ([1, 2], 0)
    expiries = [int(message["headers"].get("babelgate-expires-at", 0)) for message in messages]
    # The time to live begins when the message can be received.
    assert min(expiries[:2]) >= at + 3_600_000 and expiries[2] == 0


def all_are_read(http: Any, queue: str, found: dict[int, dict[str, Any]], wanted: int) -> bool:
    """Receive into ``found``, by the number in the data of each message."""
    answer = http.post(f"queues/{queue}/messages:receive", json={"max_messages": 10, "wait_seconds": 1})
    for message in answer.raise_for_status().json()["messages"]:
        found[message["envelope"]["data"]["n"]] = message
    return len(found) == wanted


@each_language
def test_what_no_request_can_carry_is_refused_at_once(language: Language) -> None:
    # Nobody listens there: a client that tried would say so after its minute of attempts.
    traceparents = ["00-aa-bb-01\r\nX-Injected: yes", "zwölf"]
    given = {"urls": [*URLS, *GOOD_URLS], "tokens": [*TOKENS, "hunter2"], "traceparents": traceparents}
    (facts,) = run(language, "http://127.0.0.1:9", "refusals", json.dumps(given))
    said = dict(zip(given["urls"], facts["urls"], strict=True))
    assert [said[url] for url in GOOD_URLS] == [None] * len(GOOD_URLS)
    for url in URLS:
        assert "http://" in (said[url] or "") and "https://" in said[url], (url, said[url])
    *refused, accepted = facts["tokens"]
    assert accepted is None
    for text in refused:
        assert "token" in (text or "") and "line" in text
        assert not any(part in text for part in ("hunter", "hun", "ter2"))
    for text in facts["traceparents"]:
        assert "traceparent" in (text or "") and "X-Injected" not in text


@each_language
def test_a_token_of_the_environment_that_ends_in_a_line_feed_is_not_shown(language: Language, queue: str) -> None:
    environment = os.environ | {"BABELGATE_URL": "http://127.0.0.1:9", "BABELGATE_TOKEN": "hunter2\n"}
    done = subprocess.run(
        [*language.run, "checks", queue],
        cwd=language.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode != 0
    assert "token" in done.stdout + done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@each_language
def test_dead_letters_are_listed_shown_redriven_deleted_and_purged(
    language: Language, gateway: GatewayProcess, queue: str
) -> None:
    with gateway.client() as http:
        drafts = [{"job": JOB, "data": {"n": n}} for n in range(5)]
        http.post(f"queues/{queue}/messages:batch", json=drafts).raise_for_status()
        answer = http.post(f"queues/{queue}/messages:receive", json={"max_messages": 5, "lease_seconds": 60})
        tokens = [each["ack_token"] for each in answer.json()["messages"]]
        reason = {"error": {"message": "no such mailbox"}}
        http.post(f"queues/{queue}/messages:reject", json={"ack_tokens": tokens} | reason).raise_for_status()
        (facts,) = run(language, gateway.url, "letters", queue)
        assert facts == {
            "pages": [2, 3, None],
            "of_job": [5, 0],
            "shown": {"letter_id": True, "error": "no such mailbox"},
            "dry": [5, 0],
            "redriven": 1,
            "one": {"to_queue": True, "edited": True},
            "deleted": [1, 1],
            "counted": [2, 0],
            "purged": 2,
            "gone": "unknown_dead_letter",
        }
        found: dict[int, dict[str, Any]] = {}
        until(lambda: all_are_read(http, queue, found, 2), lambda: found)
        assert sorted(found) == [0, 100]


@each_language
def test_a_redrive_that_may_have_begun_is_not_repeated(language: Language, queue: str) -> None:
    """It would send more dead letters back than were asked for. No real gateway can be made to break off just then."""
    with breaking_gateway() as gateway:
        (facts,) = run(language, gateway.url, "redrive", queue)
        assert facts == {"outcome_unknown": True}
        assert gateway.requests == [f"/queues/{queue}/dead-letters:redrive"]


@each_language
def test_a_concurrency_of_one_keeps_the_order(
    language: Language, gateway: GatewayProcess, queue: str, tmp_path: Path
) -> None:
    made: list[dict[str, Any]] = [{"n": n, "producer": "test", "sleep_seconds": 0.5 if n == 0 else 0} for n in range(8)]
    with gateway.client() as http:
        drafts = [{"job": JOB, "data": data} for data in made]
        http.post(f"queues/{queue}/messages:batch", json=drafts).raise_for_status()
    consumer = Consumer(language, gateway.url, queue, tmp_path, lease_seconds=60, concurrency=1)
    try:
        until(lambda: len(consumer.handled()) == len(made), lambda: (consumer.events(), consumer.errors()))
        consumer.stop()
    finally:
        consumer.process.kill()
        consumer.process.wait()
    assert [event["n"] for event in consumer.handled()] == [*range(len(made))]
