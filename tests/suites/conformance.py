"""The official conformance suite: its cases, and what became of each.

A test records every case of its section, passed or not applicable with a reason; the table ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import pytest

from tests.harness.ci import missing
from tests.harness.conformance import locate

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


@cache
def _manifest(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return loaded


def folder() -> Path:
    """Where the suite lies; without it the test is skipped, in CI it fails."""
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
