"""Bodies that are hard for a codec: from the official conformance suite, written by hand, and generated."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.unit.envelope.strategies import bodies, near_ordinary

_META = b'{"id":"i","queue":"q","lang":"go","schema_version":1,"created_at":5}'
_ENVELOPE = b'{"job":"urn:a","trace_id":"t","data":%b,"meta":' + _META + b',"attempts":0}'

BY_HAND = [
    b"",
    b"\x00",
    b"\xff\xfe{}",
    b"\xef\xbb\xbf" + _ENVELOPE % b"{}",
    b"NaN",
    b"null",
    b"[" * 10_000 + b"]" * 10_000,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    _ENVELOPE % b"{}" + b"{}",
    (_ENVELOPE % b"{}")[:-1],
    *(
        _ENVELOPE % (b'{"n":%b}' % value)
        for value in (
            b"NaN",
            b"-Infinity",
            b"1e400",
            b"-1e400",
            b"9" * 400,
            b"9" * 5000,
            b"-0",
            b"1.10",
            b"1E5",
            b"0.1e-400",
            b"01",
            b'"\xff"',
            b'"\xed\xa0\x80"',
            rb'"\ud800"',
            rb'"\ud83d\ude80 \u00e9 \/ \u0000"',
            b'"\x00"',
            b'"\xe2\x80\xa8"',
            b"'a'",
            b"1,",
            b"[1,]",
            b'{"a":1,"a":2}',
            b"[" * 509 + b"]" * 509,
            b"[" * 510 + b"]" * 510,
            b"[" * 511 + b"]" * 511,
            b"[" * 10_000 + b"]" * 10_000,
            b'"' + b"x" * 1_000_000 + b'"',
        )
    ),
]


def of_the_suite(folder: Path) -> list[bytes]:
    """Every body that the conformance suite in ``folder`` holds."""
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    files = sorted((folder / "fixtures").iterdir())
    return [*(path.read_bytes() for path in files if path.is_file()), *_within(manifest)]


def _within(node: Any) -> Iterator[bytes]:
    if isinstance(node, dict):
        if isinstance(node.get("body"), str):
            yield node["body"].encode(errors="surrogatepass")
        if isinstance(node.get("body_base64"), str):
            yield b64decode(node["body_base64"])
        for inner in node.values():
            yield from _within(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _within(inner)


def generated(examples: int) -> list[bytes]:
    """About ``examples`` different bodies, the same in every run."""
    found: dict[bytes, None] = {}

    @seed(20_000)
    @settings(
        max_examples=examples,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(st.one_of(bodies(), near_ordinary()))
    def collect(body: bytes) -> None:
        found[body] = None

    collect()
    return list(found)
