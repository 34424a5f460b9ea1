"""A gateway whose journal lands in a topic of Kafka: killed, without its broker, and searched."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.brokers.landing import landing_store, topic_source
from babelgate.errors import BrokerRejected
from babelgate.observe.journal.record import Record
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.brokers.kafka.test_topics import segment
from tests.harness.gateway import ForkedGateway
from tests.harness.journal import check_numbers, kept
from tests.harness.journal_topic import create_topic, landed_in
from tests.harness.local import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DRAFT = {"job": "urn:babel:orders:created", "data": {}}


def publish(client: httpx.Client, count: int) -> list[str]:
    answer = client.post("/queues/orders/messages:batch", json=[DRAFT] * count)
    assert answer.status_code == 201, answer.text
    return [each["id"] for each in answer.json()["results"]]


def accepted(found: list[Record]) -> list[str | None]:
    return [each.message_id for each in found if each.event == "accepted"]


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.partition(" ")[0] == name)


def story(client: httpx.Client, message_id: str) -> list[Any]:
    answer = client.get(f"/messages/{message_id}")
    assert answer.status_code == 200, answer.text
    return [each["event"] for each in answer.json()["events"]]


async def test_nothing_is_lost_by_a_kill_or_without_the_broker(tmp_path: Path) -> None:
    with kafka({"auto.create.topics.enable": "true"}) as server:
        no_topic_is_created(server, tmp_path)
        await what_lands(server, tmp_path)


def no_topic_is_created(server: KafkaServer, folder: Path) -> None:
    """Neither landing nor reading creates a missing topic, although the broker would."""
    landing = f"kafka://127.0.0.1:{server.port}/journal"
    path = segment(folder, 3)
    store = landing_store(landing, "zstd")
    for _ in range(3):
        with pytest.raises(BrokerRejected, match="the topic journal does not exist"):
            store.put(path, path.name)
        with closing(topic_source(landing, {}, "landing")) as source, pytest.raises(BrokerRejected, match="not exist"):
            source.bounds()
    path.unlink()


async def what_lands(server: KafkaServer, tmp_path: Path) -> None:
    create_topic(server.port, "journal", partitions=2)
    opened = tmp_path / "journal"
    landing = f"kafka://127.0.0.1:{server.port}/journal"
    process = ForkedGateway(tmp_path, {"journal": {"landing": landing, "segment_seconds": 0.5}})
    try:
        process.start()
        with process.client() as client:
            ids = publish(client, 200)
            await eventually(lambda: metric(client, "babelgate_journal_segments_total") >= 1)
            # What has landed is found where it landed.
            await eventually(lambda: kept_segments(opened) == [])
            assert story(client, ids[0]) == ["accepted"]
            server.kill()
            ids += publish(client, 200)
            await eventually(lambda: list(opened.glob("*.ndjson")))
            await eventually(lambda: metric(client, "babelgate_journal_errors_total") >= 1)
            assert story(client, ids[-1]) == ["accepted"], "it waits, and is found here"
        process.kill()
        assert kept_segments(opened) != []
        server.start()
        process.start()
        with process.client() as client:
            ids += publish(client, 200)
            # The broker is back when its partitions have leaders: the stop tries each segment only once more.
            await eventually(lambda: kept_segments(opened) == [])
        assert process.stop() == 0
        assert kept(opened) == []
    finally:
        process.close()
    found = landed_in(server.port, "journal")
    check_numbers(found)
    assert sorted(map(str, accepted(found))) == sorted(ids)
    assert len({each.epoch for each in found}) == 2
    assert "Traceback" not in process.log_text()


def kept_segments(opened: Path) -> list[Path]:
    return [each for each in kept(opened) if ".ndjson" in each.name]
