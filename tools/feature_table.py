"""What a sender or a consumer can ask for on each broker: a table of docs/brokers.md.

A cell is what the gateway's own checks say, by the capabilities of the broker. Each row names the suite that asks for
it on each real broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from babelgate.errors import UnsupportedByBroker
from babelgate.gateway.routing import Policy, Route, Router, Rule
from tests.harness.broker import Variant

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "redis": {"frames": True},
    "rabbitmq": {"max_priority": 9},
    "rabbitmq-ojs": {"max_priority": 9},
}
"""The option of a route that gives a variant a feature."""


class Feature(NamedTuple):
    """A row. ``suite``: a module of ``tests.suites``, and its class. ``check``: what checks a publish that asks for the
    feature; None where the gateway has it on any broker."""

    title: str
    page: str
    suite: tuple[str, str]
    check: Callable[[Route], object] | None = None

    def cell(self, variant: Variant) -> str:
        """Whether the broker has it, alone or with an option of the route; else the code of the refusal."""
        if self.check is None or (refusal := _refusal(self.check, variant, {})) is None:
            return "yes"
        options = _OPTIONS.get(variant.name, {})
        if options and _refusal(self.check, variant, options) is None:
            return "with " + ", ".join(f"`{name}`" for name in options)
        return f"422 `{refusal}`"


def _refusal(check: Callable[[Route], object], variant: Variant, options: Mapping[str, Any]) -> str | None:
    rule = Rule("*", variant.binding(), Policy(), options={**variant.queue_options, **options})
    try:
        check(Router([], rule).route("sample"))
    except UnsupportedByBroker as error:
        return error.problem_code
    return None


_FRAMINGS, _OPTIONS_OF_MESSAGES = ("framings", "TestFramings"), ("options", "TestOptions")
FEATURES: Sequence[Feature] = (
    Feature("stream: Server-Sent Events", "streams.md", _FRAMINGS),
    Feature("stream: NDJSON", "streams.md", _FRAMINGS),
    Feature("stream: WebSocket", "streams.md#websocket", _FRAMINGS),
    Feature("push", "push.md", ("push", "TestPush")),
    Feature("CloudEvents in and out", "cloudevents.md", ("cloudevents", "TestCloudEvents")),
    Feature("`ttl_seconds`", "api.md#time-to-live", _OPTIONS_OF_MESSAGES, lambda route: route.check_ttl()),
    Feature("`priority`", "api.md#priority", _OPTIONS_OF_MESSAGES, lambda route: route.check_priority(None)),
    Feature("`deliver_at`", "api.md", _OPTIONS_OF_MESSAGES, lambda route: route.check_delay(1, "deliver_at")),
    Feature("pause", "api.md#pause", ("pause", "TestPause")),
)


def rows(variants: Sequence[Variant]) -> list[list[str]]:
    """A row for each feature: its title, a cell for each of ``variants``, and its suite."""
    return [
        [
            f"[{feature.title}]({feature.page})",
            *map(feature.cell, variants),
            f"[{feature.suite[0]}](../tests/suites/{feature.suite[0]}.py)",
        ]
        for feature in FEATURES
    ]
