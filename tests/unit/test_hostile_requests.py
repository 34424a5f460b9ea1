"""The corpus of hostile requests waits for messages that a receive without an answer has locked."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.harness.hostile_requests import _RETURN_SECONDS, _receive
from tests.harness.limits import limit_of

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


def test_tokens_from_before_a_receive_without_an_answer_are_left() -> None:
    """Their leases end while the locked messages come back."""
    ended = httpx.Response(200, json={"messages": [{"ack_token": "ended"}]})
    with client(ended, UNANSWERED, EMPTY, ONE, ONE) as asking:
        assert _receive(asking, "q", 2) == ["t", "t"]


def test_a_message_that_is_missing_is_noticed_before_the_limit_of_a_test() -> None:
    """Also after a receive without an answer, in the second third of the time."""
    limit = limit_of("tests/http/test_stalls.py::test_a_case")
    assert limit is not None
    assert limit > 3 * _RETURN_SECONDS


@pytest.mark.parametrize("before", [(), (ONE,)])
def test_messages_are_missing_where_each_receive_was_answered(before: tuple[httpx.Response, ...]) -> None:
    with client(*before, EMPTY) as asking, pytest.raises(AssertionError, match="a message is missing"):
        _receive(asking, "q", 2)
