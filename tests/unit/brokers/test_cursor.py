"""Cursors lead back to their position; anything else is an invalid parameter."""

from __future__ import annotations

import pytest

from babelgate.brokers import cursor
from babelgate.errors import InvalidParameter


@pytest.mark.parametrize("position", [0, 1, 100, 10**18 - 1])
def test_a_cursor_leads_back(position: int) -> None:
    assert cursor.decode(cursor.encode(position)) == position


def test_no_cursor_is_the_beginning() -> None:
    assert cursor.decode(None) == 0


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", " 1", "9" * 19, "٣", "1\n"])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        cursor.decode(text)
    assert refused.value.name == "cursor"
