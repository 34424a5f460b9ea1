"""What ``validate`` is measured beside, each in a process of its own.

``python -m bench.pipeline_rivals loop|write|from_json FOLDER OUTPUT CORES`` prints the seconds of the work.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

_ENVELOPE = (
    "job string, trace_id string, attempts bigint, data string, "
    "meta struct<id:string, queue:string, lang:string, schema_version:int, created_at:bigint>"
)


def loop(folder: Path, output: Path, cores: int) -> float:
    """One process over the same files with the same codec: verdicts, and nothing else."""
    from babelgate.pipeline.storage.input_files import find
    from babelgate.pipeline.storage.inputs import MAX_BODY_BYTES, ReadOptions
    from babelgate.pipeline.validate.bodies import bodies
    from babelgate.pipeline.validate.classify import classify
    from babelgate.pipeline.validate.validation_task import plan_tasks

    began = time.monotonic()
    reading = ReadOptions("ndjson", None, MAX_BODY_BYTES)
    verdicts: Counter[str] = Counter()
    for task in plan_tasks(find(str(folder)), reading.form):
        for split in task:
            verdicts.update(classify(body, split.url, "bench").verdict for body in bodies(split, reading))
    assert verdicts.total()
    return time.monotonic() - began


def write(folder: Path, output: Path, cores: int) -> float:
    """The same, and its rows are written to Parquet, as ``validate`` writes them."""
    import pyarrow as pa
    from pyarrow import parquet

    from babelgate.pipeline.storage.input_files import find
    from babelgate.pipeline.storage.inputs import MAX_BODY_BYTES, ReadOptions
    from babelgate.pipeline.validate.validation_task import plan_tasks, validate_batches

    began = time.monotonic()
    reading = ReadOptions("ndjson", None, MAX_BODY_BYTES)
    tasks = plan_tasks(find(str(folder)), reading.form)
    batches = validate_batches([pa.record_batch([pa.array(range(len(tasks)))], names=["id"])], tasks, reading, "bench")
    first = next(batches)
    output.mkdir()
    with parquet.ParquetWriter(output / "all.parquet", first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    return time.monotonic() - began


def from_json(folder: Path, output: Path, cores: int) -> float:
    """Spark parses by itself, which is neither the contract nor the same bytes, and writes what it found."""
    from pyspark.sql import functions as f

    from babelgate.pipeline.spark.session import session

    with session("bench", master=f"local[{cores}]", conf={"spark.driver.memory": "1g"}) as spark:
        began = time.monotonic()
        lines = spark.read.text(str(folder), lineSep="\n")
        parsed = lines.select(f.from_json("value", _ENVELOPE).alias("e"), "value").select("e.*", "value")
        parsed.withColumn("ok", f.col("job").isNotNull()).write.partitionBy("ok").parquet(str(output))
        return time.monotonic() - began


WAYS = {each.__name__: each for each in (loop, write, from_json)}

if __name__ == "__main__":
    way, folder, output, cores = sys.argv[1:]
    print(WAYS[way](Path(folder), Path(output), int(cores)))
