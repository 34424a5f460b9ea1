"""Rates of identities and queues by HTTP, on both ways that serve a request.

The rates are so low that no test sees a bucket fill; what passes is its burst.
"""

from __future__ import annotations

import hashlib
import json
import time
from threading import Thread

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.errors import ConfigError
from babelgate.server.server import uvicorn_config
from tests.harness import ways
from tests.harness.local import authorities
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served, answer, post

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "urn:babel:shop:seen", "data": {"n": 1}}
LINES = {"content-type": "application/x-ndjson"}


def at_once(unit, number):
    """A rate of which ``number`` come at once, and then one in some hours."""
    return {f"{unit}_per_second": number / 80_000, "burst_seconds": 80_000}


IDENTITIES = {
    "all": None,
    "other": None,
    "five requests": at_once("requests", 5),
    "four messages": at_once("messages", 4),
    "unlimited": {},
    "three leases": {"max_leases": 3},
}
QUEUES = {
    "three*": at_once("messages", 3),
    "small*": at_once("bytes", 100),
    "asked*": at_once("requests", 3),
    "shared*": {"per_identity": at_once("messages", 2)},
    "short*": {"max_depth": 2},
    "narrow*": {"max_message_bytes": 64, "max_receives": 1, "max_streams": 1},
    "leased*": {"max_leases": 2, "per_identity": {"max_leases": 1}},
}


@pytest.fixture(scope="module", params=["direct", "application"])
def served(request, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    tokens = [
        {
            "name": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "rights": {"*": ["send", "listen", "manage"]},
            **({} if limits is None else {"limits": limits}),
        }
        for name, limits in IDENTITIES.items()
    ]
    config = {
        "state_dir": str(state),
        "auth": {"tokens": tokens},
        "brokers": {"local": {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}},
        "default": {"broker": "local"},
        "queues": {name: {"broker": "local", "limits": limits} for name, limits in QUEUES.items()},
        "rate_limits": {"identity": {"requests_per_second": 1_000_000}},
    }
    path = state / "babelgate.yaml"
    path.write_text(yaml.safe_dump(config))
    found = settings.load(path, {})
    served = Served(found, direct=request.param == "direct")
    with serving(uvicorn_config(served.build, found)) as served.address:
        yield served


@pytest.fixture
def client_of(served):
    """A function of the name of an identity that gives a client."""
    clients = []

    def made(name="all"):
        headers = {"authorization": f"Bearer {name}", "content-type": "application/json"}
        base = f"http://{served.address[0]}:{served.address[1]}"
        clients.append(httpx.Client(base_url=base, headers=headers, timeout=60, verify=authorities()))
        return clients[-1]

    yield made
    for client in clients:
        client.close()


def depth(client, queue):
    return client.get(f"queues/{queue}").raise_for_status().json()["stats"]["depth"]


def left(reply, limit):
    """What the field RateLimit says is left of ``limit``."""
    (found,) = [each for each in reply.headers["ratelimit"].split(", ") if each.startswith(f'"{limit}";')]
    return int(found.split(";")[1].removeprefix("r="))


def test_an_identity_makes_as_many_requests_as_it_may(client_of, served, queue):
    limited, before = client_of("five requests"), len(served.directly)
    path = f"/queues/{queue}/messages"
    for verb, status, rest in (("", 201, 4), ("", 201, 3), (":receive", 200, 2)):
        # In one piece, so that the requests can be served directly.
        found = answer(served, post(path + verb, b"" if verb else ways.DRAFT, token="five requests"))
        assert (found[0], found[1]["ratelimit"].split(";")[:2]) == (status, ['"identity-requests"', f"r={rest}"])
        assert found[1]["ratelimit-policy"] == '"identity-requests";q=5;w=80000;qu="requests"'
    assert served.directly[before:] == ([True] * 3 if served.app.direct is not None else [])
    answers = [limited.post(path, json=DRAFT), limited.get("queues")]
    assert [(each.status_code, left(each, "identity-requests")) for each in answers] == [(201, 1), (200, 0)]
    tries = [
        ("POST", f"queues/{queue}/messages"),
        ("POST", f"queues/{queue}/messages:receive"),
        ("POST", f"queues/{queue}/messages:ack"),
        ("GET", f"queues/{queue}/messages:stream"),
        ("GET", f"queues/{queue}"),
        ("GET", "brokers"),
        ("GET", "elsewhere"),
    ]
    for method, path in tries:
        last = limited.request(method, path, json=DRAFT if method == "POST" else None)
        refused = problem(last, 429, "rate_exceeded")
        assert refused["retryable"] and "'five requests'" in refused["detail"]
        assert 10_000 < int(last.headers["retry-after"]) <= 16_000
        assert left(last, "identity-requests") == 0
    assert limited.get("livez").status_code == 200
    assert depth(client_of(), queue) == 2
    assert client_of("other").get("queues").status_code == 200


def test_what_is_refused_was_not_published(client_of, queue):
    queue = f"three{queue}"
    client = client_of()
    answers = [client.post(f"queues/{queue}/messages", json=DRAFT) for _ in range(4)]
    assert [each.status_code for each in answers] == [201, 201, 201, 429]
    assert f"The queue '{queue}' takes" in problem(answers[-1], 429, "rate_exceeded")["detail"]
    assert problem(client_of("other").post(f"queues/{queue}/messages", json=DRAFT), 429, "rate_exceeded")
    assert depth(client, queue) == 3
    # Consumers are not held up by what publishers have used up.
    (message,) = client.post(f"queues/{queue}/messages:receive").json()["messages"]
    acked = client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]})
    assert (acked.status_code, left(acked, "queue-messages")) == (200, 0)
    # Another queue of the same pattern has messages of its own, and invalid ones count as well.
    answers = [client.post(f"queues/{queue}.b/messages", json=each) for each in (DRAFT, {}, {}, DRAFT)]
    assert [each.status_code for each in answers] == [201, 422, 422, 429]


