"""The configuration of redaction and of encrypted bodies: what is refused, and what routes make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from babelgate.clock import now_ms
from babelgate.config.settings import Settings, load
from babelgate.errors import ConfigError
from babelgate.server.bindings import body_cipher
from babelgate.server.wiring import resolve

SECRET = "s" * 32
FILE, SERVER = "sqlite:///q.db", "redis://127.0.0.1:1/0"


def loaded(directory: Path, **tree: Any) -> Settings:
    path = directory / "babelgate.yaml"
    path.write_text(yaml.safe_dump({"state_dir": str(directory), **tree}, sort_keys=False))
    return load(path, {})


def route(**options: Any) -> dict[str, Any]:
    return {"pay": {"broker": "main", "encrypt": True, **options}}


@pytest.mark.parametrize(
    ("url", "keys", "key", "reason"),
    [
        (FILE, [], "queues.pay.encrypt", "needs body_keys"),
        (SERVER, [{"id": "1", "secret": SECRET}], "queues.pay.encrypt", "in a file of the gateway"),
        (FILE, [{"id": "1", "secret": SECRET}] * 2, "body_keys", "the same id"),
        (FILE, [{"id": "1", "secret": "short"}], "body_keys.0.secret", "32"),
        (FILE, [{"id": "a b", "secret": SECRET}], "body_keys.0.id", "text that matches"),
    ],
)
def test_what_cannot_encrypt_is_refused(tmp_path: Path, url: str, keys: Any, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(loaded(tmp_path, brokers={"main": url}, queues=route(), body_keys=keys), now_ms)
    assert refused.value.key == key
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


def test_the_queue_and_its_parking_queue_are_encrypted(tmp_path: Path) -> None:
    keys = [{"id": "1", "secret": SECRET}]
    brokers = {"main": "sqs://eu-west-1", "file": FILE}
    settings = loaded(
        tmp_path, brokers=brokers, queues=route(parking="file"), body_keys=keys, default={"broker": "file"}
    )
    assert SECRET not in repr(settings)
    router = resolve(settings, now_ms)
    place = router.route("pay").parking
    assert router.route("pay").native.encrypted
    assert place is not None
    assert place.native.encrypted
    assert not router.route("other").native.encrypted


def test_the_first_key_encrypts_and_all_decrypt(tmp_path: Path) -> None:
    old, new = {"id": "1", "secret": SECRET}, {"id": "2", "secret": "t" * 32}
    before = body_cipher(loaded(tmp_path, body_keys=[old])).encrypted(b"body", "q")
    both = body_cipher(loaded(tmp_path, body_keys=[new, old]))
    assert both.decrypted(before, "q", "main") == b"body"
    assert b"\x012" in both.encrypted(b"body", "q")
