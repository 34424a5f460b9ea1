"""``python -m bench.hostile``: what hostile load costs the gateway, and another tenant.

Each case of ``bench/hostile_loads.py`` has a gateway of its own. A bystander publishes small messages to another
queue on its own connection at a fixed pace, first alone, then while a process of its own sends the hostile load. The
row of a case: the answers to the load by status, the longest time between two ticks of the gateway's event loop (by
the clock, and in CPU time of the process), the peak of its resident memory, its CPU time until it is idle again, and
the bystander's latencies. They begin with the write. ``python -m bench.stalls`` measures single requests.

``--against DIRECTORY`` measures each case with the code of another checkout, too, by this Python and on this machine:
``git worktree add DIRECTORY REVISION`` makes one. ``--brief`` has the worst cases of each kind, in 3 to 6 minutes for
two versions; a machine that does something else shows mostly that.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import httpx

from bench.calls import ENVELOPE
from bench.hostile_loads import LOADS, Load
from bench.load import Measured, request
from bench.servers import cpu_seconds
from tests.brokers.registry import HARNESSES, KINDS
from tests.harness.broker import Broker
from tests.harness.stalls import WatchedGateway

PACE_SECONDS = 0.01
"""The bystander sends so often, or as soon as its last request is answered."""
IDLE_SHARE = 0.2
"""A gateway that uses less of a core is idle: the task that measures its stalls takes a twentieth of one."""
MAX_REST_SECONDS = 120


class Bystander:
    """A tenant that publishes small messages. ``refused``: the answers besides 201 by status."""

    def __init__(self, port: int) -> None:
        self.measured = Measured()
        self.refused: dict[str, int] = {}
        self._port = port
        self._over = threading.Event()

    @contextlib.contextmanager
    def publishing(self) -> Iterator[Bystander]:
        """Publish during the block, in a thread."""
        thread = threading.Thread(target=self._publish)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()

    def _publish(self) -> None:
        sent = request("POST", "/queues/bystander/messages", ENVELOPE)
        with socket.create_connection(("127.0.0.1", self._port), timeout=300) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._over.is_set():
                began = time.perf_counter()
                connection.sendall(sent)
                # An answer is smaller than a segment: it comes whole.
                answer = connection.recv(65_536)
                took = time.perf_counter() - began
                if answer[9:12] == b"201":
                    self.measured.latencies.append(took)
                else:
                    status = answer[9:12].decode() or "closed"
                    self.refused[status] = self.refused.get(status, 0) + 1
                    if not answer or b"connection: close" in answer.lower():
                        return
                self._over.wait(max(PACE_SECONDS - took, 0.0))

    def __str__(self) -> str:
        p50, p99 = (self.measured.percentile(share) * 1e3 for share in (0.5, 0.99))
        refused = "".join(f", {count} × {status}" for status, count in self.refused.items())
        return f"{p50:.1f} / {p99:.1f} of {len(self.measured.latencies):,}{refused}"


def peak_mib(pid: int) -> int:
    """The peak of a process's resident memory (Linux, proc_pid_status(5): VmHWM)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def rest(pid: int) -> None:
    """Wait until the gateway has finished the work that the load left behind."""
    deadline = time.monotonic() + MAX_REST_SECONDS
    used = cpu_seconds([pid])
    while time.monotonic() < deadline:
        time.sleep(0.5)
        before, used = used, cpu_seconds([pid])
        if used - before < 0.5 * IDLE_SHARE:
            return


def measure(load: Load, broker: Broker, directory: Path, seconds: float, root: Path | None) -> str:
    """The row of one case, of the code of the checkout ``root``; None: of this one."""
    gateway = WatchedGateway(directory, {"brokers": {"b": broker.url}, "default": broker.route("b")})
    if root is not None:
        gateway.root = root
    try:
        gateway.start()
        port = httpx.URL(gateway.url).port or 80
        if load.prepare is not None:
            load.prepare(port)
        with Bystander(port).publishing():
            time.sleep(0.5)
        with Bystander(port).publishing() as alone:
            time.sleep(min(seconds, 3.0))
        gateway.stall()
        # A process of its own, because threads of this one would make the bystander wait.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(int).result()
            with Bystander(port).publishing() as beside:
                answers = pool.submit(load.run, port, seconds).result()
        rest(gateway.pid)
        stall, peak = gateway.stall(), peak_mib(gateway.pid)
        if gateway.unforeseen():
            print("\n".join(gateway.unforeseen()))
    finally:
        gateway.close()
    counts = ", ".join(f"{count:,} × {status}" for status, count in sorted(answers.items()))
    figures = f"{stall.wall * 1e3:.0f} | {stall.cpu * 1e3:.0f} | {stall.used:.1f} | {peak}"
    return f"| {load.name} | {counts} | {figures} | {alone} | {beside} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="sqlite")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="a regular expression on the names")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--brief", action="store_true", help="only the worst cases of each kind, and 3 s of each load")
    parser.add_argument("--against", type=Path, metavar="DIRECTORY", help="another checkout, which is measured first")
    asked = parser.parse_args()
    chosen = [load for load in LOADS if asked.only.search(load.name) and load.brief >= asked.brief]
    if not chosen:
        parser.error("--only matches no case")
    if asked.against is not None and not (asked.against / "app" / "babelgate").is_dir():
        parser.error("--against has no app/babelgate: versions from before that name are measured by their own program")
    seconds = 3.0 if asked.brief else asked.seconds
    versions = {} if asked.against is None else {"before": asked.against.resolve(strict=True)}
    columns = [
        *(["version"] if versions else []),
        "case",
        "answers",
        "longest stall, ms",
        "of CPU, ms",
        "CPU, s",
        "peak, MiB",
    ]
    columns += ["bystander alone, p50 / p99 ms", "beside the load"]
    print("| " + " | ".join(columns) + " |\n" + "| --- " * len(columns) + "|")
    for load in chosen:
        for version, root in {**versions, "now": None}.items():
            # With a broker of its own, where no other case has left anything.
            with contextlib.ExitStack() as stack:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                broker = stack.enter_context(HARNESSES[asked.broker][0].start(directory))
                row = measure(load, broker, directory, seconds, root)
            print(f"| {version} {row}" if versions else row, flush=True)


if __name__ == "__main__":
    main()
