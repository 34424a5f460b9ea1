"""Which changes of a pause count, what is remembered, and what a caller is told."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from babelgate.errors import ConfigError, Forbidden, InvalidParameter, QueueNotFound
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.pause_file import PauseFile
from babelgate.gateway.pauses import (
    MAX_PAUSED,
    MAX_REASON,
    MAX_RESUMED,
    PauseChange,
    Pauses,
    TooManyPaused,
    remembered,
)
from babelgate.gateway.spreading import Heard
from tests.harness.world import PATIENCE, until


def paused(queue: str = "q", at: int = 1, by: str = "a", reason: str | None = None) -> PauseChange:
    return PauseChange(queue=queue, paused=True, at=at, by=by, paused_at=at, reason=reason)


def resumed(queue: str = "q", at: int = 2, by: str = "a") -> PauseChange:
    return PauseChange(queue=queue, paused=False, at=at, by=by)


class Other:
    """A peer that knows ``known``, and gets what it is told."""

    has_addresses = True

    def __init__(self, *known: PauseChange, silent: Sequence[str] = ()) -> None:
        self.pauses = Pauses()
        self.known = known
        self.silent = silent

    async def exchange(self, changes: Sequence[PauseChange], digest: str = "") -> Heard[PauseChange]:
        await self.pauses.learn([*self.known, *changes])
        return Heard(self.pauses.changes(), 1, self.silent)

    async def close(self) -> None:
        pass


async def test_processes_agree_whatever_they_learn_first() -> None:
    changes = [paused(at=1), resumed(at=2), paused(at=3, by="b"), paused(at=3, by="c"), resumed(at=3)]
    ends = set()
    for order in itertools.permutations(changes):
        pauses = Pauses()
        for each in order:
            await pauses.learn([each])
        ends.add((pause := pauses.get("q")) and pause.by)
        at_once = Pauses()
        await at_once.learn(list(order))
        ends.add((pause := at_once.get("q")) and pause.by)
    assert ends == {"c"}


async def test_a_change_counts_after_one_of_a_clock_that_is_ahead() -> None:
    pauses = Pauses(clock=lambda: 1_000)
    await pauses.learn([paused(at=5_000)])
    await pauses.resume(ANYONE, "q")
    assert pauses.get("q") is None
    assert [each.at for each in pauses.changes()] == [5_001]


async def test_a_pause_that_is_changed_goes_on() -> None:
    ticks = itertools.count(10)
    pauses = Pauses(clock=lambda: next(ticks))
    for publishes, reason in (("accept", None), ("refuse", "x"), ("refuse", "x")):
        outcome = await pauses.pause(ANYONE, "q", publishes, reason)  # type: ignore[arg-type]
    assert outcome.pause is not None
    assert (outcome.pause.paused_at, outcome.pause.at, outcome.pause.reason) == (10, 11, "x")
    assert pauses.refusing == {"q"}
    await pauses.resume(ANYONE, "q")
    assert (pauses.get("q"), pauses.refusing) == (None, frozenset())


async def test_a_resume_ends_a_pause_that_only_a_peer_knows() -> None:
    pauses = Pauses()
    other = pauses.peers = Other(paused(at=1))
    await other.exchange([])
    assert other.pauses.get("q") is not None
    outcome = await pauses.resume(ANYONE, "q")
    assert (outcome.pause, other.pauses.get("q"), outcome.told) == (None, None, 1)


@pytest.mark.parametrize("known", [resumed(at=9_000, by="b"), paused(at=9_000, by="b", reason="theirs")])
@pytest.mark.parametrize("repeated", [False, True])
async def test_a_call_counts_against_a_newer_change_of_a_peer(known: PauseChange, repeated: bool) -> None:
    pauses = Pauses(clock=lambda: 1_000)
    if repeated:
        await pauses.pause(ANYONE, "q", "refuse", "mine")
    other = pauses.peers = Other(known)
    outcome = await pauses.pause(ANYONE, "q", "refuse", "mine")
    assert outcome.pause is not None
    assert (outcome.pause.at, outcome.pause.reason, outcome.pause.by) == (9_001, "mine", ANYONE.name)
    assert outcome.pause.paused_at == (9_000 if known.paused else 9_001)
    assert pauses.get("q") == other.pauses.get("q") == outcome.pause
    assert pauses.refusing == {"q"}


async def test_what_peers_know_is_learned_at_the_start(tmp_path: Path) -> None:
    pauses = Pauses(store=PauseFile(tmp_path))
    pauses.peers = Other(paused())
    await pauses.start()
    assert pauses.get("q") == paused()
    await pauses.close()
    assert PauseFile(tmp_path).read() == [paused()]


async def test_processes_of_one_directory_learn_from_the_file(tmp_path: Path) -> None:
    one, other = (Pauses(store=PauseFile(tmp_path / "state")) for _ in range(2))
    await one.start()
    await other.start()
    waiting = None
    try:
        for change, expected in ((one.pause(ANYONE, "q"), True), (one.resume(ANYONE, "q"), False)):
            outcome = await change
            assert outcome.kept

            async def has_learned(expected: bool = expected) -> bool:
                return (other.get("q") is not None) is expected

            await until(has_learned)
            if expected:
                waiting = asyncio.create_task(other.wait_resumed("q", 2 * PATIENCE))
                await asyncio.sleep(0)
        assert waiting is not None
        await asyncio.wait_for(waiting, PATIENCE)
    finally:
        await one.close()
        await other.close()
    later = Pauses(store=PauseFile(tmp_path / "state"))
    await later.start()
    assert (later.get("q"), len(later.changes())) == (None, 1)
    await later.close()


async def test_a_file_that_is_damaged_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "pauses.json").write_text("[{")
    with pytest.raises(ConfigError, match=r"state_dir: .*pauses.json is damaged"):
        await Pauses(store=PauseFile(tmp_path)).start()


async def test_what_the_file_refused_is_kept_when_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.gateway.pauses.PEERS_SECONDS", 0.01)
    (tmp_path / "state").write_text("")
    pauses = Pauses(store=PauseFile(tmp_path / "state"))
    assert not (await pauses.pause(ANYONE, "q")).kept
    (tmp_path / "state").unlink()
    await pauses.start()
    try:
        (tmp_path / "state" / "pauses.json").unlink()

        async def is_kept() -> bool:
            return PauseFile(tmp_path / "state").read() == pauses.changes()

        await until(is_kept)
    finally:
        await pauses.close()


async def test_what_cannot_be_kept_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pauses = Pauses(store=PauseFile(tmp_path / "file"))
    pauses.peers = Other(silent=["10.0.0.1:7180"])
    outcome = await pauses.pause(ANYONE, "q")
    assert pauses.get("q") is not None
    assert (outcome.kept, outcome.silent) == (False, ["10.0.0.1:7180"])
    assert "ends with this process" in outcome.detail and "No answer from 10.0.0.1:7180" in outcome.detail


def test_the_file_keeps_the_newest_of_each_queue(tmp_path: Path) -> None:
    file = PauseFile(tmp_path)
    assert file.read() == []
    file.merge([paused(at=5, reason="é ☕"), resumed("p", at=1)])
    before = (tmp_path / "pauses.json").stat().st_ino
    assert PauseFile(tmp_path).merge([paused(at=4)]) == file.read()
    assert (tmp_path / "pauses.json").stat().st_ino == before, "nothing new was written"
    PauseFile(tmp_path).merge([resumed(at=6)])
    assert sorted((each.queue, each.at) for each in file.read()) == [("p", 1), ("q", 6)]
    later = [{**each, "later": 1} for each in json.loads((tmp_path / "pauses.json").read_bytes())]
    (tmp_path / "pauses.json").write_text(json.dumps(later))
    assert len(file.read()) == 2, "members of a later version are ignored"


def test_pauses_and_the_newest_resumes_are_remembered() -> None:
    changes = [paused("p", at=0), *(resumed(f"q{at}", at=at) for at in range(MAX_RESUMED + 5))]
    found = {each.queue for each in remembered(changes)}
    assert len(found) == MAX_RESUMED + 1
    assert {"p", f"q{MAX_RESUMED + 4}"} <= found and "q4" not in found


async def test_a_pause_needs_the_right_a_route_and_a_good_reason() -> None:
    def check(queue: str) -> None:
        if queue == "none":
            raise QueueNotFound(queue=queue)

    pauses = Pauses(check_route=check)
    listener = Caller("l", {"*": frozenset({Right.LISTEN, Right.SEND})})
    for act in (pauses.pause, pauses.resume):
        with pytest.raises(Forbidden):
            await act(listener, "q")
        with pytest.raises(QueueNotFound):
            await act(ANYONE, "none")
        with pytest.raises(InvalidParameter):
            await act(ANYONE, "a b")
    for reason in ("", "x" * (MAX_REASON + 1)):
        with pytest.raises(InvalidParameter):
            await pauses.pause(ANYONE, "q", "accept", reason)
    assert pauses.changes() == []
    # The route of a queue may go while it is paused.
    await pauses.learn([paused("none")])
    assert pauses.in_force() == []
    assert (await pauses.resume(ANYONE, "none")).pause is None


async def test_so_many_queues_are_paused_at_a_time() -> None:
    pauses = Pauses()
    await pauses.learn([paused(f"q{n}") for n in range(MAX_PAUSED)])
    with pytest.raises(TooManyPaused):
        await pauses.pause(ANYONE, "another")
    await pauses.pause(ANYONE, "q0", "refuse")
    await pauses.resume(ANYONE, "q1")
    await pauses.pause(ANYONE, "another")
