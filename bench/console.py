"""``python -m bench.console``: what the console costs where there is much to show.

For each broker one gateway, which nothing else asks: the list of many queues and the overview, first of a gateway that
was just started and then again; the dead letters of a queue with many; a message and a letter of 1 MiB. A row has the
time until the whole page is there, and the CPU of the gateway with all its threads. A busy machine stretches the time,
and the CPU hardly. ``again`` is the median of the later ones. Last comes what a publish costs while nobody and while
two people look at the console: the CPU of the gateway in a closed loop of single publishes, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from bench.calls import ENVELOPE, publish, queue
from bench.load import request
from bench.servers import cpu_seconds
from tests.brokers.registry import HARNESSES, KINDS
from tests.harness.gateway import GatewayProcess, gateway

PIPELINED = 100
"""Requests in one write, while queues are filled."""
AGAIN = 5
"""How often a page is asked for after the first time."""
FRESH_SECONDS = 2.1
"""After that a page reads counts again, as an open one does every 2 seconds."""
LIVE = {"": 5.0, "queues": 2.0}
"""The pages that two people look at, and the seconds between the updates of each."""
TURNS = 3
MIB = 1 << 20


class Looker:
    """A person's browser: asks the console of one gateway for pages, and prints a row for each."""

    def __init__(self, process: GatewayProcess, client: httpx.Client) -> None:
        self._pid = process.pid
        self._client = client

    def timed(self, path: str, live: bool = False) -> tuple[httpx.Response, float, float]:
        """The answer, its time and the CPU seconds of the gateway. ``live``: only the part that is updated."""
        before, began = cpu_seconds([self._pid]), time.perf_counter()
        answer = self._client.get(f"/console/{path}", headers={"hx-request": "true"} if live else {})
        took = time.perf_counter() - began
        answer.raise_for_status()
        return answer, took, cpu_seconds([self._pid]) - before

    def row(self, name: str, path: str, live: bool = False, pause: float = 0.0) -> str:
        """Ask for a page once, and some times more with ``pause`` seconds between; its text."""
        answer, took, used = self.timed(path, live)
        later = []
        for _ in range(AGAIN):
            time.sleep(pause)
            later.append(self.timed(path, live)[1:])
        again, again_used = (statistics.median(each) for each in zip(*later, strict=True))
        figures = (took, used, again, again_used)
        print(
            f"| {name} | {' | '.join(f'{each * 1e3:.0f}' for each in figures)} | {len(answer.content):,} |", flush=True
        )
        return answer.text

    def rss(self, when: str) -> None:
        """Print the resident memory of the gateway."""
        print(f"resident memory {when}: {psutil.Process(self._pid).memory_info().rss / MIB:.0f} MiB", flush=True)


