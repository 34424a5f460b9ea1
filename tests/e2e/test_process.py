"""The server process: start, stop, workers, limits. Each test runs `babelgate serve` for real; where neither the start,
signals nor workers are tested, in a fork of a process that has loaded it."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import psutil
import pytest

from tests.harness.gateway import STOP_SECONDS, ForkedGateway, GatewayProcess, is_alive
from tests.harness.gateway import gateway as forked_gateway
from tests.harness.sockets import Connection

DRAFT = {"job": "x", "data": {"n": 1}}
gateway = partial(forked_gateway, kind=GatewayProcess)


@pytest.fixture
def directory(tmp_path):
    return tmp_path


def serving_process(process: GatewayProcess) -> str:
    """The part of a request id that is one process's own."""
    return httpx.get(f"{process.url}/livez", timeout=60).headers["x-request-id"].partition("-")[0]


def until(condition, what: str):
    deadline = time.monotonic() + STOP_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def half_a_publish(process: GatewayProcess, queue: str) -> tuple[Connection, bytes]:
    """A connection on which the first half of a publish was sent, and its other half."""
    body = json.dumps(DRAFT).encode()
    url = httpx.URL(process.url)
    connection = Connection(url.host, url.port or 80)
    head = f"POST /queues/{queue}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    connection.send(head.encode() + b"Expect: 100-continue\r\n\r\n")
    # The server asks for the body: the request is in flight.
    assert connection.head()[0] == 100
    connection.send(body[:5])
    return connection, body[5:]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_it_with_success(directory, signum):
    with gateway(directory) as process:
        os.kill(process.pid, signum)
        assert process.wait() == 0
    assert not process.unforeseen()


def test_waiting_receives_end_with_an_empty_list(directory, queue):
    with gateway(directory) as process, ThreadPoolExecutor() as pool, process.client() as client:
        waiting = [
            pool.submit(client.post, f"queues/{queue}/messages:receive", params={"wait_seconds": 20}) for _ in range(3)
        ]
        connections = psutil.Process(process.pid).net_connections
        until(lambda: sum(c.status == "ESTABLISHED" for c in connections()) >= 3, "the receives did not connect")
        process.terminate()
        assert [(each.result().status_code, each.result().json()) for each in waiting] == [(200, {"messages": []})] * 3
        assert process.wait() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_ends_nothing(directory, queue, workers):
    with gateway(directory, {"workers": workers}) as process, ThreadPoolExecutor() as pool, process.client() as client:
        until(lambda: len({serving_process(process) for _ in range(8)}) == workers, "not all workers serve")
        pids = {process.pid, *process.workers()}
        waiting = pool.submit(client.post, f"queues/{queue}/messages:receive", json={"wait_seconds": 30})

        def is_connected() -> bool:
            found = [each for pid in pids for each in psutil.Process(pid).net_connections()]
            return any(each.status == "ESTABLISHED" for each in found)

        until(is_connected, "the receive did not connect")
        os.kill(process.pid, signal.SIGHUP)
        until(
            lambda: process.log_text().count('"configuration loaded","cause":"SIGHUP"') == workers, "not loaded by all"
        )
        assert httpx.post(f"{process.url}/queues/{queue}/messages", json=DRAFT, timeout=60).status_code == 201
        assert len(waiting.result().json()["messages"]) == 1
        assert {process.pid, *process.workers()} == pids
        assert process.log_text().count('"configuration loaded"') == workers
        assert process.stop() == 0
    assert not process.unforeseen()


def test_a_publish_in_flight_finishes(directory, queue):
    with gateway(directory) as process:
        connection, rest = half_a_publish(process, queue)
        with connection:
            process.terminate()
            until(lambda: "draining" in process.log_text(), "the signal was not seen")
            connection.send(rest)
            reply = connection.reply()
        assert (reply.status, process.wait()) == (201, 0)
        process.start()
        with process.client() as client:
            (message,) = client.post(f"queues/{queue}/messages:receive").json()["messages"]
        assert message["envelope"]["meta"]["id"] == json.loads(reply.body)["id"]


def test_a_request_that_never_ends_does_not_keep_the_process(directory, queue):
    with forked_gateway(directory, {"shutdown_seconds": 1}) as process:
        connection, _ = half_a_publish(process, queue)
        with connection:
            assert process.stop() == 0


def test_draining_is_not_ready_and_still_serves(directory, queue):
    with forked_gateway(directory, {"drain_seconds": 60}) as process, process.client() as client:
        process.terminate()
        until(lambda: client.get("readyz").status_code == 503, "draining is ready")
        assert client.post(f"queues/{queue}/messages", json=DRAFT).status_code == 201
        assert client.get("livez").status_code == 200
        # A second signal does not wait for the rest of the minute.
        process.terminate()
        assert process.wait() == 0


