"""``python -m bench.observing``: what metrics, journal and traces cost a single publish.

One gateway for each way of observing, on the same kind of broker, driven in turn with the same load; each round gives
one ratio to the gateway that observes nothing, and the median of these ratios is the figure, shown between their
quartiles. CPU is user and system time of the gateway's process tree, the journal's thread included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop

from bench import calls
from bench.servers import Server, cpu_seconds
from tests.brokers.registry import HARNESSES, KINDS
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.otlp import otlp_receiver

NOTHING = "nothing"


@dataclass(frozen=True)
class Way:
    """A way of observing: settings, and ``OTEL_…`` variables."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)


def ways(directory: Path, collector: str) -> dict[str, Way]:
    """All that are measured, by name; ``collector`` is the URL of an OTLP endpoint."""

    def journal(name: str) -> dict[str, Any]:
        return {"journal": {"landing": str(directory / f"landing-{name}")}}

    def sampling(share: str) -> dict[str, str]:
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector}/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": share,
        }

    return {
        NOTHING: Way({"metrics": False}),
        "metrics": Way({"metrics": True}),
        "journal": Way({"metrics": False, **journal("alone")}),
        "tracing, unsampled": Way({"metrics": False}, sampling("0")),
        "metrics, journal, tracing unsampled": Way({"metrics": True, **journal("unsampled")}, sampling("0")),
        "the same, 1 % sampled": Way({"metrics": True, **journal("sampled")}, sampling("0.01")),
    }


@contextmanager
def servers(directory: Path, broker: str) -> Iterator[dict[str, Server]]:
    """A gateway for each way, each over a broker of its own."""
    with ExitStack() as stack:
        collector = stack.enter_context(otlp_receiver())
        found = {}
        for number, (name, way) in enumerate(ways(directory, collector.http_url).items()):
            home = directory / str(number)
            home.mkdir()
            url = stack.enter_context(HARNESSES[broker][0].start(home)).url
            config = {"brokers": {"main": url}, "default": {"broker": "main"}, **way.settings}
            process = stack.enter_context(gateway(home, config, environ=way.environ, kind=GatewayProcess))
            found[name] = Server(httpx.URL(process.url).port or 0, (process.pid,))
        yield found


async def run(
    directory: Path, broker: str, connections: int, operations: int, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Per way, of each round: CPU in microseconds a message, and its ratio to observing nothing."""
    taken: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    with servers(directory, broker) as all_servers:
        names = list(all_servers)
        for number in range(rounds + 1):
            cpu: dict[str, float] = {}
            # Each round begins with another one: whoever comes first is no better off.
            for name in names[number % len(names) :] + names[: number % len(names)]:
                server = all_servers[name]
                before = cpu_seconds(server.pids)
                measured = await calls.publish(server.port, "bench", connections, operations)
                cpu[name] = (cpu_seconds(server.pids) - before) / measured.operations * 1e6
            if number:  # the first round warms up
                for name in names:
                    taken[name].append((cpu[name], cpu[name] / cpu[NOTHING]))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.observing", description=__doc__)
    parser.add_argument("--broker", choices=KINDS, default="redis")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--operations", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=80)
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores\n")
    table(arguments.broker, arguments.connections, arguments.operations, arguments.rounds)


def table(broker: str, connections: int, operations: int, rounds: int) -> None:
    """Measure, and print one row for each way of observing."""
    print(f"single publish, {broker}, {connections} connections, {rounds} rounds")
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        taken = runner.run(run(Path(directory), broker, connections, operations, rounds))
    width = max(map(len, taken))
    print(f"{'observed by':{width}}  {'CPU µs a message':>16}  {'more than nothing: quartiles':>28}")
    for name, samples in taken.items():
        more = sorted((ratio - 1) * 100 for _, ratio in samples)
        quarter = len(more) // 4
        spread = f"{more[quarter]:+.1f} / {statistics.median(more):+.1f} / {more[-1 - quarter]:+.1f} %"
        print(f"{name:{width}}  {statistics.median(cpu for cpu, _ in samples):16.1f}  {spread:>28}")


if __name__ == "__main__":
    main()
