"""The options of the data source are checked when it is made. Without Spark."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

from babelgate.pipeline.send.gateway import Target
from babelgate.pipeline.source.data_source import BabelgateSource
from babelgate.pipeline.source.options import parse_options
from babelgate.privacy.ciphers import BodyCipher, BodyKey, journal_context
from tests.pipeline.landing import Landing


def test_defaults():
    options = parse_options({"queue": "orders"})
    assert (options.queue, options.path, options.limit, options.body_column) == ("orders", None, 100, "body")
    assert options.target.url.startswith("http")
    options = parse_options({"path": "/journal", "max_segments": "7", "corrupt": "skip"})
    assert (options.queue, options.path, options.max_segments, options.skip_corrupt) == (None, "/journal", 7, True)
    assert parse_options({"queue": "q", "url": "https://gate", "token": "t"}).target == Target("https://gate", "t")


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, "set either queue"),
        ({"queue": "q", "path": "/p"}, "set either queue"),
        ({"queue": "a/b"}, "'a/b' is no valid queue name"),
        ({"queue": "orders.dlq"}, "'orders.dlq' is no valid queue name"),
        ({"queue": "q", "limit": "101"}, "limit is an integer from 1 to 100, not '101'"),
        ({"queue": "q", "limit": "ten"}, "limit is an integer"),
        ({"queue": "q", "max_segments": "3"}, "max_segments is no option of a queue"),
        ({"path": "/p", "key_column": "k"}, "key_column is no option of a journal"),
        ({"path": "/p", "corrupt": "maybe"}, "corrupt is fail or skip, not 'maybe'"),
        ({"queue": "q", "url": "localhost:8080"}, "url: 'localhost:8080' is no http URL"),
        ({"queue": "q", "url": "http://:8080"}, "is no http URL"),
        ({"queue": "q", "url": "http://gate:80x"}, "is no http URL"),
        ({"queue": "q", "wait_seconds": "31"}, "wait_seconds is at most 30, not 31"),
        ({"queue": "q", "max_messages": "0"}, "max_messages is an integer from 1 to 100000"),
        ({"queue": "q", "lease_seconds": "-1"}, "lease_seconds is a number above 0"),
        ({"queue": "q", "body_keys": "/keys"}, "body_keys is no option of a queue"),
        ({"path": "/p", "body_keys": "/no/such/file"}, "body_keys: "),
        ({"queue": "q", "max_rate": "0"}, "max_rate is a number above 0"),
        ({"queue": "q", "give_up_seconds": "nan"}, "give_up_seconds is a number above 0"),
        ({"queue": "q", "run_id": "a b"}, "run_id is not"),
        ({"queue": "q", "queues": "x"}, "there is no option queues; there are body_column, body_keys, corrupt"),
    ],
)
def test_what_is_wrong_is_said(given, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        parse_options(given)


def test_encrypted_bodies_are_read_with_their_keys(tmp_path):
    secret, body = "s" * 32, b'{"job":"urn:a"}'
    stored = BodyCipher([BodyKey("k", secret.encode())]).encrypted(body, journal_context("orders"))
    landing = Landing(tmp_path)
    carried = BodyCipher([BodyKey("k", secret.encode())]).encrypted(
        b'{"headers":{"a":"b"},"ordering_key":"o"}', journal_context("orders")
    )
    members = {"envelope_encrypted": stored, "headers_encrypted": carried}
    landing.event("accepted", 0, "m1", **{name: b64encode(each).decode() for name, each in members.items()})
    landing.event("acked", 1, "m1")
    landing.land()
    keys = tmp_path / "keys.json"

    def read(**options):
        source = BabelgateSource({"path": str(landing.folder), **options})
        reader = source.reader(StructType())
        batches: Iterator[Any] = (found for each in reader.partitions() for found in reader.read(each))
        rows = [row for found in batches for row in found.to_pylist()]
        names = "envelope", "headers", "ordering_key", "envelope_encrypted", "headers_encrypted"
        return [tuple(row[name] for name in names) for row in rows]

    encrypted, empty = (None, None, None, stored, carried), (None,) * 5
    assert read() == [encrypted, empty]
    keys.write_text(json.dumps([{"id": "k", "secret": secret}]))
    assert read(body_keys=str(keys)) == [(body, '{"a":"b"}', "o", None, None), empty]
    keys.write_text(json.dumps([{"id": "other", "secret": secret}]))
    with pytest.raises(ValueError, match=r"a body of orders: .*corrupt=skip leaves such bodies encrypted"):
        read(body_keys=str(keys))
    assert read(body_keys=str(keys), corrupt="skip") == [encrypted, empty]


def test_all_that_is_wrong_is_said_at_once_and_no_token():
    with pytest.raises(ValueError, match="limit") as refused:
        parse_options({"queue": "a/b", "limit": "0", "token": "se\ncret", "url": "http://shop:secret@gate"})
    assert str(refused.value).count(";") == 3
    assert "cret" not in str(refused.value)
