"""A refusal says where its cause is in the request, and what was probably meant, on both ways to serve a request."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from babelgate.gateway.ack_tokens import Lease, TokenKey, TokenSealer
from babelgate.http.path_hints import path_hint
from babelgate.http.problems import MEANINGS
from babelgate.schematext import closest
from tests.harness.operations import NOTHING
from tests.harness.problems import problem
from tests.harness.ways import JSON, answer, post

DRAFT: dict[str, Any] = {"job": "urn:babel:test:made", "data": {"n": 1}}
BARE = {"accept": "application/vnd.babelqueue.envelope+json"}
PROPERTIES = "brokerproperties"
FORM = {"content-type": "application/x-www-form-urlencoded"}


def operations(caller: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path with names of a queue and of a letter, and description of each operation."""
    for template, methods in caller.get("/openapi.json").json()["paths"].items():
        for method in methods.keys() & {"get", "post", "delete"}:
            yield method.upper(), template.format(queue="{queue}", **NOTHING), methods[method]


PLACES: list[tuple[str, Any, dict[str, str], dict[str, str]]] = [
    ("messages?delay_seconds=-1", DRAFT, {}, {"parameter": "delay_seconds"}),
    ("messages?delay_seconds=1&delay_seconds=1", DRAFT, {}, {"parameter": "delay_seconds"}),
    ("messages?ordering_key=%20", DRAFT, {}, {"parameter": "ordering_key"}),
    ("messages?delay_seconds=31536000&delay=1", DRAFT, {}, {"parameter": "delay"}),
    (f"messages?a={'x' * 8_000}", DRAFT, {}, {"parameter": ""}),
    ("messages", {**DRAFT, "delay_seconds": -1}, {}, {"pointer": "/delay_seconds"}),
    ("messages", DRAFT, {"idempotency-key": "a b"}, {"header": "Idempotency-Key"}),
    ("messages:batch", [DRAFT], {"idempotency-key": "a"}, {"header": "Idempotency-Key"}),
    ("messages:batch", [DRAFT], {PROPERTIES: "{}"}, {"header": "BrokerProperties"}),
    ("messages", DRAFT, {PROPERTIES: "{"}, {"header": "BrokerProperties"}),
    (
        "messages",
        DRAFT,
        {PROPERTIES: '{"TimeToLive":-1}'},
        {"header": "BrokerProperties", "pointer": "/broker_properties/TimeToLive"},
    ),
    (
        "messages",
        DRAFT,
        {PROPERTIES: '{"SessionId":"a"}'},
        {"header": "BrokerProperties", "pointer": "/broker_properties/SessionId"},
    ),
    ("messages", {**DRAFT, "broker_properties": {"SessionId": "a"}}, {}, {"pointer": "/broker_properties/SessionId"}),
    ("messages:receive?max_messages=101", None, {}, {"parameter": "max_messages"}),
    ("messages:receive", {"max_messages": 101}, {}, {"pointer": "/max_messages"}),
    ("messages:receive?max_messages=2", None, BARE, {"parameter": "max_messages", "pointer": "/max_messages"}),
    ("messages:receive", {"max_messages": 2}, BARE, {"pointer": "/max_messages"}),
    ("messages:ack", {"ack_tokens": ["x"]}, {}, {"pointer": "/ack_tokens/0"}),
    ("messages:nack", {"ack_tokens": ["x"]}, {}, {"pointer": "/ack_tokens/0"}),
    ("messages:settle", {"acks": ["x"]}, {}, {"pointer": "/acks/0"}),
    ("messages:settle", {"rejects": [{"ack_tokens": ["x"]}]}, {}, {"pointer": "/rejects/0/ack_tokens/0"}),
    ("dead-letters:redrive", {"to_queue": "a.dlq"}, {}, {"pointer": "/to_queue"}),
    ("dead-letters/a:redrive", {"to_queue": "a.dlq"}, {}, {"pointer": "/to_queue"}),
]


