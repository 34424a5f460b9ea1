"""Lines of a journal with encrypted bodies, and who has which keys."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from babelgate.errors import ConfigError
from babelgate.observe.journal.decrypting import Decrypting
from babelgate.privacy.body_keys import read_body_keys
from babelgate.privacy.ciphers import BodyCipher, BodyKey, journal_context

OLD, NEW = BodyKey("2025", b"o" * 32), BodyKey("2026", b"n" * 32)
BODY = b'{"job":"urn:a","data":{"price":1.10}}'


def line(body: bytes, key: BodyKey = NEW, queue: str = "pay", context: str | None = None) -> bytes:
    encrypted = BodyCipher([key]).encrypted(body, journal_context(queue) if context is None else context)
    return b'{"v":1,"queue":"%b","bytes":37.0,"envelope_encrypted":"%b"}' % (queue.encode(), b64encode(encrypted))


def test_a_body_is_what_it_was() -> None:
    reading = Decrypting([NEW])
    assert reading.decrypted(line(BODY)) == b'{"v":1,"queue":"pay","bytes":37.0,"envelope":%b}' % BODY
    assert json.loads(reading.decrypted(line(b"\xff\n")))["envelope_base64"] == "/wo="
    assert not reading.unreadable


def test_headers_and_ordering_key_are_what_they_were() -> None:
    stored = BodyCipher([NEW]).encrypted(b'{"headers":{"a":"b"},"ordering_key":"k"}', journal_context("pay"))
    found = Decrypting([NEW]).decrypted(line(BODY)[:-1] + b',"headers_encrypted":"%b"}' % b64encode(stored))
    assert json.loads(found) == json.loads(
        b'{"v":1,"queue":"pay","bytes":37.0,"envelope":%b,"headers":{"a":"b"},"ordering_key":"k"}' % BODY
    )


def test_after_a_rotation_both_keys_are_needed() -> None:
    both, only_new = Decrypting([NEW, OLD]), Decrypting([NEW])
    assert BODY in both.decrypted(line(BODY, OLD)) and BODY in both.decrypted(line(BODY, NEW))
    assert BODY in only_new.decrypted(line(BODY, NEW))
    old = line(BODY, OLD)
    assert [only_new.decrypted(old), only_new.decrypted(old)] == [old, old]
    assert dict(only_new.unreadable) == {"body_keys has no key with the id '2025'": 2}


@pytest.mark.parametrize(
    "strange",
    [
        line(BODY, queue="other").replace(b'"other"', b'"pay"'),
        line(BODY, context="pay"),
        b'{"queue":"pay","envelope_encrypted":"AAAA"}'.replace(b"AAAA", b"not base64"),
        b'{"queue":null,"envelope_encrypted":"AAAA"}',
        b'{"envelope_encrypted":"AAAA"}',
        b'{"envelope_encrypted":',
        b'"envelope_encrypted"',
    ],
)
def test_what_it_cannot_read_stays_and_is_told(strange: bytes) -> None:
    """Of another queue, of the file of a broker, and no record at all."""
    reading = Decrypting([NEW])
    assert reading.decrypted(strange) == strange
    assert sum(reading.unreadable.values()) == 1


@pytest.mark.parametrize("other", [b"", b"no json", b'{"queue":"pay"}', b'{"queue":"pay","envelope":{"data":{}}}'])
def test_other_lines_stay(other: bytes) -> None:
    reading = Decrypting([])
    assert reading.decrypted(other) == other
    assert not reading.unreadable


def test_keys_of_a_file_or_of_the_environment(tmp_path: Path) -> None:
    text = json.dumps([{"id": "2026", "secret": "n" * 32}])
    (tmp_path / "keys.json").write_text(text)
    assert read_body_keys(tmp_path / "keys.json", {}) == [NEW]
    assert read_body_keys(None, {"BABELGATE_BODY_KEYS": text}) == [NEW]
    assert read_body_keys(None, {}) == []


@pytest.mark.parametrize(
    "text",
    [
        "nnnn-secret",
        '{"id": "nnnn-secret"}',
        json.dumps([{"id": "a", "secret": "n" * 32, "b": 1}]),
        json.dumps([{"id": "a", "secret": "nnnn-secret"}]),
        json.dumps([{"id": "a" * 300, "secret": "n" * 32}]),
        json.dumps([{"id": "a\n", "secret": "n" * 32}]),
        json.dumps([{"id": "a", "secret": "n" * 32}, {"id": "a", "secret": "n" * 33}]),
    ],
)
def test_wrong_keys_are_refused_without_their_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_body_keys(None, {"BABELGATE_BODY_KEYS": text})
    assert "BABELGATE_BODY_KEYS" in str(refused.value) and "nnnn" not in str(refused.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_body_keys(tmp_path / "none", {})
