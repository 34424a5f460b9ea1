"""Ack tokens: what was sealed opens again, and nothing else does."""

from __future__ import annotations

import hmac
import json
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from babelgate.brokers.binding import MAX_HANDLE_LENGTH
from babelgate.errors import InvalidAckToken
from babelgate.gateway import ack_tokens
from babelgate.gateway.ack_tokens import MAX_TOKEN_LENGTH, Lease, TokenKey, TokenSealer
from babelgate.observe.events import Facts
from tests.harness.world import KEYS

KEY = TokenKey("k1", b"a" * 32)
OTHER = TokenKey("k2", b"b" * 32)
LEASE = Lease("orders.new", "local", "17:c0ffee", "9f86d081884c7d65", 1_700_000_000_000, 3)
BASE64URL = string.ascii_letters + string.digits + "-_"

FACTS = Facts(
    3,
    "7c1f0a52-6f0e-4a55-9d0d-0a6c1f6f2b11",
    "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10",
    "urn:babel:emails:welcome",
    1_700_000_000_000,
    "python",
    400,
    "00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01",
)
# The longest that each broker makes: SQLite, Redis and its Laravel layout, RabbitMQ.
HANDLES = {
    "sqlite": f"{2**53}.{2**63 - 1}",
    "redis": f"{'f0' * 16}:1767225600000123",
    "laravel": f"{'f0' * 16}:1767225600000123:1048576",
    "rabbitmq": f"{'f0' * 8}.99999999.{2**63 - 1}",
}

ascii_texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=MAX_HANDLE_LENGTH)
handles = ascii_texts | st.from_regex(r"[0-9a-f]{0,40}[.:]?[0-9]{0,20}", fullmatch=True)
uuids = st.uuids().map(str)
facts_of_any = st.builds(
    Facts,
    attempts=st.none() | st.integers(0, 2**31),
    message_id=st.none() | uuids | st.text(max_size=40),
    trace_id=st.none() | uuids | st.text(max_size=40),
    job=st.none() | st.text(max_size=20),
    created_at=st.none() | st.integers(0, 2**63 - 1),
    lang=st.sampled_from([None, "python", "go"]),
    size=st.none() | st.integers(0, 2**31),
    traceparent=st.none() | st.from_regex(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", fullmatch=True) | st.text(max_size=9),
)
leases = st.builds(
    Lease,
    queue=st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=120),
    broker=st.text(string.ascii_lowercase + string.digits + "-_", min_size=1, max_size=64),
    handle=handles,
    receiver=st.text("0123456789abcdef", min_size=16, max_size=16),
    deadline=st.integers(0, 2**63 - 1),
    attempts=st.integers(0, 2**63 - 1),
)


def sealed_and_opened(lease: Lease) -> Lease:
    """``lease`` as it is opened by another process, and by the one that sealed it."""
    sealer = TokenSealer([KEY])
    token = sealer.seal(lease)
    opened = TokenSealer([KEY]).open(token, lease.queue)
    assert sealer.open(token, lease.queue) == opened
    return opened


@given(leases)
def test_a_sealed_lease_opens_as_it_was(lease: Lease) -> None:
    assert sealed_and_opened(lease) == lease


@given(facts_of_any)
def test_the_facts_of_a_message_come_back_unless_they_do_not_fit(facts: Facts) -> None:
    opened = sealed_and_opened(replace(LEASE, facts=facts)).facts
    for name in Facts.__struct_fields__:
        assert getattr(opened, name) in (getattr(facts, name), None)
    if sum(len((each or "").encode()) for each in (facts.message_id, facts.trace_id, facts.job)) < 90:
        assert opened == facts


@given(leases)
def test_a_token_is_fit_for_a_header_or_a_url(lease: Lease) -> None:
    token = TokenSealer([TokenKey("k" * 32, b"s" * 32)]).seal(lease)
    assert len(token) <= MAX_TOKEN_LENGTH
    assert set(token) <= set(BASE64URL)


