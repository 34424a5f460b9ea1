"""An hour in two minutes: Prometheus scrapes a real gateway of two workers while things go wrong, and it tells of each.

The windows of the alert rules are a thirtieth of what they are. What Prometheus has at the end is what the clients were
told, to the message, although a worker was killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.redis.harness import RedisServer, redis_server
from tests.brokers.redis.harness import client as redis_client
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.issuer import AUDIENCE, running
from tests.harness.monitoring import Query, compressed, dashboard, queries, rules
from tests.harness.prometheus import Prometheus, prometheus
from tests.harness.shop import Books, Shop, tokens_of
from tests.harness.webhooks import SECRET

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.rabbitmq,
    pytest.mark.redis,
    pytest.mark.slow,
]

FASTER = 30
SCRAPE_SECONDS = 3
"""So long a scrape may take, too: a worker that hangs is waited for, a second long."""
GRANT = {"claim": "groups", "value": "shop", "grant": {"orders": ["send"]}}
CLIENTS, SCRAPER = "for the clients", "for the scrapes"
"""Tokens."""
ONLY_UNIT_TESTED = {
    "BabelgateAuditErrors",
    "BabelgateCertificateEnds",
    "BabelgateConfigurationRefused",
    "BabelgateIssuerNotRead",
    "BabelgatePublishesNearBound",
    "BabelgatePushHeld",
    "BabelgateReceivesNearBound",
    "BabelgateSchemasNotRead",
    "BabelgateStorageRefuses",
}
"""They need thousands of clients, or a disk that is full for minutes."""
ORDINARY = ("orders", "mails", "payments")
ON_A_BUSY_MACHINE = {"BabelgateSlowRequests", "BabelgateRefusals", "BabelgateTargetDown", "BabelgateBrokerDown"}
"""They may fire before they are provoked, too."""
OWNED = {"payments", "short", "hung"}
WHAT = {
    "published": ("babelgate_published_total", "queue"),
    "delivered": ("babelgate_delivered_total", "queue"),
    "settled": ('babelgate_settled_total{queue!="hung"}', "queue", "outcome"),
    "extended": ("babelgate_extended_total", "queue"),
    "dead_lettered": ("babelgate_dead_lettered_total", "queue", "reason"),
    "poison": ("babelgate_poison_total", "queue"),
    "redriven": ("babelgate_redriven_total", "queue"),
    "expired": ("babelgate_lease_expired_total", "queue"),
    "asked": ('{__name__=~"babelgate_(local|forwarded)_settles_total"}', "queue"),
    "unknown": ('babelgate_forwarded_settles_total{result="unknown"}', "queue"),
    "answered": (
        'http_server_request_duration_seconds_count{http_route=~".*/queues/.*"}',
        "http_response_status_code",
    ),
}
"""What the clients have on their books: the metric that counts the same, and its labels in the order of the books."""


class Scene:
    """All the parts of the hour."""

    def __init__(self, process: GatewayProcess, watcher: Prometheus, cache: RedisServer, shop: Shop) -> None:
        self.process = process
        self.watcher = watcher
        self.cache = cache
        self.shop = shop
        self.landing = process.directory / "landing"
        self.begun = time.time()
        self.troubles: dict[str, float] = {}

    def expect(self, *alerts: str) -> None:
        """These may fire from now on."""
        self.troubles = dict.fromkeys(alerts, time.time()) | self.troubles

    async def until(self, condition: Callable[[], object], what: str, seconds: float = 240) -> None:
        """Wait until it holds."""
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(condition):
            firing, errors = self.watcher.firing(), self.watcher.scrape_errors()
            fired = self.watcher.fired(self.begun).difference(firing)
            assert time.monotonic() < deadline, f"{what}; firing: {firing}; fired: {fired}; scrapes: {errors}"
            await asyncio.sleep(0.2)

    async def fires(self, *alerts: str) -> None:
        """Wait until each of these has fired."""
        await self.until(lambda: self.watcher.fired(self.begun).issuperset(alerts), f"not all of {alerts} fire")

    async def agrees(self) -> None:
        """What Prometheus has is what is on the books, once it has scraped again."""
        booked = {what: self.shop.books.of(what) for what in WHAT}
        assert all(booked.values()), booked
        with suppress(AssertionError):
            await self.until(lambda: self.told() == booked, "", 120)
        assert self.told() == booked

    def told(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The sums that Prometheus has, without zeros."""
        return {what: self._sums(metric, labels) for what, (metric, *labels) in WHAT.items()}

    def _sums(self, metric: str, labels: Sequence[str]) -> dict[tuple[str, ...], float]:
        samples = self.watcher.query(f"sum by ({','.join(labels)}) ({metric})")
        return {tuple(each.labels[label] for label in labels): each.value for each in samples if each.value}


