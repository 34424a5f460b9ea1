"""Rates that processes share in a real Redis."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import yaml

from babelgate.brokers.rate_store import TakenRate
from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.gateway.shared_rates import SharedRates
from babelgate.server.wiring import resolve
from tests.brokers.redis.harness import RedisServer, binding, client
from tests.harness.gateway import gateway
from tests.harness.local import eventually
from tests.harness.problems import problem

pytestmark = pytest.mark.redis


async def test_processes_share_a_rate(server: RedisServer) -> None:
    scope = (secrets.token_hex(8), "orders")
    async with binding(server.url(0)) as one, binding(server.url(0)) as other:
        shared = [SharedRates(each.shared_rates) for each in (one, other)]
        # Nothing comes again while the test runs.
        first, second = (each.bucket("queue-messages", scope, 10 / 80_000, 10) for each in shared)
        now = shared[0]._clock
        first.take(now(), 9)
        await eventually(lambda: first.unreported == 0.0)
        second.take(now(), 0)
        await eventually(lambda: second.wait(now(), 2) > 0)
        assert second.wait(now(), 1) == 0
        for each in shared:
            await each.close()


async def test_a_rate_is_kept_until_its_bucket_is_full(server: RedisServer) -> None:
    name = f"test:{secrets.token_hex(8)}"
    async with binding(server.url(0)) as one:
        rates = one.shared_rates
        (first,) = await rates.take([TakenRate(name, 3, 100)])
        assert first == pytest.approx(-97, abs=0.001)
        second, other = await rates.take([TakenRate(name, 200.5, 100), TakenRate(f"{name}.b", 0, 100)])
        # Some seconds may have passed meanwhile.
        assert 43.5 <= second <= 103.501
        assert other == pytest.approx(-100, abs=0.001)
    with client(server, 0) as plain:
        assert 0 < plain.pttl(f"babelgate:rates:{name}") <= 204_501


@pytest.mark.parametrize(("store", "words"), [("other", "cannot share rates"), ("none", "is no broker")])
def test_another_store_is_refused(tmp_path, store, words):
    path = tmp_path / "babelgate.yaml"
    brokers = {"other": f"sqlite:///{tmp_path}/x.db", "cache": "redis://127.0.0.1:1/0"}
    config = {"state_dir": str(tmp_path), "brokers": brokers, "default": {"broker": "cache"}}
    path.write_text(yaml.safe_dump(config | {"rate_limits": {"store": store}}))
    with pytest.raises(ConfigError, match=words) as caught:
        resolve(settings.load(path, {}))
    assert caught.value.facts["key"] == "rate_limits.store"
    assert caught.value.facts["reason"].endswith("what can: cache")


def test_operators_see_that_replicas_count_together(tmp_path):
    path = tmp_path / "babelgate.yaml"
    route = {"broker": "cache", "limits": {"messages_per_second": 5}}
    config = {"state_dir": str(tmp_path), "brokers": {"cache": "redis://127.0.0.1:1/0"}, "default": route}
    path.write_text(yaml.safe_dump(config | {"rate_limits": {"store": "cache"}}))
    limits = resolve(settings.load(path, {})).route("q").policy.limits
    assert limits is not None and limits.counted_in == "replicas"


DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
PER_SECOND = 20


def _gateway(stack, directory, name, store):
    """A process that keeps its messages in a file of its own, and counts rates with the others in ``store``."""
    home = directory / name
    home.mkdir()
    config = {
        "brokers": {"local": f"sqlite:///{home}/babelgate.db", "cache": store.url()},
        "default": {"broker": "local"},
        "rate_limits": {"store": "cache", "identity": {"messages_per_second": PER_SECOND}},
    }
    return stack.enter_context(gateway(home, config))


def _pass(process, accepted, enough):
    """Publish as fast as the limit allows, until the list has enough times of accepted messages."""
    with process.client() as client:
        while len(accepted) < enough:
            answer = client.post("/queues/orders/messages", json=DRAFT)
            if answer.status_code == 201:
                accepted.append(time.monotonic())
            else:
                problem(answer, 429, "rate_exceeded")
                time.sleep(0.02)


def _alone(process):
    """Whether it counts for itself, by its metrics."""
    with process.client() as client:
        return "babelgate_rates_alone 1.0" in client.get("/metrics").text.splitlines()


def _until(condition):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_processes_let_through_what_the_limit_says_and_each_alone_without_the_store(tmp_path):
    store = RedisServer(tmp_path)
    store.start()
    try:
        with ExitStack() as stack:
            both = [_gateway(stack, tmp_path, name, store) for name in ("one", "other")]
            accepted: list[float] = []
            began = time.monotonic()
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(lambda process: _pass(process, accepted, 8 * PER_SECOND), both))
            took = accepted[8 * PER_SECOND - 1] - began
            # A burst of a second, and the rest at the rate of both together. Two that count for themselves take 3 s.
            assert 4.5 <= took < 60, took
            store.kill()
            for process in both:
                # It notices when it tells what it has taken, and lets through what the limit says.
                _pass(process, [], 1)
                _until(lambda process=process: _alone(process))
                _pass(process, [], PER_SECOND)
                assert process.log_text().count("rates are not shared") == 1
            store.start()
            _until(lambda: not any(map(_alone, both)))
    finally:
        store.stop()
