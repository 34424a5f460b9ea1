"""An NDJSON upload that is much larger than its memory limit."""

from __future__ import annotations

import json
import threading

import httpx
import psutil

from tests.harness.gateway import gateway

UPLOAD_BYTES = 100 * 1024 * 1024
ALLOWED_BYTES = 24 * 1024 * 1024
"""Far below the upload, and above what the allocator and SQLite's page cache keep once they are warm."""
LINE_BYTES = 100_000


def line(number: int) -> bytes:
    text = json.dumps({"job": "urn:babel:test:made", "data": {"n": number, "x": ""}})
    return text.replace('""', '"' + "x" * (LINE_BYTES - len(text) - 1) + '"').encode() + b"\n"


def upload(client: httpx.Client, count: int) -> httpx.Response:
    lines = (line(number) for number in range(count))
    return client.post("/queues/big/messages:batch", content=lines, headers={"content-type": "application/x-ndjson"})


def test_100_megabytes_do_not_grow_the_process(tmp_path):
    count = UPLOAD_BYTES // LINE_BYTES
    with gateway(tmp_path) as server, server.client() as client:
        assert upload(client, 50).json()["accepted"] == 50
        process = psutil.Process(server.pid)
        before = highest = process.memory_info().rss
        done = threading.Event()

        def watch():
            nonlocal highest
            while not done.wait(0.01):
                highest = max(highest, process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answer = upload(client, count)
        finally:
            done.set()
            watcher.join()
        assert (answer.status_code, answer.json()["accepted"]) == (201, count)
        assert highest - before < ALLOWED_BYTES, f"grew by {(highest - before) >> 20} MiB"


def test_a_client_that_is_still_writing_sees_the_413(tmp_path):
    size = 20 * 1024 * 1024
    with gateway(tmp_path) as server, server.client() as client:
        pieces = (b" " * 65_536 for _ in range(size // 65_536))
        answer = client.post("/queues/q/messages", content=pieces, headers={"content-length": str(size)})
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert client.get("/livez").status_code == 200
