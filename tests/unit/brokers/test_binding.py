"""The data of the Binding protocol."""

from __future__ import annotations

import pytest

from babelgate.brokers.binding import NativeQueue


def test_the_options_of_a_queue_have_their_type() -> None:
    assert NativeQueue("orders", 3).options_as(int) == 3


def test_the_queue_of_another_binding_is_refused() -> None:
    with pytest.raises(TypeError, match="orders"):
        NativeQueue("orders").options_as(int)
