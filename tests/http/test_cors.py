"""Web pages of other origins: preflights, answers that they may read, and the tokens that are part of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.http.heads import target_of
from babelgate.server.overload import SHEDDER
from babelgate.server.server import uvicorn_config
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import Connection, Reply, serving
from tests.harness.ways import Served

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
SHOP, BLOG, EVIL = "https://shop.example", "https://blog.example", "https://evil.example"
ROUTED: dict[str, Any] = {
    "queues": {
        "open": {"broker": "local", "cors": {"origins": ["*"], "headers": ["X-Mine"], "max_age": 5}},
        "shut": {"broker": "local", "cors": {"origins": []}},
        "blog.*": {"broker": "local", "cors": {"origins": [BLOG]}},
    },
    "default": {"broker": "local"},
    "cors": {"origins": [SHOP]},
}
PATHS = [
    "/queues/{}/messages",
    "/queues/{}/messages:receive",
    "/queues/{}",
    "/queues/{}:purge",
    "/queues/{}/dead-letters",
]


def tokens(**pages):
    """``all`` may do everything; each of ``pages`` is the token of a page, which may publish to every queue."""
    entries: list[dict[str, Any]] = [{"name": "all", "rights": {"*": ["send", "listen", "manage"]}}]
    entries += [{"name": name, "rights": {"*": ["send"]}, "page": page} for name, page in pages.items()]
    return {"tokens": [{"sha256": hashlib.sha256(each["name"].encode()).hexdigest(), **each} for each in entries]}


def ask(client, path, origin, method="POST", headers=None):
    asked = {"origin": origin, "access-control-request-method": method}
    return client.options(path, headers=asked | ({"access-control-request-headers": headers} if headers else {}))


def allowed(answer):
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize(
    ("queue", "origin", "expected"),
    [
        ("orders", SHOP, SHOP),
        ("orders", EVIL, None),
        ("orders", SHOP + ":8443", None),
        ("orders", "http://shop.example", None),
        ("orders", SHOP.upper(), None),
        ("orders", SHOP + ".evil.example", None),
        ("orders", "null", None),
        ("orders", "", None),
        ("blog.posts", BLOG, BLOG),
        ("blog.posts", SHOP, None),
        ("open", EVIL, "*"),
        ("open", "null", "*"),
        ("shut", SHOP, None),
        ("no-queue.dlq", SHOP, SHOP),
    ],
)
async def test_a_preflight_is_answered_by_the_policy_of_the_queue(serve, connect, queue, origin, expected):
    client = await connect(await serve(auth=tokens(), **ROUTED))
    for path in PATHS:
        await _has_the_policy(client, path, queue, origin, expected)


async def _has_the_policy(client, path, queue, origin, expected):
    answer = await ask(client, path.format(queue), origin, headers="authorization,content-type")
    assert allowed(answer) == expected, path
    assert "access-control-allow-credentials" not in answer.headers
    if expected is None:
        problem(answer, 403, "forbidden")
        return
    assert (answer.status_code, answer.content) == (204, b"")
    assert "POST" in answer.headers["access-control-allow-methods"].split(", ")
    names = answer.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "content-type", "content-encoding", "idempotency-key"} <= set(names)
    assert ("x-mine" in names) is (queue == "open")
    assert answer.headers["access-control-max-age"] == ("5" if queue == "open" else "600")
    assert ("origin" in answer.headers.get_list("vary")) is (expected != "*")


async def test_other_paths_have_the_policy_of_the_gateway(serve, connect):
    client = await connect(await serve(auth=tokens(), **ROUTED))
    for path in ("/queues", "/brokers", "/livez", "/openapi.json", "/nowhere", "/messages/x"):
        assert allowed(await ask(client, path, SHOP, "GET")) == SHOP
        assert allowed(await ask(client, path, BLOG, "GET")) is None
        assert allowed(await client.get(path, headers={"origin": SHOP})) == SHOP
    for path in ("/console", "/console/queues"):
        assert allowed(await ask(client, path, SHOP, "GET")) is None
        assert allowed(await client.get(path, headers={"origin": SHOP})) is None


async def test_a_preflight_names_the_headers_of_an_event(serve, connect):
    client = await connect(await serve(auth=tokens(), **ROUTED))
    answer = await ask(client, "/queues/q/messages", SHOP, headers="ce-id, ce-specversion,CE-Mine, ce-a b, x-other")
    names = answer.headers["access-control-allow-headers"].split(", ")
    assert {"ce-id", "ce-specversion", "ce-mine"} <= set(names)
    assert not {"x-other", "ce-a b"} & set(names)


async def test_what_is_no_preflight_is_refused_as_before(serve, connect):
    client = await connect(await serve(auth=tokens(), **ROUTED))
    problem(await client.options("/queues/q/messages", headers={"origin": SHOP}), 401, "unauthenticated")
    headers = {"access-control-request-method": "POST"}
    problem(await client.options("/queues/q/messages", headers=headers), 401, "unauthenticated")


async def test_without_a_policy_nothing_is_said(serve, connect):
    for auth in ({"auth": tokens()}, {}):
        client = await connect(await serve(**auth))
        answer = await ask(client, "/queues/q/messages", SHOP)
        assert answer.status_code in (401, 403)
        answers = [answer, await client.get("/queues", headers={"authorization": "Bearer all"})]
        assert not [name for each in answers for name in each.headers if name.startswith(("access-control", "vary"))]


REFUSALS = [
    (401, "POST", "/queues/q/messages", {"authorization": "Bearer none"}, b"{}"),
    (401, "GET", "/nowhere", {"authorization": ""}, b""),
    (404, "GET", "/nowhere", {}, b""),
    (405, "PUT", "/queues/q/messages", {}, b"{}"),
    (405, "PUT", "/queues", {}, b""),
    (400, "POST", "/queues/q/messages", {}, b"{"),
    (400, "POST", "/queues/a%20b/messages", {}, b"{}"),
    (422, "POST", "/queues/q/messages", {}, b"{}"),
    (413, "POST", "/queues/q/messages", {}, b" " * 90_000),
    (415, "POST", "/queues/q/messages", {"content-type": "text/plain"}, b"{}"),
    (404, "GET", "/queues/q/dead-letters/1", {}, b""),
    (400, "GET", "/queues/q/dead-letters?limit=x", {}, b""),
    (400, "POST", "/queues/q/messages:ack", {}, b'{"ack_tokens":["x"]}'),
]


@pytest.mark.parametrize(("status", "method", "path", "headers", "body"), REFUSALS)
async def test_a_page_can_read_every_refusal(serve, connect, status, method, path, headers, body):
    limits = {"max_message_bytes": 1_024}
    client = await connect(await serve(auth=tokens(), **ROUTED, limits=limits), "all", headers={"origin": SHOP})
    headers = {"content-type": "application/json"} | headers
    answer = await client.request(method, path, headers=headers, content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (allowed(answer), answer.headers["vary"]) == (SHOP, "origin")
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {"Retry-After", "X-Request-Id", "Location", "Idempotency-Replayed", "traceparent"} <= set(exposed)


async def test_a_page_reads_what_it_publishes_and_receives(serve, connect, queue):
    client = await connect(await serve(auth=tokens(), **ROUTED), "all", headers={"origin": SHOP})
    answers = [await client.post(f"/queues/{queue}/messages", json=DRAFT)]
    answers.append(await client.post(f"/queues/{queue}/messages:batch", json=[DRAFT]))
    answers.append(await client.post(f"/queues/{queue}/messages:receive", json={"max_messages": 2}))
    found = [each["ack_token"] for each in answers[-1].json()["messages"]]
    answers.append(await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": found}))
    raw = {"accept": "application/vnd.babelqueue.envelope+json"}
    answers.append(await client.post(f"/queues/{queue}/messages:receive", headers=raw))
    answers.append(await client.get(f"/queues/{queue}"))
    assert [each.status_code for each in answers] == [201, 201, 200, 200, 204, 200]
    assert {allowed(each) for each in answers} == {SHOP}
    foreign = await client.get(f"/queues/{queue}", headers={"origin": EVIL})
    assert (foreign.status_code, allowed(foreign), foreign.headers["vary"]) == (200, None, "origin")
    assert (await client.get("/queues", headers={"origin": ""})).headers["vary"] == "origin"


async def test_without_credentials_only_pages_that_are_named_get_in(serve, connect, queue):
    config = {"queues": {"blog.*": ROUTED["queues"]["blog.*"]}, "default": {"broker": "local"}, "cors": ROUTED["cors"]}
    client = await connect(await serve(auth="none", **config), headers={"sec-fetch-site": "cross-site"})
    for path, origin, status in [
        (f"/queues/{queue}/messages", SHOP, 201),
        (f"/queues/{queue}/messages", EVIL, 403),
        (f"/queues/{queue}/messages", BLOG, 403),
        ("/queues/blog.x/messages", BLOG, 201),
        ("/queues/blog.x/messages", SHOP, 403),
    ]:
        answer = await client.post(path, json=DRAFT, headers={"origin": origin})
        assert (answer.status_code, allowed(answer)) == (status, origin if status == 201 else None)
    # Another name that resolves to this service is still refused.
    headers = {"origin": SHOP, "host": "evil.example"}
    problem(await client.post(f"/queues/{queue}/messages", json=DRAFT, headers=headers), 403, "forbidden")
    problem(await client.post(f"/queues/{queue}/messages", json=DRAFT), 403, "forbidden")


PAGE = {"origins": [SHOP], "per_minute": 3, "max_message_bytes": 200}
ANY = {"cors": {"origins": ["*"]}}


@pytest.fixture
async def paged(serve, connect):
    """A function of keys of ``page`` that gives a client which is a page."""

    async def open_page(**page):
        app = await serve(auth=tokens(page=PAGE | page), **ANY)
        return await connect(app, "page", headers={"origin": SHOP})

    return open_page


async def test_a_page_publishes_within_its_rate(paged, connect, queue):
    page = await paged()
    path = f"/queues/{queue}/messages"
    # What is refused counts as well, because reading it costs as much.
    answers = [await page.post(path, json=each) for each in (DRAFT, {}, DRAFT, DRAFT)]
    assert [each.status_code for each in answers] == [201, 422, 201, 429]
    found = problem(answers[-1], 429, "rate_exceeded")
    assert (found["retryable"], found["limit"]) == (True, 3)
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 21


async def test_a_page_needs_its_origin(paged, queue):
    page = await paged()
    path = f"/queues/{queue}/messages"
    for origin in (EVIL, "", "null", SHOP + "/", "http://shop.example"):
        problem(await page.post(path, json=DRAFT, headers={"origin": origin}), 403, "forbidden")
    del page.headers["origin"]
    problem(await page.post(path, json=DRAFT), 403, "forbidden")


async def test_a_message_of_a_page_has_a_size(paged, queue):
    page = await paged()
    large = DRAFT | {"data": {"n": "x" * 200}}
    for path, body in (("messages", large), ("messages:batch", [DRAFT, large]), ("messages:batch", [large] * 3)):
        answer = await page.post(f"/queues/{queue}/{path}", json=body)
        if answer.status_code == 207:
            assert [each["status"] for each in answer.json()["results"]] == [201, 413]
        else:
            assert problem(answer, 413, "body_too_large")["limit"] in (200, 600)
    lines = "\n".join(map(json.dumps, [large, DRAFT]))
    ndjson = {"content-type": "application/x-ndjson"}
    answer = await page.post(f"/queues/{queue}/messages:batch", content=lines, headers=ndjson)
    assert [each["status"] for each in answer.json()["results"]] == [413, 201]


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_a_batch_has_no_more_messages_than_the_rate(paged, queue, kind):
    page = await paged()
    path, headers = f"/queues/{queue}/messages:batch", {"content-type": kind}
    assert (await page.post(f"/queues/{queue}/messages", json=DRAFT)).status_code == 201
    entries = [json.dumps(DRAFT)] * 3
    body = "\n".join(entries) if "nd" in kind else f"[{','.join(entries)}]"
    answer = await page.post(path, content=body, headers=headers)
    results = answer.json()["results"]
    assert [(each["status"], each.get("code")) for each in results] == [(201, None)] * 2 + [(429, "rate_exceeded")]


EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "urn:babel:shop:seen", "data": {"n": 1}}
KINDS = {
    "application/cloudevents+json": EVENT,
    "application/openjobspec+json": {"specversion": "1.0", "type": "shop.seen", "args": [{"seen": "1"}]},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_cannot_be_converted_counts(paged, queue, kind):
    page = await paged()
    path, headers = f"/queues/{queue}/messages", {"content-type": kind}
    answers = [await page.post(path, json=each, headers=headers) for each in (KINDS[kind], {}, {}, KINDS[kind], {})]
    assert [each.status_code for each in answers] == [201, 422, 422, 429, 429]


@pytest.mark.parametrize("kind", KINDS)
async def test_in_a_batch_counts_what_was_sent(paged, queue, kind):
    body = [{}, KINDS[kind], {}, KINDS[kind], {}]
    # An entry has more bytes than what it was made of.
    page = await paged(max_message_bytes=len(json.dumps(KINDS[kind])))
    headers = {"content-type": kind.replace("cloudevents+", "cloudevents-batch+")}
    answer = await page.post(f"/queues/{queue}/messages:batch", json=body, headers=headers)
    assert [each["status"] for each in answer.json()["results"]] == [422, 201, 422, 429, 429]


async def test_an_accepted_body_that_cannot_be_converted_counts(serve, connect):
    accept = [{"content_type": "application/json", "job": "urn:babel:shop:seen", "into": "data"}]
    queues = {"q": {"broker": "local", "accept": accept}}
    app = await serve(auth=tokens(page=PAGE), queues=queues, **ANY)
    page = await connect(app, "page", headers={"origin": SHOP, "content-type": "application/json"})
    answers = [await page.post("/queues/q/messages", content=each) for each in (b"[]", b"[]", b"{}", b"{}", b"[]")]
    assert [each.status_code for each in answers] == [400, 400, 201, 429, 429]


async def test_an_upload_of_a_page_ends_at_its_rate(paged, queue):
    page = await paged()
    lines = "\n".join([json.dumps(DRAFT)] * 4)
    headers = {"content-type": "application/x-ndjson"}
    answer = await page.post(f"/queues/{queue}/messages:batch", content=lines, headers=headers)
    assert problem(answer, 413, "too_many_lines")["accepted"] == 3


async def test_a_repeated_key_counts(paged, queue):
    page = await paged()
    answers = [
        await page.post(f"/queues/{queue}/messages", json=DRAFT, headers={"idempotency-key": "a"}) for _ in range(4)
    ]
    assert [each.status_code for each in answers] == [201, 201, 201, 429]
    assert [each.headers.get("idempotency-replayed") for each in answers] == [None, "true", "true", None]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/queues"),
        ("GET", "/queues/q"),
        ("GET", "/brokers"),
        ("GET", "/metrics"),
        ("GET", "/rates"),
        ("GET", "/queues/q/rates"),
        ("POST", "/queues/q/messages:validate"),
        ("POST", "/queues/q/messages:receive"),
        ("GET", "/queues/q/messages:peek"),
        ("POST", "/queues/q/messages:ack"),
        ("POST", "/queues/q:purge"),
        ("GET", "/queues/q/dead-letters"),
        ("POST", "/queues/q/dead-letters:redrive"),
        ("GET", "/messages"),
    ],
)
async def test_the_token_of_a_page_can_only_publish(paged, method, path):
    answer = await (await paged()).request(method, path)
    assert "can only publish" in problem(answer, 403, "forbidden")["detail"]


async def test_the_token_of_a_page_does_not_sign_in(paged):
    page = await paged()
    page.headers.update({"origin": "http://localhost", "accept": "text/html"})
    form = (await page.get("/console/sign-in")).text
    csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
    assert csrf
    answer = await page.post("/console/sign-in", data={"token": "page", "csrf": csrf})
    assert (answer.status_code, "not one of this gateway" in answer.text) == (401, True)
    assert (await page.post("/console/sign-in", data={"token": "all", "csrf": csrf})).status_code == 303


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A real server, with a page's token of a large rate."""
    state = tmp_path_factory.mktemp("state")
    path = state / "babelgate.yaml"
    file = {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}
    config = {"state_dir": str(state), "brokers": {"local": file}, "auth": tokens(page=PAGE | {"per_minute": 9_999})}
    path.write_text(yaml.safe_dump(config | {"cors": {"origins": [SHOP]}, "prefix": "/mq"}))
    found = settings.load(path, {})
    served = Served(found)
    with serving(uvicorn_config(served.build, found)) as served.address:
        yield served


