"""The official conformance suite: its cases, and the outcome of each, as a table at the end of a test run.

The pinned source distribution of the Python SDK carries the suite; ``python -m tests.harness.conformance`` fetches it.
A test records every case of its section: passed, or not applicable with a reason.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pytest

from tests.harness.ci import missing

SUITE_VERSION = "1.8.0"
_DISTRIBUTION = "babelqueue-1.24.0"
_SHA256 = "3918ef1e53ad08be2311f27840d1c949159a1d66701ebe899acabbd86a430da1"
_HOME = Path(__file__).resolve().parents[2] / ".brokers" / "babelqueue"
_PART = f"{_DISTRIBUTION}/tests/conformance/"
SUITE = _HOME / _PART


def fetch() -> None:
    """Download, verify and unpack the suite, unless it is here. Raises RuntimeError when that fails."""
    if _is_here():
        return
    _HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_HOME) as folder:
        command = [*_pip(), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
        subprocess.run([*command, "--no-binary", "babelqueue", _DISTRIBUTION.replace("-", "==")], check=True)
        archive = Path(folder) / f"{_DISTRIBUTION}.tar.gz"
        actual = hashlib.sha256(archive.read_bytes()).hexdigest()
        if actual != _SHA256:
            raise RuntimeError(f"{archive.name} has the SHA-256 {actual}, expected {_SHA256}")
        shutil.rmtree(SUITE, ignore_errors=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if _PART in member.name else None
                if content is not None:
                    target = _HOME / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
    if not _is_here():
        raise RuntimeError(f"{_DISTRIBUTION} does not carry version {SUITE_VERSION} of the suite")


def _is_here() -> bool:
    version = SUITE / "CONFORMANCE_VERSION"
    return version.is_file() and version.read_text("ascii").strip() == SUITE_VERSION


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise RuntimeError("pip is needed to fetch the conformance suite")
    return [found]


def locate() -> Path | None:
    """The folder of the suite, or None when it was not fetched."""
    return SUITE if _is_here() else None


Status = Literal["passed", "failed", "not applicable"]


class Outcome(NamedTuple):
    """What became of one case."""

    section: str
    case: str
    status: Status
    reason: str | None


F = TypeVar("F", bound=Callable[..., Any])
outcomes: dict[tuple[str, str], Outcome] = {}


def record(section: str, case: str, status: Status, reason: str | None = None) -> None:
    """Note what became of ``case``. A case that is not applicable needs a reason."""
    if status == "not applicable" and not reason:
        raise ValueError(f"{section}/{case} needs a reason")
    outcomes[section, case] = Outcome(section, case, status, reason)


@contextmanager
def judged(section: str, case: str) -> Iterator[None]:
    """Record ``case`` as passed, or as failed when the block raises."""
    try:
        yield
    except BaseException:
        record(section, case, "failed")
        raise
    record(section, case, "passed")


@contextmanager
def judged_version_gate(section: str, outcome: str) -> Iterator[None]:
    """Record all rows of a version gate with this outcome, and those of the others that are not applicable."""
    with ExitStack() as rows:
        for case in cases(section):
            if case["expect"]["outcome"] == outcome and case["dead_letter"] == "on":
                rows.enter_context(judged(section, case["name"]))
            elif case["dead_letter"] != "on" or case["expect"]["outcome"] not in ("dlq_raw", "unsettled"):
                record(section, case["name"], "not applicable", "the gateway has no other strategy than to dead-letter")
        yield


@cache
def _manifest(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return loaded


def folder() -> Path:
    """The folder of the suite. Without it the test is skipped; in CI it fails."""
    return locate() or missing("the conformance suite", "fetch it with: python -m tests.harness.conformance")


def section(name: str) -> Any:
    """A section of the manifest as it stands."""
    return _manifest(folder())[name]


def cases(name: str) -> Sequence[Mapping[str, Any]]:
    """The cases of a section whose cases are one list."""
    found = section(name)
    listed: Sequence[Mapping[str, Any]] = found if isinstance(found, list) else found["cases"]
    return listed


def each_case(name: str) -> Callable[[F], F]:
    """Run a test once for each case of a section; it takes the case as ``case``. A missing suite is one such run."""
    listed = cases(name) if locate() else [None]
    return pytest.mark.parametrize("case", listed, ids=lambda case: case["name"] if case else "missing")


def fixture(case: Mapping[str, Any]) -> bytes:
    """The body that a case names as its file."""
    return (folder() / case["file"]).read_bytes()


def resolve(document: Any, pointer: str) -> Any:
    """The value at an RFC 6901 pointer. Raises KeyError or IndexError where there is none."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


def same(one: Any, other: Any) -> bool:
    """Whether two parsed JSON values are equal and of the same types: 1 is neither true nor 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def assert_holds(document: Any, expected: Mapping[str, Any]) -> None:
    """Every pointer of ``expected`` holds its value in ``document``."""
    for pointer, value in expected.items():
        assert same(resolve(document, pointer), value), f"{pointer}: {resolve(document, pointer)!r} is not {value!r}"


def assert_absent(document: Any, pointers: Sequence[str]) -> None:
    """No pointer of ``pointers`` exists in ``document``."""
    for pointer in pointers:
        with pytest.raises((KeyError, IndexError)):
            resolve(document, pointer)


def table() -> list[str]:
    """The recorded outcomes as lines: one per section, and one per case that is not applicable."""
    lines = []
    for name in sorted({outcome.section for outcome in outcomes.values()}):
        found = [outcome for outcome in outcomes.values() if outcome.section == name]
        counts = {status: sum(outcome.status == status for outcome in found) for status in ("passed", "failed")}
        others = [outcome for outcome in found if outcome.status == "not applicable"]
        lines.append(
            f"{name:24} {counts['passed']:4} passed {counts['failed']:4} failed {len(others):4} not applicable"
        )
        lines += [f"    {outcome.case}: {outcome.reason}" for outcome in others]
    return lines


if __name__ == "__main__":
    fetch()
