"""Samples as a table, and beside what they were to reach."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import truediv

from bench import calls
from bench.cases import Case, Goal
from bench.load import Measured
from bench.servers import Server, cpu_seconds


@dataclass(frozen=True)
class Sample:
    """One run of one case; CPU in microseconds a message (None: unknown), latencies in ms."""

    cpu: float | None
    broker_cpu: float | None
    per_second: float
    p50: float
    p99: float


Samples = Mapping[str, Sequence[Sample]]
"""By the name of their case."""


def sample(measured: Measured, messages: int, seconds: float | None, broker_seconds: float | None) -> Sample:
    """``messages`` an operation unless they were counted; CPU of the whole run, None where it is not known."""
    total = measured.messages or measured.operations * messages
    return Sample(
        cpu=None if seconds is None else seconds / total * 1e6,
        broker_cpu=None if broker_seconds is None else broker_seconds / total * 1e6,
        per_second=total / measured.seconds,
        p50=measured.percentile(0.50) * 1e3,
        p99=measured.percentile(0.99) * 1e3,
    )


async def measure(servers: Mapping[str, Server], case: Case) -> Sample:
    """Prepare, run, and divide."""
    queue = calls.queue()
    await case.prepare(servers[case.by or case.server].port, queue)
    server = servers[case.server]
    before = cpu_seconds(server.pids), cpu_seconds(server.broker)
    measured = await case.run(server.port, queue)
    cpu, broker_cpu = cpu_seconds(server.pids) - before[0], cpu_seconds(server.broker) - before[1]
    return sample(measured, case.messages, cpu if server.pids else None, broker_cpu if server.broker else None)


def table(samples: Samples) -> None:
    """One row a case; the ratio is of medians, to the bare application at as many connections."""
    bare = {_connections(name): _median(taken, "cpu") for name, taken in samples.items() if name.startswith("bare")}
    width = max(map(len, samples))
    print(
        f"{'case':{width}}  {'CPU µs a message':>22}  {'x bare':>6}  {'broker':>6}"
        f"  {'messages/s':>22}  {'p50 ms':>7} {'p99 ms':>7}"
    )
    for name, taken in samples.items():
        known = [s.cpu for s in taken if s.cpu is not None]
        cpu, rate = _spread(known, 1) if known else "unknown", _spread([s.per_second for s in taken], 0)
        against = bare.get(_connections(name))
        ratio = f"{statistics.median(known) / against:6.2f}" if against and known else ""
        broker = "" if taken[0].broker_cpu is None else f"{_median(taken, 'broker_cpu'):6.1f}"
        latencies = f"{_median(taken, 'p50'):7.2f} {_median(taken, 'p99'):7.2f}"
        print(f"{name:{width}}  {cpu:>22}  {ratio:>6}  {broker:>6}  {rate:>22}  {latencies}")


def goals(cases: Iterable[Case], samples: Samples) -> None:
    """One row in Markdown for each goal that was measured: medians, also of the ratios of figures of the same round."""
    rows = [row for case in cases for goal in case.goals if (row := _row(case.name, goal, samples)) is not None]
    if rows:
        print("\n| goal | to reach | measured | reached | CPU µs | messages/s | p50 ms | p99 ms |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        print("\n".join(rows))


_UNITS = {
    "cpu": ("µs of CPU", 1),
    "broker_cpu": ("µs of the broker's CPU", 1),
    "per_second": ("messages/s", 0),
    "p50": ("ms at p50", 2),
}
"""By figure: its unit, and how many decimal places are shown."""


def _row(name: str, goal: Goal, samples: Samples) -> str | None:
    """None where a base was not measured, or no CPU is known."""
    taken, bases = samples[name], [samples.get(base, ()) for base in goal.bases]
    own = [getattr(each, goal.figure) for each in taken]
    if None in own or not all(bases):
        return None
    unit, digits = _UNITS[goal.figure]
    if bases and not goal.more:
        sums = [sum(getattr(each, goal.figure) for each in round_) for round_ in zip(*bases, strict=True)]
        limit, found = goal.factor, statistics.median(map(truediv, own, sums))
        against = " + ".join(base.removesuffix(f", {_connections(name)}") for base in goal.bases)
        shown = f"{limit:g} × {against}", f"{found:.2f} × ({statistics.median(own):,.{digits}f} {unit})"
    else:
        limit = goal.factor * sum(_median(base, goal.figure) for base in bases) + goal.more
        found = statistics.median(own)
        shown = f"{limit:,.{digits}f} {unit}", f"{found:,.{digits}f}"
    reached = found >= limit if goal.least else found <= limit
    return (
        f"| {name} | {'≥' if goal.least else '≤'} {shown[0]} | {shown[1]} | {'yes' if reached else '**no**'} "
        f"| {_cpu(taken)} | {_median(taken, 'per_second'):,.0f} "
        f"| {_median(taken, 'p50'):.2f} | {_median(taken, 'p99'):.2f} |"
    )


def _cpu(taken: Sequence[Sample]) -> str:
    return "unknown" if taken[0].cpu is None else f"{_median(taken, 'cpu'):.1f}"


def _connections(name: str) -> str:
    return name.rpartition(", ")[2]


def _median(taken: Sequence[Sample], what: str) -> float:
    return statistics.median(getattr(one, what) for one in taken)


def _spread(values: Sequence[float], digits: int) -> str:
    """least / median / greatest."""
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
