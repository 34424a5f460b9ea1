"""The audit trail: its chains over rotations, restarts and failures, and a check that finds each change of it."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from babelgate.errors import ConfigError
from babelgate.observe.audit import checking
from babelgate.observe.audit import trail as trails
from babelgate.observe.audit.chain import Chain
from babelgate.observe.audit.checking import AuditReport, check
from babelgate.observe.audit.lines import AuditKey, Head, files_of, hash_of, head_path, heads_of, sealed
from babelgate.observe.audit.trail import MAX_BUDGETS, Audit, AuditOptions, AuditUnavailable
from tests.harness.world import until

KEY = AuditKey.of("k1", b"a secret of thirty-two bytes, or so")
FILE_BYTES = 2_000


def audit(directory: Path, **options: Any) -> Audit:
    given = {"directory": directory, "node": "node", "file_bytes": FILE_BYTES, **options}
    return Audit(AuditOptions(**given), [KEY], {"version": "1"})


async def write(trail: Audit, count: int) -> None:
    for number in range(count):
        await trail.recorded("operation", {"removed": number}, caller="ops", queue="emails", status=200)


def lines(directory: Path, chain: str = "node-0") -> list[dict[str, Any]]:
    texts = [path.read_text("utf-8") for _, path in files_of(directory)[chain]]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def kinds(report: AuditReport) -> set[str]:
    return {problem.kind for problem in report.problems}


async def test_a_record_is_on_the_disk_before_its_call_returns(tmp_path):
    trail = audit(tmp_path)
    await trail.start()
    await trail.recorded("operation", {"removed": 3}, caller="ops", queue="emails", status=200, code=None)
    *_, last = lines(tmp_path)
    assert {
        "kind": "operation",
        "caller": "ops",
        "queue": "emails",
        "status": 200,
        "node": "node",
    }.items() <= last.items()
    assert (last["details"], last["seq"], "code" in last) == ({"removed": 3}, 2, False)
    await trail.close()
    await trail.close()
    assert [each["kind"] for each in lines(tmp_path)] == ["start", "operation", "stop"]
    assert check(tmp_path, [KEY]).problems == []


async def test_a_chain_goes_on_over_files_and_restarts(tmp_path):
    for _ in range(3):
        trail = audit(tmp_path)
        await trail.start()
        await write(trail, 12)
        await trail.close()
    found = lines(tmp_path)
    assert [each["seq"] for each in found] == list(range(1, len(found) + 1))
    assert [each["kind"] for each in found].count("start") == 3
    assert [each["kind"] for each in found].count("file") >= 3
    report = check(tmp_path, [KEY])
    assert (report.problems, report.sealed, report.chains[0].last) == ([], True, len(found))
    assert check(tmp_path, []).problems == []
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


async def test_processes_of_one_node_have_chains_of_their_own(tmp_path):
    trails = [audit(tmp_path), audit(tmp_path), audit(tmp_path, node="other")]
    for trail in trails:
        await trail.start()
    await asyncio.gather(*(write(trail, 20) for trail in trails))
    assert sorted(files_of(tmp_path)) == ["node-0", "node-1", "other-0"]
    assert check(tmp_path, [KEY]).problems == [], "while they are written"
    for trail in trails:
        await trail.close()
    trail = audit(tmp_path)
    await trail.start()
    await trail.close()
    report = check(tmp_path, [KEY])
    assert (report.problems, len(report.chains)) == ([], 3)
    *_, begun, _ = lines(tmp_path)
    assert set(begun["details"]["others"]) == {"node-1", "other-0"}


async def test_refusals_are_bounded_and_counted(tmp_path):
    trail = audit(tmp_path, file_bytes=1_000_000)
    await trail.start()
    for _ in range(500):
        trail.bounded("flood", status=403)
        trail.bounded(None, status=401)
    trail.bounded("other", status=403)
    await trail.close()
    found = lines(tmp_path)
    written = [each for each in found if each["kind"] == "refusal"]
    assert len([each for each in written if each.get("caller") == "other"]) == 1, "its budget is its own"
    for caller in ("flood", None):
        few = [each for each in written if each.get("caller") == caller]
        left_out = [each for each in found if each["kind"] == "left_out" and each.get("caller") == caller]
        assert 30 <= len(few) <= 60
        assert len(few) + sum(each["details"]["count"] for each in left_out) == 500
    assert trail.stats().left_out == 1_000 + 1 - len(written)


async def test_sign_ins_are_bounded_and_refusals_do_not_hide_them(tmp_path):
    trail = audit(tmp_path, file_bytes=1_000_000)
    await trail.start()
    for _ in range(300):
        trail.bounded("ops", status=403)
    for _ in range(300):
        trail.bounded("ops", kind="sign_in", status=303)
    await trail.close()
    found = lines(tmp_path)
    signed = [each for each in found if each["kind"] == "sign_in"]
    refused = [each for each in found if each["kind"] == "refusal"]
    assert 30 <= len(signed) <= 60 and 30 <= len(refused) <= 60
    left_out = sum(each["details"]["count"] for each in found if each["kind"] == "left_out")
    assert len(signed) + len(refused) + left_out == 600


async def test_budgets_that_are_idle_are_forgotten(tmp_path):
    now = [0.0]
    trail = Audit(AuditOptions(directory=tmp_path, node="node", refusals=1), [KEY], {}, monotonic=lambda: now[0])
    for number in range(MAX_BUDGETS + 10):
        trail.bounded(f"caller-{number}")
    pending = trail.stats().pending
    assert pending == MAX_BUDGETS + 1, "those beyond have one together"
    now[0] = 11.0
    for number in range(3):
        trail.bounded(f"later-{number}")
    assert trail.stats().pending == pending + 3
    assert len(trail._budgets) == 3


async def test_old_files_are_removed_and_a_record_says_so(tmp_path):
    trail = audit(tmp_path, max_bytes=3 * FILE_BYTES)
    await trail.start()
    await write(trail, 60)
    await trail.close()
    files = files_of(tmp_path)["node-0"]
    assert files[0][0] > 1
    assert sum(path.stat().st_size for _, path in files) <= 4 * FILE_BYTES
    assert check(tmp_path, [KEY]).problems == []
    files[0][1].unlink()
    assert "removed" in kinds(check(tmp_path, [KEY]))


async def test_a_torn_line_is_recorded_by_the_next_start(tmp_path):
    trail = audit(tmp_path)
    await trail.start()
    await write(trail, 2)
    await trail.close()
    *_, (_, last) = files_of(tmp_path)["node-0"]
    with last.open("ab") as file:
        file.write(b'{"seq":99,"node":"no')
    report = check(tmp_path, [KEY])
    assert (report.problems, report.chains[0].torn_bytes) == ([], 20)
    trail = audit(tmp_path)
    await trail.start()
    await trail.close()
    report = check(tmp_path, [KEY])
    assert (report.problems, report.chains[0].interruptions) == ([], 1)
    assert lines_of(last)[-1] == b'{"seq":99,"node":"no', "the file of before stays as it was"
    last.write_bytes(last.read_bytes() + b"de")
    assert kinds(check(tmp_path, [KEY])) == {"changed"}


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")


async def test_a_cut_between_two_runs_is_recorded(tmp_path):
    trail = audit(tmp_path)
    await trail.start()
    await write(trail, 3)
    await trail.close()
    *_, (_, last) = files_of(tmp_path)["node-0"]
    last.write_bytes(b"\n".join(lines_of(last)[:-3]) + b"\n")
    assert kinds(check(tmp_path, [KEY])) == {"truncated"}
    trail = audit(tmp_path)
    await trail.start()
    await trail.close()
    report = check(tmp_path, [KEY])
    assert "truncated" in kinds(report)
    assert any("records from 4 to 5 were gone when a gateway started" in each.detail for each in report.problems)


def _one_head_and_the_end(sample: Path, directory: Path) -> None:
    """Three records cut, and the head that knew them removed."""
    shutil.copytree(sample, directory)
    *_, (_, last) = files_of(directory)["node-0"]
    last.write_bytes(b"\n".join(lines_of(last)[:-3]) + b"\n")
    head_path(directory, "node-0").unlink()


@pytest.mark.parametrize("head", [b"", b"garbage", None, "of another chain", "an old one of another key"])
async def test_a_head_that_does_not_know_the_end_is_recorded_by_the_next_start(sample, tmp_path, head):
    directory = tmp_path / "audit"
    _one_head_and_the_end(sample, directory)
    place = head_path(directory, "node-0")
    if head == "of another chain":
        shutil.copyfile(head_path(directory, "other-0"), place)
    elif isinstance(head, str):
        place.write_bytes(sealed({"seq": 1, "hash": "0" * 64, "chain": "node-0"}, AuditKey.of("k0", b"former")))
    elif head is not None:
        place.write_bytes(head)
    await run_once(directory, "node")
    report = check(directory, [KEY])
    assert kinds(report) == {"head"}, report.problems
    assert "head" in kinds(check(directory, []))
    await run_once(directory, "node")
    assert "head" in kinds(check(directory, [KEY])), "it stays told"


async def run_once(directory: Path, *nodes: str) -> None:
    for node in nodes:
        trail = audit(directory, node=node)
        await trail.start()
        await trail.close()


async def test_a_process_that_ends_within_its_first_start_leaves_nothing_that_is_wrong(tmp_path):
    """Before its first file, and after that file and before its head."""
    chain = Chain(tmp_path, "node", [KEY], lambda: 1, file_bytes=10**6, max_bytes=None, retention_seconds=None)
    chain.open()
    chain.close()
    assert check(tmp_path, [KEY]).problems == []
    first = head_path(tmp_path, "node-0").read_bytes()
    await run_once(tmp_path, "node")
    head_path(tmp_path, "node-0").write_bytes(first)
    await run_once(tmp_path, "node")
    report = check(tmp_path, [KEY])
    assert (report.problems, report.chains[0].last) == ([], 4)


async def test_a_head_removed_while_the_trail_fails_does_not_stop_it_for_good(tmp_path):
    chain = Chain(tmp_path, "node", [KEY], lambda: 1, file_bytes=10**6, max_bytes=None, retention_seconds=None)
    chain.open()
    chain.begin("start", {})
    head_path(tmp_path, "node-0").unlink()
    chain.begin("resumed", chain.open())
    chain.close()
    assert kinds(check(tmp_path, [KEY])) == {"head"}


async def test_an_old_file_that_cannot_be_removed_stops_nothing(tmp_path, monkeypatch):
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith("00000001.jsonl"):
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    trail = audit(tmp_path, max_bytes=3 * FILE_BYTES)
    await trail.start()
    await write(trail, 60)
    trail.require()
    assert trail.stats().errors > 0
    files = len(files_of(tmp_path)["node-0"])
    found = [each["kind"] for each in lines(tmp_path)]
    assert (found.count("retention"), found.count("resumed")) == (1, 0)
    assert check(tmp_path, [KEY]).problems == []
    monkeypatch.undo()
    await write(trail, 20)
    await trail.close()
    assert len(files_of(tmp_path)["node-0"]) < files
    assert check(tmp_path, [KEY]).problems == []


async def test_a_directory_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    trail = audit(place / "audit")
    with pytest.raises(ConfigError, match=r"audit\.directory"):
        trail.check()
    with pytest.raises(ConfigError, match=r"audit\.directory"):
        await trail.start()
    await trail.close()


@pytest.mark.parametrize("when_full", ["refuse", "continue"])
async def test_what_cannot_be_written_waits_and_changes_are_refused(tmp_path, when_full):
    """The directory is gone while a file is due: an error of the disk that also root sees."""
    directory = tmp_path / "audit"
    trail = audit(directory, when_full=when_full)
    await trail.start()
    await write(trail, 2)
    away = tmp_path / "away"
    directory.rename(away)
    directory.write_text("no directory")
    while trail.stats().errors == 0:
        trail.record("operation", {"removed": 1}, caller="ops")
        await asyncio.sleep(0.01)
    if when_full == "refuse":
        with pytest.raises(AuditUnavailable):
            trail.require()
    else:
        trail.require()
    trail.record("sign_in", caller="late")

    async def written() -> bool:
        return trail.stats().pending == 0

    assert trail.stats().pending >= 1
    directory.unlink()
    away.rename(directory)
    await until(written)
    trail.require()
    await write(trail, 1)
    await trail.close()
    found = lines(directory)
    assert [each["kind"] for each in found].count("resumed") == 1
    assert [each.get("caller") for each in found].count("late") == 1
    assert len({json.dumps(each) for each in found}) == len(found)
    assert check(directory, [KEY]).problems == []


async def test_no_answer_waits_for_a_disk_that_fails(tmp_path, monkeypatch):
    """Neither those that wait when it begins to fail, nor later ones; all of their records wait."""
    monkeypatch.setattr(trails, "WAIT_SECONDS", 3_600.0)
    directory = tmp_path / "audit"
    trail = audit(directory)
    await trail.start()
    directory.rename(tmp_path / "away")
    directory.write_text("no directory")
    async with asyncio.timeout(60):
        while trail.stats().errors == 0:
            await asyncio.gather(*(trail.recorded("operation", caller="early") for _ in range(5)))
        await trail.recorded("operation", caller="late")
    directory.unlink()
    (tmp_path / "away").rename(directory)

    async def written() -> bool:
        return trail.stats().pending == 0

    await until(written)
    await trail.close()
    assert [each.get("caller") for each in lines(directory)].count("late") == 1
    assert check(directory, [KEY]).problems == []


async def test_records_that_a_slow_disk_lost_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(trails, "MAX_PENDING", 5)
    trail = audit(tmp_path)
    await trail.start()
    go_on, append = Event(), trail.chain.append

    def slow(entries: Any) -> None:
        assert go_on.wait(60)
        append(entries)

    monkeypatch.setattr(trail.chain, "append", slow)
    for _ in range(30):
        trail.record("operation")
    lost = trail.stats().lost
    assert lost >= 20
    go_on.set()

    async def told() -> bool:
        return any(each["kind"] == "resumed" for each in lines(tmp_path))

    await until(told)
    await trail.close()
    resumed = [each for each in lines(tmp_path) if each["kind"] == "resumed"]
    assert [each["details"] for each in resumed] == [{"lost": lost}]
    assert check(tmp_path, [KEY]).problems == []


def test_a_check_meets_a_file_that_is_removed_by_its_rules(tmp_path, monkeypatch):
    chain = Chain(tmp_path, "node", [KEY], lambda: 1, file_bytes=500, max_bytes=2_000, retention_seconds=None)
    chain.open()
    chain.begin("start", {})
    chain.append([{"kind": "operation"}] * 3)
    rounds: list[int] = []

    def list_then_remove(directory: Path) -> Any:
        found = files_of(directory)
        rounds.append(1)
        while len(rounds) == 1 and found["node-0"][0][1].exists():
            chain.append([{"kind": "operation"}])
        return found

    monkeypatch.setattr(checking, "files_of", list_then_remove)
    assert check(tmp_path, [KEY]).problems == []
    chain.close()


def test_a_check_meets_a_chain_that_has_just_begun(sample, tmp_path, monkeypatch):
    directory = tmp_path / "audit"
    shutil.copytree(sample, directory)
    late = Chain(directory, "late", [KEY], lambda: 1, file_bytes=500, max_bytes=None, retention_seconds=None)

    def read_then_begin(directory: Path, keys: Any) -> Any:
        found = heads_of(directory, keys)
        if "late-0" not in found:
            late.open()
            late.begin("start", {})
        return found

    monkeypatch.setattr(checking, "heads_of", read_then_begin)
    assert check(directory, [KEY]).problems == []
    late.close()


HOSTILE = [
    {"key": ["k1"]},
    {"kind": "start", "details": {"torn": 1}},
    {"kind": "start", "details": {"torn": [{"file": []}]}},
    {"kind": "start", "details": {"missing": True}},
    {"kind": "resumed", "details": {"missing": {"after": "x", "through": None}}},
    {"kind": "start", "details": {"others": {"node-0": [True, []], "x": 1}}},
    {"kind": "retention", "details": {"through": [], "hash": {}}},
    {"kind": "retention", "details": []},
    {"kind": {}, "prev": {}, "details": {"head": 1}},
]


@pytest.mark.parametrize("members", HOSTILE, ids=str)
@pytest.mark.parametrize("keys", [[], [KEY], [AuditKey.of("k2", b"another")]], ids=["no key", "key", "another"])
def test_a_line_of_anybody_is_a_problem_and_no_error(sample, tmp_path, members, keys):
    directory = tmp_path / "audit"
    shutil.copytree(sample, directory)
    *_, (_, last) = files_of(directory)["node-0"]
    with last.open("ab") as file:
        file.write(json.dumps({"seq": 10_000, **members}).encode() + b"\n")
    assert check(directory, keys).problems


def test_entries_of_a_failed_write_that_are_on_the_disk_are_not_written_twice(tmp_path):
    """The file is there whole, and its sync failed: the chain that opens again knows what it has."""
    chain = Chain(tmp_path, "node", [KEY], lambda: 1, file_bytes=10**6, max_bytes=None, retention_seconds=None)
    chain.open()
    chain.begin("start", {})
    chain.append([{"kind": "operation"}] * 3)
    base = chain.head.seq
    path = files_of(tmp_path)["node-0"][0][1]
    last = chain.head.hash
    with path.open("ab") as file:
        for seq in (5, 6):
            line = sealed({"seq": seq, "kind": "operation", "prev": last}, KEY)
            last = hash_of(line)
            file.write(line + b"\n")
        file.write(b'{"seq":7')
    found = chain.open()
    assert (chain.head, found["torn"][0]["bytes"]) == (Head(base + 2, last), 8)
    chain.begin("resumed", found)
    chain.close()
    assert check(tmp_path, [KEY]).problems == []


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trail of two processes with several files each, and three runs of one of them."""
    directory = tmp_path_factory.mktemp("audit")

    async def make() -> None:
        other = audit(directory, node="other")
        await other.start()
        await write(other, 20)
        for _ in range(3):
            trail = audit(directory)
            await trail.start()
            await write(trail, 8)
            await trail.close()
        await other.close()

    asyncio.run(make())
    return directory