@pytest.fixture
async def scene(tmp_path: Path, rabbit: RabbitServer) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        cache = stack.enter_context(redis_server())
        issuer = stack.enter_context(running())
        (tmp_path / "schemas").mkdir()
        (tmp_path / "schemas" / "pushed.json").write_text('{"$id": "urn:babel:shop:pushed", "required": ["to"]}')
        config = {
            "brokers": {
                # A settle waits so long for a worker that hangs, and one that hangs for 30 s is replaced.
                "local": {"url": f"sqlite:///{tmp_path}/messages.db", "timeout_seconds": 12},
                "cache": cache.url(),
                "rabbit": {"url": rabbit.url(), "timeout_seconds": 12},
            },
            "queues": {
                "orders": {"broker": "local"},
                "backlog": {"broker": "local", "schema": "warn"},
                "mails": {"broker": "cache"},
                "shared": {"broker": "cache", "layout": "laravel"},
                "payments": {"broker": "rabbit"},
                "short": {"broker": "rabbit", "lease_seconds": 1},
                "hung": {"broker": "rabbit"},
            },
            "limits": {"max_publishes_in_flight": 20},
            "rate_limits": {"store": "cache", "identity": {"requests_per_second": 1e9}},
            "schemas": {"directory": str(tmp_path / "schemas")},
            "audit": {"directory": str(tmp_path / "audit")},
            "journal": {"landing": str(tmp_path / "landing"), "segment_seconds": 1, "buffer_bytes": 65_536},
            "auth": {
                "tokens": [token(CLIENTS, "*", "send", "listen", "manage"), token(SCRAPER, "metrics-only", "manage")],
                "issuers": [{"issuer": issuer.url, "audience": AUDIENCE, "rights": [GRANT]}],
            },
            "workers": 2,
        }
        process = stack.enter_context(gateway(tmp_path, config))
        target = process.url.removeprefix("http://")
        scrape = {
            "job_name": "babelgate",
            "authorization": {"credentials": SCRAPER},
            "static_configs": [{"targets": [target]}],
        }
        watcher = stack.enter_context(prometheus([scrape], compressed(FASTER), interval_seconds=SCRAPE_SECONDS))
        client = await stack.enter_async_context(connected(process))
        scene = Scene(process, watcher, cache, Shop(client, Books(), OWNED))
        await scene.until(lambda: watcher.value('sum(babelgate_workers{state="up"})') == 2, "both workers are scraped")
        # Rules are evaluated some seconds before the first scrape: nobody is there then.
        await scene.until(lambda: "BabelgateAbsent" not in watcher.firing(), "nobody is there")
        scene.begun = time.time()
        yield scene


def token(text: str, queues: str, *rights: str) -> dict[str, Any]:
    return {"name": text, "sha256": hashlib.sha256(text.encode()).hexdigest(), "rights": {queues: list(rights)}}


