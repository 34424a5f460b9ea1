"""The hostile loads of ``python -m bench.hostile``.

A case is one line of ``LOADS``. Its functions are called in another process: they are module functions, or partials of
them.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from selectors import EVENT_READ, DefaultSelector

import httpx

from bench.calls import ENVELOPE
from bench.load import drive, request
from tests.harness.hostile_requests import CASES

Run = Callable[[int, float], Counter[str]]
"""Sends the load to a port for so many seconds, and returns the number of answers by status."""


@dataclass(frozen=True)
class Load:
    """A hostile load. ``prepare(port)`` runs before anything is measured. ``brief``: it is the worst of its kind, or
    one of them."""

    name: str
    run: Run
    prepare: Callable[[int], None] | None = None
    brief: bool = False


Sender = Callable[[httpx.Client, str], str]
"""Sends one hostile request to a queue, and returns the status of its answer."""


def repeat(send: Sender, senders: int, port: int, seconds: float) -> Counter[str]:
    """Send over and over from so many connections at once, each to a queue of its own."""
    answers: Counter[str] = Counter()
    until = time.monotonic() + seconds

    def loop(number: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            while time.monotonic() < until:
                try:
                    answers[send(client, f"hostile-{number}")] += 1
                except httpx.TransportError as error:
                    answers[type(error).__name__] += 1

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _request(name: str, client: httpx.Client, queue: str) -> str:
    """One request of the corpus by its name."""
    case = next(case for case in CASES if case.name == name)
    return str(case.run(client, queue).status)


def _leave(name: str, client: httpx.Client, queue: str) -> str:
    """The same by a client that hangs up a twentieth of a second after its last byte."""
    with suppress(httpx.TimeoutException):
        client.timeout = httpx.Timeout(10, read=0.05)
        return _request(name, client, queue)
    return "left"


_PARAMETERS = "a=1&" * 15_000
_ANYONES = itertools.cycle(["/livez", "/readyz", "/startupz", "/openapi.json", "/docs", "/queues"])


def _parameters(client: httpx.Client, queue: str) -> str:
    """60 KB of query parameters on a path that needs no credential."""
    return str(client.get(f"{next(_ANYONES)}?{_PARAMETERS}").status_code)


def read_slowly(path: str, readers: int, port: int, seconds: float) -> Counter[str]:
    """Ask for ``path`` on so many connections, and read a kilobyte every tenth of a second from each."""
    answers: Counter[str] = Counter()
    until = time.monotonic() + seconds
    with DefaultSelector() as selector:
        for _ in range(readers):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(("127.0.0.1", port))
            connection.sendall(request("GET", path, b""))
            selector.register(connection, EVENT_READ)
        begun: set[int] = set()
        while time.monotonic() < until and selector.get_map():
            for key, _ in selector.select(0.1):
                connection = key.fileobj  # type: ignore[assignment]
                part = connection.recv(1_024)
                if key.fd not in begun:
                    begun.add(key.fd)
                    answers[part[9:12].decode() or "closed"] += 1
                if not part:
                    selector.unregister(connection)
                    connection.close()
            time.sleep(0.1)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return answers


def _of_the_corpus(pattern: str) -> Sequence[str]:
    return [case.name for case in CASES if re.match(pattern, case.name)]


def new_names(verb: str, count: int, port: int, _: float) -> Counter[str]:
    """Use so many different queues, one after the other on 16 connections, however long it takes."""
    answers: Counter[str] = Counter()
    numbers = itertools.count()

    def step(status: int, body: bytes) -> tuple[bytes, bool]:
        if status:
            answers[str(status)] += 1
        path = f"/queues/tenant-{next(numbers)}/messages{verb}"
        return request("POST", path, b"" if verb else ENVELOPE), True

    asyncio.run(drive(port, 16, count, lambda _: step))
    return answers


_WORST = (
    "NDJSON: 8 MiB of lines x, gzip",
    "NDJSON: 4 lines of 1 MiB, small values",
    "array: 10,000 entries {}",
    "publish: 1 MiB, small values and 1e999",
)

LETTERS = 20_000
"""Dead letters of the cases ``letters``."""
_SEARCHERS = 40
_DEAD = "/queues/hostile/dead-letters"


def _dead_letters(port: int) -> None:
    """Dead-letter LETTERS messages."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
        drafts = [{"job": "urn:babel:bench:made", "data": {"n": n, "text": "x" * 100}} for n in range(LETTERS)]
        for start in range(0, LETTERS, 1_000):
            client.post("/queues/hostile/messages:batch", json=drafts[start : start + 1_000]).raise_for_status()
        asked = {"max_messages": 100, "wait_seconds": 1, "lease_seconds": 60}
        while found := client.post("/queues/hostile/messages:receive", json=asked).json()["messages"]:
            tokens = [message["ack_token"] for message in found]
            client.post("/queues/hostile/messages:reject", json={"ack_tokens": tokens}).raise_for_status()


def _at_once(method: str, path: str, count: int, left: bool, port: int, seconds: float) -> Counter[str]:
    """``count`` requests at the same time, with a number in the path; ``left``: by clients that soon hang up."""
    timeout = httpx.Timeout(300, read=0.05 if left else 300)

    def send(number: int) -> str:
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=timeout) as client,
            suppress(httpx.TimeoutException),
        ):
            return str(client.request(method, path.format(number)).status_code)
        return "left"

    with ThreadPoolExecutor(count) as pool:
        return Counter(pool.map(send, range(count)))


LOADS = [
    Load("names: 100,000 new ones, published to", partial(new_names, "", 100_000), brief=True),
    Load("names: 100,000 new ones, received from", partial(new_names, ":receive", 100_000)),
    *(
        Load(f"letters: {name}", partial(_at_once, method, path, count, left), _dead_letters, count > 1)
        for name, method, path, count, left in (
            ("GET, 1 unknown id", "GET", f"{_DEAD}/{{:032x}}", 1, False),
            (f"GET, {_SEARCHERS} unknown ids", "GET", f"{_DEAD}/{{:032x}}", _SEARCHERS, False),
            (f"DELETE, {_SEARCHERS} unknown ids", "DELETE", f"{_DEAD}/{{:032x}}", _SEARCHERS, False),
            (f"{_SEARCHERS} filters without a match", "GET", f"{_DEAD}?job={{}}", _SEARCHERS, False),
            (f"left, {_SEARCHERS} filters without a match", "GET", f"{_DEAD}?job={{}}", _SEARCHERS, True),
        )
    ),
    *(
        Load(f"uploads: {name}", partial(repeat, partial(_request, name), 4), brief=name in _WORST)
        for name in _of_the_corpus("NDJSON|array|publish|validate")
    ),
    *(
        Load(f"uploads: left, {name}", partial(repeat, partial(_leave, name), 4))
        for name in _of_the_corpus("NDJSON.*gzip|array: 10,000")
    ),
    Load("docs: 60 KB of a=1&", partial(repeat, _parameters, 4), brief=True),
    Load("docs: 500 slow readers of the script", partial(read_slowly, "/docs/swagger-ui-bundle.js", 500), brief=True),
    Load("docs: 500 slow readers of the document", partial(read_slowly, "/openapi.json", 500)),
]