@pytest.mark.parametrize("broker", ["local", "b" * 64])
@pytest.mark.parametrize("job", ["urn:babel:emails:welcome", "urn:babel:" + "x" * 300])
@pytest.mark.parametrize("handle", HANDLES.values(), ids=HANDLES.keys())
def test_a_token_has_at_most_300_characters_on_the_brokers_of_today(handle: str, job: str, broker: str) -> None:
    lease = Lease("q" * 120, broker, handle, "9f86d081884c7d65", 1_700_000_000_000, 2**31, replace(FACTS, job=job))
    assert len(TokenSealer([TokenKey("k" * 32, b"s" * 32)]).seal(lease)) <= 300
    opened = sealed_and_opened(lease)
    assert replace(opened, facts=FACTS) == replace(lease, facts=FACTS)
    assert (opened.facts.message_id, opened.facts.created_at) == (FACTS.message_id, FACTS.created_at)
    if broker == "local" and len(job) < 50:
        assert opened.facts == FACTS


def test_nothing_of_a_token_can_be_read() -> None:
    lease = replace(LEASE, handle=HANDLES["redis"], facts=FACTS)
    token = TokenSealer([KEY]).seal(lease)
    raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for shown in (lease.queue, lease.broker, lease.handle[:32], FACTS.message_id, FACTS.trace_id, FACTS.job, KEY.id):
        assert shown is not None
        digits = shown.replace("-", "")
        assert shown.encode() not in raw
        if set(digits) <= set(string.hexdigits):
            assert bytes.fromhex(digits) not in raw


def signed(lease: Lease, key: TokenKey) -> str:
    """A token as the version before this one wrote it."""
    facts = json.dumps([getattr(lease.facts, name) for name in Facts.__struct_fields__], separators=(",", ":"))
    fields = ["1", key.id, lease.queue, lease.broker, lease.handle, lease.receiver, lease.deadline, lease.attempts]
    content = "\n".join([*map(str, fields), facts]).encode()
    text = urlsafe_b64encode(content + b" " * (-len(content) % 3))
    return (text + urlsafe_b64encode(hmac.digest(key.secret, text, "sha256")[:18])).decode()


def test_a_token_that_was_signed_before_an_upgrade_still_opens() -> None:
    lease = replace(LEASE, facts=FACTS)
    sealer = TokenSealer([OTHER, KEY])
    assert sealer.open(signed(lease, KEY), lease.queue) == lease
    for queue, token in (
        ("orders.old", signed(lease, KEY)),
        (lease.queue, signed(lease, TokenKey(KEY.id, OTHER.secret))),
        (lease.queue, signed(lease, TokenKey("k9", KEY.secret))),
        (lease.queue, signed(lease, KEY)[:-1] + "-"),
        (lease.queue, "MQ"),
    ):
        with pytest.raises(InvalidAckToken):
            sealer.open(token, queue)


def test_the_longest_token_is_no_longer_than_what_is_opened() -> None:
    names = Lease("q" * 120, "b" * 64, "h" * MAX_HANDLE_LENGTH, "f" * 16, 2**63 - 1, 2**63 - 1)
    (key,) = keys = [TokenKey("k" * 32, b"s" * 32)]
    for length in range(900, 1024):
        lease = replace(names, facts=Facts(job="j" * length))
        token = TokenSealer(keys).seal(lease)
        assert len(token) <= MAX_TOKEN_LENGTH and TokenSealer([key]).open(token, lease.queue).handle == lease.handle


def test_no_single_character_can_be_changed() -> None:
    sealer = TokenSealer([KEY])
    token = sealer.seal(LEASE)
    for position, old in enumerate(token):
        new = BASE64URL[(BASE64URL.index(old) + 1) % len(BASE64URL)]
        with pytest.raises(InvalidAckToken):
            sealer.open(token[:position] + new + token[position + 1 :], LEASE.queue)


@given(st.text(max_size=300))
def test_any_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidAckToken) as refusal:
        TokenSealer([KEY]).open(text, LEASE.queue)
    assert refusal.value.problem_code == "invalid_ack_token"


RESPELLINGS = {
    "padded": "{head}{tail}=",
    "padded twice": "{head}{tail}==",
    "with a line feed": "{head}{tail}\n",
    "with a space before": " {head}{tail}",
    "with a foreign character inside": "{head}.{tail}",
    "with a letter after": "{head}{tail}A",
    "without its end": "{head}",
    "without its start": "{tail}",
    "many times over": "{head}{tail}" * 8,
    "not ascii": "{head}{tail}é",
}


