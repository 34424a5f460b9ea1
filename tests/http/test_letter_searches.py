"""Searches for one dead letter among many: bounded, shared, and with a place to go on from."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Any

import pytest

from babelgate.brokers.binding import DeadRecord
from babelgate.errors import BrokerUnavailable, DeadLetterNotReached, UnknownDeadLetter
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.dead_letters import MAX_SCANNED
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.letter_scans import MAX_SCANS
from babelgate.gateway.model import DeadLetterFilter
from babelgate.gateway.routing import Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding
from tests.harness.problems import problem

COUNT = 2 * MAX_SCANNED + 500
PAST_THE_FIRST, PAST_THE_SECOND = MAX_SCANNED + 7, 2 * MAX_SCANNED + 7
UNKNOWN = "0" * 32
BASE = "/queues/q/dead-letters"


def record(n):
    return b'{"job":"urn:babel:test:made","data":{"n":%d}}' % n


def letter_id(n):
    return hashlib.sha256(record(n)).hexdigest()[:32]


class Many(MemoryBinding):
    """Has COUNT dead letters. ``read``: how many were read; in how many ``pages``; ``most``: of how many calls at once.
    ``record``: makes the n-th of ``count``. Calls wait for ``gate``."""

    def __init__(self):
        super().__init__()
        self.read = self.pages = self.running = self.most = 0
        self.record, self.count = record, COUNT
        self.gate = asyncio.Event()
        self.gate.set()
        self.removed = []
        self.fault = None

    async def read_dead(self, queue, cursor, limit):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.fault:
                raise self.fault
        finally:
            self.running -= 1
        start = int(cursor or 0)
        end = min(start + limit, self.count)
        self.read += end - start
        self.pages += 1
        return [DeadRecord(n, self.record(n)) for n in range(start, end)], str(end) if end < self.count else None

    async def remove_dead(self, queue, records, cursor):
        self.removed += [each.key for each in records]
        return [True for _ in records], cursor

    async def purge_dead(self, queue, before_ms=None):
        return 0


@pytest.fixture
async def many():
    return Many()


@pytest.fixture
async def gateway(many):
    made = Gateway({"memory": many}, Router([], Rule("*", many)), TokenSealer([TokenKey("k", bytes(32))]))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def client(gateway, connect):
    return await connect(create_api(gateway, auth=Auth(), limits=RequestLimits()))


@pytest.mark.parametrize(("method", "verb"), [("GET", ""), ("DELETE", ""), ("POST", ":redrive")])
async def test_a_search_is_bounded_and_names_where_to_go_on(client, many, method, verb):
    async def search(sought, cursor):
        parameters = {} if cursor is None else {"cursor": cursor}
        return await client.request(method, f"{BASE}/{sought}{verb}", params=parameters)

    refused = problem(await search(letter_id(PAST_THE_SECOND), None), 422, "dead_letter_not_reached")
    assert (refused["scanned"], many.read, refused["retryable"]) == (MAX_SCANNED, MAX_SCANNED, False)
    refused = problem(await search(letter_id(PAST_THE_SECOND), refused["next_cursor"]), 422, "dead_letter_not_reached")
    assert many.read == 2 * MAX_SCANNED
    problem(await search(UNKNOWN, refused["next_cursor"]), 404, "unknown_dead_letter")
    if verb:
        # The record is no envelope, so it was found, and cannot be sent.
        problem(await search(letter_id(PAST_THE_SECOND), refused["next_cursor"]), 422, "not_redrivable")
        return
    assert (await search(letter_id(PAST_THE_SECOND), refused["next_cursor"])).status_code == 200
    assert many.removed == ([PAST_THE_SECOND] if method == "DELETE" else [])


async def test_parameters_of_a_search(client):
    for query in ("cursor=", "cursor=" + "x" * 1025, "other=1"):
        problem(await client.get(f"{BASE}/{UNKNOWN}?{query}"), 400, "invalid_parameter")


async def test_many_searches_at_once_cost_as_much_as_two(gateway, many):
    known = [letter_id(n) for n in (0, 5_000, MAX_SCANNED - 1)]
    searches = [gateway.letters.get(ANYONE, "q", each) for each in (*known, *(f"{n:032x}" for n in range(40)))]
    # All of them begin in one turn of the event loop.
    outcomes: list[Any] = await asyncio.gather(*searches, return_exceptions=True)
    assert [each.letter_id for each in outcomes[:3]] == known
    assert {type(each) for each in outcomes[3:]} == {DeadLetterNotReached}
    # The first one begins at once, and finds its letter on the first page; the others share one search.
    assert many.read < MAX_SCANNED + 1_000
    assert many.most == 1


async def test_searches_from_other_places_wait_for_their_turn(client, many):
    answers = await asyncio.gather(*(client.get(f"{BASE}/{letter_id(n + 1)}?cursor={n}") for n in range(20)))
    assert [answer.status_code for answer in answers] == [200] * 20
    assert many.most == 1


async def test_one_who_leaves_ends_the_search_of_nobody_else(gateway):
    letters = gateway.letters
    searches = [asyncio.create_task(letters.get(ANYONE, "q", letter_id(5_000))) for _ in range(4)]
    for _ in range(10):
        await asyncio.sleep(0)
    for leaving in searches[:2]:
        leaving.cancel()
    outcomes: list[Any] = await asyncio.gather(*searches, return_exceptions=True)
    *left, first, second = outcomes
    assert [type(each) for each in left] == [asyncio.CancelledError] * 2
    assert first.letter_id == second.letter_id == letter_id(5_000)


async def test_all_who_share_a_search_get_its_error(client, many):
    many.fault = BrokerUnavailable("memory", "it is down")
    answers = await asyncio.gather(*(client.get(f"{BASE}/{n:032x}") for n in range(10)))
    assert [answer.status_code for answer in answers] == [503] * 10
    many.fault = None
    assert (await client.get(f"{BASE}/{letter_id(0)}")).status_code == 200


async def test_one_listing_with_a_filter_reads_at_a_time(gateway, many):
    listings = [gateway.letters.page(ANYONE, "q", DeadLetterFilter(job=f"j{n}"), 50, None) for n in range(3)]
    pages = await asyncio.gather(*listings)
    assert [len(found) for found, _ in pages] == [0] * 3
    assert many.most == 1


async def test_equal_listings_and_dry_runs_share_their_scan(client, many):
    """The first begins at once, and the others share the next one."""
    pages = await asyncio.gather(*(client.get(f"{BASE}?job=other&limit=100") for _ in range(40)))
    assert {answer.text for answer in pages} == {'{"dead_letters":[],"next_cursor":"10008"}'}
    assert many.read == 2 * 10_008
    many.read = 0
    order = {"dry_run": True, "filter": {"job": "other"}}
    runs = await asyncio.gather(*(client.post(f"{BASE}:redrive", json=order) for _ in range(40)))
    assert [(answer.status_code, answer.json()["scanned"]) for answer in runs] == [(200, COUNT)] * 40
    assert many.read == 2 * COUNT


async def test_a_listing_of_few_makes_few_calls(client, many):
    page = (await client.get(f"{BASE}?job=other&limit=1")).json()
    assert (page["dead_letters"], many.pages) == ([], 200)
    assert page["next_cursor"] == str(many.read)


async def test_a_letter_is_found_however_it_spells_what_is_sought(client, many):
    """Most letters that do not match are told by a look for the text, without reading the JSON."""

    def spelled(n):
        forms = (
            rb'{"job":"a\/b"}',
            rb'{"job":"a\u002fb"}',
            b'{"job":"a/b"}',
            b'{"urn" : "a/b"}',
            b'{"job":"ab"}',
            b"a/b",
        )
        return forms[n % len(forms)]

    many.record = spelled
    found = (await client.get(f"{BASE}?job=a/b&limit=100")).json()
    read = int(found["next_cursor"])
    assert len(found["dead_letters"]) == 100 == sum(n % 6 < 4 for n in range(read))


async def test_letters_that_cannot_match_cost_little(gateway, many):
    async def cpu(escape):
        many.record = lambda n: b'{"job":"urn:babel:test:made","data":{"n":"%b","text":"%b"}}' % (escape, b"1" * 100)
        began = time.process_time()
        await gateway.letters.page(ANYONE, "q", DeadLetterFilter(job="1"), 100, None)
        return time.process_time() - began

    await cpu(b"")
    # Ten times less than with an escape, for which the JSON is read.
    assert 2 * min([await cpu(b"") for _ in range(3)]) < await cpu(b"\\u0031")


SCANS = [
    ("GET", "?job={}", None),
    ("GET", "/{:032x}", None),
    ("DELETE", "/{:032x}", None),
    ("POST", "/{:032x}:redrive", None),
    ("POST", ":redrive", {"dry_run": True, "limit": 1}),
    ("POST", ":redrive", {"ids": [UNKNOWN]}),
    ("POST", ":delete", {"ids": [UNKNOWN]}),
]


@pytest.mark.parametrize(("method", "path", "body"), SCANS)
async def test_a_caller_has_a_share_of_the_scans_of_a_process(connect, gateway, many, method, path, body):
    """Half of what the others leave, also while they wait. A plain page is none of them."""
    callers = {hashlib.sha256(name.encode()).hexdigest(): Caller(name, {"*": frozenset(Right)}) for name in "ab"}
    api = create_api(gateway, auth=Auth(callers), limits=RequestLimits())
    one, other = await connect(api, "a"), await connect(api, "b")
    many.count = 10
    many.gate.clear()

    def scans(client, count):
        return [asyncio.create_task(client.request(method, BASE + path.format(n), json=body)) for n in range(count)]

    begun = [*scans(one, MAX_SCANS // 2 + 3)]
    await eventually(lambda: sum(each.done() for each in begun) == 3)
    for refused in (each.result() for each in begun if each.done()):
        told = problem(refused, 429, "overloaded")
        assert (told["retryable"], refused.headers["retry-after"]) == (True, "1")
        assert "'a'" in told["detail"]
    others = scans(other, MAX_SCANS // 4 + 1)
    await eventually(lambda: sum(each.done() for each in others) == 1)
    plain = asyncio.create_task(one.get(BASE))
    many.gate.set()
    statuses = [answer.status_code for answer in await asyncio.gather(*begun, *others)]
    assert statuses.count(429) == 4 and max(statuses) < 500
    assert (await plain).status_code == 200
    assert (await scans(one, 1)[0]).status_code == min(statuses)


async def test_ids_of_a_bulk_are_sought_in_the_whole_queue(gateway, many):
    results = await gateway.letters.remove(ANYONE, "q", [letter_id(PAST_THE_SECOND), UNKNOWN, letter_id(3)])
    assert [type(each.error) for each in results] == [type(None), UnknownDeadLetter, type(None)]
    assert many.removed == [3, PAST_THE_SECOND]