@asynccontextmanager
async def connected(process: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {CLIENTS}"}
    async with httpx.AsyncClient(base_url=process.url, headers=headers, timeout=120) as client:
        yield client


async def journal_cannot_land(scene: Scene) -> None:
    """Where the directory was, there is a file."""
    scene.expect("BabelgateJournalErrors", "BabelgateJournalStuck")
    away = scene.landing.with_name("away")
    scene.landing.rename(away)
    scene.landing.touch()
    await scene.fires("BabelgateJournalErrors", "BabelgateJournalStuck")
    scene.landing.unlink()
    away.rename(scene.landing)


async def nobody_consumes(scene: Scene) -> None:
    """More than a thousand messages, at once and then more; the journal's small buffer is too small for so many."""
    scene.expect("BabelgateJournalDrops", "BabelgateQueueNotConsumed", "BabelgateOldestMessageTooOld")
    scene.expect("BabelgateQueueBacklogGrowing")
    await scene.shop.stock("backlog", 1_100)
    grown = 0
    waiting = {"BabelgateQueueNotConsumed", "BabelgateOldestMessageTooOld", "BabelgateQueueBacklogGrowing"}
    while not waiting <= await asyncio.to_thread(scene.watcher.fired, scene.begun):
        assert grown < 400, f"only {scene.watcher.fired(scene.begun)} fired"
        grown += await scene.shop.publish("backlog")
        await asyncio.sleep(0.5)
    await scene.fires("BabelgateJournalDrops")
    await scene.shop.take("backlog", "ack", 1_100 + grown)


async def leases_run_out(scene: Scene) -> None:
    """Consumers are too slow, and settle then."""
    scene.expect("BabelgateLeaseExpiries", "BabelgateLeaseLost")
    shop, count = scene.shop, 15
    await shop.stock("short", count)
    late: list[str] = []
    while len(late) < count:
        late += tokens_of(await shop.receive("short", count - len(late), wait_seconds=1))
    shop.books["expired", "short"] += count
    again: list[str] = []
    while len(again) < count:
        again += tokens_of(await shop.receive("short", count - len(again), wait_seconds=5, lease_seconds=60))
    assert await shop.settle("short", "ack", late) == {409: count}
    assert await shop.settle("short", "ack", again) == {200: count}


async def messages_are_given_up(scene: Scene) -> None:
    """Rejected, and sent back later; and bodies that are no envelopes."""
    scene.expect("BabelgateDeadLettersRising", "BabelgatePoison")
    await scene.shop.stock("orders", 15)
    await scene.shop.take("orders", "reject", 15, error={"message": "no"})
    # In a thread: the broker may be made to hang by this very loop.
    await asyncio.to_thread(_inject, scene.cache, "mails", b"poison", 3)
    scene.shop.books["poison", "mails"] += 3
    scene.shop.books["dead_lettered", "mails", "poison"] += 3
    await scene.fires("BabelgateDeadLettersRising", "BabelgatePoison")
    await scene.shop.redrive("orders", 15)


def _inject(cache: RedisServer, queue: str, body: bytes, count: int) -> None:
    with redis_client(cache) as plain:
        plain.rpush(queue, *[body] * count)


async def a_broker_is_slow_and_then_down(scene: Scene) -> None:
    """It hangs for more than a second again and again, with more publishes than may be in flight; then it is gone."""
    slow = {"BabelgateSlowRequests", "BabelgateRefusals"}
    rounds = 0
    while rounds < 5 or not slow <= await asyncio.to_thread(scene.watcher.fired, scene.begun):
        rounds += 1
        assert rounds < 100, f"only {scene.watcher.fired(scene.begun)} fired"
        async with asyncio.TaskGroup() as crowd:
            scene.cache.pause()
            for _ in range(30):
                crowd.create_task(scene.shop.publish("mails"))
            await asyncio.sleep(1.2)
            scene.cache.resume()
        await asyncio.sleep(0.6)
    # The gateway's own ping may be the first to fail, and no call is sent after it. One that is under way fails anyhow.
    waiting = asyncio.create_task(scene.shop.receive("shared", wait_seconds=30))
    waiters = 'sum(babelgate_receive_waiters{queue="shared"})'
    await scene.until(lambda: scene.watcher.value(waiters) == 1, "nobody waits")
    scene.expect("BabelgatePublishErrors")
    scene.cache.stop()
    assert await waiting == []
    await scene.fires("BabelgatePublishErrors")
    # What fires after two scrapes does so because it is down, not because it was slow.
    await asyncio.sleep(2 * SCRAPE_SECONDS)
    await scene.until(lambda: "BabelgateBrokerDown" in scene.watcher.firing(), "nobody misses the broker")
    await asyncio.to_thread(scene.cache.start)


async def a_worker_hangs(scene: Scene) -> None:
    """What it handed out cannot be settled meanwhile by the other, which is told that nobody knows."""
    scene.expect("BabelgateForwardedSettlesFailing", "BabelgateWorkerMissing")
    scene.expect("BabelgatePublishErrors")
    async with AsyncExitStack() as stack:
        shops: dict[str, Shop] = {}
        while len(shops) < 2:
            # A connection stays with the worker that accepted it.
            client = await stack.enter_async_context(connected(scene.process))
            worker = (await client.get("livez")).headers["x-request-id"].partition("-")[0]
            shops.setdefault(worker, Shop(client, scene.shop.books, OWNED))
        held: dict[str, list[str]] = {}
        for worker, shop in shops.items():
            await shop.stock("hung", 8)
            held[worker] = []
            while len(held[worker]) < 8:
                held[worker] += tokens_of(await shop.receive("hung", 8 - len(held[worker]), wait_seconds=5))
        os.kill(scene.process.workers()[0], signal.SIGSTOP)
        try:
            living = await first_to_answer(shops)
            (hung,) = shops.keys() - {living}
            assert await shops[living].settle("hung", "ack", held[hung]) == {504: 8}
            await scene.fires("BabelgateWorkerMissing")
        finally:
            os.kill(scene.process.workers()[0], signal.SIGCONT)
        scene.shop.books["unknown", "hung"] += 8
        # Told again, it certainly is done.
        assert await shops[living].settle("hung", "ack", held[hung]) == {200: 8}
        assert await shops[living].settle("hung", "ack", held[living]) == {200: 8}
    scene.shop.books["settled", "hung", "acked"] = 0


async def first_to_answer(shops: dict[str, Shop]) -> str:
    """The worker that is not stopped."""
    asked = {asyncio.create_task(shop.client.get("livez")): worker for worker, shop in shops.items()}
    done, pending = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return asked[done.pop()]


async def a_worker_is_killed(scene: Scene) -> None:
    """And replaced. What it had counted is not lost."""
    victim = scene.process.workers()[0]
    os.kill(victim, signal.SIGKILL)
    await scene.until(lambda: victim not in scene.process.workers(), "the victim is there")
    up = 'sum(babelgate_workers{state="up"})'
    await scene.until(lambda: scene.watcher.value(up) == 2 and len(scene.process.workers()) == 2, "it is not replaced")


async def a_queue_is_pushed_paused_and_streamed(scene: Scene) -> None:
    """No alert is about these. The receiver does not exist, and the message does not match its schema."""
    client, value = scene.shop.client, scene.watcher.value
    url = "queues/backlog"
    (await client.post(f"{url}/messages", json={"job": "urn:babel:shop:pushed", "data": {}})).raise_for_status()
    (await client.put(f"{url}/push", json={"url": "https://receiver.invalid/", "secrets": [SECRET]})).raise_for_status()
    await scene.until(lambda: value("sum(babelgate_push_duration_seconds_count)") > 0, "nothing is pushed")
    (await client.delete(f"{url}/push")).raise_for_status()
    (await client.post(f"{url}:purge")).raise_for_status()
    async with client.stream("GET", f"{url}/messages:stream") as answer:
        assert answer.status_code == 200
        await scene.until(lambda: value("sum(babelgate_open_streams)") > 0, "no stream is open")
    (await client.post(f"{url}:pause")).raise_for_status()
    await scene.until(lambda: value("sum(babelgate_queue_paused)") > 0, "no queue is paused")
    (await client.post(f"{url}:resume")).raise_for_status()


async def test_prometheus_tells_what_goes_wrong_and_counts_right(scene: Scene) -> None:
    shop, watcher = scene.shop, scene.watcher
    async with asyncio.TaskGroup() as hour:
        hour.create_task(journal_cannot_land(scene))
        await a_worker_hangs(scene)
        async with shop.business(ORDINARY), asyncio.TaskGroup() as busy:
            for trouble in (nobody_consumes, leases_run_out, messages_are_given_up, a_broker_is_slow_and_then_down):
                busy.create_task(trouble(scene))
    await scene.agrees()
    await a_worker_is_killed(scene)
    async with shop.business(ORDINARY):
        await asyncio.sleep(2)
    await scene.agrees()
    await a_queue_is_pushed_paused_and_streamed(scene)
    await scene.until(lambda: not watcher.firing(), "an alert does not resolve", 480)
    assert watcher.broken_rules() == {}

    for query in queries():
        if "babelgate_tls_" in query.expression or "babelgate_counted_leases" in query.expression:
            # The gateways of this scene serve without TLS, and without limits of leases.
            continue
        seen = watcher.series(query.filled("10s"), scene.begun, time.time())
        assert seen, f"the panel {query.panel} shows nothing for {query.expression}"
    for variable in dashboard()["templating"]["list"][1:]:
        selector, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        assert watcher.query(f"count by ({label}) ({Query('', '', selector).filled('10s')})")

    scene.expect("BabelgateAbsent")
    assert scene.process.stop() == 0
    await scene.fires("BabelgateTargetDown", "BabelgateAbsent")
    scene.process.start()
    await scene.until(lambda: not watcher.firing(), "an alert does not resolve", 480)
    assert watcher.fired(scene.begun) == {rule["alert"] for rule in rules()} - ONLY_UNIT_TESTED
    assert scene.troubles.keys() | ON_A_BUSY_MACHINE | ONLY_UNIT_TESTED == {rule["alert"] for rule in rules()}
    for alert, begun in scene.troubles.items():
        assert not watcher.series(f'ALERTS{{alertname="{alert}",alertstate="firing"}}', scene.begun, begun)
