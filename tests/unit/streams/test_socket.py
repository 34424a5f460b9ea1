"""The client's side of a WebSocket: how many of its commands are carried out at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from babelgate.errors import InternalError
from babelgate.gateway.model import SettleResult
from babelgate.streams import websocket
from babelgate.streams.websocket import MAX_PENDING, Socket

COMMAND = b'{"acks":["x"]}'


class Settling:
    """A gateway whose settles wait for ``gate``. ``admitted``: the sizes that its admission was asked for."""

    def __init__(self, results: Sequence[SettleResult] = ()) -> None:
        self.gate = asyncio.Event()
        self.running = self.most = self.begun = 0
        self.admitted: list[int] = []
        self.admission = SimpleNamespace(other=self._other)
        self._results = results

    def _other(self, broker: str, size: int) -> Any:
        self.admitted.append(size)
        return nullcontext()

    def begin_ack(self, *_: Any) -> None:
        """None: each command is carried out by a task."""

    async def settle(self, *_: Any) -> Sequence[SettleResult]:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        self.running -= 1
        return self._results


class Exchange:
    """``reading``: whether the client is read. ``written``: the answers."""

    def __init__(self) -> None:
        self.whole = self
        self.caller, self.queue, self.trace, self.path = None, "q", None, "/q"
        self.reading = True
        self.written: list[bytes] = []

    def read(self, reads: bool) -> None:
        self.reading = reads

    async def write(self, part: bytes) -> None:
        self.written.append(part)


def socket_of(gateway: Settling, exchange: Exchange) -> Socket:
    access = SimpleNamespace(route=SimpleNamespace(broker="memory"))
    made: Any = (gateway, exchange, SimpleNamespace(access=access, window=1, refusal=None))
    return Socket(*made)


def frame(text: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return Frame(opcode, text, fin=fin).serialize(mask=True)


async def test_no_more_than_the_maximum_is_carried_out_at_a_time_and_all_is_in_the_end() -> None:
    gateway, exchange = Settling(), Exchange()
    socket = socket_of(gateway, exchange)
    socket.received(frame(COMMAND) * (MAX_PENDING * 3 + 1))
    await asyncio.sleep(0)
    assert (gateway.running, exchange.reading) == (MAX_PENDING, False)
    ending = asyncio.create_task(socket.end())
    await asyncio.sleep(0)
    gateway.gate.set()
    await ending
    assert (gateway.begun, gateway.most, exchange.reading) == (MAX_PENDING * 3 + 1, MAX_PENDING, True)
    assert gateway.admitted == [len(COMMAND)] * (MAX_PENDING * 3 + 1)
    assert len(exchange.written) == MAX_PENDING * 3 + 1


async def test_fragments_are_joined_and_empty_ones_are_not_kept() -> None:
    gateway, exchange = Settling(), Exchange()
    gateway.gate.set()
    socket = socket_of(gateway, exchange)
    socket.received(frame(COMMAND[:5], fin=False) + frame(b"", Opcode.CONT, fin=False) * 1_000)
    assert bytes(socket._text) == COMMAND[:5]
    socket.received(frame(COMMAND[5:], Opcode.CONT) + frame(COMMAND))
    await socket.end()
    assert gateway.admitted == [len(COMMAND)] * 2


async def test_a_defect_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[object] = []
    monkeypatch.setattr(websocket, "log_defects", lambda exchange, queue, errors: logged.extend([queue, *errors]))
    error = InternalError.caused_by(ValueError("x"))
    gateway, exchange = Settling([SettleResult(0, "ack", error)]), Exchange()
    gateway.gate.set()
    socket = socket_of(gateway, exchange)
    socket.received(frame(COMMAND))
    await socket.end()
    assert logged == ["q", error]