@pytest.mark.parametrize("respelling", RESPELLINGS.values(), ids=RESPELLINGS.keys())
def test_only_the_one_spelling_is_good(respelling: str) -> None:
    sealer = TokenSealer([KEY])
    token = sealer.seal(LEASE)
    with pytest.raises(InvalidAckToken):
        sealer.open(respelling.format(head=token[:-1], tail=token[-1]), LEASE.queue)


def test_a_token_of_another_queue_is_refused() -> None:
    sealer = TokenSealer([KEY])
    with pytest.raises(InvalidAckToken):
        sealer.open(sealer.seal(LEASE), "orders.old")


def test_a_token_of_a_stranger_is_refused() -> None:
    with pytest.raises(InvalidAckToken):
        TokenSealer([KEY]).open(TokenSealer([OTHER]).seal(LEASE), LEASE.queue)
    with pytest.raises(InvalidAckToken):
        TokenSealer([KEY]).open(TokenSealer([TokenKey(KEY.id, OTHER.secret)]).seal(LEASE), LEASE.queue)


def test_the_first_key_signs_and_all_verify() -> None:
    old, rotated, new = TokenSealer([KEY]), TokenSealer([OTHER, KEY]), TokenSealer([OTHER])
    assert rotated.open(old.seal(LEASE), LEASE.queue) == LEASE
    assert new.open(rotated.seal(LEASE), LEASE.queue) == LEASE
    with pytest.raises(InvalidAckToken):
        old.open(rotated.seal(LEASE), LEASE.queue)


def test_the_latest_leases_are_kept() -> None:
    sealer, other = TokenSealer([KEY]), TokenSealer([KEY])
    lease = replace(LEASE, facts=FACTS)
    token = sealer.seal(lease)
    assert sealer.open(token, lease.queue) is lease
    assert other.open(token, lease.queue) is other.open(token, lease.queue)
    for n in range(5_000):
        sealer.seal(replace(lease, deadline=n))
    opened = sealer.open(token, lease.queue)
    assert opened == lease
    assert opened is not lease


def test_the_lease_of_a_token_that_ends_it_is_not_kept() -> None:
    sealer, other = TokenSealer([KEY]), TokenSealer([KEY])
    lease = replace(LEASE, facts=FACTS)
    token = sealer.seal(lease)
    assert sealer.open(token, lease.queue, keep=False) is lease
    again = other.open(token, lease.queue, keep=False)
    assert again == sealer.open(token, lease.queue) == lease
    assert again is not other.open(token, lease.queue)
    assert sealer.open(token, lease.queue) is not lease


def test_a_sealer_needs_a_key() -> None:
    with pytest.raises(ValueError, match="key"):
        TokenSealer([])


@pytest.mark.parametrize("trace_id", ["t" * 2000, "\ud800"], ids=["long", "half a character"])
def test_what_cannot_be_in_a_token_does_not_take_the_message_id_with_it(trace_id: str) -> None:
    facts = Facts(1, "an id", trace_id, "urn:babel:test:x", 1_700_000_000_000, "go", 17, "00-" + "a" * 52)
    opened = sealed_and_opened(Lease("q", "b", "1", "r", 0, 1, facts)).facts
    assert opened == Facts(1, "an id", created_at=1_700_000_000_000, size=17)


@pytest.mark.parametrize("message_id", ["i" * 2000, "\ud800"], ids=["long", "half a character"])
def test_facts_may_have_nothing_that_fits(message_id: str) -> None:
    assert sealed_and_opened(Lease("q", "b", "1", "r", 0, 1, Facts(1, message_id))).facts == Facts()


def test_versions_without_places_read_these_tokens_and_these_read_theirs() -> None:
    """An upgrade, and the way back: a token lives longer than the process that has sealed it."""

    class Before(msgspec.Struct, frozen=True, array_like=True):
        broker: str
        handle_start: bytes
        handle_rest: str
        receiver: str
        deadline: int
        attempts: int
        facts: ack_tokens._PackedFacts

    lease = Lease("q", "one", "ab:1", "me", 5, 1, place=4_000_000_000)
    read = msgspec.msgpack.decode(ack_tokens._content(lease)[0], type=Before)
    assert (read.broker, read.handle_rest, read.attempts) == ("one", ":1", 1)
    assert ack_tokens._decode(msgspec.msgpack.encode(read)).place == 0
    sealer = TokenSealer(KEYS)
    token = sealer.seal(lease)
    sealer._leases.forget(token)
    assert sealer.open(token, "q") == lease
