"""Patterns and templates of queue names: exact, and in linear time for any name and text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.gateway.names import Pattern, Template

SECONDS = 5
"""Of CPU, for what takes a millisecond; a search that tries each way to divide a name takes minutes."""


@pytest.mark.parametrize(
    ("text", "queue", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders.new", False),
        ("orders", "my.orders", False),
        ("orders.*", "orders.new", True),
        ("orders.*", "orders.", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersXnew", False),
        ("*.new", "orders.new", True),
        ("*.new", "orders.new.eu", False),
        ("a*b*c", "a.b.c", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("*", "anything", True),
        ("[ab]", "a", False),
        ("a?", "ab", False),
        ("Orders", "orders", False),
        ("orders", "orders\n", False),
    ],
)
def test_a_pattern_knows_the_star_and_nothing_else(text: str, queue: str, matches: bool) -> None:
    assert Pattern(text).matches(queue) is matches


@given(st.text("ab*", max_size=8), st.text("ab*.", max_size=12))
def test_a_pattern_matches_what_a_regular_expression_matches(text: str, name: str) -> None:
    expression = ".*".join(map(re.escape, text.split("*")))
    assert Pattern(text).matches(name) is (re.fullmatch(expression, name, re.DOTALL) is not None)


@given(st.lists(st.text("ab", max_size=3), min_size=2, max_size=4), st.text("ab", max_size=12))
def test_a_template_finds_the_text_that_a_back_reference_finds(parts: list[str], name: str) -> None:
    before, *after = parts
    found = re.fullmatch(f"{before}(?P<text>.+){'(?P=text)'.join(after)}", name)
    assert Template(parts).inserted(name) == (None if found is None else found["text"])


@given(st.lists(st.text("ab{", max_size=3), min_size=2, max_size=4), st.text("ab{", min_size=1, max_size=5))
def test_a_template_finds_every_text_that_was_inserted(parts: list[str], text: str) -> None:
    assert Template(parts).inserted(text.join(parts)) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("*.orders.*", ".orders." * 7_400),
        ("*.orders.*.x", ".orders." * 7_400),
        ("*-*-eu", "-" * 60_000),
        ("*a" * 60, "a" * 60_000 + "b"),
        ("*ab" * 40, "a" * 60_000),
    ],
)
def test_no_name_makes_a_pattern_slow(text: str, name: str) -> None:
    began = time.thread_time()
    assert Pattern(text).matches(name) is (text == "*.orders.*")
    assert time.thread_time() - began < SECONDS


def test_no_name_makes_a_template_slow() -> None:
    began = time.thread_time()
    assert Template(["", *["-"] * 15, ""]).inserted("-" * 60_000 + "x") is None
    assert time.thread_time() - began < SECONDS
