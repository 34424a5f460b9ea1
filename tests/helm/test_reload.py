"""A changed configuration starts new pods only where the running ones cannot load it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from babelgate.config.changes import applied_sections
from tests.helm.matrix import gateway_of, merged
from tools.helm import CHART, documents, only, template

BASE: dict[str, Any] = {"config": {"brokers": {"one": "redis://h"}, "default": {"broker": "one"}}}


def rendered(change: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The pods, and the configuration."""
    found = documents(template(merged(BASE, {"config": change})))
    gateway = gateway_of(found)
    text = only(found, "ConfigMap", gateway["metadata"]["name"])["data"]["babelgate.yaml"]
    return gateway["spec"]["template"], yaml.safe_load(text)


@pytest.mark.parametrize(
    "change",
    [
        {"queues": {"mails": {"broker": "one", "max_attempts": 3}}},
        {"default": {"broker": "one", "lease_seconds": 7}},
        {"brokers": {"one": "redis://h", "two": "redis://other"}},
        {"auth": {"tokens": [{"name": "a", "sha256": "ab" * 32, "rights": {"*": ["send"]}}]}},
        {"rate_limits": {"identity": {"requests_per_second": 5}}},
        {"cors": {"origins": ["https://a.example"]}},
        {"log_level": "debug"},
        {"limits": {"max_message_bytes": 10_000}},
    ],
)
def test_what_a_reload_applies_starts_no_pod(change: dict[str, Any]) -> None:
    before, after = rendered({}), rendered(change)
    assert before[1] != after[1]
    assert before[0] == after[0]
    unwatched = {"reload": {"watch": False}}
    assert rendered(unwatched)[0] != rendered(change | unwatched)[0], "without a watch it does"


@pytest.mark.parametrize(
    "change",
    [
        {"access_log": True},
        {"journal": {"landing": "s3://lake/landing"}},
        {"auth": {"made_tokens": {"enabled": False}}},
        {"rate_limits": {"store": "one"}},
        {"reload": {"watch": False}},
    ],
)
def test_what_needs_a_restart_starts_new_pods(change: dict[str, Any]) -> None:
    assert rendered({})[0] != rendered(change)[0]


def test_pods_watch_unless_told_otherwise() -> None:
    assert rendered({})[1]["reload"] == {"watch": True}
    assert rendered({"reload": {"watch": False}})[1]["reload"] == {"watch": False}


def test_the_chart_knows_the_sections_that_a_reload_applies() -> None:
    text = (CHART / "templates" / "_config.tpl").read_text("utf-8")
    (known,) = re.findall(r'define "babelgate\.reloadedKeys" -}}\n\[(.*)]\n', text)
    assert known == ", ".join(f'"{key}"' for key in applied_sections())
