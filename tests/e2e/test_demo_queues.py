"""The queues of the compose files work as docs/local.md shows them.

The gateway runs in a process, with the environment of its container. Only the addresses of the brokers are replaced by
those of the servers of this test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.brokers.artemis.harness import ArtemisBroker
from tests.brokers.kafka.harness import KafkaBroker
from tests.brokers.pulsar.harness import PulsarBroker
from tests.brokers.rabbitmq.harness import RabbitBroker
from tests.brokers.redis.harness import RedisBroker
from tests.brokers.registry import Servers
from tests.brokers.servicebus.server import emulator
from tests.brokers.sqs.harness import SqsBroker
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.pages import blocks, shell
from tools import compose

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.redis,
    pytest.mark.rabbitmq,
    pytest.mark.sqs,
    pytest.mark.servicebus,
    pytest.mark.kafka,
    pytest.mark.pulsar,
    pytest.mark.artemis,
]
PATIENCE_SECONDS = 30
BROKERS = ("redis", "rabbit", "sqs", "kafka", "pulsar", "artemis", "sqlite")
QUEUES = ("sqs-demo", "rabbit.demo", "kafka.demo", "pulsar.demo", "artemis.demo", "sqlite.demo", "demo")


@pytest.fixture
def addresses(servers: Servers, tmp_path: Path) -> dict[str, str]:
    """Of each broker in the compose files, the address there and here."""
    pulsar = servers.server(PulsarBroker)
    return {
        "kafka:9092": f"127.0.0.1:{servers.server(KafkaBroker).port}",
        "pulsar:6650": f"127.0.0.1:{pulsar.port}",
        "pulsar:8080": f"127.0.0.1:{pulsar.web_port}",
        "artemis:5672": f"127.0.0.1:{servers.server(ArtemisBroker).port}",
        "redis:6379": f"127.0.0.1:{servers.server(RedisBroker).port}",
        "rabbitmq:5672": f"127.0.0.1:{servers.server(RabbitBroker).port}",
        "sqs:9324": f"127.0.0.1:{servers.server(SqsBroker).port}",
        "/var/lib/babelgate/": f"{tmp_path}/",
        "/data/landing": f"{tmp_path}/landing",
    }


@pytest.fixture
def emulated() -> Iterator[dict[str, str]]:
    """The same of Microsoft's emulator. The one here has the queues of that one, and links create no others."""
    given = json.loads((ROOT / "docker" / "servicebus.json").read_text())
    with emulator() as server:
        server.options(auto_create=False)
        for queue in given["UserConfig"]["Namespaces"][0]["Queues"]:
            server.queue(queue["Name"], requires_session=queue["Properties"]["RequiresSession"])
        yield {
            "127.0.0.1:5672": f"127.0.0.1:{server.port}",
            "127.0.0.1:5300": f"127.0.0.1:{server.control_port}",
        }


def environment(addresses: Mapping[str, str], *files: str) -> dict[str, str]:
    """The variables of the gateway in the compose files, with each of ``addresses`` replaced."""
    variables: dict[str, str] = compose.services(*files)["gateway"]["environment"]
    for there, here in addresses.items():
        (name,) = (name for name, value in variables.items() if there in value)
        variables[name] = variables[name].replace(there, here)
    return variables


def walk(process: GatewayProcess, queue: str, directory: Path) -> None:
    """Publish, receive and ack as the page does, on ``queue`` instead of the one that it names."""
    (script,) = blocks("All brokers in containers", "sh")
    assert "/queues/sqs-demo\n" in script
    (printed,) = shell([script.replace("/sqs-demo\n", f"/{queue}\n")], process.url, directory)
    published, received, settled = json.loads(f"[{printed.replace('}{', '},{')}]")
    assert published["queue"] == queue
    assert [each["envelope"]["meta"]["id"] for each in received["messages"]] == [published["id"]]
    assert settled["settled"] == 1
    with process.client() as client:
        assert client.post(f"/queues/{queue}/messages:receive", json={}).json()["messages"] == []


def container(directory: Path, variables: Mapping[str, str]) -> AbstractContextManager[GatewayProcess]:
    """A gateway with ``variables``. Its file has time-outs for a busy machine where they can be beside a variable."""
    found = (re.fullmatch("BABELGATE_BROKERS__(.*)__URL", name) for name in variables)
    brokers = {name[1].lower(): {"timeout_seconds": PATIENCE_SECONDS} for name in found if name}
    return gateway(directory, {"brokers": brokers}, environ=variables)


def up(process: GatewayProcess) -> dict[str, bool]:
    """Of each broker, whether it is up."""
    with process.client() as client:
        return {each["broker"]: each["up"] for each in client.get("/brokers").json()["brokers"]}


def test_docker_compose_up(addresses: dict[str, str], emulated: dict[str, str], tmp_path: Path) -> None:
    """With all profiles, then also with Microsoft's emulator. One after the other: both consume the same queues."""
    file, emulator_file = "docker-compose.yml", "docker/servicebus.yml"
    with container(tmp_path, environment(addresses, file)) as process:
        for queue in QUEUES:
            walk(process, queue, tmp_path)
        assert up(process) == dict.fromkeys(BROKERS, True)
    with container(tmp_path, environment(addresses | emulated, file, emulator_file)) as process:
        for queue in ("servicebus.demo", *QUEUES):
            walk(process, queue, tmp_path)
        assert up(process) == dict.fromkeys((*BROKERS, "servicebus"), True)