@pytest.mark.parametrize(
    ("path", "body", "headers", "place"), PLACES, ids=[f"{number} {case[0][:40]}" for number, case in enumerate(PLACES)]
)
def test_an_error_has_its_place(caller, path, body, headers, place):
    content = b"" if body is None else json.dumps(body).encode()
    found = caller.post(f"/queues/q/{path}", content=content, headers=headers).json()
    defect = found["errors"][0]
    assert {name: defect[name] for name in ("pointer", "parameter", "header") if name in defect} == {
        "pointer": ""
    } | place
    assert (defect["code"], defect["detail"]) == (found["code"], found["detail"])


def test_every_operation_says_which_parameter_is_wrong(caller):
    seen = 0
    for method, template, operation in operations(caller):
        path = template.replace("{queue}", "q")
        unknown = caller.request(method, path, params={"no_such": "1"})
        assert problem(unknown, 400, "invalid_parameter")["errors"][0]["parameter"] == "no_such", (method, path)
        for parameter in operation.get("parameters", ()):
            kinds = {
                parameter["schema"].get("type"),
                *(each.get("type") for each in parameter["schema"].get("anyOf", ())),
            }
            if parameter["in"] == "query" and kinds & {"integer", "number"}:
                refused = caller.request(method, path, params={parameter["name"]: "-1.5x"})
                assert problem(refused, 400, "invalid_parameter")["errors"][0]["parameter"] == parameter["name"]
                seen += 1
    assert seen >= 8


@pytest.mark.parametrize("queue", ["%0A", "a%0A", "a%0Ab", "%20", "a%2Fb"])
@pytest.mark.parametrize("token", ["all", "read"])
def test_an_illegal_name_of_a_queue_is_one_refusal_everywhere(caller, queue, token):
    """Also for a caller who has no right on it: no right on such a name can be given."""
    seen = 0
    for method, template, _ in operations(caller):
        if "{queue}" in template:
            path = template.replace("{queue}", queue)
            found = problem(
                caller.request(method, path, headers={"authorization": f"Bearer {token}"}), 400, "invalid_parameter"
            )
            assert [each["parameter"] for each in found["errors"]] == ["queue"], (method, path)
            seen += 1
    assert seen > 20


MEANT = {
    "/queues/emails/messages:recieve": "/queues/emails/messages:receive",
    "/queues/emails/messages/receive": "/queues/emails/messages:receive",
    "/queues/emails/messages%3Areceive": "/queues/emails/messages:receive",
    "/queues/emails/messages:receive/": "/queues/emails/messages:receive",
    "/queues/emails/receive": "/queues/emails/messages:receive",
    "/queue/emails/message": "/queues/emails/messages",
    "/Queues/emails/Messages": "/queues/emails/messages",
    "/v1/queues/emails/messages": "/queues/emails/messages",
    "/queues/emails/dlq": "/queues/emails/dead-letters",
    "/queues/emails/dead_letters:redrive": "/queues/emails/dead-letters:redrive",
    "/queues/emails/dead-letter/5": "/queues/emails/dead-letters/5",
    "/receive": "/queues/{queue}/messages:receive",
    "/publish": "/queues/{queue}/messages",
    "/message/5": "/messages/5",
    "/trace/5": "/traces/5",
    "/queues/": "/queues",
    "/livez/": "/livez",
    "/healthz": "/livez or /readyz",
}


@pytest.mark.parametrize("path", MEANT)
@pytest.mark.parametrize("how", [{"content": b""}, {"content": b"job=a", "headers": FORM}], ids=["no body", "a form"])
def test_an_unknown_path_says_which_one_was_meant(caller, path, how):
    detail = problem(caller.post(path, **how), 404, "not_found")["detail"]
    assert f" Did you mean {MEANT[path]}? " in detail
    assert detail.endswith(" All paths are described at /docs.")
    assert ("messages:receive, messages:ack, messages:nack," in detail) == path.lower().startswith("/queue")


@pytest.mark.parametrize("path", ["/nowhere", "/queues/a/messages:nothing", "/queues/a/b/c", "/" + "x" * 1_000])
def test_an_unknown_path_like_no_other_has_no_guess(caller, path):
    detail = problem(caller.get(path), 404, "not_found")["detail"]
    assert "Did you mean" not in detail
    assert (" messages:ack," in detail) == path.startswith("/queues")


