"""The directory of one gateway's workers: its own, and gone with it."""

from __future__ import annotations

import os
from pathlib import Path

from babelgate.cluster.workers import workers_directory


def test_each_has_one_of_its_own_and_it_goes_with_it(tmp_path: Path) -> None:
    with workers_directory(tmp_path) as one, workers_directory(tmp_path) as other:
        assert one is not None
        assert other is not None
        assert one != other
        assert one.stat().st_mode & 0o777 == 0o700
        (one / "numbers").write_text("[]")
    assert list((tmp_path / "workers").iterdir()) == []


def test_what_a_killed_one_left_goes_when_another_starts(tmp_path: Path) -> None:
    dead = tmp_path / "workers" / "0123456789abcdef"
    dead.mkdir(parents=True)
    (dead / "numbers").write_text("[]")
    with workers_directory(tmp_path) as one:
        assert one is not None
        assert list((tmp_path / "workers").iterdir()) == [one]
        with workers_directory(tmp_path):
            assert one.exists(), "a living one was taken for dead"


def test_where_there_can_be_none_the_gateway_starts_without(tmp_path: Path) -> None:
    (tmp_path / "workers").write_text("in the way")
    with workers_directory(tmp_path) as none:
        assert none is None
    assert not [name for name in os.listdir(tmp_path) if name != "workers"]
