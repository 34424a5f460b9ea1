"""Authentication and rights on every route, and the rule against foreign web pages."""

from __future__ import annotations

import pytest

from babelgate.gateway.authorization import Right
from babelgate.http.api import OPEN
from tests.harness.asgi import Call
from tests.harness.problems import problem
from tests.harness.webhooks import SECRET
from tests.http.test_operators import dead_letter

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
PUSH = {"url": "http://refused.example/", "secrets": [SECRET]}
TOKENS = {"ack_tokens": ["x"]}
ENDLESS = {"max_in_flight": 0}
"""Refused, because a stream that is served has no end."""

# :mod:`tests.http.test_walk` asks for each with every kind of identity.
# Every route, what it is sent, and the right it needs. None: any right on the queue will do. OBSERVE: LISTEN, too.
ROUTES = [
    ("POST", "/queues/{queue}/messages", DRAFT, Right.SEND),
    ("POST", "/queues/{queue}/messages:batch", [DRAFT], Right.SEND),
    ("POST", "/queues/{queue}/messages:validate", DRAFT, Right.SEND),
    ("POST", "/queues/{queue}/messages:receive", None, Right.LISTEN),
    ("GET", "/queues/{queue}/messages:receive", None, Right.LISTEN),
    ("POST", "/queues/{queue}/messages:stream", ENDLESS, Right.LISTEN),
    ("GET", "/queues/{queue}/messages:stream", ENDLESS, Right.LISTEN),
    ("POST", "/queues/{queue}/messages:ack", TOKENS, Right.LISTEN),
    ("POST", "/queues/{queue}/messages:nack", TOKENS, Right.LISTEN),
    ("POST", "/queues/{queue}/messages:reject", TOKENS, Right.LISTEN),
    ("POST", "/queues/{queue}/messages:extend", TOKENS, Right.LISTEN),
    ("POST", "/queues/{queue}/messages:settle", {"acks": ["x"]}, Right.LISTEN),
    ("GET", "/queues/{queue}/messages:peek", None, Right.OBSERVE),
    ("GET", "/queues/{queue}/dead-letters", None, Right.OBSERVE),
    ("POST", "/queues/{queue}/dead-letters:redrive", {}, Right.MANAGE),
    ("POST", "/queues/{queue}/dead-letters:purge", None, Right.MANAGE),
    ("POST", "/queues/{queue}/dead-letters:delete", {"ids": ["x"]}, Right.MANAGE),
    ("GET", "/queues/{queue}/dead-letters/{letter_id}", None, Right.OBSERVE),
    ("DELETE", "/queues/{queue}/dead-letters/{letter_id}", None, Right.MANAGE),
    ("POST", "/queues/{queue}/dead-letters/{letter_id}:redrive", {}, Right.MANAGE),
    ("GET", "/queues/{queue}/redrives", None, Right.OBSERVE),
    ("GET", "/queues/{queue}/redrives/{id}", None, Right.OBSERVE),
    ("POST", "/queues/{queue}/redrives/{id}:cancel", None, Right.MANAGE),
    ("POST", "/queues/{queue}/redrives/{id}:resume", None, Right.MANAGE),
    ("POST", "/queues/{queue}:purge", None, Right.MANAGE),
    ("POST", "/queues/{queue}:pause", None, Right.MANAGE),
    ("POST", "/queues/{queue}:resume", None, Right.MANAGE),
    ("GET", "/queues/{queue}/push", None, Right.MANAGE),
    ("PUT", "/queues/{queue}/push", PUSH, Right.MANAGE),
    ("DELETE", "/queues/{queue}/push", None, Right.MANAGE),
    ("POST", "/queues/{queue}/push:pause", None, Right.MANAGE),
    ("POST", "/queues/{queue}/push:resume", None, Right.MANAGE),
    ("POST", "/queues/{queue}/push:test", None, Right.MANAGE),
    ("GET", "/queues/{queue}", None, None),
    ("GET", "/queues/{queue}/rates", None, None),
]
TOKENS_PATHS = [("GET", "/tokens"), ("POST", "/tokens"), ("POST", "/tokens/{id}:rotate"), ("DELETE", "/tokens/{id}")]
""":mod:`tests.http.test_tokens` tests which tokens they make and reach."""
ANYWHERE = [("GET", "/brokers"), ("GET", "/metrics"), ("GET", "/replicas")]
HISTORY = [("GET", "/messages"), ("GET", "/messages/{message_id}"), ("GET", "/traces/{trace_id}")]
"""Need a right to read on some queue. :mod:`tests.http.test_history` tests which events they show."""
SCHEMAS = [("GET", "/schemas"), ("GET", "/schemas/{job}"), ("GET", "/asyncapi.json")]
"""Need any right on any queue: :mod:`tests.http.test_job_schemas`, :mod:`tests.http.test_asyncapi`."""

