"""The pods of the chart as containers of the image."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers import registry
from tests.brokers.redis.harness import RedisBroker
from tests.harness.haproxy import haproxy
from tests.harness.image import Podman
from tests.harness.image_pod import ImagePod
from tests.harness.local import certify
from tests.harness.pod import Network
from tools.helm import documents, only, template

pytestmark = pytest.mark.slow

SERVICE = "shop-babelgate"
SERVED_BY_TLS = {
    "config": {
        "prefix": "/mq",
        "port": 8443,
        "tls_cert": "/run/secrets/tls/tls.crt",
        "tls_key": "/run/secrets/tls/tls.key",
    },
    "secrets": {"tls": "gateway-tls"},
    "resources": {"limits": {"memory": "256Mi"}},
}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path) as network:
        yield network


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize(
    ("values", "url"),
    [({}, "http://{}:8080"), (SERVED_BY_TLS, "https://{}:8443/mq")],
    ids=["sqlite", "tls"],
)
def test_a_pod_of_the_chart(podman: Podman, network: Network, tmp_path: Path, values: dict[str, Any], url: str) -> None:
    """A gateway that keeps messages in a volume."""
    certify(tmp_path)
    certificate = {"tls.crt": encoded(tmp_path / "server.crt"), "tls.key": encoded(tmp_path / "server.key")}
    run(podman, network, values, "StatefulSet", {"gateway-tls": certificate}, url)


@pytest.mark.redis
def test_a_pod_of_the_chart_with_redis(
    podman: Podman, network: Network, servers: registry.Servers, tmp_path: Path
) -> None:
    """A gateway that keeps nothing."""
    port = servers.server(RedisBroker).port
    network.name("broker", [network.address])
    with haproxy(tmp_path, network.address, 8080, port, []):
        values = {"config": {"brokers": {"cache": f"redis://broker:{port}/0"}}}
        run(podman, network, values, "Deployment", {}, "http://{}:8080")


def run(podman: Podman, network: Network, values: dict[str, Any], kind: str, secrets: dict[str, Any], url: str) -> None:
    """Start a pod, use it, and stop it."""
    found = documents(template(values))
    pod = ImagePod(podman, network, only(found, kind), found, secrets)
    network.name(f"{SERVICE}-peers", [pod.address])
    network.name(SERVICE, [pod.address])
    pod.start()
    assert pod.passes("livenessProbe")
    # It is the image that runs, and within the limits of the manifest.
    facts = podman.inspect(pod.name)
    limit = pod.spec["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi")
    assert (facts["HostConfig"]["Memory"], facts["EffectiveCaps"] or []) == (int(limit) << 20, [])

    tokens = only(found, "Secret", "-tokens")["data"]
    bearer = {"authorization": f"Bearer {base64.b64decode(tokens['client']).decode()}"}
    base_url = url.format(pod.address)
    with httpx.Client(base_url=base_url, headers=bearer, verify=False, timeout=120) as client:
        assert httpx.post(f"{base_url}/queues/q/messages", json={}, verify=False).status_code == 401
        draft = {"job": "urn:babel:test:chart", "data": {"n": 1}}
        assert client.post("queues/q/messages", json=draft).status_code == 201
        (message,) = client.post("queues/q/messages:receive").json()["messages"]
        settled = client.post("queues/q/messages:ack", json={"ack_tokens": [message["ack_token"]]})
        assert settled.json()["settled"] == 1
    if "tls" not in values.get("secrets", {}):
        # The chart's own test refuses a certificate that nobody signed.
        test = ImagePod(podman, network, only(found, "Pod"), found, secrets)
        with closing(test):
            done = test.run(test.spec["containers"][0])
        assert done.returncode == 0, done.stderr

    # The pod serves during preStop; then comes the signal.
    with subprocess.Popen(pod.hook("preStop")) as hook:
        assert pod.passes("readinessProbe")
    assert hook.returncode == 0
    assert pod.stop() == 0, pod.log.read_text()


def test_a_pod_with_a_mistake_in_its_configuration_does_not_serve(podman: Podman, network: Network) -> None:
    found = documents(template({}))
    configuration = only(found, "ConfigMap")["data"]
    configuration["babelgate.yaml"] += "\ndefault: {broker: nowhere}\n"
    pod = ImagePod(podman, network, only(found, "StatefulSet"), found, {})
    with pytest.raises(AssertionError, match="nowhere"):
        pod.start()
