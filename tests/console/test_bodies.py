"""Bodies as pages show them: JSON in lines, no longer than what is shown."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import msgspec
import pytest

from babelgate.console import bodies
from babelgate.console.indenting import indented
from tests.harness.hostile_requests import nested_numbers

_LEAVES: tuple[Any, ...] = (1, 1.5, -2e30, 'a"\\b,[]{}:é\n', "", None, True, False, [], {}, "x" * 30)


def made(chance, depth=0):
    kind = chance.random()
    if depth > 5 or kind < 0.4:
        return chance.choice(_LEAVES)
    if kind < 0.7:
        return [made(chance, depth + 1) for _ in range(chance.randrange(5))]
    names = [chance.choice(["k", "a b", '"{', ""]) + str(number) for number in range(chance.randrange(5))]
    return {name: made(chance, depth + 1) for name in names}


def test_the_lines_are_those_of_a_formatter():
    chance = random.Random(7)
    for _ in range(300):
        value = made(chance)
        for text in (json.dumps(value), json.dumps(value, indent=3), json.dumps(value, ensure_ascii=False)):
            expected = msgspec.json.format(text.encode(), indent=2).decode()
            assert indented(text, len(expected) + 1) == (expected, 0)
            assert indented(text, 40)[0] == expected[:40]
            assert (indented(text, 40)[1] == 0) == (len(expected) <= 40)


def test_literals_stay_as_they_are():
    assert bodies.pretty(b'{"n":1.10,"e":1E400,"s":"\\u00e9"}') == (
        '{\n  "n": 1.10,\n  "e": 1E400,\n  "s": "\\u00e9"\n}',
        0,
    )


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":}', b"[1] 2", b"\xff", b'["\xff"]', b"[" * 100_000])
def test_what_is_no_json_has_no_lines(body):
    assert bodies.pretty(body) is None


@pytest.mark.parametrize(
    "body",
    [nested_numbers(1 << 20), b'"%b"' % (b"x" * (1 << 20)), b" " * (1 << 20) + b"[1]", b"[" * 500 + b"]" * 500],
    ids=["numbers in many lists", "one string", "spaces", "lists only"],
)
def test_what_is_shown_of_a_body_takes_no_more_memory_than_the_body(body):
    tracemalloc.start()
    try:
        shown = bodies.pretty(body)
        text = bodies.editable(body)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown is not None and len(shown.text) <= bodies.SHOWN_CHARACTERS
    assert len(text) <= max(len(body), 10 * bodies.SHOWN_CHARACTERS)
    assert most < 8 * (1 << 20)


def test_a_small_body_is_edited_in_lines():
    assert bodies.editable(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert bodies.editable(b"\xff{") == "\\xff{"
    deep = b"[" * 400 + b",".join([b"0"] * 5_000) + b"]" * 400
    assert bodies.editable(deep) == deep.decode()
