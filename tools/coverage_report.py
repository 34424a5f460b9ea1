"""What tests cover, by package: ``python -m tools.coverage_report REPORT``, as ``coverage json`` writes it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

SOURCE = PurePosixPath("app/babelgate")
DEPTH = 2
"""Folders below :data:`SOURCE` that are told apart: each broker has its own."""

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")
"""Members of a file's summary."""


def package(path: str) -> str:
    """The package of a file of the product, below ``babelgate``."""
    folders = PurePosixPath(path).relative_to(SOURCE).parts[:-1]
    return "/".join(folders[:DEPTH]) or SOURCE.name


def by_package(files: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """The summed :data:`COUNTS` of each package, by name. ``files``: that member of coverage's JSON report."""
    found: dict[str, Counter[str]] = {}
    for path, file in files.items():
        found.setdefault(package(path), Counter()).update({name: file["summary"][name] for name in COUNTS})
    return dict(sorted(found.items()))


def lines(packages: Mapping[str, Counter[str]]) -> Iterator[str]:
    """A line for each package, and one for all: statements, branches, and the share of both that was executed."""
    yield f"{'package':24}{'statements':>12}{'branches':>10}{'covered':>9}"
    for name, counts in (*packages.items(), ("all", _sum(packages.values()))):
        share = (counts["covered_lines"] + counts["covered_branches"]) / (
            counts["num_statements"] + counts["num_branches"] or 1
        )
        yield f"{name:24}{counts['num_statements']:>12,}{counts['num_branches']:>10,}{share:>9.1%}"


def _sum(some: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in some:
        total.update(each)
    return total


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    print("\n".join(lines(by_package(report["files"]))))
