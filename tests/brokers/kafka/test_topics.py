"""A topic as the landing place of the journal, and as a source: what each message is, and what can be read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.kafka.topics import TopicReader, TopicStore
from babelgate.brokers.landing import MessagesGone, landing_store, topic_source
from babelgate.errors import BrokerRejected, BrokerUnavailable, ConfigError
from babelgate.observe.journal.frames import Compression
from babelgate.observe.journal.record import Record, encode, new_epoch
from tests.brokers.kafka.harness import delete_before, limit_bytes, write
from tests.brokers.kafka.server import KafkaServer
from tests.harness.journal import lines, numbers
from tests.harness.journal_topic import create_topic, frames, landed_in, plain
from tests.harness.local import free_port

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(server: KafkaServer, queue: str) -> str:
    create_topic(server.port, queue, partitions=3)
    return queue


def url_of(server: KafkaServer, topic: str) -> str:
    return f"kafka://127.0.0.1:{server.port}/{topic}"


def segment(directory: Path, count: int, job: str = "urn:babel:test:made", node: str = "a") -> Path:
    """A closed segment of a process of its own."""
    epoch = new_epoch(1_700_000_000_000, os.urandom(4))
    path = directory / f"{node}-{epoch}-000001.ndjson"
    nothing: tuple[Any, ...] = (None,) * 8
    records = (
        Record(1, node, epoch, seq, "accepted", 1_700_000_000_000 + seq, "orders", "main", job, *nothing)
        for seq in range(1, count + 1)
    )
    path.write_bytes(b"".join(encode(each) + b"\n" for each in records))
    return path


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_a_segment_lands_frame_by_frame(
    server: KafkaServer, topic: str, tmp_path: Path, compression: Compression
) -> None:
    path = segment(tmp_path, 3000)
    text = path.read_bytes()
    store = landing_store(url_of(server, topic), compression)
    landed, sizes = store.put(path, f"date=2023-11-14/hour=22/{path.name}")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    found = frames(server.port, topic)
    assert len(found) == len(sizes) > 1
    ending = {"zstd": "zst", "gzip": "gz"}[compression]
    assert [key for key, _ in found] == [f"{path.name}.{ending}/{number}" for number in range(len(found))]
    assert numbers([record for _, records in found for record in records]) == list(range(1, 3001))
    # What the index remembers leads to the same lines.
    assert landed.endswith(f"/{path.name}.{ending}")
    assert b"".join(plain(store.read(landed, number, number + 1)) for number in range(len(sizes))) == text
    assert b"".join(map(plain, store.pieces(landed))) == text
    assert [plain for plain, _ in sizes] == [len(encode_all(records)) for _, records in found]
    # In a topic that was created again, another segment is there.
    with pytest.raises(FileNotFoundError):
        store.read(landed.replace("-000001.", "-000002."), 0, 1)


def encode_all(records: list[Record]) -> bytes:
    return b"".join(encode(each) + b"\n" for each in records)


def test_frames_fit_into_the_messages_of_the_topic(server: KafkaServer, topic: str, tmp_path: Path) -> None:
    limit_bytes(server.port, topic, 20_000)
    path = segment(tmp_path, 40, job=os.urandom(2000).hex())
    path.write_bytes(
        b"".join(
            line.replace(b'"seq":', b'"x":"%s","seq":' % os.urandom(2000).hex().encode()) + b"\n"
            for line in path.read_bytes().splitlines()
        )
    )
    landing_store(url_of(server, topic), "zstd").put(path, path.name)
    assert len(frames(server.port, topic)) > 3
    assert numbers(landed_in(server.port, topic)) == list(range(1, 41))


def test_a_record_that_is_too_large_for_the_topic_waits_until_the_topic_takes_it(
    server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    limit_bytes(server.port, topic, 20_000)
    path = segment(tmp_path, 3, job=os.urandom(30_000).hex())
    store = landing_store(url_of(server, topic), "zstd")
    with pytest.raises(BrokerRejected, match=rf"max.message.bytes of {topic} must be \d+"):
        store.put(path, path.name)
    assert frames(server.port, topic) == [], "nothing of it was sent"
    assert path.exists()
    limit_bytes(server.port, topic, 100_000)
    store.put(path, path.name)
    assert numbers(landed_in(server.port, topic)) == [1, 2, 3]


def test_a_topic_that_is_missing_or_away(server: KafkaServer, queue: str, tmp_path: Path, monkeypatch: Any) -> None:
    path = segment(tmp_path, 3)
    store = landing_store(url_of(server, queue), "zstd")
    with pytest.raises(BrokerRejected, match=f"the topic {queue} does not exist"):
        store.put(path, path.name)
    monkeypatch.setattr("babelgate.brokers.kafka.topics.SECONDS", 10.0)
    with pytest.raises(BrokerUnavailable, match="refused"):
        landing_store(f"kafka://127.0.0.1:{free_port()}/{queue}", "zstd").put(path, path.name)
    create_topic(server.port, queue)
    monkeypatch.undo()
    store.put(path, path.name)
    assert numbers(landed_in(server.port, queue)) == [1, 2, 3]


@pytest.fixture
def reader(server: KafkaServer, topic: str) -> Iterator[TopicReader]:
    with closing(topic_source(url_of(server, topic), {}, "landing")) as made:
        assert isinstance(made, TopicReader)
        yield made


def test_a_reader_goes_on_where_it_was(server: KafkaServer, topic: str, reader: TopicReader, tmp_path: Path) -> None:
    store = landing_store(url_of(server, topic), "zstd")
    for node in "abcdef":
        path = segment(tmp_path, 2000, node=node)
        store.put(path, path.name)
    bounds = reader.bounds()
    assert bounds.firsts == [0, 0, 0] and sum(bounds.ends) == len(frames(server.port, topic))
    after, found = bounds.firsts, []
    while after != bounds.ends:
        some, after = reader.read(after, bounds.ends, 3, 1 << 20)
        assert 0 < len(some) <= 3
        found += some
    assert len({each[:2] for each in found}) == len(found) == sum(bounds.ends)
    records = [record for each in found for record in lines(plain(each.value), topic)]
    assert sorted(numbers(records)) == sorted(list(range(1, 2001)) * 6)
    # What comes after the asked end is not passed over, also where the end of the partition is seen meanwhile.
    asked = [min(end, 1) for end in bounds.ends]
    some, after = reader.read([0, 0, 0], asked, 100, 1 << 20)
    assert (len(some), after) == (sum(asked), asked)
    # At least one message, however few bytes may be read.
    assert len(reader.read([0, 0, 0], bounds.ends, 100, 1)[0]) == 1
    assert reader.read(bounds.ends, bounds.ends, 100, 1) == ([], bounds.ends)


def test_messages_that_are_gone_are_not_passed_over(server: KafkaServer, topic: str, reader: TopicReader) -> None:
    write(server.port, topic, *({"value": b"x", "partition": 0} for _ in range(5)))
    delete_before(server.port, topic, 0, 3)
    bounds = reader.bounds()
    assert (bounds.firsts[0], bounds.ends[0]) == (3, 5)
    with pytest.raises(MessagesGone):
        reader.read([1, 0, 0], bounds.ends, 10, 100)
    assert [each.offset for each in reader.read(bounds.firsts, bounds.ends, 10, 100)[0]] == [3, 4]
    store = landing_store(url_of(server, topic), "zstd")
    with pytest.raises(FileNotFoundError):
        store.read("partition=0/offsets=1-4/a-018bcfe568001a2b3c4d-000001.ndjson.zst", 0, 1)
    with pytest.raises(FileNotFoundError):
        store.read("date=2023-11-14/hour=22/a-018bcfe568001a2b3c4d-000001.ndjson.zst", 0, 1)


@pytest.mark.parametrize(
    ("landing", "words"),
    [
        ("kafka://host", "/topic is expected"),
        ("kafka://host/", "/topic is expected"),
        ("kafka://host/a/b", "/topic is expected"),
        ("kafka://host/a%20b", "/topic is expected"),
        ("kafka:///topic", "/topic is expected"),
        ("kafka://host:x/topic", "the port is not a number"),
        ("kafka://host/topic?nonsense=1", "nonsense: "),
        ("kafka://host/topic?group=x", "group: "),
        ("kafka://joe:secret@host/topic", "username: sasl_mechanism is expected"),
        ("kafka+ssl://joe:secret@host/topic?sasl_mechanism=NONSENSE", "sasl_mechanism: "),
    ],
)
def test_what_can_never_work_is_refused_in_words(landing: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        landing_store(landing, "zstd")
    assert refused.value.key == "journal.landing"
    assert "secret" not in str(refused.value)


def test_credentials_are_those_of_the_binding() -> None:
    store = landing_store("kafka+ssl://joe:secret@one,two:9093/topic?sasl_mechanism=SCRAM-SHA-512", "zstd")
    assert isinstance(store, TopicStore)
    given = store._cluster.settings
    assert given["bootstrap.servers"] == "one:9092,two:9093"
    assert (given["security.protocol"], given["sasl.username"], given["sasl.password"]) == ("SASL_SSL", "joe", "secret")
