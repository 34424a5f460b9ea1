"""Which broker properties a publish may set, as each binding defines them: their names, types and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from babelgate.errors import Problem


class PropertyRules:
    """The rules of a broker that has no such properties, and the base class of others. An iteration gives the names."""

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def problems(
        self, given: Mapping[str, Any], delay_seconds: float | None, ordering_key: str | None
    ) -> Iterator[Problem]:
        """Yield the problems of ``given``, JSON values by their names, beside the other options of a message. The
        pointers begin with ``/broker_properties``. A property that is null is one that is not given."""
        return iter(())

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return properties without problems, in the types that the binding's ``publish`` expects."""
        return {}


NO_PROPERTIES = PropertyRules()
