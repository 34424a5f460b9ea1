"""The dashboard and the alert rules: well-formed, and about metrics that there are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from babelgate.observe.metrics import catalogue as metrics_catalogue
from babelgate.observe.metrics.catalogue import CATALOGUE, Metric
from tests.harness.monitoring import ALERT_TESTS, ALERTS, compressed, dashboard, panels, queries, rules
from tests.harness.prometheus import promtool

pytestmark = pytest.mark.prometheus

METRICS = {
    name: metric
    for metric in CATALOGUE
    for name in (
        [metric.name]
        if metric.kind != "histogram"
        else [f"{metric.name}_{part}" for part in ("bucket", "count", "sum")]
    )
}
OF_PROMETHEUS = {"up", "scrape_duration_seconds", "ALERTS"}
LABELS_OF_PROMETHEUS = {"job", "namespace", "instance", "le", "alertname", "alertstate"}
VALUES = {
    "outcome": metrics_catalogue.OUTCOMES,
    "reason": metrics_catalogue.REASONS,
    "result": metrics_catalogue.RESULTS,
    "state": ("up", "silent"),
}
EXPRESSIONS = {
    **{f"{query.panel} {query.ref}": query.filled("5m") for query in queries()},
    **{rule["alert"]: rule["expr"] for rule in rules()},
}


# A metric with its matchers, after all that looks like one: functions with their grouping, ranges, offsets, operators.
_TOKEN = re.compile(
    r"""\w+\s*(?:by\s*\([^)]*\)\s*)?\(|\[[^]]*]|offset\s+\w+|\b(?:and|or|unless)\b|[0-9.]+
    |([a-zA-Z_]\w*)(?:\{((?:[^}"]|"[^"]*")*)})?""",
    re.VERBOSE,
)


def selectors(expression: str) -> list[tuple[str, dict[str, str]]]:
    """Each metric that an expression names, with its matchers."""
    found = [match.groups() for match in _TOKEN.finditer(expression) if match[1]]
    return [(name, dict(re.findall(r'(\w+)\s*[=!]~?=?\s*"([^"]*)"', matchers or ""))) for name, matchers in found]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_it_is_about_metrics_and_labels_that_there_are(name: str) -> None:
    expression = EXPRESSIONS[name]
    found = selectors(expression)
    assert found
    labels = set(LABELS_OF_PROMETHEUS)
    for metric, matchers in found:
        if metric in OF_PROMETHEUS:
            continue
        assert metric in METRICS, f"there is no metric {metric}"
        own = set(METRICS[metric].prometheus_labels)
        assert matchers.keys() <= own | LABELS_OF_PROMETHEUS, f"{metric} has no such labels"
        labels |= own
        for label in matchers.keys() & VALUES.keys():
            assert set(matchers[label].split("|")) <= set(VALUES[label])
    for grouping in re.findall(r"\bby\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in grouping.split(",")} <= labels
    assert re.search(r"(rate|increase)\([^(]*_bucket", expression) or "histogram_quantile" not in expression


def test_every_metric_is_shown() -> None:
    """A number that nobody can see on the dashboard may as well not be counted."""
    shown = {metric for query in queries() for metric, _ in selectors(query.filled("5m"))}
    assert {metric.name for metric in CATALOGUE if not shown & names_of(metric)} == set()


def names_of(metric: Metric) -> set[str]:
    return {name for name, owner in METRICS.items() if owner is metric}


def test_promtool_accepts_each_query(tmp_path: Path) -> None:
    recorded = [{"record": f"panel:{number}", "expr": query.filled("5m")} for number, query in enumerate(queries())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(recorded)} rules found" in promtool("check", "rules", "--lint=none", tmp_path / "rules.yaml")


def test_panels_are_described_and_do_not_overlap() -> None:
    content = dashboard()
    ids = Counter(panel["id"] for panel in content["panels"])
    assert max(ids.values()) == 1
    places = Counter(place for panel in content["panels"] for place in _places(panel["gridPos"]))
    assert max(places.values()) == 1
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"].get("unit") or panel["type"] in {"state-timeline", "table"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    variables = {variable["name"] for variable in content["templating"]["list"]}
    used = {name for query in queries() for name in re.findall(r"\$(\w+)", query.expression)}
    assert {name for name in used if not name.startswith("__")} <= variables
    assert used >= variables - {"datasource"}


def _places(where: dict[str, int]) -> list[tuple[int, int]]:
    assert where["x"] + where["w"] <= 24
    return [(where["x"] + x, where["y"] + y) for x in range(where["w"]) for y in range(where["h"])]


def test_promtool_accepts_the_alert_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", ALERTS)


@pytest.mark.parametrize("file", ALERT_TESTS, ids=lambda file: file.stem)
def test_alerts_fire_and_resolve(file: Path) -> None:
    promtool("test", "rules", file)


def test_every_alert_has_a_test_and_says_what_to_do() -> None:
    expected = "".join(file.read_text() for file in ALERT_TESTS)
    for rule in rules():
        assert re.search(rf'labels: .*alertname="{rule["alert"]}"|{rule["alert"]}", alertstate', expected), rule[
            "alert"
        ]
        assert rule["labels"]["severity"] in {"critical", "warning"}
        notes: dict[str, Any] = rule["annotations"]
        assert notes.keys() == {"summary", "description", "runbook"}
        assert re.fullmatch(r"Meaning: .+\nLook: .+\nDo: .+\n", notes["runbook"], re.DOTALL), rule["alert"]


def test_rules_for_a_compressed_time() -> None:
    """As the test with a real Prometheus has them."""
    found = {rule["alert"]: rule for group in compressed(60) for rule in group["rules"]}
    assert (found["BabelgateTargetDown"]["for"], found["BabelgateAbsent"]["for"]) == ("2000ms", "5000ms")
    assert "[15000ms]" in found["BabelgatePoison"]["expr"] and "offset 15000ms" in found["BabelgatePoison"]["expr"]
    assert found["BabelgateOldestMessageTooOld"]["expr"].endswith("> 15 * 1.0")
    assert not re.search(r"\d+m\b", "".join(rule["expr"] for rule in found.values()))
