"""``python -m bench.stalls``: how long hostile requests keep the event loop from everybody else.

For each case of the corpus one line: what was sent, what came back, the longest time between two ticks of the loop (by
the clock, and in CPU time of the process, which a busy machine stretches less), and the CPU that the case took.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import tempfile
from pathlib import Path

import httpx

from tests.brokers.registry import HARNESSES, KINDS
from tests.harness.hostile_requests import CASES
from tests.harness.stalls import WatchedGateway


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Longest stalls of the event loop.")
    parser.add_argument("--broker", choices=KINDS, default="sqlite")
    parser.add_argument(
        "--only", type=re.compile, default=re.compile(""), help="A regular expression on the cases' names."
    )
    asked = parser.parse_args()
    chosen = [case for case in CASES if asked.only.search(case.name)]
    if not chosen:
        parser.error("--only matches no case")
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(HARNESSES[asked.broker][0].start(directory))
        config = {"brokers": {"b": broker.url}, "default": {"broker": "b"}}
        gateway = WatchedGateway(directory, config)
        stack.callback(gateway.close)
        gateway.start()
        client = stack.enter_context(gateway.client())
        client.timeout = httpx.Timeout(300)
        print("| case | sent, bytes | status | answer, bytes | longest stall, ms | of CPU, ms | CPU, s |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for number, case in enumerate(chosen):
            case.prepare(client, f"q{number}")
            gateway.stall()
            sent = case.run(client, f"q{number}")
            stall = gateway.stall()
            figures = f"{stall.wall * 1000:.0f} | {stall.cpu * 1000:.0f} | {stall.used:.2f}"
            print(f"| {case.name} | {sent.sent:,} | {sent.status} | {sent.received:,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
