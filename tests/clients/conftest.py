"""A gateway on a real Redis and an emulator of Azure Service Bus, and the table of what was proven of each client."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.brokers.redis.harness import RedisServer, redis_server
from tests.brokers.servicebus.server import ServiceBusEmulator, emulator
from tests.clients import violations
from tests.clients.languages import LANGUAGES
from tests.harness.ci import missing
from tests.harness.gateway import GatewayProcess

COLUMNS = (
    "generate",
    "compile",
    "publish",
    "receive",
    "broker properties",
    "ack",
    "nack",
    "extend",
    "problem",
    "survives kill -9",
)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server(appendfsync="always") as server:
        yield server


@pytest.fixture(scope="module")
def azure() -> Iterator[ServiceBusEmulator]:
    with emulator() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    redis: RedisServer, azure: ServiceBusEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    file = tmp_path_factory.mktemp("file") / "messages.db"
    schemas = tmp_path_factory.mktemp("schemas")
    (schemas / "order.json").write_text(json.dumps(violations.SCHEMA))
    config = {
        "schemas": {"directory": str(schemas)},
        "brokers": {"cache": redis.url(), "azure": azure.url(), "file": f"sqlite:///{file}"},
        "queues": {
            "azure.*": {"broker": "azure"},
            "file.*": {"broker": "file"},
            violations.QUEUE: {"broker": "file", "schema": "enforce"},
        },
        "default": {"broker": "cache", "frames": True, "max_attempts": 50},
    }
    process = GatewayProcess(tmp_path_factory.mktemp("gateway"), config).start()
    yield process
    process.close()


@pytest.fixture(autouse=True)
def here(request: pytest.FixtureRequest) -> None:
    """The language of the test is built, or the test ends."""
    language = getattr(request.node, "callspec", None) and request.node.callspec.params.get("language")
    for each in [language] if language else LANGUAGES:
        if absent := each.missing():
            missing(", ".join(absent), "`make clients-deps` installs it")
        if not each.packages():
            missing(f"the package of {each.name}", "run `make clients`")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of languages; a cell is filled by the test that ran it."""
    proven: defaultdict[str, set[str]] = defaultdict(set)
    for report in terminalreporter.getreports("passed"):
        for language, column in report.user_properties:
            if column in COLUMNS:
                proven[language].add(str(column))
    if proven:
        terminalreporter.section("clients")
        terminalreporter.line("  ".join(["language  ", *COLUMNS]))
        for language, columns in sorted(proven.items()):
            cells = (("yes" if column in columns else "-").ljust(len(column)) for column in COLUMNS)
            terminalreporter.line("  ".join([language.ljust(10), *cells]))
