"""Forms are read as the standard library reads them, in pieces."""

from __future__ import annotations

import random
from urllib.parse import parse_qsl, quote_plus

import pytest

from babelgate.console.forms import fields


def made(chance, length):
    return quote_plus("".join(chance.choice("aé%&=+ ,😀") for _ in range(length)))


def test_a_form_is_read_as_by_the_standard_library():
    chance = random.Random(3)
    for length in (0, 1, 7, 3_000, 30_000):
        for _ in range(5):
            text = "&".join(f"{made(chance, chance.randrange(6))}={made(chance, length)}" for _ in range(3))
            assert fields(text) == dict(parse_qsl(text, keep_blank_values=True, errors="strict"))


@pytest.mark.parametrize("text", ["", "a", "=b", "&&", "a=1&a=2", "a=%zz&b=%", "%=1", "a=%f", "a=%3d&b=c=d"])
def test_what_no_browser_sends_is_read_as_well(text):
    assert fields(text) == dict(parse_qsl(text, keep_blank_values=True))


@pytest.mark.parametrize("text", ["a=%ff", "%e2%82=1", "&" * 1_000], ids=["bytes", "half a character", "many fields"])
def test_what_is_no_form_is_refused(text):
    with pytest.raises(ValueError):
        fields(text)
