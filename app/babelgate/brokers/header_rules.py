"""Which native headers a broker carries. The gateway refuses others before it writes anything, as far as that is known
without the broker; the bindings refuse what depends on its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from babelgate.errors import UnsupportedByBroker

_PER_HEADER = 8
"""Bytes of a header beside its name and value: lengths and types take no more in AMQP 0-9-1 and 1.0."""


@dataclass(frozen=True, slots=True)
class HeaderRules:
    """The rules of a broker. ``max_name_bytes`` of UTF-8; ``max_total_bytes``: of all names and values with 8 bytes for
    each header; ``reserved``: names of the broker's own; ``nul_in_names``: whether a name may have U+0000."""

    max_name_bytes: int | None = None
    max_total_bytes: int | None = None
    reserved: frozenset[str] = frozenset()
    nul_in_names: bool = True

    def refusal(self, headers: Mapping[str, str]) -> tuple[str | None, str] | None:
        """Why the broker cannot carry ``headers``: the name of the wrong one, None for all together, and a reason; None
        if it can."""
        for name in headers:
            if self.max_name_bytes is not None and (size := len(name.encode())) > self.max_name_bytes:
                return name, f"the name has {size} bytes, and at most {self.max_name_bytes} are possible"
            if name in self.reserved:
                return name, "the name is the broker's own"
            if not self.nul_in_names and "\0" in name:
                return name, "the name has the character U+0000"
        if self.max_total_bytes is not None:
            total = sum(len(name.encode()) + len(value.encode()) + _PER_HEADER for name, value in headers.items())
            if total > self.max_total_bytes:
                return None, f"all headers together have {total} bytes, and at most {self.max_total_bytes} are possible"
        return None


ANY_HEADERS = HeaderRules()
"""All names and values of texts."""


def header_refusal(broker: str, place: str, why: str) -> UnsupportedByBroker:
    """The error of a publish with headers that the broker cannot carry; ``place``: their pointer."""
    what = "the headers" if place == "/headers" else f"what is at {place[:100]}"
    reason = f"The broker {broker!r} cannot carry {what}: {why}."
    return UnsupportedByBroker("header_unsupported", place, reason)
