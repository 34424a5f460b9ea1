"""``python -m bench.fairness``: what one noisy publisher does to the others on its queue.

Five identities have the same share of a queue, ``limits.per_identity``. Four publish at nine tenths of it, on a
schedule. First they are alone; then the fifth offers ten times its share. Prints for both phases what the four
published and how long their publishes took, from the time at which the schedule said so. Exits with 1 unless they keep
90 % of their rate and at most twice their 99th percentile.

Phases alternate, and each figure is the median of the rounds: other programs on the machine disturb both.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from tests.harness.gateway import GatewayProcess, gateway

QUIET = ("one", "two", "three", "four")
NOISY = "noisy"
BODY = b'{"job":"urn:babel:bench:made","data":{"n":1}}'
CONNECTIONS = 4
"""Connections of each identity."""


@dataclass
class Published:
    """What an identity did in a phase; seconds."""

    accepted: list[float] = field(default_factory=list)
    refused: int = 0


def _request(name: str) -> bytes:
    head = f"POST /queues/shared/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {name}\r\n"
    return head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def _publish(port: int, name: str, per_second: float, seconds: float, offset: float, found: Published) -> None:
    """One connection that publishes on a schedule, and waits for each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request, start = _request(name), time.perf_counter() + offset / per_second
    for number in range(int(seconds * per_second)):
        due = start + number / per_second
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        if head[9:12] == b"201":
            found.accepted.append(time.perf_counter() - due)
        else:
            assert head[9:12] == b"429", head
            found.refused += 1
    writer.close()


async def phase(port: int, share: float, seconds: float, noisy: bool) -> dict[str, Published]:
    """What each identity published."""
    found = {name: Published() for name in (*QUIET, *([NOISY] if noisy else []))}
    rates = {name: share * (10 if name == NOISY else 0.9) / CONNECTIONS for name in found}
    await asyncio.gather(
        *(
            _publish(port, name, rates[name], seconds, connection / CONNECTIONS, found[name])
            for name in found
            for connection in range(CONNECTIONS)
        )
    )
    return found


def _p99(found: dict[str, Published]) -> float:
    latencies = sorted(each for name in QUIET for each in found[name].accepted)
    return latencies[int(len(latencies) * 0.99)]


def _rate(found: dict[str, Published], seconds: float) -> float:
    """Of the quiet one that published least, a second."""
    return min(len(found[name].accepted) for name in QUIET) / seconds


def _config(share: float) -> dict[str, object]:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": {"*": ["send"]}}
        for name in (*QUIET, NOISY)
    ]
    route = {"broker": "local", "limits": {"per_identity": {"messages_per_second": share}}}
    return {"auth": {"tokens": tokens}, "default": route}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 if it is fair."""
    parser = argparse.ArgumentParser(prog="python -m bench.fairness")
    parser.add_argument("--share", type=float, default=100, help="messages a second of one identity")
    parser.add_argument("--seconds", type=float, default=5, help="of one phase")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    rates: dict[bool, list[float]] = {False: [], True: []}
    p99s: dict[bool, list[float]] = {False: [], True: []}
    last: Published | None = None
    with (
        tempfile.TemporaryDirectory() as place,
        gateway(Path(place), _config(given.share), kind=GatewayProcess) as served,
    ):
        port = int(served.url.rpartition(":")[2])
        for number in range(given.rounds + 1):
            for noisy in (False, True):
                found = uvloop.run(phase(port, given.share, given.seconds, noisy))
                last = found.get(NOISY, last)
                if number:  # the first round warms up
                    rates[noisy].append(_rate(found, given.seconds))
                    p99s[noisy].append(_p99(found))
    alone, beside = statistics.median(rates[False]), statistics.median(rates[True])
    before, after = statistics.median(p99s[False]), statistics.median(p99s[True])
    print(f"alone: {alone:.1f} a second, p99 {before * 1e3:.1f} ms")
    print(f"beside a noisy one: {beside:.1f} a second ({beside / alone:.0%}), p99 {after * 1e3:.1f} ms")
    if last is not None:
        print(f"the noisy one: {len(last.accepted) / given.seconds:.1f} a second, {last.refused} refused")
    return 0 if beside >= 0.9 * alone and after <= 2 * before else 1


if __name__ == "__main__":
    sys.exit(main())
