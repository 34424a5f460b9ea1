"""The versions that servers report, for the summary that ``serve`` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from babelgate.brokers.binding import ReportsVersion
from tests.brokers import registry
from tests.harness.broker import Variant

REPORTING = {
    "sqlite": "SQLite",
    "redis": "(Redis|Valkey)",
    "rabbitmq": "RabbitMQ",
    "pulsar": "Pulsar",
    "artemis": "Artemis",
}
"""The others do not report a version over the connections that the gateway has to them."""


@pytest.mark.parametrize("variant", registry.params(registry.ORDINARY))
async def test_an_open_binding_reports_the_version_of_its_server(
    variant: Variant, servers: registry.Servers, tmp_path: Path
) -> None:
    kind = variant.broker.kind
    binding = servers.broker(variant, tmp_path).connect()
    assert isinstance(binding, ReportsVersion) == (kind in REPORTING)
    if not isinstance(binding, ReportsVersion):
        return
    await binding.open()
    version = binding.server_version
    await binding.close()
    assert re.match(rf"{REPORTING[kind]}\D*\d+\.\d+", version or ""), version
