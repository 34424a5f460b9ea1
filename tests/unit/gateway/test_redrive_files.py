"""The records of redrive jobs: who holds them, how many are kept, and a directory that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.errors import RedriveRunning, StateUnavailable, UnknownRedrive
from app.gateway.redrive_files import MAX_KEPT, RedriveFiles, RedriveJob


def job(number: int, queue: str = "mails") -> RedriveJob:
    return RedriveJob(
        id=f"{number:020x}", queue=queue, state="running", to_queue=queue, started_at=number, updated_at=number
    )


def test_a_running_job_without_its_runner_is_interrupted(tmp_path: Path) -> None:
    files, other = RedriveFiles(tmp_path / "jobs"), RedriveFiles(tmp_path / "jobs")
    lock = files.create(job(1))
    assert other.read("mails", job(1).id) == job(1)
    with pytest.raises(RedriveRunning):
        other.claim("mails", job(1).id)
    lock.close()
    assert other.read("mails", job(1).id).state == "interrupted"
    claimed, lock = other.claim("mails", job(1).id)
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
    _, lock = files.claim("mails", job(1).id)
    assert not files.is_cancelled(job(1).id)
    lock.close()


def test_the_oldest_records_are_forgotten(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    running = files.create(job(0, "long"))
    for number in range(1, MAX_KEPT + 3):
        lock = files.create(job(number))
        files.write(replace(job(number), state="completed"))
        lock.close()
    kept = [int(each.id, 16) for each in files.of_queue("mails")]
    assert kept == list(range(MAX_KEPT + 2, 2, -1))
    assert files.read("long", job(0).id).state == "running", "however old it is"
    running.close()


def test_a_record_that_cannot_be_read_is_no_job(tmp_path: Path) -> None:
    files = RedriveFiles(tmp_path)
    files.create(job(1)).close()
    (tmp_path / job(1).id / "job.json").write_bytes(b"{")
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
