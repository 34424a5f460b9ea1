"""Posts to receivers that answer as they should not, and to addresses that a push must not reach."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from babelgate.push import transport
from babelgate.push.addresses import AddressGuard
from babelgate.push.transport import (
    MAX_RETRY_AFTER_SECONDS,
    Answer,
    NoAnswer,
    NotConnected,
    Resolve,
    authorities,
    retry_after,
)
from tests.harness.local import free_port
from tests.harness.webhooks import Post, Script, answer, poster, receiver

SOON = 0.5
"""A time-out that a test waits for."""


def saying(*pieces: bytes, pause: float = 0, times: int = 1, stay: bool = True) -> Script:
    """A script that writes pieces, ``times`` over, and then nothing more. ``stay``: the connection stays open."""
    # A task that waits for what nobody else refers to may be collected.
    never = asyncio.Event()

    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes | None:
        for _ in range(times):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        if stay:
            await never.wait()
        return None

    return script


async def posted(script: Script | None, seconds: float = 60) -> Answer:
    async with receiver(script) as server, poster(server.url, seconds=seconds) as made:
        return await made.post([("content-type", "application/json")], b"{}")


async def test_the_answer_and_the_connection_are_used_again() -> None:
    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(201, b"taken\r\nthanks")

    async with receiver(script) as server, poster(server.url) as made:
        for _ in range(3):
            assert await made.post([("x-a", "b")], b'{"n":1}') == Answer(201, None, "taken thanks")
    assert [(post.path, post.body, post.headers["x-a"]) for post in server.posts] == [("/hook", b'{"n":1}', "b")] * 3
    assert server.posts[0].headers["host"] == f"127.0.0.1:{server.port}"
    assert server.connections == 1


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "excerpt"),
    [
        (saying(HEAD + b"short", stay=False), ""),
        (saying(HEAD + b"short"), ""),
        (saying(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1000, times=1000, pause=0), "x" * 200),
        (saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), ""),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), "abc"),
    ],
    ids=["less than its length, closed", "less than its length, open", "endless", "broken chunks", "no gzip"],
)
async def test_a_status_that_was_read_counts_whatever_follows(
    script: Script, excerpt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "BODY_SECONDS", SOON)
    found = await posted(script)
    assert (found.status, found.excerpt[:200]) == (200, excerpt)


async def test_a_call_that_is_cancelled_after_the_head_returns_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    reads_body = asyncio.Event()

    async def excerpt(response: object) -> str:
        reads_body.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(transport, "_excerpt", excerpt)
    monkeypatch.setattr(transport, "BODY_SECONDS", 120)
    async with receiver(saying(HEAD + b"short")) as server, poster(server.url) as made:
        calling = asyncio.create_task(made.post([], b"{}"))
        await reads_body.wait()
        calling.cancel()
        assert (await calling).status == 200


async def test_a_path_is_posted_to_as_it_is_written() -> None:
    async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
        return answer(200)

    async with receiver(script) as server:
        async with poster(f"http://127.0.0.1:{server.port}/hook;v=1?x=a;b") as made:
            await made.post([], b"{}")
        assert server.posts[0].path == "/hook;v=1?x=a;b"


@pytest.mark.parametrize(
    "script",
    [
        saying(stay=True),
        saying(b"HTTP/1.1 100 Continue\r\n\r\n", times=10_000, pause=0.01),
        saying(b"X: y\r\n", times=10_000, pause=0.01),
        saying(b"HTTP/1.1 200 OK\r\n", b"X-Filler: " + b"x" * 1000 + b"\r\n", times=1),
    ],
    ids=["silent", "endless 100", "no HTTP, slowly", "no end of the head"],
)
async def test_a_receiver_that_does_not_finish_a_head_gives_no_answer_in_time(script: Script) -> None:
    with pytest.raises(NoAnswer):
        await posted(script, SOON)


@pytest.mark.parametrize(
    "script",
    [
        saying(stay=False),
        saying(b"HTTP/1.1 200 OK\r\nX: ", stay=False),
        saying(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(20_000))),
        saying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ],
    ids=["reset", "reset in the head", "endless head", "another protocol"],
)
async def test_a_broken_head_is_no_answer(script: Script) -> None:
    with pytest.raises(NoAnswer):
        await posted(script)


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with receiver() as inside:

        async def script(post: Post, writer: asyncio.StreamWriter) -> bytes:
            return answer(307, Location=inside.url)

        assert (await posted(script)).status == 307
        assert inside.posts == []


async def test_a_port_without_a_listener_is_no_connection() -> None:
    async with poster(f"http://127.0.0.1:{free_port()}/") as made:
        with pytest.raises(NotConnected) as raised:
            await made.post([], b"{}")
    assert "Errno" not in str(raised.value)


async def test_a_host_without_an_address_is_told_in_words() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with poster("http://nowhere.example/", resolve=resolve) as made:
        with pytest.raises(NotConnected, match=r"^Name or service not known$"):
            await made.post([], b"{}")


async def test_a_receiver_that_does_not_speak_tls_is_no_connection() -> None:
    async with receiver() as server, poster(f"https://127.0.0.1:{server.port}/") as made:
        with pytest.raises(NotConnected):
            await made.post([], b"{}")
    assert server.posts == []


@pytest.mark.parametrize(("scheme", "reads"), [("http", 0), ("HTTP", 0), ("https", 1), ("HTTPS", 1)])
async def test_authorities_are_read_once_and_only_for_tls(scheme: str, reads: int) -> None:
    authorities.cache_clear()
    for number in range(3):
        async with poster(f"{scheme}://127.0.0.1/{number}"):
            pass
    assert authorities.cache_info().misses == reads
    assert authorities.cache_info().hits == 2 * reads


def resolving(*answers: Sequence[str]) -> Resolve:
    """A name server that gives these answers, one after the other; the last for ever."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
