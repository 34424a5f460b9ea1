"""A place is spelled alike with Spark and without it."""

from __future__ import annotations

from pathlib import Path

from babelgate.pipeline.send.sources import inputs_of_dataset
from babelgate.pipeline.storage.datasets import DatasetReader


def test_a_lake_beside_the_folder_is_the_same_lake(tmp_path: Path) -> None:
    lake, beside = tmp_path / "lake", tmp_path / "beside"
    for each in (lake, beside):
        each.mkdir()
    DatasetReader.without_spark(str(lake)).publish(["accepted"], "night", {})
    found = [
        inputs_of_dataset(DatasetReader.without_spark(str(each)), "accepted") for each in (lake, beside / "../lake")
    ]
    assert found[0] == found[1] == [[f"file:{lake}/accepted/v=1", "night"]]
