"""What ``make release-check`` refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tools import release
from tools.generated_docs import ROOT
from tools.licences import forbidden, is_allowed, licence, pinned
from tools.sbom import sbom

HEAD = "# Changelog\n\n## [Unreleased]\n"


@pytest.mark.parametrize(
    ("changelog", "version", "released", "found"),
    [
        (HEAD, "0.1.0", False, ""),
        (HEAD, "0.1.0", True, "no section [0.1.0]"),
        (f"{HEAD}## [0.1.0] - 2026-01-31\n", "0.1.0", True, ""),
        (f"{HEAD}## [0.2.0] - 2026-01-31\n## [0.1.0] - 2026-01-01\n", "0.3.0", False, ""),
        (f"{HEAD}## [0.1.0] - 2026-01-31\n## [0.2.0] - 2026-01-01\n", "0.3.0", False, "the newest first"),
        (f"{HEAD}## [0.2.0] - 2026-01-31\n", "0.1.0", False, "newer than the program"),
        (f"{HEAD}## [0.1.0]\n", "0.1.0", False, "has no date"),
        (f"{HEAD}## [one] - 2026-01-31\n", "0.1.0", False, "MAJOR.MINOR.PATCH"),
        ("# Changelog\n## [0.1.0] - 2026-01-31\n", "0.1.0", False, "must be [Unreleased]"),
    ],
)
def test_the_sections_of_the_changelog(changelog: str, version: str, released: bool, found: str) -> None:
    wrong = list(release.versions(changelog, version, released=released))
    assert len(wrong) == bool(found)
    assert found in "".join(wrong)


REQUIRES: Mapping[str, Sequence[str]] = {
    "a": ["b>=2", 'c; extra == "more"', 'd; sys_platform == "win32"'],
    "b": [],
    "c": [],
}
LOCK = """\
a==1.0 \\
    --hash=sha256:0
b==2.1 \\
    --hash=sha256:0
d==1 ; sys_platform == 'win32' \\
    --hash=sha256:0
"""


@pytest.mark.parametrize(
    ("lock", "roots", "found"),
    [
        (LOCK, ["a>=1"], []),
        (LOCK, ["a>=2"], ["a 1.0 does not meet a>=2"]),
        (LOCK.replace("b==2.1", "b==1.9"), ["a"], ["b 1.9 does not meet b>=2"]),
        (LOCK, ["a[more]"], ["c is missing"]),
        (LOCK + "c==1 \\\n", ["a"], ["c is not needed"]),
        (LOCK, ["a", "e"], ["e is missing"]),
    ],
)
def test_a_lock_file_is_what_a_fresh_one_would_be(lock: str, roots: list[str], found: list[str]) -> None:
    assert list(release.stale(lock, roots, lambda name: REQUIRES[name])) == found


def test_the_lock_files_and_the_stated_versions_are_current() -> None:
    assert len(release.LOCKS) == 4
    assert [*release.stale_locks(), *release.stated_versions()] == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND BSD-3-Clause", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("unknown", False),
    ],
)
def test_a_licence_is_allowed(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


def test_a_licence_is_in_a_file_where_metadata_does_not_state_it() -> None:
    assert licence("axe-playwright-python") == "MIT"


def test_every_dependency_has_a_licence_that_is_allowed() -> None:
    names = {name for lock in release.LOCKS.values() for name in pinned((ROOT / lock).read_text())}
    assert {"fastapi", "pyspark", "pytest"} <= names
    assert list(forbidden(names)) == []
    assert list(forbidden(["no-such-distribution"])) == [
        "no-such-distribution: it is not installed, so that its licence is not known"
    ]


def test_the_sbom_names_every_locked_distribution() -> None:
    lock = (ROOT / "requirements.txt").read_text()
    document = sbom(lock)
    assert document == sbom(lock)
    found = {each["name"]: each for each in document["components"]}
    assert found.keys() == pinned(lock).keys()
    # Both have markers: one is for this system, and the other for Windows.
    assert "uvloop" in found
    assert "colorama" not in pinned((ROOT / "requirements-dev.txt").read_text())
    assert found["uvicorn"]["purl"] == f"pkg:pypi/uvicorn@{pinned(lock)['uvicorn']}"
    assert found["uvicorn"]["licenses"] == [{"expression": licence("uvicorn")}]
    refs = {each["bom-ref"] for each in document["components"]}
    assert set(document["dependencies"][0]["dependsOn"]) == refs and len(refs) == len(found)
