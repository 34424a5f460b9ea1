"""The state of the version before is opened, and that of a newer one is refused in words."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from babelgate.brokers.sqlite.file import ENCRYPTED, SCHEMA
from tests.harness.gateway import GatewayProcess, gateway

pytestmark = pytest.mark.slow

DRAFT = {"job": "urn:babel:test:x", "data": {"n": 1}}


def to_schema_1(path: Path) -> None:
    """Make the file what the version without idempotency keys wrote."""
    with closing(sqlite3.connect(path)) as file:
        for name, kind in file.execute("SELECT name, type FROM sqlite_schema WHERE name LIKE 'key%'").fetchall():
            if kind == "table":
                file.execute(f"DROP TABLE {name}")
        columns = "queue_id, id, failures, redelivered"
        (made,) = file.execute("SELECT sql FROM sqlite_schema WHERE name = 'ready'").fetchone()
        file.execute("ALTER TABLE ready RENAME TO ranked")
        file.execute(re.sub(r"\n *rank [^\n]*|rank, ", "", made))
        file.execute(f"INSERT INTO ready ({columns}) SELECT {columns} FROM ranked")
        file.execute("DROP TABLE ranked")
        for name in ("held", "dead"):
            file.execute(f"ALTER TABLE {name} DROP COLUMN rank")
        file.execute("PRAGMA user_version = 1")
        file.commit()


def test_a_file_and_a_token_of_the_version_before(tmp_path: Path, queue: str) -> None:
    with gateway(tmp_path, kind=GatewayProcess) as process:
        with process.client() as client:
            for _ in range(2):
                assert client.post(f"queues/{queue}/messages", json=DRAFT).status_code == 201
            (leased,) = client.post(f"queues/{queue}/messages:receive", json={"lease_seconds": 3600}).json()["messages"]
        assert process.stop() == 0
        to_schema_1(tmp_path / "babelgate.db")
        process.start()
        with process.client() as client:
            settled = client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": [leased["ack_token"]]})
            assert settled.json()["settled"] == 1
            (message,) = client.post(f"queues/{queue}/messages:receive").json()["messages"]
            assert message["envelope"]["data"] == {"n": 1}
            keyed = {"idempotency-key": '"k"'}
            first = client.post(f"queues/{queue}/messages", json=DRAFT, headers=keyed)
            assert first.status_code == 201
            assert client.post(f"queues/{queue}/messages", json=DRAFT, headers=keyed).json()["id"] == first.json()["id"]
        assert process.stop() == 0
    with closing(sqlite3.connect(tmp_path / "babelgate.db")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (len(SCHEMA),)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_of_a_newer_version_is_refused(tmp_path: Path, workers: int) -> None:
    with gateway(tmp_path, kind=GatewayProcess) as process:
        assert process.stop() == 0
    with closing(sqlite3.connect(tmp_path / "babelgate.db")) as file:
        file.execute(f"PRAGMA user_version = {ENCRYPTED + 1}")
    process = GatewayProcess(tmp_path, {"workers": workers})
    with pytest.raises(AssertionError, match="ended with 1"):
        process.start()
    process.close()
    assert f"has schema version {ENCRYPTED + 1}, newer than the {ENCRYPTED} of this program" in process.log_text()
    assert not process.unforeseen()


def test_metrics_of_workers_of_another_version_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "workers" / "0123456789abcdef"
    left.mkdir(parents=True)
    (left / "0123456789abcdef-1").write_text('[["babelgate.of_another_version", [[[], 1]]]]')
    (left / "folded").write_text("{}")
    with gateway(tmp_path, {"workers": 2}, kind=GatewayProcess) as process:
        assert not left.exists()
        with process.client() as client:
            assert "babelgate_workers" in client.get("metrics").text
        assert process.stop() == 0
    assert not process.unforeseen()
