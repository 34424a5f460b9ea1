"""The page at ``/docs`` in a real browser: each operation, executed as the page has filled it in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.browser import evaluated
from tests.harness.gateway import gateway

pytestmark = pytest.mark.browser

STEP_SECONDS, ALL_SECONDS = 240, 800
"""What one step, and all of them, may take: a browser on a busy machine takes minutes."""

EXECUTE = """
(async () => {
  const until = async (find) => {
    for (const began = Date.now(); Date.now() - began < PATIENCE; await new Promise(done => setTimeout(done, 20))) {
      const found = find();
      if (found) return found;
    }
    return null;
  };
  const fetched = window.fetch;
  let sent = [], shown = await (await fetched("openapi.json")).json();
  window.fetch = async (input, init) => {
    const request = new Request(input, init);
    if (request.url.endsWith("/openapi.json")) return new Response(JSON.stringify(shown));
    const body = await request.clone().text();
    const answer = await fetched(input, init);
    const headers = Object.fromEntries(request.headers);
    sent.push({method: request.method, url: request.url, headers, body, status: answer.status,
               answer: await answer.clone().text()});
    return answer;
  };
  const execute = async (block) => {
    block.querySelector(".opblock-summary-control").click();
    (await until(() => block.querySelector(".try-out__btn"))).click();
    (await until(() => block.querySelector(".execute"))).click();
    const said = await until(() => block.querySelector(".live-responses-table td.response-col_status")
                                   || block.querySelector(".parameters .invalid"));
    const executed = {id: block.id, shown: said && said.textContent, sent};
    sent = [];
    return executed;
  };

  await until(() => document.querySelector(".opblock"));
  const blocks = [...document.querySelectorAll(".opblock")].map(block => block.id);
  const whole = await execute(document.getElementById("operations-operations-livez"));

  const everything = shown;
  const used = (part, names) => {
    if (Array.isArray(part)) part.forEach(each => used(each, names));
    else if (part && typeof part === "object") {
      if (typeof part.$ref === "string" && !names.has(part.$ref)) {
        names.add(part.$ref);
        used(part.$ref.split("/").slice(1).reduce((found, name) => found[name], everything), names);
      }
      Object.values(part).forEach(each => used(each, names));
    }
    return names;
  };
  const alone = (path, method) => {
    const {parameters = [], [method]: operation} = everything.paths[path];
    const components = {securitySchemes: everything.components.securitySchemes};
    for (const name of used([parameters, operation], new Set())) {
      const [, , kind, key] = name.split("/");
      (components[kind] ??= {})[key] = everything.components[kind][key];
    }
    return {...everything, paths: {[path]: {parameters, [method]: operation}}, components};
  };
  const operations = {};
  for (const [path, {parameters, ...methods}] of Object.entries(everything.paths)) {
    for (const [method, {operationId}] of Object.entries(methods)) operations[operationId] = [path, method];
  }
  const executed = [];
  for (const block of blocks) {
    const name = block.slice(block.lastIndexOf("-") + 1);
    // The answer of a stream has no end.
    if (name.startsWith("stream_messages") || (CHOSEN && !CHOSEN.includes(name))) continue;
    shown = alone(...operations[name]);
    const place = document.createElement("div");
    place.id = "swagger-ui";
    document.getElementById(place.id).replaceWith(place);
    const script = document.createElement("script");
    script.src = "docs/start.js";
    document.body.append(script);
    executed.push(await execute(await until(() => place.querySelector(".opblock"))));
  }
  return {blocks, whole, executed};
})()
"""
"""On the page as it is: one operation executed, and the names of all. Then, in their order, each (or of these, the
``CHOSEN``) executed on a page whose document has it alone: to open an operation resolves the whole document, which
takes a second."""

CHOSEN = [
    "publish_message",
    "publish_batch",
    "receive_messages",
    "receive_messages_get",
    "ack_messages",
    "settle_messages",
    "validate_message",
    "list_dead_letters",
    "delete_dead_letters",
    "put_push",
    "delete_push",
    "create_token",
    "get_asyncapi",
    "reload_configuration",
]
"""Operations of each form: object, list, parameters of each place, no body, an answer that is no JSON."""


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
    **dict.fromkeys(("list_tokens", "create_token", "rotate_token", "revoke_token"), (404, "tokens_disabled")),
    "get_schema": (404, "schema_not_found"),
    **dict.fromkeys(("get_redrive", "cancel_redrive", "resume_redrive"), (404, "unknown_redrive")),
}
"""Operations on what an earlier call has given, whose token or id the page cannot know, and on a journal, schemas and
tokens, which are not configured here."""
DONE = {"publish_message": 201, "publish_batch": 201, "delete_dead_letters": 207}
"""The statuses of the others that are not 200. A 207 says of each dead letter that there is none."""
ALWAYS_SENT = {"accept", "content-type"}


@pytest.mark.parametrize("chosen", [CHOSEN, None], ids=["chosen", "all"])
def test_each_operation_as_it_stands(tmp_path: Path, chosen: Sequence[str] | None) -> None:
    given = f"const PATIENCE = {STEP_SECONDS * 1000}, CHOSEN = {json.dumps(chosen)};"
    with gateway(tmp_path, {"default": {"broker": "local"}}) as running:
        found: dict[str, Any] = evaluated(f"{running.url}/docs", given + EXECUTE, ALL_SECONDS)
        with running.client() as client:
            paths = client.get("openapi.json").json()["paths"]
            stats = client.get("queues/emails").json()["stats"]
    operations = {
        operation["operationId"]: operation
        for methods in paths.values()
        for method, operation in methods.items()
        if method != "parameters" and not operation["operationId"].startswith("stream_messages")
    }
    executed = [(each["id"].rpartition("-")[2], each) for each in (found["whole"], *found["executed"])]
    assert {each.rpartition("-")[2] for each in found["blocks"] if "-stream_messages" not in each} == operations.keys()
    assert [each["id"] for _, each in executed[1:]] == [
        each for each in found["blocks"] if each.rpartition("-")[2] in (chosen or operations)
    ]
    for name, each in executed:
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
