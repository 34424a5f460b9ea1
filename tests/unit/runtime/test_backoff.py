"""Pauses double up to their bound, are shortened by at most half, and begin again after a success."""

from __future__ import annotations

from babelgate.runtime.backoff import Backoff


def test_pauses_double_up_to_the_bound() -> None:
    backoff = Backoff(1.0, 5.0)
    for whole in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert whole / 2 <= backoff.failed() <= whole


def test_a_success_begins_again() -> None:
    backoff = Backoff(1.0, 5.0)
    for _ in range(10):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= 1.0


def test_processes_do_not_retry_together() -> None:
    assert len({Backoff(1.0, 5.0).failed() for _ in range(20)}) > 1


def test_any_number_of_failures_is_bounded() -> None:
    backoff = Backoff(0.2, 5.0)
    assert max(backoff.failed() for _ in range(2000)) <= 5.0
