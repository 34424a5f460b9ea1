"""Runs ``ingest`` and ``compact`` in this process, and reads their results."""

from __future__ import annotations

import json
from itertools import cycle

from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.journal.reader import existing, read_journal, read_missing
from babelgate.pipeline.storage.datasets import DatasetStore
from tests.harness.journal import landed, records
from tests.pipeline.segments import keys


class Run:
    """The command, in this process, from ``landing`` to ``root`` below ``folder``.

    ``engines``: which make the runs of ``metrics``, one after the other.
    """

    def __init__(self, spark, folder, engines=("spark",)):
        self.spark = spark
        self.landing = folder / "landing"
        self.root = str(folder / "root")
        self.store = DatasetStore(spark, self.root)
        self.output = ""
        self._engines = cycle(engines)
        self._summary = folder / "summary.json"

    def __call__(self, *arguments, code=0, command="ingest"):
        """The summary of a run that ends with ``code``; None where it wrote none."""
        self._summary.unlink(missing_ok=True)
        where = [str(self.landing), "--lake", self.root] if command == "ingest" else ["--lake", self.root]
        if command == "metrics":
            where += ["--engine", next(self._engines)]
        given = [command, *where, "--summary", str(self._summary), *arguments]
        result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
        assert result.exit_code == code, result.output
        self.output = result.output
        return json.loads(self._summary.read_text()) if self._summary.exists() else None

    def keys(self):
        rows = read_journal(self.spark, self.root).select("node", "epoch", "seq").collect()
        return sorted(map(tuple, rows))

    def corrupt(self):
        return existing(self.spark, self.root).corrupt().orderBy("src_file", "src_at").collect()

    def missing(self):
        rows = read_missing(self.spark, self.root).collect()
        return [row.asDict() for row in rows if row.kind != "open_end"]

    def expected(self):
        """What a plain reader finds in the landing folder, each record once."""
        return sorted(set(keys(record for path in landed(self.landing) for record in records(path))))
