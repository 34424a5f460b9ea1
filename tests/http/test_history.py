"""What happened to a message, over HTTP, with a real journal on each way to serve a request."""

from __future__ import annotations

import contextlib
import hashlib
import time
from urllib.parse import quote

import httpx
import jsonschema
import pytest
import yaml

from babelgate.config import settings
from babelgate.http.history import MAX_ID
from babelgate.server.server import uvicorn_config
from tests.harness.local import authorities, free_port
from tests.harness.operations import DOCUMENT
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served

RIGHTS = {
    "all": {"*": ["send", "listen", "manage"]},
    "listener": {"a-*": ["listen"]},
    "manager": {"a-*": ["manage"]},
    "sender": {"*": ["send"]},
}
LIMIT_SECONDS = 60
KEYS = [{"id": "k", "secret": "the gateways of a test share a key, which has 32 bytes"}]


def config(state, **more):
    """Settings with a journal."""
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": rights}
        for name, rights in RIGHTS.items()
    ]
    state.mkdir(exist_ok=True)
    found = {
        "state_dir": str(state),
        "brokers": {"local": {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}},
        "default": {"broker": "local"},
        "auth": {"tokens": tokens},
        "journal": {"landing": str(state / "landed"), "node": "gw", "meta": ["ext.shop.tenant", "ext.order"]},
        **more,
    }
    path = state / "babelgate.yaml"
    path.write_text(yaml.safe_dump(found))
    return settings.load(path, {})


@pytest.fixture(scope="module", params=["direct", "application"])
def url(request, tmp_path_factory):
    """A server with a journal: one that serves the hot requests directly, and one that does not."""
    found = config(tmp_path_factory.mktemp("state") / "gw", prefix="/mq")
    served = Served(found, direct=request.param == "direct")
    with serving(uvicorn_config(served.build, found)) as (host, port):
        yield f"http://{host}:{port}/mq"


@pytest.fixture
def client(url):
    """A function of a token that gives a client."""
    with contexts() as opened:
        yield lambda token="all": opened(url, token)


class contexts:
    """Clients that are closed with the block."""

    def __init__(self):
        self._clients = []

    def __enter__(self):
        def opened(url, token="all"):
            self._clients.append(
                httpx.Client(
                    base_url=url,
                    headers={"authorization": f"Bearer {token}"},
                    timeout=LIMIT_SECONDS,
                    verify=authorities(),
                )
            )
            return self._clients[-1]

        return opened

    def __exit__(self, *_):
        for each in self._clients:
            each.close()


