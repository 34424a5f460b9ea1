"""A ratio samples its share of the traces, whatever the trace ids look like."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable

import pytest

from babelgate.observe.tracing.context import context_of, trace_id_of
from babelgate.observe.tracing.sampling import Sampling, sampling

COUNT = 5_000
RATIOS = (0.01, 0.1, 0.25, 0.5, 0.625, 0.75, 0.9)
Make = Callable[[random.Random, int], int]


def uuid4(source: random.Random, index: int) -> int:
    return uuid.UUID(int=source.getrandbits(128), version=4).int


def uuid1(source: random.Random, index: int) -> int:
    """Of one network card, a moment apart."""
    return uuid.UUID(fields=(index, 0x1234, 0x1234, 0, 0, 0x0242AC120002), version=1).int


def uuid7(source: random.Random, index: int) -> int:
    milliseconds = 1_790_000_000_000 + index
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | source.getrandbits(62)).int


KINDS: dict[str, Make] = {
    "uuid4": uuid4,
    "uuid1": uuid1,
    "uuid7": uuid7,
    "random": lambda source, index: source.getrandbits(128) or 1,
    "counted": lambda source, index: index + 1,
}


def trace_ids(kind: str) -> list[int]:
    source = random.Random(kind)
    return [KINDS[kind](source, index) for index in range(COUNT)]


def ratio(value: float, prefix: str = "") -> Sampling:
    return sampling({"OTEL_TRACES_SAMPLER": f"{prefix}traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(value)})


@pytest.mark.parametrize("value", RATIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_share_that_is_sampled_is_the_ratio(kind: str, value: float) -> None:
    sampled = sum(map(ratio(value).root, trace_ids(kind)))
    assert abs(sampled - COUNT * value) <= 3 * math.sqrt(COUNT * value * (1 - value))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sampled_at_a_ratio_is_sampled_at_every_higher_one(kind: str) -> None:
    sampled: set[int] = set()
    for value in (0.0, *RATIOS, 1.0):
        more = set(filter(ratio(value).root, trace_ids(kind)))
        assert sampled <= more
        sampled = more
    assert len(sampled) == COUNT


def test_every_hop_decides_alike() -> None:
    for trace_id in trace_ids("uuid4")[:200]:
        hyphens = str(uuid.UUID(int=trace_id))
        decisions = set()
        for prefix in ("", "parentbased_"):
            here, there = ratio(0.5, prefix), ratio(0.5, prefix)
            decisions |= {here.root(trace_id), there.root(trace_id)}
            for text in (hyphens, hyphens.replace("-", ""), hyphens.upper()):
                decisions.add(here.root(trace_id_of(text)))
        # With a context and a sampler that is not parent-based, whatever the parent did.
        decisions |= {ratio(0.5).child(context_of(f"{trace_id:032x}", "1" * 16, flags)) for flags in (0, 1, 2, 3)}
        assert len(decisions) == 1, hyphens


def test_the_decision_is_that_of_the_documented_formula() -> None:
    """Vectors for whoever repeats it: the first 8 bytes of the SHA-256 of the 16 bytes, as a part of 2^64."""
    vectors = {
        "11111111-2222-4333-8444-555555555551": 0.08696649523542303,
        "11111111-2222-4333-8444-555555555552": 0.42068814631669865,
        "11111111-2222-4333-8444-555555555553": 0.49827889358220695,
    }
    for text, value in vectors.items():
        assert not ratio(value - 1e-9).root(trace_id_of(text))
        assert ratio(value + 1e-9).root(trace_id_of(text))


def test_all_or_none_needs_no_hash() -> None:
    # No bytes can be made of it, so a hash of it would raise.
    assert ratio(1.0).root(-1)
    assert not ratio(0.0).root(-1)
    with pytest.raises(OverflowError):
        ratio(0.5).root(-1)
