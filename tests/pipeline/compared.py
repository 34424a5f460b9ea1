"""Compares datasets of ``metrics`` with a second computation, over generated histories. Rows are dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from babelgate.pipeline.metrics.lifecycles import EVENTS
from babelgate.pipeline.storage.schemas import DATASETS
from tests.pipeline import oracle
from tests.pipeline.histories import DAY, START, row

OF = ("queue", "job", "lang", "broker")
AT = ("date", "grain", "at")


def table(dataset, rows, keys):
    """The rows by their keys, each with all columns of the dataset's schema and no other."""
    found = {}
    for each in rows:
        values = dict(each)
        assert values.keys() == set(DATASETS[dataset].columns)
        key = tuple(values.pop(name) for name in keys)
        assert key not in found
        found[key] = values
    return found


SPANS = ((START + 60_000, START + 61_000), (START + 2 * DAY, START + 2 * DAY + 5))


def check(made, rows, spans, as_of):
    """Compare all datasets with what the rows come to."""
    counts = oracle.throughput(rows, spans)
    assert table("throughput", made["throughput"], (*AT, *OF)) == counts
    assert table("rates", made["rates"], (*AT, *OF)) == oracle.rates(counts)
    check_payload(table("payload", made["payload"], (*AT, "event", *OF)), oracle.payloads(rows), spans)

    lived = oracle.lives(rows, spans)
    found = table("lifecycle", made["lifecycle"], ("message_id", "created_at", "queue"))
    for life in found.values():
        life["hops"] = [tuple(hop.values()) for hop in life["hops"]]
    assert found == lived
    check_latency(made["latency_hist"], made["latency"], oracle.latencies(lived))
    at_that_time = [each for each in made["open"] if each["as_of"] == as_of]
    still = table("open", at_that_time, ("queue", "state", "from_seconds", "below_seconds"))
    assert {key: each["n"] for key, each in still.items()} == oracle.still_open(rows, as_of)
    told = table("traces", made["traces"], ("trace_id",))
    for trace in told.values():
        trace["ids"] = [hop["message_id"] for hop in trace.pop("hops")]
    assert {key: each for (key,), each in told.items()} == oracle.traces(lived)
    return lived


def check_payload(found, expected, spans):
    assert found.keys() == expected.keys()
    for key, sizes in expected.items():
        each = found[key]
        assert (each["n"], each["sum_bytes"], each["max_bytes"]) == (len(sizes), sum(sizes), max(sizes))
        assert each["at_least"] == oracle.of_row(key[1], key[2], spans)
        assert [tuple(pair.values()) for pair in each["buckets"]] == buckets(sizes)
        for percent in (50, 95, 99):
            assert each[f"p{percent}_bytes"] == pytest.approx(oracle.percentile(sizes, percent), rel=0.0101)


def buckets(values):
    counted: defaultdict[int, int] = defaultdict(int)
    for value in values:
        counted[oracle.bucket(value)] += 1
    return sorted(counted.items())


def check_latency(histogram, percentiles, expected):
    keys = (*AT, "kind", *OF)
    by_key: defaultdict[tuple[Any, ...], dict[int, Any]] = defaultdict(dict)
    for key, cell in table("latency_hist", histogram, (*keys, "bucket")).items():
        by_key[key[:-1]][key[-1]] = cell
    found = table("latency", percentiles, keys)
    assert by_key.keys() == found.keys() == expected.keys()
    for key, told in expected.items():
        times = [ms for ms, _, _ in told]
        cells = by_key[key]
        assert sorted((bucket, cell["n"]) for bucket, cell in cells.items()) == buckets(times)
        assert sum(cell["sum_ms"] for cell in cells.values()) == sum(times)
        each = found[key]
        assert (each["n"], each["sum_ms"], each["max_ms"]) == (len(times), sum(times), max(times))
        assert each["skewed"] == sum(skewed for _, skewed, _ in told)
        assert each["at_least"] == any(at_least for _, _, at_least in told)
        for percent in (50, 95, 99):
            assert each[f"p{percent}_ms"] == pytest.approx(oracle.percentile(times, percent), rel=0.0101)


FACTS: dict[str, Sequence[Any]] = {
    "event": [*EVENTS, *EVENTS, "gap", "of_a_later_version"],
    "at": [START + step * (DAY // 13) for step in range(41)],
    "node": ["n1", "n2"],
    "message_id": ["a", "a", "b", None],
    "queue": ["q1", "q2", "q/3"],
    "broker": ["main", "other", "aged", None],
    "to_queue": [None, "q1", "q2", "q4"],
    "job": ["urn:j", None],
    "lang": ["go", None],
    "trace_id": ["t", None],
    "attempts": [0, 1, None],
    "created_at": [START, START, START + DAY, None, -1, 1_767_225_600, 2**62, 185_542_587_100_800_000],
    "bytes": [0, 1, 300, None],
    "outcome": ["failed", "unknown_urn", "poison", None],
}


def nonsense(seed):
    """Rows of 60 to 120 messages with one to nine events each, which make no sense."""
    chosen = Random(seed)
    rows: list[Any] = []
    for number in range(chosen.randint(60, 120)):
        for _ in range(chosen.randint(1, 9)):
            facts = {name: chosen.choice(values) for name, values in FACTS.items()}
            facts |= {name: facts[name] and f"{facts[name]}-{number}" for name in ("message_id", "trace_id")}
            rows.append(row(facts.pop("event"), facts.pop("at"), len(rows), **facts))
    return rows