@pytest.mark.parametrize("kind", ["an array", "lines", "events"])
def test_a_batch_is_published_as_far_as_the_rate_reaches(client_of, queue, kind):
    queue, client = f"three{queue}", client_of()
    if kind == "lines":
        body = "\n".join([json.dumps(DRAFT)] * 5)
        reply = client.post(f"queues/{queue}/messages:batch", content=body, headers=LINES)
    elif kind == "events":
        headers = {"content-type": "application/cloudevents-batch+json"}
        body = json.dumps([EVENT | {"id": str(number)} for number in range(5)])
        reply = client.post(f"queues/{queue}/messages", content=body, headers=headers)
    else:
        reply = client.post(f"queues/{queue}/messages:batch", json=[DRAFT] * 5)
    results = reply.json()["results"]
    assert reply.status_code == 207
    assert [(each["status"], each.get("code")) for each in results] == [(201, None)] * 3 + [(429, "rate_exceeded")] * 2
    assert depth(client, queue) == 3


def test_bytes_count_as_they_are_sent(client_of, queue):
    queue, client = f"small{queue}", client_of()
    size = len(json.dumps(DRAFT))
    assert size < 100 < 3 * size
    reply = client.post(f"queues/{queue}/messages", content=json.dumps(DRAFT))
    assert (reply.status_code, left(reply, "queue-bytes")) == (201, 100 - size)
    assert client.post(f"queues/{queue}/messages", content=json.dumps(DRAFT)).status_code == 201
    problem(client.post(f"queues/{queue}/messages", content=json.dumps(DRAFT)), 429, "rate_exceeded")
    # A message that is larger than the burst passes when nothing has been used.
    large = DRAFT | {"data": {"n": "x" * 500}}
    assert client.post(f"queues/{queue}.b/messages", json=large).status_code == 201
    problem(client.post(f"queues/{queue}.b/messages", json=DRAFT), 429, "rate_exceeded")


def test_each_identity_has_its_own_share_of_a_queue(client_of, queue):
    queue = f"shared{queue}"
    for name in ("all", "other", "unlimited"):
        client = client_of(name)
        answers = [client.post(f"queues/{queue}/messages", json=DRAFT) for _ in range(3)]
        assert [each.status_code for each in answers] == [201, 201, 429]
        assert f"The identity '{name}', on the queue '{queue}'," in answers[-1].json()["detail"]
    # With a content type that only the application reads.
    event = client_of().post(
        f"queues/{queue}/messages", json=EVENT, headers={"content-type": "application/cloudevents+json"}
    )
    problem(event, 429, "rate_exceeded")


def test_messages_of_an_identity_count_on_all_its_queues(client_of, queue):
    client = client_of("four messages")
    answers = [client.post(f"queues/{queue}.{number % 3}/messages", json=DRAFT) for number in range(5)]
    assert [each.status_code for each in answers] == [201] * 4 + [429]


