"""Tokens made by calls: what they may do, on both ways that serve a message, and what callers are told."""

from __future__ import annotations

import hashlib

import pytest

from babelgate.cluster.signing import ANYBODY
from babelgate.cluster.wire import TOKENS_PATH, Told, decode_tokens, encode_told
from babelgate.gateway.authorization import Caller, Right
from babelgate.tokens.file import TokenFile
from babelgate.tokens.tokens import Tokens
from tests.harness.problems import problem
from tests.harness.replica import Replica
from tests.http.test_peer import call

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
HOUR = {"ttl_seconds": 3_600}
WALK = {
    Right.SEND: ("messages", DRAFT),
    Right.LISTEN: ("messages:receive", None),
    Right.MANAGE: ("dead-letters:purge", None),
}
KINDS = {"made": True, "new": True, "old": True, "replaced": False, "revoked": False, "ended": False, "forged": False}
"""Kinds of tokens, and whether they are valid."""


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def make(caller, name, rights, **end):
    answer = caller.post("tokens", json={"name": name, "rights": rights, **(end or HOUR)})
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def secret_of(caller, kind, name, rights):
    """The secret of a token of this kind."""
    if kind == "ended":
        secret = make(caller, name, rights, ttl_seconds=0.001)["secret"]
    else:
        made = make(caller, name, rights)
        secret, path = made["secret"], f"tokens/{made['token']['id']}"
        if kind == "revoked":
            assert caller.delete(path).json()["revoked"]
        elif kind == "forged":
            secret = secret[:-1] + ("a" if secret[-1] != "a" else "b")
        elif kind != "made":
            overlap = 0 if kind == "replaced" else 600
            rotated = caller.post(f"{path}:rotate", json={"overlap_seconds": overlap}).raise_for_status()
            assert rotated.headers["cache-control"] == "no-store"
            secret = rotated.json()["secret"] if kind == "new" else secret
    return secret


@pytest.mark.parametrize("granted", Right)
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_does_what_it_was_granted_while_it_is_valid(caller, queue, kind, granted):
    secret = secret_of(caller, kind, f"walk.{kind}.{granted}.{queue}", {f"{queue}*": [granted.value]})
    for right, (verb, body) in WALK.items():
        for asked, expected in ((queue, right == granted), (f"{queue}.more", right == granted), (f"x{queue}", False)):
            for _ in range(2):
                answer = caller.post(f"queues/{asked}/{verb}", json=body, headers=bearer(secret))
                if not KINDS[kind]:
                    problem(answer, 401, "unauthenticated")
                elif expected:
                    assert answer.is_success, answer.text
                else:
                    problem(answer, 403, "forbidden")


@pytest.mark.parametrize("valid", [True, False])
def test_a_token_that_was_used_before_ends(caller, queue, valid):
    """Both ways remember whom they have admitted."""
    made = make(caller, f"used.{queue}", {queue: ["send"]})
    for _ in range(3):
        assert caller.post(f"queues/{queue}/messages", json=DRAFT, headers=bearer(made["secret"])).is_success
    path = f"tokens/{made['token']['id']}"
    (caller.delete(path) if not valid else caller.post(f"{path}:rotate")).raise_for_status()
    answer = caller.post(f"queues/{queue}/messages", json=DRAFT, headers=bearer(made["secret"]))
    assert answer.status_code == (201 if valid else 401)


