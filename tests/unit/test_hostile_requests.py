"""The corpus of hostile requests waits for messages that a receive without an answer has locked."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.harness.hostile_requests import _receive

UNANSWERED = httpx.Response(503)
EMPTY = httpx.Response(200, json={"messages": []})
ONE = httpx.Response(200, json={"messages": [{"ack_token": "t"}]})


def client(*answers: httpx.Response) -> httpx.Client:
    """A client that gets these answers, one after the other."""
    left: Iterator[httpx.Response] = iter(answers)
    return httpx.Client(base_url="http://gateway", transport=httpx.MockTransport(lambda _: next(left)))


def test_messages_that_are_locked_come_back() -> None:
    with client(UNANSWERED, EMPTY, EMPTY, ONE) as asking:
        assert _receive(asking, "q", 1) == ["t"]


@pytest.mark.parametrize("before", [(), (ONE,)])
def test_messages_are_missing_where_each_receive_was_answered(before: tuple[httpx.Response, ...]) -> None:
    with client(*before, EMPTY) as asking, pytest.raises(AssertionError, match="a message is missing"):
        _receive(asking, "q", 2)