async def test_a_name_of_the_loopback_is_refused_at_the_connection(address: str) -> None:
    async with receiver() as server:
        url = f"http://rebound.example:{server.port}/"
        async with poster(url, AddressGuard(allow_http=True), resolve=resolving([address])) as made:
            with pytest.raises(NotConnected, match="loopback address"):
                await made.post([], b"{}")
    assert server.connections == 0


async def test_a_name_that_rebinds_leads_to_the_address_that_was_checked() -> None:
    """The name is looked up once for a connection. The second answer is used by no one but the second connection, and
    is refused there."""
    async with receiver() as server:
        url = f"http://rebound.example:{server.port}/"
        names = resolving(["192.0.2.1"], ["127.0.0.1"])
        guard = AddressGuard(allow_http=True, networks=(ip_network("192.0.2.0/24"),))
        async with poster(url, guard, SOON, names) as made:
            with pytest.raises((NotConnected, NoAnswer)) as first:
                await made.post([], b"{}")
            assert "loopback" not in str(first.value)
            with pytest.raises(NotConnected, match=r"127\.0\.0\.1 is a loopback address"):
                await made.post([], b"{}")
    assert server.connections == 0


async def test_of_several_addresses_those_that_are_refused_are_left_out() -> None:
    async with receiver() as server:
        url = f"http://several.example:{server.port}/"
        guard = AddressGuard(allow_http=True, networks=(ip_network("127.0.0.0/8"),))
        async with poster(url, guard, resolve=resolving(["::1", "10.0.0.1", "127.0.0.1"])) as made:
            assert (await made.post([], b"{}")).status == 204
    assert server.posts[0].headers["host"] == f"several.example:{server.port}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (" 30 ", 30),
        ("9" * 5_000, MAX_RETRY_AFTER_SECONDS),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tue, 14 Nov 2023 22:10:20 GMT", 0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after(text, 1_700_000_000_000) == seconds
