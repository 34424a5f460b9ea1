"""Web pages of other origins publish and receive in a real browser."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.harness.browser import evaluated, site
from tests.harness.gateway import gateway
from tests.harness.local import free_port

pytestmark = pytest.mark.browser

CALLS = """
(async () => {
  const call = async (path, token, body, more = {}) => {
    const headers = {"Authorization": `Bearer ${token}`, "Content-Type": "application/json", ...more};
    try {
      const answer = await fetch(`URL/queues/clicks/${path}`, {method: "POST", headers, body: JSON.stringify(body)});
      const text = await answer.text();
      return {status: answer.status, code: text && JSON.parse(text).code, retry: answer.headers.get("Retry-After"),
              replayed: answer.headers.get("Idempotency-Replayed"), id: answer.headers.get("X-Request-Id") !== null};
    } catch (error) {
      return {error: error.name};
    }
  };
  const draft = {job: "urn:babel:shop:clicked", data: {at: 1}}, key = {"Idempotency-Key": '"once"'};
  return [
    await call("messages", "page", draft),
    await call("messages", "page", draft, key),
    await call("messages", "page", draft, key),
    await call("messages:receive", "page", {}),
    await call("messages", "none", draft),
    await call("messages", "page", {...draft, data: {at: "x".repeat(300)}}),
    await call("messages", "page", draft),
    await call("messages:receive", "all", {max_messages: 10}),
  ];
})()
"""


def test_a_page_publishes_and_one_of_another_origin_does_not(tmp_path):
    with site("<!doctype html><title>A page</title>") as port:
        allowed, other = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        page = {"origins": [allowed], "per_minute": 3, "max_message_bytes": 250}
        tokens = [
            {"name": "page", "rights": {"clicks": ["send"]}, "page": page},
            {"name": "all", "rights": {"*": ["send", "listen", "manage"]}},
        ]
        tokens = [each | {"sha256": hashlib.sha256(str(each["name"]).encode()).hexdigest()} for each in tokens]
        config = {"auth": {"tokens": tokens}, "cors": {"origins": [allowed]}, "port": free_port()}
        with gateway(tmp_path, config) as running:
            script = CALLS.replace("URL", running.url)
            assert evaluated(other, script) == [{"error": "TypeError"}] * 8
            with running.client(headers={"authorization": "Bearer all"}) as client:
                assert client.post("/queues/clicks/messages:receive").json() == {"messages": []}
            answers = evaluated(allowed, script)
            assert [each.get("status") for each in answers] == [201, 201, 201, 403, 401, 413, 429, 200], json.dumps(
                answers
            )
            assert answers[2]["replayed"] == "true"
            assert (answers[6]["code"], int(answers[6]["retry"]) > 0) == ("rate_exceeded", True)
            assert all(each["id"] for each in answers)
