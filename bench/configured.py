"""``python -m bench.configured``: the CPU of a publish by what is configured, in publishes with nothing configured.

Each case is a gateway over SQLite in a process of its own, and each try of it follows one of the gateway with nothing
configured. Other programs make a try dearer and never cheaper, so the least of the tries of both counts, and the ratio
of the two; the median of the ratios of single tries stands beside it. ``--against DIRECTORY`` measures another checkout
with nothing configured as a case, by this Python. The load is that of the Python generator, which needs no package and
has client certificates.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import ipaddress
import json
import secrets
import ssl
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop
from cryptography import x509

from bench.calls import ENVELOPE, expect, queue
from bench.load import Measured, drive, request
from bench.servers import cpu_seconds
from tests.harness.authority import SERVER, Authority, client_context, dns
from tests.harness.gateway import GatewayProcess
from tests.harness.issuer import AUDIENCE, Issuer, running

CONNECTIONS = 64
_TLS_TIMES = 5
"""How many times the publishes a try over TLS has: its handshakes are a twentieth of it then."""
NOTHING = "nothing"
SECRET = "bench"
ALL = {"*": ["send", "listen", "manage"]}
STATIC = {"tokens": [{"name": SECRET, "sha256": hashlib.sha256(SECRET.encode()).hexdigest(), "rights": ALL}]}
RATES = {f"{unit}_per_second": 1e9 for unit in ("requests", "messages", "bytes")}
EVERY = RATES | {"max_message_bytes": 1_000_000, "max_receives": 1_000, "max_streams": 1_000, "max_leases": 100_000}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:babel:orders:created",
    "type": "object",
    "required": ["order_id", "amount", "currency"],
    "properties": {
        "order_id": {"type": "integer", "minimum": 1},
        "amount": {"type": "number"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "note": {"type": "string", "maxLength": 1000},
        "items": {"type": "array", "items": {"type": "integer"}},
    },
    "additionalProperties": False,
}
BODY_KEY = {"id": "bench", "secret": secrets.token_hex(32)}


@dataclass
class Configured:
    """A case: ``config`` beside a broker; ``auth``: which credential a request has; ``root``: another checkout."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    credential: str = ""
    root: Path | None = None


@dataclass(frozen=True)
class Sample:
    """One try: CPU in microseconds a message, and that of the one with nothing configured before it."""

    cpu: float
    base: float
    per_second: float


@dataclass(frozen=True)
class Target:
    """A running gateway, and how it is called."""

    port: int
    pid: int
    token: str = ""
    tls: ssl.SSLContext | None = None

    async def publish(self, operations: int) -> tuple[float, Measured]:
        """CPU in microseconds a message."""
        sent = request("POST", f"/queues/{queue()}/messages", ENVELOPE, token=self.token)

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            expect(status, 201, answer)
            return sent, True

        before = cpu_seconds((self.pid,))
        measured = await drive(self.port, CONNECTIONS, operations, lambda number: step, tls=self.tls)
        return (cpu_seconds((self.pid,)) - before) / measured.operations * 1e6, measured


def cases(issuer: Issuer, directory: Path, against: Path | None) -> Iterator[Configured]:
    """Whatever the page lists."""

    def route(**options: Any) -> dict[str, Any]:
        return {"default": {"broker": "local", **options}}

    if against is not None:
        yield Configured(f"{NOTHING}, the other checkout", root=against)
    yield Configured(f"{NOTHING}, again")
    yield Configured("a static token", {"auth": STATIC}, "static")
    yield Configured("a made token", {"auth": STATIC}, "made")
    grant = {"claim": "sub", "value": "ada", "grant": ALL}
    issued = {"issuers": [{"issuer": issuer.url, "audience": AUDIENCE, "rights": [grant]}]}
    yield Configured("a token of an issuer (JWT)", {"auth": issued}, "jwt")
    served = {"tls_cert": str(directory / "server.pem"), "tls_key": str(directory / "server.pem")}
    yield Configured("TLS", served, "tls")
    shown = served | {"tls_client_ca": str(directory / "ca.pem"), "tls_client_auth": "required"}
    rule = {"san": "DNS:bench.example", "name": SECRET, "rights": ALL}
    yield Configured("TLS, a client certificate", shown | {"auth": {"certificates": [rule]}}, "certificate")
    yield Configured("one limit: messages of a queue", route(limits={"messages_per_second": 1e9}))
    limits = EVERY | {"max_depth": 10**9, "per_identity": EVERY}
    yield Configured("all limits, of all scopes", {"rate_limits": {"identity": EVERY}, **route(limits=limits)})
    schemas = {"schemas": {"directory": str(directory / "schemas")}}
    yield Configured("a schema: warn", schemas | route(schema="warn"))
    yield Configured("a schema: enforce", schemas | route(schema="enforce"))
    yield Configured("encrypt", {"body_keys": [BODY_KEY], **route(encrypt=True)})
    redact = ["/data/amount", "/data/note"]
    yield Configured("redact", route(redact=redact))
    landing = {"landing": str(directory / "journal"), "bodies": True}
    yield Configured("a journal with bodies", {"journal": landing})
    landing = landing | {"landing": str(directory / "redacted")}
    yield Configured("a journal with bodies, redact", {"journal": landing, **route(redact=redact)})


