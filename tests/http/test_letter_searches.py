"""Searches for one dead letter among many: bounded, shared, and with a place to go on from."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from app.brokers.binding import DeadRecord
from app.errors import BrokerUnavailable, DeadLetterNotReached, UnknownDeadLetter
from app.gateway.ack_tokens import TokenKey, TokenSealer
from app.gateway.authorization import ANYONE
from app.gateway.dead_letters import MAX_SCANNED
from app.gateway.gateway import Gateway
from app.gateway.model import DeadLetterFilter
from app.gateway.routing import Router, Rule
from app.http.api import create_api
from app.http.auth import Auth
from app.http.body import RequestLimits
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
    """Has COUNT dead letters. ``read``: how many were read; ``most``: of how many calls at once."""

    def __init__(self):
        super().__init__()
        self.read = self.running = self.most = 0
        self.removed = []
        self.fault = None

    async def read_dead(self, queue, cursor, limit):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if self.fault:
                raise self.fault
        finally:
            self.running -= 1
        start = int(cursor or 0)
        end = min(start + limit, COUNT)
        self.read += end - start
        return [DeadRecord(n, record(n)) for n in range(start, end)], str(end) if end < COUNT else None

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


async def test_ids_of_a_bulk_are_sought_in_the_whole_queue(gateway, many):
    results = await gateway.letters.remove(ANYONE, "q", [letter_id(PAST_THE_SECOND), UNKNOWN, letter_id(3)])
    assert [type(each.error) for each in results] == [type(None), UnknownDeadLetter, type(None)]
    assert many.removed == [3, PAST_THE_SECOND]