def test_requests_of_a_queue_count_for_all_its_callers(client_of, queue):
    queue = f"asked{queue}"
    paths = ["messages", "messages:receive", "messages:peek"]
    answers = [
        client_of("all").post(f"queues/{queue}/messages", json=DRAFT),
        client_of("other").post(f"queues/{queue}/messages:receive"),
        client_of("unlimited").post(f"queues/{queue}:pause"),
    ]
    assert [each.status_code for each in answers] == [201, 200, 200]
    for path in paths:
        method = "GET" if path.endswith("peek") else "POST"
        refused = client_of("all").request(method, f"queues/{queue}/{path}", json=DRAFT if method == "POST" else None)
        problem(refused, 429, "rate_exceeded")
    assert client_of("all").get("queues").status_code == 200


def test_operators_see_the_limits_and_what_they_refused(client_of, queue):
    client = client_of()
    limits = client.get(f"queues/shared{queue}").json()["policy"]["limits"]
    rates = {f"{unit}_per_second": None for unit in ("requests", "messages", "bytes")}
    rates |= dict.fromkeys(("max_message_bytes", "max_receives", "max_streams", "max_leases"))
    per_identity = rates | {"messages_per_second": 2 / 80_000, "burst_seconds": 80_000}
    assert limits == rates | {
        "burst_seconds": 1,
        "per_identity": per_identity,
        "max_depth": None,
        "counted_in": "process",
    }
    assert client.get(f"queues/{queue}").json()["policy"]["limits"] is None

    def refused():
        lines = client.get("metrics").text.splitlines()
        (line,) = [each for each in lines if each.startswith('babelgate_rate_limited_total{limit="queue-messages"}')]
        return float(line.split()[-1])

    before = refused()
    client.post(f"queues/three{queue}/messages:batch", json=[DRAFT] * 3)
    problem(client.post(f"queues/three{queue}/messages", json=DRAFT), 429, "rate_exceeded")
    assert refused() == before + 1


def test_a_full_queue_refuses_until_it_is_consumed(client_of, queue):
    queue, client = f"short{queue}", client_of()
    answers = [client.post(f"queues/{queue}/messages", json=DRAFT) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    refused = client.post(f"queues/{queue}/messages", json=DRAFT)
    assert problem(refused, 429, "queue_full")["limit"] == 2
    assert (refused.headers["retry-after"], refused.json()["retryable"]) == ("1", True)
    results = client.post(f"queues/{queue}/messages:batch", json=[DRAFT] * 2).json()["results"]
    assert [(each["status"], each["code"]) for each in results] == [(429, "queue_full")] * 2
    assert depth(client, queue) == 2
    (message,) = client.post(f"queues/{queue}/messages:receive").json()["messages"]
    client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]}).raise_for_status()
    deadline = time.monotonic() + 60
    while (last := client.post(f"queues/{queue}/messages", json=DRAFT)).status_code == 429:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (last.status_code, depth(client, queue)) == (201, 2)


def test_a_queue_has_a_size_of_messages(client_of, queue):
    queue, client = f"narrow{queue}", client_of()
    large = DRAFT | {"data": {"n": "x" * 50}}
    for path, body in (("messages", large), ("messages:batch", [DRAFT, large])):
        reply = client.post(f"queues/{queue}/{path}", json=body)
        found = reply.json()["results"][1] if path.endswith("batch") else problem(reply, 413, "body_too_large")
        assert (found["status"], found["code"]) == (413, "body_too_large")
    assert depth(client, queue) == 1


def test_receives_and_streams_at_a_time(client_of, queue):
    queue, client = f"narrow{queue}", client_of()
    replies = []

    def wait():
        # One of the receives below may have the place.
        while (reply := client.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 30})).status_code == 429:
            time.sleep(0.01)
        replies.append(reply)

    waiting = Thread(target=wait)
    waiting.start()
    other, deadline = client_of("other"), time.monotonic() + 60
    while (last := other.post(f"queues/{queue}/messages:receive")).status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "has 1 receives already" in problem(last, 429, "concurrency_exceeded")["detail"]
    with other.stream("GET", f"queues/{queue}/messages:stream", headers={"accept": LINES["content-type"]}) as stream:
        assert stream.status_code == 200
        problem(client_of().get(f"queues/{queue}/messages:stream"), 429, "concurrency_exceeded")
    client_of().post(f"queues/{queue}/messages", json=DRAFT).raise_for_status()
    client_of().post(f"queues/{queue}/messages", json=DRAFT).raise_for_status()
    waiting.join(60)
    assert replies and replies[0].status_code == 200
    # What has ended counts no more: the stream ends when the gateway notices that its client has gone.
    deadline = time.monotonic() + 60
    for path in ("messages:receive", "messages:stream"):
        while True:
            with client.stream("POST", f"queues/{queue}/{path}") as reply:
                if reply.status_code == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def receive(served, queue, token, **asked):
    """The answer to a receive in one piece, so that it can be served directly."""
    body = json.dumps(asked).encode() if asked else b""
    return answer(served, post(f"/queues/{queue}/messages:receive", body, token=token))