def head() -> None:
    print("\n| page | first, ms | CPU, ms | again, ms | CPU, ms | bytes |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)


def fill(port: int, count: int) -> None:
    """Publish a message to each of ``count`` queues."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        for first in range(0, count, PIPELINED):
            numbers = range(first, min(first + PIPELINED, count))
            paths = (f"/queues/team-{number % 40}.job-{number}/messages" for number in numbers)
            connection.sendall(b"".join(request("POST", path, ENVELOPE) for path in paths))
            answers = b""
            while answers.count(b"HTTP/1.1 ") < len(numbers):
                received = connection.recv(65_536)
                assert received, answers
                answers += received
            assert answers.count(b"HTTP/1.1 201 ") == len(numbers), answers


def bury(client: httpx.Client, name: str, count: int) -> None:
    """Fill the dead letters of a queue with ``count`` messages of 20 jobs, each with one of 4 errors."""
    for first in range(0, count, 1_000):
        drafts = ({"job": f"urn:babel:bench:job-{number % 20}", "data": {"n": number}} for number in range(1_000))
        lines = "\n".join(json.dumps(each) for each in drafts)
        sent = client.post(
            f"/queues/{name}/messages:batch", content=lines, headers={"content-type": "application/x-ndjson"}
        )
        assert sent.status_code == 201, sent.text
        for number in range(min(1_000, count - first) // 100):
            found = client.post(f"/queues/{name}/messages:receive", json={"max_messages": 100, "wait_seconds": 10})
            tokens = [each["ack_token"] for each in found.json()["messages"]]
            error = {"message": f"error {number % 4}", "exception": "BenchError"}
            buried = client.post(f"/queues/{name}/messages:reject", json={"ack_tokens": tokens, "error": error})
            assert buried.status_code == 200, buried.text


def queues(process: GatewayProcess, client: httpx.Client, count: int) -> None:
    """The list of many queues and the overview, of a gateway that has just been started."""
    fill(httpx.URL(process.url).port or 0, count)
    for first in ("queues", ""):
        process.stop()
        process.start()
        looker = Looker(process, client)
        looker.rss("after the start")
        head()
        if first == "queues":
            looker.row(f"{count:,} queues: first page", "queues")
            looker.row("its update", "queues", live=True, pause=FRESH_SECONDS)
            looker.row("next page", "queues?page=2", pause=FRESH_SECONDS)
            looker.row("last page", f"queues?page={-(-count // 100)}")
            looker.row("those of a name", "queues?q=team-7.*")
            looker.row("those of a name by depth", "queues?q=team-7.*&sort=-depth")
            looker.row("grouped by route", "queues?group=route")
        else:
            looker.row("overview", "")
            looker.row("its update", "", live=True, pause=FRESH_SECONDS)
        looker.rss("then")


def dead_letters(process: GatewayProcess, client: httpx.Client, count: int) -> None:
    """A queue with many dead letters."""
    name = queue()
    bury(client, name, count)
    process.stop()
    process.start()
    looker = Looker(process, client)
    looker.rss("after the start")
    head()
    base = f"queues/{name}/dead-letters"
    page = looker.row(f"{count:,} dead letters: groups", base)
    if more := re.search(r'href="[^"]*\?(cursor=[^"]+)"', page):
        looker.row("groups of the next ones", f"{base}?{more[1]}")
    page = looker.row("list", f"{base}/list")
    letter = re.search(r'href="[^"]*dead-letters/([0-9A-Za-z._~%:-]+)["?]', page.partition("<tbody")[2])
    assert letter is not None, page
    looker.row("the first letter", f"{base}/{letter[1]}")
    if after := re.search(r'href="[^"]*list\?([^"]*cursor=[^"]+)"', page):
        looker.row("list, next page", f"{base}/list?{after[1].replace('&amp;', '&')}")
    looker.row("list of one job", f"{base}/list?job=urn:babel:bench:job-7")
    looker.row("queues with dead letters", "dead-letters")
    looker.rss("then")


def large(process: GatewayProcess, client: httpx.Client) -> None:
    """A message of 1 MiB, and the dead letter that it becomes."""
    name = queue()
    body = b'{"job":"a:b","data":{"list":[%b]}}' % b",".join([b'{"a":1}'] * (MIB // 8 - 100))
    assert client.post(f"/queues/{name}/messages", content=body).status_code == 201
    looker = Looker(process, client)
    looker.rss("before")
    head()
    page = looker.row("a queue with a message of 1 MiB", f"queues/{name}")
    message = re.search(r"messages/[0-9a-f]{32}", page)
    if message is not None:
        looker.row("the message", f"queues/{name}/{message[0]}")
        looker.row("the form with it", f"queues/{name}/publish?message={message[0].rpartition('/')[2]}")
    (found,) = client.post(f"/queues/{name}/messages:receive").json()["messages"]
    client.post(f"/queues/{name}/messages:reject", json={"ack_tokens": [found["ack_token"]]}).raise_for_status()
    base = f"queues/{name}/dead-letters"
    page = looker.row("a list with its letter", f"{base}/list")
    letter = re.search(r'href="[^"]*dead-letters/([0-9A-Za-z._~%:-]+)["?]', page.partition("<tbody")[2])
    assert letter is not None, page
    looker.row("the letter", f"{base}/{letter[1]}")
    looker.rss("then")


@contextlib.contextmanager
def watching(url: str) -> Iterator[None]:
    """Two open pages during the block, which are updated as browsers do it."""
    over = threading.Event()

    def look(path: str, every: float) -> None:
        with httpx.Client(base_url=url, timeout=120) as client:
            while not over.is_set():
                client.get(f"/console/{path}", headers={"hx-request": "true"}).raise_for_status()
                over.wait(every)

    threads = [threading.Thread(target=look, args=each) for each in LIVE.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def watched(process: GatewayProcess, operations: int) -> None:
    """The CPU of a publish, and what two open pages add to it."""
    port, name = httpx.URL(process.url).port or 0, queue()

    def cost() -> tuple[float, float]:
        before = cpu_seconds([process.pid])
        measured = asyncio.run(publish(port, name, 16, operations))
        return (cpu_seconds([process.pid]) - before) / measured.operations * 1e6, measured.seconds

    cost()
    alone, open_, seconds = [], [], []
    for _ in range(TURNS):
        alone.append(cost()[0])
        with watching(process.url):
            used, took = cost()
        open_.append(used)
        seconds.append(took)
    ratio = statistics.median(one / other for one, other in zip(open_, alone, strict=True))
    print(
        f"\na publish, 16 connections: {statistics.median(alone):.1f} µs CPU with nobody at the console, "
        f"{statistics.median(open_):.1f} µs while the overview and the list of queues are open: × {ratio:.2f} "
        f"({operations:,} publishes in {statistics.median(seconds):.1f} s, {TURNS} turns)",
        flush=True,
    )


def measure(broker: str, directory: Path, asked: argparse.Namespace) -> None:
    """Print the figures of one kind of broker."""
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(HARNESSES[broker][0].start(directory))
        config = {"brokers": {"main": {"url": started.url, "timeout_seconds": 30}}, "default": started.route()}
        process = stack.enter_context(gateway(directory, config, kind=GatewayProcess))
        client = stack.enter_context(process.client())
        parts = {
            "queues": lambda: queues(process, client, asked.queues),
            "letters": lambda: dead_letters(process, client, asked.letters),
            "large": lambda: large(process, client),
            "publish": lambda: watched(process, asked.publishes),
        }
        for name, part in parts.items():
            if name in asked.only:
                load = psutil.getloadavg()[0]
                print(f"\n{broker}, {name}, at a load of {load:.1f}:", flush=True)
                part()


def main() -> None:
    """Print the figures."""
    parts = ["queues", "letters", "large", "publish"]
    parser = argparse.ArgumentParser(prog="python -m bench.console", description="What the console costs.")
    parser.add_argument("--broker", choices=KINDS, action="append", help="By default SQLite and Redis.")
    parser.add_argument("--only", choices=parts, action="append", help="By default all parts.")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--publishes", type=int, default=50_000)
    asked = parser.parse_args()
    asked.only = asked.only or parts
    for broker in asked.broker or ("sqlite", "redis"):
        with tempfile.TemporaryDirectory(prefix="bench-console-") as directory:
            measure(broker, Path(directory), asked)


if __name__ == "__main__":
    main()