def sent(served: Any, method: str, origin: str | None, token: str = "page", more: str = "") -> Reply:
    body = json.dumps(DRAFT)
    lines = [
        f"{method} /mq/queues/q/messages HTTP/1.1",
        "host: x",
        f"authorization: Bearer {token}",
        f"content-length: {len(body)}",
    ]
    lines += [f"origin: {origin}"] if origin else []
    with Connection(served.address[0], served.address[1], 60) as connection:
        connection.send(("\r\n".join(lines) + f"\r\n{more}\r\n{body}").encode())
        return connection.reply()


def test_the_token_of_a_page_is_never_served_directly(served):
    assert sent(served, "POST", SHOP).status == 201
    # Without an origin the request is an ordinary one, which the server would serve without the application.
    for _ in range(3):
        assert sent(served, "POST", None).status == 403
    assert sent(served, "POST", None, "all").status == 201
    assert sent(served, "POST", None).status == 403
    assert sent(served, "POST", EVIL).status == 403


def test_a_preflight_needs_no_token_and_no_turn_of_a_broker(served):
    more = "access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n"
    reply = sent(served, "OPTIONS", SHOP, "none", more=more)
    assert (reply.status, reply.headers["access-control-allow-origin"], reply.body) == (204, SHOP, b"")
    assert "content-length" not in reply.headers


