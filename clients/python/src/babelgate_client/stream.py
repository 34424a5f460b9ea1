"""Messages of a queue over a stream: what a consumer with ``stream=True`` reads instead of long polls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import httpx

from babelgate_client import calls
from babelgate_client.calls import FOREVER, Attempts, Repeat
from babelgate_client.errors import BabelgateError, ProblemError, UnreachableError
from babelgate_client.messages import Delivery

if TYPE_CHECKING:
    from babelgate_client.clients import AsyncClient

SILENCE_SECONDS = 45.0
"""A gateway sends a keep-alive after 15 s without an event. A connection that is silent for three of them is dead."""
MOST_REFUSALS = 8
"""Where a stream has worked, so many answers in a row that are no streams come from a gateway that is away."""
_log = logging.getLogger("babelgate_client")


class StreamsNotOffered(Exception):
    """The gateway is older than streams, or a proxy in front of it refuses or buffers them."""


class Stream:
    """One stream after the other: each that ends is followed by another, after a pause as between long polls.

    None is opened after ``stopping`` is set. ``ended`` is called when one ends: the leases of what it delivered are
    over then, unless the gateway was killed.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        max_in_flight: int,
        lease_seconds: float,
        stopping: asyncio.Event,
        ended: Callable[[], None],
    ) -> None:
        self._client = client
        self._queue = queue
        self._call = calls.stream(queue, max_in_flight, lease_seconds)
        self._stopping = stopping
        self._ended = ended
        self._arrived: list[Delivery] = []
        """What was delivered and not received. The window of the stream bounds it."""
        self._wake = asyncio.Event()
        self._works = False
        """Whether a stream has sent anything yet."""
        self._reading: asyncio.Task[None] | None = None

    async def receive(self, max_messages: int) -> list[Delivery]:
        """Wait for messages. Raises StreamsNotOffered, and ProblemError when the gateway refuses the consumer."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(lambda _: self._wake.set())
        while not self._arrived:
            if self._reading.done():
                self._reading.result()
            self._wake.clear()
            await self._wake.wait()
        taken = self._arrived[:max_messages]
        del self._arrived[:max_messages]
        return taken

    async def close(self) -> None:
        """End the stream. The gateway delivers what is not settled again, and counts no attempt."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        attempts = Attempts(Repeat.ALWAYS, FOREVER)
        refusals = 0
        while not self._stopping.is_set():
            has_begun = False
            error: BabelgateError
            try:
                async with contextlib.aclosing(self._events()) as events:
                    async for name, data in events:
                        has_begun = self._works = True
                        self._take(name, data)
                error = UnreachableError("The stream has ended.", outcome_unknown=False)
                refusals = 0
            except BabelgateError as raised:
                error = raised
                refusals = 0
            except StreamsNotOffered as refusal:
                refusals += 1
                if not self._works or refusals > MOST_REFUSALS:
                    raise
                error = UnreachableError(f"No stream came: {refusal}.", outcome_unknown=False)
            finally:
                self._arrived.clear()
                self._ended()
            if self._stopping.is_set():
                return
            if has_begun:
                attempts = Attempts(Repeat.ALWAYS, FOREVER)
            pause = attempts.pause_after(error)
            _log.warning("stream of %s ended, next in %.1f s: %s", self._queue, pause, error)
            await asyncio.sleep(pause)

    def _take(self, name: str, data: dict[str, Any]) -> None:
        if name == "message":
            self._arrived += calls.deliveries(self._queue, {"messages": [data]})
            self._wake.set()
        elif name == "problem":
            problem = ProblemError(data.get("status", 500), data)
            if not problem.retryable:
                raise problem
            _log.warning("stream of %s: %s", self._queue, problem)

    async def _events(self) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The events of one stream, until it ends. Raises StreamsNotOffered, ProblemError and UnreachableError."""
        request = calls.request(self._client._http, self._call, SILENCE_SECONDS)
        has_begun = False
        try:
            response = await self._client._http.send(request, stream=True)
            try:
                await self._check(response)
                async for line in _lines(response):
                    has_begun = True
                    yield _decoded(line)
            finally:
                await response.aclose()
        except httpx.ReadTimeout:
            silence = f"nothing came within {SILENCE_SECONDS:.0f} s"
            if not has_begun:
                raise StreamsNotOffered(silence) from None
            raise UnreachableError(f"The stream is silent: {silence}.", outcome_unknown=False) from None
        except httpx.TransportError as error:
            raise calls.unreachable(error) from None

    async def _check(self, response: httpx.Response) -> None:
        """Whether this is a stream."""
        if response.is_success and response.headers.get("content-type", "").startswith(calls.JSON_LINES):
            return
        if response.is_success:
            raise StreamsNotOffered(f"the answer has the type {response.headers.get('content-type')!r}")
        await response.aread()
        try:
            calls.answer(response)
        except ProblemError as problem:
            unknown = problem.status == 404 and problem.code != "queue_not_found"
            if unknown or problem.status in (405, 406, 501) or problem.code == "http_504":
                raise StreamsNotOffered(str(problem)) from None
            raise


def _decoded(line: bytes) -> tuple[str, dict[str, Any]]:
    """Name and data of an event. Raises ProblemError, which ends the consumer: the next stream would send the same."""
    try:
        event = json.loads(line)
        return event["event"], event["data"]
    except (ValueError, TypeError, KeyError):
        raise ProblemError(200, {"detail": "a line of the stream is no JSON object"}) from None


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """The lines of an answer. Those of httpx also end at line separators of Unicode, which JSON may contain."""
    parts: list[bytes] = []
    async for data in response.aiter_raw():
        first, *rest = data.split(b"\n")
        parts.append(first)
        for each in rest:
            yield b"".join(parts)
            parts = [each]
