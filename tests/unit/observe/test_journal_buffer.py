"""Events become lines: which, with what in them, and what happens when there are too many."""

from __future__ import annotations

from base64 import b64decode
from threading import current_thread
from typing import Any, get_args

import pytest
from msgspec import UNSET, Struct

from babelgate.observe.events import Call, Event, EventKind, Facts
from babelgate.observe.journal.buffer import Buffer
from babelgate.observe.journal.record import EVENTS, JournalEvent, Record
from babelgate.privacy.body_keys import opened_headers
from babelgate.privacy.ciphers import BodyCipher, BodyKey, journal_context
from babelgate.privacy.protection import HIDDEN, Protection
from babelgate.privacy.redaction import Redaction
from babelgate.runtime.turns import LARGE_BYTES
from tests.harness.journal import MESSAGE, happened, lines, numbers

EPOCH = "018bcfe568001a2b3c4d"


class Ticking:
    """A clock that the test sets, Unix ms."""

    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def buffer(clock: Ticking) -> Buffer:
    return Buffer("a", EPOCH, 1_000_000, clock)


def taken(buffer: Buffer) -> list[Record]:
    text = bytes(buffer.take())
    buffer.written(len(text))
    return lines(text, "buffer") if text else []


def test_a_record_holds_what_is_known(buffer: Buffer) -> None:
    buffer.observe(Event("delivered", "orders", "main", 1, messages=(MESSAGE,), lease_seconds=60))
    (record,) = taken(buffer)
    assert record == Record(
        1,
        "a",
        EPOCH,
        1,
        "delivered",
        1_700_000_000_000,
        "orders",
        "main",
        "urn:babel:test:made",
        "id-1",
        "trace-1",
        0,
        1_700_000_000_000,
        60.0,
        120,
        "go",
        None,
    )


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_what_happens_to_messages_is_recorded_and_nothing_else(buffer: Buffer, kind: EventKind) -> None:
    buffer.observe(Event(kind, "orders", "main", 1, reason="why", messages=(MESSAGE,)))
    assert [record.event for record in taken(buffer)] == ([kind] if kind in EVENTS else [])
    assert set(get_args(JournalEvent)) - set(get_args(EventKind)) == {"gap"}


def test_calls_are_not_recorded(buffer: Buffer) -> None:
    buffer.observe(Call("send", "orders", "main", 1, 0.1))
    assert taken(buffer) == []


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (happened("accepted"), None),
        (happened("delivered"), None),
        (happened("acked"), "acked"),
        (happened("nacked"), "nacked"),
        (happened("rejected"), "rejected"),
        (happened("lease_expired"), None),
        (Event("dead_lettered", "orders", "main", reason="failed", messages=(MESSAGE,)), "failed"),
        (Event("poison", "orders", "main", reason="missing_urn", messages=(MESSAGE,)), "missing_urn"),
        (Event("dropped", "orders", "main", reason="expired", messages=(MESSAGE,)), "expired"),
    ],
    ids=lambda value: value.kind if isinstance(value, Event) else "",
)
def test_the_outcome(buffer: Buffer, event: Event, outcome: str | None) -> None:
    buffer.observe(event)
    assert [record.outcome for record in taken(buffer)] == [outcome]


def test_a_redriven_message_tells_where_it_went(buffer: Buffer) -> None:
    buffer.observe(Event("redriven", "orders", "main", messages=(MESSAGE,), to_queue="again"))
    buffer.observe(happened())
    assert [record.to_queue for record in taken(buffer)] == ["again", UNSET]


def test_messages_of_which_nothing_is_known_count_too(buffer: Buffer) -> None:
    buffer.observe(happened("acked", MESSAGE, count=3))
    assert [record.message_id for record in taken(buffer)] == ["id-1", None, None]


def test_half_a_surrogate_pair_is_no_reason_to_lose_a_record(buffer: Buffer) -> None:
    buffer.observe(happened("accepted", Facts(trace_id="a\ud800b", job="urn:ä")))
    assert [(record.trace_id, record.job) for record in taken(buffer)] == [("a?b", "urn:ä")]