CONFIGURATION = [("GET", "/config"), ("POST", "/config:reload")]
"""Need the right to manage everything: :mod:`tests.http.test_configuration`."""


async def test_the_table_names_every_route(client):
    paths = (await client.get("/openapi.json")).json()["paths"]
    served = {(method.upper(), path) for path, item in paths.items() for method in item if method != "parameters"}
    known = {(method, path) for method, path, _, _ in ROUTES} | {
        *ANYWHERE,
        *HISTORY,
        *TOKENS_PATHS,
        *SCHEMAS,
        *CONFIGURATION,
        ("GET", "/queues"),
        ("GET", "/rates"),
    }
    assert served == known | {("GET", path) for path in OPEN if path.endswith("z")}


async def test_each_route_checks_the_name_before_the_rights(serve, connect, token_config):
    """Neither without rights nor with a pattern that is slow to search can a caller make the service work on a name."""
    app = await serve(auth=token_config(nobody={}, some={"*-*-eu": ["send", "listen", "manage"]}))
    for name in ("nobody", "some"):
        client = await connect(app, name)
        for queue in ("-" * 60_000, "a" * 121, "a%20b", "q.dlq"):
            for method, path, body, _ in ROUTES:
                answer = await client.request(method, path.format(queue=queue, letter_id="x", id="x"), json=body)
                found = problem(answer, 400, "invalid_parameter")
                assert found["detail"].startswith("queue"), (method, path)


@pytest.mark.parametrize(("method", "path"), HISTORY)
async def test_history_needs_a_right_to_look_on_some_queue(serve, connect, token_config, method, path):
    """Without a journal, too."""
    rights = {each.value: {"mine.*": [each.value]} for each in Right}
    app = await serve(auth=token_config(**rights))
    problem(await (await connect(app)).request(method, path), 401, "unauthenticated")
    for name in rights:
        answer = await (await connect(app, name)).request(method, path)
        if name == Right.SEND:
            problem(answer, 403, "forbidden")
        else:
            problem(answer, 404, "journal_disabled")


async def test_queues_are_listed_as_far_as_one_may_see_them(serve, connect, token_config):
    app = await serve(auth=token_config(a={"a": ["listen"]}, ab={"a": ["send"], "b": ["manage"]}, all={"*": ["send"]}))
    everyone = await connect(app, "all")
    for name in "abc":
        assert (await everyone.post(f"/queues/{name}/messages", json=DRAFT)).status_code == 201
    for token, seen in {"a": ["a"], "ab": ["a", "b"], "all": ["a", "b", "c"]}.items():
        listed = (await (await connect(app, token)).get("/queues")).json()["queues"]
        assert [info["queue"] for info in listed] == seen


async def test_redriving_elsewhere_needs_send_there(serve, connect, token_config):
    app = await serve(auth=token_config(m={"a": ["manage"]}, both={"a": ["manage"], "b": ["send"]}))
    url, asked = "/queues/a/dead-letters:redrive", {"to_queue": "b"}
    problem(await (await connect(app, "m")).post(url, json=asked), 403, "forbidden")
    assert (await (await connect(app, "both")).post(url, json=asked)).status_code == 200