def test_a_guess_takes_little_time_whatever_is_sent():
    """Steps are bounded by the length that is compared, so a bound on the time of the process is safe."""
    templates = [*MEANT.values(), *(f"/queues/{{queue}}/{'abcdefgh'[n:]}lettersmessages:{n}" for n in range(8))]
    names = ["delay_seconds", "ordering_key", "idempotency_key", "broker_properties", "trace_id"]
    began = time.process_time()
    for word in ("recieve", "dead-lettres", "x" * 64):
        for count in (1, 8, 9, 100_000):
            path_hint("/" + f"{word}:" * count, templates)
    for name in ("x" * 1_000_000, "delay_secnods" * 100_000, "d" * 64):
        assert closest(name, names) is None
    assert time.process_time() - began < 2


def test_a_form_is_told_what_to_send_instead(caller):
    for path in ("messages", "messages:batch", "messages:ack", "messages:validate", "dead-letters:redrive"):
        for kind in FORM["content-type"], "multipart/form-data; boundary=a":
            refused = caller.post(f"/queues/q/{path}", content=b"a=b", headers={"content-type": kind})
            assert (
                "add -H 'Content-Type: application/json'" in problem(refused, 415, "unsupported_media_type")["detail"]
            )
            assert "accept-encoding" not in refused.headers
    coded = caller.post("/queues/q/messages", content=b"{}", headers={"content-encoding": "br"})
    assert (coded.status_code, coded.headers["accept-encoding"]) == (415, "gzip")


UNKNOWN: list[tuple[str, Any, str | None]] = [
    ("messages?delay=1", DRAFT, "delay_seconds"),
    ("messages:receive", {"wait": 1}, "wait_seconds"),
    ("messages:receive?maxMessages=1", None, "max_messages"),
    ("messages:ack", {"ack_token": "x"}, "ack_tokens"),
    ("messages:settle", {"nacks": [{"ack_tokens": ["x"], "errors": {}}]}, "error"),
    ("messages", {**DRAFT, "delay_secnods": 1}, "delay_seconds"),
    ("messages", {**DRAFT, "meta": {"language": "go", "lnag": "go"}}, None),
    ("messages", {**DRAFT, "meta": {"lnag": "go"}}, "lang"),
    ("messages", {"envelope": {}, "idempotencyKey": "a"}, "idempotency_key"),
    ("messages:receive", {"colour": 1}, None),
    ("dead-letters:redrive", {"filter": {"reasons": "failed"}}, "reason"),
]


@pytest.mark.parametrize(("path", "body", "meant"), UNKNOWN, ids=range(len(UNKNOWN)))
def test_an_unknown_member_says_which_one_was_meant(caller, path, body, meant):
    found = caller.post(f"/queues/q/{path}", content=b"" if body is None else json.dumps(body).encode()).json()
    details = " ".join(each["detail"] for each in found["errors"])
    assert re.findall(r"Did you mean (\w+)\?", details) == ([] if meant is None else [meant])


def sealed(queue, key="k"):
    return TokenSealer([TokenKey(key, bytes(32))]).seal(Lease(queue, "local", "1", "r", 1, 0))


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
def test_each_cause_of_an_invalid_token_has_its_sentence(caller, queue, verb):
    caller.post(f"/queues/{queue}/messages", json=DRAFT)
    (message,) = caller.post(f"/queues/{queue}/messages:receive").json()["messages"]
    given = message["ack_token"]
    details = [
        problem(caller.post(f"/queues/{at}/messages:{verb}", json={"ack_tokens": [token]}), 400, "invalid_ack_token")[
            "detail"
        ]
        for at, token in (
            (queue, "x"),
            (queue, given + "é"),
            (queue, sealed(queue, "another")),
            ("another", given),
            (queue, given[:40] + ("a" if given[40] != "a" else "b") + given[41:]),
        )
    ]
    malformed = "The ack token is malformed: send it as the receive returned it."
    assert details == [
        malformed,
        malformed,
        "The ack token was not issued by this gateway, or with a token key that it no longer has.",
        "The ack token does not belong to the queue another, or was altered.",
        f"The ack token does not belong to the queue {queue}, or was altered.",
    ]
    assert caller.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [given]}).status_code == 200


