"""Idempotency keys over HTTP: the header, and the mark of a repeated answer."""

from __future__ import annotations

import json

import jsonschema
import pytest

from babelgate.brokers.idempotency_store import TOKEN_BYTES, KeyClaim, KeySettlement, Terms
from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.gateway.idempotency import fingerprint
from babelgate.server.wiring import resolve

MESSAGES = "/queues/emails/messages"
DRAFT = {"job": "urn:babel:emails:welcome", "data": {"to": "a@example.com"}}


async def publish(client, key=None, body=DRAFT, path=MESSAGES, **options):
    headers = [("content-type", "application/json")]
    headers += [("idempotency-key", each) for each in ([key] if isinstance(key, str) else key or [])]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await client.post(path, content=content, headers=headers, **options)


async def depth(client, queue="emails"):
    return (await client.get(f"/queues/{queue}")).json()["stats"]["depth"]


async def test_the_second_answer_is_the_first_and_says_so(client):
    first = await publish(client, '"k"')
    assert (first.status_code, first.headers.get("idempotency-replayed")) == (201, None)
    second = await publish(client, '"k"')
    assert (second.status_code, second.headers["idempotency-replayed"]) == (201, "true")
    assert second.json() == first.json()
    assert await depth(client) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"k"', "k"),
        (r'"a \"b\" \\ c"', r'"a \"b\" \\ c"'),
        ("8e03978e-40d5", '"8e03978e-40d5"'),
        ("k" * 255, "k" * 255),
    ],
)
async def test_one_key_in_its_two_forms(client, one, other):
    first, second = await publish(client, one), await publish(client, other)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    "key",
    ["", '""', '"', '"a', 'a"', '"a"b"', r'"\a"', "a b", '"a";p=1', "é", "\x7f", "k" * 256, ["a", "a"], ["a", "b"]],
    ids=repr,
)
async def test_a_malformed_key_is_refused(client, key):
    given = [each.encode("latin-1") for each in ([key] if isinstance(key, str) else key)]
    headers = [(b"content-type", b"application/json"), *((b"idempotency-key", each) for each in given)]
    answer = await client.post(MESSAGES, content=json.dumps(DRAFT), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")
    assert await depth(client) == 0


async def test_another_body_or_other_parameters_are_refused(client):
    await publish(client, "k")
    for body, query in (
        (DRAFT | {"trace_id": "t"}, {}),
        (DRAFT, {"delay_seconds": 0}),
        (DRAFT, {"ordering_key": "o"}),
        (DRAFT, {"deliver_at": 1}),
    ):
        answer = await publish(client, "k", body, params=query)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert await depth(client) == 1


@pytest.mark.parametrize("entry", [{"envelope": DRAFT, "idempotency_key": "k"}, DRAFT | {"idempotency_key": "k"}])
async def test_the_key_of_a_body(client, entry):
    first = await publish(client, None, entry)
    for key in (None, "k", '"k"'):
        again = await publish(client, key, entry)
        assert (again.status_code, again.json()) == (201, first.json())
        assert again.headers["idempotency-replayed"] == "true"
    other = await publish(client, "other", entry)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_mismatch")
    assert other.json()["errors"][0]["pointer"] == "/idempotency_key"
    for bad in (1, "", "é", "a\n", "k" * 256, ["k"]):
        answer = await publish(client, None, entry | {"idempotency_key": bad})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_idempotency_key")
    assert await depth(client) == 1


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_a_batch_tells_which_were_replayed(client, kind):
    def body(entries):
        texts = [json.dumps(entry) for entry in entries]
        return ("[" + ",".join(texts) + "]" if kind == "application/json" else "\r\n".join(texts)).encode()

    async def send(entries):
        return await client.post(f"{MESSAGES}:batch", content=body(entries), headers={"content-type": kind})

    entries = [{"envelope": DRAFT | {"data": {"n": n}}, "idempotency_key": f"k{n}"} for n in range(3)]
    entries[1] = DRAFT | {"data": {"n": 1}, "idempotency_key": "k1"}
    first = await send(entries[:2])
    assert first.status_code == 201
    assert all("replayed" not in result for result in first.json()["results"])
    second = await send([*entries, entries[0] | {"delay_seconds": 1}])
    results = second.json()["results"]
    assert (second.status_code, second.json()["accepted"], second.json()["failed"]) == (207, 3, 1)
    assert [result.get("replayed") for result in results] == [True, True, None, None]
    assert [result["id"] for result in results[:2]] == [result["id"] for result in first.json()["results"]]
    assert (results[3]["status"], results[3]["code"]) == (422, "idempotency_key_reused")
    assert await depth(client) == 3
    # What was sent in a batch is the same when it is sent alone.
    alone = await publish(client, None, json.dumps(entries[0]).encode() + b"\n")
    assert alone.headers["idempotency-replayed"] == "true"


async def test_a_batch_has_no_key_of_its_own(client):
    answer = await publish(client, "k", [DRAFT], f"{MESSAGES}:batch")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")
    assert await depth(client) == 0


async def test_a_job_is_what_was_sent_and_not_what_became_of_it(client):
    job = {"specversion": "1.0", "type": "email.send", "queue": "emails", "args": [{"to": "a"}]}
    headers = {"content-type": "application/openjobspec+json", "idempotency-key": "k"}
    answers = [await client.post(MESSAGES, content=json.dumps(job), headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201], answers[0].text
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert answers[0].json() == answers[1].json()
    assert await depth(client) == 1


async def test_a_reserved_key_is_told_with_a_time_to_ask_again(app, client):
    body = json.dumps(DRAFT).encode()
    claim = KeyClaim("emails", "k", fingerprint(body, None, None), b"{}", "anyone")
    store = app.gateway.bindings["local"].keys
    await store.reserve([claim], b"t" * TOKEN_BYTES, Terms())
    under_way = await publish(client, "k", body)
    assert (under_way.status_code, under_way.json()["code"]) == (409, "idempotency_in_progress")
    assert under_way.headers["retry-after"] == "1"
    await store.settle([KeySettlement(claim, b"t" * TOKEN_BYTES, "unknown")], Terms())
    cut_off = await publish(client, "k", body)
    assert (cut_off.status_code, cut_off.json()["code"]) == (504, "outcome_unknown")
    assert cut_off.json()["retryable"] is False
    assert await depth(client) == 0


async def test_an_entry_of_a_batch_tells_whether_to_send_it_again(app, client):
    entry = json.dumps({"envelope": DRAFT, "idempotency_key": "k"}).encode()
    claim = KeyClaim("emails", "k", fingerprint(entry, None, None), b"{}", "anyone")
    store = app.gateway.bindings["local"].keys
    await store.reserve([claim], b"t" * TOKEN_BYTES, Terms())

    async def told():
        [result] = (await publish(client, None, b"[%b]" % entry, f"{MESSAGES}:batch")).json()["results"]
        return result["status"], result["code"], result["retryable"]

    assert await told() == (409, "idempotency_in_progress", True)
    await store.settle([KeySettlement(claim, b"t" * TOKEN_BYTES, "unknown")], Terms())
    assert await told() == (504, "outcome_unknown", False)


async def test_a_full_store(serve, connect):
    client = await connect(await serve(idempotency={"max_keys": 1}))
    assert (await publish(client, "a")).status_code == 201
    full = await publish(client, "b")
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (503, "idempotency_keys_full", "10")
    assert full.json()["limit"] == 1
    assert (await publish(client, "a")).headers["idempotency-replayed"] == "true"
    assert (await publish(client)).status_code == 201


async def test_without_a_store_a_key_is_refused_and_never_ignored(serve, connect):
    client = await connect(await serve(idempotency={"store": "none"}))
    answer = await publish(client, "k")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_unsupported")
    assert "idempotency.store" in answer.json()["detail"]
    assert (await publish(client)).status_code == 201
    assert await depth(client) == 1


async def test_a_dry_run_refuses_the_key_that_a_publish_refuses(serve, connect):
    url = f"{MESSAGES}:validate"
    client = await connect(await serve())
    entry = {"envelope": DRAFT, "idempotency_key": "k"}
    for _ in range(2):
        assert (await publish(client, None, entry, url)).status_code == 200
    long = await publish(client, None, {"envelope": DRAFT | {"trace_id": "t" * 1000}, "idempotency_key": "k"}, url)
    assert (long.status_code, long.json()["code"]) == (422, "answer_too_large")
    assert (await publish(client, None, entry)).headers.get("idempotency-replayed") is None
    without = await connect(await serve(idempotency={"store": "none"}))
    refused = await publish(without, None, entry, url)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_unsupported")


async def test_who_may_not_publish_learns_nothing_of_a_key(serve, connect, token_config):
    app = await serve(auth=token_config(shop={"*": ["send"]}, reader={"*": ["listen"]}))
    shop, reader = await connect(app, "shop"), await connect(app, "reader")
    assert (await publish(shop, "k")).status_code == 201
    refused = await publish(reader, "k")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "idempotency-replayed" not in refused.headers


async def test_queues_that_only_share_a_name_and_a_store_share_no_keys(serve, connect, tmp_path):
    """Two deployments on one database, each with a prefix for what its queues are called there."""
    for native in ("shop.{queue}", "blog:{queue}", "blüg.{queue}"):
        brokers = {"x": {"url": f"sqlite:///{tmp_path}/x.db", "timeout_seconds": 30}}
        config = {"brokers": brokers, "default": {"broker": "x", "native_name": native}}
        client = await connect(await serve(**config))
        first = await publish(client, "k")
        assert (first.status_code, first.headers.get("idempotency-replayed")) == (201, None)
        assert (await publish(client, "k")).headers["idempotency-replayed"] == "true"
        reused = await publish(client, "k", DRAFT | {"trace_id": "t"})
        assert "of the queue emails." in reused.json()["detail"]
        assert await depth(client) == 1


async def test_a_queue_tells_how_its_keys_are_kept(serve, connect, tmp_path):
    brokers = {name: {"url": f"sqlite:///{tmp_path}/{name}.db", "timeout_seconds": 30} for name in ("local", "keys")}
    config = {"brokers": brokers, "default": {"broker": "local"}}

    async def told(**idempotency):
        client = await connect(await serve(**config, idempotency=idempotency))
        found = (await client.get("/queues/emails")).json()["idempotency"]
        await publish(client)
        assert [queue["idempotency"] for queue in (await client.get("/queues")).json()["queues"]] == [found]
        return found

    terms = {"retention_seconds": 3600, "max_keys": 10}
    assert await told(**terms) == {"broker": "local", "in_one_transaction": True, **terms}
    assert await told(store="keys") == {
        "broker": "keys",
        "in_one_transaction": False,
        "retention_seconds": 86_400,
        "max_keys": 1_000_000,
    }
    assert await told(store="none") is None


@pytest.mark.parametrize(
    ("brokers", "store", "reason"),
    [
        ({"local": "sqlite:///a.db"}, "keys", "no broker 'keys' is configured"),
        ({"rabbit": "amqp://127.0.0.1/"}, "rabbit", "cannot keep keys"),
    ],
)
async def test_a_store_that_cannot_be_is_found_at_start_up(serve, tmp_path, brokers, store, reason):
    with pytest.raises(ConfigError, match=reason) as refusal:
        await serve(started=False, brokers=brokers, idempotency={"store": store})
    assert refusal.value.key == "idempotency.store"
    with pytest.raises(ConfigError, match=reason):
        resolve(settings.load(tmp_path / "babelgate.yaml", {}))


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ('"k"', True),
        ('"' + "k" * 255 + '"', True),
        ('"' + r"\\" * 255 + '"', True),
        ("k" * 255, True),
        ("k" * 256, False),
        ('"' + "k" * 256 + '"', False),
        ('""', False),
        ("a b", False),
    ],
)
async def test_the_document_tells_of_the_header(client, key, good):
    document = (await client.get("/openapi.json")).json()
    operation = document["paths"]["/queues/{queue}/messages"]["post"]
    [header] = [each for each in operation["parameters"] if each["name"] == "Idempotency-Key"]
    assert jsonschema.Draft202012Validator(header["schema"]).is_valid(key) is good
    assert (await publish(client, key)).status_code == (201 if good else 400)
    assert "Idempotency-Replayed" in operation["responses"]["201"]["headers"]
    assert "Retry-After" in document["components"]["responses"]["Problem409"]["headers"]


async def test_a_caller_beyond_its_share(serve, connect, token_config):
    app = await serve(auth=token_config(shop={"*": ["send"]}, blog={"*": ["send"]}), idempotency={"max_keys": 4})
    shop, blog = await connect(app, "shop"), await connect(app, "blog")
    assert [(await publish(shop, key)).status_code for key in ("a", "b", "a")] == [201, 201, 201]
    refused = await publish(shop, "c")
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
        429,
        "idempotency_share_full",
        "10",
    )
    assert refused.json()["detail"].startswith("The queue 'emails' of the caller 'shop' has 2 keys")
    assert (refused.json()["limit"], refused.json()["retryable"]) == (2, True)
    entry = {"envelope": DRAFT, "idempotency_key": "d"}
    answer = await publish(shop, None, [entry, DRAFT], f"{MESSAGES}:batch")
    assert [result["status"] for result in answer.json()["results"]] == [429, 201]
    assert (await publish(shop, "c", path="/queues/other/messages")).status_code == 201
    assert (await publish(blog, "c")).status_code == 201
