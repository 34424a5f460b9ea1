"""Java for Spark jobs on a few rows: the least memory and compilation, and Spark's classes ready from an archive.

A start with the archive takes 5 seconds of CPU instead of 8. ``python -m tests.harness.spark_jvm`` makes it, unless it
is there; Java ignores one of another Java or another Spark, and does without.
https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html#application-class-data-sharing
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyspark

_FRUGAL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
_ARCHIVE = Path(__file__).resolve().parents[2] / ".brokers" / f"spark-{pyspark.__version__}.jsa"

OPTIONS = f"{_FRUGAL} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
"""For ``spark.driver.extraJavaOptions``, and those of executors and daemons."""


def make() -> None:
    """Write the archive from the classes that a small job loads. Takes 15 s."""
    from app.pipeline.spark.session import session

    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        options = f"{_FRUGAL} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        with session("classes", master="local[2]", conf={"spark.driver.extraJavaOptions": options}) as spark:
            gateway: Any = spark.sparkContext._gateway
            spark.range(9).groupBy("id").count().write.parquet(f"{folder}/numbers")
            assert spark.read.parquet(f"{folder}/numbers").count() == 9
        # The archive is written when Java ends.
        gateway.proc.stdin.close()
        gateway.proc.wait(120)
        made.replace(_ARCHIVE)


if __name__ == "__main__":
    _ARCHIVE.parent.mkdir(exist_ok=True)
    if not _ARCHIVE.exists():
        make()
