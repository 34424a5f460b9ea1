"""Two workers are one gateway to Prometheus: sums are of both, and never fall, whoever dies. So are their rates."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.gateway import GatewayProcess
from tests.harness.sockets import Connection

pytestmark = pytest.mark.slow

DRAFT = {"job": "urn:babel:test:x", "data": {}}
PATIENCE_SECONDS = 240


class Gateway:
    """A gateway with two workers, and what it was told to do."""

    def __init__(self, process: GatewayProcess) -> None:
        self.process = process
        self.published = 0
        self.by_worker: dict[str, int] = {}

    def publish(self, times: int) -> None:
        """Each on a connection of its own, so that any worker takes it."""
        for _ in range(times):
            # To read the certificates of authorities would take longer than the call.
            answer = httpx.post(f"{self.process.url}/queues/q/messages", json=DRAFT, verify=False, timeout=60)
            assert answer.status_code == 201
            worker = answer.headers["x-request-id"].partition("-")[0]
            self.by_worker[worker] = self.by_worker.get(worker, 0) + 1
            self.published += 1

    def publish_by_both(self, workers: int = 2) -> None:
        """Until that many workers have published something, in the whole of its life."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.by_worker) < workers:
            assert time.monotonic() < deadline, "no other worker ever takes a connection"
            self.publish(5)

    def scrape(self) -> dict[tuple[str, ...], float]:
        """Numbers by name and LABELS."""
        text = httpx.get(f"{self.process.url}/metrics", timeout=60).raise_for_status().text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {(sample.name, *(sample.labels.get(name, "") for name in LABELS)): sample.value for sample in samples}

    def scrape_until_answered(self) -> dict[tuple[str, ...], float]:
        """A connection may still lie with a worker that was killed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.scrape()
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def until(self, key: tuple[str, ...], value: float) -> dict[tuple[str, ...], float]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.scrape_until_answered()).get(key) != value:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found


LABELS = ("queue", "state")
UP, SILENT = ("babelgate_workers", "", "up"), ("babelgate_workers", "", "silent")
PUBLISHED, DEPTH = ("babelgate_published_total", "q", ""), ("babelgate_queue_depth", "q", "")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    process = GatewayProcess(tmp_path, {"workers": 2})
    try:
        made = Gateway(process.start())
        made.until(UP, 2)
        yield made
    finally:
        process.close()


def test_whoever_is_scraped_tells_the_sum_and_asks_the_broker_once(gateway: Gateway) -> None:
    gateway.publish_by_both()
    for _ in range(10):
        found = gateway.until(UP, 2)
        assert (found[PUBLISHED], found[SILENT]) == (gateway.published, 0)
    assert gateway.until(DEPTH, gateway.published)[DEPTH] == gateway.published
    assert gateway.process.stop() == 0
    assert list((gateway.process.directory / "workers").iterdir()) == []
    assert "Traceback" not in gateway.process.log_text()


@pytest.mark.parametrize("metrics", [True, False], ids=["with metrics", "without"])
def test_the_rates_are_those_of_both_workers(tmp_path: Path, metrics: bool) -> None:
    process = GatewayProcess(tmp_path, {"workers": 2, "metrics": metrics})
    try:
        gateway = Gateway(process.start())
        gateway.publish_by_both()
        deadline = time.monotonic() + PATIENCE_SECONDS
        # Each request on a connection of its own, so that either worker answers.
        with httpx.Client(base_url=process.url, timeout=60, limits=httpx.Limits(max_keepalive_connections=0)) as client:
            for path in ("/queues/q/rates", "/rates"):
                for _ in range(5):
                    # The other one may be too busy to report within a second.
                    while (found := client.get(path).json())["processes"]["up"] < 2:
                        assert time.monotonic() < deadline, found
                    assert found["processes"] == {"up": 2, "silent": 0}
                    assert found["hour"]["published"] == gateway.published
                    assert sum(minute["published"] for minute in found["minutes"]) == gateway.published
            assert found["queues"][0]["hour"]["published"] == gateway.published
    finally:
        process.close()


def test_malformed_requests_of_all_workers_are_one_sum(gateway: Gateway) -> None:
    address = httpx.URL(gateway.process.url)
    for _ in range(20):
        with Connection(address.host, address.port or 80) as connection:
            connection.send(b"GET /livez HTTP/1.1\r\n\r\n")
            assert connection.reply().status == 400
    for _ in range(10):
        gateway.until(UP, 2)
        text = httpx.get(f"{gateway.process.url}/metrics", timeout=60).raise_for_status().text
        assert 'babelgate_malformed_requests_total{kind="header"} 20.0' in text
        assert 'babelgate_malformed_requests_total{kind="body"} 0.0' in text


def test_the_processes_are_measured_as_one(gateway: Gateway) -> None:
    found = gateway.until(UP, 2)
    workers = [psutil.Process(pid) for pid in gateway.process.workers()]

    def of(name: str) -> float:
        return found[name, "", ""]

    limit = sum(worker.rlimit(psutil.RLIMIT_NOFILE)[0] for worker in workers)
    assert of("process_max_fds") == limit
    assert 2 * 3 <= of("process_open_fds") <= limit
    largest = max(worker.memory_info().rss for worker in workers)
    assert largest < of("process_resident_memory_bytes") < of("process_virtual_memory_bytes")
    assert of("process_cpu_seconds_total") > max(worker.cpu_times().user for worker in workers) / 2
    # The parent was started before its workers.
    began = [psutil.Process(pid).create_time() for pid in (gateway.process.pid, *gateway.process.workers())]
    assert min(began) - 1 < of("process_start_time_seconds") < max(began)


def test_the_sum_never_falls_when_workers_die(gateway: Gateway) -> None:
    """What they told stays, whichever is asked then: the other one, or those that came after."""
    gateway.publish_by_both()
    for worker in gateway.process.workers():
        assert gateway.scrape_until_answered()[PUBLISHED] == gateway.published
        # One that was slow to answer has not told its last numbers.
        gateway.until(UP, 2)
        os.kill(worker, signal.SIGKILL)
    found = gateway.scrape_until_answered()
    assert found[PUBLISHED] == gateway.published
    gateway.publish_by_both(3)
    assert gateway.until(UP, 2)[PUBLISHED] == gateway.published


def test_a_worker_that_hangs_delays_a_scrape_a_little_and_is_told_of(gateway: Gateway) -> None:
    gateway.publish_by_both()
    before = gateway.until(UP, 2)
    with httpx.Client(base_url=gateway.process.url, timeout=60) as client:
        with client.stream("GET", "/livez") as response:
            port = response.extensions["network_stream"].get_extra_info("client_addr")[1]
            response.read()
        workers = [psutil.Process(pid) for pid in gateway.process.workers()]
        (other,) = (worker for worker in workers if port not in ports(worker))
        other.suspend()
        try:
            text = client.get("/metrics").raise_for_status().text
        finally:
            other.resume()
    assert 'babelgate_workers{state="silent"} 1.0' in text
    assert f'babelgate_published_total{{broker="local",queue="q"}} {before[PUBLISHED]}' in text
    reasons = [line["error"] for line in gateway.process.logged() if line["event"] == "a worker did not answer"]
    assert reasons[-1] == "no answer within 1 s"
    assert gateway.until(UP, 2)[SILENT] == 0


def ports(worker: psutil.Process) -> set[int]:
    """Those of the clients whose connections lie with ``worker``."""
    return {connection.raddr.port for connection in worker.net_connections() if connection.raddr}
