"""The figures of the last hour over HTTP: of one queue, and of all queues of a caller."""

from __future__ import annotations

import time

import pytest

from tests.harness.problems import problem
from tests.http.test_operators import dead_letter

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}


def counts(figures):
    """The counts that are not 0."""
    return {name: value for name, value in figures.items() if isinstance(value, int) and value and name != "at"}


def test_each_way_to_serve_a_request_counts(caller):
    """Of a queue of its own, because the servers share a file, and are those of other tests, too."""
    queue = f"direct-rates-{caller.base_url.port}"
    for _ in range(4):
        assert caller.post(f"/queues/{queue}/messages", json=DRAFT).status_code == 201
    received = caller.post(f"/queues/{queue}/messages:receive?max_messages=4").json()["messages"]
    tokens = [message["ack_token"] for message in received]
    for verb, token in zip(("ack", "ack", "nack", "reject"), tokens, strict=True):
        assert caller.post(f"/queues/{queue}/messages:{verb}", json={"ack_tokens": [token]}).status_code == 200
    expected = {"published": 4, "delivered": 4, "acked": 2, "nacked": 1, "rejected": 1, "dead_lettered": 1}
    answer = caller.get(f"/queues/{queue}/rates")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["queue"], found["broker"], found["processes"]) == (queue, "local", {"up": 1, "silent": 0})
    assert counts(found["hour"]) == expected
    # A new minute may have begun meanwhile.
    assert sum(minute["published"] for minute in found["minutes"]) == 4
    assert found["complete_since"] // 60_000 * 60_000 == found["minutes"][0]["at"]
    assert all(minute["at"] % 60_000 == 0 for minute in found["minutes"])
    for name in ("publish_p50_seconds", "publish_p99_seconds", "delivery_p50_seconds", "delivery_p99_seconds"):
        assert found["hour"][name] > 0
    everything = caller.get("/rates?limit=100").json()
    [one] = [each for each in everything["queues"] if each["queue"] == queue]
    assert counts(one["hour"]) == expected
    assert one["stats"]["dead"] == 1
    assert everything["hour"]["published"] >= 4


async def test_a_queue_that_was_not_used_has_figures_of_nothing(client, queue):
    found = (await client.get(f"/queues/{queue}/rates")).json()
    assert counts(found["hour"]) == {}
    assert found["hour"]["publish_p50_seconds"] is None
    assert len(found["minutes"]) in (1, 2)


async def test_expired_messages_that_are_dropped_are_counted(serve, connect, tmp_path):
    route = {"broker": "db", "ttl_seconds": 60, "expired": "drop"}
    app = await serve(brokers={"db": f"sqlite:///{tmp_path}/x.db"}, queues={"short": route})
    client = await connect(app)
    meta = {"id": "m", "queue": "short", "lang": "go", "schema_version": 1, "created_at": 1}
    for _ in range(2):
        sent = await client.post("/queues/short/messages", json={**DRAFT, "trace_id": "t", "meta": meta, "attempts": 0})
        assert sent.status_code == 201, sent.text
    limit = time.monotonic() + 60
    while (figures := (await client.get("/queues/short/rates")).json()["hour"])["dropped"] < 2:
        assert time.monotonic() < limit, figures
        await client.post("/queues/short/messages:receive?max_messages=10")
    assert counts(figures) == {"published": 2, "dropped": 2}
    everything = (await client.get("/rates")).json()
    assert everything["hour"]["dropped"] == everything["queues"][0]["hour"]["dropped"] == 2
    page = (await client.get("/console/queues/short")).text
    assert '<th scope="row">Expired and dropped</th><td class="num">2</td>' in page
    overview = (await client.get("/console/")).text
    assert "expired and dropped" in overview


async def test_a_queue_without_a_route_has_none(serve, connect, tmp_path):
    app = await serve(brokers={"db": f"sqlite:///{tmp_path}/x.db"}, queues={"known": {"broker": "db"}})
    problem(await (await connect(app)).get("/queues/other/rates"), 404, "queue_not_found")


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "queue=q"])
async def test_parameters_out_of_range_are_refused(client, query):
    problem(await client.get(f"/rates?{query}"), 400, "invalid_parameter")
    problem(await client.get(f"/queues/q/rates?{query}"), 400, "invalid_parameter")


async def test_the_sum_is_of_what_one_may_see(serve, connect, token_config):
    app = await serve(auth=token_config(all={"*": ["send", "listen"]}, a={"a": ["listen"]}, b={"b": ["manage"]}, no={}))
    everyone = await connect(app, "all")
    await dead_letter(everyone, "a", "urn:babel:test:made")
    for _ in range(2):
        await everyone.post("/queues/b/messages", json=DRAFT)
    for token, queues, published, concerns, brokers in (
        ("all", ["a", "b"], 3, ["dead_letters"], []),
        ("a", ["a"], 1, ["dead_letters"], []),
        ("b", ["b"], 2, [], ["local"]),
        ("no", [], 0, [], []),
    ):
        found = (await (await connect(app, token)).get("/rates")).json()
        assert sorted(each["queue"] for each in found["queues"]) == queues
        assert found["hour"]["published"] == published
        assert [each["kind"] for each in found["attention"]] == concerns
        assert [each["broker"] for each in found["brokers"]] == brokers
    problem(await (await connect(app)).get("/rates"), 401, "unauthenticated")


async def test_the_circuits_are_for_those_who_may_manage(serve, connect, token_config):
    app = await serve(auth=token_config(operator={"*": ["manage"]}), brokers={"down": "redis://127.0.0.1:1/0"})
    client = await connect(app, "operator")
    assert (await client.get("/rates")).json()["brokers"][0]["broker"] == "down"