def test_both_ways_say_the_same_of_a_token(direct, application):
    for token in ("x", sealed("q", "another"), sealed("q")):
        request = post("/queues/q/messages:ack", json.dumps({"ack_tokens": [token]}).encode(), JSON)
        one, other = (answer(served, request) for served in (direct, application))
        assert one == other
        assert one[2]["errors"][0]["pointer"] == "/ack_tokens/0"


def test_a_lost_lease_names_its_token(caller, queue):
    caller.post(f"/queues/{queue}/messages", json=DRAFT)
    (message,) = caller.post(f"/queues/{queue}/messages:receive").json()["messages"]
    tokens = {"ack_tokens": [message["ack_token"]]}
    assert caller.post(f"/queues/{queue}/messages:nack", json=tokens | {"failed": False}).status_code == 200
    for verb in ("ack", "extend"):
        lost = problem(caller.post(f"/queues/{queue}/messages:{verb}", json=tokens), 409, "lease_lost")
        assert [each["pointer"] for each in lost["errors"]] == ["/ack_tokens/0"]


@pytest.mark.parametrize("verb", ["nack", "settle"])
def test_the_nack_of_the_last_attempt_says_that_it_dead_letters(caller, queue, verb):
    caller.post(f"/queues/{queue}/messages", json=DRAFT)
    attempts = caller.get(f"/queues/{queue}").json()["policy"]["max_attempts"]
    told = []
    for _ in range(attempts):
        (message,) = caller.post(f"/queues/{queue}/messages:receive").json()["messages"]
        nack = {"ack_tokens": [message["ack_token"]], "delay_seconds": 0}
        settled = caller.post(f"/queues/{queue}/messages:{verb}", json=nack if verb == "nack" else {"nacks": [nack]})
        (result,) = settled.json()["results"]
        assert (settled.status_code, result["status"]) == (200, 200)
        told.append(result.get("dead_lettered"))
    assert told == [None] * (attempts - 1) + [True]
    assert len(caller.get(f"/queues/{queue}/dead-letters").json()["dead_letters"]) == 1


def test_a_body_that_python_does_not_finish_is_no_json(caller):
    for path in ("dead-letters:redrive", "dead-letters:purge", "dead-letters:delete", "messages:receive"):
        refused = caller.post(f"/queues/q/{path}", content=b'{"filter":{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}}")
        assert refused.json()["code"] in ("invalid_json", "invalid_parameter"), refused.text


def test_every_code_is_documented(caller):
    documented = caller.get("/openapi.json").json()["components"]["examples"]
    own = {cls.code for cls in MEANINGS if "code" in vars(cls) and not cls.__subclasses__()}
    inherited = {cls.code for cls in MEANINGS if "code" in vars(cls) and cls.__subclasses__()} - own
    assert own - {"method_not_allowed"} <= documented.keys()
    # Errors of these classes are always of a class below.
    assert inherited <= {"error", "broker_error", "invalid_envelope"}


CLOUD_EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/shop",
    "type": "com.example.made",
    "data": {"n": 1},
}


@pytest.mark.parametrize(
    "body", [CLOUD_EVENT, {**CLOUD_EVENT, "data": None}, {"specversion": "1.0", "type": "a", "source": "b"}]
)
def test_a_cloud_event_is_no_job(caller, body):
    for path in ("messages", "messages:validate", "messages:validate?mode=consume"):
        refused = caller.post(f"/queues/q/{path}", json=body)
        detail = problem(refused, 422, refused.json()["code"])["detail"]
        assert refused.json()["code"] != "invalid_job" and "Open Job Spec" not in refused.text
        assert path.endswith("consume") or "send it as application/cloudevents+json" in detail
