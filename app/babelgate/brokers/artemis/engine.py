"""The parts of qpid-proton's C engine that the binding uses, without the Python objects around them.

proton's Python classes cost several times as much as the engine for each message, and decode delivery tags as UTF-8.
The functions are those of https://qpid.apache.org/releases/qpid-proton-0.40.0/proton/c/api/.
"""

from __future__ import annotations

from typing import Any

import cproton  # type: ignore[import-untyped]

lib: Any = cproton.lib
ffi: Any = cproton.ffi
NULL = ffi.NULL

ACCEPTED, REJECTED = cproton.PN_ACCEPTED, cproton.PN_REJECTED
RELEASED, MODIFIED = cproton.PN_RELEASED, cproton.PN_MODIFIED

CONNECTION_REMOTE_OPEN = cproton.PN_CONNECTION_REMOTE_OPEN
CONNECTION_REMOTE_CLOSE = cproton.PN_CONNECTION_REMOTE_CLOSE
SESSION_REMOTE_CLOSE = cproton.PN_SESSION_REMOTE_CLOSE
LINK_REMOTE_OPEN = cproton.PN_LINK_REMOTE_OPEN
LINK_REMOTE_CLOSE, LINK_REMOTE_DETACH = cproton.PN_LINK_REMOTE_CLOSE, cproton.PN_LINK_REMOTE_DETACH
LINK_FLOW = cproton.PN_LINK_FLOW
DELIVERY = cproton.PN_DELIVERY
COORDINATOR = cproton.PN_COORDINATOR
TRANSPORT_ERROR = cproton.PN_TRANSPORT_ERROR

_from_buffer = ffi.from_buffer
_COPY = cproton.PN_DIST_MODE_COPY


def next_event(collector: Any) -> Any:
    """The oldest event; None if there is none. It is valid until ``pn_collector_pop``."""
    event = lib.pn_collector_peek(collector)
    return None if event == NULL else event


def push(transport: Any, data: bytes) -> int:
    """Give received bytes to the engine; how many it took, negative when it takes no more."""
    capacity = lib.pn_transport_capacity(transport)
    if capacity <= 0:
        return -1 if capacity < 0 else 0
    part = data[:capacity]
    taken: int = lib.pn_transport_push(transport, _from_buffer(part), len(part))
    return taken


def pull(transport: Any) -> bytes | None:
    """Bytes to send; None at the end of the stream."""
    pending = lib.pn_transport_pending(transport)
    if pending <= 0:
        return None if pending < 0 else b""
    room = bytearray(pending)
    size = lib.pn_transport_peek(transport, _from_buffer(room), pending)
    lib.pn_transport_pop(transport, size)
    return bytes(room[:size])


def receive(link: Any, delivery: Any) -> bytes:
    """The bytes of a complete delivery; the link goes on to the next one."""
    room = bytearray(max(1, lib.pn_delivery_pending(delivery)))
    size = lib.pn_link_recv(link, _from_buffer(room), len(room))
    lib.pn_link_advance(link)
    return bytes(room[:size]) if size > 0 else b""


def send(link: Any, tag: bytes, data: bytes) -> Any:
    """Transfer a message; its delivery, unsettled."""
    delivery = lib.pn_delivery(link, (len(tag), _from_buffer(tag)))
    lib.pn_link_send(link, _from_buffer(data), len(data))
    lib.pn_link_advance(link)
    return delivery


def text(pointer: Any) -> str:
    """A C string; empty for none."""
    return "" if pointer == NULL else ffi.string(pointer).decode("utf-8", "replace")


def condition(pointer: Any) -> tuple[str, str]:
    """The name and description of an error; empty where there is none."""
    return text(lib.pn_condition_get_name(pointer)), text(lib.pn_condition_get_description(pointer))


def set_data(data: Any, encoded: bytes) -> None:
    """Set an AMQP value of a link's terminus."""
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, _from_buffer(encoded), len(encoded))


def copying(source: Any) -> None:
    """Let a link look at messages instead of taking them."""
    lib.pn_terminus_set_distribution_mode(source, _COPY)


def settle(delivery: Any, outcome: int) -> None:
    """Settle a received delivery. A MODIFIED one counts as a failed delivery."""
    if outcome == MODIFIED:
        lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
    lib.pn_delivery_update(delivery, outcome)
    lib.pn_delivery_settle(delivery)


def read_data(data: Any) -> bytes:
    """An AMQP value that the engine has received, encoded; empty for none."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    room = bytearray(size)
    lib.pn_data_encode(data, _from_buffer(room), size)
    return bytes(room)