def test_leases_at_a_time(client_of, served, queue):
    queue, client = f"leased{queue}", client_of("unlimited")
    client.post(f"queues/{queue}/messages:batch", json=[DRAFT] * 5).raise_for_status()
    before = len(served.directly)
    taken = []

    def take(token):
        status, fields, body = receive(served, queue, token, max_messages=5)
        assert (status, len(body["messages"])) == (200, 1)
        assert '"identity-on-queue-leases";r=0' in fields["ratelimit"]
        taken.append(body["messages"][0]["ack_token"])

    def refused(token, says, left):
        for asked in ({}, {"wait_seconds": 0.2}):
            status, fields, body = receive(served, queue, token, **asked)
            assert (status, body["code"], fields["retry-after"]) == (429, "leases_exceeded", "1")
            assert says in body["detail"] and "leases already" in body["detail"] and body["retryable"]
            assert '"queue-leases";q=2;qu="leases"' in fields["ratelimit-policy"]
            assert f'"queue-leases";r={left}' in fields["ratelimit"]

    take("all")
    refused("all", f"The identity 'all', on the queue '{queue}',", 1)
    take("unlimited")
    refused("other", f"The queue '{queue}'", 0)
    assert served.directly[before:] == ([True] * 6 if served.app.direct is not None else [])
    metrics = client_of().get("metrics").text.splitlines()
    assert "babelgate_counted_leases 2.0" in metrics
    # A stream opens, and gets its message when there is room.
    with client_of("other").stream(
        "POST", f"queues/{queue}/messages:stream", headers={"accept": LINES["content-type"]}
    ) as stream:
        assert stream.status_code == 200
        client.post(f"queues/{queue}/messages:ack", json={"ack_tokens": taken}).raise_for_status()
        assert any("ack_token" in line for line in stream.iter_lines())
    deadline = time.monotonic() + 60
    while "babelgate_counted_leases 0.0" not in client_of().get("metrics").text.splitlines():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_leases_of_an_identity_count_on_all_its_queues(client_of, queue):
    client = client_of("three leases")
    taken = []
    for number in range(4):
        name = f"{queue}.{number % 2}"
        client.post(f"queues/{name}/messages", json=DRAFT).raise_for_status()
        taken.append((name, client.post(f"queues/{name}/messages:receive", json={"wait_seconds": 0})))
    assert [reply.status_code for _, reply in taken] == [200, 200, 200, 429]
    problem(taken[-1][1], 429, "leases_exceeded")
    tokens = [(name, reply.json()["messages"][0]["ack_token"]) for name, reply in taken[:3]]
    for verb, body in (("ack", {}), ("nack", {"delay_seconds": 0}), ("reject", {})):
        name, token = tokens.pop()
        client.post(f"queues/{name}/messages:{verb}", json={"ack_tokens": [token], **body}).raise_for_status()
        left_over = client.post(f"queues/{queue}.1/messages:receive").raise_for_status().json()["messages"]
        tokens += [(f"{queue}.1", each["ack_token"]) for each in left_over]
    # Another test looks at the number of all leases.
    for name, token in tokens:
        client.post(f"queues/{name}/messages:ack", json={"ack_tokens": [token]}).raise_for_status()


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("rate_limits.identity.max_leases", {"rate_limits": {"identity": {"max_leases": 0}}}),
        ("rate_limits.identity.requests_per_second", {"rate_limits": {"identity": {"requests_per_second": 0}}}),
        ("rate_limits.identity.burst_seconds", {"rate_limits": {"identity": {"burst_seconds": 0.5}}}),
        ("rate_limits.identities", {"rate_limits": {"identities": {}}}),
        ("default.limits.bytes_per_second", {"default": {"broker": "b", "limits": {"bytes_per_second": "fast"}}}),
        (
            "default.limits.per_identity.per_identity",
            {"default": {"broker": "b", "limits": {"per_identity": {"per_identity": {}}}}},
        ),
    ],
)
def test_a_bad_limit_is_refused_by_its_key(tmp_path, key, config):
    path = tmp_path / "babelgate.yaml"
    path.write_text(yaml.safe_dump({"brokers": {"b": "sqlite:///x.db"}, **config}))
    with pytest.raises(ConfigError) as caught:
        settings.load(path, {})
    assert caught.value.facts["key"] == key
