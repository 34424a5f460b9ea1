"""``python -m bench.codec``: CPU of the codec per envelope, beside the SDK's codec in the same run.

The cases are taken in turn, several times; shown are the least, the median and the greatest CPU time of a call.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable

from babelqueue import EnvelopeCodec

from babelgate import envelope
from babelgate.clock import now_ms
from babelgate.envelope import Limits

DATA = {
    "order_id": 1042,
    "customer": {"id": "c-8831", "name": "Anna Schmidt", "email": "anna@example.com"},
    "items": [{"sku": "A-1", "qty": 2, "price": "19.90"}],
    "note": "leave at the door",
    "total_cents": 5480,
}
LIMITS = Limits()
SDK = "SDK: decode + accepts + encode"
STRICT_SDK = "SDK: poison_cause + decode + accepts + encode"


def all_cases() -> dict[str, Callable[[], object]]:
    """The measured calls by name."""
    draft = json.dumps({"job": "urn:babel:orders:created", "data": {**DATA, "reference": "x" * 120}}).encode()
    full = envelope.read_publication(json.dumps({"job": "urn:a", "data": DATA}).encode(), "orders", LIMITS, now_ms)
    body = full.envelope.body
    loose = json.dumps(json.loads(body)).encode()
    escaped = body.replace(b"Anna", rb"Ann\u00e9")
    extended = body.replace(b'},"attempts"', b',"ext":{"acme":1}},"attempts"')
    unknown = b'{"x":1,' + body[1:]
    text = body.decode()
    logging.getLogger("babelqueue").setLevel(logging.ERROR)

    def publish(sent: bytes) -> Callable[[], object]:
        return lambda: envelope.read_publication(sent, "orders", LIMITS, now_ms)

    def sdk() -> str:
        read = EnvelopeCodec.decode(text)
        assert EnvelopeCodec.accepts(read)
        return EnvelopeCodec.encode(read)

    def strict_sdk() -> str:
        assert EnvelopeCodec.poison_cause(text) is None
        return sdk()

    return {
        SDK: sdk,
        STRICT_SDK: strict_sdk,
        f"publish, full envelope, canonical, {len(body)} bytes": publish(body),
        f"publish, full envelope with spaces, {len(loose)} bytes": publish(loose),
        f"publish, draft, {len(draft)} bytes": publish(draft),
        "publish, full envelope with escapes": publish(escaped),
        "publish, full envelope with meta.ext": publish(extended),
        "publish, full envelope with an unknown key": publish(unknown),
        "inspect": lambda: envelope.inspect(body, LIMITS),
        "inspect, with an unknown key": lambda: envelope.inspect(unknown, LIMITS),
        "with_attempts": lambda: envelope.with_attempts(body, 3),
    }


def cpu_us(call: Callable[[], object], times: int) -> float:
    """CPU microseconds of one call, over ``times`` calls."""
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times * 1e6


def run(repetitions: int, times: int) -> None:
    """Measure, and print the table."""
    measured = all_cases()
    samples: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(repetitions):
        for name, call in measured.items():
            samples[name].append(cpu_us(call, times))
    medians = {name: statistics.median(found) for name, found in samples.items()}
    print(f"{'CPU µs per call':55} {'min':>7} {'median':>7} {'max':>7} {'SDK':>8} {'strict':>8}")
    for name, found in samples.items():
        ratios = f"{medians[SDK] / medians[name]:7.1f}x {medians[STRICT_SDK] / medians[name]:7.1f}x"
        print(f"{name:55} {min(found):7.2f} {medians[name]:7.2f} {max(found):7.2f} {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--times", type=int, default=5000)
    asked = parser.parse_args()
    run(asked.repetitions, asked.times)


if __name__ == "__main__":
    main()
