"""The workers of one gateway agree on a configuration: what one refuses, none serves by."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from babelgate.cluster.asking import Answer, Asked
from babelgate.cluster.sealing import PeerCipher
from babelgate.cluster.shared_configuration import Proposal, SharedConfiguration
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.worker_metrics import ANSWER_SECONDS, Workers
from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from babelgate.gateway.loaded import ConfigurationAnswer, ConfigurationCall, Refusal, ReloadUnavailable
from babelgate.server import worker_group
from babelgate.server.server import _Supervisor
from babelgate.server.worker_group import WorkerGroup, settings_of
from tests.harness.local import eventually
from tests.harness.world import KEYS, SIGNER

TEXT = b'{"brokers": {"one": {"url": "redis://localhost"}}, "default": {"broker": "one"}}'


class Process:
    """``refuses``: a broker that only this worker cannot open, for example."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.version = 1
        self.prepared = self.dropped = 0
        self.told: list[str] = []

    async def prepare(self, settings: Settings) -> Settings:
        if self.refuses:
            raise ConfigError(key="brokers.new", reason="cannot be opened")
        self.prepared += 1
        return settings

    async def apply(self, ready: Settings, candidate: Proposal) -> None:
        self.version = candidate.version

    async def discard(self, ready: Settings) -> None:
        self.dropped += 1

    def refused_elsewhere(self, refusal: ConfigurationCall) -> None:
        self.told.append(refusal.cause)

    def tried(self, file: bytes | None) -> None:
        """It watches no file."""

    def served(self, code: str = "", problems: Sequence[tuple[str, str]] = ()) -> ConfigurationAnswer:
        return ConfigurationAnswer(self.version, "", 0, code, problems)


class Others(Workers):
    """The other workers, in this process."""

    groups: Sequence[WorkerGroup[Settings]] = ()
    silent_calls = 0
    """How many of the next calls the last of them does not answer."""

    @property
    def can_be_asked(self) -> bool:
        return True

    async def ask_all(
        self,
        method: str,
        path: str,
        body: bytes,
        decode: Callable[[bytes], Answer],
        seconds: float = ANSWER_SECONDS,
    ) -> dict[int, Asked[Answer]]:
        call = msgspec.json.decode(body, type=ConfigurationCall)
        answers = [msgspec.json.encode(await group.answer(call)) for group in self.groups]
        asked = {number: Asked(decode(answer), "up") for number, answer in enumerate(answers, 1)}
        if self.silent_calls:
            self.silent_calls -= 1
            asked[len(asked)] = Asked(None, "silent", "no connection within 1 s")
        return asked


class Shared(SharedConfiguration):
    fails = False

    def accepted(self) -> Proposal | None:
        if self.fails:
            raise OSError(errno.EMFILE, "too many open files")
        return super().accepted()


class Site:
    def __init__(self, directory: Path, processes: Sequence[Process]) -> None:
        self.ended: list[int] = []
        self.shared = [Shared(directory, PeerCipher(KEYS)) for _ in processes]
        self.groups: list[WorkerGroup[Settings]] = []
        self.others = others = [Others("f" * 16, directory, SocketDirectory(directory), SIGNER) for _ in processes]
        for number, process in enumerate(processes):

            def end(number: int = number) -> None:
                self.ended.append(number)

            self.groups.append(WorkerGroup(self.shared[number], others[number], process, end=end))
        for number, each in enumerate(others):
            each.groups = [group for other, group in enumerate(self.groups) if other != number]

    async def agree(self) -> Proposal:
        async with self.groups[0].turn():
            return await self.groups[0].agree(TEXT, "a test", None)


async def test_what_one_worker_refuses_none_serves_by(tmp_path: Path) -> None:
    processes = [Process(), Process(), Process(refuses=True)]
    site = Site(tmp_path, processes)
    with pytest.raises(ConfigError, match=r"cannot be opened \(worker 2\)"):
        await site.agree()
    await site.groups[0].tell_refused(Refusal(0, "a test", []), None)
    assert site.shared[0].accepted() is None
    assert ([each.version for each in processes], [each.dropped for each in processes]) == ([1] * 3, [0, 1, 0])
    assert [each.told for each in processes] == [[], ["a test"], ["a test"]]
    processes[2].refuses = False
    await site.groups[0].tell_applied(await site.agree())
    # The first one switches by itself.
    assert ([each.version for each in processes], site.ended) == ([1, 2, 2], [])


async def test_a_worker_that_gives_no_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [Process(), Process(), Process()]
    site = Site(tmp_path, processes)
    site.others[0].silent_calls = 2
    accepted = await site.agree()
    assert [each.prepared for each in processes] == [0, 1, 1], "those that have prepared it do not once more"
    monkeypatch.setattr(worker_group, "AGAIN_SECONDS", 0.3)
    site.others[0].silent_calls = 1_000
    with pytest.raises(ReloadUnavailable, match="worker 2 gave no answer: no connection within 1 s"):
        await site.agree()
    assert site.shared[1].accepted() == accepted


async def test_a_worker_that_cannot_open_a_file_looks_again_and_one_that_cannot_prepare_ends(tmp_path: Path) -> None:
    processes = [Process(), Process(), Process()]
    site = Site(tmp_path, processes)
    await site.agree()
    processes[1].refuses = True
    site.shared[2].fails = True
    try:
        for group in site.groups[1:]:
            await group.close()
            await group.start()
        assert (set(site.ended), processes[2].version) == ({1}, 1)
        site.shared[2].fails = False
        await eventually(lambda: processes[2].version == 2)
        assert 2 not in site.ended
    finally:
        for group in site.groups:
            await group.close()


async def test_a_configuration_goes_as_plain_text_and_is_validated_again(tmp_path: Path) -> None:
    site = Site(tmp_path, [Process(), Process()])
    candidate = await site.agree()
    assert site.shared[1].opened(candidate) == TEXT
    assert settings_of(site.shared[1], candidate) == Settings.model_validate(json.loads(TEXT))
    for bad in (b"\x80\x04}.", b"{", b'{"no_such_key": 1}', b"[]"):
        other = site.shared[0].propose(bad, "a test", None)
        with pytest.raises((ValueError, ConfigError)):
            settings_of(site.shared[1], other)


class Worker:
    """A process of the supervisor, with its answers."""

    def __init__(self, *, is_alive: bool, is_ready: bool, pid: int) -> None:
        self.process = SimpleNamespace(is_alive=lambda: is_alive)
        self.ready = is_ready
        self.pid = pid

    def is_ready(self, timeout: float) -> bool:
        return self.ready


def test_a_signal_waits_until_a_worker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = _Supervisor.__new__(_Supervisor)
    dead, slow = (Worker(is_alive=alive, is_ready=not alive, pid=pid) for alive, pid in ((False, 1), (True, 2)))
    supervisor.processes = [dead, slow]  # type: ignore[list-item]
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("babelgate.server.server.os.kill", lambda *what: sent.append(what))
    supervisor.signal_queue = [signal.SIGHUP, signal.SIGHUP]
    for _ in range(3):
        supervisor.handle_signals()
        assert (supervisor.signal_queue, sent) == ([signal.SIGHUP], []), "it waits, once"
    slow.ready = True
    supervisor.handle_signals()
    assert (supervisor.signal_queue, sent) == ([], [(2, signal.SIGHUP)])