@pytest.mark.parametrize(
    ("configured", "bodies", "found"),
    [
        (False, (b'{"a":1}',), [(UNSET, UNSET)]),
        (True, (b'{"a":1}',), [(b'{"a":1}', UNSET)]),
        (True, (b"\xff",), [(UNSET, "/w==")]),
        (True, (), [(UNSET, UNSET)]),
    ],
)
def test_bodies(clock: Ticking, configured: bool, bodies: tuple[bytes, ...], found: list[Any]) -> None:
    buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=configured)
    buffer.observe(Event("accepted", "orders", "main", messages=(MESSAGE,), bodies=bodies))
    told = [(record.envelope, record.envelope_base64) for record in taken(buffer)]
    assert [(UNSET if body is UNSET else bytes(body), other) for body, other in told] == found


class Parcel(Struct):
    """What carried a message."""

    headers: dict[str, str] = {}
    ordering_key: str | None = None


def test_headers_and_ordering_keys_come_with_bodies_only(clock: Ticking) -> None:
    own = {"traceparent": "00-1-2-01", "tracestate": "a=1", "babelgate-expires-at": "1"}
    carriers = (
        Parcel(),
        Parcel({"shop": "north", **own}, "c-1"),
        Parcel(own),
        Parcel({}, "c-2"),
        Parcel({"b": "\ud800"}),
        # Of another producer: replay could not publish them.
        Parcel({"empty": "", " ": "blank", "shop": " "}, " \n"),
        Parcel({"empty": ""}, ""),
    )
    event = Event("accepted", "orders", "main", 7, messages=(MESSAGE,) * 7, bodies=(b"{}",) * 7, carriers=carriers)
    found = []
    for configured in (False, True):
        buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=configured, meta=["ext.shop"])
        buffer.observe(event)
        found.append([(each.headers, each.ordering_key) for each in taken(buffer)])
    nothing = (UNSET, UNSET)
    kept = [
        nothing,
        ({"shop": "north"}, "c-1"),
        nothing,
        (UNSET, "c-2"),
        ({"b": "?"}, UNSET),
        ({"shop": " "}, UNSET),
        nothing,
    ]
    assert found == [[nothing] * 7, kept]


def test_a_message_without_headers_takes_no_byte_more(clock: Ticking) -> None:
    sizes = set()
    for carriers in ((), (Parcel(),)):
        buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=True)
        buffer.observe(Event("accepted", "orders", "main", messages=(MESSAGE,), bodies=(b"{}",), carriers=carriers))
        sizes.add(len(buffer.take()))
    assert len(sizes) == 1


@pytest.mark.parametrize("size", [2, 2 * LARGE_BYTES])
def test_headers_are_encrypted_where_bodies_are(clock: Ticking, size: int) -> None:
    cipher = BodyCipher([BodyKey("2026", b"s" * 32)])
    protections = {"pay": Protection(cipher=cipher), "gone": HIDDEN, "shown": Protection(Redaction(["/data/card"]))}
    buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=True)
    buffer.protection_of = lambda queue: protections[queue or ""]
    carrier = Parcel({"customer": "confidential"}, "confidential\ud800")
    for queue in protections:
        event = Event("accepted", queue, "main", messages=(MESSAGE,), bodies=(b" " * size,), carriers=(carrier,))
        buffer.observe(event)
    pay, gone, shown = taken(buffer)
    assert (pay.headers, pay.ordering_key) == (gone.headers, gone.ordering_key) == (UNSET, UNSET)
    assert isinstance(pay.headers_encrypted, str)
    stored = b64decode(pay.headers_encrypted)
    assert opened_headers(stored, "pay", cipher) == ('{"customer":"confidential"}', "confidential?")
    assert gone.headers_encrypted is UNSET
    assert (shown.headers, shown.ordering_key) == ({"customer": "confidential"}, "confidential?")