async def test_open_paths_need_no_credential(serve, connect, token_config):
    app = await serve(auth=token_config(a={"a": ["send"]}))
    client = await connect(app)
    for path in sorted(OPEN):
        expected = 307 if path == "/" else 200
        assert (await client.get(path)).status_code == expected, path
        assert (await client.get(path, headers={"host": "10.1.2.3:8080"})).status_code == expected, path


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ", "Bearer nope", "Basic good", "good", "bearer\tgood"])
async def test_bad_credentials(serve, connect, token_config, given):
    app = await serve(auth=token_config(good={"*": ["send"]}))
    client = await connect(app, headers={"authorization": given})
    problem(await client.get("/queues"), 401, "unauthenticated")
    problem(await client.get("/nowhere"), 401, "unauthenticated")
    good = await connect(app, headers={"authorization": "bearer good"})
    assert (await good.get("/queues")).status_code == 200


async def test_the_stored_hash_is_no_credential(serve, connect, token_config):
    config = token_config(good={"*": ["send"]})
    app = await serve(auth=config)
    problem(await (await connect(app, config["tokens"][0]["sha256"])).get("/queues"), 401, "unauthenticated")


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:8080"},
    {"host": "localhost.evil.example"},
    {"host": "127.0.0.1.evil.example:80"},
    {"host": "10.0.0.1"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "Cross-Site"},
    {"sec-fetch-site": " cross-site "},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "SAME-SITE"},
    {"sec-fetch-site": "same-origin, cross-site"},
    {"sec-fetch-site": "something-new"},
    {"sec-fetch-site": ""},
    {"host": ""},
    {"host": "localhost, localhost"},
]
OWN = [
    {"host": "localhost:8080"},
    {"host": "LOCALHOST"},
    {"host": "127.0.0.1:1"},
    {"host": "[::1]:8080"},
    {"host": "[::1]"},
    {"host": "mq.example:8080"},
    {"origin": "http://localhost:8080"},
    {"origin": "https://mq.example"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "Same-Origin "},
    {"sec-fetch-site": "none"},
    {"host": "localhost:8080 "},
]


@pytest.mark.parametrize("auth", [{}, {"auth": "none"}])
async def test_pages_of_others_are_kept_out(serve, connect, auth, queue):
    client = await connect(await serve(hosts=["mq.example"], **auth))
    for headers in FOREIGN:
        for method, path in (("POST", "messages"), ("GET", "messages:receive"), ("GET", "messages:peek")):
            answer = await client.request(method, f"/queues/{queue}/{path}", headers=headers)
            assert answer.status_code == 403, headers
            problem(answer, 403, "forbidden")


@pytest.mark.parametrize("name", ["host", "authorization", "origin", "sec-fetch-site", "content-type"])
@pytest.mark.parametrize("path", ["/queues/q/messages:receive", "/queues", "/livez", "/nowhere"])
async def test_a_field_that_decides_is_given_once(app, name, path):
    call = Call("GET", path)
    call.scope["headers"] += [(name.encode(), b"localhost"), (name.encode(), b"localhost")]
    await call.run(app)
    assert (call.status, call.json()["code"]) == (400, "malformed_http")


@pytest.mark.parametrize("headers", OWN)
async def test_own_names_are_let_in(serve, connect, headers, queue):
    client = await connect(await serve(hosts=["mq.example"]))
    answer = await client.post(f"/queues/{queue}/messages", json=DRAFT, headers=headers)
    assert answer.status_code == 201, answer.text


