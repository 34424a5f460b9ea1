"""Messages of other programs: dead-lettered as poison, and sent on by force as they came."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp.commands import Basic

from babelgate import envelope
from babelgate.brokers.binding import Outgoing
from babelgate.brokers.options import OptionMap
from babelgate.brokers.rabbitmq import plain
from babelgate.brokers.rabbitmq.ojs import profile as ojs
from babelgate.brokers.rabbitmq.profile import NativeMessage, Profile
from tests.brokers.rabbitmq.support import decoded

BODY = b'[[1, 2.50], {}, {"callbacks": null}]'
HEADERS: dict[str, Any] = {"lang": "py", "task": "shop.mail", "retries": 0, "timelimit": [None, None], "tenant": "a"}
AS_SENT = Basic.Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={**HEADERS, "x-death": [{"reason": "rejected"}], "x-delivery-count": 2},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
)
BLOCK = envelope.dead_letter_block("poison", "mails", 0, 1, "invalid_json: it is not an object")


def profiles() -> dict[str, Profile]:
    return {
        "plain": plain.profile_of("mails", OptionMap({})),
        "ojs": ojs.profile_of("mails", OptionMap({}), lambda: 1_750_000_000_000),
    }


@pytest.mark.parametrize("source", profiles())
@pytest.mark.parametrize("target", profiles())
def test_it_keeps_its_bytes_its_properties_and_headers_of_any_type(source: str, target: str) -> None:
    before, after = profiles()[source], profiles()[target]
    read = before.read(NativeMessage(BODY, AS_SENT, redelivered=False))
    record = Outgoing(envelope.dead_letter_record(read.body, BLOCK), read.headers, carried=read.carried)
    dead = before.dead(record)
    kept = before.read_dead(NativeMessage(dead.body, decoded(dead), redelivered=False))
    forced = Outgoing(envelope.original(kept.body), kept.headers, carried=kept.carried, is_envelope=False)
    sent = after.message(forced)
    assert sent.body == BODY
    assert decoded(sent).headers == HEADERS
    assert (decoded(sent).content_type, decoded(sent).delivery_mode) == ("application/json", 2)
    assert (decoded(sent).priority, decoded(sent).reply_to) == (3, "r")
    ordinary = after.message(Outgoing(b'{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i"},"attempts":0}'))
    assert (sent.exchange, sent.routing_key) == (ordinary.exchange, ordinary.routing_key)


@pytest.mark.parametrize("target", profiles())
def test_from_another_broker_it_has_only_its_text_headers(target: str) -> None:
    sent = profiles()[target].message(Outgoing(b"\xff", {"tenant": "a"}, is_envelope=False))
    assert (sent.body, decoded(sent).headers, decoded(sent).delivery_mode) == (b"\xff", {"tenant": "a"}, 2)
    assert decoded(profiles()[target].message(Outgoing(b"x", is_envelope=False))).headers is None