def test_members_of_meta(clock: Ticking) -> None:
    buffer = Buffer("a", EPOCH, 1_000_000, clock, meta=["ext.shop"])
    bodies = (b'{"meta":{"ext":{"shop":"north"}}}', b"{}")
    buffer.observe(Event("accepted", "orders", "main", 3, messages=(MESSAGE,), bodies=bodies))
    buffer.observe(Event("acked", "orders", "main", 1, messages=(MESSAGE,)))
    found = taken(buffer)
    assert [each.meta for each in found] == [{"ext.shop": "north"}, UNSET, UNSET, UNSET]
    assert {each.envelope for each in found} == {UNSET}


def test_what_is_too_much_is_a_gap(clock: Ticking) -> None:
    buffer = Buffer("a", EPOCH, 1_000, clock)
    for _ in range(10):
        buffer.observe(happened())
        clock.now += 1
    kept = buffer.seq
    assert 1_000 <= buffer.size < 1_500, "one line more than the limit"
    assert buffer.dropped == 10 - kept
    first = lines(bytes(buffer.take()), "buffer")
    buffer.observe(happened())
    assert buffer.seq == kept, "what is taken and not yet written takes room"
    clock.now += 50
    buffer.written(buffer.size)
    buffer.observe(happened())
    second = taken(buffer)
    assert [record.event for record in second] == ["gap", "accepted"]
    assert numbers([*first, *second]) == list(range(1, kept + 3))
    gap = second[0]
    assert (gap.count, gap.first_lost_at, gap.last_lost_at) == (11 - kept, 1_700_000_000_000 + kept, clock.now - 50)
    assert (gap.queue, gap.message_id, gap.at) == (None, None, clock.now)


def test_numbers_go_on_when_the_clock_goes_back(buffer: Buffer, clock: Ticking) -> None:
    buffer.observe(happened())
    clock.now -= 3_600_000
    buffer.observe(happened())
    first, second = taken(buffer)
    assert second.at < first.at and second.seq == first.seq + 1


KEY = BodyKey("2026", b"n" * 32)
SECRET = b'{"data":{"card":"4111","note":"hush"},"meta":{"ext":{"shop":"north"}}}'


def accepted(*bodies: bytes) -> Event:
    return Event("accepted", "orders", "main", len(bodies), messages=(MESSAGE,) * len(bodies), bodies=bodies)


def test_an_encrypted_body(clock: Ticking) -> None:
    """It is redacted first, and nothing of it is in clear, nor in what is kept of meta."""
    buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=True, meta=["ext.shop"])
    cipher = BodyCipher([KEY])
    buffer.protection_of = lambda queue: Protection(Redaction(["/data/card"]), cipher)
    buffer.observe(accepted(SECRET))
    (record,) = taken(buffer)
    assert (record.envelope, record.envelope_base64, record.meta) == (UNSET, UNSET, {"ext.shop": "[redacted]"})
    assert isinstance(record.envelope_encrypted, str)
    stored = b64decode(record.envelope_encrypted)
    assert cipher.decrypted(stored, journal_context("orders"), "journal") == SECRET.replace(b"4111", b"[redacted]")
    assert KEY.id.encode() in stored and b"hush" not in stored


@pytest.mark.parametrize("encrypts", [False, True])
def test_of_an_encrypted_body_only_the_frame_is_kept_in_clear(clock: Ticking, encrypts: bool) -> None:
    buffer = Buffer("a", EPOCH, 1_000_000, clock, meta=["lang", "tenant", "shop.person", "ext.shop"])
    buffer.protection_of = lambda queue: Protection(None, BodyCipher([KEY]) if encrypts else None)
    buffer.observe(accepted(b'{"meta":{"lang":"go","tenant":"a","shop":{"person":"b"},"ext":{"shop":"c"}}}'))
    (record,) = taken(buffer)
    kept = dict.fromkeys(("tenant", "shop.person", "ext.shop"), "[redacted]")
    clear = {"tenant": "a", "shop.person": "b", "ext.shop": "c"}
    assert record.meta == {"lang": "go", **(kept if encrypts else clear)}


