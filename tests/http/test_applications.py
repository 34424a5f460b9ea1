"""Applications of one process share their routes, and each has a gateway of its own."""

from __future__ import annotations

import sys

import httpx


def client(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_each_answers_for_its_gateway(serve):
    apps = {name: await serve(queues={name: {"broker": "local"}}) for name in ("one", "two")}
    for name, app in apps.items():
        async with client(app) as asked:
            listed = (await asked.get("/queues")).json()["queues"]
            assert [each["queue"] for each in listed if each["source"] == "configured"] == [name]
            letters = await asked.get(f"/queues/{name}/dead-letters")
            assert letters.json() == {"dead_letters": [], "next_cursor": None}


async def test_routes_are_analysed_once(serve):
    await serve()
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await serve()
    finally:
        sys.setprofile(None)
    # With an analysis of the parameters of all routes it would be 31,000.
    assert calls < 12_000
