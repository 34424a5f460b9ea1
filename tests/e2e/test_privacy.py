"""A day of a gateway with planted secrets: what its disk, its pages and its outputs have of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.harness import program
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import wait_for
from tests.harness.otlp import OtlpReceiver, otlp_receiver
from tests.harness.secrets import files, found_in

REDACTED = "geheim-ë-4111-1111"
"""What people must not see, in redacted members."""
ENCRYPTED = "vertraulich-ß-0815"
"""What a disk must not have: everything else in the bodies."""
JOB = "urn:babel:shop:payment.made"
DATA: dict[str, Any] = {"card": {"number": REDACTED}, "lines": [{"iban": REDACTED}], "note": ENCRYPTED}
KEYS = [{"id": "2026", "secret": "n" * 32}]
QUEUE = "pay.cards"
ROUTE = {"broker": "local", "encrypt": True, "redact": ["/data/card/number", "/data/lines/*/iban"], "max_attempts": 2}


def config(state: Path) -> dict[str, Any]:
    return {
        "state_dir": str(state),
        "log_level": "debug",
        "access_log": True,
        "body_keys": KEYS,
        "journal": {"landing": str(state / "landing"), "bodies": True, "segment_seconds": 1},
        "audit": {"directory": str(state / "audit")},
        "queues": {QUEUE: ROUTE},
        "default": {"broker": "local"},
    }


def publish(client: httpx.Client, **options: Any) -> dict[str, Any]:
    answer = client.post(f"/queues/{QUEUE}/messages", json={"job": JOB, "data": DATA}, **options)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def receive(client: httpx.Client) -> dict[str, Any]:
    answer = client.post(f"/queues/{QUEUE}/messages:receive", json={"wait_seconds": 20}).raise_for_status()
    (message,) = answer.json()["messages"]
    assert message["envelope"]["data"] == DATA
    found: dict[str, Any] = message
    return found


def settle(client: httpx.Client, action: str, **more: Any) -> None:
    body = {"ack_tokens": [receive(client)["ack_token"]], **more}
    client.post(f"/queues/{QUEUE}/messages:{action}", json=body).raise_for_status()


def seen(client: httpx.Client, process: GatewayProcess, outputs: list[tuple[str, bytes]]) -> str:
    """Look at everything that shows messages; the id of a dead letter."""
    letters = client.get(f"/queues/{QUEUE}/dead-letters").raise_for_status().json()["dead_letters"]
    letter = letters[0]["letter_id"]
    base = f"/console/queues/{QUEUE}"
    places = [
        f"/queues/{QUEUE}/messages:peek",
        f"/queues/{QUEUE}/dead-letters",
        f"/queues/{QUEUE}/dead-letters/{letter}",
        f"/messages?queue={QUEUE}",
        "/metrics",
        base,
        f"{base}/publish",
        f"{base}/dead-letters",
        f"{base}/dead-letters/list",
        f"{base}/dead-letters/{letter}",
        f"{base}/dead-letters/{letter}/edit",
    ]
    for place in places:
        outputs.append((place, client.get(place).raise_for_status().content))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    for command in (("peek", QUEUE), ("peek", QUEUE, "--json"), ("dead-letters", "list", QUEUE, "--json"), ("events",)):
        done = program.run(*command, environ=environ | {"BABELGATE_URL": process.url})
        assert done.returncode == 0, (command, done.stderr)
        outputs.append((" ".join(command), done.stdout + done.stderr))
    return str(letter)


def a_day(client: httpx.Client, process: GatewayProcess, outputs: list[tuple[str, bytes]]) -> None:
    """Every operation that touches a body."""
    batch = [{"job": JOB, "data": DATA}] * 3
    client.post(f"/queues/{QUEUE}/messages:batch", json=batch).raise_for_status()
    publish(client, headers={"idempotency-key": "once"})
    publish(client, params={"delay_seconds": 0.01, "priority": 9})
    settle(client, "ack")
    settle(client, "nack", delay_seconds=0.01)
    settle(client, "reject")
    settle(client, "reject", error={"message": "no such account", "exception": "LookupError"})
    outputs.append(("a refusal", client.post(f"/queues/{QUEUE}/messages", json={"data": {"card": REDACTED}}).content))
    letter = seen(client, process, outputs)
    shown = client.get(f"/queues/{QUEUE}/dead-letters/{letter}").json()["record"]["data"]
    edit = {"edit": {"data": shown}}
    redriven = client.post(f"/queues/{QUEUE}/dead-letters/{letter}:redrive", json=edit)
    outputs.append(("an edit", redriven.raise_for_status().content))
    job = client.post(f"/queues/{QUEUE}/dead-letters:redrive", json={"background": True}).raise_for_status()
    outputs.append(("a job", job.content))
    place = f"/queues/{QUEUE}/redrives/{job.json()['id']}"
    wait_for(lambda: client.get(place).raise_for_status().json()["state"] == "completed")


def decrypted(segments: list[bytes], *options: str) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BABELGATE_")}
    return program.run("journal", "decrypt", *options, environ=environ, stdin=b"".join(segments))


@pytest.fixture
def otlp() -> Iterable[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


def test_no_secret_is_where_it_must_not_be(tmp_path: Path, otlp: OtlpReceiver) -> None:
    state = tmp_path / "state"
    state.mkdir()
    outputs: list[tuple[str, bytes]] = []
    with gateway(tmp_path, config(state), environ=otlp.environ()) as process:
        with process.client() as client:
            a_day(client, process, outputs)
            assert found_in(files(tmp_path), REDACTED, ENCRYPTED) == []
        process.kill()
        assert found_in(files(tmp_path), REDACTED, ENCRYPTED) == []
        process.start()
        with process.client() as client:
            # Three of the batch and two more were published, and one acked.
            for _ in range(4):
                settle(client, "ack")
            assert client.post(f"/queues/{QUEUE}/messages:receive", json={}).json() == {"messages": []}
        assert process.stop() == 0
        spans = repr(otlp.spans)
    assert QUEUE in spans
    outputs += [("log", process.log_text().encode()), ("spans", spans.encode())]
    assert found_in(outputs, REDACTED) == []
    assert found_in([*files(tmp_path), outputs[-1], outputs[-2]], REDACTED, ENCRYPTED) == []
    # What was searched is what there is, and it can be found.
    names = {name for name, _ in files(tmp_path)}
    assert {"babelgate.db", "gateway.log"} < names
    assert any(name.startswith("text of ") for name in names)
    segments = [text for name, text in files(tmp_path) if name.startswith("text of ")]
    assert any(b'"envelope_encrypted":' in text for text in segments)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(KEYS))
    clear = decrypted(segments, "--body-keys", str(keys))
    assert clear.returncode == 0, clear.stderr
    assert found_in([("journal", clear.stdout)], ENCRYPTED) == ["journal"]
    assert found_in([("journal", clear.stdout)], REDACTED) == []
    bodies = [json.loads(line).get("envelope") for line in clear.stdout.splitlines()]
    assert {each["data"]["card"]["number"] for each in bodies if each} == {"[redacted]"}
    # Without the key it tells which one is missing, and prints what it has read.
    without = decrypted(segments)
    assert (without.returncode, without.stdout) == (1, b"".join(segments))
    assert b"no key with the id '2026'" in without.stderr


def test_the_search_finds_what_is_written_in_clear(tmp_path: Path) -> None:
    """Without the options of the route every kind of place has the secret."""
    state = tmp_path / "state"
    state.mkdir()
    plain = config(state) | {"queues": {QUEUE: {"broker": "local", "max_attempts": 2}}}
    outputs: list[tuple[str, bytes]] = []
    with gateway(tmp_path, plain) as process, process.client() as client:
        a_day(client, process, outputs)
        process.kill()
    names = found_in(files(tmp_path), REDACTED, ENCRYPTED)
    assert any(name.startswith("babelgate.db") for name in names)
    assert any(".ndjson" in name for name in names)
    shown = found_in(outputs, REDACTED)
    assert {f"/queues/{QUEUE}/messages:peek", f"peek {QUEUE}", f"dead-letters list {QUEUE} --json"} < set(shown)


def test_a_gateway_without_the_key_loses_nothing(tmp_path: Path) -> None:
    """Its receive says what is missing; with the key, the message comes as it was, and was never tried."""
    with gateway(tmp_path, config(tmp_path)) as process, process.client() as client:
        publish(client)
    other = config(tmp_path) | {"body_keys": [{"id": "2027", "secret": "m" * 32}]}
    with gateway(tmp_path, other) as process, process.client() as client:
        for path in (f"/queues/{QUEUE}/messages:receive", f"/queues/{QUEUE}/messages:peek"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "body_unreadable"), answer.text
            assert "'2026'" in answer.json()["detail"]
        # The key comes back by a reload, with which the queue is no longer encrypted.
        file = tmp_path / "babelgate.yaml"
        settings = yaml.safe_load(file.read_text())
        settings["body_keys"] += KEYS
        settings["queues"][QUEUE] |= {"encrypt": False, "redact": []}
        file.write_text(yaml.safe_dump(settings))
        os.kill(process.pid, signal.SIGHUP)
        wait_for(lambda: "configuration loaded" in process.log_text())
        assert receive(client)["attempts"] == 0
        assert client.get(f"/queues/{QUEUE}/dead-letters").raise_for_status().json()["dead_letters"] == []
        publish(client)
        (seen_now,) = client.get(f"/queues/{QUEUE}/messages:peek").raise_for_status().json()["messages"]
        assert seen_now["envelope"]["data"] == DATA
    assert [name for name in found_in(files(tmp_path), ENCRYPTED) if name.startswith("babelgate.db")]
