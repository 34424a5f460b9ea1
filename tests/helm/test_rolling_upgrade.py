"""A rolling upgrade under load, with the pods of the chart as processes behind HAProxy.

Nothing is lost, nothing is acked wrongly, no request fails, and leases that were taken before it settle after it.

Each upgrade is a step of the rotation of the token key, so old and new pods settle each other's tokens.
"""

from __future__ import annotations

import asyncio
import base64
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from babelgate.errors import BrokerUnavailable, OutcomeUnknown, OwnerUnreachable
from tests.brokers import registry
from tests.e2e.test_replicas import LEASE, ledger_of, left_behind, report
from tests.harness.broker import Broker
from tests.harness.crowd import Crowd
from tests.harness.haproxy import HAProxy, haproxy
from tests.harness.ledger import Ledger
from tests.harness.pod import Network, Pod
from tests.helm.matrix import merged
from tools.helm import Document, documents, only, template

pytestmark = pytest.mark.slow

BETWEEN = 100
"""Messages that are acked between two upgrades."""
ROTATION = (["1"], ["1", "2"], ["2", "1"])
RETRYABLE = {BrokerUnavailable.code, OutcomeUnknown.code, OwnerUnreachable.code}
"""Codes of 5xx answers that docs/errors.md lets a client repeat."""
HELD = 20
SERVICE = "shop-babelgate"
PORT = 8080


class Rollout:
    """The Deployment of a release: it replaces its pods as Kubernetes does."""

    def __init__(self, network: Network, proxy: HAProxy, broker: Broker) -> None:
        url = urlsplit(broker.url)
        password = "${file:/run/secrets/broker/password}"
        user = f"{url.username or ''}:{password}@" if url.password else ""
        address = f"{url.scheme}://{user}broker:{url.port}{url.path}" + (f"?{url.query}" if url.query else "")
        route = {"broker": "main", "lease_seconds": LEASE, "max_attempts": 1000, **broker.queue_options}
        self._values: dict[str, Any] = {
            # `helm test` starts a program for each step, which on a busy machine takes longer than a short lease.
            "config": {
                "brokers": {"main": address},
                "default": route,
                "queues": {"helm-test": {**route, "lease_seconds": 120}},
                "auth": "none",
            },
            "secrets": {"broker": "broker"} if url.password else {},
        }
        self._secrets = {"broker": _encoded({"password": url.password or ""})}
        self._network = network
        self.proxy = proxy
        self._names = iter(range(100))
        self.pods: list[Pod] = []
        self.found: list[Document] = []
        self.statuses: list[int] = []

    def render(self, ids: Sequence[str]) -> None:
        """Render the next revision. Like the chart in a cluster, keep the keys that were made before."""
        self.found = documents(template(merged(self._values, {"tokenKeys": {"ids": list(ids)}})))
        keys = only(self.found, "Secret", "-token-keys")
        name = keys["metadata"]["name"]
        self._secrets[name] = {**keys["data"], **self._secrets.get(name, {})}

    def start_one(self) -> None:
        """Start a pod of the current revision; when it is ready, the Service leads to it."""
        spec = only(self.found, "Deployment")["spec"]["template"]["spec"]
        pod = Pod(self._network, f"pod-{next(self._names)}", spec, self.found, self._secrets)
        self.pods.append(pod)
        # The headless Service has pods that are not ready, too.
        self._name_peers()
        pod.start()
        self.proxy.add(pod.address)

    def stop_one(self) -> None:
        """Delete the oldest pod: the Service forgets it while it runs preStop, and then it gets the signal."""
        pod = self.pods[0]
        with subprocess.Popen(pod.hook("preStop")) as hook:
            self.proxy.remove(pod.address)
        assert hook.returncode == 0
        self.statuses.append(pod.stop())
        self.pods.remove(pod)
        self._name_peers()
        print(pod.log.read_text()[-2000:])
        pod.close()

    def run_test(self) -> subprocess.CompletedProcess[str]:
        """What ``helm test`` runs."""
        spec = only(self.found, "Pod")["spec"]
        return Pod(self._network, "test", spec, self.found, self._secrets).run(spec["containers"][0])

    def _name_peers(self) -> None:
        self._network.name(f"{SERVICE}-peers", [pod.address for pod in self.pods])


def _encoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}


@pytest.fixture(params=registry.params(each for each in registry.ORDINARY if each.broker.kind in ("redis", "rabbitmq")))
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    """One whose leases any gateway settles, and one whose leases only the gateway settles that received."""
    return servers.broker(request.param, tmp_path)


