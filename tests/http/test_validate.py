"""Dry runs with ``mode=consume``: validation of stored bodies by the rules of consumers."""

from __future__ import annotations

import json

import pytest

from babelgate.http.dependencies import text_or_base64
from tests.harness.problems import problem

BODY = {"job": "urn:a", "trace_id": "t", "data": {"n": 1}, "meta": {"schema_version": 1}, "attempts": -2}


@pytest.fixture
def check(client, queue):
    async def ask(body, query="mode=consume", **headers):
        content = body if isinstance(body, bytes) else json.dumps(body)
        url = f"/queues/{queue}/messages:validate?{query}"
        return await client.post(url, content=content, headers=headers)

    return ask


async def test_the_canonical_form_is_shown_and_nothing_is_completed(check, client, queue):
    answer = await check({"timestamp": 1, "urn": "urn:b", **dict(reversed(BODY.items()))})
    assert answer.status_code == 200
    seen = answer.json()
    canonical = json.dumps(BODY, separators=(",", ":"))
    assert answer.text.endswith(f'"envelope":{canonical}}}')
    assert (seen["queue"], seen["broker"], seen["headers"], seen["size_bytes"]) == (queue, "local", {}, len(canonical))
    assert seen["writes"] == []
    assert (await client.post(f"/queues/{queue}/messages:receive")).json() == {"messages": []}


async def test_what_would_be_dead_lettered_is_told_with_its_place(check):
    answer = problem(await check({**BODY, "data": []}), 422, "invalid_data")
    assert [(each["pointer"], each["code"]) for each in answer["errors"]] == [("/data", "invalid_data")]
    problem(await check({"job": "urn:a", "data": {}}), 422, "missing_meta")
    problem(await check({"envelope": BODY}), 422, "missing_urn")
    problem(await check(b"\xff"), 400, "invalid_json")
    deep = b'{"job":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    assert problem(await check(deep), 422, "too_deep")["errors"][0]["pointer"] == ""


async def test_the_default_is_a_publish(check):
    problem(await check(BODY, ""), 422, "invalid_attempts")
    problem(await check(BODY, "mode=publish"), 422, "invalid_attempts")
    problem(await check(BODY, "mode=peek"), 400, "invalid_parameter")


async def test_what_belongs_to_a_publish_is_refused(check):
    problem(await check(BODY, "mode=consume&delay_seconds=1"), 400, "invalid_parameter")
    problem(await check(BODY, "mode=consume&ordering_key=a"), 400, "invalid_parameter")
    problem(await check(BODY, **{"content-type": "application/openjobspec+json"}), 415, "unsupported_media_type")


async def test_it_needs_the_right_of_a_consumer(serve, connect, token_config, queue):
    app = await serve(auth=token_config(sender={queue: ["send"]}, listener={queue: ["listen"]}))
    url = f"/queues/{queue}/messages:validate"
    for token, allowed in (("sender", "publish"), ("listener", "consume")):
        client = await connect(app, token)
        body = {**BODY, "attempts": 0} if allowed == "consume" else {"job": "urn:a", "data": {}}
        for mode in ("publish", "consume"):
            answer = await client.post(url, params={"mode": mode}, json=body)
            assert answer.status_code == (200 if mode == allowed else 403)


@pytest.mark.parametrize(
    ("body", "text", "base64"),
    [(None, None, None), (b"", "", None), ("é☕".encode(), "é☕", None), (b"\xff\0", None, "/wA=")],
)
def test_bytes_that_are_no_text_are_shown_in_base64(body, text, base64):
    assert text_or_base64("body", body) == {"body": text, "body_base64": base64}
