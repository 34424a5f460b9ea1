"""A driver that runs several commands of ``babelgate pipeline`` in one session, each as if it were alone.

``python -m tests.harness.spark_driver MASTER CONF COMMANDS``, the last two JSON: an object, and a list of argument
lists. Prints JSON: where the executors have the package from, and when each command began and ended (Unix ms).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from babelgate.clock import now_ms
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.spark.session import session


def run(master: str, conf: dict[str, str], commands: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Run them in their order. Raises what a command raises."""
    spans = []
    with session("tests", master=master, conf=conf) as spark:
        slots = spark.sparkContext.defaultParallelism
        # Tasks of a barrier stage run at once: one on each executor.
        sources = spark.sparkContext.parallelize(range(slots), slots).barrier().mapPartitions(_source).collect()
        for arguments in commands:
            # To compile a query takes longer than to interpret it for a few rows. One command compiles.
            compiles = arguments[0] == "metrics"
            spark.conf.set("spark.sql.codegen.wholeStage", compiles)
            spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiles else "NO_CODEGEN")
            began = now_ms()
            pipeline.main([*arguments, "--master", master], standalone_mode=False)
            spans.append((arguments[0], began, now_ms()))
    return {"sources": sources, "spans": spans}


def _source(_: Any) -> list[str]:
    import babelgate.envelope

    # Spark adds what it was sent to the path as it lies in the executor's working folder.
    return [os.path.abspath(babelgate.envelope.__file__)]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))))
