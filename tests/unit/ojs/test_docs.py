"""The page on OJS names every requirement once, and only tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONFORMANCE = (ROOT / "docs" / "ojs.md").read_text("utf-8").partition("## Conformance")[2]
ROWS = [line for line in CONFORMANCE.splitlines() if line.startswith("| ") and "---" not in line]
VERDICTS = ("met", "deviated", "not offered")


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The tests of this project."""
    sources = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")]
    return {name for source in sources for name in re.findall(r"def (test_\w+)\(", source)}


def test_every_requirement_has_a_row() -> None:
    assert re.findall(r"^\| (AMQP-\d+) ", CONFORMANCE, re.M) == [f"AMQP-{n:03d}" for n in range(1, 33)]


def test_every_row_has_a_verdict_and_all_but_what_is_not_offered_a_test(names: set[str]) -> None:
    verdicts = [row.rstrip(" |").rpartition("| ")[2] for row in ROWS]
    judged = [verdict for verdict in verdicts if verdict.startswith(VERDICTS)]
    assert len(judged) >= 32 + 18
    for verdict in judged:
        cited = re.findall(r"`(test_\w+)`", verdict)
        assert cited or verdict.startswith("not offered") or "as AMQP-" in verdict, verdict
        assert set(cited) <= names, f"no such test: {set(cited) - names}"
