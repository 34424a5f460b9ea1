"""The parts of qpid-proton's C engine that the emulator uses, without the Python objects around them.

proton's Python classes decode delivery tags as UTF-8 and cost most of the time of a transfer; the C functions below are
the same engine.
"""

from __future__ import annotations

from typing import Any

import cproton  # type: ignore[import-untyped]

from babelgate.brokers.artemis.engine import ACCEPTED as ACCEPTED
from babelgate.brokers.artemis.engine import MODIFIED as MODIFIED
from babelgate.brokers.artemis.engine import NULL as ENGINE_NULL
from babelgate.brokers.artemis.engine import REJECTED as REJECTED
from babelgate.brokers.artemis.engine import RELEASED as RELEASED
from babelgate.brokers.artemis.engine import ffi as ffi
from babelgate.brokers.artemis.engine import lib as lib
from babelgate.brokers.artemis.engine import next_event as next_event
from babelgate.brokers.artemis.engine import pull as pull
from babelgate.brokers.artemis.engine import push as push
from babelgate.brokers.artemis.engine import receive as receive
from tools.servicebus_emulator.codec import NULL, Value, decode, encode

_from_buffer = ffi.from_buffer
_buffer = ffi.buffer
_INFO = encode(("map", [(("symbol", "emulator"), ("boolean", True))]))

SETTLED_BY_SENDER = cproton.PN_SND_SETTLED
NO_TERMINUS = cproton.PN_UNSPECIFIED


def send(link: Any, tag: bytes, data: bytes, *, settled: bool) -> None:
    """Transfer a message."""
    delivery = lib.pn_delivery(link, (len(tag), _from_buffer(tag)))
    lib.pn_link_send(link, _from_buffer(data), len(data))
    lib.pn_link_advance(link)
    if settled:
        lib.pn_delivery_settle(delivery)


def tag(delivery: Any) -> bytes:
    """A delivery's tag."""
    raw = lib.pn_delivery_tag(delivery)
    return bytes(_buffer(raw.start, raw.size))


def text(pointer: Any) -> str:
    """A C string; empty for none."""
    return "" if pointer == ENGINE_NULL else ffi.string(pointer).decode()


def is_open(link: Any) -> bool:
    """Whether this end has attached the link."""
    return bool(lib.pn_link_state(link) & cproton.PN_LOCAL_ACTIVE)


def read(data: Any) -> Value:
    """The value that the engine decoded into ``data``."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return NULL
    room = bytearray(size)
    lib.pn_data_encode(data, _from_buffer(room), size)
    return decode(bytes(room))[0]


def write(data: Any, value: Value) -> None:
    """Set what the engine is to encode."""
    raw = encode(value)
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, _from_buffer(raw), len(raw))


def set_condition(condition: Any, name: str, description: str) -> None:
    """Set an error; with an info map, which the SDK requires."""
    lib.pn_condition_set_name(condition, name.encode())
    lib.pn_condition_set_description(condition, description.encode())
    info = lib.pn_condition_info(condition)
    lib.pn_data_clear(info)
    lib.pn_data_decode(info, _from_buffer(_INFO), len(_INFO))


def accept(delivery: Any) -> None:
    """Settle a received delivery as accepted."""
    lib.pn_delivery_update(delivery, ACCEPTED)
    lib.pn_delivery_settle(delivery)


def reject(delivery: Any, name: str, description: str) -> None:
    """Settle a delivery as rejected with an error."""
    set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), name, description)
    lib.pn_delivery_update(delivery, REJECTED)
    lib.pn_delivery_settle(delivery)


def echo(delivery: Any, outcome: int, *, failed: bool, undeliverable: bool) -> None:
    """Settle a delivery with the outcome that the receiver named."""
    if outcome == MODIFIED:
        local = lib.pn_delivery_local(delivery)
        lib.pn_disposition_set_failed(local, failed)
        lib.pn_disposition_set_undeliverable(local, undeliverable)
    lib.pn_delivery_update(delivery, outcome)
    lib.pn_delivery_settle(delivery)