async def test_with_tokens_the_host_does_not_matter(serve, connect, token_config):
    client = await connect(
        await serve(auth=token_config(good={"*": ["send"]})), "good", headers={"host": "any.example"}
    )
    assert (await client.get("/queues")).status_code == 200


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        ("127.0.0.2", "127.0.0.2:8080", 200),
        ("Gateway.example", "gateway.example", 200),
        ("fd00::1", "[fd00::1]:8080", 200),
        ("0.0.0.0", "0.0.0.0:8080", 403),
        ("10.0.0.1", "10.0.0.2", 403),
    ],
)
async def test_the_address_it_listens_on_is_its_own(serve, connect, address, host, status):
    client = await connect(await serve(host=address, auth="none"), headers={"host": host})
    assert (await client.get("/queues")).status_code == status


EDITED = {"edit": {"data": {"n": 2}}}
REPLACED = {"edit": {"body": DRAFT}}
ONE, MANY = "dead-letters/{}:redrive", "dead-letters:redrive"
REDRIVES = [
    (ONE, {}, set()),
    (ONE, {"to_queue": "home"}, set()),
    (ONE, EDITED, {"home"}),
    (ONE, REPLACED, {"home"}),
    (ONE, EDITED | {"to_queue": "home"}, {"home"}),
    (ONE, {"to_queue": "away"}, {"away"}),
    (ONE, EDITED | {"to_queue": "away"}, {"away"}),
    (ONE, REPLACED | {"to_queue": "away"}, {"away"}),
    (ONE, {"to_queue": "away", "force": True}, {"away"}),
    (MANY, {}, set()),
    (MANY, {"to_queue": "home"}, set()),
    (MANY, {"to_queue": "away"}, {"away"}),
    (MANY, {"dry_run": True}, set()),
    (MANY, {"dry_run": True, "to_queue": "away"}, {"away"}),
    (MANY, {"background": True}, set()),
    (MANY, {"background": True, "to_queue": "away"}, {"away"}),
]
"""Redrives of the queue ``home``, and the queues on which each needs ``send`` besides ``manage`` on ``home``."""


@pytest.mark.parametrize(("path", "body", "needed"), REDRIVES)
async def test_what_a_redrive_needs(serve, connect, token_config, path, body, needed):
    held = [(manages, sends) for manages in (False, True) for sends in (set(), {"home"}, {"away"}, {"home", "away"})]
    rights = {
        f"t{n}": {"home": ["manage"] * manages + ["send"] * ("home" in sends), "away": ["send"] * ("away" in sends)}
        for n, (manages, sends) in enumerate(held)
    }
    app = await serve(auth=token_config(boss={"*": ["send", "listen", "manage"]}, **rights))
    boss = await connect(app, "boss")
    await dead_letter(boss, "home", "a")
    [letter] = (await boss.get("/queues/home/dead-letters")).json()["dead_letters"]
    url = f"/queues/home/{path.format(letter['letter_id'])}"
    for n, (manages, sends) in enumerate(held):
        if not (manages and needed <= sends):
            refused = problem(await (await connect(app, f"t{n}")).post(url, json=body), 403, "forbidden")
            right, queue = ("send", *needed) if manages else ("manage", "home")
            assert refused["detail"] == f"This needs the right '{right}' on the queue '{queue}'."
    assert (await boss.get("/queues/home/dead-letters")).json()["dead_letters"] == [letter]
    for n, (manages, sends) in enumerate(held):
        if manages and needed <= sends:
            answer = await (await connect(app, f"t{n}")).post(url, json=body)
            # The letter was sent back by the first of them, whose job may still run.
            assert answer.json().get("code") in (None, "unknown_dead_letter", "redrive_running")


async def test_resuming_a_job_needs_the_rights_of_its_start(serve, connect, token_config):
    auth = token_config(boss={"*": ["send", "listen", "manage"]}, tried={"home": ["manage"]})
    app = await serve(auth=auth)
    boss, tried = await connect(app, "boss"), await connect(app, "tried")
    job = (await boss.post("/queues/home/dead-letters:redrive", json={"background": True, "to_queue": "away"})).json()
    refused = problem(await tried.post(f"/queues/home/redrives/{job['id']}:resume"), 403, "forbidden")
    assert refused["detail"] == "This needs the right 'send' on the queue 'away'."