@pytest.mark.parametrize("encrypts", [False, True])
def test_without_bodies_nothing_is_encrypted(clock: Ticking, encrypts: bool) -> None:
    buffer = Buffer("a", EPOCH, 1_000_000, clock, meta=["ext.shop"])
    buffer.protection_of = lambda queue: Protection(None, BodyCipher([KEY])) if encrypts else HIDDEN
    buffer.observe(accepted(SECRET))
    (record,) = taken(buffer)
    assert (record.envelope, record.envelope_encrypted) == (UNSET, UNSET)
    assert record.meta == {"ext.shop": "[redacted]"}


class Watched(Redaction):
    """Notes in which threads it works."""

    def __init__(self) -> None:
        super().__init__(["/data/card"])
        self.threads: list[str] = []

    def redacted(self, body: bytes) -> bytes:
        self.threads.append(current_thread().name)
        return super().redacted(body)


def test_large_bodies_are_completed_by_who_takes_them_and_keep_their_order(clock: Ticking) -> None:
    buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=True)
    redaction = Watched()
    buffer.protection_of = lambda queue: Protection(redaction)
    large = b'{"data":{"card":"4111","note":"%b"}}' % (b"x" * LARGE_BYTES)
    buffer.observe(accepted(SECRET, large, SECRET, large))
    buffer.observe(happened("acked"))
    buffer.observe(accepted(large))
    assert len(redaction.threads) == 1, "only the small body before a large one"
    assert buffer.size > 3 * LARGE_BYTES, "bodies that wait count"
    found = taken(buffer)
    assert len(redaction.threads) == 5
    assert numbers(found) == [1, 2, 3, 4, 5, 6]
    bodies = [None if each.envelope is UNSET else bytes(each.envelope) for each in found]
    small, hidden = (body.replace(b"4111", b"[redacted]") for body in (SECRET, large))
    assert bodies == [small, hidden, small, hidden, None, hidden]
    assert buffer.size == 0


def test_many_bodies_of_one_event_are_completed_there_too(clock: Ticking) -> None:
    buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=True)
    redaction = Watched()
    buffer.protection_of = lambda queue: Protection(redaction)
    batch = [b'{"data":{"card":"4111","note":"%05d%b"}}' % (n, b"x" * (LARGE_BYTES // 4)) for n in range(20)]
    buffer.observe(accepted(*batch))
    assert len(redaction.threads) == 3, "as many as one body may have bytes"
    buffer.observe(accepted(SECRET))
    assert len(redaction.threads) == 4, "each event has this bound"
    found = [None if each.envelope is UNSET else bytes(each.envelope) for each in taken(buffer)]
    assert found == [body.replace(b"4111", b"[redacted]") for body in (*batch, SECRET)]
    assert buffer.size == 0


def test_a_body_that_cannot_be_completed_ends_nothing(clock: Ticking, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Redaction):
        def redacted(self, body: bytes) -> bytes:
            raise MemoryError(body)

    buffer = Buffer("a", EPOCH, 1_000_000, clock, bodies=True)
    buffer.protection_of = lambda queue: Protection(Broken([])) if queue == "orders" else None
    large = b'{"data":"hush%b"}' % (b"x" * LARGE_BYTES)
    buffer.observe(accepted(large))
    buffer.observe(Event("accepted", "other", "main", messages=(MESSAGE,), bodies=(large,)))
    found = taken(buffer)
    assert numbers(found) == [1, 2]
    assert [each.envelope is UNSET for each in found] == [True, False]
    assert buffer.size == 0
    assert "MemoryError" in caplog.text and "hush" not in caplog.text


def test_large_bodies_count_towards_the_limit(clock: Ticking) -> None:
    buffer = Buffer("a", EPOCH, 2 * LARGE_BYTES, clock, bodies=True)
    large = b'{"data":"%b"}' % (b"x" * LARGE_BYTES)
    buffer.observe(accepted(*[large] * 5))
    assert (buffer.seq, buffer.dropped) == (2, 3)
    text = bytes(buffer.take())
    assert buffer.size == len(text) > 2 * LARGE_BYTES
    buffer.written(len(text))
    gap = taken(buffer)[-1]
    assert (gap.event, gap.seq, gap.count) == ("gap", 3, 3)
