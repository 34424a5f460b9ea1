"""A journal on a real file system that is full to the last byte, and then is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from babelgate.observe.journal.writer import Journal, Options
from tests.harness.disk import fill, small_disk
from tests.harness.journal import happened, read
from tests.harness.local import eventually

KIB = 1024


async def test_what_does_not_fit_into_memory_is_a_gap_and_nothing_else_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with small_disk(tmp_path / "open", 4 * KIB * KIB) as directory:
        options = Options(landing=str(tmp_path / "landing"), open_directory=directory, node="a", buffer_bytes=64 * KIB)
        recording = Journal(options)
        recording.start()
        recording.observe(happened())
        await eventually(lambda: recording.stats().buffer_bytes == 0)
        filler = fill(directory)
        sent = 1
        while not recording.stats().dropped:
            recording.observe(happened("delivered"))
            sent += 1
        await eventually(lambda: recording.stats().errors > 0)
        dropped = recording.stats().dropped
        filler.unlink()
        await eventually(lambda: recording.stats().buffer_bytes == 0)
        recording.observe(happened("acked"))
        await recording.close()
    found = read(tmp_path / "landing")
    (gap,) = [record for record in found if record.event == "gap"]
    assert gap.count == dropped
    assert len(found) == sent - dropped + 2
    said = [record.msg["event"] for record in caplog.records if isinstance(record.msg, dict)]
    assert [event for event in said if "journal" in event] == [
        "the journal cannot be written",
        "the journal is written again",
    ]
