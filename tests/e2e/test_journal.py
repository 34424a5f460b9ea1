"""The journal of a real gateway: what a day of a message looks like in it, and what is never there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import s3fs
from msgspec import UNSET

from babelgate.observe.journal.record import Record
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.journal import kept, landed, lines, read, unpacked
from tests.harness.local import free_port
from tests.harness.s3 import s3_server

pytestmark = pytest.mark.slow

TOKEN = "a token that nobody may see"
SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()
DRAFT = {
    "job": "urn:babel:orders:created",
    "data": {"card": "4111 1111 1111 1111"},
    "trace_id": "trace-1",
    "meta": {"lang": "go"},
}


def post(client: httpx.Client, path: str, body: Any = None, **how: Any) -> Any:
    answer = client.post(f"queues/orders/{path}", json=body, **how)
    assert answer.is_success, answer.text
    return answer.json()


def received(client: httpx.Client) -> dict[str, list[str]]:
    messages = post(client, "messages:receive", {"lease_seconds": 30, "wait_seconds": 30})["messages"]
    return {"ack_tokens": [each["ack_token"] for each in messages]}


def a_message_lives(client: httpx.Client) -> str:
    """Published, nacked, rejected, redriven, acked; its id."""
    accepted = post(client, "messages", DRAFT)
    post(client, "messages:nack", received(client) | {"delay_seconds": 0, "error": {"message": "a secret"}})
    post(client, "messages:reject", received(client))
    assert post(client, "dead-letters:redrive", {})["redriven"] == 1
    post(client, "messages:ack", received(client))
    return str(accepted["id"])


LIFE = [
    ("accepted", None),
    ("delivered", None),
    ("nacked", "nacked"),
    ("delivered", None),
    ("dead_lettered", "failed"),
    ("rejected", "rejected"),
    ("redriven", None),
    ("delivered", None),
    ("acked", "acked"),
]


def told(found: list[Record]) -> list[tuple[str, str | None]]:
    return [(record.event, record.outcome) for record in found]


def test_the_life_of_a_message(tmp_path: Path) -> None:
    config = {
        "journal": {"landing": str(tmp_path / "landing"), "node": "shop-1"},
        "auth": {"tokens": [{"name": "shop", "sha256": SHA256, "rights": {"*": ["send", "listen", "manage"]}}]},
    }
    with gateway(tmp_path, config) as process:
        with process.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            message_id = a_message_lives(client)
            numbers = client.get("metrics").text
        assert process.stop() == 0
    found = read(tmp_path / "landing")
    assert told(found) == LIFE
    assert "babelgate_journal_records_total 9.0" in numbers
    for record in found:
        known = (record.node, record.queue, record.broker, record.message_id, record.trace_id, record.job)
        assert known == ("shop-1", "orders", "local", message_id, "trace-1", "urn:babel:orders:created")
    assert [record.attempts for record in found if record.event == "delivered"] == [0, 1, 0]
    assert {record.lease_seconds for record in found if record.event == "delivered"} == {30.0}
    assert [record.to_queue for record in found if record.event == "redriven"] == ["orders"]
    first = found[0]
    assert first.lang == "go" and first.bytes is not None and first.bytes > 100
    assert first.created_at is not None and first.created_at <= first.at
    files = b"".join(unpacked(path.read_bytes(), path.name) for path in landed(tmp_path / "landing"))
    # Random ids and times have four digits of a card now and then, but no blank.
    for secret in (TOKEN, SHA256, "4111 1111", "a secret", "ack_token"):
        assert secret.encode() not in files


def test_a_store_that_comes_back(tmp_path: Path) -> None:
    """S3 is down while the gateway runs and stops; the next start lands what was left."""
    port = free_port()
    config = {"journal": {"landing": "s3://journals/prod", "segment_seconds": 0.5, "bodies": True}}
    down = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "a secret key",
        "AWS_MAX_ATTEMPTS": "1",
    }
    with gateway(tmp_path, config, environ=down) as process, process.client() as client:
        message_id = a_message_lives(client)
        assert process.stop() == 0
    with s3_server() as found_by:
        files = s3fs.S3FileSystem(
            key="id", secret="a secret key", endpoint_url=found_by["AWS_ENDPOINT_URL"], skip_instance_cache=True
        )
        files.mkdir("journals")
        with gateway(tmp_path, config, environ=found_by) as process:
            assert process.stop() == 0
        names = sorted(files.find("journals"))
        assert all(name.startswith("journals/prod/date=") and name.endswith(".ndjson.zst") for name in names)
        found = [record for name in names for record in lines(unpacked(files.cat(name), name), name)]
    assert told(found) == LIFE
    assert {record.message_id for record in found} == {message_id}
    bodies = {record.event: bytes(record.envelope) for record in found if record.envelope is not UNSET}
    assert set(bodies) == {"accepted", "delivered"}
    assert all(json.loads(body)["data"] == DRAFT["data"] for body in bodies.values())
    assert kept(tmp_path / "journal") == []
    assert "a secret key" not in process.log_text()


def test_what_cannot_work_is_refused_before_anything_listens(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path, {"journal": {"landing": "s4://bucket"}})
    with pytest.raises(AssertionError, match="ended with 1"):
        process.start()
    assert "journal.landing: s4://bucket: Protocol not known: s4" in process.log_text()
    assert "Traceback" not in process.log_text()
