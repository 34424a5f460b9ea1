"""Faults that a test switches on: each for one entity or all, for the next occurrences or until it is cleared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS = frozenset(
    (
        "drop_before_send",
        "drop_after_send",
        "drop_before_disposition",
        "drop_after_disposition",
        "drop_before_management",
        "drop_after_management",
        "throttle",
        "refuse_tokens",
        "unauthorized",
        "unauthorized_http",
        "hang",
    )
)


class Refused(Exception):
    """The broker refuses something: an error condition of AMQP and, for management, its status."""

    def __init__(self, condition: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
        self.status = status


@dataclass(slots=True)
class Fault:
    """``entity`` and ``operation`` None mean any; ``times`` None means until it is cleared.

    ``operation`` narrows ``throttle`` to "send", "attach" or "management", and the faults of management to the name of
    an operation without ``com.microsoft:``.
    """

    id: int
    kind: str
    entity: str | None
    operation: str | None
    times: int | None
    hits: int = 0

    def json(self) -> dict[str, Any]:
        """The fault as the control API reports it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "entity": self.entity,
            "operation": self.operation,
            "times": self.times,
            "hits": self.hits,
        }


class Faults:
    """The faults that are on."""

    def __init__(self) -> None:
        self.all: list[Fault] = []
        self._next = 1

    def add(self, kind: str, entity: str | None, operation: str | None, times: int | None) -> Fault:
        """Switch a fault on."""
        if kind not in KINDS:
            raise ValueError(f"unknown fault: {kind}")
        fault = Fault(self._next, kind, None if entity is None else entity.lower(), operation, times)
        self._next += 1
        self.all.append(fault)
        return fault

    def clear(self, identifier: int | None = None) -> None:
        """Switch one fault off, or all."""
        self.all = [fault for fault in self.all if identifier is not None and fault.id != identifier]

    def find(self, kind: str, entity: str | None, operation: str | None = None) -> Fault | None:
        """The fault that applies, without counting it."""
        for fault in self.all:
            if (
                fault.kind == kind
                and fault.times != 0
                and (fault.entity is None or fault.entity == entity)
                and (fault.operation is None or fault.operation == operation)
            ):
                return fault
        return None

    def hit(self, kind: str, entity: str | None, operation: str | None = None) -> bool:
        """Whether a fault applies; counts it."""
        if not self.all:
            return False
        fault = self.find(kind, entity, operation)
        if fault is None:
            return False
        fault.hits += 1
        if fault.times is not None:
            fault.times -= 1
        return True

    def hangs(self, entity: str | None) -> bool:
        """Whether the entity answers nothing."""
        return bool(self.all) and self.find("hang", entity) is not None
