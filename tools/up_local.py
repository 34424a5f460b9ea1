"""The set of docker-compose.yml without containers: a gateway, real brokers, Prometheus, and a list of received spans.

``python -m tools.up_local [BROKER …]`` starts what the tests start, and ends it at SIGINT (Ctrl-C) or SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.registry import HARNESSES
from tests.harness.broker import Broker
from tests.harness.gateway import GatewayProcess, gateway
from tests.harness.local import free_port
from tests.harness.monitoring import groups
from tests.harness.otlp import OtlpReceiver, otlp_receiver
from tests.harness.prometheus import prometheus

_PORT = 8080
_SCRAPE_SECONDS = 5
_PATTERNS = {"rabbitmq": "rabbit.*", "sqs": "sqs-*"}
_ENDING = frozenset({signal.SIGINT})


def pattern(kind: str) -> str:
    """The names of the queues on a broker, as in docker-compose.yml."""
    return _PATTERNS.get(kind, f"{kind}.*")


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the set, print where it is, and then each span, until the process is told to end."""
    parser = argparse.ArgumentParser(prog="up_local", description="A gateway with real brokers, on this machine.")
    parser.add_argument("brokers", nargs="*", metavar="BROKER", help=f"of {', '.join(HARNESSES)}; default: all")
    parser.add_argument("--port", type=int, default=_PORT, help="of the gateway; 0: a free one; default: %(default)s")
    given = parser.parse_args(arguments)
    if unknown := set(given.brokers) - set(HARNESSES):
        parser.error(f"no such broker: {', '.join(sorted(unknown))}; there are {', '.join(HARNESSES)}")
    # Ctrl-C reaches the whole process group. The mask is inherited, so that this process ends the parts, in order.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        with tempfile.TemporaryDirectory(prefix="babelgate-local-") as directory, ExitStack() as stack:
            _run(stack, Path(directory), given.brokers or list(HARNESSES), given.port or free_port())
    except (AssertionError, RuntimeError, pytest.skip.Exception, pytest.fail.Exception) as error:
        sys.exit(f"up_local: {error}")


def _run(stack: ExitStack, directory: Path, kinds: Sequence[str], port: int) -> None:
    print(f"Starting {', '.join(kinds)} and Prometheus. Ctrl-C ends everything.", flush=True)
    url = f"http://127.0.0.1:{port}"
    with ThreadPoolExecutor() as pool:
        scrape = {"job_name": "babelgate", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
        watching = _begin(stack, pool, prometheus([scrape], groups(), interval_seconds=_SCRAPE_SECONDS))
        starting = {kind: _begin(stack, pool, _serving(kind, directory)) for kind in kinds}
        brokers: dict[str, Broker] = {kind: HARNESSES[kind][0].on(each.result()) for kind, each in starting.items()}
        watcher = watching.result()
    if signal.sigpending() & _ENDING:
        return
    receiver = stack.enter_context(otlp_receiver())
    # Spans of a request arrive together.
    environ = receiver.environ() | {"OTEL_METRICS_EXPORTER": "none", "OTEL_BSP_SCHEDULE_DELAY": "500"}
    others = "redis" if "redis" in kinds else kinds[0]
    config = {
        "auth": "none",
        "port": port,
        "brokers": {kind: broker.url for kind, broker in brokers.items()},
        "queues": {pattern(kind): broker.route(kind) for kind, broker in brokers.items()},
        "default": {"broker": others},
    }
    process = stack.enter_context(gateway(directory, config, environ=environ, kind=GatewayProcess))
    rows = [
        ("part", "queues", "address"),
        ("gateway", "", process.url),
        ("its log", "", str(process.log)),
        ("Prometheus", "", f"http://127.0.0.1:{watcher.port}"),
        ("OTLP", "", receiver.http_url),
        *((kind, pattern(kind), broker.url) for kind, broker in brokers.items()),
        (others, "all others", brokers[others].url),
    ]
    print(*(f"{part:12}{queues:14}{address}" for part, queues, address in rows), sep="\n")
    print(f"\n{'trace':34}{'kind':10}{'span':42}ms", flush=True)
    _follow(receiver)


def _serving(kind: str, directory: Path) -> AbstractContextManager[Any]:
    place = directory / kind
    place.mkdir()
    return HARNESSES[kind][0].broker.serve(place, durable=True)


def _begin(stack: ExitStack, pool: ThreadPoolExecutor, part: AbstractContextManager[Any]) -> Future[Any]:
    """Enter ``part`` in a thread. ``stack`` waits for that before it leaves the part."""
    entering = pool.submit(part.__enter__)

    def leave() -> None:
        if entering.exception() is None:
            part.__exit__(None, None, None)

    stack.callback(leave)
    return entering


def _follow(receiver: OtlpReceiver) -> None:
    """Print the spans that arrive, but those of Prometheus's scrapes, until SIGINT."""
    shown = 0
    while signal.sigtimedwait(_ENDING, 0.2) is None:
        spans = receiver.spans
        for span in sorted(spans[shown:], key=lambda each: each.began):
            if span.attributes.get("http.route") == "/metrics":
                continue
            failed = f" {span.attributes.get('error.type')}" if span.status == "ERROR" else ""
            milliseconds = (span.ended - span.began) / 1e6
            print(f"{span.trace_id:34}{span.kind:10}{span.name + failed:42}{milliseconds:.1f}", flush=True)
        shown = len(spans)


if __name__ == "__main__":
    main()
