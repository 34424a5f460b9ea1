"""The dashboard and the alert rules as data, for tests of each panel and each rule."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HELM = Path(__file__).parents[2] / "helm" / "babelgate"
DASHBOARD = HELM / "dashboards" / "babelgate.json"
ALERTS = HELM / "alerts" / "babelgate.yaml"
ALERT_TESTS = sorted((HELM / "alerts" / "tests").glob("*.yaml"))

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_DURATION = re.compile(r"(?<=\[)(\d+)([smh])(?=[\]:])|(?<=offset )(\d+)([smh])\b|^(\d+)([smh])$")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Query:
    """One query of one panel. ``expression`` still has Grafana's variables."""

    panel: str
    ref: str
    expression: str

    def filled(self, interval: str, values: Mapping[str, str] | None = None) -> str:
        """As Grafana asks it with ``interval`` between points; a variable without a value stands for all of them."""

        def fill(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return interval if name.startswith("__") else (values or {}).get(name, ".*")

        return _VARIABLE.sub(fill, self.expression)


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    content: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return content


def panels() -> list[dict[str, Any]]:
    """What it shows, without the rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    """All queries of all panels."""
    for panel in panels():
        for target in panel["targets"]:
            yield Query(panel["title"], target["refId"], target["expr"])


def groups() -> list[dict[str, Any]]:
    """The groups of alert rules."""
    content: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    return content


def rules() -> list[dict[str, Any]]:
    """All alert rules."""
    return [rule for group in groups() for rule in group["rules"]]


def compressed(factor: int) -> list[dict[str, Any]]:
    """The groups for a time that passes ``factor`` times as fast: windows, ``for``, and thresholds of ``* 60``."""

    def shorter(match: re.Match[str]) -> str:
        number, unit = (part for part in match.groups() if part)
        return f"{int(number) * _SECONDS[unit] * 1000 // factor}ms"

    def compress(rule: Mapping[str, Any]) -> dict[str, Any]:
        expression = _DURATION.sub(shorter, rule["expr"]).replace("* 60", f"* {60 / factor}")
        waits = {"for": _DURATION.sub(shorter, rule["for"])} if "for" in rule else {}
        return {**rule, "expr": expression, **waits}

    return [{**group, "rules": [compress(rule) for rule in group["rules"]]} for group in groups()]
