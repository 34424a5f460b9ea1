"""The page at ``/docs`` in a real browser: each operation, executed as the page has filled it in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.browser import evaluated
from tests.harness.gateway import gateway

pytestmark = pytest.mark.browser

STEP_SECONDS, ALL_SECONDS = 240, 800
"""What one step, and all of them, may take: a browser on a busy machine takes minutes."""

EXECUTE = (
    f"const PATIENCE = {STEP_SECONDS * 1000};"
    + """
(async () => {
  const until = async (find) => {
    for (const began = Date.now(); Date.now() - began < PATIENCE; await new Promise(done => setTimeout(done, 20))) {
      const found = find();
      if (found) return found;
    }
    return null;
  };
  const sent = [];
  const fetched = window.fetch;
  window.fetch = async (input, init) => {
    const request = new Request(input, init);
    const body = await request.clone().text();
    const answer = await fetched(input, init);
    const headers = Object.fromEntries(request.headers);
    sent.push({method: request.method, url: request.url, headers, body, status: answer.status,
               answer: await answer.clone().text()});
    return answer;
  };
  await until(() => document.querySelector(".opblock"));
  const executed = [];
  for (const block of document.querySelectorAll(".opblock")) {
    // The answer of a stream has no end.
    if (block.id.includes("-stream_messages")) continue;
    block.querySelector(".opblock-summary-control").click();
    (await until(() => block.querySelector(".try-out__btn"))).click();
    (await until(() => block.querySelector(".execute"))).click();
    const shown = await until(() => block.querySelector(".live-responses-table td.response-col_status")
                                    || block.querySelector(".parameters .invalid"));
    executed.push({id: block.id, shown: shown && shown.textContent, sent: sent.splice(0)});
    block.querySelector(".opblock-summary-control").click();
  }
  return executed;
})()
"""
)


REFUSED = {
    **dict.fromkeys(
        ("ack_messages", "nack_messages", "reject_messages", "extend_messages", "settle_messages"),
        (400, "invalid_ack_token"),
    ),
    **dict.fromkeys(
        ("get_dead_letter", "delete_dead_letter", "redrive_dead_letter"),
        (404, "unknown_dead_letter"),
    ),
    **dict.fromkeys(("list_events", "get_message", "get_trace"), (404, "journal_disabled")),
    # The page sets a push after this, and has removed it before the others.
    **dict.fromkeys(("get_push", "pause_push", "resume_push", "try_push"), (404, "push_not_found")),
    **dict.fromkeys(("get_redrive", "cancel_redrive", "resume_redrive"), (404, "unknown_redrive")),
}
"""Operations on what an earlier call has given, whose token or id the page cannot know, and on a journal, which is not
configured here."""
DONE = {"publish_message": 201, "publish_batch": 201, "delete_dead_letters": 207}
"""The statuses of the others that are not 200. A 207 says of each dead letter that there is none."""
ALWAYS_SENT = {"accept", "content-type"}


def test_each_operation_as_it_stands(tmp_path: Path) -> None:
    with gateway(tmp_path, {"default": {"broker": "local"}}) as running:
        executed: list[dict[str, Any]] = evaluated(f"{running.url}/docs", EXECUTE, ALL_SECONDS)
        with running.client() as client:
            paths = client.get("openapi.json").json()["paths"]
            stats = client.get("queues/emails").json()["stats"]
    operations = {
        operation["operationId"]: operation
        for methods in paths.values()
        for method, operation in methods.items()
        if method != "parameters" and not operation["operationId"].startswith("stream_messages")
    }
    by_name = {each["id"].rpartition("-")[2]: each for each in executed}
    assert by_name.keys() == operations.keys()
    for name, each in by_name.items():
        assert len(each["sent"]) == 1, f"{name} was not sent: {each['shown']}"
        (call,) = each["sent"]
        assert call["headers"].keys() <= ALWAYS_SENT, name
        assert "?" not in call["url"], name
        assert str(call["status"]) in operations[name]["responses"], name
        if name in REFUSED:
            assert (call["status"], json.loads(call["answer"])["code"]) == REFUSED[name], name
        else:
            assert call["status"] == DONE.get(name, 200), (name, call["answer"])
    # One publish, and a batch of two. The delay and the lease may have ended.
    assert stats["depth"] + stats["in_flight"] + stats["delayed"] == 3
