"""The Dockerfile and the compose file keep their promises. Read as text and data; tests/image runs the image."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate import __version__
from babelgate.config import settings
from babelgate.config.changes import needs_restart
from babelgate.errors import ConfigError
from tools import compose

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "profiles" not in service]
"""Those that ``docker compose up`` starts. An emulator of another house, behind a profile, writes to its own files."""
BY_PROFILE = ("kafka", "pulsar", "artemis")
"""Brokers that are started by a profile of their name."""
OBSERVABILITY = ("prometheus", "grafana", "jaeger")
"""Started by the profile of this name."""
PIPELINE = ("ingest", "metrics", "report", "compact", "maintain")
"""Started by the profile of this name, and reached by nobody."""


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, arguments), continuation lines joined, comments dropped."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name; the last one, which is what is built by default, has none."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in instructions():
        if word == "FROM":
            _, _, name = rest.partition(" AS ")
            found[name] = []
        if found:
            found[name].append((word, rest))
    assert list(found)[-1] == ""
    return found


def arguments(instruction: str, stage: str = "") -> list[str]:
    return [rest for word, rest in stages()[stage] if word == instruction]


def test_every_stage_begins_with_the_image_that_a_build_may_pin() -> None:
    assert instructions()[0] == ("ARG", "BASE_IMAGE=python:3.11-slim-bookworm")
    bases = {rest.partition(" AS ")[0] for word, rest in instructions() if word == "FROM"}
    assert bases - stages().keys() == {"${BASE_IMAGE}"}


@pytest.mark.parametrize("stage", ["", "pipeline"])
def test_an_image_runs_without_root(stage: str) -> None:
    (user,) = arguments("USER", stage)
    uid, gid = user.split(":")
    assert int(uid) > 0 < int(gid)
    assert f"-o {uid} -g {gid}" in " ".join(arguments("RUN", stage)), "its state directory belongs to it"


@pytest.mark.parametrize("stage", ["tools", "dependencies", "dependencies-pipeline"])
def test_dependencies_are_installed_with_checked_hashes(stage: str) -> None:
    installs = [step for run in arguments("RUN", stage) for step in run.split("&&") if re.search("pip.* install", step)]
    assert installs
    assert all("--require-hashes" in step for step in installs)


@pytest.mark.parametrize("stage", ["program", "program-pipeline"])
def test_the_program_is_installed_without_asking_for_more(stage: str) -> None:
    (run,) = arguments("RUN", stage)
    wheel, install, *_ = run.split("&&")
    assert "--no-deps --no-build-isolation" in wheel and "--no-deps" in install


@pytest.mark.parametrize("stage", ["", "pipeline"])
def test_an_image_is_labelled(stage: str) -> None:
    (given,) = arguments("LABEL", stage)
    labels = dict(pair.split("=", 1) for pair in shlex.split(given))
    prefix = "org.opencontainers.image."
    assert labels.keys() == {f"{prefix}{name}" for name in ("title", "description", "licenses", "version")}
    assert labels[f"{prefix}version"] == __version__


def test_every_copied_file_exists_and_is_let_in() -> None:
    let_in = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.M))
    copies = [rest for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    copied = {source for rest in copies for source in rest.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_for_the_pipeline_has_java_and_the_jobs_as_its_entry() -> None:
    assert "openjdk-17-jre-headless" in " ".join(arguments("RUN", "pipeline"))
    (entry,) = arguments("ENTRYPOINT", "pipeline")
    assert json.loads(entry) == ["pipeline"]
    assert "docker/pipeline /usr/local/bin/pipeline" in arguments("COPY", "pipeline")
    assert os.access(ROOT / "docker" / "pipeline", os.X_OK)


def test_the_image_says_nothing_about_who_may_come_in() -> None:
    """Without configuration the server refuses its own 0.0.0.0, instead of being open by default."""
    (command,) = arguments("CMD")
    assert json.loads(command) == ["serve"]
    (given,) = arguments("ENV")
    environ = dict(pair.split("=", 1) for pair in given.split())
    assert environ["BABELGATE_HOST"] == "0.0.0.0"
    assert not any("AUTH" in name or "TOKEN" in name for name in environ)
    with pytest.raises(ConfigError, match=r"^host: "):
        settings.load(None, environ)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_published_on_loopback_only(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert (ports == []) is (name in PIPELINE)
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" not in service])
def test_an_image_that_is_not_built_here_has_a_version(name: str) -> None:
    assert re.fullmatch(r"[\w./-]+:v?\d[\w.-]*", SERVICES[name]["image"])


@pytest.mark.parametrize("name", [*OURS, *OBSERVABILITY, *PIPELINE])
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged") and not service.get("network_mode")


@pytest.mark.parametrize("name", OBSERVABILITY)
def test_a_service_that_observes_is_started_by_its_profile_and_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["profiles"] == ["observability", "all"]
    assert "healthcheck" in SERVICES[name]


@pytest.mark.parametrize("name", [*OURS, *OBSERVABILITY, *PIPELINE])
def test_what_a_service_refers_to_exists(name: str) -> None:
    service = SERVICES[name]
    for other, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        own = SERVICES[other].get("build") == "." and arguments("HEALTHCHECK")
        assert own or "healthcheck" in SERVICES[other], f"{other} can never become healthy"
    mounts = [volume.split(":")[0] for volume in service.get("volumes", [])]
    assert {mount for mount in mounts if not mount.startswith("./")} <= set(COMPOSE["volumes"])
    assert all((ROOT / mount).is_dir() for mount in mounts if mount.startswith("./"))


def test_the_gateway_loads_a_changed_file_again() -> None:
    """It is mounted with its folder: a mounted file would stay the one that an editor has replaced."""
    gateway = SERVICES["gateway"]
    folder, inside = "./docker/gateway", "/etc/babelgate"
    assert f"{folder}:{inside}:ro" in gateway["volumes"]
    assert gateway["command"] == ["serve", "--config", f"{inside}/babelgate.yaml"]
    environment = compose.services("docker-compose.yml")["gateway"]["environment"]
    loaded = settings.load(ROOT / folder / "babelgate.yaml", environment)
    assert loaded.reload.watch
    alone = settings.load(None, environment)
    assert set(loaded.queues) - set(alone.queues) == {"retried"}, "the file adds to the routes of the environment"
    changed = loaded.model_copy(update={"queues": alone.queues})
    assert needs_restart(changed, loaded) == []


def test_microsoft_s_emulator_is_asked_for_and_has_the_queues_of_dead_letters() -> None:
    apart = {name: service for name, service in SERVICES.items() if name not in OURS}
    microsoft_s = {"servicebus", "servicebus-database"}
    assert set(apart) == microsoft_s | set(BY_PROFILE) | set(OBSERVABILITY) | set(PIPELINE)
    assert all(apart[name]["security_opt"] == ["no-new-privileges:true"] for name in microsoft_s)
    given = json.loads((ROOT / COMPOSE["configs"]["servicebus"]["file"]).read_text())
    queues = {queue["Name"] for queue in given["UserConfig"]["Namespaces"][0]["Queues"]}
    assert {f"{name}.dlq" for name in queues if not name.endswith(".dlq")} <= queues


def test_microsoft_s_emulator_is_on_the_loopback_of_the_gateway() -> None:
    """Its connections have no TLS, so that the gateway refuses it at any other address."""
    alone = compose.services("docker-compose.yml")
    together = compose.services("docker-compose.yml", "docker/servicebus.yml")
    assert set(together) == set(alone)
    assert together["servicebus"]["network_mode"] == "service:gateway"
    assert not {"ports", "networks"} & set(together["servicebus"]), "Docker refuses them beside the network of another"
    changed = {name: service for name, service in together.items() if service != alone[name]}
    assert set(changed) == {"gateway", "servicebus"}
    assert {key for key, value in together["gateway"].items() if value != alone["gateway"][key]} == {"environment"}
    assert alone["gateway"]["environment"].items() < together["gateway"]["environment"].items()


def test_redis_keeps_what_it_confirmed() -> None:
    command = SERVICES["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--appendfsync") + 1] == "always"


def test_services_beside_the_gateway_may_call_it_by_name() -> None:
    (name,) = (name for name, service in SERVICES.items() if service.get("build") == ".")
    assert SERVICES[name]["environment"]["BABELGATE_HOSTS"] == name


def test_rabbitmq_finds_its_data_again() -> None:
    assert SERVICES["rabbitmq"]["hostname"] == "rabbitmq", "the node's name is a part of the path"


def test_the_gateway_uses_the_brokers_beside_it() -> None:
    """The service's environment is a whole configuration, and each broker's host is a service. SQLite has no host."""
    loaded = settings.load(None, compose.services("docker-compose.yml")["gateway"]["environment"])
    assert loaded.auth == "none"
    urls = {name: (broker.model_extra or {}).get("endpoint_url", broker.url) for name, broker in loaded.brokers.items()}
    beside = {"redis": "redis", "rabbit": "rabbitmq", "sqs": "sqs", "sqlite": ""}
    beside |= {name: name for name in BY_PROFILE}
    assert {name: httpx.URL(url).host for name, url in urls.items()} == beside
    assert loaded.default is not None
    assert loaded.default.broker == "redis"
    patterns = {"rabbit.*": "rabbit", "sqs-*": "sqs", "sqlite.*": "sqlite"} | {f"{name}.*": name for name in BY_PROFILE}
    assert {name: route.broker for name, route in loaded.queues.items()} == patterns


@pytest.mark.parametrize("name", BY_PROFILE)
def test_a_broker_by_profile_is_confined_and_keeps_its_data(name: str) -> None:
    service = SERVICES[name]
    assert service["profiles"] == [name, "all"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {volume.split(":")[0] for volume in service["volumes"]} == {name} <= set(COMPOSE["volumes"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert "healthcheck" in service