def _each_line(change: Callable[[list[bytes], int], list[bytes]]) -> Callable[[Path, random.Random], None]:
    """A change of a line anywhere in the trail, also at the end of files."""

    def tamper(directory: Path, dice: random.Random) -> None:
        path = dice.choice([path for paths in files_of(directory).values() for _, path in paths])
        found = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(change(found, dice.randrange(len(found)))))

    return tamper


def _swap(found: list[bytes], at: int) -> list[bytes]:
    # A file of one line has nothing to swap: it is doubled.
    other = at - 1 if at else len(found) - 1
    if other == at:
        return found * 2
    found[at], found[other] = found[other], found[at]
    return found


def _edited(found: list[bytes], at: int) -> list[bytes]:
    members = json.loads(found[at])
    members["at"] += 1
    return [*found[:at], json.dumps(members, separators=(",", ":")).encode() + b"\n", *found[at + 1 :]]


def _forged(found: list[bytes], at: int) -> list[bytes]:
    """A line in its place, with a seal of another key of the same name."""
    former = json.loads(found[at])
    members = {"seq": former["seq"] + 1, "kind": "operation", "prev": hash_of(found[at].rstrip(b"\n"))}
    return [*found[: at + 1], sealed(members, AuditKey.of("k1", b"guessed")) + b"\n", *found[at + 1 :]]


