"""Tasks read every body of a file once, and report everything else as a fault. Without Spark."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from babelgate.envelope import dead_letter_block, dead_letter_record
from babelgate.pipeline.storage.input_files import InputFile, _visible, find, locate
from babelgate.pipeline.storage.inputs import MAX_BODY_BYTES, ReadOptions, Split
from babelgate.pipeline.storage.lines import LineReader
from babelgate.pipeline.validate.bodies import bodies
from babelgate.pipeline.validate.validation_task import plan_tasks

LINES = [b'{"n":%d}' % number for number in range(50_000)]
PLAIN = b"\n".join(LINES) + b"\n"


def read(path, form="auto", column=None, start=0, end=None, is_regular=True):
    return list(bodies(Split(Path(path).as_uri(), start, end, is_regular), ReadOptions(form, column)))


def contents(path, form="auto", column=None):
    found = read(path, form, column)
    assert [body.fault for body in found] == [None] * len(found)
    return [body.content for body in found]


def faults(found):
    return [body.fault for body in found if body.fault is not None]


def pack(codec, data, path):
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), codec) as stream:
        stream.write(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n \n\r\n\t", []),
        (b"a", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\n\na\r\n\r\n\n b \n", [b"a", b" b "]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\xff\xfe\n\xef\xbb\xbf{}\n", [b"\xff\xfe", b"\xef\xbb\xbf{}"]),
        (b"a\x00b\n\x0bc\x85\n", [b"a\x00b", b"\x0bc\x85"]),
    ],
)
def test_lines(tmp_path, data, expected):
    for name, packed in (("plain", data), ("packed", gzip.compress(data))):
        (tmp_path / name).write_bytes(packed)
        assert contents(tmp_path / name) == expected


def test_a_body_is_told_with_its_place(tmp_path):
    (tmp_path / "a").write_bytes(b"\nab\r\n\ncd")
    assert [(body.at, body.content) for body in read(tmp_path / "a")] == [(1, b"ab"), (6, b"cd")]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_files_may_have_several_members(tmp_path, codec):
    pack(codec, PLAIN, tmp_path / "one")
    member = (tmp_path / "one").read_bytes()
    (tmp_path / "two").write_bytes(member + member)
    assert contents(tmp_path / "one") == LINES
    assert contents(tmp_path / "two") == LINES + LINES


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_truncated_file_is_told_with_how_far_it_was_read(tmp_path, codec):
    pack(codec, PLAIN, tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    for cut in (5, len(data) // 3, len(data) // 2, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:cut])
        *whole, last = read(tmp_path / "cut")
        assert [body.content for body in whole] == LINES[: len(whole)]
        reason, detail = last.fault
        assert reason == "truncated_file"
        assert f"read: {last.at + len(last.content)} bytes, {len(whole)} bodies." in detail
        assert PLAIN[last.at :].startswith(last.content)
        if cut == len(data) - 1 and codec == "gzip":
            assert len(whole) == len(LINES), "only its checksum is missing"
        assert whole or cut < len(data) // 2


def test_no_byte_that_can_be_unpacked_is_lost(tmp_path):
    data = gzip.compress(PLAIN)[:100_000]
    (tmp_path / "cut").write_bytes(data)
    import zlib

    unpacked = zlib.decompressobj(wbits=31).decompress(data)
    *_, last = read(tmp_path / "cut")
    assert last.at + len(last.content) == len(unpacked)


@pytest.mark.parametrize("damage", [b"trailing garbage", b"\0" * 20])
def test_garbage_after_compressed_data_is_told(tmp_path, damage):
    (tmp_path / "a").write_bytes(gzip.compress(b"a\nb\n") + damage)
    *whole, last = read(tmp_path / "a")
    assert [body.content for body in whole] == [b"a", b"b"]
    assert last.fault[0] == "truncated_file"


def test_the_parts_of_a_plain_file_hold_every_line_once(tmp_path):
    chosen = random.Random(7)
    data = b"".join(b"x" * chosen.choice([0, 1, 5, 30, 700]) + chosen.choice([b"\n", b"\r\n"]) for _ in range(60))
    data += b"last"
    (tmp_path / "a").write_bytes(data)
    whole = read(tmp_path / "a")
    for share in (1, 7, 64, 1000, 4096):
        starts = range(0, len(data), share) if share > 1 else range(40)
        ends: list[int | None] = [start + share for start in starts]
        if share > 1:
            ends[-1] = None
        parts = [read(tmp_path / "a", start=start, end=end) for start, end in zip(starts, ends, strict=True)]
        found = [body for part in parts for body in part]
        assert found == (whole if share > 1 else [body for body in whole if body.at < 40])


def test_a_line_that_goes_through_parts_is_read_by_the_one_where_it_begins(tmp_path):
    (tmp_path / "a").write_bytes(b"y" * 3_000_000 + b"\nlast")
    opened: list[Counted] = []

    def part(start, end):
        def open_again():
            opened.append(Counted(tmp_path / "a"))
            return opened[-1]

        return list(LineReader(open_again, None, Split("", start, end, True), ReadOptions()))

    assert [len(body.content) for body in part(0, 500_000)] == [3_000_000]
    assert part(500_000, 1_000_000) == []
    assert opened[-1].count < 800_000
    assert [body.content for body in part(2_900_000, None)] == [b"last"]


class Counted(io.FileIO):
    """A file that counts the bytes that were read."""

    count = 0

    def read(self, size=-1):
        piece = super().read(size)
        self.count += len(piece)
        return piece


def test_a_line_that_is_too_long_keeps_its_beginning(tmp_path):
    long = b"y" * (MAX_BODY_BYTES + 1)
    (tmp_path / "a").write_bytes(b"a\n" + long + b"\nb")
    first, second, third = read(tmp_path / "a")
    assert (first.content, third.content) == (b"a", b"b")
    assert second.fault[0] == "too_large"
    assert second.size == len(long)
    assert second.sha256 == hashlib.sha256(long).hexdigest()
    assert len(second.content) == 65_536
    assert third.at == 2 + len(long) + 1


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "é a%20.json").write_bytes(b"a")
    (tmp_path / "_SUCCESS").write_bytes(b"x")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a").write_bytes(b"x")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b").write_bytes(b"b")
    found = [
        body
        for (task) in [plan_tasks(find(str(tmp_path)), "auto")]
        for each in task
        for split in each
        for body in bodies(split, ReadOptions())
    ]
    assert sorted(body.content for body in found) == [b"", b"a", b"b"]
    assert faults(found) == [("unreadable_file", "It is no regular file.")]


def test_a_name_may_have_any_characters():
    """Below a folder of an object store, where names are parts of a URL."""
    names = ["a b.ndjson", "100%.gz", "é/ü?#.ndjson"]
    below = [fs.FileInfo(f"bucket/dumps/{name}", fs.FileType.File) for name in names]
    found = list(_visible("s3://bucket/dumps/?region=eu-west-1", "bucket/dumps", below))
    assert [locate(file.url)[1] for file in found] == [f"bucket/dumps/{name}" for name in names]


@pytest.mark.parametrize("name", ["a.gz", "a.ndjson.zst", "a.parquet"])
def test_a_file_that_cannot_be_empty_is_damaged(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    assert faults(read(tmp_path / name)) == [("truncated_file", "It is empty.")]


def test_a_file_that_is_gone_is_told(tmp_path):
    ((reason, detail),) = faults(read(tmp_path / "gone"))
    assert reason == "unreadable_file"
    assert "gone" in detail
    with pytest.raises(FileNotFoundError):
        find(str(tmp_path / "gone"))


def test_a_plan_shares_large_files_and_puts_small_ones_together(tmp_path):
    for number in range(200):
        (tmp_path / f"small-{number:03}").write_bytes(b"a\n")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    pack("gzip", os.urandom(1000) * 100, tmp_path / "packed.gz")
    tasks = plan_tasks(find(str(tmp_path)), "auto")
    splits = [split for task in tasks for split in task]
    large = [split for split in splits if split.url.endswith("large")]
    assert [split.start for split in large] == [0, *(split.end for split in large[:-1])]
    assert large[-1].end is None
    assert len(large) == 4
    assert 6 <= len(tasks) <= 10
    assert len({split.url for split in splits}) == 202
    assert plan_tasks([], "auto") == []
    assert all(
        split.end is None for task in plan_tasks(find(str(tmp_path / "large")), "dead-letters") for split in task
    )


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_a_column_of_parquet(tmp_path, kind):
    values = [b'{"n":%d}' % number for number in range(5000)]
    given = [value.decode() for value in values] if "string" in str(kind) else values
    table = pa.table({"number": range(5000), "other": ["x"] * 5000, "body": pa.array(given, kind)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    assert contents(tmp_path / "a.parquet") == values
    size = (tmp_path / "a.parquet").stat().st_size
    found = [
        body for start in range(0, size, 4096) for body in read(tmp_path / "a.parquet", start=start, end=start + 4096)
    ]
    assert [(body.at, body.content) for body in found] == list(enumerate(values))
    assert contents(tmp_path / "a.parquet", column="other") == [b"x"] * 5000


def test_a_null_and_a_column_that_is_not_there(tmp_path):
    parquet.write_table(pa.table({"b": [b"x", None], "c": [1, 2], "d": ["e", "f"]}), tmp_path / "a")
    first, second = read(tmp_path / "a", column="b")
    assert (first.content, second.fault[0], second.at) == (b"x", "no_body", 1)
    assert "Columns of text or bytes: b, d." in faults(read(tmp_path / "a"))[0][1]
    assert "no column c of text or bytes" in faults(read(tmp_path / "a", column="c"))[0][1]


def test_a_parquet_file_that_is_damaged(tmp_path):
    rows = [os.urandom(100) for _ in range(5000)]
    parquet.write_table(pa.table({"body": rows}), tmp_path / "whole", row_group_size=1000)
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    assert faults(read(tmp_path / "cut"))[0][0] == "unreadable_file"
    parquet.write_table(pa.table({"body": rows}), tmp_path / "name", store_schema=False)
    (tmp_path / "name").write_bytes((tmp_path / "name").read_bytes().replace(b"body", b"\xff\xfe\xfd\xfc"))
    assert faults(read(tmp_path / "name"))[0][0] == "unreadable_file"
    (tmp_path / "text").write_bytes(b"PAR1")
    assert faults(read(tmp_path / "text"))[0][0] == "unreadable_file"
    assert faults(read(tmp_path / "text", form="parquet"))[0][0] == "unreadable_file"


RECORDS = [b'{"job":"a","x": 1.10,"dead_letter":{"reason":"failed"}}', b'{"raw":"y","job":"b","dead_letter":{}}']
POISON = dead_letter_block("poison", "q", 0, 7)


def entry(record):
    try:
        json.loads(record)
    except ValueError:
        return b'{"id":null,"record":null,"record_base64":"%b"}' % base64.b64encode(record)
    return b'{"id":"i","headers":{},"record":%b,"record_base64":null}' % record


@pytest.mark.parametrize("body", [b"\xff\x00", b"not json", b'{"dead_letter":1}', b"[1]"])
def test_the_body_of_a_poison_record_is_what_is_judged(tmp_path, body):
    records = [*RECORDS, dead_letter_record(body, POISON)]
    page = b'{"dead_letters":[%b],"next_cursor":null}' % b",".join(map(entry, records))
    expected = [*RECORDS, body]
    (tmp_path / "page").write_bytes(page)
    assert contents(tmp_path / "page") == expected
    (tmp_path / "pages").write_bytes(page + b"\n\n" + page + b"\n")
    assert contents(tmp_path / "pages") == expected * 2
    (tmp_path / "packed").write_bytes(gzip.compress(page))
    assert contents(tmp_path / "packed") == expected
    (tmp_path / "pretty").write_text(json.dumps(json.loads(page), indent=2))
    assert len(contents(tmp_path / "pretty")) == 3
    (tmp_path / "lines").write_bytes(b"\n".join(map(entry, records)))
    assert contents(tmp_path / "lines", form="dead-letters") == expected


def test_a_page_may_be_larger_than_a_body(tmp_path):
    large = b'{"job":"a","dead_letter":{},"x":"%b"}' % (b"y" * (MAX_BODY_BYTES // 2))
    (tmp_path / "page").write_bytes(b'{"dead_letters":[%b]}' % b",".join([entry(large)] * 3))
    assert contents(tmp_path / "page") == [large] * 3
    too_large = large.replace(b"y", b"zz")
    (tmp_path / "page").write_bytes(b'{"dead_letters":[%b,%b]}' % (entry(RECORDS[0]), entry(too_large)))
    first, second = read(tmp_path / "page")
    assert (first.content, second.fault[0], second.size) == (RECORDS[0], "too_large", len(too_large))


def test_records_that_are_no_json_are_in_base64(tmp_path):
    (tmp_path / "a").write_bytes(b'{"dead_letters":[%b,{"record_base64":"*"}]}' % entry(b"\xff\xfe"))
    first, second = read(tmp_path / "a")
    assert (first.content, first.fault) == (b"\xff\xfe", None)
    assert second.fault == ("invalid_export", "record_base64 is not Base64.")


def test_what_is_no_export(tmp_path):
    (tmp_path / "a").write_bytes(b"\n".join([entry(RECORDS[0]), b"{", entry(RECORDS[1]), b'{"x":1}']))
    found = read(tmp_path / "a", form="dead-letters")
    assert [body.content for body in found] == [RECORDS[0], b"{", RECORDS[1], b'{"x":1}']
    assert [body.fault and body.fault[0] for body in found] == [None, "invalid_export", None, "invalid_export"]
    (tmp_path / "b").write_bytes(b"x\ny\n")
    assert [body.content for body in read(tmp_path / "b", form="dead-letters")] == [b"x\ny"]
    data = gzip.compress(b'{"dead_letters":[' + b",".join([entry(RECORDS[0])] * 1000) + b"]}")
    (tmp_path / "c").write_bytes(data[:-20])
    (fault,) = faults(read(tmp_path / "c"))
    assert fault[0] == "truncated_file"


def test_a_file_that_cannot_be_looked_at_is_not_shared():
    huge = [InputFile("file:///nowhere", 2**42, 0, True)]
    assert len(plan_tasks(huge, "auto")) == 1, "a file that cannot be read is one task, which says so"
