"""Concurrent clients of several gateways, which settle on one gateway what another delivered, also too late."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal

import httpx

from tests.harness.ledger import Handed, Ledger, Verb
from tests.harness.traffic import Client

_ANSWER_SECONDS = 40.0
"""No call may take longer: the longest poll here is half a second, the longest time-out of a binding 30."""
_IN_FLIGHT = 100
"""Publishing pauses while more messages than these are not settled. With more, a slow machine gets to each only after
its lease has ended."""
_PROGRESS_SECONDS = 300.0
_PAUSE = 0.05


class Crowd:
    """Publishers, receivers and settlers of ``queue``; ``urls`` are the gateways', one picked for each call."""

    def __init__(
        self,
        urls: Sequence[str],
        queue: str,
        ledger: Ledger,
        lease_seconds: float,
        seed: int,
        spare_seconds: float = 0,
    ) -> None:
        """``spare_seconds``: how much later than its lease ends a message may be delivered again."""
        self.ledger = ledger
        self._urls = urls
        self._path = f"/queues/{queue}/messages"
        self._lease = lease_seconds
        self._spare = spare_seconds
        self._random = random.Random(seed)
        self._idle: defaultdict[str, list[Client]] = defaultdict(list)
        self._numbers = itertools.count()
        self._pool: asyncio.Queue[Handed] = asyncio.Queue(_IN_FLIGHT)
        self._group: asyncio.TaskGroup
        self._slow: set[asyncio.Task[None]] = set()
        self._calm = False
        self._over = False

    async def run(self, publishers: int = 6, receivers: int = 6, settlers: int = 6) -> None:
        """Run until :meth:`calm` was called, all is settled, no delivery came for longer than a lease, and the queue is
        empty; for that it waits no longer than for progress.

        If the ledger has found a wrong, only finish the calls in progress.
        """
        async with asyncio.TaskGroup() as self._group:
            receiving = [self._group.create_task(self._receive()) for _ in range(receivers)]
            settling = [self._group.create_task(self._settle()) for _ in range(settlers)]
            await asyncio.gather(*(self._publish() for _ in range(publishers)))
            await _until(lambda: not self._slow)
            await self._end()
            self._over = True
            await asyncio.gather(*receiving)
            await self._pool.join()
            for task in settling:
                task.cancel()
        for client in itertools.chain(*self._idle.values()):
            client.close()

    async def progress(self, count: int) -> None:
        """Wait until ``count`` more messages are acked, or until the ledger has found a wrong."""
        acked = self.ledger.settled["ack"]
        wanted = len(acked) + count
        try:
            async with asyncio.timeout(_PROGRESS_SECONDS):
                await _until(lambda: bool(self.ledger.wrongs) or len(acked) >= wanted)
        except TimeoutError:
            told = dict(sorted(self.ledger.told.items()))
            stalled = f"{len(acked)} messages are acked and {wanted} were to be, for {_PROGRESS_SECONDS:g} s; {told}"
            raise AssertionError(stalled) from None

    def calm(self) -> None:
        """Stop publishing, and ack every further delivery."""
        self._calm = True

    async def _end(self) -> None:
        patience = math.inf
        while not self.ledger.wrongs and self.ledger.now() < patience:
            if self._is_quiet():
                if await self._is_empty():
                    return
                # A busy machine is late to show a message again.
                patience = min(patience, self.ledger.now() + _PROGRESS_SECONDS)
            await asyncio.sleep(_PAUSE)

    async def _is_empty(self) -> bool:
        async with httpx.AsyncClient(timeout=_ANSWER_SECONDS) as client:
            answer = await client.get(self._urls[0] + self._path.removesuffix("/messages"))
        stats = answer.raise_for_status().json()["stats"]
        return not any(stats[name] for name in ("depth", "in_flight", "delayed"))

    def _is_quiet(self) -> bool:
        return self.ledger.now() - self.ledger.last_delivery > self._lease + self._spare + 1.5

    async def _publish(self) -> None:
        settled = self.ledger.settled
        while not self._calm:
            if len(self.ledger.accepted) - len(settled["ack"]) - len(settled["reject"]) > _IN_FLIGHT:
                await asyncio.sleep(_PAUSE)
                continue
            number = next(self._numbers)
            body = {"job": "urn:babel:test:numbered", "data": {"number": number}}
            status, _ = await self._post("", body)
            self.ledger.published(number, status)
            # Without a pause the crowd would take the processors from the gateways, and from the tests beside it.
            await asyncio.sleep(_PAUSE)

    async def _receive(self) -> None:
        wanted = {"max_messages": 10, "wait_seconds": 0.5, "lease_seconds": self._lease}
        while not self._over:
            asked = self.ledger.now()
            status, answer = await self._post(":receive", wanted)
            if status != 200:
                assert status in (None, 429, 503, 504), f"a receive was answered with {status}: {answer}"
                await asyncio.sleep(_PAUSE)
                continue
            for message in answer["messages"]:
                number = message["envelope"]["data"]["number"]
                # Into the ledger at once, before the pool may make it wait.
                expires_at = message["lease_expires_at"] / 1000
                message["handed"] = self.ledger.handed(number, message["ack_token"], asked, expires_at)
            for message in answer["messages"]:
                await self._pool.put(message["handed"])

    async def _settle(self) -> None:
        """Settle some deliveries, of several gateways, in one call."""
        while True:
            several = [await self._pool.get()]
            while len(several) < self._random.choice((1, 1, 5, 20)) and not self._pool.empty():
                several.append(self._pool.get_nowait())
            verbs: defaultdict[Verb, list[Handed]] = defaultdict(list)
            for handed in several:
                fate = "ack" if self._calm else self._random.choices(_FATES, _SHARES)[0]
                match fate:
                    case "ack" | "nack" | "reject":
                        verbs[fate].append(handed)
                    case "twice" | "long" | "late":
                        task = self._group.create_task(_SLOW[fate](self, handed))
                        self._slow.add(task)
                        task.add_done_callback(self._slow.discard)
            if verbs:
                await self._call(verbs)
            for _ in several:
                self._pool.task_done()

    async def _twice(self, handed: Handed) -> None:
        """Ack with two calls at once."""
        await asyncio.gather(self._call({"ack": [handed]}), self._call({"ack": [handed]}))

    async def _long(self, handed: Handed) -> None:
        """Work for longer than the lease, and extend it."""
        for _ in range(2):
            await asyncio.sleep(self._lease * 0.6)
            await self._call({"extend": [handed]})
        await self._call({"ack": [handed]})

    async def _late(self, handed: Handed) -> None:
        """Settle after the lease has ended, and mostly after the message was handed out again."""
        patience = handed.read + 3 * self._lease
        await _until(lambda: handed.outdated or self.ledger.now() > patience)
        await self._call({self._random.choice(("ack", "ack", "nack", "reject", "extend")): [handed]})

    async def _call(self, verbs: Mapping[Verb, list[Handed]]) -> None:
        """One settle call; when it gets no answer, once more. Its outcome is the ledger's."""
        for _ in range(2):
            answers = {verb: [self.ledger.sending(handed, verb) for handed in each] for verb, each in verbs.items()}
            tokens = {verb: [handed.token for handed in each] for verb, each in verbs.items()}
            status, answer = await self._post(*_request(tokens))
            results = answer["results"] if status in (200, 207) else []
            statuses = {(result["action"], result["index"]): result["status"] for result in results}
            outcomes = {
                answered(statuses.get((verb, index), status))
                for verb, each in answers.items()
                for index, answered in enumerate(each)
            }
            if "unknown" not in outcomes:
                break
            await asyncio.sleep(_PAUSE)

    async def _post(self, path: str, body: Any) -> tuple[int | None, Any]:
        """Status and body from a gateway that accepts connections; None if the request got no answer."""
        while True:
            url = self._random.choice(self._urls)
            client = self._idle[url].pop() if self._idle[url] else Client(url)
            if await client.connect():
                break
            await asyncio.sleep(_PAUSE)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS) as patience:
                answer = await client.post(self._path + path, json.dumps(body).encode())
        except (OSError, EOFError):
            assert not patience.expired(), f"no answer to {path or 'a publish'} within {_ANSWER_SECONDS} s"
            self.ledger.told[f"no answer to {path or 'publish'}"] += 1
            return None, None
        self._idle[url].append(client)
        if answer[0] >= 500:
            self.ledger.failed[answer[1]["code"]] += 1
        if answer[0] == 502:
            # It should not be: why it was is shown beside the failure.
            self.ledger.told[answer[1]["detail"]] += 1
        return answer


async def _until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(_PAUSE)


def _request(tokens: dict[Verb, list[str]]) -> tuple[str, Any]:
    """Path and body: the verb's own call where there is one verb."""
    if len(tokens) == 1:
        ((verb, each),) = tokens.items()
        return f":{verb}", {"ack_tokens": each} | ({"delay_seconds": 0} if verb == "nack" else {})
    body: dict[str, Any] = {"acks": tokens.get("ack", [])}
    for verb, name in (("nack", "nacks"), ("reject", "rejects"), ("extend", "extends")):
        if verb in tokens:
            body[name] = [{"ack_tokens": tokens[verb]} | ({"delay_seconds": 0} if verb == "nack" else {})]
    return ":settle", body


_FATES: Sequence[Literal["ack", "nack", "reject", "twice", "long", "late", "none"]]
_FATES = ("ack", "nack", "reject", "twice", "long", "late", "none")
_SHARES = (70, 8, 4, 4, 4, 6, 4)
_SLOW: Mapping[str, Callable[[Crowd, Handed], Coroutine[Any, Any, None]]]
_SLOW = {"twice": Crowd._twice, "long": Crowd._long, "late": Crowd._late}
