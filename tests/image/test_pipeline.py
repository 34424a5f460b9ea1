"""The image of the pipeline, and a job in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from babelgate import __version__
from tests.harness import image as harness
from tests.harness.image import LIMITS, Podman
from tests.pipeline.segments import Writer

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PIPELINE = "babelgate-pipeline:test"
CONFINED = ("--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL")
MESSAGE = {
    "job": "urn:babel:test:pipeline",
    "trace_id": "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
    "data": {"n": 1},
    "meta": {"id": "m-1", "queue": "q", "lang": "python", "schema_version": 1, "created_at": 1_700_000_000_000},
    "attempts": 0,
}


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Podman]:
    """A podman that has the image of the pipeline."""
    harness.build(tag=PIPELINE, target="pipeline")
    with harness.podman() as own:
        yield own


def run(podman: Podman, *words: str) -> str:
    """What a container of the image prints, which may write to its volumes only."""
    security = ("--security-opt", "no-new-privileges", "--network", "none")
    return podman("run", "--rm", *LIMITS, *CONFINED, *security, *words)


def test_its_help_and_its_bill_of_materials(pipeline: Podman) -> None:
    assert "validate" in run(pipeline, PIPELINE, "--help")
    document = json.loads(run(pipeline, "--entrypoint", "cat", PIPELINE, "/opt/babelgate/sbom.cdx.json"))
    assert document["metadata"]["component"]["version"] == __version__
    assert {"pyspark", "pyarrow", "numpy"} <= {each["name"] for each in document["components"]}


def test_a_job(pipeline: Podman, tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "messages.jsonl").write_text(json.dumps(MESSAGE) + "\nno message\n")
    os.chown(tmp_path, 10001, 10001)
    folder = ("--volume", f"{tmp_path}:/data")
    printed = run(pipeline, *folder, PIPELINE, "validate", "/data/dumps", "--lake", "/data/lake")
    assert "2 bodies: 1 accepted" in printed and "invalid_json" in printed
    assert list(tmp_path.glob("lake/accepted/v=1/run=*/*.parquet"))


def test_the_journal_is_ingested(pipeline: Podman, tmp_path: Path) -> None:
    """Spark compresses what it writes with a library that it unpacks to /tmp."""
    writer = Writer(tmp_path / "landing")
    writer.happened("accepted", 3)
    writer.land()
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 10001, 10001)
    run(pipeline, "--volume", f"{tmp_path}:/data", PIPELINE, "ingest", "/data/landing", "--lake", "/data/lake")
    assert list(tmp_path.glob("lake/journal/**/*.parquet"))
