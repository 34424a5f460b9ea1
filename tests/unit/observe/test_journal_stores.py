"""Where segments land: complete, durable, under their final names only."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs
import zstandard

from babelgate.errors import ConfigError
from babelgate.observe.journal.frames import Compression
from babelgate.observe.journal.stores import compress, store
from tests.harness.journal import unpacked
from tests.harness.s3 import s3_server

NAME = "date=2023-11-14/hour=22/a-018bcfe568001a2b3c4d-000001.ndjson"
TEXT = b'{"a":1}\n' * 100_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "open" / "a-018bcfe568001a2b3c4d-000001.ndjson"
    path.parent.mkdir()
    path.write_bytes(TEXT)
    return path


def files_below(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


@pytest.mark.parametrize(("compression", "ending"), [("gzip", ".gz"), ("zstd", ".zst")])
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_directory(tmp_path: Path, source: Path, compression: Compression, ending: str, prefix: str) -> None:
    landing = tmp_path / "to" / "land here"
    place = store(f"{prefix}{landing}".replace(" ", "%20") if prefix else str(landing), compression)
    place.prepare()
    for _ in range(2):
        place.put(source, NAME)
    assert files_below(landing) == [NAME + ending]
    assert unpacked((landing / (NAME + ending)).read_bytes(), NAME + ending) == TEXT


def test_a_segment_that_lands_twice_is_the_same_file(tmp_path: Path, source: Path) -> None:
    for compression in ("gzip", "zstd"):
        first, second = tmp_path / "1", tmp_path / "2"
        compress(source, first, compression)
        os.utime(source, (1, 1))
        compress(source, second, compression)
        assert first.read_bytes() == second.read_bytes()


def test_a_directory_that_is_away_is_made_again(tmp_path: Path, source: Path) -> None:
    landing = tmp_path / "landing"
    place = store(str(landing), "gzip")
    place.prepare()
    (landing / ".incoming").rmdir()
    landing.rmdir()
    landing.write_bytes(b"in the way")
    with pytest.raises(OSError):
        place.put(source, NAME)
    landing.unlink()
    place.put(source, NAME)
    assert files_below(landing) == [f"{NAME}.gz"]


def test_other_stores_of_fsspec_get_a_file_by_moving_it(source: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    store("memory://journal-test/landing", "gzip").put(source, NAME)
    assert memory.find("/journal-test") == [f"/journal-test/landing/{NAME}.gz"]
    assert gzip.decompress(memory.cat(f"/journal-test/landing/{NAME}.gz")) == TEXT
    assert files_below(source.parent) == [source.name]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        yield s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


def test_s3(bucket: s3fs.S3FileSystem, source: Path) -> None:
    place = store("s3://journals/prod", "zstd")
    place.prepare()
    with pytest.raises(FileNotFoundError):
        place.put(source, NAME)
    bucket.mkdir("journals")
    for _ in range(2):
        place.put(source, NAME)
    assert bucket.find("journals") == [f"journals/prod/{NAME}.zst"]
    packed: Any = bucket.cat(f"journals/prod/{NAME}.zst")
    assert zstandard.ZstdDecompressor().stream_reader(packed).read() == TEXT
    assert files_below(source.parent) == [source.name]


@pytest.mark.parametrize(
    ("landing", "words"),
    [
        ("nowhere://bucket", "nowhere://bucket: Protocol not known: nowhere"),
        ("gs://bucket/x", "gs://bucket/x: Please install gcsfs"),
        ("sftp://joe:secret@host/x", r"sftp://joe:\*\*\*@host/x: .*paramiko"),
    ],
)
def test_what_can_never_work_is_refused_in_words(landing: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        store(landing, "gzip")
    assert refused.value.key == "journal.landing"
    assert "secret" not in str(refused.value)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in ((tmp_path / "file" / "x", "Not a directory"), (Path("/proc/landing"), "No such file")):
        with pytest.raises(ConfigError, match=why) as refused:
            store(str(path), "gzip").prepare()
        assert refused.value.key == "journal.landing"
