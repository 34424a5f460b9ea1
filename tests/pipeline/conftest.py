"""A Spark session shared by all tests of a process, because starting one takes seconds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from babelgate.pipeline.spark.session import session
from tests.harness import spark_jvm
from tests.harness.ci import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {
    "spark.driver.extraJavaOptions": spark_jvm.OPTIONS,
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.python.worker.reuse": "true",
    # To compile a query takes longer than to interpret it for a few rows. The test of a cluster compiles.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The usual one goes past the file system of ``spark_jvm``, and starts a process for each file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, quick to start. Commands that run in this process use it too."""
    if shutil.which("java") is None:
        missing("Java", "install openjdk-17-jre-headless")
    with session("tests", master="local[2]", conf=CONF) as started:
        spark_jvm.keep_permissions(started)
        yield started


@pytest.fixture(scope="session")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake of :func:`write_lake`. The last tests of ``test_tables_page`` add records to it."""
    from tests.pipeline.lakes import write_lake

    folder = tmp_path_factory.mktemp("pages ü")
    write_lake(folder)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use Spark are marked so."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
