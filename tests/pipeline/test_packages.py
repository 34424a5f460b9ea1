"""The packages of the pipeline import only packages of lower rows."""

from __future__ import annotations

from collections.abc import Iterator

from tests.architecture.sources import imports, modules

ROWS = (
    ("errors", "formatting"),
    ("storage", "spark"),
    ("duckdb_engine", "continuous"),
    ("validate", "journal"),
    ("metrics", "send"),
    ("report", "find", "source", "tables", "erase"),
    ("lineage",),
    ("cli",),
)


def arrows() -> Iterator[tuple[str, str]]:
    """Every import between two packages of the pipeline."""
    for name, path in modules().items():
        for imported in imports(path):
            parts, others = name.split("."), imported.split(".")
            if parts[:2] == others[:2] == ["babelgate", "pipeline"] and len(parts) > 2 and parts[2] != others[2]:
                yield parts[2], others[2]


def row_of(package: str) -> int:
    return next(row for row, packages in enumerate(ROWS) if package in packages)


def test_packages_import_lower_ones() -> None:
    assert {(one, other) for one, other in arrows() if row_of(other) >= row_of(one)} == set()
