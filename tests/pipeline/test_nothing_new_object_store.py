"""With nothing new in an object store a command ends without Spark, which could not even read this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyarrow import fs

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.ingest_unchanged import ingested_already
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.nothing_new import owning, without_spark
from tests.harness.s3 import s3_server
from tests.pipeline.ingested import Run
from tests.pipeline.segments import Writer
from tests.pipeline.sending import body, write

LANDING, LAKE = "s3a://lakes/landing", "s3a://lakes/root"


def moved(text: bytes, folder: Path, times: dict[int, int]) -> bytes:
    """A file of a local lake as it would be had Spark read the segments in the store."""
    content = text.decode().replace(f"file:{folder}/", "s3a://lakes/")
    for local, stored in times.items():
        content = content.replace(str(local), str(stored))
    return content.encode()


def copy(folder: Path, system: Any) -> None:
    """Copy landing folder and lake to the bucket."""
    system.create_dir("lakes")
    times: dict[int, int] = {}
    for path in sorted((folder / "landing").rglob("*.gz")):
        name = f"lakes/{path.relative_to(folder)}"
        fs.copy_files(str(path), name, fs.LocalFileSystem(), system)
        times[path.stat().st_mtime_ns // 1_000_000] = system.get_file_info(name).mtime_ns // 1_000_000
    for path in (folder / "root").rglob("*"):
        # Not the state of Spark's stream, nor checksums and locks.
        if path.is_file() and "_checkpoint" not in path.parts and path.suffix not in (".crc", ".lock"):
            content = path.read_bytes()
            with system.open_output_stream(f"lakes/{path.relative_to(folder)}") as stream:
                stream.write(moved(content, folder, times) if path.suffix == ".json" else content)


def test_with_nothing_new_no_command_starts_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(spark, tmp_path)
    run.landing.mkdir()
    writer = Writer(run.landing)
    writer.land(5)
    damaged = writer.land(400)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    bodies = write(tmp_path / "bodies.ndjson", body(1))
    send = "backfill", str(bodies), "--from", "bodies", "--select", "false"
    ingested = run()
    for command in ("compact", "metrics"):
        run(command=command)
    made = CliRunner().invoke(pipeline, [*send, "--lake", run.root], catch_exceptions=False)
    assert made.exit_code == 0, made.output

    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        system, _ = fs.FileSystem.from_uri("s3://lakes?allow_bucket_creation=true")
        copy(tmp_path, system)
        killed = "lakes/root/journal/v=1/batch=killed-00000000.0/x.parquet"
        with system.open_output_stream(killed) as stream:
            stream.write(b"x")
        summary = tmp_path / "in the store.json"

        def nothing_new(*arguments: str) -> Any:
            given = [*arguments, "--lake", LAKE, "--summary", str(summary)]
            result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
            assert result.exit_code == 0 and "starting Spark" not in result.output, result.output
            return json.loads(summary.read_text())

        again = nothing_new("ingest", LANDING)
        assert (again["landing"], again["root"], again["files"]) == (LANDING, LAKE, 0)
        assert again["journal"] == ingested["journal"] and again["journal"]["damaged_files"] == 1
        assert system.get_file_info(killed).type == fs.FileType.NotFound
        for given in (["compact"], ["metrics"], list(send)):
            assert nothing_new(*given)["unchanged"] is True
        dry = CliRunner().invoke(pipeline, [*send, "--dry-run", "--lake", LAKE], catch_exceptions=False)
        assert "is done: nothing is left to send" in dry.stderr and "starting Spark" not in dry.stderr
        assert dry.stdout == "0 messages would be sent to http://127.0.0.1:8080; nothing was sent.\n"
        found = system.get_file_info(fs.FileSelector("lakes/root", recursive=True))
        assert not [each.path for each in found if "lock" in each.path and each.type == fs.FileType.File]

        name = f"lakes/{damaged.relative_to(tmp_path)}"
        for content in (damaged.read_bytes() + b"more", b""):
            with system.open_output_stream(name) as stream:
                stream.write(content)
            assert ingested_already(LANDING, LAKE) is None, "a damaged file has changed"
        fs.copy_files(str(damaged), name, fs.LocalFileSystem(), system)
        later = writer.land(3)
        fs.copy_files(str(later), f"lakes/{later.relative_to(tmp_path)}", fs.LocalFileSystem(), system)
        assert ingested_already(LANDING, LAKE) is None, "a segment has landed"


def test_a_store_that_fails_while_the_lock_is_owned_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reader: DatasetReader) -> None:
        with owning(reader, reader.lock("compact"), "compact"):
            raise PermissionError("access denied\nat once")

    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        fs.FileSystem.from_uri("s3://lakes?allow_bucket_creation=true")[0].create_dir("lakes")
        with pytest.raises(JobFailed, match=r"^compact of s3a://lakes/root failed, with its lock: access denied$"):
            without_spark(LAKE, refused)
        assert without_spark("s3a://missing/root", refused) is None, "the lock cannot be taken"


def test_what_arrow_does_not_reach_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reader: DatasetReader) -> None:
        raise PermissionError(reader.root)

    with pytest.raises(PermissionError):
        without_spark(str(tmp_path), refused)
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        assert without_spark("s3a://lakes/prod", lambda reader: reader.root) == "s3a://lakes/prod"
        assert without_spark("s3a://lakes/prod", refused) is None
        # Hadoop reads it.
        assert without_spark("s3a://lakes//prod", lambda reader: reader.current("journal")) is None
    for other in ("mock:///lake", "oss://lakes/prod"):
        assert without_spark(other, lambda reader: reader.root) is None
