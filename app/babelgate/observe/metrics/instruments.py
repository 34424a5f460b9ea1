"""Counters and histograms that cost a fraction of a microsecond for each observation, and snapshots of them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from babelgate.jsontext import decoded
from babelgate.observe.metrics.catalogue import CATALOGUE, Metric

Labels = tuple[str, ...]
Sampled = tuple[str, str]
"""The trace id and the span id of a sampled request, in hexadecimal."""


class Exemplar(Struct, frozen=True, array_like=True):
    """One measured ``value`` and its trace. ``at`` is Unix seconds."""

    trace_id: str
    span_id: str
    value: float
    at: float


class Distribution(Struct, array_like=True):
    """The state of a histogram.

    ``counts`` has one entry for each bucket (one more than bounds), ``sum`` is the sum of all values, and
    ``exemplars`` has the newest exemplar of a bucket by its index.
    """

    counts: list[int]
    sum: float
    exemplars: dict[int, Exemplar] = {}


Value = float | Distribution
Snapshot = dict[str, dict[Labels, Value]]
"""Values by the metric's name in OpenTelemetry, then by the values of its labels."""


class Count:
    """A number that never decreases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def read(self) -> float:
        """Return the number."""
        return self.value


class Histogram:
    """Counts of values in buckets with the upper ``bounds``."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float, sampled: Sampled | None = None) -> None:
        """Add ``value``."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._sum += value
        if sampled is not None:
            self._exemplars[bucket] = Exemplar(*sampled, value, time.time())

    def read(self) -> Distribution:
        """Return a copy."""
        return Distribution(self._counts.copy(), self._sum, self._exemplars.copy())


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the sum of ``snapshots``, without changing them."""
    total: Snapshot = {}
    for _ in merging(total, snapshots):
        pass
    return total


def merging(total: Snapshot, snapshots: Iterable[Snapshot]) -> Iterator[bool]:
    """Add ``snapshots`` to ``total``, which has none of their values yet; yields after each value, true if it is the
    first of its labels."""
    for snapshot in snapshots:
        for name, several in snapshot.items():
            held = total.setdefault(name, {})
            for labels, value in several.items():
                before = held.get(labels)
                held[labels] = value if before is None else _sum(before, value)
                yield before is None


def _sum(one: Value, other: Value) -> Value:
    if isinstance(one, Distribution) and isinstance(other, Distribution):
        counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
        exemplars = one.exemplars | {
            bucket: exemplar
            for bucket, exemplar in other.exemplars.items()
            if bucket not in one.exemplars or exemplar.at > one.exemplars[bucket].at
        }
        return Distribution(counts, one.sum + other.sum, exemplars)
    assert isinstance(one, float) and isinstance(other, float)
    return one + other


class _Series(Struct, array_like=True):
    name: str
    values: list[tuple[Labels, Value]]


_METRICS: Mapping[str, Metric] = {metric.otel: metric for metric in CATALOGUE}
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Series)
_raw_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def encode(snapshot: Snapshot) -> bytes:
    """Encode ``snapshot`` as JSON."""
    # One series at a time: a call in a thread keeps the interpreter lock only as long as one series takes.
    return b"[%b]" % b",".join(_encoder.encode(_Series(name, list(s.items()))) for name, s in snapshot.items())


def decode(text: bytes) -> Snapshot:
    """Decode the JSON that :func:`encode` wrote in any process of this version. Raises msgspec.MsgspecError."""
    snapshot: Snapshot = {}
    for raw in decoded(_raw_decoder, text):
        series = decoded(_decoder, raw)
        metric = _METRICS.get(series.name)
        if metric is None or not all(_fits(metric, labels, value) for labels, value in series.values):
            raise msgspec.ValidationError(f"{series.name} is not of this version")
        snapshot[series.name] = dict(series.values)
    return snapshot


def _fits(metric: Metric, labels: Labels, value: Value) -> bool:
    if len(labels) != len(metric.labels):
        return False
    if isinstance(value, Distribution):
        return metric.kind == "histogram" and len(value.counts) == len(metric.bounds) + 1
    return metric.kind != "histogram"
