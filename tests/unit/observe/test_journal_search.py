"""The search of a journal: what it finds where, in which order, and in how many steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import s3fs

from babelgate.clock import now_ms
from babelgate.observe.events import Event, EventKind, Facts
from babelgate.observe.journal import scan
from babelgate.observe.journal.index import Index
from babelgate.observe.journal.indexing import complete
from babelgate.observe.journal.record import Record
from babelgate.observe.journal.search import InvalidCursor, JournalSearch, Page, Query
from babelgate.observe.journal.stores import store
from babelgate.observe.journal.writer import Journal, Options
from tests.harness.journal import landed
from tests.harness.local import eventually
from tests.harness.s3 import s3_server

Make = Callable[..., Journal]
START = 1_700_000_000_000
LONG_SECONDS = 60.0
"""A close lands what there is, which a busy machine may not do in the time of a gateway's end."""


class Clock:
    """Advances by a millisecond at each look."""

    def __init__(self) -> None:
        self._ticks = count(START)

    def __call__(self) -> int:
        return next(self._ticks)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Journal] = []
    clock = Clock()

    def make(**options: Any) -> Journal:
        defaults: dict[str, Any] = {"landing": str(tmp_path / "landing"), "open_directory": tmp_path / "open"}
        made.append(Journal(Options(**(defaults | {"node": "a"} | options)), clock))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        await each.close()


def event(kind: EventKind, *ids: str, queue: str = "orders", job: str = "urn:babel:orders:made") -> Event:
    """An event of messages, each in the trace ``trace-ID``."""
    facts = [Facts(0, each, f"trace-{each}", job, START, "go", 120) for each in ids]
    return Event(kind, queue, "main", len(ids), messages=tuple(facts))


async def written(*journals: Journal) -> None:
    for each in journals:
        await eventually(lambda each=each: each.stats().buffer_bytes == 0)  # type: ignore[misc]


async def all_of(search: JournalSearch, query: Query, limit: int = 100) -> list[Record]:
    """The records of all pages."""
    found: list[Record] = []
    page: Page | None = None
    while page is None or page.next_cursor is not None:
        page = await search.find(query, limit, None if page is None else page.next_cursor)
        assert len(page.records) <= limit
        found += page.records
    return found


def events_of(records: list[Record]) -> list[tuple[str, str | None]]:
    return [(record.event, record.message_id) for record in records]


async def test_an_open_segment_is_searched(make: Make) -> None:
    journal = make()
    journal.observe(event("accepted", "1", "2"))
    journal.observe(event("delivered", "2"))
    await written(journal)
    page = await journal.search.find(Query(message_id="2"), 10)
    assert events_of(page.records) == [("accepted", "2"), ("delivered", "2")]
    assert page.next_cursor is None
    assert page.reaches_back_to == START + 1


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
async def test_landed_segments_are_searched_together_with_the_open_one(
    make: Make, tmp_path: Path, compression: str
) -> None:
    journal = make(segment_seconds=0.2, compression=compression)
    for number, kind in enumerate(("accepted", "delivered", "acked"), 1):
        journal.observe(event(kind, "1", "2"))  # type: ignore[arg-type]
        await eventually(lambda number=number: journal.stats().segments == number)  # type: ignore[misc]
    assert len(landed(tmp_path / "landing")) == 3
    page = await journal.search.find(Query(message_id="1"), 10)
    assert events_of(page.records) == [("accepted", "1"), ("delivered", "1"), ("acked", "1")]
    page = await journal.search.find(Query(trace_id="trace-2"), 10)
    assert events_of(page.records) == [("accepted", "2"), ("delivered", "2"), ("acked", "2")]
    page = await journal.search.find(Query(queue="orders", event="delivered"), 10)
    assert events_of(page.records) == [("delivered", "2"), ("delivered", "1")]
    assert (await journal.search.find(Query(message_id="3"), 10)).records == []


