"""Capabilities tell brokers apart, and tests know little of a broker beside them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from babelgate.brokers.capabilities import REPORTS, BrokerCapabilities
from tests.architecture.sources import ROOT, tracked
from tests.brokers import registry
from tests.harness.broker import Broker
from tests.harness.memory import CAPABLE

OPTIONS: Mapping[str, Mapping[str, Any]] = {"servicebus": {"sessions": True}, "pulsar": {"key_shared": True}}
"""Options that change what a queue can do, by broker."""


def found() -> list[BrokerCapabilities]:
    """The capabilities of each variant, and with its :data:`OPTIONS`."""
    all_of_them = []
    for variant in registry.ALL:
        binding = variant.binding()
        for options in ({}, OPTIONS.get(variant.name, {})):
            queue = binding.native_queue("sample", {**variant.queue_options, **options})
            all_of_them.append(binding.capabilities(queue))
    return all_of_them


FOUND = found()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(BrokerCapabilities)])
def test_a_capability_tells_brokers_apart(name: str) -> None:
    values = [getattr(each, name) for each in FOUND]
    assert any(value != values[0] for value in values), "the same for all: no capability"


def test_each_value_of_a_capability_is_that_of_a_broker() -> None:
    for name, hint in get_type_hints(BrokerCapabilities).items():
        literals = [each for each in (hint, *get_args(hint)) if get_origin(each) is Literal]
        if get_origin(hint) not in (tuple, frozenset) and get_origin(hint) is not Mapping:
            values = {getattr(each, name) for each in FOUND}
            assert {value for literal in literals for value in get_args(literal)} <= values, name


@pytest.mark.parametrize("report", sorted(REPORTS))
def test_a_report_is_missing_somewhere(report: str) -> None:
    assert {report in each.reports for each in FOUND} == {True, False}


@pytest.mark.parametrize(
    ("purges", "counted_as", "counts"),
    [
        (("depth", "delayed"), {}, ("depth", "delayed")),
        (("depth",), {}, ("depth",)),
        (("depth", "delayed"), {"delayed": "depth"}, ("depth", "delayed")),
        (("depth", "in_flight", "delayed"), {"delayed": "in_flight"}, ("depth", "in_flight", "delayed")),
        (("depth", "delayed"), {"in_flight": "depth"}, ()),
        (("depth",), {"delayed": "depth"}, ()),
    ],
)
def test_a_purge_is_counted_where_its_counts_have_nothing_else(purges: Any, counted_as: Any, counts: Any) -> None:
    assert dataclasses.replace(CAPABLE, purges=purges, counted_as=counted_as).purge_counts == counts


def test_what_only_tests_know_is_set_by_a_harness_and_read_by_a_test() -> None:
    flags = {
        name
        for name, value in vars(Broker).items()
        if not name.startswith("_") and isinstance(value, bool | int | float | str | frozenset | tuple)
    }
    chosen = {
        "embedded",
        "costs_durability",
        "merges_equal_bodies",
        "repeats_writes",
        "spare_seconds",
        "unrenewed_seconds",
        "crowd",
        "far_delay",
    }
    assert flags == chosen
    for name in flags:
        values = {getattr(variant.broker, name) for variant in registry.ALL}
        assert len(values) > 1, f"no harness sets {name}"
        reads = re.compile(rf"\bbroker\.{name}\b")
        tests = [path for path in tracked() if path.relative_to(ROOT).parts[0] == "tests" and path.suffix == ".py"]
        assert any(reads.search(path.read_text("utf-8")) for path in tests), f"no test reads {name}"
