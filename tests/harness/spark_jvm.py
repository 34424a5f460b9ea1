"""Java for Spark jobs on a few rows: the least memory and compilation, and Spark's classes ready from an archive.

A start with the archive takes 5 seconds of CPU instead of 8. ``python -m tests.harness.spark_jvm`` makes it, unless it
is there; Java ignores one of another Java or another Spark, and does without.
https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html#application-class-data-sharing
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FRUGAL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
_ARCHIVE = Path(__file__).resolve().parents[2] / ".brokers" / f"spark-{pyspark.__version__}.jsa"

OPTIONS = f"{_FRUGAL} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
"""For ``spark.driver.extraJavaOptions``, and those of executors and daemons."""

_FILE_SYSTEM = """
public class LocalFilesWithoutChmod extends org.apache.hadoop.fs.LocalFileSystem {
    public LocalFilesWithoutChmod() { super(new Raw()); }
    public static class Raw extends org.apache.hadoop.fs.RawLocalFileSystem {
        public void setPermission(
            org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
        ) {}
    }
}
"""


def keep_permissions(spark: SparkSession) -> None:
    """Let the files and folders that Spark makes in this process keep the permissions that they have from the umask.

    Hadoop has no native library here, so it would start ``chmod`` for every file and folder: a hundred times per run
    of ``metrics``. Commands in processes of their own still do.
    """
    context = spark.sparkContext
    gateway: Any = context._gateway
    jvm: Any = context._jvm
    conf = context._jsc.hadoopConfiguration()
    compiler = getattr(jvm, "org.codehaus.janino.SimpleCompiler")()
    compiler.cook(_FILE_SYSTEM)
    made = compiler.getClassLoader().loadClass("LocalFilesWithoutChmod")
    files = made.getDeclaredConstructor(gateway.new_array(jvm.Class, 0)).newInstance(gateway.new_array(jvm.Object, 0))
    place = getattr(jvm, "java.net.URI")("file:///")
    files.initialize(place, conf)
    kinds = "java.net.URI", "org.apache.hadoop.conf.Configuration", "org.apache.hadoop.fs.FileSystem"
    types, arguments = gateway.new_array(jvm.Class, len(kinds)), gateway.new_array(jvm.Object, len(kinds))
    for number, (kind, argument) in enumerate(zip(kinds, (place, conf, files), strict=True)):
        types[number] = getattr(jvm, "java.lang.Class").forName(kind)
        arguments[number] = argument
    # Hadoop's own tests replace file systems so.
    add = types[2].getDeclaredMethod("addFileSystemForTesting", types)
    add.setAccessible(True)
    add.invoke(None, arguments)


def make() -> None:
    """Write the archive from the classes that a small job loads. Takes 15 s."""
    from babelgate.pipeline.spark.session import session

    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        options = f"{_FRUGAL} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        with session("classes", master="local[2]", conf={"spark.driver.extraJavaOptions": options}) as spark:
            gateway: Any = spark.sparkContext._gateway
            spark.range(9).groupBy("id").count().write.parquet(f"{folder}/numbers")
            assert spark.read.parquet(f"{folder}/numbers").count() == 9
        # The archive is written when Java ends.
        gateway.proc.stdin.close()
        gateway.proc.wait(600)
        made.replace(_ARCHIVE)


if __name__ == "__main__":
    _ARCHIVE.parent.mkdir(exist_ok=True)
    if not _ARCHIVE.exists():
        make()