async def test_many_frames_of_a_segment(make: Make, tmp_path: Path) -> None:
    """Most frames of the open segment are searched by their keys; landed ones are read alone."""
    journal = make()
    for first in range(0, 9_000, 500):
        ids = [str(number) for number in range(first, first + 500)]
        journal.observe(event("accepted", *ids, queue=f"queue-{first}"))
    await written(journal)
    assert await all_of(journal.search, Query(message_id="17")) == await all_of(
        journal.search, Query(trace_id="trace-17")
    )
    found = await all_of(journal.search, Query(queue="queue-4000"))
    assert events_of(found) == [("accepted", str(number)) for number in range(4499, 3999, -1)]
    await journal.close(LONG_SECONDS)
    (path,) = landed(tmp_path / "landing")
    assert path.stat().st_size > 0
    other = make()
    assert await all_of(other.search, Query(queue="queue-4000")) == found
    assert events_of(await all_of(other.search, Query(message_id="8999"))) == [("accepted", "8999")]
    everything = await all_of(other.search, Query(), 1000)
    assert [record.seq for record in everything] == list(range(9_000, 0, -1))


async def test_journals_that_share_a_directory_are_one(make: Make) -> None:
    first, second = make(node="a"), make(node="b")
    first.observe(event("accepted", "1"))
    second.observe(event("delivered", "1"))
    first.observe(event("acked", "1"))
    await written(first, second)
    expected = [("accepted", "1"), ("delivered", "1"), ("acked", "1")]
    for each in (first, second):
        assert events_of((await each.search.find(Query(message_id="1"), 10)).records) == expected
    await first.close()
    found = (await second.search.find(Query(message_id="1"), 10)).records
    assert events_of(found) == expected
    assert [record.node for record in found] == ["a", "b", "a"]


async def test_pages_have_every_record_once(make: Make) -> None:
    journals = [make(node=node, segment_seconds=0.3) for node in ("a", "b", "c")]
    for number in range(30):
        for each in journals:
            each.observe(event("accepted", str(number)))
            each.observe(event("dead_lettered", str(number), queue="dead"))
        if number % 10 == 9:
            await asyncio.sleep(0.3)
    await written(*journals)
    search = journals[0].search
    for query, expected in (
        (Query(), 180),
        (Query(queue="orders"), 90),
        (Query(event="dead_lettered"), 90),
        (Query(queue="orders", event="dead_lettered"), 0),
        (Query(message_id="7"), 6),
        (Query(job="urn:babel:orders:made", since=START + 30, until=START + 60), None),
    ):
        found = await all_of(search, query, 1000)
        assert len(found) == len({(each.node, each.epoch, each.seq) for each in found})
        assert expected in (None, len(found))
        ordered = sorted(found, key=lambda each: (each.at, each.node, each.epoch, each.seq), reverse=query.newest_first)
        assert found == ordered
        for limit in (1, 7):
            assert await all_of(search, query, limit) == found
    window = await all_of(search, Query(since=START + 30, until=START + 60))
    assert window and all(START + 30 <= each.at < START + 60 for each in window)


async def test_a_call_reads_a_bounded_number_of_frames(make: Make) -> None:
    """Two values that are in the same frames, and never in the same record."""
    journal = make(segment_seconds=0.05)
    for number in range(1, scan.MAX_READS + 20):
        journal.observe(event("accepted", "1", queue="a"))
        journal.observe(event("acked", "2", queue="b"))
        await eventually(lambda number=number: journal.stats().segments >= number)  # type: ignore[misc]
    page = await journal.search.find(Query(queue="a", event="acked"), 10)
    assert page.records == [] and page.next_cursor is not None
    assert await all_of(journal.search, Query(queue="a", event="acked")) == []
    assert len(await all_of(journal.search, Query(queue="a", event="accepted"), 10)) == scan.MAX_READS + 19


async def test_records_come_without_bodies(make: Make) -> None:
    journal = make(bodies=True)
    facts = Facts(0, "1", "t", "urn:babel:orders:made", START, "go", 120)
    journal.observe(Event("accepted", "orders", "main", messages=(facts,), bodies=(b'{"message_id":"2"}',)))
    await written(journal)
    (record,) = (await journal.search.find(Query(message_id="1"), 10)).records
    assert record.message_id == "1"
    assert not isinstance(record.envelope, bytes | str) and "envelope" not in repr(record.envelope)
    assert (await journal.search.find(Query(message_id="2"), 10)).records == []


