"""Pushes by the API: set, changed, paused, tested, removed; kept in ``state_dir``, and learned by other processes."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from babelgate.push.file import PushFile, StoredPush
from tests.harness.local import free_port
from tests.harness.problems import problem
from tests.harness.webhooks import SECRET, Post, answer, receiver
from tests.harness.webhooks import target as targeted
from tests.harness.world import until

ANYWHERE = {"allow_http": True, "allow_private": True}
DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}


@asynccontextmanager
async def live(app) -> AsyncIterator[None]:
    """The application between its start and its end, as a server runs it."""
    stop, started, sent = asyncio.Event(), asyncio.Event(), []

    async def receive():
        if started.is_set():
            await stop.wait()
        return {}

    async def send(message):
        sent.append(message["type"])
        started.set()

    task = asyncio.create_task(app({"type": "lifespan"}, receive, send))
    await asyncio.wait([task, waiting := asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert sent == ["lifespan.startup.complete"], sent
    try:
        yield
    finally:
        stop.set()
        await task
        await waiting


@pytest.fixture
def process(serve, connect):
    """A function of configuration keys that is a process, and its client."""

    @asynccontextmanager
    async def process(**config):
        app = await serve(started=False, **({"push": ANYWHERE} | config))
        async with live(app):
            yield await connect(app)

    return process


def target(url: str, **more):
    return {"url": url, "secrets": [SECRET], **more}


async def test_a_push_from_its_first_to_its_last_call(process, queue, tmp_path):
    path = f"/queues/{queue}/push"
    async with receiver() as server, process() as client:
        problem(await client.get(path), 404, "push_not_found")
        problem(await client.delete(path), 404, "push_not_found")
        problem(await client.post(f"{path}:pause"), 404, "push_not_found")
        url = f"{server.url}?key=sesame"
        made = await client.put(path, json=target(url, headers={"X-Token": "sesame"}))
        assert made.status_code == 200
        assert made.json()["source"] == "api"
        assert made.json()["target"] == {
            "url": f"{server.url}?key=***",
            "body": "envelope",
            "max_messages": None,
            "concurrency": 10,
            "per_second": None,
            "timeout_seconds": 30,
            "reject_statuses": [410],
            "headers": ["x-token"],
            "secrets": 1,
        }
        await client.post(f"/queues/{queue}/messages", json=DRAFT)
        (post,) = await server.arrived(1)
        assert (post.path, post.headers["x-token"]) == ("/hook?key=sesame", "sesame")
        kept = tmp_path / "pushes" / "pushes.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        # Another target takes over at once, without the secret of the first.
        await client.put(path, json=target(f"{server.url}/2", body="data"))
        await client.post(f"/queues/{queue}/messages", json=DRAFT)
        assert [each.path for each in await server.arrived(2)] == ["/hook?key=sesame", "/hook/2"]
        assert b"sesame" not in kept.read_bytes()
        assert (await client.delete(path)).json() == {"queue": queue, "removed": True, "told": 0, "silent": []}
        problem(await client.get(path), 404, "push_not_found")
        await client.post(f"/queues/{queue}/messages", json=DRAFT)
        taken = await client.post(f"/queues/{queue}/messages:receive", json={"wait_seconds": 30})
        assert len(taken.json()["messages"]) == 1
    assert len(server.posts) == 2


async def test_a_push_goes_on_when_its_file_is_read_again(process, queue, tmp_path):
    path = f"/queues/{queue}/push"
    async with receiver() as server, process() as client:
        await client.put(path, json=target(server.url, headers={"x": "y"}))
        await client.post(f"/queues/{queue}/messages", json=DRAFT)

        async def acked() -> bool:
            return (await client.get(path)).json()["state"]["outcomes"]["acked"] == 1

        async def learned() -> bool:
            return (await client.get(f"/queues/{queue}.2/push")).status_code == 200

        await until(acked)
        other = StoredPush(targeted(server.url), paused=True)
        PushFile(tmp_path / "pushes").change(lambda stored: stored | {f"{queue}.2": other})
        await until(learned)
        assert await acked(), "the push began anew"


async def test_a_pause_outlives_the_process_and_keeps_the_messages(process, queue):
    path = f"/queues/{queue}/push"
    async with receiver() as server:
        async with process() as client:
            await client.put(path, json=target(server.url))
            paused = (await client.post(f"{path}:pause")).json()
            assert (paused["paused"], paused["state"]) == (True, None)
        async with process() as client:
            assert (await client.get(path)).json()["paused"] is True
            await client.post(f"/queues/{queue}/messages", json=DRAFT)
            assert (await client.get(f"/queues/{queue}")).json()["stats"]["depth"] == 1
            # A new target does not end the pause.
            assert (await client.put(path, json=target(server.url))).json()["paused"] is True
            assert server.posts == []
            resumed = (await client.post(f"{path}:resume")).json()
            assert (resumed["paused"], resumed["state"]["circuit"]) == (False, "closed")
            await server.arrived(1)


async def test_every_process_of_the_directory_learns_a_change(process, queue):
    path = f"/queues/{queue}/push"

    async def pushes(client) -> bool:
        found = await client.get(path)
        return found.status_code == 200 and found.json()["state"] is not None

    async def ended(client) -> bool:
        return not await pushes(client)

    async with receiver() as server, process() as one, process() as other:
        await one.put(path, json=target(server.url))
        await until(lambda: pushes(other))
        await other.delete(path)
        await until(lambda: ended(one))


async def test_a_push_of_the_configuration_is_only_paused(process, queue):
    path = f"/queues/{queue}/push"
    async with receiver() as server:
        queues = {queue: {"broker": "local", "push": target(server.url)}}
        async with process(queues=queues) as client:
            assert (await client.get(path)).json()["source"] == "configuration"
            problem(await client.put(path, json=target(server.url)), 409, "push_configured")
            problem(await client.delete(path), 409, "push_configured")
            assert (await client.post(f"{path}:pause")).json()["paused"] is True
            await client.post(f"/queues/{queue}/messages", json=DRAFT)
            assert (await client.post(f"{path}:resume")).json()["paused"] is False
            await server.arrived(1)


async def test_failures_are_shown(process, queue):
    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(410, b"no such\x1b[31m order")

    path = f"/queues/{queue}/push"
    async with receiver(script) as server, process() as client:
        await client.put(path, json=target(server.url))
        receipt = (await client.post(f"/queues/{queue}/messages", json=DRAFT)).json()

        async def state():
            return (await client.get(path)).json()["state"]

        async def has_failed() -> bool:
            return bool((await state())["failures"])

        await until(has_failed)
        found = await state()
        assert found["outcomes"] == {"acked": 0, "nacked": 0, "rejected": 1, "held": 0, "unreachable": 0}
        (failure,) = found["failures"]
        assert failure.pop("at") > 1_700_000_000_000
        assert failure == {
            "webhook_id": receipt["id"],
            "status": 410,
            "code": "status",
            "detail": "HTTP 410: no such [31m order",
        }


async def test_an_open_circuit_needs_attention_and_is_in_the_metrics(process, queue):
    path = f"/queues/{queue}/push"
    words = f"Messages of the queue '{queue}' are not pushed for a while: the target could not be reached."
    async with receiver() as server, process() as client:

        async def shows(value: str) -> bool:
            lines = (await client.get("/metrics")).text.splitlines()
            return f'babelgate_open_push_circuits{{broker="local",queue="{queue}"}} {value}' in lines

        async def concerns() -> list[str]:
            found = (await client.get("/rates")).json()["attention"]
            return [each["detail"] for each in found if (each["kind"], each["queue"]) == ("push_circuit_open", queue)]

        await client.put(path, json=target(f"http://127.0.0.1:{free_port()}/"))
        await until(lambda: shows("0.0"))
        assert await concerns() == []
        await client.post(f"/queues/{queue}/messages", json=DRAFT)
        await until(lambda: shows("1.0"))
        assert await concerns() == [words]
        await client.put(path, json=target(server.url))
        await server.arrived(1)
        await until(lambda: shows("0.0"))
        assert await concerns() == []


async def test_a_test_call_tells_the_answer_and_touches_no_message(process, queue):
    path = f"/queues/{queue}/push"
    async with receiver() as server, process() as client:
        problem(await client.post(f"{path}:test"), 404, "push_not_found")
        await client.put(path, json=target(server.url))
        await client.post(f"{path}:pause")
        tested = (await client.post(f"{path}:test")).json()
        assert (tested["status"], tested["detail"]) == (204, "")
        (post,) = server.posts
        assert post.id == tested["webhook_id"]
        assert post.data == {"test": True}
        await client.put(path, json=target(f"http://127.0.0.1:{free_port()}/"))
        tested = (await client.post(f"{path}:test")).json()
        assert tested["status"] is None
        assert tested["detail"]


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"url": "http://shop.example/"}, "/url", "unless push.allow_http is set"),
        ({"url": "https://169.254.169.254/"}, "/url", "link-local"),
        ({"url": "gopher://shop.example/"}, "/url", "must be a URL such as https://"),
        ({"url": 5}, "/url", "must be"),
        ({"secrets": ["sesame"]}, "/secrets/0", "must be whsec_ followed by base64"),
        ({"secrets": []}, "/secrets", "must be a list of 1 to 8 items"),
        ({"concurrency": "5"}, "/concurrency", "must be a whole number"),
        ({"concurrency": 1001}, "/concurrency", "1000"),
        ({"timeout_seconds": 0}, "/timeout_seconds", "0.1"),
        ({"headers": {"Host": "x"}}, "/headers", "the gateway sets the header host itself"),
        ({"allow_private": True}, "/allow_private", "unknown name"),
    ],
)
async def test_a_bad_target_is_refused_by_its_place(process, queue, body, pointer, words):
    async with process(push={}) as client:
        refused = await client.put(f"/queues/{queue}/push", json=target("https://shop.example/") | body)
        found = problem(refused, 400, "invalid_parameter")
        assert [each["pointer"] for each in found["errors"]] == [pointer]
        assert words in found["detail"]
        assert "sesame" not in refused.text
        problem(await client.get(f"/queues/{queue}/push"), 404, "push_not_found")


async def test_what_the_configuration_no_longer_allows_is_not_pushed(process, queue):
    path = f"/queues/{queue}/push"
    async with receiver() as server:
        async with process() as client:
            await client.put(path, json=target(server.url))
        async with process(push={"allow_private": True}) as client:
            assert (await client.get(path)).json()["state"] is None
            await client.post(f"/queues/{queue}/messages", json=DRAFT)
            assert (await client.get(f"/queues/{queue}")).json()["stats"]["depth"] == 1
    assert server.posts == []


async def test_the_right_to_manage_is_needed(process, queue):
    rights = {"all": ["send", "listen", "manage"], "some": ["send", "listen"]}
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": {"*": given}}
        for name, given in rights.items()
    ]
    path = f"/queues/{queue}/push"
    async with process(auth={"tokens": tokens}) as client:
        some, every = ({"headers": {"authorization": f"Bearer {name}"}} for name in ("some", "all"))
        for verb in ("pause", "resume", "test"):
            problem(await client.post(f"{path}:{verb}", **some), 403, "forbidden")
            problem(await client.get(f"{path}:{verb}", **every), 405, "method_not_allowed")
        problem(await client.get(path, **some), 403, "forbidden")
        problem(await client.delete(path, **some), 403, "forbidden")
        problem(await client.put(path, json=target("https://shop.example/"), **some), 403, "forbidden")
        problem(await client.post(path, **every), 405, "method_not_allowed")


async def test_a_queue_without_a_route_has_no_push(process, queue):
    async with process(queues={"other": {"broker": "local"}}) as client:
        problem(await client.put(f"/queues/{queue}/push", json=target("https://shop.example/")), 404, "queue_not_found")
