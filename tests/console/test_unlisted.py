"""Lists of queues while a broker does not answer."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness import console
from tests.harness.memory import MemoryBinding


class Hanging(MemoryBinding):
    """A broker that never lists its queues."""

    lists_foreign = False

    async def queues(self):
        await asyncio.Event().wait()


@pytest.mark.parametrize("page", ["queues", "dead-letters"])
def test_a_page_says_that_queues_are_missing(tmp_path, page):
    with console.console_over(tmp_path, Hanging()) as server, server.client() as client:
        client.post("queues/used/messages", json={"job": "a:b", "data": {}}).raise_for_status()
        answer = client.get(f"console/{page}")
        assert (answer.status_code, "A broker has not listed its queues yet" in answer.text) == (200, True)
        assert ("used" in answer.text) == (page == "queues")


@pytest.mark.parametrize("page", ["queues", "dead-letters"])
def test_nothing_is_missing(free, page):
    with free.client() as client:
        assert "has not listed" not in client.get(f"console/{page}").text
