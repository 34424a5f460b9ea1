"""Runs, manifests and CURRENT files of datasets, on the file system that Spark writes to."""

from __future__ import annotations

import json

import click
import pytest

from babelgate.pipeline.storage.datasets import DatasetStore, run_id
from babelgate.pipeline.storage.schemas import ACCEPTED, QUARANTINED

BOTH = ("accepted", "quarantined")


@pytest.fixture
def store(spark, tmp_path):
    return DatasetStore(spark, str(tmp_path / "root"))


def rows(spark, verdicts):
    """One row per verdict, as a job makes them: facts and verdict, whatever else is null."""
    columns = {**ACCEPTED.columns, **QUARANTINED.columns}
    made = [f"select '{verdict}' as verdict, {index} as number" for index, verdict in enumerate(verdicts)]
    given = {"message_id": "cast(number as string)"}
    chosen = [f"cast({given.get(name, 'null')} as {kind}) as {name}" for name, kind in columns.items()]
    return spark.sql(" union all ".join(made)).selectExpr("verdict", *chosen)


def ids(frame):
    return sorted(row.message_id for row in frame.collect())


def test_readers_see_a_run_once_it_is_complete(spark, store):
    with pytest.raises(click.ClickException, match="has no dataset accepted"):
        store.read("accepted")
    store.write_by(rows(spark, ["accepted", "quarantined", "accepted"]), "verdict", BOTH, "first")
    assert store.current("accepted") is None
    assert store.completed(BOTH, "first") is None
    store.publish(BOTH, "first", {"counts": {"rows": 3}})
    assert ids(store.read("accepted")) == ["0", "2"]
    assert ids(store.read("quarantined")) == ["1"]
    assert store.read("accepted").columns == list(ACCEPTED.columns)
    manifest = store.manifest("accepted")
    assert manifest["run_id"] == "first"
    assert manifest["counts"] == {"rows": 3}

    store.write_by(rows(spark, ["accepted"]), "verdict", BOTH, "second")
    assert ids(store.read("accepted")) == ["0", "2"], "an incomplete run is nobody's"
    store.publish(BOTH, "second", {})
    assert ids(store.read("accepted")) == ["0"]
    assert ids(store.read("quarantined")) == [], "a run without rows is a run"
    assert sorted(store.runs("quarantined")) == ["first", "second"]

    assert store.completed(BOTH, "first")["run_id"] == "first"
    assert ids(store.read("accepted")) == ["0", "2"], "what was made of these inputs before is current again"


def test_a_second_attempt_replaces_what_the_first_left(spark, store):
    store.write_by(rows(spark, ["accepted", "accepted", "quarantined"]), "verdict", BOTH, "run")
    store.write_by(rows(spark, ["accepted"]), "verdict", BOTH, "run")
    store.publish(BOTH, "run", {})
    assert ids(store.read("accepted")) == ["0"]
    assert ids(store.read("quarantined")) == []


def test_one_dataset_is_written_in_its_own_columns(spark, store):
    frame = rows(spark, ["accepted"])
    store.write(frame, "accepted", "run")
    store.publish(["accepted"], "run", {})
    stored = spark.read.parquet(store.folder("accepted", "run"))
    assert stored.columns == list(ACCEPTED.columns)
    with pytest.raises(ValueError, match="lacks the columns"):
        store.write(frame.drop("body"), "accepted", "other")


def test_small_files_are_replaced_whole(store, tmp_path):
    url = f"{store.root}/note"
    assert store.files.read(url) is None
    for content in (b"first", b"second \xff"):
        store.files.write(url, content)
        assert store.files.read(url) == content
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["note"], "nothing is left beside it"


def test_a_folder_is_walked(store, tmp_path):
    for name in ("b/two", "a/one", "three"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(name))
    found = list(store.files.walk(store.root))
    assert [each.url.removeprefix(store.root) for each in found] == ["/a/one", "/b/two", "/three"]
    assert [each.size for each in found] == [7, 7, 7]
    assert [each.url for each in store.files.walk(f"{store.root}/three")] == [f"{store.root}/three"]


def test_a_run_is_named_after_what_it_is_made_of():
    first = run_id("validate", [["a", 1], ["b", 2]], {"column": None})
    assert first == run_id("validate", [["b", 2], ["a", 1]], {"column": None})
    assert len({first, run_id("validate", [["a", 1]], {"column": None}), run_id("other", [], {})}) == 3