@pytest.mark.parametrize("cursor", ["", "x", "bm90", "WzEsMl0", "é"])
async def test_a_made_up_cursor_is_refused(make: Make, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        await make().search.find(Query(), 10, cursor)


async def test_values_that_json_escapes(make: Make) -> None:
    journal = make()
    for text in ('a"b\\c', "ü\n\u2028", "\ud800"):
        journal.observe(event("accepted", text))
    await written(journal)
    for text in ('a"b\\c', "ü\n\u2028"):
        assert events_of((await journal.search.find(Query(message_id=text), 10)).records) == [("accepted", text)]
    assert events_of((await journal.search.find(Query(message_id="\ud800"), 10)).records) == [("accepted", "?")]


async def test_members_of_meta_are_found_beside_records_without_any(make: Make) -> None:
    before = make()
    before.observe(event("accepted", *(f"old-{n}" for n in range(300))))
    await before.close()
    journal = make(node="b", meta=("ext.tenant", "ext.order"))
    for n in range(900):
        body = b'{"meta":{"ext":{"tenant":"t-%d","order":%d}}}' % (n % 300, n)
        made = Event("accepted", f"q-{n % 2}", "main", messages=(Facts(message_id=f"id-{n}"),), bodies=(body,))
        journal.observe(made)
        journal.observe(event("acked", f"id-{n}"))
    await written(journal)
    tenant = await all_of(journal.search, Query(meta="ext.tenant=t-7"))
    assert [each.message_id for each in tenant] == ["id-607", "id-307", "id-7"]
    assert tenant[0].meta == {"ext.tenant": "t-7", "ext.order": "607"}
    await journal.close()
    later = make().search
    assert await all_of(later, Query(meta="ext.tenant=t-7")) == tenant
    assert await all_of(later, Query(meta="ext.tenant=t-7", queue="q-1", since=tenant[0].at)) == tenant[:1]
    assert await all_of(later, Query(meta="ext.order=607")) == tenant[:1]
    assert await all_of(later, Query(meta="ext.order=t-7")) == []
    assert events_of(await all_of(later, Query(message_id="old-9"))) == [("accepted", "old-9")]


async def test_other_stores_of_fsspec(make: Make) -> None:
    journal = make(landing="memory://journal-search/landing", segment_seconds=0.1)
    journal.observe(event("accepted", "1"))
    await eventually(lambda: journal.stats().segments == 1)
    assert events_of((await journal.search.find(Query(message_id="1"), 10)).records) == [("accepted", "1")]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
        files.mkdir("journals")
        yield files


async def test_s3(make: Make, bucket: s3fs.S3FileSystem, tmp_path: Path) -> None:
    journal = make(landing="s3://journals/prod", segment_seconds=0.1)
    journal.observe(event("accepted", "1"))
    await eventually(lambda: journal.stats().segments == 1)
    page = await journal.search.find(Query(message_id="1"), 10)
    assert events_of(page.records) == [("accepted", "1")]
    assert page.reaches_back_to == START + 1
    other = tmp_path / "other"
    place = store("s3://journals/prod", "zstd")
    index = Index(other / "index", now_ms)
    index.prepare()
    done = complete(index, place, lambda progress: None, lambda seconds: True)
    index.close()
    assert done is not None and (done.segments, done.added, done.unreadable) == (1, 1, [])
    search = JournalSearch(other, place, now_ms)
    rebuilt = await search.find(Query(trace_id="trace-1"), 10)
    search.close()
    assert rebuilt.records == page.records and rebuilt.reaches_back_to == page.records[0].at
    (path,) = bucket.find("journals")
    bucket.rm(path)
    page = await journal.search.find(Query(message_id="1"), 10)
    assert page.records == [] and page.reaches_back_to is not None and page.reaches_back_to > START + 1
