"""The records of redrive jobs: who holds them, how many are kept, and a directory that cannot be used."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from babelgate.errors import RedriveRunning, StateUnavailable, TooManyRedrives, UnknownRedrive
from babelgate.gateway.redrive_files import MAX_KEPT, MAX_RUNNING, JobState, RedriveFiles, RedriveJob
from babelgate.runtime.files import FileLock


def job(number: int, queue: str = "mails", caller: str = "shop") -> RedriveJob:
    return RedriveJob(
        id=f"{number:020x}",
        queue=queue,
        caller=caller,
        state="running",
        to_queue=queue,
        started_at=number,
        updated_at=number,
    )


def ended(files: RedriveFiles, of: RedriveJob, state: JobState = "completed") -> RedriveJob:
    """A job that has run, and ended in this state."""
    lock = files.create(of)
    files.write(replace(of, state=state))
    lock.close()
    return replace(of, state=state)


def stored(directory: Path, *jobs: RedriveJob) -> None:
    """The records of jobs that have completed."""
    for each in jobs:
        folder = directory / each.id
        folder.mkdir()
        (folder / "job.json").write_bytes(msgspec.json.encode(replace(each, state="completed")))


def running_until_refused(files: RedriveFiles, first: int, caller: str) -> tuple[list[FileLock], TooManyRedrives]:
    """The jobs that a caller can run at once, each of another queue, and the error of the next one."""
    locks: list[FileLock] = []
    while True:
        number = first + len(locks)
        try:
            locks.append(files.create(job(number, f"queue-{number}", caller)))
        except TooManyRedrives as error:
            return locks, error


def test_a_running_job_without_its_runner_is_interrupted(tmp_path: Path) -> None:
    files, other = RedriveFiles(tmp_path / "jobs"), RedriveFiles(tmp_path / "jobs")
    lock = files.create(job(1))
    assert other.read("mails", job(1).id) == job(1)
    with pytest.raises(RedriveRunning):
        other.claim("mails", job(1).id, "shop")
    lock.close()
    assert other.read("mails", job(1).id).state == "interrupted"
    claimed, lock = other.claim("mails", job(1).id, "shop")
    assert claimed.state == "interrupted"
    assert files.read("mails", job(1).id).state == "running"
    lock.close()


def test_a_claim_forgets_an_old_wish_to_cancel(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    lock = files.create(job(1))
    assert files.cancel("mails", job(1).id).state == "running"
    assert files.is_cancelled(job(1).id)
    files.write(replace(job(1), state="cancelled"))
    lock.close()
    _, lock = files.claim("mails", job(1).id, "shop")
    assert not files.is_cancelled(job(1).id)
    lock.close()


def test_the_oldest_records_are_forgotten(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    running = files.create(job(0, "long"))
    stored(tmp_path, *(job(number) for number in range(1, MAX_KEPT - 1)))
    for number in range(MAX_KEPT - 1, MAX_KEPT + 3):
        ended(files, job(number))
    kept = [int(each.id, 16) for each in files.of_queue("mails")]
    assert kept == list(range(MAX_KEPT + 2, 2, -1))
    assert files.read("long", job(0).id).state == "running", "however old it is"
    running.close()


@pytest.mark.parametrize(
    "record", [b"{", b'{"id":"\xff"}', b'{"ids":' + b"[" * 100_000], ids=["half", "no text", "deep"]
)
def test_a_record_that_cannot_be_read_is_no_job(tmp_path: Path, record: bytes) -> None:
    files = RedriveFiles(tmp_path)
    files.create(job(1)).close()
    (tmp_path / job(1).id / "job.json").write_bytes(record)
    (tmp_path / "a file").touch()
    assert files.of_queue("mails") == []
    with pytest.raises(UnknownRedrive):
        files.read("mails", job(1).id)


def test_without_jobs_the_directory_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "missing", tmp_path / "file" / "jobs"):
        files = RedriveFiles(directory)
        files.check_idle("mails")
        assert files.of_queue("mails") == []
        with pytest.raises(UnknownRedrive):
            files.read("mails", job(1).id)
        with pytest.raises(UnknownRedrive):
            files.cancel("mails", job(1).id)
    assert not (tmp_path / "missing").exists()
    with pytest.raises(StateUnavailable):
        RedriveFiles(tmp_path / "file" / "jobs").create(job(1))


def test_no_caller_takes_all_running_jobs(tmp_path: Path) -> None:
    files, other_process = RedriveFiles(tmp_path), RedriveFiles(tmp_path)
    locks, refusal = running_until_refused(files, 0, "shop")
    assert len(locks) == MAX_RUNNING // 2
    assert refusal.detail.startswith("The caller 'shop' already runs as many redrive jobs as allowed, 32.")
    locks_of_others, refusal = running_until_refused(other_process, 100, "blog")
    assert len(locks_of_others) == MAX_RUNNING // 4
    assert "The caller 'blog'" in refusal.detail
    for number in range(6):
        locks_of_others.append(files.create(job(200 + number, f"queue-{200 + number}", f"caller-{number}")))
    with pytest.raises(RedriveRunning):
        files.create(job(300, "queue-0", "crm"))
    locks.pop().close()
    with pytest.raises(TooManyRedrives, match="The caller 'shop'"):
        files.create(job(301, "queue-301", "shop"))
    for lock in locks + locks_of_others:
        lock.close()
    assert files.read("queue-0", job(0).id).state == "interrupted"
    files.create(job(302, "queue-302", "shop")).close()


def test_a_host_runs_a_limited_number_of_jobs(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    locks = [files.create(job(n, f"queue-{n}", f"caller-{n}")) for n in range(MAX_RUNNING)]
    with pytest.raises(TooManyRedrives, match="This host"):
        files.create(job(1000, "another", "another"))
    for lock in locks:
        lock.close()
    _, lock = files.claim("queue-5", job(5).id, "another")
    with pytest.raises(RedriveRunning):
        files.create(job(1001, "queue-5", "another"))
    lock.close()


def test_a_resumed_job_counts_for_the_caller_who_resumes_it(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    stopped = ended(files, job(1, "mails", "blog"), "cancelled")
    locks, _ = running_until_refused(files, 10, "shop")
    with pytest.raises(TooManyRedrives, match="The caller 'shop'"):
        files.claim("mails", stopped.id, "shop")
    claimed, lock = files.claim("mails", stopped.id, "blog")
    assert claimed.caller == "blog"
    for each in (lock, *locks):
        each.close()
    claimed, lock = files.claim("mails", stopped.id, "shop")
    assert claimed.caller == "shop"
    lock.close()


def test_no_caller_displaces_the_records_of_one_with_fewer(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    mine = [ended(files, job(n, "mails", "shop"), "cancelled") for n in range(3)]
    stored(tmp_path, *(job(100 + n, f"queue-{n % 7}", "noisy") for n in range(MAX_KEPT - 3)))
    for number in range(1000, 1020):
        ended(files, job(number, f"queue-{number % 7}", "noisy"))
    assert [files.read("mails", each.id) for each in mine] == mine
    assert len(list(tmp_path.iterdir())) == MAX_KEPT


def test_no_queue_displaces_the_records_of_one_with_fewer(tmp_path: Path) -> None:
    """Where all are one caller."""
    files = RedriveFiles(tmp_path)
    mine = [ended(files, job(n, "mails", "anyone"), "cancelled") for n in range(3)]
    stored(tmp_path, *(job(100 + n, f"queue-{n % 7}", "anyone") for n in range(MAX_KEPT - 3)))
    for number in range(1000, 1020):
        ended(files, job(number, f"queue-{number % 7}", "anyone"))
    assert [files.read("mails", each.id) for each in mine] == mine


def test_a_completed_job_is_forgotten_before_one_that_can_be_resumed(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    stopped = ended(files, job(1), "cancelled")
    stored(tmp_path, *(job(n) for n in range(2, MAX_KEPT + 1)))
    for number in range(1000, 1010):
        ended(files, job(number))
    assert files.read("mails", stopped.id) == stopped
    for each in files.of_queue("mails")[:-1]:
        shutil.rmtree(tmp_path / each.id)
    stored(tmp_path, *(job(n, f"queue-{n}") for n in range(2000, 2000 + MAX_KEPT - 1)))
    for number in range(3000, 3010):
        ended(files, job(number, f"queue-{number}"))
    assert files.read("mails", stopped.id) == stopped, "jobs of many other queues"


def test_records_are_limited_whoever_wrote_them(tmp_path: Path) -> None:
    """Those of a version that knew no callers, of a process that died while it wrote one, and unreadable ones."""
    for number in range(MAX_KEPT + 30):
        folder = tmp_path / f"{number:020x}"
        folder.mkdir()
        if number % 3 == 0:
            (folder / "job.json").write_bytes(
                b'{"id":"%020x","queue":"old","state":"cancelled","to_queue":"old","started_at":1,"updated_at":1}'
                % number
            )
        elif number % 3 == 1:
            (folder / "job.json").write_bytes(b"{")
    files = RedriveFiles(tmp_path)
    assert [each.caller for each in files.of_queue("old")] == [""] * 77
    _, lock = files.claim("old", "0" * 20, "shop")
    lock.close()
    ended(files, job(1000))
    assert len(list(tmp_path.iterdir())) == MAX_KEPT
    assert len(files.of_queue("old")) == 77, "the unreadable ones of no queue are more"
