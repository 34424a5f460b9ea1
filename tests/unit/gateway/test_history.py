"""What happened to a message, from the journals of several gateways, and where it is then."""

from __future__ import annotations

import random
from typing import Any

import pytest

from babelgate.errors import Forbidden, InvalidParameter, Overloaded
from babelgate.gateway import history as under_test
from babelgate.gateway import merging
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.history import (
    MAX_SEARCHES,
    History,
    JournalDisabled,
    Journaled,
    MessageNotFound,
    TraceNotFound,
)
from babelgate.gateway.standing import in_order, standing
from babelgate.observe.journal.record import JournalEvent, Record
from babelgate.observe.journal.search import Query
from tests.harness.history import AT, Directly, MemorySearch, history, place, record

LISTENER = Caller("listener", {"mine.*": frozenset({Right.LISTEN})})


def way(*steps: tuple[JournalEvent, dict[str, Any]] | JournalEvent) -> list[Record]:
    """Records of these events, one a second."""
    several = [(step, {}) if isinstance(step, str) else step for step in steps]
    return [record(event, 1000 * number, **members) for number, (event, members) in enumerate(several)]


WAYS: list[tuple[list[Record], str, str]] = [
    (way("accepted"), "accepted", "It was accepted to q and not delivered since."),
    (
        way("accepted", ("delivered", {"lease_seconds": 60.0})),
        "delivered",
        "A consumer of q has it, with a lease until 2026-09-21 14:14:21 UTC or, if it was extended, later.",
    ),
    (way("accepted", "delivered"), "delivered", "A consumer of q has it."),
    (way("accepted", "delivered", "acked"), "acked", "A consumer of q has finished it."),
    (way("accepted", "acked", "delivered"), "acked", "A consumer of q has finished it."),
    (way("accepted", "delivered", "nacked"), "waiting", "It waits in q again: its consumer asked for that."),
    (
        way("accepted", "delivered", "lease_expired"),
        "waiting",
        "It waits in q again: the lease of its consumer expired.",
    ),
    (way("accepted", ("dropped", {"outcome": "expired"})), "dropped", "It had expired, and q drops expired messages."),
    (way("accepted", "delivered", "nacked", "delivered"), "delivered", "A consumer of q has it."),
    (
        way("accepted", "delivered", "nacked", ("dead_lettered", {"outcome": "failed"})),
        "dead_lettered",
        "It is in the dead letters of q: reason failed.",
    ),
    (
        way("accepted", "delivered", ("dead_lettered", {"outcome": "failed"}), "rejected"),
        "dead_lettered",
        "It is in the dead letters of q: its consumer rejected it, reason failed.",
    ),
    (
        way("accepted", "delivered", "rejected"),
        "dead_lettered",
        "It is in the dead letters of q: its consumer rejected it.",
    ),
    (
        way(("poison", {"outcome": "invalid_json"})),
        "dead_lettered",
        "It is in the dead letters of q: reason invalid_json.",
    ),
    (
        way("accepted", "delivered", "rejected", ("redriven", {"to_queue": "r"})),
        "redriven",
        "It was sent back from the dead letters of q to r and not delivered since.",
    ),
    (
        way("accepted", "delivered", "rejected", ("redriven", {"to_queue": "r"}), ("delivered", {"queue": "r"})),
        "delivered",
        "A consumer of r has it.",
    ),
    (way("accepted", "delivered", "acked", "accepted"), "accepted", "It was accepted to q and not delivered since."),
    (way("delivered"), "delivered", "A consumer of q has it."),
    (way("nacked"), "waiting", "It waits in q again: its consumer asked for that."),
]


@pytest.mark.parametrize(("records", "status", "detail"), WAYS)
def test_where_a_message_is(records: list[Record], status: str, detail: str) -> None:
    found = standing(in_order(records))
    assert (found.status, found.detail) == (status, detail)
    assert found.queue == ("r" if "to r" in detail or "of r" in detail else "q")
    assert found.broker == (None if status == "redriven" else "local")


def test_a_cause_comes_before_its_consequence() -> None:
    told = [record("dead_lettered", 1), record("rejected", 1, seq=9), record("redriven", 5)]
    assert [each.event for each in in_order(told)] == ["rejected", "dead_lettered", "redriven"]
    other = [record("dead_lettered", 1), record("rejected", 1, seq=9, epoch="f" * 20)]
    assert in_order(other) == other, "two processes"


