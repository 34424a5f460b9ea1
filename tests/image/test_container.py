"""Containers of the image, run with the flags of docs/operating.md."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.brokers import registry
from tests.brokers.redis.harness import RedisBroker
from tests.harness.image import LIMITS, ROOT, TAG, Podman, environment
from tests.harness.local import certify, eventually, free_port
from tests.harness.sockets import Connection

pytestmark = pytest.mark.slow

BODY = {"job": "urn:babel:test:container", "data": {"n": 1}}
HERE = ("--publish", "--env", "--name", "--volume")
"""Options of the page that are other ones here."""


def documented() -> list[str]:
    """The options with which the page runs the image, but for HERE. Podman's --read-only would add writable folders."""
    page = (ROOT / "docs" / "operating.md").read_text("utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^docker run --detach (.*)$", page, re.M)
    *options, image = shlex.split(line)
    assert image.startswith("babelgate:")
    return [word for pair in _paired(options) if pair[0] not in HERE for word in pair] + [
        "--detach",
        "--read-only-tmpfs=false",
    ]


def _paired(options: list[str]) -> Iterator[tuple[str, ...]]:
    """Each option with its value, if it has one."""
    for index, word in enumerate(options):
        if word.startswith("--"):
            value = options[index + 1 : index + 2]
            yield (word, *value) if value and not value[0].startswith("--") else (word,)


class Container:
    """A running container of the image, on a port of this machine."""

    def __init__(self, podman: Podman, name: str, scheme: str, prefix: str, port: int) -> None:
        self.podman = podman
        self.name = name
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}{prefix}"
        self.client = httpx.Client(base_url=self.url, verify=False, timeout=120)

    def exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        return self.podman.run("exec", self.name, *words)

    def is_ready(self) -> bool:
        facts = self.podman.inspect(self.name)["State"]
        assert facts["Running"], self.log()
        try:
            return self.client.get("readyz").is_success
        except httpx.TransportError:
            return False

    def log(self) -> str:
        done = self.podman.run("logs", self.name)
        return done.stdout + done.stderr

    def stop(self) -> int:
        """Stop it as an operator does; the exit status."""
        self.podman("stop", self.name)
        return int(self.podman.inspect(self.name)["State"]["ExitCode"])

    def round_trip(self, queue: str) -> None:
        """Publish, receive, and acknowledge."""
        assert self.client.post(f"queues/{queue}/messages", json=BODY).status_code == 201
        (message,) = self.client.post(f"queues/{queue}/messages:receive?wait_seconds=20").json()["messages"]
        assert message["envelope"]["data"] == BODY["data"]
        settled = self.client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]})
        assert settled.json()["settled"] == 1


Start = Callable[..., Container]


@pytest.fixture
def start(podman: Podman, queue: str) -> Iterator[Start]:
    """A function that starts a container. ``options`` are more of podman's; ``variables`` have no prefix."""
    started: list[Container] = []

    def run(*options: str, **variables: str) -> Container:
        port = free_port()
        given = {"HOST": "127.0.0.1", "PORT": str(port), "AUTH": "none"} | variables
        name = f"{queue}-{len(started)}"
        podman(
            *("run", "--name", name, "--network", "host", *LIMITS, *documented(), *options),
            *environment({f"BABELGATE_{key}": value for key, value in given.items()}),
            TAG,
        )
        scheme = "https" if "TLS_CERT" in given else "http"
        started.append(Container(podman, name, scheme, given.get("PREFIX", ""), port))
        return started[-1]

    yield run
    for container in started:
        container.client.close()
        podman("rm", "--force", "--time", "0", "--volumes", container.name)


async def ready(container: Container) -> Container:
    await eventually(container.is_ready)
    return container