def until(look, condition):
    """The first answer of ``look`` that meets ``condition``: a record is found a moment after its event."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        answer = look()
        if condition(answer) or time.monotonic() > deadline:
            assert condition(answer), answer.text
            return answer.json()
        time.sleep(0.02)


def events(answer):
    return [each["event"] for each in answer.json().get("events", ())]


def found(client, path, *wanted):
    """The answer of ``path`` once its events are these."""
    return until(lambda: client.get(path), lambda answer: events(answer) == [*wanted])


def published(client, queue, **members):
    answer = client.post(f"/queues/{queue}/messages", json={"job": "urn:babel:test:made", "data": {}, **members})
    assert answer.status_code == 201, answer.text
    return answer.json()


def received(client, queue):
    (message,) = client.post(f"/queues/{queue}/messages:receive").json()["messages"]
    return message["ack_token"]


def settled(client, queue, verb, token, **more):
    answer = client.post(f"/queues/{queue}/messages:{verb}", json={"ack_tokens": [token], **more})
    assert answer.status_code == 200, answer.text


def fits(answer, path):
    """The answer, once it fits its schema in the document."""
    schema = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(answer)
    return answer


def test_the_way_of_a_message(client, queue):
    gateway = client()
    receipt = published(gateway, queue)
    path = f"/messages/{receipt['id']}"
    assert found(gateway, path, "accepted")["status"] == "accepted"
    token = received(gateway, queue)
    leased = found(gateway, path, "accepted", "delivered")
    assert (leased["status"], leased["events"][-1]["lease_seconds"]) == ("delivered", 60.0)
    settled(gateway, queue, "nack", token, delay_seconds=0)
    assert found(gateway, path, "accepted", "delivered", "nacked")["status"] == "waiting"
    settled(gateway, queue, "ack", received(gateway, queue))
    whole = fits(
        found(gateway, path, "accepted", "delivered", "nacked", "delivered", "acked"), "/messages/{message_id}"
    )
    assert {name: whole[name] for name in ("message_id", "trace_id", "job", "status", "queue", "broker")} == {
        "message_id": receipt["id"],
        "trace_id": receipt["trace_id"],
        "job": "urn:babel:test:made",
        "status": "acked",
        "queue": queue,
        "broker": "local",
    }
    assert [each["attempts"] for each in whole["events"]] == [0, 0, 0, 1, 1]
    assert [each["at"] for each in whole["events"]] == sorted(each["at"] for each in whole["events"])
    assert {each["node"] for each in whole["events"]} == {"gw"}
    assert whole["next_cursor"] is None
    assert [each["node"] for each in whole["searched"]["gateways"]] == ["gw"]
    assert whole["searched"]["silent"] == []


def test_the_way_of_a_dead_letter(client, queue):
    gateway = client()
    receipt = published(gateway, queue)
    settled(gateway, queue, "reject", received(gateway, queue), error={"message": "no"})
    path = f"/messages/{receipt['id']}"
    dead = found(gateway, path, "accepted", "delivered", "rejected", "dead_lettered")
    assert (dead["status"], dead["events"][-1]["outcome"]) == ("dead_lettered", "failed")
    gateway.post(f"/queues/{queue}/dead-letters:redrive", json={"to_queue": f"{queue}-2"})
    again = found(gateway, path, "accepted", "delivered", "rejected", "dead_lettered", "redriven")
    assert (again["status"], again["queue"], again["events"][-1]["to_queue"]) == (
        "redriven",
        f"{queue}-2",
        f"{queue}-2",
    )


def test_the_messages_of_a_trace(client, queue):
    gateway = client()
    trace_id = f"trace of {queue}"
    first, second = (published(gateway, f"{queue}-{n}", trace_id=trace_id, job=f"job-{n}") for n in range(2))
    settled(gateway, f"{queue}-1", "ack", received(gateway, f"{queue}-1"))

    def is_whole(answer):
        return [[each["event"] for each in one["events"]] for one in answer.json().get("messages", ())] == [
            ["accepted"],
            ["accepted", "delivered", "acked"],
        ]

    whole = fits(until(lambda: gateway.get(f"/traces/{quote(trace_id)}"), is_whole), "/traces/{trace_id}")
    shown = [(each["message_id"], each["job"], each["status"], each["queue"]) for each in whole["messages"]]
    assert shown == [
        (first["id"], "job-0", "accepted", f"{queue}-0"),
        (second["id"], "job-1", "acked", f"{queue}-1"),
    ]
    assert whole["trace_id"] == trace_id
    page = gateway.get(f"/traces/{quote(trace_id)}", params={"limit": 1}).json()
    assert [len(each["events"]) for each in page["messages"]] == [1]
    rest = gateway.get(f"/traces/{quote(trace_id)}", params={"cursor": page["next_cursor"]}).json()
    assert [len(each["events"]) for each in rest["messages"]] == [3]
    assert rest["next_cursor"] is None


IDS = [
    "a/b",
    "größe 100%",
    "%2F",
    "a:purge",
    "a:validate",
    "?#&=+",
    ".",
    "..",
    "\U0001f600",
    "\x00\n",
    '"\\',
    "a//b/",
    "x" * MAX_ID,
    "é" * MAX_ID,
]


@pytest.mark.parametrize("escaped", [False, True], ids=["as a client escapes it", "each byte escaped"])
@pytest.mark.parametrize("id_", IDS, ids=lambda id_: repr(id_[:12]))
def test_an_id_has_any_characters(client, queue, id_, escaped):
    """``trace_id`` is any text, and so is the ``meta.id`` of other programs."""
    gateway = client()
    trace_id = f"{id_[: MAX_ID - 40]}{queue}"[:MAX_ID] if id_.strip(".") else id_
    published(gateway, queue, trace_id=trace_id)
    in_path = "".join(f"%{byte:02x}" for byte in trace_id.encode()) if escaped else quote(trace_id, safe="")
    if not trace_id.strip("."):
        in_path = in_path.replace(".", "%2E")

    def is_there(answer):
        messages = answer.json().get("messages", ())
        return any(each["events"][0]["queue"] == queue for each in messages)

    answer = until(lambda: gateway.get(f"/traces/{in_path}"), is_there)
    assert answer["trace_id"] == trace_id
    missing = problem(gateway.get(f"/messages/{in_path}"), 404, "message_not_found")
    assert "Searched: the journals of gw" in missing["detail"]


@pytest.mark.parametrize("path", ["/messages/{}", "/traces/{}"])
def test_an_id_that_cannot_be_one(client, path):
    gateway = client()
    name = "trace_id" if "trace" in path else "message_id"
    for wrong in ("%FF", "%C3", quote("é" * (MAX_ID + 1)), "x" * (MAX_ID + 1)):
        refused = problem(gateway.get(path.format(wrong)), 400, "invalid_parameter")
        assert refused["errors"][0]["parameter"] == name
    problem(gateway.get(path.format("a/b")), 404, "not_found")
    problem(gateway.delete(path.format("a")), 405, "method_not_allowed")


def test_events_are_listed_by_what_they_have(client, queue):
    gateway = client()
    receipts = [published(gateway, f"{queue}-{n % 2}", job=f"{queue}-job-{n}") for n in range(4)]
    settled(gateway, f"{queue}-0", "ack", received(gateway, f"{queue}-0"))
    ids = [each["id"] for each in receipts]
    mine = f"/messages?queue={queue}-0"
    whole = fits(found(gateway, mine, "acked", "delivered", "accepted", "accepted"), "/messages")
    assert [each["message_id"] for each in whole["events"]] == [ids[0], ids[0], ids[2], ids[0]]

    def listed(**where):
        return [each["message_id"] for each in gateway.get("/messages", params=where).json()["events"]]

    assert listed(queue=f"{queue}-0", event="accepted") == [ids[2], ids[0]]
    assert listed(queue=f"{queue}-0", event="poison") == []
    assert listed(job=f"{queue}-job-1") == [ids[1]]
    assert listed(job=f"{queue}-job-1", queue=f"{queue}-0") == []
    at = whole["events"][0]["at"]
    assert listed(queue=f"{queue}-0", since=at + 1) == []
    assert listed(queue=f"{queue}-0", since=at)[0] == ids[0]
    assert listed(queue=f"{queue}-0", until=whole["events"][-1]["at"]) == []
    first = gateway.get(f"{mine}&limit=3").json()
    rest = gateway.get(f"{mine}&limit=3&cursor={first['next_cursor']}").json()
    assert [*first["events"], *rest["events"]] == whole["events"]


def test_events_are_listed_by_a_member_of_meta(client, queue):
    gateway = client()
    tenants = [queue, "south = é&?", queue]
    ids = [
        published(gateway, queue, meta={"ext": {"shop": {"tenant": tenant}, "order": n}})["id"]
        for n, tenant in enumerate(tenants)
    ]
    settled(gateway, queue, "ack", received(gateway, queue))
    found(gateway, f"/messages?queue={queue}", "acked", "delivered", *["accepted"] * 3)

    def listed(meta, **where):
        answer = fits(gateway.get("/messages", params={"meta": meta, **where}).json(), "/messages")
        return [(each["event"], each["message_id"]) for each in answer["events"]]

    mine = [("delivered", ids[0]), ("accepted", ids[2]), ("accepted", ids[0])]
    assert listed(f"ext.shop.tenant={queue}") == mine
    assert listed(f"ext.shop.tenant={tenants[1]}", queue=queue) == [("accepted", ids[1])]
    assert listed(f"ext.shop.tenant={queue}", event="accepted", queue=queue) == mine[1:]
    assert listed("ext.order=2", queue=queue) == [("accepted", ids[2])]
    assert listed(f"ext.order={queue}") == []
    (whole, *_) = gateway.get("/messages", params={"meta": "ext.order=2", "queue": queue}).json()["events"]
    assert whole["meta"] == {"ext.shop.tenant": queue, "ext.order": "2"}


@pytest.mark.parametrize(
    ("query", "status", "code", "place"),
    [
        ("event=nothing", 422, "invalid_filter", "event"),
        ("event=gap", 422, "invalid_filter", "event"),
        ("queue=a%20b", 400, "invalid_parameter", "queue"),
        ("queue=a.dlq", 400, "invalid_parameter", "queue"),
        ("since=x", 400, "invalid_parameter", "since"),
        ("until=-1", 400, "invalid_parameter", "until"),
        ("limit=0", 400, "invalid_parameter", "limit"),
        ("limit=1001", 400, "invalid_parameter", "limit"),
        ("cursor=x", 400, "invalid_parameter", "cursor"),
        ("cursor=%00", 400, "invalid_parameter", "cursor"),
        ("trace_id=x", 400, "invalid_parameter", "trace_id"),
        ("meta=ext.order", 400, "invalid_parameter", "meta"),
        ("meta=ext.order=", 400, "invalid_parameter", "meta"),
        ("meta=ext.other=x", 400, "invalid_parameter", "meta"),
        ("meta.ext.order=x", 400, "invalid_parameter", "meta.ext.order"),
    ],
)
def test_a_list_that_cannot_be(client, query, status, code, place):
    refused = problem(client().get(f"/messages?{query}"), status, code)
    assert refused["errors"][0]["parameter"] == place


@pytest.mark.parametrize("token", ["listener", "manager"])
def test_a_caller_sees_events_of_its_queues_only(client, queue, token):
    gateway, caller = client(), client(token)
    own, other = f"a-{queue}", f"b-{queue}"
    trace_id = f"trace of {queue}"
    mine = published(gateway, own, trace_id=trace_id)
    theirs = published(gateway, other, trace_id=trace_id)
    settled(gateway, own, "ack", received(gateway, own))
    found(caller, f"/messages/{mine['id']}", "accepted", "delivered", "acked")
    found(gateway, f"/messages/{theirs['id']}", "accepted")
    problem(caller.get(f"/messages/{theirs['id']}"), 404, "message_not_found")
    traced = caller.get(f"/traces/{quote(trace_id)}").json()
    assert [each["message_id"] for each in traced["messages"]] == [mine["id"]]
    problem(caller.get(f"/messages?queue={other}"), 403, "forbidden")
    listed = caller.get("/messages", params={"limit": 1000}).json()["events"]
    assert {each["queue"][:2] for each in listed} == {"a-"}
    for path in (f"/messages/{mine['id']}", f"/traces/{quote(trace_id)}", "/messages"):
        problem(client("sender").get(path), 403, "forbidden")


@pytest.fixture(params=["addresses", "directory"])
def two(request, tmp_path):
    """The URLs of two gateways on one broker, each with a journal of its own, that are peers by their addresses, or by
    a directory."""
    ports = [free_port(), free_port()]
    brokers = {"local": {"url": f"sqlite:///{tmp_path}/babelgate.db", "timeout_seconds": 30}}
    with contextlib.ExitStack() as stack:
        urls = []
        for n, port in enumerate(ports):
            found = config(
                tmp_path / f"gw-{n}",
                brokers=brokers,
                journal={"landing": str(tmp_path / f"gw-{n}" / "landed"), "node": f"gw-{n}", "meta": ["ext.order"]},
                token_keys=KEYS,
                peers={"listen": f"127.0.0.1:{port}", "addresses": [f"127.0.0.1:{each}" for each in ports]}
                if request.param == "addresses"
                else {"directory": str(tmp_path / "peers")},
            )
            host, own = stack.enter_context(serving(uvicorn_config(Served(found).build, found)))
            urls.append(f"http://{host}:{own}")
        yield urls


def test_what_another_gateway_did_is_found(two, queue):
    """A message that one accepted, and the other delivered: both tell the whole."""
    with contexts() as opened:
        one, other = map(opened, two)
        receipt = published(one, queue, meta={"ext": {"order": queue}})
        settled(other, queue, "ack", received(other, queue))
        for gateway in (one, other):
            whole = found(gateway, f"/messages/{receipt['id']}", "accepted", "delivered", "acked")
            assert [each["node"] for each in whole["events"]] == ["gw-0", "gw-1", "gw-1"]
            assert [each["node"] for each in whole["searched"]["gateways"]] == ["gw-0", "gw-1"]
            assert whole["searched"]["silent"] == []
            listed = found(gateway, f"/messages?meta=ext.order={queue}", "delivered", "accepted")
            assert [each["node"] for each in listed["events"]] == ["gw-1", "gw-0"]


def test_a_gateway_that_is_gone_is_told_of(tmp_path, queue):
    gone = f"127.0.0.1:{free_port()}"
    settings_ = config(
        tmp_path / "gw", token_keys=KEYS, peers={"listen": f"127.0.0.1:{free_port()}", "addresses": [gone]}
    )
    with serving(uvicorn_config(Served(settings_).build, settings_)) as (host, port), contexts() as opened:
        gateway = opened(f"http://{host}:{port}")
        receipt = published(gateway, queue)
        whole = found(gateway, f"/messages/{receipt['id']}", "accepted")
        assert whole["searched"]["silent"] == [gone]
        assert f"No answer from {gone}." in problem(gateway.get("/messages/x"), 404, "message_not_found")["detail"]


def test_an_id_may_end_in_a_verb(client):
    """It is no verb there: the refusal is that of an unknown message."""
    gateway = client()
    for verb in ("purge", "redrive", "cancel", "resume", "validate"):
        for body in (b"", b"null", b"{}"):
            answer = gateway.request("GET", f"/messages/a:{verb}", content=body)
            problem(answer, 404, "message_not_found")


async def test_without_a_journal_it_is_a_problem(serve, connect):
    """It names the setting."""
    client = await connect(await serve())
    for path in ("/messages", "/messages/x", "/traces/x"):
        assert "journal.landing" in problem(await client.get(path), 404, "journal_disabled")["detail"]