@pytest.mark.parametrize("looks", [1, 3, 1000], ids=lambda looks: f"{looks} a call")
@pytest.mark.parametrize("query", [Query(trace_id="t"), Query(job="j")], ids=["oldest first", "newest first"])
async def test_pages_of_several_gateways_are_one_list(query: Query, looks: int) -> None:
    """Each record once, in order, whatever each gateway finds in a call; also many of one millisecond."""
    chance = random.Random(1)
    journals = [
        MemorySearch(
            [
                record(at=chance.choice([5, 5, 7, chance.randrange(50)]), node=f"gw-{n}", seq=seq, job="j")
                for seq in range(1, 40)
            ]
            + [record(at=n, node=f"gw-{n}", seq=100, job="other", trace_id="other")],
            looks,
        )
        for n in range(3)
    ]
    first, *others = [history(each, node=f"gw-{n}") for n, each in enumerate(journals)]
    first = history(journals[0], *others, node="gw-0")
    expected = [each for journal in journals for each in journal.records if each.job == "j"]
    expected.sort(key=place, reverse=query.job is not None)
    for limit in (1, 7, 1000):
        found: list[Record] = []
        cursor = None
        while True:
            if query.job is not None:
                page = await first.events(ANYONE, query, limit, cursor)
            else:
                _, page = await first.trace(ANYONE, "t", limit, cursor)
            assert len(page.events) <= limit
            found += page.events
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == expected


async def test_another_gateway_goes_on_with_the_cursor() -> None:
    """A load balancer sends the next request to any of them."""
    journals = [MemorySearch(record(at=n, node=node) for n in range(10)) for node in ("a", "b")]
    alone = [history(each, node=node) for each, node in zip(journals, ("a", "b"), strict=True)]
    one, two = history(journals[0], alone[1], node="a"), history(journals[1], alone[0], node="b")
    page = await one.events(ANYONE, Query(), 11)
    rest = await two.events(ANYONE, Query(), 11, page.next_cursor)
    assert [each.at - AT for each in (*page.events, *rest.events)] == [n for n in range(9, -1, -1) for _ in "ab"]
    assert rest.next_cursor is None


async def test_a_record_that_two_have_is_given_once() -> None:
    shared = [record(at=n) for n in range(5)]
    other = history(MemorySearch(shared), node="b")
    message, _ = await history(MemorySearch(shared), other, node="a").message(ANYONE, "m")
    assert message.events == shared


async def test_files_that_two_reach_are_searched_once() -> None:
    theirs = MemorySearch([record()])
    worker = history(theirs, node="b", files="both")
    _, page = await history(MemorySearch([record()]), worker, node="a", files="both").message(ANYONE, "m")
    assert theirs.calls == []
    assert [(each.node, each.since) for each in page.searched.gateways] == [("a", AT), ("b", AT)]


async def test_an_answer_says_what_was_searched() -> None:
    """The whole reaches back only as far as the latest of them does."""
    late, empty = history(MemorySearch([record(at=50)]), node="b"), history(MemorySearch(), node="c")
    without = History()
    found = history(MemorySearch([record()]), late, empty, without, node="a", silent=["10.0.0.9:7180"])
    _, page = await found.message(ANYONE, "m")
    searched = page.searched
    assert [(each.node, each.since) for each in searched.gateways] == [("a", AT), ("b", AT + 50), ("c", None)]
    assert (searched.since, searched.silent) == (AT + 50, ["10.0.0.9:7180"])


async def test_what_is_not_found_says_where_to_look() -> None:
    found = history(MemorySearch([record()]), history(MemorySearch(), node="b"), silent=["10.0.0.9:7180"])
    with pytest.raises(MessageNotFound) as raised:
        await found.message(ANYONE, "it's gone")
    assert raised.value.detail == (
        "No event of the message it's gone that you may see is known. Searched: the journals of b (no record), gw "
        "(from 2026-09-21 14:13:20 UTC on). No answer from 10.0.0.9:7180. Older events may be in a data lake: "
        "babelgate pipeline message 'it'\"'\"'s gone' --lake LAKE"
    )
    with pytest.raises(TraceNotFound) as untraced:
        await found.trace(ANYONE, "x" * 5_000)
    assert "babelgate pipeline trace ID --lake LAKE" in untraced.value.detail
    assert len(untraced.value.detail) < 1_000


