"""Queues, brokers, dead letters, probes, metrics, documentation."""

from __future__ import annotations

import pytest

from babelgate.gateway.overview import broker_info
from tests.harness.memory import MemoryBinding
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}


async def dead_letter(client, queue, *jobs):
    """Dead letters of these jobs."""
    for job in jobs:
        assert (await client.post(f"/queues/{queue}/messages", json=DRAFT | {"job": job})).status_code == 201
        [message] = (await client.post(f"/queues/{queue}/messages:receive")).json()["messages"]
        asked = {"ack_tokens": [message["ack_token"]]}
        assert (await client.post(f"/queues/{queue}/messages:reject", json=asked)).status_code == 200


async def jobs(client, queue, **where):
    answer = await client.get(f"/queues/{queue}/dead-letters", params=where)
    assert answer.status_code == 200
    return [letter["job"] for letter in answer.json()["dead_letters"]]


async def test_a_queue_and_the_list_of_queues(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    one = (await client.get(f"/queues/{queue}")).json()
    assert one["stats"]["depth"] == 1
    assert one["policy"]["max_attempts"] == 10
    assert one["capabilities"]["ack_scope"] == "anywhere"
    assert (one["native_name"], one["dead_letter_queue"], one["stored_as"]) == (queue, None, {})
    listed = (await client.get("/queues")).json()
    assert [(info["queue"], info["source"]) for info in listed["queues"]] == [(queue, "broker")]
    assert listed["next_cursor"] is None


async def test_the_list_of_queues_is_paged(client, queue):
    names = [f"{queue}.{number}" for number in range(3)]
    for name in names:
        await client.post(f"/queues/{name}/messages", json=DRAFT)
    first = (await client.get("/queues?limit=2")).json()
    assert [info["queue"] for info in first["queues"]] == names[:2]
    second = (await client.get(f"/queues?limit=2&cursor={first['next_cursor']}")).json()
    assert ([info["queue"] for info in second["queues"]], second["next_cursor"]) == (names[2:], None)
    for query in ("limit=0", "limit=1001", "cursor=", "cursor=a/b", "page=1"):
        problem(await client.get(f"/queues?{query}"), 400, "invalid_parameter")


async def test_the_source_of_a_queue_is_the_configuration_before_the_broker(serve, connect, queue):
    client = await connect(
        await serve(queues={queue: {"broker": "local"}, "unused": {"broker": "local"}}, default={"broker": "local"})
    )
    for name in (queue, f"{queue}.other"):
        await client.post(f"/queues/{name}/messages", json=DRAFT)
    infos = (await client.get("/queues")).json()["queues"]
    assert {info["queue"]: info["source"] for info in infos} == {
        queue: "configured",
        "unused": "configured",
        f"{queue}.other": "broker",
    }


async def test_the_native_name_is_what_the_broker_calls_the_queue(serve, connect):
    """Also of a queue whose broker is down."""
    config = {
        "brokers": {"cache": "redis://127.0.0.1:1/0", "rabbit": "amqp://127.0.0.1:1/"},
        "queues": {
            "lv.v": {"broker": "cache", "layout": "laravel"},
            "j.mail": {"broker": "rabbit", "profile": "ojs", "queue_type": "quorum"},
            "bills": {"broker": "rabbit", "native_name": "shop.{queue}"},
        },
    }
    client = await connect(await serve(started=False, **config))
    infos = (await client.get("/queues")).json()["queues"]
    assert [(each["queue"], each["native_name"], each["dead_letter_queue"], each["stored_as"]) for each in infos] == [
        ("bills", "shop.bills", "shop.bills.dlq", {"profile": "plain", "queue_type": "classic"}),
        ("j.mail", "ojs.queue.j.mail", "ojs.dead.j.mail", {"profile": "ojs", "queue_type": "quorum"}),
        ("lv.v", "queues:lv.v", "queues:lv.v.dlq", {"layout": "laravel"}),
    ]
    for info in infos:
        answer = await client.post(f"/queues/{info['queue']}/messages:validate", json=DRAFT)
        assert answer.json()["native_name"] == info["native_name"]


@pytest.mark.parametrize("name", ["a b", "é", "a:b", "x" * 121, "jobs.dlq"])
async def test_a_bad_queue_name(client, name):
    problem(await client.get(f"/queues/{name}"), 400, "invalid_parameter")
    problem(await client.post(f"/queues/{name}/messages", json=DRAFT), 400, "invalid_parameter")


async def test_a_queue_without_a_route(serve, connect, tmp_path):
    client = await connect(
        await serve(brokers={"db": f"sqlite:///{tmp_path}/x.db"}, queues={"known": {"broker": "db"}})
    )
    problem(await client.get("/queues/other"), 404, "queue_not_found")
    problem(await client.post("/queues/other/messages", json=DRAFT), 404, "queue_not_found")
    upload = await client.post(
        "/queues/other/messages:batch", content="{}", headers={"content-type": "application/x-ndjson"}
    )
    problem(upload, 404, "queue_not_found")


async def test_brokers(client):
    [broker] = (await client.get("/brokers")).json()["brokers"]
    assert (broker["broker"], broker["kind"], broker["up"], broker["detail"]) == ("local", "sqlite", True, None)


@pytest.mark.parametrize(
    ("url", "kind"), [("amqps://h/", "rabbitmq"), ("rediss://h", "redis"), ("sqlite:///x.db", "sqlite")]
)
async def test_the_kind_of_a_broker_is_its_package_whatever_the_scheme(url, kind):
    assert (await broker_info(MemoryBinding(), url, required=False)).kind == kind


async def test_peek_leaves_the_messages(client, queue):
    for _ in range(2):
        await client.post(f"/queues/{queue}/messages", json=DRAFT)
    for _ in range(2):
        peeked = (await client.get(f"/queues/{queue}/messages:peek?limit=1")).json()["messages"]
        assert [message["envelope"]["data"] for message in peeked] == [{"n": 1}]
    problem(await client.get(f"/queues/{queue}/messages:peek?limit=0"), 400, "invalid_parameter")


async def test_purge(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    for body in ({"dry_run": True}, {"dry_run": False}, {}):
        dry, count = body.get("dry_run", False), 1 if body else 0
        answer = await client.post(f"/queues/{queue}:purge", json=body)
        assert answer.json() == {"removed": 0 if dry else count, "matched": count, "dry_run": dry}
    assert (await client.get(f"/queues/{queue}")).json()["stats"]["depth"] == 0


async def test_dead_letters_are_filtered_and_paged(client, queue):
    await dead_letter(client, queue, "a", "b", "a")
    assert await jobs(client, queue) == ["a", "b", "a"]
    assert await jobs(client, queue, job="a") == ["a", "a"]
    assert await jobs(client, queue, reason="poison") == []
    assert await jobs(client, queue, before=1) == []
    assert await jobs(client, queue, after=1) == ["a", "b", "a"]
    first = (await client.get(f"/queues/{queue}/dead-letters?limit=2")).json()
    assert await jobs(client, queue, cursor=first["next_cursor"]) == ["a"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "before=x", "jop=a", "cursor="])
async def test_bad_filters(client, queue, query):
    problem(await client.get(f"/queues/{queue}/dead-letters?{query}"), 400, "invalid_parameter")


async def test_redrive_dry_then_filtered_then_all(client, queue):
    await dead_letter(client, queue, "a", "b", "c")
    url = f"/queues/{queue}/dead-letters:redrive"
    dry = (await client.post(url, json={"dry_run": True})).json()
    assert (dry["matched"], dry["redriven"], dry["dry_run"]) == (3, 0, True)
    some = (await client.post(url, json={"filter": {"job": "b"}, "to_queue": queue + "x"})).json()
    assert some["redriven"] == 1
    assert len((await client.post(f"/queues/{queue}x/messages:receive")).json()["messages"]) == 1
    assert (await client.post(url)).json()["redriven"] == 2
    assert await jobs(client, queue) == []


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ('{"limit":0}', "invalid_parameter", "/limit"),
        ('{"filter":{"jop":"a"}}', "invalid_parameter", "/filter/jop"),
        ('{"more":1}', "invalid_parameter", "/more"),
        ("[]", "invalid_parameter", ""),
        ("{", "invalid_json", ""),
    ],
)
async def test_a_redrive_that_does_not_fit(client, queue, body, code, pointer):
    answer = await client.post(f"/queues/{queue}/dead-letters:redrive", content=body)
    assert problem(answer, 400, code)["errors"][0]["pointer"] == pointer