def test_a_manager_makes_and_lists_what_he_may_manage(caller, queue):
    boss = bearer(make(caller, f"boss.{queue}", {f"{queue}.*": ["manage", "send"]})["secret"])
    order = {"name": f"mine.{queue}", "rights": {f"{queue}.a": ["send"]}, **HOUR}
    mine = caller.post("tokens", json=order, headers=boss).json()["token"]
    assert mine["created_by"] == f"boss.{queue}"
    other = make(caller, f"other.{queue}", {f"{queue}.a": ["send"], "b": ["send"]})["token"]
    listed = caller.get("tokens", headers=boss).json()["tokens"]
    assert [each["id"] for each in listed if each["name"].endswith(queue)] != []
    assert mine in listed and other not in listed and "secret" not in str(listed)
    assert {mine["id"], other["id"]} <= {each["id"] for each in caller.get("tokens").json()["tokens"]}
    for rights in ({f"{queue}.a": ["listen"]}, {"*": ["send"]}, {f"{queue}*": ["send"]}):
        answer = caller.post("tokens", json=order | {"name": "x", "rights": rights}, headers=boss)
        problem(answer, 403, "forbidden")
    problem(caller.delete(f"tokens/{other['id']}", headers=boss), 404, "unknown_token")
    problem(caller.post(f"tokens/{other['id']}:rotate", headers=boss), 404, "unknown_token")
    problem(caller.post("tokens", json=order), 409, "token_name_taken")
    problem(caller.post("tokens", json=order | {"name": "all"}), 409, "token_name_taken")
    sender = bearer(make(caller, f"sender.{queue}", {"*": ["send", "listen"]})["secret"])
    problem(caller.get("tokens", headers=sender), 403, "forbidden")
    problem(caller.post("tokens", json=order, headers=sender), 403, "forbidden")
    problem(caller.delete(f"tokens/{mine['id']}", headers=sender), 403, "forbidden")
    assert caller.delete(f"tokens/{mine['id']}", headers=boss).is_success
    problem(caller.delete(f"tokens/{mine['id']}", headers=boss), 404, "unknown_token")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "a:b"}, "/name"),
        ({"name": "a\n"}, "/name"),
        ({"rights": {}}, "/rights"),
        ({"rights": {"a": []}}, "/rights"),
        ({"rights": {"a b": ["send"]}}, "/rights"),
        ({"rights": {"a": ["own"]}}, "/rights/a/0"),
        ({"rights": {f"q{n}": ["send"] for n in range(51)}}, "/rights"),
        ({"ttl_seconds": 0}, "/ttl_seconds"),
        ({"ttl_seconds": 31_536_001}, "/ttl_seconds"),
        ({"ttl_seconds": "1"}, "/ttl_seconds"),
        ({"ttl_seconds": None}, "/ttl_seconds"),
        ({"ends_at": 1}, "/ends_at"),
        ({"ttl_seconds": None, "ends_at": 1}, "/ends_at"),
        ({"ttl": 1}, "/ttl"),
    ],
)
def test_a_bad_order_is_refused_in_words(caller, change, pointer):
    order = {"name": "bad", "rights": {"a": ["send"]}, **HOUR} | change
    answer = caller.post("tokens", json=order)
    refused = problem(answer, 422 if answer.status_code == 422 else 400, answer.json()["code"])
    assert [each["pointer"] for each in refused["errors"]] == [pointer], refused
    assert "bad" not in [each["name"] for each in caller.get("tokens").json()["tokens"]]


async def test_without_credentials_there_are_no_tokens(client):
    for method, path in (("GET", "tokens"), ("DELETE", f"tokens/{'0' * 16}"), ("POST", f"tokens/{'0' * 16}:rotate")):
        answer = problem(await client.request(method, f"/{path}"), 404, "tokens_disabled")
        assert "no credentials are configured" in answer["detail"]


async def test_a_gateway_can_be_told_to_make_none(serve, connect, token_config):
    config = token_config(boss={"*": ["manage"]})
    app = await serve(auth=config | {"made_tokens": {"enabled": False}})
    answer = problem(await (await connect(app, "boss")).get("/tokens"), 404, "tokens_disabled")
    assert "auth.made_tokens.enabled is false" in answer["detail"]


async def test_names_of_other_callers_are_refused(serve, connect, token_config):
    accept = [{"content_type": "text/plain", "job": "a", "sender": "github"}]
    app = await serve(
        auth=token_config(boss={"*": ["manage"]}), queues={"hooks": {"broker": "local", "accept": accept}}
    )
    client = await connect(app, "boss")
    for name in ("boss", "github", "push", "anyone", "nobody"):
        order = {"name": name, "rights": {"*": ["manage"]}, **HOUR}
        problem(await client.post("/tokens", json=order), 409, "token_name_taken")


async def test_peers_tell_each_other_what_is_signed(tmp_path):
    """A peer says what it knows to one whose digest is another one, and learns from it; nobody else is heard."""
    replica = Replica(tmp_path)
    callers: dict[str, Caller] = {}
    tokens = Tokens(callers, TokenFile(tmp_path), max_ttl_seconds=60)
    await replica.start()
    try:
        boss = Caller("boss", {"*": frozenset(Right)})
        own = (await tokens.create(boss, "own", {"*": (Right.SEND,)}, ttl_seconds=60)).token
        other = Tokens({}, TokenFile(tmp_path / "other"), max_ttl_seconds=60)
        theirs = (await other.create(boss, "theirs", {"*": (Right.SEND,)}, ttl_seconds=60)).token
        body = encode_told(Told("theirs", [theirs], other.digest()))
        proof = replica.signer.sign("POST", TOKENS_PATH, ANYBODY, body)
        done = await call(replica, proof, "POST", TOKENS_PATH, body, tokens=tokens)
        answer = decode_tokens(done.body)
        assert {each.id for each in answer.changes} == {own.id, theirs.id}
        assert set(callers) == {own.sha256, theirs.sha256}
        body = encode_told(Told("theirs", [], answer.digest))
        proof = replica.signer.sign("POST", TOKENS_PATH, ANYBODY, body)
        assert decode_tokens((await call(replica, proof, "POST", TOKENS_PATH, body, tokens=tokens)).body).changes == []
        assert (await call(replica, None, "POST", TOKENS_PATH, body, tokens=tokens)).status == 401
        for bad in (b"", b"{}", b"[]"):
            proof = replica.signer.sign("POST", TOKENS_PATH, ANYBODY, bad)
            assert (await call(replica, proof, "POST", TOKENS_PATH, bad, tokens=tokens)).status == 400
    finally:
        await replica.close()


