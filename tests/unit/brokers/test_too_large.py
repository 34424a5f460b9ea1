"""What a client is told of a message that is too large for its broker."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.brokers.errors import too_large
from babelgate.errors import BodyTooLarge, UnsupportedByBroker


@pytest.mark.parametrize(
    ("body", "header", "excess", "actual", "limit"), [(1000, 1, 10, 1000, 990), (50, 50, 10, 50, 40), (9, 9, 99, 9, 0)]
)
def test_a_body_that_is_the_larger_part_is_too_large(
    body: int, header: int, excess: int, actual: int, limit: int
) -> None:
    error = too_large(Outgoing(b"b" * body, {"h": "v" * (header - 1)}), excess, "far")
    assert isinstance(error, BodyTooLarge)
    assert (error.actual, error.limit) == (actual, limit)


def test_headers_that_are_the_larger_part_are_named() -> None:
    error = too_large(Outgoing(b"b" * 50, {"ü": "v" * 60, "w": "x"}), 10, "far")
    assert isinstance(error, UnsupportedByBroker)
    assert (error.problem_code, error.pointer) == ("header_unsupported", "/headers")
    assert "have 64 bytes, and at most 54 are possible" in error.reason


@pytest.mark.parametrize("copied", [{"failure": LastFailure(1)}, {"carried": "native parts"}])
def test_the_headers_of_a_copy_are_not_the_callers(copied: dict[str, Any]) -> None:
    error = too_large(Outgoing(b"b" * 50, {"h": "v" * 60}, **copied), 10, "far")
    assert isinstance(error, BodyTooLarge)
    assert (error.actual, error.limit) == (50, 40)
