"""Clients that publish, receive and ack over HTTP while gateways fail, and a tally of their answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

_PAUSE = 0.05
"""Seconds before a client tries to connect again."""

_LIMIT_SECONDS = 120.0
"""How long a client waits, without a delivery, for a queue to be empty."""

NOTHING = [(0, 0), (0, None)]
"""What :meth:`Traffic.left` is of an empty queue; some brokers do not count what is handed out."""


class Client:
    """One keep-alive connection, opened when it is needed. Lean, because the clients share the machine."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Status and parsed body of the answer. Raises OSError or EOFError where the request got none.

        Waits for a gateway that cannot be connected to: nothing was written to it.
        """
        connected = await self.connect()
        while connected is None:
            await asyncio.sleep(_PAUSE)
            connected = await self.connect()
        reader, writer = connected
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: {self._host.netloc}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(answer.partition("content-length:")[2].partition("\r\n")[0])
            return int(answer.split()[1]), json.loads(await reader.readexactly(length))
        except (OSError, EOFError):
            self.close()
            raise

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """See :meth:`call`."""
        return await self.call("POST", path, body)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Both ends, where somebody listens; a connection that was left by the other side is made anew."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            try:
                self._streams = await asyncio.open_connection(self._host.hostname, self._host.port)
            except OSError:
                return None
        return self._streams

    def close(self) -> None:
        """Drop the connection."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class Tally:
    """What clients know of each number: ``accepted`` by a 201, ``delivered`` how often, ``acked`` by a 200, ``failed``
    if it was delivered with a failed attempt.

    ``resurrected``: delivered after it was acked, by a lease that had not ended when the delivery was read.
    ``refused``: publishes by the status that refused them. ``unanswered``: calls that got no answer.
    """

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.delivered: Counter[int] = Counter()
        self.acked: set[int] = set()
        self.failed: set[int] = set()
        self.resurrected: list[int] = []
        self.refused: Counter[int] = Counter()
        self.unanswered: Counter[str] = Counter()

    def deliver(self, message: dict[str, Any]) -> int:
        """Take what a gateway handed out. Returns its number."""
        number: int = message["envelope"]["data"]["number"]
        self.delivered[number] += 1
        if message["attempts"]:
            self.failed.add(number)
        # A busy consumer reads a delivery late: its lease may be over, and another consumer may have acked the message.
        if number in self.acked and time.time() * 1000 < message["lease_expires_at"]:
            self.resurrected.append(number)
        return number


class Traffic:
    """Publishers and consumers of one queue, spread over ``urls``; what one URL handed out another settles."""

    def __init__(self, urls: Sequence[str], queue: str, lease_seconds: float, spare_seconds: float = 0) -> None:
        """``spare_seconds``: how much later than its lease ends a message may be delivered again."""
        self.tally = Tally()
        self._urls = urls
        self._queue = f"/queues/{queue}"
        self._path = f"{self._queue}/messages"
        self._lease = lease_seconds
        self._spare = spare_seconds
        self._publishing = True
        self._last_delivery = asyncio.get_running_loop().time()

    async def run(self, count: int, publishers: int = 48, consumers: int = 12) -> None:
        """Publish ``count`` numbers, each tried once, and consume until nothing comes any more."""
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as group:
            eating = [group.create_task(self._consume(index)) for index in range(consumers)]
            await asyncio.gather(*(self._publish(index, numbers) for index in range(publishers)))
            self._publishing = False
            await asyncio.gather(*eating)

    async def accepted(self, count: int) -> None:
        """Wait until so many are accepted."""
        accepted = self.tally.accepted
        while len(accepted) < count:
            await asyncio.sleep(0.01)
            accepted = self.tally.accepted

    async def _publish(self, index: int, numbers: Iterator[int]) -> None:
        client = self._client(index)
        for number in numbers:
            body = b'{"job":"urn:babel:test:numbered","data":{"number":%d}}' % number
            answer = await self._post(client, "publish", self._path, body)
            if answer is not None and answer[0] == 201:
                self.tally.accepted.add(number)
            elif answer is not None and answer[0] != 504:
                # After a 504 of a busy broker, whether it was accepted is as unknown as without an answer.
                self.tally.refused[answer[0]] += 1
        client.close()

    async def _consume(self, index: int) -> None:
        receiving, settling = self._client(index), self._client(index + 1)
        wanted = json.dumps({"max_messages": 20, "wait_seconds": 0.5, "lease_seconds": self._lease}).encode()
        loop = asyncio.get_running_loop()
        while True:
            # What counts is when the gateway was asked: on a busy machine its answer is read late.
            asked, publishing = loop.time(), self._publishing
            answer = await self._post(receiving, "receive", f"{self._path}:receive", wanted)
            if answer is None or answer[0] != 200:
                continue
            if not (messages := answer[1]["messages"]):
                # All leases that were out had ended, and nothing came back. On a busy machine their end takes longer.
                silent = 0 if publishing else asked - self._last_delivery
                over = silent > self._lease + self._spare + 1
                if over and (silent > _LIMIT_SECONDS or await self._is_empty()):
                    break
                continue
            self._last_delivery = loop.time()
            numbers = [self.tally.deliver(message) for message in messages]
            tokens = json.dumps({"ack_tokens": [message["ack_token"] for message in messages]}).encode()
            settled = await self._post(settling, "ack", f"{self._path}:ack", tokens)
            # One token that failed is answered by its own problem; several by a list of results.
            if settled is not None and settled[0] in (200, 207):
                for number, result in zip(numbers, settled[1]["results"], strict=True):
                    if result["status"] == 200:
                        self.tally.acked.add(number)
        receiving.close()
        settling.close()

    async def left(self) -> tuple[int | None, int | None]:
        """How many messages are ready and handed out, as the first gateway sees it; None: unknown.

        Raises OSError or EOFError.
        """
        client = self._client(0)
        try:
            _, described = await client.call("GET", self._queue)
        finally:
            client.close()
        # A broker that is busy may be asked in vain.
        stats = described.get("stats", {})
        return stats.get("depth"), stats.get("in_flight")

    async def _is_empty(self) -> bool:
        try:
            return await self.left() in NOTHING
        except (OSError, EOFError):
            return False

    def _client(self, index: int) -> Client:
        return Client(self._urls[index % len(self._urls)])

    async def _post(self, client: Client, what: str, path: str, body: bytes) -> tuple[int, Any] | None:
        try:
            return await client.post(path, body)
        except (OSError, EOFError):
            self.tally.unanswered[what] += 1
            return None
