"""The options of a message: they say how it is published, and are not part of its body.

They stand beside ``envelope`` in an entry, and beside ``job`` and ``data`` in a draft. A new option is a line of
OPTIONS and a field of :class:`babelgate.envelope.contract.Publication`; the codec takes the names from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from babelgate.envelope.contract import INT64_MAX, is_int64, is_text
from babelgate.errors import Problem
from babelgate.jsontext import is_encodable, is_number, pointer

IDEMPOTENCY_KEY = re.compile(r"[ -~]{1,255}")
"""The characters of a string in a structured field (RFC 9651, section 3.3.3); the length is the project's own."""

MAX_ORDERING_KEY = 1_024
"""Maximum characters of an ordering key; the project's own."""

MAX_TTL_SECONDS = 315_360_000
"""Ten years, ours: the longest time to live of a message."""

MAX_PRIORITY = 9
"""The highest priority: that of JMS, which all brokers with priorities have."""

EXPIRES_AT_HEADER = "babelgate-expires-at"
"""The native header with the time at which a message expires, in Unix ms as decimal digits, or NEVER_EXPIRES."""

NEVER_EXPIRES = "never"
"""The value in a redriven message: bindings that copy native headers replace a header, and do not remove one."""

_HEADERS = "invalid_headers"


def _delay_problems(value: Any) -> Iterator[Problem]:
    if not is_number(value, 0):
        yield Problem("/delay_seconds", "invalid_delay", "delay_seconds must be a finite number, 0 or more.")


def _deliver_at_problems(value: Any) -> Iterator[Problem]:
    if not (is_int64(value) and value >= 0):
        detail = f"deliver_at must be Unix milliseconds, an integer from 0 to {INT64_MAX}."
        yield Problem("/deliver_at", "invalid_deliver_at", detail)


def _ttl_problems(value: Any) -> Iterator[Problem]:
    if not (is_number(value, 0, MAX_TTL_SECONDS) and value > 0):
        detail = f"ttl_seconds must be a number above 0 and at most {MAX_TTL_SECONDS}."
        yield Problem("/ttl_seconds", "invalid_ttl", detail)


def _priority_problems(value: Any) -> Iterator[Problem]:
    if not (is_int64(value) and 0 <= value <= MAX_PRIORITY):
        yield Problem("/priority", "invalid_priority", f"priority must be an integer from 0 to {MAX_PRIORITY}.")


def _ordering_key_problems(value: Any) -> Iterator[Problem]:
    if not (is_text(value) and len(value) <= MAX_ORDERING_KEY and is_encodable(value)):
        detail = f"ordering_key must be a string of 1 to {MAX_ORDERING_KEY} characters that is not blank."
        yield Problem("/ordering_key", "invalid_ordering_key", detail)


def _header_problems(value: Any) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem("/headers", _HEADERS, "headers must be an object of strings.")
        return
    for name, text in value.items():
        if not is_text(name) or not is_encodable(name):
            yield Problem("/headers", _HEADERS, "The name of a header must not be blank.")
        elif not isinstance(text, str) or not text or not is_encodable(text):
            detail = "The value of a header must be a string that is not empty."
            yield Problem(pointer("headers", name), _HEADERS, detail)


def _idempotency_key_problems(value: Any) -> Iterator[Problem]:
    if not (isinstance(value, str) and IDEMPOTENCY_KEY.fullmatch(value)):
        detail = "idempotency_key must be a string of 1 to 255 printable ASCII characters."
        yield Problem("/idempotency_key", "invalid_idempotency_key", detail)


def _broker_properties_problems(value: Any) -> Iterator[Problem]:
    """The binding checks their names and values, because each broker has others."""
    if not isinstance(value, dict):
        yield Problem("/broker_properties", "invalid_broker_properties", "broker_properties must be an object.")


OPTIONS: Final[Mapping[str, Callable[[Any], Iterator[Problem]]]] = {
    "delay_seconds": _delay_problems,
    "ordering_key": _ordering_key_problems,
    "headers": _header_problems,
    "idempotency_key": _idempotency_key_problems,
    "broker_properties": _broker_properties_problems,
    "deliver_at": _deliver_at_problems,
    "ttl_seconds": _ttl_problems,
    "priority": _priority_problems,
}
"""The problems of a value of each option. The value null stands for an option that is not given."""


def option_problems(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the options ``given``, none of which is None."""
    for name, value in given.items():
        yield from OPTIONS[name](value)