async def test_dead_letters_can_be_removed(client, queue):
    await dead_letter(client, queue, "a")
    url = f"/queues/{queue}/dead-letters:purge"
    assert (await client.post(url, json={"dry_run": True})).json() == {"removed": 0, "matched": 1, "dry_run": True}
    assert await jobs(client, queue) == ["a"]
    assert (await client.post(url)).json() == {"removed": 1, "matched": 1, "dry_run": False}
    assert await jobs(client, queue) == []


async def test_probes_before_and_after_the_start_and_while_stopping(serve, connect):
    app = await serve(started=False)
    client = await connect(app)
    assert (await client.get("/livez")).json() == {"status": "ok"}
    problem(await client.get("/startupz"), 503, "not_ready")
    assert problem(await client.get("/readyz"), 503, "not_ready")["retryable"]
    await app.gateway.start()
    assert (await client.get("/startupz")).status_code == 200
    assert (await client.get("/readyz")).json() == {"status": "ok"}
    await app.gateway.drain()
    answer = await client.get("/readyz")
    problem(answer, 503, "draining")
    assert int(answer.headers["retry-after"]) > 0
    assert (await client.get("/livez")).status_code == 200


@pytest.mark.parametrize("query", ["verbose", "verbose=true", "verbose=1"])
async def test_readiness_in_detail(client, query):
    [broker] = (await client.get(f"/readyz?{query}")).json()["brokers"]
    assert broker == {"broker": "local", "required": False, "up": True, "circuit": "closed", "warnings": []}


