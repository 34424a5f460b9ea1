"""The native form of a message: what a publish writes to the broker, for a dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from babelgate.brokers.binding import Binding, NativeQueue, Outgoing


class NativeHeader(Struct, frozen=True):
    """A native header: its ``value`` and the ``type`` that the broker stores, by the broker's own name."""

    type: str
    value: Any


class NativeWrite(Struct, frozen=True):
    """One write of a publish, in the broker's own words.

    ``operation``: the command or statement. ``target``: where it writes. ``fields``: the values beside body and
    headers. ``body``: the bytes of the message as stored; None for a write without a body. ``assigned``: the names of
    the ``fields`` and ``headers`` that get their value when the message is written; they show a value of the kind that
    they would get. Values are JSON.
    """

    operation: str
    target: Mapping[str, str | bool]
    fields: Mapping[str, Any] = {}
    headers: Mapping[str, NativeHeader] = {}
    body: bytes | None = None
    assigned: Sequence[str] = ()


@runtime_checkable
class Projects(Protocol):
    """A broker whose native messages have more than a body and text headers."""

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """What ``publish`` would write, made by the code of ``publish``; no I/O.

        Raises BrokerRejected for a message that the binding cannot write.
        """


async def native_writes(binding: Binding, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
    """What ``binding`` would write for ``message``; see :meth:`Projects.projection`.

    For a binding without a projection of its own: the message as the binding gets it.
    """
    if isinstance(binding, Projects):
        return await binding.projection(queue, message)
    given = {"delay_seconds": message.delay_seconds or None, "ordering_key": message.ordering_key}
    return [
        NativeWrite(
            "publish",
            {"queue": queue.name},
            {name: value for name, value in given.items() if value is not None} | dict(message.properties),
            {name: NativeHeader("text", value) for name, value in message.headers.items()},
            message.body,
        )
    ]