async def test_a_secret_is_kept_as_its_digest_only(serve, connect, token_config, tmp_path):
    app = await serve(auth=token_config(boss={"*": ["manage", "send"]}))
    client = await connect(app, "boss")
    made = (await client.post("/tokens", json={"name": "shop", "rights": {"*": ["send"]}, **HOUR})).json()
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and made["secret"].encode() in path.read_bytes()]
    assert kept == []
    text = (tmp_path / "tokens" / "tokens.json").read_text()
    assert hashlib.sha256(made["secret"].encode()).hexdigest() in text
    assert (tmp_path / "tokens" / "tokens.json").stat().st_mode & 0o77 == 0


async def test_the_examples_of_the_document_work(serve, connect, token_config):
    app = await serve(auth=token_config(boss={"*": ["manage", "send", "listen"]}))
    client = await connect(app, "boss")
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    made = await client.post("/tokens", json=schemas["TokenRequest"]["examples"][0])
    assert made.status_code == 201, made.text
    path = f"/tokens/{made.json()['token']['id']}:rotate"
    assert (await client.post(path, json=schemas["RotationRequest"]["examples"][0])).status_code == 200


SHOP = "https://shop.example"
PAGE = {"origins": [SHOP], "per_minute": 3, "max_message_bytes": 200}


def test_a_token_of_a_page_can_only_publish_within_its_bounds(caller, queue):
    order = {"name": f"page.{queue}", "rights": {f"{queue}*": ["send"]}, "page": PAGE, **HOUR}
    made = caller.post("tokens", json=order).raise_for_status().json()
    assert (made["token"]["page"], made["token"]["rights"]) == (PAGE, order["rights"])
    listed = {each["id"]: each for each in caller.get("tokens").json()["tokens"]}
    assert listed[made["token"]["id"]] == made["token"]
    path = f"queues/{queue}/messages"
    page = bearer(made["secret"]) | {"origin": SHOP}
    problem(caller.post(path, json=DRAFT, headers=bearer(made["secret"])), 403, "forbidden")
    problem(caller.post(path, json=DRAFT, headers=page | {"origin": "https://other.example"}), 403, "forbidden")
    problem(caller.post("queues/other/messages", json=DRAFT, headers=page), 403, "forbidden")
    for verb in ("messages:receive", "messages:ack"):
        problem(caller.post(f"queues/{queue}/{verb}", json={}, headers=page), 403, "forbidden")
    for other in ("tokens", "queues", f"queues/{queue}"):
        problem(caller.get(other, headers=page), 403, "forbidden")
    large = DRAFT | {"data": {"n": "x" * 200}}
    problem(caller.post(path, json=large, headers=page), 413, "body_too_large")
    assert caller.post(path, json=DRAFT, headers=page).status_code == 201
    # The new secret has the rate of the token, and no other one.
    rotated = caller.post(f"tokens/{made['token']['id']}:rotate").raise_for_status().json()
    assert rotated["token"]["page"] == PAGE
    new = bearer(rotated["secret"]) | {"origin": SHOP}
    answers = [caller.post(path, json=DRAFT, headers=each).status_code for each in (new, page, new, page)]
    assert answers == [201, 201, 429, 429]
    assert caller.delete(f"tokens/{made['token']['id']}").is_success
    problem(caller.post(path, json=DRAFT, headers=new), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"rights": {"a": ["send", "listen"]}}, "/rights"),
        ({"page": PAGE | {"origins": []}}, "/page/origins"),
        ({"page": PAGE | {"origins": ["shop.example"]}}, "/page/origins/0"),
        ({"page": PAGE | {"per_minute": 0}}, "/page/per_minute"),
        ({"page": PAGE | {"max_message_bytes": 1}}, "/page/max_message_bytes"),
        ({"page": PAGE | {"cors": True}}, "/page/cors"),
    ],
)
def test_bounds_of_a_page_that_are_refused(caller, change, pointer):
    order = {"name": "page", "rights": {"a": ["send"]}, "page": PAGE, **HOUR}
    answer = caller.post("tokens", json=order | change)
    problem(answer, 400, "invalid_parameter")
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
