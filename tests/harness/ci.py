"""A missing part of the environment skips a test on a laptop and fails it in CI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import pytest

_UNTESTED = re.compile(r"not tested: (\w+) \(.+\)")
_LINE = 1
"""Where pytest says that the tests of a broker were skipped."""


def missing(what: str, remedy: str) -> NoReturn:
    """End the test because ``what`` is not here: skip it, or fail it where the environment variable CI is ``true``."""
    reason = f"{what} is missing; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def starting(kind: str) -> Iterator[None]:
    """Around the start of a broker: what is missing for it is why no test of this kind of broker runs."""
    try:
        yield
    except (pytest.skip.Exception, pytest.fail.Exception) as absent:
        raise type(absent)(f"not tested: {kind} ({absent})", pytrace=False) from None


def untested(reports: Iterable[pytest.TestReport]) -> Sequence[str]:
    """Which brokers were not tested, each in a line with the reason, by the reports of tests that ended for that.

    The reports of skipped tests get one place for each reason, so that pytest lists them in one line, too.
    """
    found: dict[str, str] = {}
    for report in reports:
        skipped = report.longrepr if isinstance(report.longrepr, tuple) else None
        if reason := _UNTESTED.search(skipped[2] if skipped else report.longreprtext):
            found.setdefault(reason[1], reason[0])
            if skipped:
                report.longrepr = (__file__, _LINE, skipped[2])
    return sorted(found.values())
