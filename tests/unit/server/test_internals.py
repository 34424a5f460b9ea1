"""The internals of uvicorn that ``app/babelgate/server`` uses. A release of uvicorn may remove any of them."""

from __future__ import annotations

import asyncio
import inspect
from importlib import import_module
from importlib.metadata import version
from typing import Any

import pytest

HTTPTOOLS = "uvicorn.protocols.http.httptools_impl"
FLOW = "uvicorn.protocols.http.flow_control"

NAMES = [
    (HTTPTOOLS, "HttpToolsProtocol", "app/babelgate/server/protocol.py extends it"),
    (HTTPTOOLS, "RequestResponseCycle", "app/babelgate/server/protocol.py ends the requests of a lost connection"),
    (FLOW, "FlowControl", "app/babelgate/server/transport.py extends it with a clock"),
    ("uvicorn.server", "ServerState", "app/babelgate/server/peer_port.py serves connections without uvicorn's server"),
    ("uvicorn.config", "STARTUP_FAILURE", "app/babelgate/server/server.py returns the failed start of a worker"),
    ("uvicorn.supervisors", "Multiprocess", "app/babelgate/server/server.py runs several workers"),
]
ATTRIBUTES = [
    ("protocol", "parser", "a new parser reads the request without its upgrade"),
    ("protocol", "transport", "answers outside the application are written to it"),
    ("protocol", "loop", "the timers of slow and of stalled clients"),
    ("protocol", "flow", "it is replaced by a clock that stands still while the server does not read"),
    ("protocol", "app_state", "it has the process's Shedder"),
    ("protocol", "headers", "the checks of a head, and the head without its upgrade"),
    ("protocol", "scheme", "the metrics of refused requests"),
    ("protocol", "expect_100_continue", "a refused client that waits for 100 is cut off"),
    ("protocol", "cycle", "whether a request is being served"),
    ("protocol", "pipeline", "the requests that wait behind the one that is served"),
    ("protocol", "server_state", "the count of requests"),
    ("protocol", "timeout_keep_alive", "how long a silent connection stays open"),
    ("protocol", "timeout_keep_alive_task", "one timer checks both the silence and the time of a request"),
    ("protocol", "timeout_keep_alive_handler", "it closes a silent connection"),
    ("protocol", "_unset_keepalive_if_required", "it cancels the timer of a lost connection"),
    ("protocol", "_start_asgi_task", "the next pipelined request is served"),
    ("protocol", "on_message_begin", "a head that begins is timed and measured"),
    ("protocol", "on_headers_complete", "a head is checked, and refused when there is too much work"),
    ("protocol", "on_body", "the body of a refused request is dropped"),
    ("protocol", "on_message_complete", "a request whose end has come is no longer timed"),
    ("protocol", "on_response_complete", "the next request is awaited with our timer"),
    ("protocol", "data_received", "large pieces are parsed in parts"),
    ("protocol", "pause_writing", "a client that does not read is cut off"),
    ("protocol", "resume_writing", "a client that has read is served again"),
    ("protocol", "shutdown", "the private port closes its connections"),
    ("request", "url", "the checks of a head"),
    ("cycle", "disconnected", "the application sees that its client is gone"),
    ("cycle", "message_event", "the application is woken to see it"),
    ("cycle", "response_started", "a malformed request gets no second answer"),
    ("cycle", "response_complete", "whether a request is being served"),
    ("cycle", "more_body", "a request whose body is missing is answered by the server"),
    ("cycle", "keep_alive", "a connection is closed after the answer that is under way"),
    ("flow", "read_paused", "the clock stands still while it is set"),
    ("flow", "write_paused", "a refused client is read again only when it has read"),
    ("flow", "pause_reading", "the clock stops"),
    ("flow", "resume_reading", "the clock goes on"),
    ("state", "connections", "the private port shuts them down"),
    ("state", "tasks", "the private port waits for requests in flight"),
    ("state", "total_requests", "on_response_complete counts like uvicorn's own"),
]
PARAMETERS = [
    (HTTPTOOLS, "HttpToolsProtocol", ["config", "server_state", "app_state", "_loop"]),
    (FLOW, "FlowControl", ["transport"]),
]


def gone(what: str, use: str) -> str:
    return f"uvicorn {version('uvicorn')} has no {what} any more. It is used: {use}."


@pytest.mark.parametrize(("module", "name", "use"), NAMES, ids=[name for _, name, _ in NAMES])
def test_a_class_is_there(module: str, name: str, use: str) -> None:
    try:
        found = hasattr(import_module(module), name)
    except ModuleNotFoundError:
        found = False
    assert found, gone(f"{module}.{name}", use)


@pytest.fixture
async def made() -> dict[str, Any]:
    """One uvicorn connection in the middle of a request."""
    from uvicorn import Config
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    state = ServerState()
    protocol = HttpToolsProtocol(Config(application, ws="none", lifespan="off"), state, {})
    protocol.connection_made(asyncio.Transport())
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n")
    cycle = protocol.cycle
    protocol.data_received(b"x")
    await asyncio.gather(*state.tasks, return_exceptions=True)
    return {"protocol": protocol, "request": protocol, "cycle": cycle, "flow": protocol.flow, "state": state}


@pytest.mark.parametrize(("owner", "attribute", "use"), ATTRIBUTES, ids=[f"{o}.{a}" for o, a, _ in ATTRIBUTES])
async def test_an_attribute_is_there(made: dict[str, Any], owner: str, attribute: str, use: str) -> None:
    assert hasattr(made[owner], attribute), gone(f"{type(made[owner]).__qualname__}.{attribute}", use)


@pytest.mark.parametrize(("module", "name", "parameters"), PARAMETERS, ids=[name for _, name, _ in PARAMETERS])
def test_a_constructor_takes_what_is_passed(module: str, name: str, parameters: list[str]) -> None:
    found = list(inspect.signature(getattr(import_module(module), name)).parameters)
    assert found == parameters, gone(
        f"{name}({', '.join(parameters)})", "app/babelgate/server passes these in this order"
    )