@contextmanager
def started(directory: Path, against: Path | None, only: str) -> Iterator[tuple[Target, dict[str, Target]]]:
    """The gateway with nothing configured, and the others by the names of their cases."""
    with ExitStack() as stack:
        issuer = stack.enter_context(running())
        authority = Authority("bench")
        (directory / "ca.pem").write_bytes(authority.pem)
        local = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        authority.issue(directory / "server.pem", local, usage=SERVER)
        authority.issue(directory / "client.pem", [dns("bench.example")])
        (directory / "schemas").mkdir()
        (directory / "schemas" / "order.json").write_text(json.dumps(SCHEMA))

        def serve(number: int, case: Configured) -> Target:
            home = directory / str(number)
            home.mkdir()
            process = GatewayProcess(home, case.config)
            process.root = case.root or process.root
            stack.callback(process.close)
            process.start(ready=case.credential != "certificate")
            url, token = httpx.URL(process.url), {"static": SECRET, "jwt": ""}.get(case.credential, "")
            if case.credential == "jwt":
                token = issuer.token()
            if case.credential == "made":
                asked = {"name": "made", "rights": ALL, "ttl_seconds": 3600}
                answer = process.client(headers={"authorization": f"Bearer {SECRET}"}).post("/tokens", json=asked)
                token = answer.raise_for_status().json()["secret"]
            tls = None
            if case.credential in ("tls", "certificate"):
                tls = client_context(authority, directory / "client.pem" if case.credential == "certificate" else None)
            return Target(url.port or 80, process.pid, token, tls)

        chosen = [case for case in cases(issuer, directory, against) if only in case.name]
        nothing = serve(0, Configured(NOTHING))
        yield nothing, {case.name: serve(number, case) for number, case in enumerate(chosen, 1)}


async def tries(nothing: Target, others: Mapping[str, Target], count: int, operations: int) -> dict[str, list[Sample]]:
    """The samples of each case, and those of nothing configured."""
    found: dict[str, list[Sample]] = {name: [] for name in (NOTHING, *others)}
    for number in range(count + 1):
        for name, target in others.items():
            base, measured = await nothing.publish(operations)
            cpu, of_case = await target.publish(operations * (1 if target.tls is None else _TLS_TIMES))
            if number:  # the first round warms up
                found[NOTHING].append(Sample(base, base, len(measured.latencies) / measured.seconds))
                found[name].append(Sample(cpu, base, len(of_case.latencies) / of_case.seconds))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.configured", description=__doc__)
    parser.add_argument("--tries", type=int, default=9)
    parser.add_argument("--operations", type=int, default=4000, help="publishes of a try")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--against", type=Path, metavar="DIRECTORY", help="another checkout")
    asked = parser.parse_args(arguments)
    against = None if asked.against is None else asked.against.resolve(strict=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        started(Path(directory), against, asked.only) as (nothing, others),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        found = runner.run(tries(nothing, others, asked.tries, asked.operations))
    print("| configured | CPU µs a publish | times nothing configured (median of single tries) | messages/s |")
    print("| --- | --- | --- | --- |")
    for name, samples in found.items():
        cpu, base = min(each.cpu for each in samples), min(each.base for each in samples)
        shown = f"{cpu / base:.2f} ({statistics.median(each.cpu / each.base for each in samples):.2f})"
        rate = max(each.per_second for each in samples)
        print(f"| {name} | {cpu:.1f} | {'1' if name == NOTHING else shown} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