def test_a_field_twice_is_no_way_around(served):
    assert sent(served, "POST", SHOP, more=f"origin: {EVIL}\r\n").status == 400


async def test_a_page_can_read_that_the_gateway_is_overloaded(serve):
    scope: dict[str, Any] = {"type": "lifespan"}
    app = await serve(started=False, auth=tokens(), **ROUTED)
    app(scope, None, None).close()
    shedder = scope["state"][SHEDDER]
    for path, origin, expected in [
        (b"/queues/q/messages", SHOP, SHOP),
        (b"/queues/q/messages", EVIL, None),
        (b"/queues/q/messages", None, None),
        (b"/queues/open/messages:receive", EVIL, "*"),
        (b"/queues/blog.a/messages:receive", BLOG, BLOG),
    ]:
        fields = {} if origin is None else {b"origin": origin.encode()}
        head = shedder.answer(True, b"POST", target_of(path), fields, "http").partition(b"\r\n\r\n")[0]
        assert head.startswith(b"HTTP/1.1 429 ")
        line = f"\r\naccess-control-allow-origin: {expected}\r\n"
        assert (line.encode() in head) if expected else (b"access-control" not in head)


def test_one_connection_serves_a_page_and_a_program(served):
    host, port = served.address
    with httpx.Client(base_url=f"http://{host}:{port}/mq", timeout=60, verify=authorities()) as client:
        for _ in range(3):
            page = {"authorization": "Bearer page", "origin": SHOP}
            program = {"authorization": "Bearer all"}
            assert allowed(client.post("/queues/q/messages", json=DRAFT, headers=page)) == SHOP
            answer = client.post("/queues/q/messages", json=DRAFT, headers=program)
            assert (answer.status_code, allowed(answer)) == (201, None)
