"""Signatures, as the reference library of Standard Webhooks verifies them."""

from __future__ import annotations

import time
from base64 import b64encode

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from babelgate.push.signing import secret_of, signatures, webhook_id

OLD, NEW, OTHER = ("whsec_" + b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))
BODY = '{"name":"Zoë"}'.encode()


def signed(*secrets: str, body: bytes = BODY, seconds: int | None = None) -> dict[str, str]:
    at = int(time.time()) if seconds is None else seconds
    signature = signatures([secret_of(each) for each in secrets], "id-1", at, body)
    return {"webhook-id": "id-1", "webhook-timestamp": str(at), "webhook-signature": signature}


def test_a_receiver_verifies_by_either_secret_while_one_follows_the_other() -> None:
    headers = signed(NEW, OLD)
    for secret in (OLD, NEW):
        Webhook(secret).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers)


def test_another_body_and_an_old_time_stamp_are_refused() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY + b" ", signed(NEW))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, signed(NEW, seconds=int(time.time()) - 3600))


def test_an_unpadded_secret_is_read() -> None:
    assert secret_of(NEW.rstrip("=")) == secret_of(NEW)


@pytest.mark.parametrize("text", ["", "secret", "whsec_", "whsec_c2hvcnQ=", NEW.removeprefix("whsec_"), "whsec_é" * 9])
def test_a_weak_or_malformed_secret_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="must be whsec_ followed by base64") as caught:
        secret_of(text)
    assert text in ("", "whsec_", "secret") or text not in str(caught.value)


def test_an_id_of_any_shape_gives_a_legal_and_stable_header() -> None:
    plain = "0190b8a5-7c1e-7d4a-9f00-2a6f3c1e5b77"
    assert webhook_id(plain) == plain
    for odd in ("a.b", "a\r\nx: y", "", "\ud800", "x" * 500, "é"):
        made = webhook_id(odd)
        assert made == webhook_id(odd)
        assert made.startswith("msg_")
        assert made.isascii()
        assert "." not in made
        assert made.isprintable()
    assert webhook_id("a.b") != webhook_id("a.c")
