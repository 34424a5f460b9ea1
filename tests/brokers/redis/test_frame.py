"""Frames: what the SDKs write, and what only looks like it."""

from __future__ import annotations

import json

import pytest

from babelgate.brokers.redis.layouts.list import frame, unframe

BODY = '{"job":"urn:a","data":{"name":"Café ☕ \\" \\\\ "}}'.encode()


def test_there_and_back() -> None:
    assert unframe(frame(BODY, {"traceparent": "00-ab", "x": "é"})) == (BODY, {"traceparent": "00-ab", "x": "é"})


def test_the_bytes() -> None:
    assert frame(b'{"a":1}', {"x": "y"}) == b'{"__bq_frame":1,"headers":{"x":"y"},"body":"{\\"a\\":1}"}'


@pytest.mark.parametrize("headers", [{}, {"": "x"}, {"x": ""}], ids=str)
def test_without_a_usable_header_there_is_no_frame(headers: dict[str, str]) -> None:
    assert frame(BODY, headers) is BODY


@pytest.mark.parametrize(
    "element",
    [
        b"",
        b"\xff\xfe",
        b'"__bq_frame"',
        b'["__bq_frame"]',
        b' {"__bq_frame":1,"body":"x"}',
        b'{"__bq_frame":0,"body":"x"}',
        b'{"__bq_frame":1}',
        b'{"__bq_frame":1,"body":7}',
        b'{"__bq_frame":1,"body":"\\ud800"}',
        b'{"__bq_frame":1,"body":"\xff"}',
        b'{"__bq_frame":1,"body":"x"',
        b'{"data":{"text":"\\"__bq_frame\\""}}',
        b'{"__bq_frame":' + b"[" * 100_000,
    ],
    ids=lambda element: repr(element[:40]),
)
def test_what_is_no_frame_is_a_body(element: bytes) -> None:
    assert unframe(element) == (element, {})


def test_headers_that_are_no_texts() -> None:
    whole = {"__bq_frame": 1, "headers": {"n": 7, "none": None, "": "x"}, "body": "b"}
    assert unframe(json.dumps(whole).encode()) == (b"b", {"n": "7"})
    assert unframe(b'{"__bq_frame":1,"headers":[],"body":"b"}') == (b"b", {})
