"""The lines that pointers lead to, in any text."""

from __future__ import annotations

import json
import random
import time

import pytest

from babelgate.console.places import MAX_CHARACTERS, lines_of
from babelgate.jsontext import pointer

TEXT = """{
  "job": "urn:a",
  "data": {
    "a/b~": [1, {"x": "{\\"x\\": ["},
      [
        true,
        {"y": "\\u0061"}]],
    "\\u00e9": {}
  }
}"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("/job", 2),
        ("/data", 3),
        ("/data/a~1b~0", 4),
        ("/data/a~1b~0/0", 4),
        ("/data/a~1b~0/1/x", 4),
        ("/data/a~1b~0/2", 5),
        ("/data/a~1b~0/2/0", 6),
        ("/data/a~1b~0/2/1/y", 7),
        ("/data/é", 8),
        ("/data/é/absent/below", 8),
        ("/data/absent", 3),
        ("/data/a~1b~0/9", 4),
        ("/absent", None),
        ("", None),
    ],
)
def test_a_place_has_its_line(place, line):
    assert lines_of(TEXT, [place]) == ({} if line is None else {place: line})
    assert lines_of(TEXT.replace("\n", "\r\n"), [place, "/data"]).get(place) == line


def test_the_last_of_two_members_counts():
    assert lines_of('{"a": [\n1],\n"a": [\n\n2]}', ["/a", "/a/0"]) == {"/a": 3, "/a/0": 5}


def test_every_value_of_a_formatted_text_is_at_its_line():
    """A formatter writes each member and each element in a line of its own."""
    chance = random.Random(3)

    def made(depth):
        if depth > 4 or chance.random() < 0.3:
            return chance.choice([1, 'a\n"[{,:', None, {}, []])
        if chance.random() < 0.5:
            return [made(depth + 1) for _ in range(chance.randrange(4))]
        return {chance.choice(["k", 'a "b', "é/~", ""]) + str(number): made(depth + 1) for number in range(3)}

    def places(value, path=()):
        below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, each in below:
            yield (*path, name)
            yield from places(each, (*path, name))

    for _ in range(60):
        value = {"data": made(0)}
        lines = json.dumps(value, indent=1).split("\n")
        found = lines_of("\n".join(lines), [pointer(*path) for path in places(value)])
        # In the order of the text, a line has one place, and ends of objects and arrays have none.
        own = [number for number, line in enumerate(lines, 1) if line.strip(" ,") not in ("{", "}", "]")]
        opens = [number for number, line in enumerate(lines, 1) if number > 1 and line.strip(" ,") == "{"]
        assert sorted(found.values()) == sorted({*own, *opens} - {1}), lines


@pytest.mark.parametrize(
    "text", ["", "{", "]]}}", '{"a', '"\\ud800":', '{"\\x": 1, "a": [}', "[" * 100_000, "{:,:,{:}}", '{"a":1}{"a":2}']
)
def test_what_is_no_json_fails_nothing(text):
    assert set(lines_of(text, ["/a", "/a/0", "/b"])) <= {"/a", "/a/0", "/b"}


@pytest.mark.parametrize("text", ["[" * MAX_CHARACTERS, "1," * (MAX_CHARACTERS // 2), '"\\' * 90_000, '{"a":' * 30_000])
def test_it_takes_a_moment_for_any_text(text):
    began = time.process_time()
    lines_of(text, [f"/a/{number}" for number in range(100)])
    assert time.process_time() - began < 5
    assert lines_of("[" * (MAX_CHARACTERS + 1), ["/0"]) == {}
