"""What a request has and its operation does not take is refused: a body, or a member of a body."""

from __future__ import annotations

import httpx
import pytest

from tests.harness.operations import Operation, bodies_with_more, operations

ALL = list(operations())
WITHOUT_BODY = [pytest.param(each, id=each.name) for each in ALL if each.body is None]
WITH_BODY = [pytest.param(each, id=each.name) for each in ALL if each.body is not None]
DRAFT = {"job": "a", "data": {}}

NOTHING = [b"", b"null", b"{}", b" { }\n"]
SOMETHING = [
    (b'{"dry_run":true}', "invalid_parameter", "/dry_run"),
    (b'{"filter":{"job":"a"}}', "invalid_parameter", "/filter"),
    (b'{"limit":1}', "invalid_parameter", "/limit"),
    (b"[]", "invalid_parameter", ""),
    (b"1", "invalid_parameter", ""),
    (b"false", "invalid_parameter", ""),
    (b"garbage", "invalid_json", ""),
    (b"{", "invalid_json", ""),
    (b"{} {}", "invalid_json", ""),
    (b'{"\xff":1}', "invalid_json", ""),
]


def send(caller: httpx.Client, operation: Operation, body: bytes) -> httpx.Response:
    return caller.request(operation.method, operation.url, content=body)


@pytest.mark.parametrize("operation", WITHOUT_BODY)
def test_an_operation_without_a_body_refuses_one(caller, operation):
    plain = send(caller, operation, b"")
    for body in NOTHING:
        assert send(caller, operation, body).status_code == plain.status_code, body
    for body, code, pointer in SOMETHING:
        answer = send(caller, operation, body)
        assert answer.status_code == 400, (body, answer.text[:300])
        if operation.method == "GET" and operation.path.endswith(":receive"):
            # It may have come for the parameters of a POST, which the answer says.
            code, pointer = "invalid_parameter", ""
        found = answer.json()
        assert (found["code"], [each["pointer"] for each in found["errors"]]) == (code, [pointer])


@pytest.mark.parametrize("operation", WITH_BODY)
def test_an_unknown_member_is_refused(caller, operation):
    assert operation.body is not None
    tried = 0
    for pointer, body in bodies_with_more(operation.body, "unasked"):
        answer = send(caller, operation, body.encode())
        assert answer.status_code in (207, 400, 422), (body, answer.text[:300])
        found = answer.json()
        if answer.status_code == 207:
            (found,) = found["results"]
            pointer = pointer.removeprefix("/0")
        assert pointer in [each["pointer"] for each in found["errors"]], (body, found)
        tried += 1
    assert tried > 0


@pytest.mark.parametrize("verb", [":purge", "/dead-letters:purge"])
def test_a_purge_that_is_refused_removes_nothing(caller, verb):
    url = "/queues/kept"
    caller.post(f"{url}/messages:batch", json=[DRAFT] * 2)
    (message,) = caller.post(f"{url}/messages:receive").json()["messages"]
    caller.post(f"{url}/messages:reject", json={"ack_tokens": [message["ack_token"]]})
    before = caller.get(url).json()["stats"]
    assert before["depth"] > 0 < before["dead"]
    refused = [
        *(body for body, *_ in SOMETHING[1:]),
        b'{"dry_run":true,"limit":1}',
        b'{"dry_run":"yes"}',
        b'{"dry_run":1}',
    ]
    for body in (*refused, b'{"dry_run":null}'):
        answer = caller.post(url + verb, content=body)
        assert answer.status_code == 400 and answer.headers["content-type"] == "application/problem+json", body
    count = before["depth" if verb == ":purge" else "dead"]
    dry = caller.post(url + verb, json={"dry_run": True}).json()
    assert dry == {"matched": count, "removed": 0, "dry_run": True}
    after = caller.get(url).json()["stats"]
    assert (after["depth"], after["dead"]) == (before["depth"], before["dead"])
    assert caller.post(url + verb).json() == {"matched": count, "removed": count, "dry_run": False}


@pytest.mark.parametrize(
    "path",
    [
        "/queues/a:purge",
        "/queues/a/dead-letters/b:redrive",
        "/queues/a/redrives/b:cancel",
        "/queues/a/redrives/b:resume",
    ],
)
def test_a_verb_with_another_method_is_refused_before_its_body(caller, path):
    answer = caller.request("GET", path, content=b'{"dry_run":true}')
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