@pytest.fixture
def rollout(broker: Broker, tmp_path: Path) -> Iterator[Rollout]:
    with ExitStack() as stack:
        network = stack.enter_context(Network(tmp_path))
        addresses = network.addresses(2 * len(ROTATION) + 1)
        port = urlsplit(broker.url).port
        assert port is not None
        proxy = stack.enter_context(haproxy(tmp_path, network.address, PORT, port, addresses))
        for name in ("broker", SERVICE):
            network.name(name, [network.address])
        yield Rollout(network, proxy, broker)


async def upgrade(rollout: Rollout, ledger: Ledger, ids: Sequence[str]) -> None:
    """Replace one pod after the other: a new one is ready before an old one stops."""
    await asyncio.to_thread(rollout.render, ids)
    for _ in range(2):
        await asyncio.to_thread(rollout.start_one)
        if ledger.owned:
            with ledger.disturbance():
                await asyncio.to_thread(rollout.stop_one)
        else:
            await asyncio.to_thread(rollout.stop_one)


class Consumer:
    """A client of one queue, which holds messages during the upgrades."""

    def __init__(self, url: str, queue: str, ledger: Ledger) -> None:
        self._url = f"{url}/queues/{queue}/messages"
        self._ledger = ledger

    def publish(self) -> None:
        drafts = [{"job": "urn:babel:test:held", "data": {"n": n}} for n in range(HELD)]
        assert self._post(":batch", drafts)["failed"] == 0

    def receive(self) -> list[str]:
        """The tokens of all messages."""
        tokens: list[str] = []
        while len(tokens) < HELD:
            wanted = {"max_messages": HELD, "lease_seconds": 600, "wait_seconds": 20}
            messages = self._post(":receive", wanted)["messages"]
            assert messages, f"{len(tokens)} of {HELD} messages came"
            tokens += [message["ack_token"] for message in messages]
        return tokens

    def ack(self, tokens: Sequence[str]) -> list[int]:
        """The status of each token."""
        return [result["status"] for result in self._post(":ack", {"ack_tokens": tokens})["results"]]

    def _post(self, verb: str, body: Any) -> Any:
        """The answer, also where a 503 comes first: it says that nothing was written."""
        while True:
            answer = httpx.post(f"{self._url}{verb}", json=body, timeout=120)
            if answer.status_code != 503:
                return answer.raise_for_status().json()
            self._ledger.failed[answer.json()["code"]] += 1


async def test_nothing_is_lost_in_a_rolling_upgrade(rollout: Rollout, broker: Broker, queue: str) -> None:
    url = rollout.proxy.url
    seed = random.randrange(2**32)
    ledger = ledger_of(broker, queue)
    crowd = Crowd([url], queue, ledger, LEASE, seed, broker.spare_seconds)
    rollout.render(ROTATION[0])
    for _ in range(2):
        await asyncio.to_thread(rollout.start_one)
    holder = Consumer(url, f"{queue}-held", ledger)
    await asyncio.to_thread(holder.publish)
    tokens = await asyncio.to_thread(holder.receive)

    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.run())
        for ids in ROTATION[1:]:
            await crowd.progress(BETWEEN)
            await upgrade(rollout, ledger, ids)
        await crowd.progress(BETWEEN)
        crowd.calm()

    statuses = await asyncio.to_thread(holder.ack, tokens)
    if ledger.owned:
        # They went back to the broker with the gateways that had received them.
        assert statuses == [409] * HELD
        tokens = await asyncio.to_thread(holder.receive)
        statuses = await asyncio.to_thread(holder.ack, tokens)
    assert statuses == [200] * HELD
    # A gateway on RabbitMQ keeps the letters of a page taken for the next one: all pages come from one gateway.
    counts, dead = await asyncio.to_thread(left_behind, f"http://{rollout.pods[0].address}:{PORT}", queue)
    told = ledger.told
    wrongs = ledger.verdict(dead)
    assert not wrongs, report(ledger, wrongs, seed)
    assert counts == {}, report(ledger, ["something was left behind"], seed)
    assert rollout.statuses == [0] * 4
    # On a busy machine a ping of the broker may be late. HAProxy itself has no failure to report.
    assert ledger.failed.keys() <= RETRYABLE
    assert rollout.proxy.counts()["hrsp_5xx"] == str(ledger.failed.total()), dict(told)
    assert not [outcome for outcome in told if "no answer" in outcome], dict(told)
    done = await asyncio.to_thread(rollout.run_test)
    assert done.returncode == 0, done.stderr
