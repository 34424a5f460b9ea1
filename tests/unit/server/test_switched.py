"""A connection that is no longer HTTP is not read while its client does not read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

from babelgate.server.cycle import Cycle


class Client(asyncio.Transport):
    """``states``: whether it is read, at the start and after each turn."""

    def __init__(self) -> None:
        super().__init__()
        self.states = [True]
        self.protocol: Any = None

    def write(self, data: object) -> None:
        """Nobody looks at it."""

    def pause_reading(self) -> None:
        self.states.append(False)

    def resume_reading(self) -> None:
        self.states.append(True)

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


async def test_a_client_is_read_only_while_it_reads_and_that_is_wanted() -> None:
    client = Client()
    flow = FlowControl(client)
    before: Any = SimpleNamespace(
        transport=client,
        flow=flow,
        logger=None,
        server_state=SimpleNamespace(default_headers=[]),
        on_response_complete=None,
        expect_100_continue=False,
        certificate=None,
        pause_writing=flow.pause_writing,
        resume_writing=flow.resume_writing,
    )
    client.protocol = before
    scope: Any = {}
    cycle = Cycle(before, scope, {}, keep_alive=True)
    cycle.switch(b"", lambda data: None)
    switched = client.protocol
    assert switched is not before
    switched.pause_writing()
    # Its commands are done, but it does not read.
    cycle.read(True)
    assert client.states == [True, False] and flow.write_paused
    # It reads, but has too many commands.
    cycle.read(False)
    switched.resume_writing()
    assert client.states == [True, False]
    cycle.read(True)
    assert client.states == [True, False, True]
