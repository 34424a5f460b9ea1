"""The rate and the size of the token of a page."""

from __future__ import annotations

import pytest

from babelgate.errors import BodyTooLarge
from babelgate.gateway.buckets import RateExceeded
from babelgate.gateway.page_tokens import PageTerms


class Seconds:
    now = 1_000_000.7

    def __call__(self):
        return self.now


def accepted(terms, tries):
    count = 0
    for _ in range(tries):
        try:
            terms.take(1)
        except RateExceeded:
            continue
        count += 1
    return count


@pytest.mark.parametrize("per_minute", [1, 7, 60, 10_000])
def test_as_many_as_the_rate_at_once_and_then_evenly(per_minute):
    clock = Seconds()
    terms = PageTerms([], per_minute, 10, clock)
    assert accepted(terms, per_minute * 2) == per_minute
    clock.now += 30
    assert accepted(terms, per_minute * 2) == per_minute // 2
    clock.now += 3_600
    assert accepted(terms, per_minute * 2) == per_minute


def test_a_refusal_says_when_it_is_over():
    clock = Seconds()
    terms = PageTerms([], 6, 10, clock)
    assert accepted(terms, 6) == 6
    for passed in (0, 4, 5.5):
        clock.now = Seconds.now + passed
        with pytest.raises(RateExceeded) as caught:
            terms.take(1)
        clock.now += caught.value.facts["retry_after"]
        before = terms._bucket._empty_at
        terms.take(1)
        terms._bucket._empty_at = before


def test_a_message_that_is_too_large_does_not_count():
    terms = PageTerms([], 1, 10, Seconds())
    with pytest.raises(BodyTooLarge) as caught:
        terms.take(11)
    assert caught.value.facts == {"actual": 11, "limit": 10}
    terms.take(10)
