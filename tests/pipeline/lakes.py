"""A lake for the tests of readers, and the examples of the pages that read it."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from tests.architecture.sources import ROOT
from tests.pipeline.histories import Days, Row, land

PAGES = ROOT / "docs" / "pipeline"
ROWS: list[Row] = list(Days(80, days=2).rows())
"""The records of :func:`write_lake`."""


def blocks(page: str, language: str) -> list[str]:
    """The examples of a page of the pipeline in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


def invoke(lake: str, *arguments: str) -> str:
    """The output of a command of ``babelgate pipeline`` on ``lake``."""
    result = CliRunner().invoke(pipeline, [*arguments, "--lake", lake], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def write_lake(folder: Path) -> None:
    """Make the lake ``folder/lake`` in which a gap, bad bodies, and the rows of a former run are."""
    lake = str(folder / "lake")
    bodies = folder / "bodies.ndjson"
    bodies.write_text('{"job":"urn:babel:a:b","meta":{"lang":"go"},"data":{}}\nnothing\n{"meta":{"lang":"php"}}\n')

    invoke(lake, "validate", str(bodies))
    half = len(ROWS) // 2
    for number, part in enumerate((ROWS[:half], ROWS[half:])):
        land(folder / "landing", part, "a", 1 + number * len(ROWS))
        invoke(lake, "ingest", str(folder / "landing"))
        invoke(lake, "metrics")
    invoke(lake, "compact")