def _flip(directory: Path, dice: random.Random) -> None:
    path = dice.choice([path for paths in files_of(directory).values() for _, path in paths])
    text = bytearray(path.read_bytes())
    text[dice.randrange(len(text))] ^= 1 << dice.randrange(8)
    path.write_bytes(text)


def _cut(directory: Path, dice: random.Random) -> None:
    path = dice.choice([path for paths in files_of(directory).values() for _, path in paths])
    text = path.read_bytes()
    path.write_bytes(text[: dice.randrange(len(text))])


def _remove_file(directory: Path, dice: random.Random) -> None:
    dice.choice([path for paths in files_of(directory).values() for _, path in paths]).unlink()


def _remove_chain(directory: Path, dice: random.Random) -> None:
    # The other one has begun files since then, and they name this one.
    for path in directory.glob("node-0*"):
        path.unlink()


def _remove_head(directory: Path, dice: random.Random) -> None:
    head_path(directory, dice.choice(["node-0", "other-0"])).unlink()


def _foreign_head(directory: Path, dice: random.Random) -> None:
    path = head_path(directory, "node-0")
    path.write_bytes(path.read_bytes().replace(b'"seq":', b'"seq":1', 1))


TAMPERS: dict[str, Callable[[Path, random.Random], None]] = {
    "remove a line": _each_line(lambda found, at: found[:at] + found[at + 1 :]),
    "repeat a line": _each_line(lambda found, at: [*found[: at + 1], found[at], *found[at + 1 :]]),
    "swap lines": _each_line(_swap),
    "edit a line": _each_line(_edited),
    "insert a forged line": _each_line(_forged),
    "insert a blank line": _each_line(lambda found, at: [*found[:at], b"\n", *found[at:]]),
    "flip a bit": _flip,
    "cut a file": _cut,
    "remove a file": _remove_file,
    "remove a chain": _remove_chain,
    "remove a head": _remove_head,
    "change a head": _foreign_head,
}


