"""The configuration of docs/how-to/behind-envoy.md in Envoy itself: all that a gateway serves passes through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.test_behind_a_proxy import (
    client,
    test_a_large_body_and_a_long_poll,
    test_a_websocket,
    test_an_event_of_a_stream_comes_at_once,
    test_refusals_of_the_gateway_pass_through,
)
from tests.harness.envoy import VERSION, envoy
from tests.harness.gateway import gateway

__all__ = [
    "client",
    "test_a_large_body_and_a_long_poll",
    "test_a_websocket",
    "test_an_event_of_a_stream_comes_at_once",
    "test_refusals_of_the_gateway_pass_through",
]
FOLDER = Path(__file__).resolve().parents[2] / "docs/how-to"
ENVOY = FOLDER / "behind-envoy.md"
GATEWAY = FOLDER / "behind-a-proxy.md"


def _block(page: Path) -> str:
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    return str(found)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of an Envoy, in front of a gateway with the configuration of the other page, for large bodies."""
    config = yaml.safe_load(_block(GATEWAY).replace("sqlite:///", f"sqlite:///{tmp_path}/"))
    del config["host"], config["port"]
    with (
        gateway(tmp_path, {**config, "limits": {"max_message_bytes": 4_000_000}}) as process,
        envoy(tmp_path, _block(ENVOY), process.url.removeprefix("http://")) as found,
    ):
        yield found


def test_the_page_names_the_version_that_runs_it() -> None:
    assert f"Envoy {VERSION.rpartition('.')[0]}." in ENVOY.read_text("utf-8")
