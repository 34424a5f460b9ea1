"""Makes ``old_lake.tar.xz``: a lake of the version before the tables, and ``rows.json``, the rows that its code read.

It runs with the code and the test helpers of that version, the commit 8b4e8ff5, in the folder of a worktree of it::

    git worktree add /tmp/old 8b4e8ff5 && cd /tmp/old
    PYTHONPATH=app:. python REPOSITORY/tests/pipeline/old_lake.py REPOSITORY/tests/pipeline/old_lake.tar.xz

``HOME`` must not exist; it is removed at the end. Its name is in the manifests and in ``src_file``.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.journal.reader import read_journal, read_missing
from babelgate.pipeline.metrics.stages import DATASETS as MEASURED
from babelgate.pipeline.spark.session import session
from babelgate.pipeline.storage.datasets import DatasetStore
from tests.pipeline.conftest import CONF
from tests.pipeline.histories import DAY, START, Days, land

HOME = Path("/srv/old-lake")
META = '{"id":"%d","queue":"q","lang":"go","schema_version":1,"created_at":5}'
GOOD = f'{{"job":"urn:babel:a:b","trace_id":"t","data":{{}},"meta":{META},"attempts":0}}\n'
DATASETS = ("accepted", "quarantined", *MEASURED)


def invoke(*arguments: str) -> None:
    result = CliRunner().invoke(pipeline, [*arguments, "--lake", str(HOME / "lake")], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def fill() -> None:
    """Two runs of each job. The first day is current as the first run left it; of the others both have rows."""
    landing, bodies = HOME / "landing", HOME / "bodies"
    rows = list(Days(14, days=2).rows())
    late = [each for number, each in enumerate(rows) if number % 2 and each["at"] >= START + DAY]
    for number, part in enumerate(([each for each in rows if each not in late], late)):
        land(landing, part, f"n{number}")
        bodies.mkdir(exist_ok=True)
        (bodies / f"{number}.ndjson").write_text(GOOD % number + "{}\n")
        if number:
            (landing / "torn.ndjson").write_text('{"v":1,\n')
        invoke("ingest", str(landing))
        if not number:
            invoke("compact")
        invoke("metrics")
        invoke("validate", str(bodies))


def rows_of(spark: Any) -> dict[str, list[Any]]:
    root = str(HOME / "lake")
    store = DatasetStore(spark, root)
    frames = {name: store.read(name) for name in DATASETS}
    frames |= {"journal": read_journal(spark, root), "journal_gaps": store.read("journal_gaps")}
    assert read_missing(spark, root).count() == frames["journal_gaps"].count() > 0
    return {name: frame.toArrow().to_pylist() for name, frame in frames.items()}


def pack(target: Path, rows: dict[str, list[Any]]) -> None:
    lake = HOME / "lake"
    made = {str(path.relative_to(HOME)): path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    # Locks name the process that held them.
    made = {name: content for name, content in made.items() if not name.endswith((".lock", ".crc", "_SUCCESS"))}
    made["rows.json"] = json.dumps(rows, default=str, sort_keys=True).encode()
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name, content in sorted(made.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    HOME.mkdir(parents=True)
    try:
        with session("old", master="local[1]", conf=CONF) as spark:
            fill()
            pack(Path(sys.argv[1]), rows_of(spark))
    finally:
        shutil.rmtree(HOME)
