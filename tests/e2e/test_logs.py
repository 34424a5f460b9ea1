"""What a gateway writes to standard output, and that no payload and no secret is in it."""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.brokers.redis.harness import redis_server
from tests.harness.gateway import GatewayProcess, gateway

SECRET = "hunter2"
"""Part of all that must not be logged."""
TOKEN = f"{SECRET}-token"
DRAFT = {"job": "urn:babel:test:made", "data": {"card": f"{SECRET}-payload"}}
LINE = ["timestamp", "level", "logger", "event"]


def events(process: GatewayProcess, event: str) -> list[dict[str, Any]]:
    return [line for line in process.logged() if line["event"] == event]


def config(**more: Any) -> dict[str, Any]:
    """Of a gateway that knows its callers."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    token = {"name": "shop", "sha256": digest, "rights": {"*": ["send", "listen", "manage"]}}
    return {"auth": {"tokens": [token]}, "access_log": True, **more}


@pytest.fixture
def bearer() -> dict[str, str]:
    return {"authorization": f"Bearer {TOKEN}"}


def test_one_line_per_request_refused_ones_too(tmp_path: Path, queue: str, bearer: dict[str, str]) -> None:
    path = f"/queues/{queue}/messages"
    with gateway(tmp_path, config(prefix="/mq")) as process, process.client(headers=bearer) as client:
        told = {"x-request-id": "mine-1", "traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-00"}
        answers = [
            client.post(f".{path}", json=DRAFT, params={"delay_seconds": "0.001"}, headers=told),
            client.post(f".{path}", json={}),
            client.get(f".{path}"),
            client.post(f".{path}:receive", headers={"authorization": f"Bearer {TOKEN}x"}),
            client.get(f"./queues/{queue}"),
            client.get("./nowhere/%1B%5B31m"),
        ]
        assert [answer.status_code for answer in answers] == [201, 422, 405, 401, 200, 404]
        found = [line for line in events(process, "request") if line["path"] not in ("/readyz", "/livez")]
    assert [line["status"] for line in found] == [201, 422, 405, 401, 200, 404]
    assert [line["path"] for line in found] == [path] * 3 + [
        f"{path}:receive",
        f"/queues/{queue}",
        "/nowhere/%1B%5B31m",
    ]
    publish = "/queues/{queue}/messages"
    routes = [publish, publish, publish, None, "/queues/{queue}", None]
    assert [line["route"] for line in found] == routes
    assert [line["caller"] for line in found] == ["shop", "shop", "shop", None, "shop", "shop"]
    assert [line["bytes"] for line in found] == [len(answer.content) for answer in answers]
    assert [line["request_id"] for line in found] == [answer.headers["x-request-id"] for answer in answers]
    assert [line["code"] for line in found[:4]] == [None, "missing_urn", "method_not_allowed", "unauthenticated"]
    first = found[0]
    assert (first["request_id"], first["method"], first["client"]) == ("mine-1", "POST", "127.0.0.1")
    assert 0 < first["duration_ms"] < 10_000
    assert SECRET not in process.log_text()


def test_every_line_of_a_life_has_the_same_fields(tmp_path: Path, queue: str) -> None:
    """Two workers, and requests that are not told because nobody asked for it."""
    with gateway(tmp_path, {"workers": 2}) as process, process.client() as client:
        assert client.post(f"queues/{queue}/messages", json=DRAFT).status_code == 201
        assert client.get("nowhere").status_code == 404
        while len(events(process, "starting")) < 2:
            time.sleep(0.05)
        assert process.stop() == 0
        pid, workers = process.pid, {line["pid"] for line in events(process, "starting")}
    assert all(list(line)[:4] == LINE and line["pid"] for line in process.logged())
    assert len(workers) == 2 and pid not in workers
    assert [line["pid"] for line in events(process, "listening")] == [pid]
    assert not events(process, "request")
    assert len({line["incarnation"] for line in events(process, "starting")}) == 2
    assert {line["signal"] for line in events(process, "draining")} == {"SIGTERM"}


@pytest.mark.redis
def test_no_payload_and_no_secret_is_logged(tmp_path: Path, bearer: dict[str, str]) -> None:
    """Healthy and poison bodies, refusals, tokens of all kinds, and a broker whose URL holds a password goes away."""
    with redis_server(arguments=["--requirepass", SECRET]) as server:
        url = f"redis://:{SECRET}@127.0.0.1:{server.port}/0"
        brokers = {
            "cache": url,
            "dead": f"redis://user:{SECRET}@127.0.0.1:1/0",
            "lost": f"amqp://u:{SECRET}@127.0.0.1:1/",
        }
        queues = {"dead": {"broker": "dead"}, "lost": {"broker": "lost"}}
        given = config(brokers=brokers, queues=queues, default={"broker": "cache"}, log_level="debug")
        with gateway(tmp_path, given) as process, process.client(headers=bearer) as client:

            def post(path: str, status: int, body: Any, **options: Any) -> httpx.Response:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                answer = client.post(f"queues/{path}", content=content, **options)
                assert answer.status_code == status, answer.text
                return answer

            with redis.Redis(port=server.port, password=SECRET) as plain:
                poison = [b"\xff" + SECRET.encode(), b'{"job": "%b"' % SECRET.encode(), b'{"%b": 1}' % SECRET.encode()]
                plain.rpush("q", *poison * 100)
            post("q/messages", 201, DRAFT, params={"ordering_key": SECRET})
            post("q/messages", 422, DRAFT | {"meta": {"lang": SECRET}})
            post("q/messages", 400, f'{{"job": "{SECRET}", '.encode())
            post("q/messages", 400, DRAFT, params={SECRET: SECRET})
            post("q/messages:batch", 207, [DRAFT, {"data": SECRET}])
            for broken in ("dead", "lost"):
                assert post(f"{broken}/messages", 503, DRAFT).json()["code"] == "broker_unavailable"
            (message, *_) = post("q/messages:receive", 200, {"max_messages": 2, "wait_seconds": 30}).json()["messages"]
            token = message["ack_token"]
            post("q/messages:nack", 200, {"ack_tokens": [token], "error": {"message": SECRET, "exception": SECRET}})
            post("q/messages:ack", 409, {"ack_tokens": [token]})
            post("q/messages:ack", 400, {"ack_tokens": [token + SECRET]})
            post("other/messages:ack", 400, {"ack_tokens": [token]})
            server.kill()
            post("q/messages", 503, DRAFT)
            process.stop()
    text = process.log_text()
    assert SECRET not in text
    assert token not in text and token[-40:] not in text
    assert {line["broker"] for line in events(process, "broker lost")} == {"cache", "dead", "lost"}
    # Of three hundred poison bodies.
    first, *more = events(process, "poison")
    assert len(more) < 3
    assert (first["queue"], first["broker"], first["level"]) == ("q", "cache", "warning")
    assert re.fullmatch("[a-z_]+", first["code"])
