"""Acks of the data source that the gateway did not take at first. Without Spark."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from babelgate.pipeline.source.options import parse_options
from babelgate.pipeline.source.queue_stream import QueueStream
from tests.pipeline.sending import body


def test_kept_acks_are_sent_while_the_queue_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {"envelope": msgspec.Raw(body(1)), "headers": {}, "attempts": 0, "ack_token": "t-1"}
    received = iter([[message]])
    acks = iter([429, 503])
    sent: list[tuple[list[str], int]] = []

    def post(_: Any, verb: str, content: Any) -> httpx.Response:
        if verb == "receive":
            return httpx.Response(200, content=msgspec.json.encode({"messages": next(received, [])}))
        sent.append((content["ack_tokens"], next(acks, 200)))
        return httpx.Response(sent[-1][1])

    monkeypatch.setattr(QueueStream, "_post", post)
    stream = QueueStream(parse_options({"queue": "q"}))
    first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(10))
    stream.commit(first)
    for _ in range(4):
        assert stream.latestOffset(first, ReadMaxRows(10)) == first
    assert sent == [(["t-1"], 429), (["t-1"], 503), (["t-1"], 200)]