def test_a_token_outlives_a_restart(directory, queue):
    with forked_gateway(directory) as process:
        with process.client() as client:
            client.post(f"queues/{queue}/messages", json=DRAFT)
            (message,) = client.post(f"queues/{queue}/messages:receive").json()["messages"]
        assert process.stop() == 0
        process.start()
        with process.client() as client:
            answer = client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]})
            assert (answer.status_code, answer.json()["settled"]) == (200, 1)


class TestWorkers:
    COUNT = 2

    @pytest.fixture
    def process(self, directory):
        with gateway(directory, {"workers": self.COUNT}) as process:
            until(lambda: len({serving_process(process) for _ in range(8)}) == self.COUNT, "not all workers serve")
            yield process

    def test_share_the_port_and_the_token_key_and_stop_together(self, process, queue):
        for _ in range(4):
            for action, body in (("messages", DRAFT), ("messages:receive", {"wait_seconds": 30})):
                answer = httpx.post(f"{process.url}/queues/{queue}/{action}", json=body, timeout=60)
            token = answer.json()["messages"][0]["ack_token"]
            answer = httpx.post(f"{process.url}/queues/{queue}/messages:ack", json={"ack_tokens": [token]}, timeout=60)
            assert answer.json()["settled"] == 1
        pids = process.workers()
        assert len(pids) == self.COUNT
        assert process.stop() == 0
        assert not any(is_alive(pid) for pid in pids)

    def test_a_dead_worker_is_replaced(self, process):
        victim, *others = process.workers()
        os.kill(victim, signal.SIGKILL)

        def is_replaced() -> bool:
            workers = set(process.workers())
            return len(workers) == self.COUNT and set(others) == workers & {victim, *others}

        until(is_replaced, f"no new worker stands beside {others}")
        until(lambda: len({serving_process(process) for _ in range(8)}) == self.COUNT, "the new one does not serve")

    def test_workers_do_not_outlive_their_parent(self, process):
        pids = process.workers()
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not any(is_alive(pid) for pid in pids), "the workers are still there")


def test_the_soft_limit_on_open_files_is_raised(directory):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with gateway(directory) as process:
            assert psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert f'"event":"soft limit on open files raised","limit":{hard},"before":256' in process.log_text()


def test_a_prefix(directory, queue):
    with forked_gateway(directory, {"prefix": "/mq"}) as process, process.client() as client:
        assert process.url.endswith("/mq")
        assert client.post(f"queues/{queue}/messages", json=DRAFT).status_code == 201


def test_tls(directory, queue):
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    arguments = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *arguments], check=True, capture_output=True)
    with forked_gateway(directory, None, "--tls-cert", str(cert), "--tls-key", str(key)) as process:
        assert process.url.startswith("https://")
        with process.client(verify=ssl.create_default_context(cafile=cert)) as client:
            assert client.post(f"queues/{queue}/messages", json=DRAFT).status_code == 201


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"host": "0.0.0.0"}, "host: 0.0.0.0 can be reached from other machines"),
        ({"nonsense": 1}, "nonsense: unknown key"),
        ({"brokers": {"a": "kafkaesque://h"}}, "brokers.a.url: did you mean kafka://? the URL must start with one of"),
        ({"queues": {"a": {"broker": "local", "nonsense": 1}}}, "queues.a.nonsense"),
        ({"tls_cert": "/nowhere", "tls_key": "/nowhere"}, "tls_cert: /nowhere is not a file"),
        ({"tls_cert": __file__, "tls_key": __file__, "workers": 2}, "tls_cert: cannot be used with tls_key"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(directory, config, words):
    process = ForkedGateway(directory, config)
    with pytest.raises(AssertionError, match="ended with 1"):
        process.start()
    assert words in process.log_text()
    assert not process.unforeseen()


def test_any_free_port_is_taken_where_none_is_named(directory):
    with forked_gateway(directory, {"port": 0}) as process:
        assert process.is_ready()


def test_a_port_that_is_taken_is_refused_in_words(directory):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = ForkedGateway(directory, {"port": port})
        with pytest.raises(AssertionError, match="ended with 1"):
            process.start()
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in process.log_text()


def test_no_secret_is_printed(directory):
    secret = "hunter2-correct-horse"
    config = {
        "brokers": {"dead": f"redis://user:{secret}@127.0.0.1:1/0"},
        "default": {"broker": "dead"},
        "log_level": "debug",
    }
    with forked_gateway(directory, config) as process, process.client() as client:
        assert client.post("queues/a/messages", json=DRAFT).status_code == 503
        assert secret not in client.get("brokers").text
        process.stop()
    assert secret not in process.log_text()


def test_it_stops_while_clients_keep_their_connections(directory):
    stop = threading.Event()

    def hammer(client: httpx.Client) -> None:
        while not stop.is_set():
            try:
                client.get("livez")
            except httpx.TransportError:
                return

    with forked_gateway(directory) as process, process.client() as client, ThreadPoolExecutor() as pool:
        clients = [pool.submit(hammer, client) for _ in range(4)]
        try:
            assert process.stop() == 0
        finally:
            stop.set()
        assert [each.result() for each in clients] == [None] * 4