async def test_it_is_confined(start: Start) -> None:
    container = await ready(start())
    status = dict(re.findall(r"^(\w+):\s*(.*)$", container.exec("cat", "/proc/1/status").stdout, re.M))
    assert status["Uid"].split() == status["Gid"].split() == ["10001"] * 4
    assert [int(status[f"Cap{each}"], 16) for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")] == [0] * 5
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for folder in ("/", "/opt/babelgate", "/etc", "/run", "/var/tmp"):
        denied = container.exec("touch", f"{folder}/file")
        assert denied.returncode != 0 and "Read-only file system" in denied.stderr, folder
    for folder in ("/tmp", "/var/lib/babelgate"):
        assert container.exec("touch", f"{folder}/file").returncode == 0, folder
    # Version 1 and version 2 of control groups.
    limits = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"
    assert int(container.exec("sh", "-c", limits).stdout) == 256 << 20


async def test_it_works_in_256_mb(start: Start, queue: str) -> None:
    """20 MB of messages and the program, without being killed."""
    container = await ready(start())
    draft = {"job": "urn:babel:test:large", "data": {"text": "x" * 50_000}}
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(
            lambda _: container.client.post(f"queues/{queue}/messages:batch", json=[draft] * 50), range(8)
        )
        assert [(answer.status_code, answer.json()["failed"]) for answer in answers] == [(201, 0)] * 8
    received = 0
    while messages := container.client.post(f"queues/{queue}/messages:receive?max_messages=100").json()["messages"]:
        received += len(messages)
        tokens = [message["ack_token"] for message in messages]
        assert container.client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": tokens}).is_success
    assert received == 400
    state = container.podman.inspect(container.name)["State"]
    assert state["Running"] and not state["OOMKilled"]


async def test_messages_are_in_the_volume(start: Start, podman: Podman, queue: str) -> None:
    volume = ("--volume", f"{queue}:/var/lib/babelgate")
    first = await ready(start(*volume))
    first.round_trip("other")
    assert first.client.post(f"queues/{queue}/messages", json=BODY).status_code == 201
    assert first.stop() == 0
    second = await ready(start(*volume))
    (message,) = second.client.post(f"queues/{queue}/messages:receive").json()["messages"]
    assert message["envelope"]["data"] == BODY["data"]


@pytest.mark.redis
async def test_redis(start: Start, servers: registry.Servers, queue: str) -> None:
    server = servers.server(RedisBroker)
    url = f"redis://127.0.0.1:{server.port}/0"
    container = await ready(start(BROKERS__CACHE=url, DEFAULT='{"broker": "cache"}'))
    container.round_trip(queue)
    (broker,) = container.client.get("brokers").json()["brokers"]
    assert (broker["kind"], container.stop()) == ("redis", 0)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("prefix", ["", "/mq"], ids=["root", "prefix"])
async def test_the_health_check(start: Start, tmp_path: Path, tls: bool, prefix: str) -> None:
    """It finds the port, which is another one for each container."""
    variables, options = {"PREFIX": prefix} if prefix else {}, []
    if tls:
        certify(tmp_path)
        for name in ("server.crt", "server.key"):
            (tmp_path / name).chmod(0o644)
            options += ["--volume", f"{tmp_path / name}:/run/tls/{name}:ro"]
        variables |= {"TLS_CERT": "/run/tls/server.crt", "TLS_KEY": "/run/tls/server.key"}
    container = await ready(start(*options, **variables))
    assert container.podman.run("healthcheck", "run", container.name).returncode == 0
    (entry, *_) = container.podman.inspect(container.name)["State"]["Health"]["Log"]
    assert entry["Output"].strip() == f"{container.url}/livez is alive"
    other = container.podman.run("exec", "--env", "BABELGATE_PREFIX=/other", container.name, "babelgate", "healthcheck")
    assert (other.returncode, "/other/livez answered 404" in other.stderr) == (1, True)


async def test_a_gateway_that_hangs_is_not_healthy(start: Start) -> None:
    container = await ready(start())
    # The first process of a container ignores a SIGSTOP from inside.
    container.podman("kill", "--signal", "STOP", container.name)
    done = container.podman.run("healthcheck", "run", container.name)
    (entry, *_) = container.podman.inspect(container.name)["State"]["Health"]["Log"]
    assert (done.returncode, entry["ExitCode"]) == (1, 1)


async def test_sigterm_drains(start: Start, queue: str) -> None:
    """A waiting receive is answered, a publish in flight is finished, and the exit status is 0."""
    container = await ready(start())
    with ExitStack() as stack:
        publish, poll = (stack.enter_context(Connection("127.0.0.1", container.port, 120)) for _ in range(2))
        rest = begin(publish, f"/queues/{queue}/messages", BODY)
        poll.send(begin(poll, "/queues/empty/messages:receive", {"wait_seconds": 30}))
        stopping = stack.enter_context(ThreadPoolExecutor()).submit(container.stop)
        answer = poll.reply()
        assert (answer.status, json.loads(answer.body)) == (200, {"messages": []})
        publish.send(rest)
        assert publish.reply().status == 201
        assert stopping.result() == 0, container.log()


def begin(connection: Connection, path: str, value: object) -> bytes:
    """Send a request but for the second half of its body, which is returned."""
    body = json.dumps(value).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    connection.send(head.encode() + b"Expect: 100-continue\r\n\r\n")
    # The server asks for the body: the request is in flight.
    assert connection.head()[0] == 100
    connection.send(body[:5])
    return body[5:]


@pytest.mark.parametrize(
    ("variables", "says"),
    [({"HOST": "0.0.0.0", "AUTH": "tokens"}, "auth"), ({"STATE_DIR": "/nowhere/state"}, "/nowhere/state")],
)
async def test_a_mistake_ends_it_with_one_line(start: Start, variables: dict[str, str], says: str) -> None:
    container = start(**variables)
    await eventually(lambda: not container.podman.inspect(container.name)["State"]["Running"])
    assert container.podman.inspect(container.name)["State"]["ExitCode"] != 0
    (line,) = container.log().splitlines()
    assert says in line
