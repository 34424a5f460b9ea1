"""The members of ``meta`` that records keep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from babelgate.observe.journal.kept_meta import MAX_META_BYTES, MAX_VALUE, KeptMeta, joined, split

NAMES = ("tenant", "ext.shop.tenant", "ext.shop.order", "ext")


def body(meta: Any) -> bytes:
    return json.dumps({"job": "j", "data": {"meta": {"tenant": "no"}}, "meta": meta}).encode()


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        ({"tenant": "north"}, {"tenant": "north"}),
        (
            {"ext": {"shop": {"tenant": "é=\u2028😀", "order": 4711}}},
            {"ext.shop.tenant": "é=\u2028😀", "ext.shop.order": "4711"},
        ),
        ({"ext": "all", "tenant": True}, {"ext": "all", "tenant": "true"}),
        ({"tenant": -1.5e300}, {"tenant": "-1.5e+300"}),
        ({"tenant": "x" * MAX_VALUE}, {"tenant": "x" * MAX_VALUE}),
        ({"tenant": "😀" * MAX_VALUE}, {"tenant": "😀" * MAX_VALUE}),
        ({"tenant": "a\ud800b", "ext": "b"}, None),
        ({"tenant": "x" * (MAX_VALUE + 1)}, None),
        ({"tenant": int("9" * (MAX_VALUE + 1))}, None),
        ({"tenant": ""}, None),
        ({"tenant": None}, None),
        ({"tenant": ["a"]}, None),
        ({"tenant": {"a": 1}}, None),
        ({"ext": {"shop": ["tenant"]}}, None),
        ({"ext": {"tenant": "other"}}, None),
        ({"tenant": "a", "more": "x" * MAX_META_BYTES}, None),
        ([], None),
        (None, None),
    ],
)
def test_what_is_kept(meta: Any, kept: dict[str, str] | None) -> None:
    assert KeptMeta(NAMES).read(body(meta)) == (UNSET if kept is None else kept)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b"\xff", b'{"job": "j"}', b'{"meta": {"tenant": "\xff"}}', b'{"meta": ' + b"[" * 5000],
    ids=range(7),
)
def test_what_is_no_envelope_has_none(text: bytes) -> None:
    assert KeptMeta(NAMES).read(text) is UNSET


def test_of_members_that_come_twice_the_last_one_counts() -> None:
    assert KeptMeta(["tenant"]).read(b'{"meta":{"tenant":"a","tenant":"b"}}') == {"tenant": "b"}


def test_a_value_may_have_the_sign_between_both() -> None:
    (text,) = joined({"ext.tenant": "a=b"})
    assert split(text) == ("ext.tenant", "a=b")
