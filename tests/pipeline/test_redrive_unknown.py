"""Keys beside the queue: unknown outcomes are reported, and published again only with --unknown publish."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness.gateway import gateway
from tests.harness.proxy import Proxy
from tests.pipeline.histories import START, land, row
from tests.pipeline.sending import Sends, body, drained, write

COUNT = 20


@contextmanager
def in_between(host: str, port: int) -> Iterator[Proxy]:
    """A proxy that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = Proxy(host, port)
    try:
        asyncio.run_coroutine_threadsafe(running.start(), loop).result()
        yield running
        asyncio.run_coroutine_threadsafe(running.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.rabbitmq
def test_what_nobody_knows(spark, rabbit, tmp_path, queue):
    sends = Sends(spark, tmp_path)
    write(tmp_path / "in", *(body(number, queue) for number in range(COUNT)))
    given = "backfill", tmp_path / "in", "--from", "bodies", "--parallelism", 1
    each = {f"id-{number}": 1 for number in range(COUNT)}
    with in_between("127.0.0.1", rabbit.port) as between:
        brokers = {
            "rabbit": rabbit.url().replace(f":{rabbit.port}", f":{between.port}"),
            "keys": f"sqlite:///{tmp_path}/keys.db",
        }
        config = {"brokers": brokers, "default": {"broker": "rabbit"}, "idempotency": {"store": "keys"}}
        with gateway(tmp_path, config) as process:
            sends.url = process.url
            with process.client() as client:
                url = f"/queues/{queue}/messages"
                assert client.post(url, json={"job": "urn:a", "data": {}}).status_code == 201
            assert len(drained(process, queue)) == 1
            between.drop_replies = True
            told = sends(*given, code=4)
            between.drop_replies = False
            assert told["counts"]["unknown"] == COUNT
            assert told["codes"] == {"outcome_unknown": COUNT}
            assert f"{COUNT} messages may or may not have been published" in sends.output
            first = {line["message_id"]: line["idempotency_key"] for line in sends.ledger()}

            sends(*given, code=4)
            sends(*given, "--unknown", "skip")
            assert drained(process, queue) == each, "the broker had them, and nothing was sent again"
            told = sends(*given, "--unknown", "publish")
            assert (told["counts"]["accepted"], told["counts"]["unknown"]) == (COUNT, 0)
            assert drained(process, queue) == each, "once more, because it was said so"
            assert not set(first.values()) & {line["idempotency_key"] for line in sends.ledger()}


def test_an_ordering_key_that_no_gateway_takes_is_refused_before_anything_is_sent(spark, tmp_path):
    sends = Sends(spark, tmp_path)
    keys = "k" * 1024, "\U0001f600" * 1025, None
    rows = [
        row("accepted", START + number, 0, message_id=f"id-{number}", envelope=body(number), ordering_key=key)
        for number, key in enumerate(keys)
    ]
    land(tmp_path / "landing", rows, "a")
    sends("ingest", tmp_path / "landing")
    for dry in ("--dry-run",), ():
        sends("replay", *dry, code=2)
        assert "1 of the selected messages, such as id-1, have an ordering key of more than 1,024" in sends.output
    assert "No gateway answers" not in sends.output
    left_out, alone = re.findall(r'--select "([^"]+)"', " ".join(sends.output.split()))
    sends("replay", "--dry-run", "--select", left_out)
    assert "2 messages would be sent" in sends.shown
    sends("replay", "--dry-run", "--select", alone, "--without", "ordering_key")
    assert "1 messages would be sent" in sends.shown and "id-1" in sends.shown
