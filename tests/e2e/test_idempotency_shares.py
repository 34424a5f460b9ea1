"""A sender that uses up its share of the idempotency keys, on real servers that are killed."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.brokers import registry
from tests.harness.broker import Broker, Variant
from tests.harness.gateway import ForkedGateway, GatewayProcess

pytestmark = pytest.mark.slow

MAX_KEYS = 64
SHARE = 36
"""Three quarters of three quarters of MAX_KEYS."""
KEEPERS = [variant for variant in registry.ORDINARY if variant.keeps_keys]


@pytest.fixture(params=registry.params(KEEPERS))
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    variant: Variant = request.param
    return servers.broker(variant, tmp_path)


def send(client: httpx.Client, queue: str, key: str) -> httpx.Response:
    draft = {"job": "urn:babel:test:made", "data": {"key": key}}
    return client.post(f"/queues/{queue}/messages", json=draft, headers={"idempotency-key": f'"{key}"'})


async def test_a_sender_leaves_keys_to_others_after_kills(tmp_path: Path, broker: Broker, queue: str) -> None:
    names = ("shop", "blog")
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": {"*": ["send"]}} for name in names
    ]
    config = {
        "brokers": {"main": broker.url},
        "default": broker.route(),
        "auth": {"tokens": tokens},
        "idempotency": {"max_keys": MAX_KEYS},
    }
    process: GatewayProcess = ForkedGateway(tmp_path, config)
    with ExitStack() as stack:
        stack.callback(process.close)
        process.start()

        def clients() -> list[httpx.Client]:
            return [stack.enter_context(process.client(headers={"authorization": f"Bearer {name}"})) for name in names]

        shop, blog = clients()
        assert {send(shop, queue, f"k{n}").status_code for n in range(SHARE)} == {201}
        process.kill()
        if not broker.embedded:
            await broker.kill()
        process.start()
        shop, blog = clients()
        for n in range(3):
            refused = send(shop, queue, f"more{n}")
            assert (refused.status_code, refused.json()["code"]) == (429, "idempotency_share_full"), refused.text
        assert refused.headers["retry-after"] == "10"
        assert send(shop, queue, "k7").headers["idempotency-replayed"] == "true"
        assert send(shop, f"{queue}-other", "k7").status_code == 201
        assert send(blog, queue, "more0").status_code == 201
        assert send(shop, queue, "more0").headers["idempotency-replayed"] == "true"
    assert process.unforeseen() == []
