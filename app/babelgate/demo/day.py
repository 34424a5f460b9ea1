"""Simulates one day of traffic through a gateway: its events, in order of time."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import IO, Any

import msgspec

from babelgate.cli.client import Client, ShownMessage
from babelgate.demo import shop
from babelgate.demo.gateway import Clock

HOUR_MS = 3_600_000
SENT_EVERY_MS = 30_000
"""Interval at which producers publish what they have."""
BROKEN = 0.012
"""Share of additional bodies that break the contract. They are in the dump only, because a gateway refuses them."""


class _Envelope(msgspec.Struct):
    job: str
    trace_id: str


class Day:
    """``hours`` hours from ``clock`` on. Every body that a producer sent is also a line of ``dump``."""

    def __init__(self, client: Client, clock: Clock, dump: IO[bytes], seed: int, hours: float = 24) -> None:
        self.counts: Counter[str] = Counter()
        """Counts of the gateway's answers: accepted, delivered, acked, nacked, rejected, lease lost."""
        self.traces: dict[str, str] = {}
        """An example trace id for each action of a consumer."""
        self._client = client
        self._clock = clock
        self._dump = dump
        self._start = clock.now
        self._length = round(hours * HOUR_MS)
        self._chance = Random(seed)
        self._waiting: defaultdict[str, list[bytes]] = defaultdict(list)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    def run(self, on_hour: Callable[[float], None]) -> None:
        """Run all events in order. Calls ``on_hour`` with the hour of each event."""
        for hour, kind in shop.arrivals(self._chance):
            self._at(round(hour * HOUR_MS), partial(self._begin, kind))
        for at in range(0, self._length, SENT_EVERY_MS):
            self._at(at, self._publish)
        for consumer in shop.CONSUMERS:
            phase = self._chance.randrange(consumer.every)
            for at in range(phase, self._length // 1000, consumer.every):
                self._at(at * 1000, partial(self._take, consumer))
        while self._events:
            at, _, happen = heapq.heappop(self._events)
            self._clock.advance(self._start + at)
            happen()
            on_hour(at / HOUR_MS)

    @property
    def unsent(self) -> int:
        """Bodies that were produced after the last publish. They are in the dump, and the gateway never got them."""
        return sum(map(len, self._waiting.values()))

    def _at(self, at: int, happen: Callable[[], None]) -> None:
        # Events after the end are dropped, so their messages stay open.
        if at < self._length:
            self._order += 1
            heapq.heappush(self._events, (at, self._order, happen))

    @property
    def _hour(self) -> float:
        return (self._clock.now - self._start) / HOUR_MS

    def _begin(self, kind: shop.Kind) -> None:
        self._send(kind, shop.new_id(self._chance))

    def _send(self, kind: shop.Kind, trace_id: str) -> None:
        def made() -> dict[str, Any]:
            return shop.envelope(kind, self._clock.now, trace_id, self._chance)

        body = shop.encoded(made())
        self._waiting[kind.queue].append(body)
        self._dump.write(body + b"\n")
        if self._chance.random() < BROKEN * (4 if kind.lang == "php" else 1):
            self._dump.write(shop.broken(made(), self._chance) + b"\n")

    def _publish(self) -> None:
        for queue, bodies in self._waiting.items():
            if bodies:
                answer = self._client.publish_batch(queue, b"\n".join(bodies), "application/x-ndjson")
                self.counts["accepted"] += answer["accepted"]
                bodies.clear()

    def _take(self, consumer: shop.Consumer) -> None:
        if not shop.is_at_work(consumer.queue, self._hour):
            return
        taken = self._client.receive(consumer.queue, consumer.takes, 0, None)
        self.counts["delivered"] += len(taken)
        if taken:
            done = self._clock.now - self._start + consumer.works * 1000
            self._at(done, partial(self._settle, consumer.queue, taken))

    def _settle(self, queue: str, taken: list[ShownMessage]) -> None:
        order: dict[str, list[Any]] = {"acks": [], "nacks": [], "rejects": []}
        for each in taken:
            facts = msgspec.json.decode(each.envelope, type=_Envelope)
            action = shop.consumer_action(facts.job, self._hour, self._chance)
            if action == "ack":
                order["acks"].append(each.ack_token)
                for follower in shop.FOLLOWERS.get(facts.job, ()):
                    self._send(follower, facts.trace_id)
            elif action != "lose":
                order[f"{action}s"].append({"ack_tokens": [each.ack_token], "error": shop.reason(facts.job)})
            self.traces[action] = facts.trace_id
        if any(order.values()):
            answer = self._client.settle(queue, order)
            for result in answer["results"]:
                self.counts[f"{result['action']}ed" if result["status"] == 200 else "lease lost"] += 1


def run_day(url: str, clock: Clock, dump: Path, seed: int, on_hour: Callable[[float], None], hours: float = 24) -> Day:
    """Run a day, or its first ``hours``, through the gateway at ``url``. Returns the finished day."""
    with Client(url) as client, dump.open("wb") as file:
        day = Day(client, clock, file, seed, hours)
        day.run(on_hour)
    return day
