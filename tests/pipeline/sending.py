"""Runs the commands that send, against a gateway in its own process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.storage.datasets import DatasetStore
from tests.harness.gateway import GatewayProcess


def body(number: int, queue: str = "q", **members: Any) -> bytes:
    """A full envelope with the id ``id-<number>``."""
    frame = {
        "job": "urn:babel:test:sent",
        "trace_id": f"trace-{number}",
        "data": {"number": number},
        "meta": {"id": f"id-{number}", "queue": queue, "lang": "go", "schema_version": 1, "created_at": 1000 + number},
        "attempts": 3,
    }
    return json.dumps({**frame, **members}, separators=(",", ":")).encode()


def write(path: Path, *bodies: bytes) -> Path:
    """A file of them, NDJSON."""
    path.write_bytes(b"".join(each + b"\n" for each in bodies))
    return path


class Sends:
    """The commands, in this process; the ledger lies below ``folder``."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.folder = folder
        # Whatever names folders have: in URLs these characters mean something.
        self.root = str(folder / "out #1%20")
        self.store = DatasetStore(spark, self.root)
        self.url = "http://127.0.0.1:9"
        self.output = self.shown = ""

    def __call__(self, command: str, *arguments: object, code: int = 0) -> Any:
        """The summary of a run that ends with ``code``; None where it wrote none."""
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        url = () if command in ("validate", "ingest") else ("--url", self.url)
        given = [command, "--lake", self.root, "--summary", str(summary), *url, *map(str, arguments)]
        result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
        self.output, self.shown = result.output, result.stdout
        assert result.exit_code == code, result.output
        return json.loads(summary.read_text()) if summary.exists() else None

    def ledger(self) -> list[dict[str, Any]]:
        """The lines of the last run, by message."""
        return [row.asDict() for row in self.store.read("ledger").orderBy("message_id").collect()]


def drained(gateway: GatewayProcess, queue: str) -> Counter[str]:
    """How often each message lay on the queue, by its id."""
    return Counter(each["meta"]["id"] for each in envelopes(gateway, queue))


def envelopes(gateway: GatewayProcess, queue: str) -> list[dict[str, Any]]:
    """All that lies on the queue, and no longer does."""
    return [message["envelope"] for message in messages_of(gateway, queue)]


def messages_of(gateway: GatewayProcess, queue: str) -> list[dict[str, Any]]:
    """The same with headers, but without those of the trace, which each publish has of its own."""
    found: list[dict[str, Any]] = []
    with gateway.client() as client:
        while True:
            answer = client.post(f"/queues/{queue}/messages:receive", json={"max_messages": 100})
            if answer.status_code == 503:
                continue
            if not (messages := answer.json()["messages"]):
                for each in found:
                    each["headers"].pop("traceparent", None)
                return found
            found += messages
            tokens = [message["ack_token"] for message in messages]
            assert client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": tokens}).status_code == 200
