"""OptionMap become typed values; every refusal names its key and quotes no value."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.options import (
    ANY_TEXT,
    BOOLEAN,
    POSITIVE_SECONDS,
    TEXT,
    OptionMap,
    OptionReader,
    choice,
    optional,
    seconds,
    timeout_of,
    whole,
)
from babelgate.errors import ConfigError

WORDS: OptionReader[str] = choice("full", "normal", "off")


@pytest.mark.parametrize(
    ("reader", "value", "expected"),
    [
        (TEXT, "x", "x"),
        (ANY_TEXT, "", ""),
        (BOOLEAN, False, False),
        (seconds(0.5, 30), 3, 3.0),
        (POSITIVE_SECONDS, 0.1, 0.1),
        (whole(0, 5), 5, 5),
        (whole(0), 10**12, 10**12),
        (WORDS, "off", "off"),
        (optional(whole(1), "none"), None, None),
        (optional(whole(1), "none"), 7, 7),
    ],
)
def test_a_value_of_yaml(reader: OptionReader[Any], value: object, expected: object) -> None:
    options = OptionMap({"key": value})
    read = options.read("key", reader, "default")
    assert read == expected and type(read) is type(expected)
    options.finish()


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [
        (BOOLEAN, "True", True),
        (seconds(0.5, 30), "2.5", 2.5),
        (whole(1, 3600), "60", 60),
        (optional(whole(1), "none"), "3", 3),
        (TEXT, "60", "60"),
    ],
)
def test_a_text_of_a_query(reader: OptionReader[Any], text: str, expected: object) -> None:
    assert OptionMap({"key": text}, texts=True).read("key", reader, None) == expected
    if not isinstance(expected, str):
        with pytest.raises(ConfigError):
            OptionMap({"key": text}).read("key", reader, None)


@pytest.mark.parametrize(
    ("reader", "value", "reason"),
    [
        (TEXT, "", "a text is expected"),
        (TEXT, 3, "a text is expected"),
        (ANY_TEXT, None, "a text is expected"),
        (BOOLEAN, "hunter2", "true or false is expected"),
        (seconds(0.5, 30), True, "a number of seconds from 0.5 to 30 is expected"),
        (seconds(0.5, 30), float("nan"), "a number of seconds from 0.5 to 30 is expected"),
        (POSITIVE_SECONDS, 0, "a number of seconds above 0 is expected"),
        (POSITIVE_SECONDS, 10**400, "a number of seconds above 0 is expected"),
        (POSITIVE_SECONDS, "9" * 5_000, "a number of seconds above 0 is expected"),
        (seconds(0.5, 30), 10**4_000, "a number of seconds from 0.5 to 30 is expected"),
        (whole(0, 5), "9" * 5_000, "a whole number from 0 to 5 is expected"),
        (whole(0, 5), 6, "a whole number from 0 to 5 is expected"),
        (whole(0, 5), 1.0, "a whole number from 0 to 5 is expected"),
        (whole(1, what="a number"), "٣", "a number from 1 is expected"),
        (WORDS, "hunter2", "full, normal or off is expected"),
        (WORDS, ["full"], "full, normal or off is expected"),
        (optional(whole(1, what="a number"), "none"), 0, "a number from 1, or null for none, is expected"),
    ],
)
@pytest.mark.parametrize("texts", [False, True], ids=["yaml", "query"])
def test_what_is_refused(reader: OptionReader[Any], value: object, reason: str, texts: bool) -> None:
    with pytest.raises(ConfigError) as refused:
        OptionMap({"key": value}, texts=texts).read("key", reader, None)
    assert (refused.value.key, refused.value.reason) == ("key", reason)


def test_a_missing_option_has_its_default() -> None:
    assert OptionMap({}).read("key", whole(1), 60) == 60


def test_unknown_options_name_the_known_ones() -> None:
    options = OptionMap({"a": 1, "secret": "hunter2"})
    options.read("a", whole(0), 0)
    options.read("b", whole(0), 0)
    with pytest.raises(ConfigError) as refused:
        options.finish(" in the layout list")
    assert (refused.value.key, refused.value.reason) == ("secret", "unknown in the layout list; known are a, b")
    with pytest.raises(ConfigError) as refused:
        OptionMap({"a": 1}).finish()
    assert refused.value.reason == "unknown; none is known"


def test_an_option_is_given_once() -> None:
    options = OptionMap({"password": "hunter2"})
    with pytest.raises(ConfigError) as refused:
        options.add("password", "hunter3")
    assert refused.value.key == "password" and "hunter" not in str(refused.value)


def test_an_option_that_does_not_fit_is_refused_only_where_it_is_given() -> None:
    options = OptionMap({"keyfile": "x"})
    options.refuse("certfile", "unused")
    with pytest.raises(ConfigError, match="certfile is expected beside it"):
        options.refuse("keyfile", "certfile is expected beside it")
    assert "keyfile" in options and "certfile" not in options


def test_the_time_out_of_every_driver() -> None:
    assert timeout_of({"a": 1}) == (2.0, {"a": 1})
    assert timeout_of({"timeout_seconds": 5}) == (5.0, {})
    with pytest.raises(ConfigError) as refused:
        timeout_of({"timeout_seconds": "2"})
    assert refused.value.key == "timeout_seconds"
