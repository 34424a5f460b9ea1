"""The configuration by HTTP: shown without secrets, and loaded again for those who may manage everything."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import threading

import msgspec
import pytest
import yaml

from babelgate.clock import now_ms
from babelgate.cluster.shared_configuration import Proposal
from babelgate.config.origin import Origin
from babelgate.config.settings import load
from babelgate.gateway import superseded
from babelgate.server.reload import Reload
from tests.harness import issuer as issuers
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding
from tests.harness.problems import problem
from tests.harness.webhooks import SECRET

EVERYTHING = {"*": ["manage"]}
PUSH = {"url": "https://example.com/in?key=PLANTED", "headers": {"authorization": "PLANTED"}, "secrets": [SECRET]}


@pytest.fixture
async def running(serve, connect, token_config, tmp_path):
    """An application that can load its file again: a function of the change of the file, and clients by name."""
    loaded = []

    class Running:
        def __init__(self):
            self.path = tmp_path / "babelgate.yaml"
            self.auth = token_config(boss=EVERYTHING, some={"a*": ["manage"]}, worker={"*": ["send", "listen"]})

        async def start(self, **config):
            self.app = await serve(default={"broker": "local"}, auth=self.auth, **config)
            self.reload = Reload(self.app.live, load(self.path, {}), Origin(self.path, {}))
            loaded.append(self.reload)
            return await connect(self.app, "boss")

        def edit(self, **changes):
            self.path.write_text(yaml.safe_dump({**yaml.safe_load(self.path.read_text()), **changes}))

    yield Running()
    for each in loaded:
        await each.close()


async def test_a_changed_file_is_served(running):
    boss = await running.start()
    before = (await boss.get("/config")).raise_for_status().json()
    assert (before["version"], before["refused"], before["changed"]) == (1, None, [])
    assert before["settings"]["default"]["max_attempts"] != 9
    running.edit(default={"broker": "local", "max_attempts": 9})
    answer = (await boss.post("/config:reload")).raise_for_status().json()
    assert (answer["version"], answer["changed"]) == (2, ["default.max_attempts"])
    after = (await boss.get("/config")).json()
    assert after["settings"]["default"]["max_attempts"] == 9
    assert {name: after[name] for name in answer} == answer
    assert after["digest"] != before["digest"] and after["loaded_at"] >= before["loaded_at"]
    again = (await boss.post("/config:reload")).json()
    assert (again["version"], again["changed"], again["digest"]) == (3, [], answer["digest"])


@pytest.mark.parametrize(
    ("change", "status", "code", "key"),
    [
        ({"port": 9_999}, 409, "restart_needed", "port"),
        ({"default": {"broker": "nowhere"}}, 422, "config_invalid", "default.broker"),
        ({"no_such_section": 1}, 422, "config_invalid", "no_such_section"),
    ],
)
async def test_a_file_that_is_refused_changes_nothing(running, change, status, code, key):
    boss = await running.start()
    before = (await boss.get("/config")).json()
    running.edit(**change)
    found = problem(await boss.post("/config:reload"), status, code)
    assert found["detail"].startswith(f"{key}: ") and not found["retryable"]
    assert found["errors"][0] == {"pointer": "", "code": code, "detail": found["detail"]}
    after = (await boss.get("/config")).json()
    refused = after.pop("refused")
    assert after | {"refused": None} == before
    assert (refused["cause"], refused["faults"][0]["key"]) == ("http", key)
    assert f"{key}: {refused['faults'][0]['reason']}" == found["detail"]


async def test_several_workers_are_told_apart(running):
    boss = await running.start(workers=2)
    found = problem(await boss.post("/config:reload"), 409, "reload_unavailable")
    assert "cannot reach each other" in found["detail"]


async def test_without_a_file_there_is_nothing_to_load(serve, connect, token_config):
    boss = await connect(await serve(auth=token_config(boss=EVERYTHING)), "boss")
    assert (await boss.get("/config")).json()["version"] == 1
    problem(await boss.post("/config:reload"), 409, "reload_unavailable")


async def test_no_secret_is_shown(running):
    boss = await running.start(
        queues={"hooks": {"broker": "local", "push": PUSH}},
        token_keys=[{"id": "a", "secret": "PLANTED and long enough to be one"}],
    )
    text = (await boss.get("/config")).raise_for_status().text
    assert "hooks" in text and "PLANTED" not in text and SECRET not in text
    for token in running.auth["tokens"]:
        assert token["sha256"] not in text and token["name"] in text


@pytest.mark.parametrize(("method", "path"), [("GET", "/config"), ("POST", "/config:reload")])
async def test_it_needs_manage_on_everything(running, connect, method, path):
    boss = await running.start()
    problem(await (await connect(running.app)).request(method, path), 401, "unauthenticated")
    for name in ("some", "worker"):
        problem(await (await connect(running.app, name)).request(method, path), 403, "forbidden")
    assert (await boss.request(method, path)).status_code == 200


async def test_the_trail_names_the_caller(running, tmp_path):
    boss = await running.start(audit={"directory": str(tmp_path / "trail")})
    await running.app.live.audit.start()
    try:
        running.edit(default={"broker": "local", "max_attempts": 9})
        (await boss.post("/config:reload")).raise_for_status()
        running.edit(port=9_999)
        problem(await boss.post("/config:reload"), 409, "restart_needed")
    finally:
        await running.app.live.audit.close()
    lines = [json.loads(line) for path in (tmp_path / "trail").iterdir() for line in path.read_text().splitlines()]
    records = [each for each in lines if each.get("kind") == "configuration"]
    assert [each["caller"] for each in records] == ["boss", "boss"]
    assert records[0]["details"]["changed"] == ["default.max_attempts"]
    assert records[1]["details"]["refused"][0].startswith("port: ")


async def test_a_signal_is_ignored_until_the_process_serves(running):
    await running.start()
    before = asyncio.all_tasks()
    running.reload.begin("SIGHUP")
    assert asyncio.all_tasks() == before
    await running.reload.start()
    running.reload.begin("SIGHUP")
    await eventually(lambda: running.reload.loaded.version == 2)
    await running.reload.close()
    before = asyncio.all_tasks()
    running.reload.begin("SIGHUP")
    assert asyncio.all_tasks() == before


async def test_what_fails_while_it_is_prepared_counts_as_refused_and_opens_no_broker(running, tmp_path):
    class Failing(MemoryBinding):
        lists_foreign = False

        async def queues(self):
            raise RuntimeError("it is a test")

    await running.start()
    running.app.gateway.bindings["failing"] = Failing("failing")
    brokers = yaml.safe_load(running.path.read_text())["brokers"]
    running.edit(brokers={**brokers, "leaking": {"url": f"sqlite:///{tmp_path}/leaking.db"}})
    with pytest.raises(RuntimeError, match="it is a test"):
        await running.reload.reload("a test")
    assert not (tmp_path / "leaking.db").exists()
    assert not [each for each in threading.enumerate() if each.name.startswith("sqlite-leaking") and each.is_alive()]
    assert running.reload.loaded.counts == {"refused": 1}
    assert running.reload.loaded.refusal.problems == [("config", "was not loaded: RuntimeError")]


async def test_a_queue_that_is_first_used_during_a_load_is_kept_before_anything_waits(running, tmp_path):
    class Cancelled:
        async def configure(self, targets, guard):
            raise asyncio.CancelledError

    boss = await running.start()
    running.auth["tokens"][0]["rights"] = {"*": ["manage", "send"]}
    running.edit(auth=running.auth)
    await running.reload.reload("a test")
    brokers = yaml.safe_load(running.path.read_text())["brokers"]
    brokers["two"] = {"url": f"sqlite:///{tmp_path}/two.db"}
    running.edit(brokers=brokers, default={"broker": "two"})
    settings = load(running.path, {})
    ready = await running.reload.prepare(settings)
    assert (await boss.post("/queues/late/messages", json={"job": "x", "data": {}})).status_code == 201
    stopped = Reload(msgspec.structs.replace(running.app.live, pushes=Cancelled()), settings, Origin(running.path, {}))
    with pytest.raises(asyncio.CancelledError):
        await stopped.apply(ready, Proposal("", 2, "", "a test"))
    kept = json.loads((settings.state_dir / "former_routes.json").read_text())
    assert [(each["queue"], each["broker"]) for each in kept] == [("late", "local")]


async def test_an_edit_during_the_start_is_seen_by_the_watch(running):
    await running.start(reload={"watch": True})
    origin = Origin(running.path, {})
    settings = origin.load()
    running.edit(default={"broker": "local", "max_attempts": 9})
    watching = Reload(running.app.live, settings, origin)
    await watching.start()
    try:
        await eventually(lambda: watching.loaded.version == 2)
        assert watching.loaded.changed == ["default.max_attempts"]
    finally:
        await watching.close()


async def test_the_watch_goes_on_after_too_many_open_files(running):
    class Failing(Origin):
        fails = True

        def digest(self):
            if Failing.fails:
                Failing.fails = False
                raise OSError(errno.EMFILE, "too many open files")
            return super().digest()

    await running.start(reload={"watch": True})
    watching = Reload(running.app.live, load(running.path, {}), Failing(running.path, {}))
    await watching.start()
    try:
        await eventually(lambda: watching.loaded.version == 2)
        assert not Failing.fails
    finally:
        await watching.close()


async def test_issuers_come_change_and_go(running, connect):
    with issuers.running() as issuer:
        boss = await running.start()
        token = issuer.token(groups=["shop"])
        headers = {"authorization": f"Bearer {token}"}
        client = await connect(running.app)

        async def load(*sections):
            running.edit(auth={**running.auth, **({"issuers": list(sections)} if sections else {})})
            (await boss.post("/config:reload")).raise_for_status()

        async def publish():
            return await client.post("/queues/mails/messages", json={"job": "x", "data": {}}, headers=headers)

        def section(right, **more):
            rights = [{"claim": "groups", "value": "shop", "grant": {"mails": [right]}}]
            return {"issuer": issuer.url, "audience": issuers.AUDIENCE, "rights": rights, **more}

        problem(await publish(), 401, "unauthenticated")
        await load(section("send"))
        assert (await publish()).status_code == 201
        caller = running.app.live.auth.callers[hashlib.sha256(token.encode()).hexdigest()]
        running.edit(default={"broker": "local", "max_attempts": 9})
        await load(section("send"))
        assert not caller.has_ended(now_ms()), "the issuer is as before"
        await load(section("listen"))
        assert caller.has_ended(now_ms())
        problem(await publish(), 403, "forbidden")
        await load(section("send"))
        assert (await publish()).status_code == 201
        await load()
        problem(await publish(), 401, "unauthenticated")


async def test_limits_count_at_once(running):
    boss = await running.start()

    async def publish(size=0, depth=0):
        data = {"text": "x" * size}
        for _ in range(depth):
            data = {"deeper": data}
        return await boss.post("/queues/mails/messages", json={"job": "x", "data": data})

    async def load(**limits):
        running.edit(limits=limits)
        (await boss.post("/config:reload")).raise_for_status()

    running.auth["tokens"][0]["rights"] = {"*": ["manage", "send"]}
    running.edit(auth=running.auth)
    await load()
    assert (await publish(size=20_000)).status_code == 201
    await load(max_message_bytes=10_000)
    problem(await publish(size=20_000), 413, "body_too_large")
    await load()
    assert (await publish(size=20_000, depth=20)).status_code == 201
    await load(max_depth=10)
    problem(await publish(depth=20), 422, "too_deep")
    assert (await publish(depth=2)).status_code == 201
    await load(max_publishes_in_flight=7)
    assert running.app.gateway.admission._publishes.limit == 7


async def test_a_replaced_connection_to_the_same_server_is_closed(running, tmp_path, monkeypatch):
    """No queue is on the broker: its configuration alone says which server it is."""
    monkeypatch.setattr(superseded, "REST_SECONDS", 0)
    boss = await running.start()
    brokers = yaml.safe_load(running.path.read_text())["brokers"]

    async def left(file, seconds):
        spare = {"url": f"sqlite:///{tmp_path}/{file}.db", "timeout_seconds": seconds}
        running.edit(brokers={**brokers, "spare": spare})
        (await boss.post("/config:reload")).raise_for_status()
        return len(running.app.gateway.former.open_bindings)

    assert await left("here", 5) == 0
    first = running.app.gateway.bindings["spare"]
    assert await left("here", 6) == 0
    assert running.app.gateway.bindings["spare"] is not first
    assert await left("there", 6) == 1
