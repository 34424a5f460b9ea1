"""Rules that can never match are warned of."""

from __future__ import annotations

import pytest

from app.gateway.route_warnings import unused


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["queues.*", "queues.orders.*"], {"queues.orders.*": "queues.*"}),
        (["queues.orders.*", "queues.*"], {}),
        (["queues.orders", "queues.*"], {}),
        (["queues.a.*", "queues.*.b"], {}),
        (["queues.a*", "queues.a.*", "queues.ab*"], {"queues.a.*": "queues.a*", "queues.ab*": "queues.a*"}),
        (["queues.*", "default"], {"default": "queues.*"}),
        (["queues.a*", "default"], {}),
    ],
)
def test_a_rule_behind_one_that_matches_all_its_queues(keys: list[str], found: dict[str, str]) -> None:
    assert [(line.split()[0], line.split()[5]) for line in unused(keys)] == list(found.items())
