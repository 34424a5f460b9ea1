"""Gateways with directories of their own agree on the pushes that calls have set, whoever was away."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from babelgate.brokers import registry
from babelgate.clock import now_ms
from babelgate.cluster.sealing import PeerCipher
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.gateway.spreading import Heard
from babelgate.push.errors import PushNotFound, TooManyPushes
from babelgate.push.file import MAX_REMOVED, NOTHING, PushFile, Stored, StoredPush, Version, merged
from babelgate.push.pushes import Pushes
from babelgate.push.transport import Poster
from tests.harness.webhooks import ANYWHERE, target
from tests.harness.world import KEYS, until

URL = "http://127.0.0.1:9/hook"


class Others:
    """The processes that are up, with what they said last."""

    def __init__(self) -> None:
        self.up: dict[str, Pushes] = {}
        self.silent: list[str] = []

    def of(self, name: str) -> Peers:
        return Peers(self, name)


class Peers:
    def __init__(self, others: Others, name: str) -> None:
        self._others = others
        self._name = name

    async def newer(self, versions: Mapping[str, Version], changed: Stored = NOTHING) -> Heard[Stored]:
        found = [each for name, each in self._others.up.items() if name != self._name]
        for each in found:
            if changed:
                await each.learn(changed)
        return Heard([each.newer(versions) for each in found], len(found), self._others.silent)

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def process(
    others: Others, name: str, directory: Path, ahead_ms: int = 0, make_poster: Callable[..., Poster] = Poster
) -> AsyncIterator[Pushes]:
    """One process, with its own file. ``ahead_ms``: of its clock."""

    def clock() -> int:
        return now_ms() + ahead_ms

    binding = registry.connect("local", f"sqlite:///{directory}/{name}.db", {"timeout_seconds": 30}, now_ms)
    made = Gateway({"local": binding}, Router([], Rule("*", binding, Policy())), TokenSealer(KEYS), clock=clock)
    await made.start()
    pushes = Pushes(made, {}, ANYWHERE, lambda *post: None, PushFile(directory / name), others.of(name), make_poster)
    await pushes.start()
    others.up[name] = pushes
    try:
        yield pushes
    finally:
        del others.up[name]
        await pushes.close()
        await made.close()


def url_at(pushes: Pushes, queue: str = "q") -> str | None:
    try:
        return pushes.info(ANYONE, queue).target.url
    except PushNotFound:
        return None


async def has(pushes: Pushes, url: str | None) -> None:
    async def learned() -> bool:
        return url_at(pushes) == url

    await until(learned)


async def test_a_push_a_pause_and_a_removal_reach_the_others(tmp_path: Path) -> None:
    others = Others()
    async with process(others, "one", tmp_path) as one, process(others, "two", tmp_path) as two:
        await one.put(ANYONE, "q", target(URL))
        await has(two, URL)
        assert two.running["q"].target == one.running["q"].target
        await two.set_paused(ANYONE, "q", True)

        async def is_paused() -> bool:
            return one.info(ANYONE, "q").paused and not one.running

        await until(is_paused)
        await one.delete(ANYONE, "q")
        await has(two, None)
        with pytest.raises(PushNotFound):
            await two.delete(ANYONE, "q")


async def test_a_change_returns_once_the_others_know_it(tmp_path: Path) -> None:
    others = Others()
    async with process(others, "one", tmp_path) as one, process(others, "two", tmp_path) as two:
        others.silent = ["10.0.0.9:7000"]
        heard = (await one.put(ANYONE, "q", target(URL))).heard
        assert (url_at(two), heard.told, heard.silent) == (URL, 1, others.silent)
        await two.set_paused(ANYONE, "q", True)
        assert one.info(ANYONE, "q").paused
        others.silent = []
        heard = await one.delete(ANYONE, "q")
        assert (url_at(two), heard.told, heard.silent) == (None, 1, [])


async def test_what_was_removed_does_not_come_back_from_one_that_was_away(tmp_path: Path) -> None:
    others = Others()
    async with process(others, "one", tmp_path) as one:
        async with process(others, "two", tmp_path) as two:
            await one.put(ANYONE, "q", target(URL))
            await has(two, URL)
        await one.delete(ANYONE, "q")
        async with process(others, "two", tmp_path) as two:
            assert url_at(two) is None, "it has asked before it pushed"
            assert not two.running
        assert url_at(one) is None
        # The last one that knows of the removal is away, too.
        assert PushFile(tmp_path / "two").read()["q"].target is None


async def test_a_kept_change_that_could_not_be_applied_is_applied_soon(tmp_path: Path) -> None:
    others = Others()
    failed: list[str] = []

    def failing_once(name: str) -> Callable[..., Poster]:
        def poster(*arguments: Any, **options: Any) -> Poster:
            if name not in failed:
                failed.append(name)
                raise OSError(24, "Too many open files")
            return Poster(*arguments, **options)

        return poster

    async with (
        process(others, "one", tmp_path, make_poster=failing_once("one")) as one,
        process(others, "two", tmp_path, make_poster=failing_once("two")) as two,
    ):
        with pytest.raises(OSError, match="Too many open files"):
            await one.put(ANYONE, "q", target(URL))
        for each in (one, two):
            await until(partial(is_pushed, each))
    assert {*failed} == {"one", "two"}


async def is_pushed(pushes: Pushes) -> bool:
    return "q" in pushes.running


async def test_a_change_counts_whatever_the_clocks_say(tmp_path: Path) -> None:
    others = Others()
    async with process(others, "ahead", tmp_path, 3_600_000) as ahead, process(others, "two", tmp_path) as two:
        await ahead.put(ANYONE, "q", target(URL))
        await has(two, URL)
        await two.put(ANYONE, "q", target(f"{URL}/2"))
        await has(ahead, f"{URL}/2")


async def test_removals_do_not_count_as_pushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.push.pushes.MAX_PUSHES", 1)
    async with process(Others(), "one", tmp_path) as one:
        for queue in ("p", "q"):
            await one.put(ANYONE, queue, target(URL))
            await one.put(ANYONE, queue, target(f"{URL}/2"))
            with pytest.raises(TooManyPushes):
                await one.put(ANYONE, "r", target(URL))
            await one.delete(ANYONE, queue)


def test_the_newer_change_counts_and_the_oldest_removals_are_forgotten() -> None:
    old, new = StoredPush(paused=True, at=1, change="b"), StoredPush(target(URL), at=1, change="c")
    assert merged({"q": old}, {"q": new}) == merged({"q": new}, {"q": old}) == {"q": new}
    removed = {f"q{number}": StoredPush(at=number + 1) for number in range(MAX_REMOVED + 2)}
    found = merged({"set": StoredPush(paused=True, at=1)}, removed)
    assert len(found) == MAX_REMOVED + 1
    assert "set" in found and not {"q0", "q1"} & found.keys()


def test_a_file_of_before_versions_is_older_than_any_change() -> None:
    read = msgspec.json.decode(b'{"q":{"target":null,"paused":true}}', type=Stored)
    assert merged(read, {"q": StoredPush(at=1)})["q"].paused is False


def test_what_peers_tell_is_readable_with_their_key_only() -> None:
    cipher, other = (PeerCipher([TokenKey("k", secret * 32)]) for secret in (b"1", b"2"))
    sealed = cipher.seal(b"whsec_secret")
    assert b"whsec_secret" not in sealed.encode()
    assert cipher.seal(b"whsec_secret") != sealed
    rotated = PeerCipher([TokenKey("new", b"3" * 32), TokenKey("k", b"1" * 32)])
    assert rotated.open(sealed) == b"whsec_secret"
    for each, text in (
        (other, sealed),
        (cipher, rotated.seal(b"")),
        (cipher, sealed[:-8]),
        (cipher, "k:?"),
        (cipher, ""),
    ):
        with pytest.raises(ValueError):
            each.open(text)