async def test_readiness_refuses_what_it_does_not_know(client):
    problem(await client.get("/readyz?verbose=maybe"), 400, "invalid_parameter")
    problem(await client.get("/readyz?x"), 400, "invalid_parameter")
    assert (await client.get("/readyz?verbose=false")).json() == {"status": "ok"}


@pytest.mark.parametrize("required", [False, True])
async def test_readiness_needs_the_required_brokers(serve, connect, tmp_path, required):
    broken = {"url": f"sqlite:///{tmp_path}/missing/x.db", "required": required}
    client = await connect(await serve(brokers={"broken": broken}, default={"broker": "broken"}))
    answer = await client.get("/readyz?verbose")
    if required:
        assert "missing/x.db" not in problem(answer, 503, "broker_unavailable")["detail"]
    else:
        assert answer.json()["brokers"][0]["up"] is False
    problem(await client.post("/queues/q/messages", json=DRAFT), 503, "broker_unavailable")


@pytest.fixture
def two_brokers(tmp_path, token_config):
    """Brokers ``a`` and ``b``, the second of which may be broken, and tokens that manage one, both or nothing."""

    def make(broken=False, **config):
        there = "missing/" if broken else ""
        return {
            "brokers": {
                "a": f"sqlite:///{tmp_path}/a.db",
                "b": {"url": f"sqlite:///{tmp_path}/{there}b.db", "required": True},
            },
            "queues": {"a.*": {"broker": "a"}, "b.*": {"broker": "b"}},
            "auth": token_config(
                a={"a.*": ["manage"]}, b={"b.x": ["manage"]}, all={"*": ["manage"]}, worker={"*": ["send", "listen"]}
            ),
            **config,
        }

    return make


SHOWN = {"all": ["a", "b"], "a": ["a"], "b": ["b"], "worker": [], "wrong": [], None: []}


@pytest.mark.parametrize(("token", "shown"), SHOWN.items())
async def test_readiness_names_the_brokers_that_one_manages(serve, connect, two_brokers, token, shown):
    client = await connect(await serve(**two_brokers()), token)
    expected = {"status": "ok"} | ({"brokers": shown} if shown else {})
    answer = (await client.get("/readyz?verbose")).json()
    assert answer | ({"brokers": [each["broker"] for each in answer["brokers"]]} if shown else {}) == expected
    assert (await client.get("/readyz")).json() == {"status": "ok"}
    listed = await client.get("/brokers")
    if shown:
        assert [each["broker"] for each in listed.json()["brokers"]] == shown
    else:
        assert listed.status_code in (401, 403)


@pytest.mark.parametrize(("token", "shown"), SHOWN.items())
async def test_readiness_names_a_broker_that_is_down_to_who_manages_it(serve, connect, two_brokers, token, shown):
    client = await connect(await serve(**two_brokers(broken=True)), token)
    for query in ("", "?verbose"):
        answer = await client.get(f"/readyz{query}")
        if "b" in shown:
            assert "broker b" in problem(answer, 503, "broker_unavailable")["detail"]
        else:
            assert problem(answer, 503, "not_ready")["detail"] == "A required broker does not answer."


async def test_readiness_names_brokers_to_anyone_where_a_setting_allows_it(serve, connect, two_brokers):
    client = await connect(await serve(**two_brokers(open_readyz=True)))
    assert [each["broker"] for each in (await client.get("/readyz?verbose")).json()["brokers"]] == ["a", "b"]
    problem(await client.get("/brokers"), 401, "unauthenticated")


async def test_readiness_names_no_broker_to_a_web_page(client):
    for headers in ({"host": "evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert (await client.get("/readyz?verbose", headers=headers)).json() == {"status": "ok"}


async def test_metrics_count_what_happened(client, queue):
    await dead_letter(client, queue, "a")
    text = (await client.get("/metrics")).text
    labels = f'broker="local",queue="{queue}"'
    assert f"babelgate_published_total{{{labels}}} 1.0" in text
    assert f"babelgate_delivered_total{{{labels}}} 1.0" in text
    assert f'babelgate_settled_total{{broker="local",outcome="rejected",queue="{queue}"}} 1.0' in text
    assert f'babelgate_dead_lettered_total{{broker="local",queue="{queue}",reason="failed"}} 1.0' in text


async def test_the_documentation_needs_no_other_host(client):
    page = (await client.get("/docs")).text
    assert "//" not in page.replace("<!doctype html>", "")
    for path in ("docs/swagger-ui.css", "docs/swagger-ui-bundle.js", "docs/start.js", "openapi.json"):
        assert (await client.get("/" + path)).status_code == 200
    assert "'self'" in (await client.get("/docs")).headers["content-security-policy"]
    assert (await client.get("/")).headers["location"] == "docs"
    problem(await client.get("/docs/..%2f__init__.py"), 404, "not_found")
    problem(await client.get("/docs/other.js"), 404, "not_found")
