"""Clients of a gateway that count the answers they get, to compare them with the gateway's metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

DRAFT = {"job": "shop.work", "data": {"n": 1}}
_TOLD = {"ack": "acked", "nack": "nacked", "reject": "rejected"}


class Books(Counter[tuple[str, ...]]):
    """How often it happened: ``(what, queue, more…)``, or ``("answered", status)``."""

    def of(self, what: str) -> dict[tuple[str, ...], int]:
        """All of one kind, without its name and without zeros."""
        return {key[1:]: count for key, count in self.items() if key[0] == what and count}


class Shop:
    """Publishes, receives and settles through ``client``, and writes into ``books`` what the answers say.

    ``owned``: the queues on which only the process that received can settle.
    """

    def __init__(self, client: httpx.AsyncClient, books: Books, owned: Collection[str] = ()) -> None:
        self.client = client
        self.books = books
        self._owned = owned

    async def call(self, queue: str, verb: str, body: Any = None) -> httpx.Response:
        """One call, whatever the answer."""
        answer = await self.client.post(f"queues/{queue}/{verb}", json=body)
        self.books["answered", str(answer.status_code)] += 1
        return answer

    async def publish(self, queue: str, count: int = 1) -> int:
        """One message, or several as a batch; how many were accepted."""
        if count == 1:
            accepted = int((await self.call(queue, "messages", DRAFT)).status_code == 201)
        else:
            accepted = (await self.call(queue, "messages:batch", [DRAFT] * count)).json().get("accepted", 0)
        self.books["published", queue] += accepted
        return accepted

    async def stock(self, queue: str, count: int) -> None:
        """Publish so many, however often some are refused."""
        while count:
            count -= await self.publish(queue, count)

    async def receive(self, queue: str, count: int = 10, **how: Any) -> list[Mapping[str, Any]]:
        """Up to ``count`` messages; none where that fails."""
        return await self._received(queue, count, **how) or []

    async def _received(self, queue: str, count: int = 10, **how: Any) -> list[Mapping[str, Any]] | None:
        """Up to ``count`` messages; None where that fails."""
        answer = await self.call(queue, "messages:receive", {"max_messages": count, **how})
        if answer.status_code != 200:
            return None
        messages: list[Mapping[str, Any]] = answer.json()["messages"]
        self.books["delivered", queue] += len(messages)
        return messages

    async def settle(self, queue: str, verb: str, tokens: Sequence[str], **how: Any) -> Counter[int]:
        """How many tokens had each status."""
        answer = await self.call(queue, f"messages:{verb}", {"ack_tokens": tokens, **how})
        results = answer.json().get("results", [{"status": answer.status_code}] * len(tokens))
        told = Counter(result["status"] for result in results)
        if verb == "extend":
            self.books["extended", queue] += told[200]
        else:
            self.books["settled", queue, _TOLD[verb]] += told[200]
        if verb == "reject":
            self.books["dead_lettered", queue, "failed"] += told[200]
        self.books["settled", queue, "lease_lost"] += told[409]
        if queue in self._owned:
            self.books["asked", queue] += len(tokens)
        return told

    async def take(self, queue: str, verb: str, count: int, **how: Any) -> None:
        """Receive and settle so until it was done to ``count`` messages."""
        done = 0
        while done < count:
            if tokens := tokens_of(await self.receive(queue, min(count - done, 100), wait_seconds=1)):
                done += (await self.settle(queue, verb, tokens, **how))[200]

    async def redrive(self, queue: str, count: int) -> None:
        """Send ``count`` dead letters back."""
        answer = await self.call(queue, "dead-letters:redrive", {"limit": count})
        self.books["redriven", queue] += answer.json()["redriven"]

    @asynccontextmanager
    async def business(self, queues: Sequence[str], pause_seconds: float = 0.1) -> AsyncIterator[None]:
        """Meanwhile each queue is published to and consumed: most is acked, some nacked, one lease in five prolonged.

        At the end each queue is consumed until it is empty: what was nacked last would wait there, and be told of for
        ever. A settle is repeated after the broker was down.
        """
        closing = asyncio.Event()

        async def trade(queue: str) -> None:
            done = 0
            held: list[str] = []
            is_empty = False
            while not is_empty:
                ends = closing.is_set()
                if not ends:
                    await self.publish(queue)
                # A lease that ran out while its broker was down would be on no book.
                received = await self._received(queue, lease_seconds=600, wait_seconds=int(ends))
                held += tokens_of(received or [])
                for token in held.copy():
                    done += 1
                    if done % 5 == 0:
                        await self.settle(queue, "extend", [token], lease_seconds=600)
                    if not (await self.settle(queue, "nack" if done % 7 == 0 else "ack", [token]))[503]:
                        held.remove(token)
                is_empty = ends and received == [] and not held
                await asyncio.sleep(pause_seconds)

        async with asyncio.TaskGroup() as group:
            for queue in queues:
                group.create_task(trade(queue))
            yield
            closing.set()


def tokens_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Their ack tokens."""
    return [message["ack_token"] for message in messages]
