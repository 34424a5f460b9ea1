"""A broker that would fill its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.artemis.harness import binding
from tests.brokers.artemis.server import ArtemisServer

pytestmark = [pytest.mark.artemis, pytest.mark.slow]


@pytest.mark.parametrize(("percent", "warnings"), [(99, 0), (100, 1), (-1, 1)])
async def test_a_broker_that_would_fill_its_disk_is_warned_of(tmp_path: Path, percent: int, warnings: int) -> None:
    server = ArtemisServer(tmp_path, max_disk_usage=percent)
    try:
        server.start()
        async with binding(server.url()) as opened:
            found = [each for each in await opened.warnings() if f"max-disk-usage {percent}" in each]
            assert len(found) == warnings
    finally:
        server.kill()