@pytest.mark.parametrize("name", TAMPERS)
def test_each_change_is_found(sample, tmp_path, name):
    dice = random.Random(name)
    for round in range(25):
        directory = tmp_path / str(round)
        shutil.copytree(sample, directory)
        TAMPERS[name](directory, dice)
        assert check(directory, [KEY]).problems, f"{name}: round {round}"


@pytest.mark.parametrize("name", TAMPERS)
async def test_each_change_is_found_after_the_next_start_too(sample, tmp_path, name):
    dice = random.Random(name)
    for round in range(8):
        directory = tmp_path / str(round)
        shutil.copytree(sample, directory)
        TAMPERS[name](directory, dice)
        await run_once(directory, "node", "other")
        assert check(directory, [KEY]).problems, f"{name}: round {round}"


@pytest.mark.parametrize("name", [name for name in TAMPERS if name not in ("change a head", "insert a forged line")])
def test_without_the_key_the_hashes_find_it_too(sample, tmp_path, name):
    dice = random.Random(name)
    for round in range(25):
        directory = tmp_path / str(round)
        shutil.copytree(sample, directory)
        TAMPERS[name](directory, dice)
        assert check(directory, []).problems, f"{name}: round {round}"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("remove a line", {"removed"}),
        ("repeat a line", {"reordered"}),
        ("edit a line", {"changed"}),
        ("insert a forged line", {"inserted"}),
    ],
)
def test_a_change_within_a_file_is_called_what_it_is(sample, tmp_path, name, kind):
    changes: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
        "remove a line": lambda found, at: found[:at] + found[at + 1 :],
        "repeat a line": lambda found, at: [*found[: at + 1], found[at], *found[at + 1 :]],
        "edit a line": _edited,
        "insert a forged line": _forged,
    }
    directory = tmp_path / "audit"
    shutil.copytree(sample, directory)
    path = files_of(directory)["node-0"][0][1]
    path.write_bytes(b"".join(changes[name](path.read_bytes().splitlines(keepends=True), 2)))
    report = check(directory, [KEY])
    assert (kinds(report), len(report.problems)) == (kind, 1), report.problems
    assert report.problems[0].line in (3, 4)


def test_untouched_it_is_right(sample):
    assert check(sample, [KEY]).problems == []
    assert check(sample, []).problems == []


def test_a_key_that_is_not_given_is_told_once(sample):
    report = check(sample, [AuditKey.of("k2", b"newer")])
    assert [each.kind for each in report.problems if each.kind != "head"] == ["unsealed"] * 2


def test_who_rolls_back_trail_and_head_is_found_by_a_noted_end_only(sample, tmp_path):
    """The limit that the documentation tells: an older state of a whole directory is a right one."""
    report = check(sample, [KEY])
    ends = {chain.name: Head(chain.last, chain.hash) for chain in report.chains}
    directory = tmp_path / "audit"
    trail = audit(directory)

    async def run() -> None:
        await trail.start()
        await trail.close()

    asyncio.run(run())
    assert check(directory, [KEY]).problems == []
    found = check(directory, [KEY], ends)
    assert kinds(found) == {"truncated", "removed"}
    assert check(sample, [KEY], ends).problems == []
