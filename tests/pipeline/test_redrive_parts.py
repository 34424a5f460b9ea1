"""The parts of sending, without Spark or a gateway: bodies, keys, rate limit, circuit breaker."""

from __future__ import annotations

import pytest

from babelgate.envelope import Limits, read_publication
from babelgate.jsontext import decode_object
from babelgate.pipeline.send.bodies import Changes, Unsendable, entry, key_after, key_of, outgoing
from babelgate.pipeline.send.sender import CircuitBreaker, RateLimit
from tests.harness.hostile import BY_HAND, generated
from tests.pipeline.sending import body


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_body_that_fits_is_sent_as_it_is():
    assert outgoing(body(1), "q", Changes(drop_dead_letter=True)) == body(1)


def test_only_what_was_asked_for_is_changed():
    meta = b'"meta":{"queue":"x","id":"\\u0041"}'
    odd = b'{"job" : "urn:a","data":{"n":1.10,"n":1e0},\r\n"attempts":7,%b,"dead_letter":{}}' % meta
    moved = odd.replace(b'"x"', b'"q"').replace(b"\r\n", b"  ")
    assert outgoing(odd, "q", Changes()) == moved
    changed = outgoing(odd, "q", Changes(reset_attempts=True, drop_dead_letter=True))
    assert changed == moved.replace(b":7", b":0").replace(b',"dead_letter":{}', b"")
    assert outgoing(b'{"attempts":1,"attempts":2}', "q", Changes(reset_attempts=True)) == b'{"attempts":0}'


@pytest.mark.parametrize(
    ("found", "queue", "code"),
    [
        (b'{"a":', "q", "invalid_json"),
        (b'{}},"envelope":{"job":"urn:b"', "q", "invalid_json"),
        (b"\xff", "q", "invalid_json"),
        (b"[" * 100_000, "q", "invalid_json"),
        (b'{"a":' * 100_000, "q", "too_deep"),
        (None, "q", "no_body"),
        (b"", "q", "no_body"),
        (b"{}", "", "no_queue"),
        *((b"{}", name, "invalid_queue") for name in ("a/b", ".", "..", "q.dlq", "q\n", "q" * 121)),
    ],
)
def test_what_no_request_can_carry(found, queue, code):
    with pytest.raises(Unsendable) as refused:
        outgoing(found, queue, Changes())
    assert refused.value.code == code


def test_no_body_can_break_a_batch():
    """Whatever is found is refused here, or is one entry on one line, of which the gateway is the judge."""
    sent = 0
    for found in (*BY_HAND, *generated(300)):
        try:
            line = entry(outgoing(found, "q", Changes(True, True)), "key")
        except Unsendable:
            continue
        sent += 1
        assert b"\n" not in line
        assert list(decode_object(line).by_name()) == ["envelope", "idempotency_key"]
    assert sent > 100


def test_keys_are_of_run_queue_and_message():
    keys = [key_of(run, queue, one) for run in ("r", "s") for queue in ("q", "p") for one in ("1", "2", "\u20ac")]
    keys += [key_after(keys[0]), key_after(key_after(keys[0]))]
    assert len(set(keys)) == len(keys) == 14
    assert key_after(keys[0]).startswith("r:")
    longest = key_of("r" * 64, "q" * 120, "i" * 10_000)
    publication = read_publication(entry(body(1), longest), "q", Limits(), lambda: 0)
    assert publication.idempotency_key == longest


def test_pace():
    clock = Time()
    pace = RateLimit(10.0, clock)
    assert pace.seconds(5) == 0
    assert pace.seconds(10) == pytest.approx(0.5)
    assert pace.seconds(1) == pytest.approx(1.5)
    clock.now += 60
    assert pace.seconds(5) == 0, "what was not sent meanwhile is not caught up with"
    assert pace.seconds(5) == pytest.approx(0.5)
    assert RateLimit(None).seconds(1_000_000) == 0


def test_a_circuit_opens_when_nothing_gets_through():
    clock = Time()
    circuit = CircuitBreaker(60.0, clock)
    waits = []
    while not circuit.is_open:
        waits.append(circuit.failed())
        clock.now += waits[-1]
    assert clock.now == pytest.approx(160), "the last try is made when the time is over"
    assert 0.1 < waits[0] < 0.4
    assert waits[4] > waits[0]
    assert max(waits) <= 45


def test_what_gets_through_closes_it_again():
    clock = Time()
    circuit = CircuitBreaker(10.0, clock)
    for _ in range(20):
        clock.now += 1 + circuit.failed()
        circuit.succeeded()
    assert not circuit.is_open


def test_it_waits_as_long_as_it_is_told_and_a_little_longer():
    waits = [CircuitBreaker(60.0).failed(retry_after=20) for _ in range(10)]
    assert min(waits) >= 20
    assert max(waits) <= 25
    assert len(set(waits)) > 1, "tasks do not come back at the same moment"
    circuit = CircuitBreaker(60.0)
    circuit.failed(retry_after=600)
    assert circuit.is_open, "nobody waits for what comes after the end"