class TestRights:
    """A caller sees the events of the queues that it may listen to or manage, and no others."""

    @pytest.mark.parametrize("right", Right)
    async def test_the_right_to_read(self, right: Right) -> None:
        caller = Caller("a", {"q": frozenset({right})})
        found = history(MemorySearch([record()]))
        if right is Right.SEND:
            with pytest.raises(Forbidden):
                await found.message(caller, "m")
        else:
            message, _ = await found.message(caller, "m")
            assert len(message.events) == 1

    async def test_events_of_other_queues_are_left_out(self) -> None:
        """Also from the status: the last event that is seen decides."""
        records = way(
            ("accepted", {"queue": "mine.a"}), ("redriven", {"queue": "mine.a", "to_queue": "theirs"}), "acked"
        )
        found = history(MemorySearch([*records, record("gap", 9_000, queue=None)]))
        message, page = await found.message(LISTENER, "m")
        assert [each.event for each in message.events] == ["accepted", "redriven"]
        assert message.standing.status == "redriven"
        assert (await found.events(LISTENER, Query())).events == records[1::-1]
        assert page.next_cursor is None

    async def test_what_is_not_seen_is_not_there(self) -> None:
        found = history(MemorySearch([record()]))
        with pytest.raises(MessageNotFound):
            await found.message(LISTENER, "m")
        with pytest.raises(TraceNotFound):
            await found.trace(LISTENER, "t")
        assert (await found.events(LISTENER, Query())).events == []

    async def test_the_search_goes_on_until_something_is_seen(self) -> None:
        records = [record(at=n, queue="theirs") for n in range(1, 500)] + [record(queue="mine.a")]
        found = await history(MemorySearch(records)).events(LISTENER, Query(), 10)
        assert found.events == records[-1:]

    async def test_a_queue_that_is_named_needs_the_right(self) -> None:
        found = history(MemorySearch([record()]))
        with pytest.raises(Forbidden, match="'listen', 'manage' or 'observe' on the queue 'q'"):
            await found.events(LISTENER, Query(queue="q"))
        with pytest.raises(InvalidParameter, match="queue"):
            await found.events(LISTENER, Query(queue="a.dlq"))

    async def test_peers_are_asked_for_all_and_the_caller_sees_its_own(self) -> None:
        other = history(MemorySearch([record(node="b"), record(at=1, node="b", queue="mine.a")]), node="b")
        message, _ = await history(MemorySearch(), other, node="a").message(LISTENER, "m")
        assert [each.queue for each in message.events] == ["mine.a"]


async def test_without_a_journal_nothing_is_known() -> None:
    assert not History().enabled
    with pytest.raises(JournalDisabled, match=r"journal\.landing"):
        await History().message(ANYONE, "m")


async def test_a_cursor_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="cursor"):
        await history(MemorySearch([record()])).events(ANYONE, Query(), cursor="x")


async def test_a_caller_leaves_searches_to_others() -> None:
    found = history(MemorySearch([record()]))
    share = found._share
    with pytest.raises(Overloaded, match="already search the journal"):
        held = [share.place(ANYONE) for _ in range(MAX_SEARCHES)]
        for each in held:
            each.__enter__()
    await found.message(LISTENER_OF_Q, "m")
    with pytest.raises(Overloaded):
        await found.message(ANYONE, "m")


LISTENER_OF_Q = Caller("other", {"q": frozenset({Right.LISTEN})})


async def test_long_ids_make_shorter_pages() -> None:
    """A page of the longest ids that a message may have would take a gigabyte."""
    longest = "x" * 1_048_576
    records = [record(at=n, trace_id=longest) for n in range(10)]
    found = history(MemorySearch(records))
    _, page = await found.message(ANYONE, "m")
    assert len(page.events) == merging.MAX_FOUND_BYTES // len(longest) - 1
    _, rest = await found.message(ANYONE, "m", cursor=page.next_cursor)
    assert [*page.events, *rest.events][:6] == records[:6]
    assert under_test.MAX_SEARCHES * merging.MAX_FOUND_BYTES < 2**28


async def test_a_peer_that_does_not_know_a_condition_is_asked_all_the_same() -> None:
    wanted = [record(at=n, node=node, meta={"tenant": "a"}) for n in range(3) for node in ("gw", "other")]
    others = [record(at=n, node="other", seq=100 + n, meta={"tenant": "b"}) for n in range(3)]
    peer = history(MemorySearch([*(each for each in wanted if each.node == "other"), *others]), node="other")
    # The search in memory looks at no member of meta, as that of a gateway of an earlier version.
    journal = Journaled(MemorySearch(each for each in wanted if each.node == "gw"), "gw", lambda: "gw", ("tenant",))
    found = await History(journal, Directly(peer)).events(ANYONE, Query(meta="tenant=a"))
    assert [(each.at, each.node) for each in found.events] == sorted(
        ((each.at, each.node) for each in wanted), reverse=True
    )
    with pytest.raises(InvalidParameter, match="keeps tenant"):
        await History(journal).events(ANYONE, Query(meta="order=a"))
