"""What is measured, and what each case is to reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bench.calls import Settling, batch, consume, fill, fill_and_hold, leave, post_foreign, publish, take, wake
from bench.load import Measured
from tests.brokers.registry import KINDS


@dataclass(frozen=True)
class Goal:
    """``figure`` is at most ``factor`` times the sum of the same figure of ``bases`` in the same round, plus ``more``.

    ``figure`` names one of :class:`bench.reporting.Sample`, with its unit. ``least``: at least, not at most.
    """

    figure: Literal["cpu", "broker_cpu", "per_second", "p50"]
    factor: float = 0
    bases: Sequence[str] = ()
    more: float = 0
    least: bool = False


LOCAL, FORWARDED = "rabbitmq: ack at the owner", "rabbitmq: ack forwarded to the owner"
AT_RECEIVER, ELSEWHERE = "servicebus: ack at the receiver", "servicebus: ack at another replica"


@dataclass(frozen=True)
class Case:
    """``run(port, queue)`` drives the server named ``server``; an operation of it moves ``messages``.

    ``prepare`` is driven the same way, at the server ``by`` where one is named.
    """

    name: str
    server: str
    messages: int
    run: Callable[[int, str], Awaitable[Measured]]
    prepare: Callable[[int, str], Awaitable[None]] = leave
    by: str | None = None
    goals: Sequence[Goal] = ()


def all_cases(
    connections: Sequence[int], scale: float, foreign: Mapping[str, str] | None = None, program: str | None = None
) -> Iterator[Case]:
    """Bare, then each of the gateway's, for every number of connections.

    ``foreign``: URLs of other servers by name. ``program``: the path of wrk, for single publishes.
    """

    def operations(count: int, at: int) -> int:
        """Fewer where only one is in flight, so that a round takes seconds."""
        return max(round(count * scale / (4 if at == 1 else 1)), at)

    for at in connections:
        many, few, pairs = operations(8000, at), operations(200, at), operations(3000, at)
        hundreds = operations(100, at)
        posting = partial(publish, connections=at, operations=many, program=program)
        bare = f"bare application, {at} connections"

        def times_bare(ratio: float, bare: str = bare) -> Goal:
            return Goal("cpu", ratio, (bare,))

        def than(library: str, factor: float, more: float = 0, at: int = at) -> Goal:
            return Goal("cpu", factor, (f"raw {library}, {at} at a time",), more)

        yield Case(bare, "bare", 1, posting)
        for name, url in (foreign or {}).items():
            given = partial(post_foreign, url=url, connections=at, operations=many, program=program)
            yield Case(f"{name}: POST, {at} connections", name, 1, given)
        for server in KINDS:
            goals: Mapping[tuple[str, int], Sequence[Goal]] = {
                ("sqlite", 64): (times_bare(1.8),),
                ("redis", 16): (times_bare(1.3),),
                ("redis", 64): (times_bare(1.3),),
                ("rabbitmq", 64): (
                    times_bare(1.8),
                    Goal("broker_cpu", more=150),
                    Goal("per_second", 4, ("rabbitmq: publish, 1 connections",), least=True),
                ),
                ("sqs", 64): (than("aioboto3: SendMessage", 0.25),),
                ("servicebus", 64): (
                    than("azure-servicebus: send a hundred", 1, 60),
                    Goal("per_second", 4, ("servicebus: publish, 1 connections",), least=True),
                ),
            }
            yield Case(f"{server}: publish, {at} connections", server, 1, posting, goals=goals.get((server, at), ()))
            goals = {
                ("redis", 64): (times_bare(0.3), Goal("per_second", more=80_000, least=True)),
                ("rabbitmq", 64): (times_bare(0.9),),
                ("sqs", 64): (than("aioboto3: SendMessageBatch of ten", 1, 15),),
            }
            yield Case(
                f"{server}: batch of 100, {at} connections",
                server,
                100,
                partial(batch, connections=at, operations=few),
                goals=goals.get((server, at), ()),
            )
            goals = {
                ("sqlite", 64): (times_bare(0.7),),
                ("redis", 64): (times_bare(0.5),),
                ("rabbitmq", 64): (times_bare(1.2),),
                ("sqs", 64): (than("aioboto3: receive ten + delete batch", 1, 20),),
                ("servicebus", 64): (than("azure-servicebus: receive fifty + complete each", 1, 60),),
            }
            yield Case(
                f"{server}: receive + ack in hundreds, {at} connections",
                server,
                100,
                partial(consume, connections=at, operations=hundreds, size=100),
                partial(fill, messages=(hundreds + at) * 100),
                goals=goals.get((server, at), ()),
            )
            goals = {
                ("sqlite", 64): (times_bare(4),),
                ("redis", 64): (times_bare(3),),
                ("rabbitmq", 64): (times_bare(5),),
            }
            yield Case(
                f"{server}: receive + ack one by one, {at} connections",
                server,
                1,
                partial(consume, connections=at, operations=pairs, size=1),
                partial(fill, messages=pairs + at),
                goals=goals.get((server, at), ()),
            )
        # A partition hands out at most 10,000 records behind the first unacked one.
        behind = min(hundreds, 90)
        yield Case(
            f"kafka: first held, receive + ack in hundreds behind it, {at} connections",
            "kafka",
            100,
            partial(consume, connections=at, operations=behind, size=100),
            partial(fill_and_hold, messages=(behind + at) * 100),
        )
        for broker, server, how, goal in (
            ("rabbitmq", "rabbitmq", LOCAL, ()),
            # Where several are in flight, the latency is that of their queue for two cores.
            ("rabbitmq", "rabbitmq-peer", FORWARDED, [Goal("p50", 1, (f"{LOCAL}, 1 connections",), 1)][at > 1 :]),
            ("servicebus", "servicebus", AT_RECEIVER, ()),
            ("servicebus", "servicebus-peer", ELSEWHERE, (Goal("cpu", 2, (f"{AT_RECEIVER}, {at} connections",)),)),
        ):
            settling = Settling()
            yield Case(
                f"{how}, {at} connections",
                server,
                1,
                partial(settling.ack, connections=at, operations=pairs),
                partial(settling.receive, messages=pairs + at),
                by=broker,
                goals=goal,
            )
    yield from _lone_cases(max(round(600 * scale), 20))


def _lone_cases(operations: int) -> Iterator[Case]:
    """One connection with one request in flight: latencies by the clock of the Python client, as of the libraries."""
    bare = "bare application, lone request"
    yield Case(bare, "bare", 1, partial(publish, connections=1, operations=operations))
    for server, publishing, others, wake_ms in (
        ("sqlite", "sqlite3: INSERT", "sqlite3: INSERT", 1),
        ("redis", "redis-py: RPUSH", "redis-py: RPUSH", 1),
        ("rabbitmq", "aio-pika: publish", "aio-pika: get", 3),
    ):
        settling = Settling()
        own = Goal("p50", 1.3, (bare, f"raw {publishing}, 1 at a time"))
        other = Goal("p50", 1.3, (bare, f"raw {others}, 1 at a time"))
        run = partial(publish, connections=1, operations=operations)
        yield Case(f"{server}: publish, lone request", server, 1, run, goals=(own,))
        filled = partial(fill, messages=operations + 1)
        yield Case(
            f"{server}: receive, lone request", server, 1, partial(take, operations=operations), filled, goals=(other,)
        )
        run = partial(settling.ack, connections=1, operations=operations)
        held = partial(settling.receive, messages=operations + 1)
        yield Case(f"{server}: ack, lone request", server, 1, run, held, goals=(other,))
        woken, soon = partial(wake, operations=operations // 4), Goal("p50", more=wake_ms)
        yield Case(f"{server}: publish wakes a receive, lone request", server, 1, woken, goals=(soon,))
