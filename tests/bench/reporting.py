"""Samples as a table, and beside what they were to reach."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.cases import AT_RECEIVER, ELSEWHERE, FORWARDED, LOCAL, Case
from tests.bench.load import Measured


@dataclass(frozen=True)
class Sample:
    """One run of one case; CPU in microseconds a message, latencies in milliseconds."""

    cpu: float
    broker_cpu: float | None
    per_second: float
    p50: float
    p99: float


Samples = Mapping[str, Sequence[Sample]]
"""By the name of their case."""


def sample(measured: Measured, messages: int, cpu_seconds: float, broker_seconds: float | None) -> Sample:
    """``messages`` an operation unless they were counted; CPU of the whole run, None where no server is behind."""
    total = measured.messages or measured.operations * messages
    return Sample(
        cpu=cpu_seconds / total * 1e6,
        broker_cpu=None if broker_seconds is None else broker_seconds / total * 1e6,
        per_second=total / measured.seconds,
        p50=measured.percentile(0.50) * 1e3,
        p99=measured.percentile(0.99) * 1e3,
    )


def table(samples: Samples) -> None:
    """One row a case; the ratio is of medians, to the bare application at as many connections."""
    bare = {_connections(name): _median(taken, "cpu") for name, taken in samples.items() if name.startswith("bare")}
    width = max(map(len, samples))
    print(
        f"{'case':{width}}  {'CPU µs a message':>22}  {'x bare':>6}  {'broker':>6}"
        f"  {'messages/s':>22}  {'p50 ms':>7} {'p99 ms':>7}"
    )
    for name, taken in samples.items():
        cpu, rate = _spread([s.cpu for s in taken], 1), _spread([s.per_second for s in taken], 0)
        against = bare.get(_connections(name))
        ratio = f"{_median(taken, 'cpu') / against:6.2f}" if against else ""
        broker = "" if taken[0].broker_cpu is None else f"{_median(taken, 'broker_cpu'):6.1f}"
        latencies = f"{_median(taken, 'p50'):7.2f} {_median(taken, 'p99'):7.2f}"
        print(f"{name:{width}}  {cpu:>22}  {ratio:>6}  {broker:>6}  {rate:>22}  {latencies}")


def goals(cases: Iterable[Case], samples: Samples) -> None:
    """One row for each goal that was measured, by medians."""
    rows = list(_goals(cases, samples))
    if rows:
        width = max(len(row[0]) for row in rows)
        print(f"\n{'goal':{width}}  {'to reach':>10}  {'measured':>10}")
        for name, wanted, found in rows:
            print(f"{name:{width}}  {wanted:>10}  {found:>10}")


def _goals(cases: Iterable[Case], samples: Samples) -> Iterator[tuple[str, str, str]]:
    for case in cases:
        if case.goal is not None:
            taken = samples[case.name]
            yield f"{case.name}: CPU", f"{case.goal.cpu:g} µs", f"{_median(taken, 'cpu'):.0f} µs"
            if case.goal.broker_cpu is not None:
                yield f"{case.name}: broker", f"{case.goal.broker_cpu:g} µs", f"{_median(taken, 'broker_cpu'):.0f} µs"
    for broker in ("rabbitmq", "servicebus"):
        publishing = [
            _median(taken, "per_second") for name, taken in samples.items() if name.startswith(f"{broker}: publish")
        ]
        if len(publishing) > 1:
            yield (
                f"{broker}: publish, throughput at the most connections to one",
                "4 x",
                f"{publishing[-1] / publishing[0]:.1f} x",
            )
    yield from _goals_against_raw(samples)
    for name, taken in samples.items():
        here = samples.get(name.replace(ELSEWHERE, AT_RECEIVER), ())
        if name.startswith(ELSEWHERE) and here:
            reach = 2 * _median(here, "cpu")
            yield f"{name}: CPU", f"{reach:.0f} µs", f"{_median(taken, 'cpu'):.0f} µs"
    # Where several are in flight, the latency is that of their queue for two cores.
    for name, taken in samples.items():
        local = samples.get(name.replace(FORWARDED, LOCAL), ())
        if name == f"{FORWARDED}, 1 connections" and local:
            yield f"{name}: added at p50", "1 ms", f"{_median(taken, 'p50') - _median(local, 'p50'):.2f} ms"


_AGAINST_RAW = (
    ("sqs: publish", "raw aioboto3: SendMessage", 0.25, 0),
    ("sqs: batch of 100", "raw aioboto3: SendMessageBatch of ten", 1, 15),
    ("sqs: receive + ack in hundreds", "raw aioboto3: receive ten + delete batch", 1, 20),
    ("servicebus: publish", "raw azure-servicebus: send a hundred", 1, 60),
    ("servicebus: receive + ack in hundreds", "raw azure-servicebus: receive fifty + complete each", 1, 60),
)
"""A case; the client by itself that does its work; how often its CPU a message, and how many microseconds more, are to
be reached."""


def _goals_against_raw(samples: Samples) -> Iterator[tuple[str, str, str]]:
    most = next(reversed([_connections(name) for name in samples if name.endswith(" connections")]), "")
    for name, taken in samples.items():
        if ": publish, " in name and _connections(name) != most:
            # One by one: how many share a call is what counts.
            continue
        for case, library, factor, more in _AGAINST_RAW:
            raw = samples.get(f"{library}, {_connections(name).removesuffix(' connections')} at a time")
            if raw and name.rpartition(", ")[0] == case:
                reach = _median(raw, "cpu") * factor + more
                yield f"{name}: CPU", f"{reach:.0f} µs", f"{_median(taken, 'cpu'):.0f} µs"


def _connections(name: str) -> str:
    return name.rpartition(", ")[2]


def _median(taken: Sequence[Sample], what: str) -> float:
    return statistics.median(getattr(one, what) for one in taken)


def _spread(values: Sequence[float], digits: int) -> str:
    """least / median / greatest."""
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
