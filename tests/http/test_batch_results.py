"""The answer to a batch with many failures, and the limits of an upload."""

from __future__ import annotations

import gzip
import json

import pytest

from babelgate.http.body import MAX_RATIO
from babelgate.http.results import EXPLAINED_FAILURES, LISTED_FAILURES
from babelgate.http.upload import MAX_BLANK_LINES
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
LINE = json.dumps(DRAFT).encode() + b"\n"
NDJSON = {"content-type": "application/x-ndjson"}
GZIP = {"content-encoding": "gzip"}


async def batch(client, queue, content, **headers):
    return await client.post(f"/queues/{queue}/messages:batch", content=content, headers=NDJSON | headers)


async def test_the_first_failures_are_explained_and_later_ones_are_short(client, queue):
    count = EXPLAINED_FAILURES + 5
    answer = await batch(client, queue, b"{}\n" * count + LINE)
    assert answer.status_code == 207
    told = answer.json()
    assert (told["accepted"], told["failed"], "omitted" in told) == (1, count, False)
    results = told["results"]
    assert [result["index"] for result in results] == list(range(count + 1))
    assert all(result["errors"] and result["detail"] for result in results[:EXPLAINED_FAILURES])
    short = results[EXPLAINED_FAILURES]
    assert short == {"index": EXPLAINED_FAILURES, "status": 422, "code": "missing_urn", "retryable": False}
    assert len(json.dumps(short)) < 200
    assert results[-1]["status"] == 201


async def test_beyond_a_bound_failures_are_counted_by_code(client, queue):
    # The upload ends after the chunk in which it reaches the bound.
    lines = LINE * 10 + b"{}\n" * LISTED_FAILURES + b"{}\nx\n{}\n" + LINE
    told = (await batch(client, queue, lines)).json()
    assert (told["accepted"], told["failed"]) == (11, LISTED_FAILURES + 3)
    assert told["omitted"] == {"missing_urn": 2, "invalid_json": 1}
    assert [result["index"] for result in told["results"][-2:]] == [LISTED_FAILURES + 9, LISTED_FAILURES + 13]


async def test_an_entry_tells_its_first_defects(client, queue):
    data = json.dumps({"job": "a", "data": {"n": ["x"] * 50}}).replace('"x"', "1e999").encode()
    (result,) = (await batch(client, queue, data)).json()["results"]
    assert [error["pointer"] for error in result["errors"]] == [f"/data/n/{index}" for index in range(10)]


async def test_too_many_lines_leave_published_what_came_before(serve, connect, queue):
    client = await connect(await serve(limits={"max_stream_lines": 3}))
    told = problem(await batch(client, queue, LINE * 5), 413, "too_many_lines")
    assert (told["accepted"], told["failed"], told["limit"]) == (3, 0, 3)
    assert (await client.get(f"/queues/{queue}")).json()["stats"]["depth"] == 3
    assert (await batch(client, queue, LINE * 3)).status_code == 201


async def test_too_many_blank_lines_leave_published_what_came_before(client, queue):
    blank = b"\n" * (MAX_BLANK_LINES + 1)
    assert (await batch(client, queue, LINE + blank)).status_code == 201
    told = problem(await batch(client, queue, LINE + blank + b" \n" + LINE), 413, "too_many_lines")
    assert (told["accepted"], told["failed"]) == (1, 0)


@pytest.mark.parametrize("path", ["messages:batch", "messages", "messages:validate"])
async def test_what_unpacks_to_much_more_than_it_is_is_refused(client, queue, path):
    packed = gzip.compress(b" " * 8_000_000)
    assert len(packed) * MAX_RATIO + 1_048_576 < 8_000_000
    answer = await client.post(
        f"/queues/{queue}/{path}", content=packed, headers=NDJSON | GZIP if "batch" in path else GZIP
    )
    code = "compression_ratio_too_high" if "batch" in path else "body_too_large"
    problem(answer, 413, code)


async def test_messages_that_repeat_each_other_are_unpacked(client, queue):
    lines = b"".join(
        json.dumps({"job": "urn:babel:test:made", "data": {"n": n, "to": "ada@example.com"}}).encode() + b"\n"
        for n in range(30_000)
    )
    packed = gzip.compress(lines)
    assert len(lines) > 1_048_576 and len(lines) > 10 * len(packed)
    assert (await batch(client, queue, packed, **GZIP)).json()["accepted"] == 30_000


@pytest.mark.parametrize("body", [b"null", b" null\n"])
async def test_a_body_of_null_is_none(client, queue, body):
    assert (await client.post(f"/queues/{queue}/messages:receive", content=body)).json() == {"messages": []}
    assert (await client.post(f"/queues/{queue}/dead-letters:redrive", content=body)).json()["redriven"] == 0
    problem(await client.post(f"/queues/{queue}/messages", content=body), 400, "invalid_json")


@pytest.mark.parametrize("path", ["messages:ack", "messages:receive", "dead-letters:redrive"])
async def test_a_name_that_is_quoted_does_not_make_the_answer_long(client, queue, path):
    content = b'{"%b":1}' % (b"k" * 60_000)
    answer = await client.post(f"/queues/{queue}/{path}", content=content)
    problem(answer, 400, "invalid_parameter")
    assert len(answer.content) < 10_000


@pytest.mark.parametrize(("path", "limit"), [("messages:ack", 2_097_152), ("messages:receive", 65_536)])
async def test_a_body_of_parameters_is_bounded(client, queue, path, limit):
    told = problem(await client.post(f"/queues/{queue}/{path}", content=b" " * (limit + 1)), 413, "body_too_large")
    assert told["limit"] == limit


async def test_a_large_array_has_a_bound_on_what_is_nested_in_it(client, queue):
    entry = json.dumps(DRAFT | {"data": {"n": [[]] * 300_000}}, separators=(",", ":")).encode()
    told = problem(
        await client.post(f"/queues/{queue}/messages:batch", content=b"[%b]" % b",".join([entry] * 5)),
        400,
        "invalid_parameter",
    )
    assert "application/x-ndjson" in told["detail"]
    answer = await client.post(f"/queues/{queue}/messages:batch", content=b"[%b]" % b",".join([entry] * 3))
    assert answer.json()["accepted"] == 3
