"""Options of a message that the request and the body may both give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from babelgate.envelope import Publication
from babelgate.errors import EnvelopeError, Problem

Given = TypeVar("Given", str, float, Mapping[str, Any])


def agreed(option: str, parameter: str, given: Given, member: Given | None) -> Given:
    """The value of an option that the request gives as ``given`` and the body as ``member``.

    Raises EnvelopeError when both are given and differ: neither takes precedence. ``parameter`` says where the request
    gives it.
    """
    if member is not None and given != member:
        detail = f"{option} of the body differs from {parameter}: send one of them, or the same value in both."
        raise EnvelopeError([Problem(f"/{option}", f"{option}_mismatch", detail)])
    return given


def with_options(publication: Publication, options: Mapping[str, Any]) -> Publication:
    """``publication`` with the ``options`` of the query, by name. Raises EnvelopeError as :func:`agreed`."""
    for name, value in options.items():
        agreed(name, f"the query parameter {name}", value, getattr(publication, name))
    return replace(publication, **options)


def delay_until(deliver_at: int, delay_seconds: float | None, now: int) -> float:
    """The seconds from ``now`` until ``deliver_at`` (Unix ms), 0 for a time in the past.

    Raises EnvelopeError for a message that has ``delay_seconds``, too.
    """
    if delay_seconds is not None:
        detail = "delay_seconds and deliver_at both delay the message: send one of them."
        raise EnvelopeError([Problem("/deliver_at", "deliver_at_mismatch", detail)])
    return max(deliver_at - now, 0) / 1000
