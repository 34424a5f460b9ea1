"""Settings of queues and of the whole emulator, which a test changes through the control API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self


class _Changeable:
    def changed(self, values: Mapping[str, Any]) -> Self:
        """A copy with some values replaced; ValueError for an unknown name."""
        unknown = set(values) - {field.name for field in fields(self)}  # type: ignore[arg-type]
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
        return replace(self, **values)  # type: ignore[type-var]

    def json(self) -> dict[str, Any]:
        """The values by name."""
        return asdict(self)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class QueueSettings(_Changeable):
    """Settings of one queue. 0 turns a limit or a time off.

    ``max_size`` is the size of all messages of the queue and its dead letters, in bytes.
    """

    lock_seconds: float = 30
    max_delivery_count: int = 10
    requires_session: bool = False
    duplicate_detection_seconds: float = 0
    default_ttl_seconds: float = 0
    dead_letter_on_expiration: bool = False
    auto_delete_seconds: float = 0
    max_message_size: int = 1048576
    max_batch_size: int = 1048576
    max_size: int = 0
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Options(_Changeable):
    """Settings of the emulator.

    - ``auto_create``: the first link to a queue creates it; otherwise its attach is refused.
    - ``release_on_disconnect``: the end of a link unlocks the messages that it holds; otherwise they stay locked until
      their locks end.
    - ``session_wait_seconds``: the longest wait for the next available session, unless the client names another.
    """

    auto_create: bool = True
    release_on_disconnect: bool = False
    session_wait_seconds: float = 65
