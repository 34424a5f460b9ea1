"""Headers that a broker cannot carry are the client's mistake, with their place, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from tests.harness.local import free_port
from tests.harness.sockets import serving
from tests.harness.ways import Served

DRAFT: dict[str, Any] = {"job": "urn:babel:orders:created", "data": {}}
FRAME = "v" * 128 * 1024

REFUSED = [
    ("amqp", {"n" * 256: "x"}, "/headers/" + "n" * 256, "256 bytes"),
    ("amqp", {"ok": "x", "ü" * 128: "x"}, "/headers/" + "ü" * 128, "256 bytes"),
    ("amqp", {"CC": "other"}, "/headers/CC", "the broker's own"),
    ("amqp", {"BCC": "other"}, "/headers/BCC", "the broker's own"),
    ("amqp", {"a": FRAME}, "/headers", "at most 126976"),
    ("kafka", {"a\0b": "x"}, "/headers/a\0b", "U+0000"),
    ("artemis", {"a": FRAME * 4}, "/headers", "at most 399360"),
    ("servicebus", {"a": FRAME}, "/headers", "at most 61440"),
]


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "application"])
@pytest.mark.parametrize(("scheme", "headers", "place", "words"), REFUSED)
def test_it_is_refused_everywhere(
    tmp_path: Path, scheme: str, headers: Mapping[str, str], place: str, words: str, direct: bool
) -> None:
    """No broker is there: nothing is asked."""
    url = f"{scheme}://127.0.0.1:{free_port()}/"
    if scheme == "servicebus":
        url = "servicebus://sample.servicebus.windows.net"
    path = tmp_path / "babelgate.yaml"
    config = {"brokers": {"far": {"url": url}}, "default": {"broker": "far"}, "state_dir": str(tmp_path)}
    path.write_text(yaml.safe_dump(config))
    found = settings.load(path, {})
    entry = {"envelope": DRAFT, "headers": headers}
    with (
        serving(uvicorn_config(Served(found, direct=direct).build, found)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}/queues/q", timeout=120) as client,
    ):
        answer = client.post("/messages", json=entry)
        batch = client.post("/messages:batch", json=[entry])
        upload = client.post(
            "/messages:batch", content=json.dumps(entry), headers={"Content-Type": "application/x-ndjson"}
        )
        validated = client.post("/messages:validate", json=entry)
    for each in (answer.json(), batch.json()["results"][0], upload.json()["results"][0], validated.json()):
        assert (each["status"], each["code"]) == (422, "header_unsupported"), each
        assert [error["pointer"] for error in each["errors"]] == [place]
        assert words in each["detail"]
