"""kill -9 under load: what the journal then knows, held against what the clients were told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from babelgate.clock import now_ms
from babelgate.observe.journal.record import Record
from babelgate.observe.journal.search import JournalSearch, Query
from babelgate.observe.journal.stores import store
from tests.harness.gateway import ForkedGateway, GatewayProcess
from tests.harness.journal import kept, read
from tests.harness.local import eventually
from tests.harness.traffic import Client
from tests.unit.observe.test_journal_search import all_of

pytestmark = pytest.mark.slow

PATH = "/queues/orders/messages"
SURE_SECONDS = 1.0
"""Documented are 0.2 s; a machine that runs other tests may take longer to get round to writing."""


class Told:
    """What clients were told, and when, by the monotonic clock: message ids by event."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], float] = {}

    def add(self, event: str, ids: list[str]) -> None:
        now = time.monotonic()
        self.events |= {(event, each): now for each in ids}


async def publish(client: Client, told: Told) -> None:
    while True:
        status, answer = await client.post(PATH, b'{"job":"urn:babel:test:made","data":{"secret":"do not tell"}}')
        if status == 201:
            told.add("accepted", [answer["id"]])


async def consume(client: Client, told: Told) -> None:
    while True:
        _, answer = await client.post(f"{PATH}:receive", b'{"max_messages":20,"wait_seconds":0.2}')
        messages = answer["messages"]
        told.add("delivered", [each["envelope"]["meta"]["id"] for each in messages])
        for message in messages:
            status, _ = await client.post(f"{PATH}:ack", b'{"ack_tokens":["%s"]}' % message["ack_token"].encode())
            if status == 200:
                told.add("acked", [message["envelope"]["meta"]["id"]])


async def load(url: str, told: Told, seconds: float, end: object, when: Callable[[], object] = lambda: True) -> float:
    """Clients at work for ``seconds``, until ``when()`` holds and while ``end()`` runs; when that began."""
    clients = [Client(url) for _ in range(16)]
    work = [asyncio.create_task((consume if n % 4 == 0 else publish)(each, told)) for n, each in enumerate(clients)]
    await asyncio.sleep(seconds)
    await eventually(when)
    began = time.monotonic()
    await asyncio.to_thread(end)  # type: ignore[arg-type]
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    for client in clients:
        client.close()
    return began


def journaled(landing: Path, opened: Path) -> list[Record]:
    """All records, once nothing waits to land any more."""
    assert kept(opened) == []
    return read(landing)


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    config = {"workers": request.param, "journal": {"landing": str(tmp_path / "landing"), "segment_seconds": 0.7}}
    process = ForkedGateway(tmp_path, config)
    yield process.start()
    process.close()


async def test_what_a_killed_gateway_leaves(
    process: GatewayProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing, opened = tmp_path / "landing", tmp_path / "journal"
    before = Told()
    seen: set[Path] = set()

    def a_segment_was_just_opened() -> bool:
        began, new = bool(seen), set(opened.glob("*.open")) - seen
        seen.update(new)
        return began and bool(new)

    killed_at = await load(process.url, before, 2, process.kill, a_segment_was_just_opened)
    assert len(before.events) > 100
    # What landed by then is complete, and so is what was closed; only the open ones may end anywhere.
    read(landing)
    assert len(list(opened.glob("*.open"))) >= 1

    process.start()
    after = Told()
    await load(process.url, after, 1, process.stop)
    found = journaled(landing, opened)
    search = JournalSearch(opened, store(str(landing), "zstd"), now_ms)
    searched = await all_of(search, Query(), 1000)
    assert sorted(searched, key=lambda each: (each.node, each.epoch, each.seq)) == found, "the index is complete"
    search.close()

    known = {(record.event, record.message_id) for record in found}
    lost = [killed_at - when for event, when in before.events.items() if event not in known]
    with capsys.disabled():
        print(
            f"\n{len(before.events)} events were told before the kill, {len(lost)} of them are not in the journal; "
            f"the first of these happened {max(lost, default=0) * 1000:.0f} ms before it"
        )
    assert max(lost, default=0) < SURE_SECONDS
    assert [event for event in after.events if event not in known] == [], "SIGTERM loses nothing"
    assert Counter(record.event for record in found if record.event == "gap") == {}
    assert len({record.epoch for record in found}) >= 2
    text = b"".join(path.read_bytes() for path in opened.parent.rglob("*.log"))
    assert b"Traceback" not in text
