"""Receives, streams and leases at a time that processes share in a real Redis."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from babelgate.brokers.rate_store import CountShare, HeldCount
from babelgate.gateway.shared_rates import SharedRates
from tests.brokers.redis.harness import RedisServer, binding, client
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import eventually
from tests.harness.problems import problem

pytestmark = pytest.mark.redis

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
LONG = 3600.0


@pytest.fixture
def name():
    return f"test-leases:{secrets.token_hex(8)}"


async def test_processes_divide_what_is_free(server: RedisServer, name: str) -> None:
    async with binding(server.url(0)) as one:

        async def share(process: str, own: int, is_active: bool = True, patience: float = LONG) -> CountShare:
            (found,) = await one.shared_rates.share(process, patience, [HeldCount(name, own, 10, is_active)])
            return found

        assert await share("a", 0) == CountShare(10, 0)
        # All are the other's, who does not know yet: one is more than the limit.
        assert await share("b", 0) == CountShare(1, 0)
        assert await share("a", 4) == CountShare(4 + 2, 0)
        assert await share("b", 1) == CountShare(1 + 1, 4)
        # One that asks for nothing gets nothing, and leaves the rest to the others.
        assert await share("a", 4, is_active=False) == CountShare(4, 1)
        assert await share("b", 6) == CountShare(6, 4)
        assert await share("b", 5) == CountShare(5 + 1, 4)
        # Above the limit both go down.
        assert await share("a", 8) == CountShare(8 - 2, 5)
        assert await share("a", 0, is_active=False) == CountShare(0, 5)
        assert await share("b", 5) == CountShare(10, 0)


async def test_a_process_that_says_nothing_counts_no_more(server: RedisServer, name: str) -> None:
    async with binding(server.url(0)) as one:
        await one.shared_rates.share("killed", 0.05, [HeldCount(name, 10, 10, True)])
        deadline = time.monotonic() + 60
        while (await one.shared_rates.share("b", LONG, [HeldCount(name, 0, 10, True)])) != [CountShare(10, 0)]:
            assert time.monotonic() < deadline
        await one.shared_rates.share("b", 0.05, [HeldCount(name, 1, 10, True)])
    with client(server, 0) as plain:
        assert plain.hkeys(f"babelgate:counts:{name}") in ([b"b"], ["b"], [])
        assert plain.ttl(f"babelgate:counts:{name}") <= 2


@pytest.mark.parametrize("processes", [2, 3, 5])
async def test_the_sum_is_at_most_one_beyond_the_limit_for_each_further_process(
    server: RedisServer, name: str, processes: int
) -> None:
    rng = random.Random(processes)
    own, granted, highest = Counter[int](), Counter[int](), 0
    async with binding(server.url(0)) as one:
        for _ in range(1_500):
            process = rng.randrange(processes)
            if rng.random() < 0.5:
                own[process] += rng.randint(0, max(granted[process] - own[process], 0))
            elif rng.random() < 0.4:
                own[process] -= rng.randint(0, own[process])
            else:
                told = HeldCount(name, own[process], 7, True)
                (share,) = await one.shared_rates.share(str(process), LONG, [told])
                granted[process] = share.granted
            highest = max(highest, own.total())
    assert 7 <= highest <= 7 + processes - 1


async def test_shares_follow_what_the_others_have(server: RedisServer) -> None:
    scope = (secrets.token_hex(8), "")
    async with binding(server.url(0)) as one, binding(server.url(0)) as other:
        shared = [SharedRates(each.shared_rates) for each in (one, other)]
        running: list[Counter[str]] = [Counter(), Counter()]
        first, second = (
            each.count("identity-leases", scope, 10, has, "leases") for each, has in zip(shared, running, strict=True)
        )
        await eventually(lambda: first.is_settled() and first.ceiling() == 10)
        running[0]["leases"] = 10
        await eventually(lambda: first.sent == 10)
        await shared[1].counts.learn([second])
        await eventually(lambda: second.total == 10)
        assert second.looked_at == 0.0
        await second.settle([second])
        await eventually(lambda: (second.ceiling(), second.total, second.is_settled()) == (0, 10, True))
        grown = []
        shared[1].counts.when_grown = lambda: grown.append(second.ceiling())
        running[0]["leases"] = 3
        await eventually(lambda: second.ceiling() > 0 and grown)
        assert second.total <= 10
        for each in shared:
            await each.close()


def _process(stack: ExitStack, directory, name: str, store: RedisServer) -> GatewayProcess:
    """A process with a file of its own for its messages, which counts with the others in ``store``."""
    home = directory / name
    home.mkdir()
    config = {
        "brokers": {"local": f"sqlite:///{home}/babelgate.db", "cache": store.url()},
        "default": {"broker": "local", "lease_seconds": 3600},
        "rate_limits": {"store": "cache", "identity": {"max_leases": 4, "max_receives": 2, "max_streams": 1}},
    }
    process = stack.enter_context(gateway(home, config))
    with process.client() as calling:
        calling.post("/queues/q/messages:batch", json=[DRAFT] * 20).raise_for_status()
    return process


def _receive(process: GatewayProcess, messages: int = 10, seconds: float = 0):
    with process.client() as calling:
        return calling.post("/queues/q/messages:receive", json={"max_messages": messages, "wait_seconds": seconds})


def _got(process: GatewayProcess, messages: int = 10, seconds: float = 0) -> list[str]:
    """The tokens of what it hands out; none if it refuses to."""
    answer = _receive(process, messages, seconds)
    if answer.status_code == 429:
        problem(answer, 429, "leases_exceeded")
        return []
    return [each["ack_token"] for each in answer.raise_for_status().json()["messages"]]


def _until(condition) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _until_refused(process: GatewayProcess, tokens: list[str]) -> None:
    """Receive until there is no room; what is handed out before is added to ``tokens``."""

    def is_refused() -> bool:
        answer = _receive(process, 1)
        if answer.status_code != 429:
            tokens.extend(each["ack_token"] for each in answer.raise_for_status().json()["messages"])
        return answer.status_code == 429

    _until(is_refused)


def _wait_for_some(process: GatewayProcess) -> list[str]:
    """Receive, each time with a long wait, until something is handed out."""
    tokens: list[str] = []
    deadline = time.monotonic() + 120
    while not tokens:
        assert time.monotonic() < deadline
        tokens += _got(process, seconds=30)
    return tokens


def _until_four(process: GatewayProcess, tokens: list[str]) -> None:
    """Receive until there are four tokens."""
    deadline = time.monotonic() + 90
    while len(tokens) < 4:
        tokens += _got(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(tokens) == 4


def _metric(process: GatewayProcess, line: str) -> bool:
    with process.client() as calling:
        return line in calling.get("/metrics").text.splitlines()


def test_two_processes_have_one_limit_and_a_killed_one_gives_its_leases_back(tmp_path):
    store = RedisServer(tmp_path)
    store.start()
    try:
        with ExitStack() as stack:
            one, other = (_process(stack, tmp_path, name, store) for name in ("one", "other"))
            tokens = _got(one)
            assert len(tokens) == 4
            # What the first has it tells within a tenth of a second. Meanwhile the other may hand out one.
            got = _got(other, 1)
            _until_refused(other, got)
            answer = _receive(other)
            assert f"has {4 + len(got)} leases already" in problem(answer, 429, "leases_exceeded")["detail"]
            assert '"identity-leases";r=0' in answer.headers["ratelimit"]
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(_wait_for_some, other)
                _until(lambda: _metric(other, 'babelgate_receive_waiters{broker="local",queue="q"} 1.0'))
                with one.client() as calling:
                    calling.post("/queues/q/messages:ack", json={"ack_tokens": tokens[:2]}).raise_for_status()
                # It waits for the leases of the other process.
                got += waiting.result()
            assert 1 <= len(got) <= 3
            one.kill()
            _until_four(other, got)
            problem(_receive(other), 429, "leases_exceeded")
    finally:
        store.stop()


def _stream(process: GatewayProcess) -> httpx.Response:
    """The answer to a stream, which has ended."""
    with process.client() as calling, calling.stream("GET", "/queues/none/messages:stream") as answer:
        if answer.status_code != 200:
            answer.read()
        return answer


def test_streams_of_two_processes_have_one_limit(tmp_path):
    store = RedisServer(tmp_path)
    store.start()
    try:
        with ExitStack() as stack:
            one, other = (_process(stack, tmp_path, name, store) for name in ("one", "other"))
            with one.client() as calling, calling.stream("GET", "/queues/none/messages:stream") as open_one:
                assert open_one.status_code == 200
                _until(lambda: _stream(other).status_code == 429)
                assert "has 1 streams already" in problem(_stream(other), 429, "concurrency_exceeded")["detail"]
            _until(lambda: _stream(other).status_code == 200)
    finally:
        store.stop()


def test_without_the_store_each_process_has_the_limit_and_then_all_together_again(tmp_path):
    store = RedisServer(tmp_path)
    store.start()
    try:
        with ExitStack() as stack:
            one, other = (_process(stack, tmp_path, name, store) for name in ("one", "other"))
            tokens, held = _got(one), _got(other, 1)
            _until_refused(other, held)
            store.kill()
            for process in (one, other):
                # It notices when it tells what it has.
                _until(lambda process=process: _metric(process, "babelgate_rates_alone 1.0"))
                assert process.log_text().count("streams and leases are not shared") == 1
            _until_four(other, held)
            problem(_receive(other), 429, "leases_exceeded")
            store.start()
            for process in (one, other):
                _until(lambda process=process: _metric(process, "babelgate_rates_alone 0.0"))
            # Both have four, which is too much, and go down together.
            _until(lambda: "has 8 leases already" in _receive(one, 1).text)
            with one.client() as calling:
                calling.post("/queues/q/messages:ack", json={"ack_tokens": tokens}).raise_for_status()
            assert len(_got(one) + _got(one)) <= 2
    finally:
        store.stop()
